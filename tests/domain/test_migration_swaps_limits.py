"""Limits and two that change places: each counts for the other, and both need what one does twice (RULES G-13)."""

import pytest
from domain.build import NOW, configured, given, node, pod, pod_group, replica_of, shape
from domain.saga import OWNER, advance, begun, decider, evicts, failed, hold, land, move, plan, step
from domain.test_migration_swaps import CONF, OTHER
from msgspec.structs import replace

from restow.domain.migration.limits import MINUTE
from restow.domain.records import Step

PAIR = plan("x", move("x-1", "p1", "a", "b", swap=True), move("x-2", "q1", "b", "a", swap=True))


def pair(*more, owner=OTHER, conf=CONF, **of):
    nodes = (node("a", cpu=4_000), node("b", cpu=4_000), shape("p", cpu=4_000), shape("q", cpu=3_500))
    return given(configured("migration", conf), *nodes, pod("p1", "p", "a", owner=OWNER, **of), pod("q1", "q", "b", owner=owner, **of), *more, PAIR)


def test_two_of_a_workload_that_may_miss_one_fail_at_once_and_are_no_refusal_of_the_api():
    state = pair(owner=OWNER, conf=replace(CONF, max_unavailable=1))
    assert failed(advance(state)) == {"x-1": "MaxUnavailable", "x-2": "MaxUnavailable"}
    assert state.refused == {}


def test_two_of_a_gang_with_one_to_spare_fail_at_once():
    state = pair(pod_group("g", need=1, phase="Running"), annotations={"scheduling.k8s.io/group-name": "g"})
    assert failed(advance(state)) == {"x-1": "GangMinimum", "x-2": "GangMinimum"}


def test_two_of_a_workload_wait_for_a_third_of_it_that_is_under_way():
    third = (node("c"), node("d"), pod("r1", "p", "c", owner=OWNER), pod("r2", "p", "c", owner=OWNER), plan("w", move("w-1", "r1", "c", "d")))
    state = pair(*third, owner=OWNER, conf=replace(CONF, max_unavailable=2))
    assert begun(advance(state)) == ["w-1"]
    hold(state, "w-1")
    assert begun(land(state, "w-1", "r3")) == ["x-1", "x-2"]


def test_two_whom_the_rate_keeps_waiting_are_looked_at_when_it_allows_both():
    """Two evictions of three are used up: one more would be allowed now, two are in a minute, although nothing happens until then."""
    state = pair(conf=replace(CONF, evictions_per_minute=3))

    state.evictions.update({"y-1": NOW, "y-2": NOW + 10_000})
    assert begun(advance(state)) == []
    at = decider.deadline(state)
    assert at == NOW + MINUTE
    assert begun(advance(state, at - NOW)) == ["x-1", "x-2"]
    assert evicts(hold(state, "x-1", "x-2", after=at - NOW)) == ["x-1"]
    assert step(state, "x-2") is Step.HELD


def test_of_a_workload_the_pod_that_is_ill_may_be_moved():
    """It misses no more than it did. (RemovePodsHavingTooManyRestarts is about just these.)"""
    for whole in (False, True):
        pods = (pod(f"p{i}", "s", "a", owner=OWNER, ready=i > 1) for i in (1, 2, 3))
        one = plan("x", move("x-1", "p1", "a", "b"), whole=whole)
        state = given(configured("migration", replace(CONF, max_unavailable=1)), node("a"), node("b"), shape("s"), *pods, one)
        advance(state)
        assert evicts(hold(state, "x-1")) == ["x-1"]


def test_beside_one_that_is_ill_no_other_one_is():
    pods = (pod(f"p{i}", "s", "a", owner=OWNER, ready=i > 1) for i in (1, 2, 3))
    one = plan("x", move("x-1", "p2", "a", "b"))
    state = given(configured("migration", replace(CONF, max_unavailable=1)), node("a"), node("b"), shape("s"), *pods, one)
    assert failed(advance(state)) == {"x-1": "MaxUnavailable"}


# -- a node that is emptied wholly, of which one changes places --------------------------------------------------------------


def emptied(*more, **conf):
    """p1 of a changes places with q1 of b; p2 and p3 go to c first."""
    nodes = (node("a", cpu=6_000), node("b", cpu=4_000), node("c", cpu=4_000), shape("p", cpu=4_000), shape("q", cpu=3_500), shape("s"))
    pods = (pod("p1", "p", "a", owner=OWNER), pod("q1", "q", "b", owner=OTHER), *(pod(p, "s", "a", owner=replica_of(p)) for p in ("p2", "p3")))
    first = move("x-3", "p2", "a", "c"), move("x-4", "p3", "a", "c")
    both = move("x-1", "p1", "a", "b", swap=True), move("x-2", "q1", "b", "a", swap=True)
    return given(configured("migration", replace(CONF, **conf)), *nodes, *pods, plan("x", *both, *first, whole=True), *more)


@pytest.mark.parametrize("concurrent", [2, 3, 4])
def test_neither_begins_before_the_node_that_is_emptied_holds_its_places(concurrent):
    """One alone would take the turn of those whose holds are waited for, and both would wait until time is up."""
    state = emptied(concurrent=concurrent)
    assert begun(advance(state)) == ["x-3", "x-4"]
    events = hold(state, "x-3", "x-4")
    for id in ("x-3", "x-4"):
        events += land(state, id, f"s{id}")
    assert begun(events) == ["x-1", "x-2"]


@pytest.mark.parametrize("bound", ["concurrent", "per_namespace", "evictions_per_minute"])
def test_nobody_leaves_the_node_where_the_two_never_begin(bound):
    state = emptied(**{bound: 1})
    assert evicts(advance(state)) == []
    assert sorted(m.reason for m in state.migrations.values()) == ["SwapBroken", "SwapBroken", "Whole", "Whole"]
