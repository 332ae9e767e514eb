"""Moves whose pod was evicted when its StatefulSet is scaled down, or rolled out: nobody follows, and the slot is free at once."""

import pytest
from domain.build import given, node, pod, replica_of, shape, then
from domain.saga import advance, evicts, hold, move, plan, step, terminate

from restow.contracts import events as e
from restow.domain.records import Step

M = "x-1"
DB = replica_of("db", "StatefulSet")
NAMES = (("db-0", "c"), ("db-1", "c"), ("db-2", "a"))


def evicted():
    """db-2 leaves a, and terminates; its slot is on b."""
    made = [pod(name, node=where, owner=DB) for name, where in NAMES]
    state = given(*(node(name, cpu=16_000) for name in "abc"), shape("s"), shape("big", cpu=2_000), *made, plan("x", move(M, "db-2")))
    advance(state)
    assert evicts(hold(state, M)) == [M]
    terminate(state, "db-2")
    advance(state)
    assert step(state, M) is Step.EVICTED
    return state


def why(state):
    migration = state.migrations[M]
    return migration.step, migration.reason


WAITS, OVER = (Step.EVICTED, ""), (Step.FAILED, "NotNeeded")


@pytest.mark.parametrize(("wanted", "expected"), [(2, OVER), (0, OVER), (3, WAITS), (None, WAITS)])
def test_a_stateful_set_that_is_scaled_below_its_ordinal_makes_no_pod_of_that_name(wanted, expected):
    state = evicted()
    then(state, e.WorkloadObserved(DB.uid, "StatefulSet", "default", "db", busy="scaling_down", wanted=wanted))
    advance(state)
    assert why(state) == expected
    assert not state.missed, "its controller is at work: nobody's failure"


@pytest.mark.parametrize(("shape", "expected"), [("big", OVER), ("s", WAITS)])
def test_the_pod_of_its_name_that_asks_for_something_else_is_the_only_one_that_comes(shape, expected):
    state = evicted()
    then(state, e.PodGone("db-2"), pod("db-2", shape, uid="later", owner=DB))
    advance(state)
    assert why(state) == expected
    assert bool(state.missed) == (expected == OVER), "by no rollout: somebody's admission has changed it, which is a miss"
