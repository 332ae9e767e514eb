"""docs/kubesim-controllers.md and its tests know the same numbers."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGES = [HERE.parents[1] / "docs" / name for name in ("kubesim.md", "kubesim-controllers.md")]


def _promised() -> set[int]:
    text = "".join(page.read_text() for page in PAGES if page.exists())
    return {int(n) for n in re.findall(r"^\* \*\*KS-(\d+)\*\*", text, re.MULTILINE) if int(n) >= 200}


def _cited() -> set[int]:
    text = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    return {int(n) for n in re.findall(r'^ +"""KS-(\d+)"""$', text, re.MULTILINE) if int(n) >= 200}


def test_every_promise_about_controllers_has_a_test():
    assert _promised() - _cited() == set()


def test_every_number_that_a_test_cites_is_promised():
    assert _cited() - _promised() == set()
