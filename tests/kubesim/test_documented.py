"""docs/kubesim.md and its tests list the same behaviours (KS-200 and above: test_controller_docs.py)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"\bK[SFM]-\d+\b")


def documented() -> list[str]:
    text = (ROOT / "docs" / "kubesim.md").read_text()
    return re.findall(r"^\* (K[SFM]-\d+) ", text, re.MULTILINE)


def cited() -> set[str]:
    found: set[str] = set()
    folder = ROOT / "tests" / "kubesim"
    for path in [*(folder / "conformance").glob("test_*.py"), folder / "test_faults.py", folder / "test_metrics_server.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found |= set(NUMBER.findall(ast.get_docstring(node) or ""))
    return found


def test_every_documented_behaviour_has_a_test_and_the_reverse() -> None:
    assert set(documented()) - cited() == set()
    assert cited() - set(documented()) == set()


def test_numbers_are_unique_and_ascend() -> None:
    numbers = [tuple(item.split("-")) for item in documented()]
    keys = [(("KS", "KF", "KM").index(prefix), int(number)) for prefix, number in numbers]
    assert keys == sorted(set(keys))
