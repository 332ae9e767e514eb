"""The pages of the documentation, and their sections by heading."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOR_USERS = ("install", "configuration", "reservations", "descheduling", "hooks", "beside", "troubleshooting")
PAGES = {name: (DOCS / f"{name}.md").read_text() for name in FOR_USERS}
ALL = "\n".join(PAGES.values())
_HEADING = re.compile(r"^(#+) (.+)$", re.M)


def outside_fences(text: str) -> str:
    """With every fenced line blank, so that what looks like a heading or a table there is none; positions stay."""
    return re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.M | re.S)


def headings(text: str) -> list[tuple[int, str]]:
    """(level, title) of each heading, in order."""
    return [(len(m[1]), m[2]) for m in _HEADING.finditer(outside_fences(text))]


def section(title: str) -> str:
    """What stands under this heading, to the next one of its level or above. Exactly one page for users has it."""
    found = []
    for text in PAGES.values():
        marks = list(_HEADING.finditer(outside_fences(text)))
        for i, mark in enumerate(marks):
            if mark[2] == title:
                after = (later.start() for later in marks[i + 1 :] if len(later[1]) <= len(mark[1]))
                found.append(text[mark.end() : next(after, len(text))])
    (one,) = found
    return one


def anchor(title: str) -> str:
    """Of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
