"""docs/kubesim.md and the tests of controllers, kubelets and nodes know the same numbers (KS-200 and above)."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "kubesim.md"


def _promised() -> set[int]:
    text = PAGE.read_text()
    return {int(n) for n in re.findall(r"^\* \*\*KS-(\d+)\*\*", text, re.MULTILINE) if int(n) >= 200}


def _cited() -> set[int]:
    both = HERE.parent / "kubernetes"
    text = "".join(path.read_text() for path in [*HERE.glob("test_*.py"), *both.glob("test_stock_*.py")])
    return {int(n) for n in re.findall(r'^ +"""KS-(\d+)"""$', text, re.MULTILINE) if int(n) >= 200}


def test_every_promise_about_controllers_has_a_test():
    assert _promised() - _cited() == set()


def test_every_number_that_a_test_cites_is_promised():
    assert _cited() - _promised() == set()
