"""What the demo calls a broken promise of a plan: that of its objective, and no other. And what it says of the objective."""

import io

import pytest

from restow.cli.console import Console
from restow.cli.demo.report import BY_VALUE, Outcome, show
from restow.contracts.values import Packing


def _packing(nodes: int, devices: int) -> Packing:
    return Packing(10, nodes, 10_000, 5_000, 0, devices)


@pytest.mark.parametrize(("objective", "nodes", "devices", "worth", "broken"), [
    ("nodes", 3, 7, 90, ""), ("nodes", 1, 9, 110, "fewer free nodes"),
    ("devices", 1, 9, 90, ""), ("devices", 3, 7, 110, "fewer whole free GPUs"),
    ("value", 1, 7, 110, ""), ("value", 3, 9, 90, "worth less"),
])  # fmt: skip
def test_only_what_was_to_be_gained_must_not_be_less(objective, nodes, devices, worth, broken):
    outcome = Outcome("demo", 10, "optimizing", objective, before=_packing(2, 8), after=_packing(nodes, devices), worth_before=100, worth_after=worth, landed=1)
    outcome.judge()
    assert [broken in said for said in outcome.broken] == [True] * bool(broken)


@pytest.mark.parametrize(("objective", "told"), [("value", True), ("devices", False)])
def test_why_by_value_no_more_single_gpus_are_freed_is_told(objective, told):
    """Beside `--chaos` nothing proves a bound; the demo said that there was none for `value`."""
    outcome = Outcome("demo", 10, "optimizing", objective, before=_packing(2, 8), after=_packing(3, 9), unit="GPU-hours", landed=1)
    show(Console(file=(said := io.StringIO()), width=110), outcome)
    assert (BY_VALUE in said.getvalue()) is told
    assert "No bound is known" not in said.getvalue()
