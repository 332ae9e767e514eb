"""docs/cli.md is what the commands say of themselves."""

from pathlib import Path

from restow.cli.reference import page

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_the_help_of_the_commands():
    assert PAGE.read_text() == page(), "run `make cli`"
