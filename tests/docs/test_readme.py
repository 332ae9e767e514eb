"""What the README shows works: its tour is run as it stands, its make targets and links exist."""

import re
import shutil
from pathlib import Path

import pytest
from docs.walks import ROOT, walk

README = (ROOT / "README.md").read_text()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the tour needs kubectl")
def test_the_tour_runs_as_it_stands(tmp_path):
    printed = "".join(walk(ROOT / "README.md", tmp_path, seconds=120))
    assert printed.count("worker-") >= 2, printed
    assert re.search(r"(\d+) of \1 decisions re-decided identically", printed), printed
    assert "left of its capability" in printed
    assert re.search(r"^default +train +Running +3 +3 +0 +research", printed, re.M), printed
    assert "nothing is left running" in printed
    (log,) = (tmp_path / ".restow").iterdir()
    assert f"the log is kept: restow log stats --log .restow/{log.name}" in printed


def test_every_make_target_of_the_readme_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"(?:`|\$ )make ([a-z]+)", README))
    assert named <= targets, named - targets


PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()) if "://" not in link]
    for link in links:
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_example_is_in_the_index():
    index = (ROOT / "docs" / "examples" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs" / "examples").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()
