"""Pods that another scheduler has nominated: what their victims leave is theirs, for pods of equal or lower priority."""

import pytest
from domain.build import NOW, given, node, pod, replica_of, reservation, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import snapshot
from restow.domain.decider import decide
from restow.domain.session.decider import SessionDecider

STOCK = "default-scheduler"
SHAPES = (
    shape("low", cpu=4_000, priority=0), shape("high", cpu=4_000, priority=2_000),
    shape("theirs", cpu=6_000, priority=1_000, scheduler=STOCK),
    shape("gpu", cpu=100, gpu=(2, 1000)), shape("their-gpus", cpu=100, gpu=(3, 1000), priority=1_000, scheduler=STOCK),
)  # fmt: skip
KEPT = "node(s) had no capacity left beside pods that another scheduler nominated"


def scheduled(state, now: int = NOW) -> list[e.Event]:
    events = decide(state, SessionDecider(), c.Schedule(now, 100))
    then(state, events, time=now)
    return list(events)


def placed(events) -> dict[str, str]:
    return {event.pod: event.node for event in events if isinstance(event, e.PodPlaced)}


def test_nobody_of_lower_priority_comes_where_another_scheduler_has_made_way():
    state = given(node("n0"), *SHAPES, pod("s", "theirs", nominated="n0"), pod("p", "low"))
    [said] = scheduled(state)
    assert isinstance(said, e.Unfit)
    assert said.reasons == {KEPT: 1}


def test_but_beside_it_whoever_fits():
    state = given(node("n0", cpu=12_000), *SHAPES, pod("s", "theirs", nominated="n0"), pod("p", "low"))
    assert placed(scheduled(state)) == {"p": "n0"}


def test_or_elsewhere():
    state = given(node("n0"), node("n1"), *SHAPES, pod("s", "theirs", nominated="n0"), pod("p", "low"))
    assert placed(scheduled(state)) == {"p": "n1"}


def test_a_higher_priority_does_not_mind_it():
    state = given(node("n0"), *SHAPES, pod("s", "theirs", nominated="n0"), pod("p", "high"))
    assert placed(scheduled(state)) == {"p": "n0"}


def test_devices_count_too():
    state = given(node("n0", gpus=4), *SHAPES, pod("s", "their-gpus", nominated="n0"), pod("p", "gpu"))
    assert placed(scheduled(state)) == {}


@pytest.mark.parametrize("how", ["bound elsewhere", "gone", "not nominated any more", "deleted"])
def test_when_it_needs_it_no_more_others_come_by_themselves(how):
    state = given(node("n0"), node("n1", cpu=6_000, pods=1), *SHAPES, pod("s", "theirs", nominated="n0"), pod("full", "low", "n1"), pod("p", "low"))
    scheduled(state)
    assert scheduled(state) == []
    ends = {
        "bound elsewhere": e.PodChanged("s", "n1"), "gone": e.PodGone("s"), "not nominated any more": pod("s", "theirs"),
        "deleted": e.PodChanged("s", deleting=NOW),
    }  # fmt: skip
    then(state, ends[how])
    assert SessionDecider().due(state, NOW) is not None
    assert placed(scheduled(state)) == {"p": "n0"}
    assert state.nominees == {}


def test_whom_our_session_has_nominated_is_none_of_them():
    state = given(node("n0"), *SHAPES, pod("s", "low", nominated="n0"))
    assert state.nominees == {}


def test_a_pod_that_is_made_again_in_a_circle_waits_after_the_first_time():
    """Another scheduler preempts it, its controller makes another, which our session would place where the first one was, at once."""
    state = given(node("n0"), *SHAPES, pod("p0", "low", "n0", owner=replica_of("web")), pod("s", "theirs", nominated="n0"))
    then(state, e.PodGone("p0"), pod("p1", "low", owner=replica_of("web")))
    assert placed(scheduled(state)) == {}
    then(state, e.PodChanged("s", "n0", "Running"))
    assert placed(scheduled(state)) == {}


@pytest.mark.parametrize("migration", ["m-1", ""], ids=["of a move", "of a person's Reservation"])
def test_a_slot_of_a_plan_minds_nominees_but_for_the_guards_of_moves(migration):
    """A guard may be there for the slot's own sake."""
    slot = reservation("r", ("t", 1, "low"), migration=migration)
    state = given(node("n0"), *SHAPES, pod("s", "theirs", nominated="n0"), slot, e.ReservationAccepted("r", 1, 1))
    assert not [event for event in scheduled(state) if isinstance(event, e.HoldPlaced)]
    state.placeholders["s"] = ("guard", "m-1")
    assert bool([event for event in scheduled(state) if isinstance(event, e.HoldPlaced)]) is bool(migration)


def test_a_snapshot_has_them():
    state = given(node("n0"), *SHAPES, pod("s", "theirs", nominated="n0"))
    assert snapshot.load(snapshot.dump(state)).nominees == {"s": "n0"}
