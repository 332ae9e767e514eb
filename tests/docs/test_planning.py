"""The pictures of docs/planning.md are what the planner does today."""

from docs.planning_pictures import BLOCK, PAGE, page, pictures


def test_the_pictures_are_drawn_from_plans_of_today():
    text = PAGE.read_text()
    assert {block[2] for block in BLOCK.finditer(text)} == set(pictures())
    assert page(text) == text, "run `make planning`"


def test_the_pictures_show_what_the_page_says():
    found = pictures()
    assert found["shared"].count(" moves from ") == 2
    assert "T moves" not in found["waiting"]
    assert "nothing is worth its cost" in found["jobs"]
    assert found["saved"].count(" moves from ") == 1
