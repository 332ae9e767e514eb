"""A move that needs what others leave is not made where somebody who waits would have it first."""

import pytest
from domain.build import NOW, given, node, pod, replica_of, shape

from restow.contracts.values import DeviceShare
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.order import Sequence
from restow.domain.defragmentation.optimizing.world import Rows, opened
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.simulation import Spot

OWNER = replica_of("rs")


def _moved(*waits, objective: str = "devices") -> list[str]:
    """`x` and `y` leave `a` for `c` and `d`, and `z`, which has two GPUs, is to go there from `b`; these pods wait."""
    whole = {i: DeviceShare(i, 1000) for i in range(2)}
    state = given(
        node("a", gpus=2), node("b", gpus=2), node("c", gpus=1), node("d", gpus=1), shape("one", gpu=(1, 1000)), shape("two", gpu=(2, 1000)), shape("three", gpu=(3, 1000)),
        pod("x", "one", "a", owner=OWNER, devices=(whole[0],)), pod("y", "one", "a", owner=OWNER, devices=(whole[1],)), pod("z", "two", "b", owner=OWNER, devices=(whole[0], whole[1])), *waits,
    )  # fmt: skip
    rows = state.table.rows
    wanted = {"x": Spot(rows["c"], (whole[0],)), "y": Spot(rows["d"], (whole[0],)), "z": Spot(rows["a"], (whole[0], whole[1]))}
    task = Task(state, DefragmentationArgs(planner="optimizing", objective=objective, protectionThresholds={}), NOW, "p", 9)
    with opened(task, objective, Rows(task)) as world:
        ordered = Sequence(world, "p", 9).order(wanted, list(wanted))
    assert sorted([*(move.pod for move in ordered.moves), *ordered.stayed]) == ["x", "y", "z"]
    return [move.pod for move in ordered.moves]


@pytest.mark.parametrize("objective", ["devices", "value"])
def test_who_needs_what_others_leave_stays_where_somebody_waits_for_as_much(objective):
    assert _moved(objective=objective) == ["x", "y", "z"]
    assert _moved(pod("waits", "two"), objective=objective) == ["x", "y"]


def test_who_waits_for_more_or_for_something_else_keeps_nobody():
    # This one fits on `c` all the time.
    assert _moved(pod("waits", "one")) == ["x", "y", "z"]
    assert _moved(pod("waits", "three")) == ["x", "y", "z"]


def test_what_is_made_for_those_who_wait_is_held_for_them():
    assert _moved(pod("waits", "two"), objective="none") == ["x", "y", "z"]
