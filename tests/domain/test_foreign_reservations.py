"""Reservations for other schedulers are never touched (DESIGN 6); who is another one may change."""

import pytest
from domain.build import NOW, configured, given, node, pod, reservation, run, shape, then, when
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import config, gc, session
from restow.domain import reservation as reservations
from restow.domain.effects import WriteReservationStatus
from restow.domain.other_schedulers import other_scheduler
from restow.domain.records import ReservationPhase as P
from restow.domain.reservation.decider import told_by_us
from restow.domain.snapshot import dump, load

YEARS = 10**11
MINE = {"app": "owner"}


def serving(*names):
    return configured("session", config.SessionConfig(scheduler_names=names))


def asked(shape="s", uid="r", **more):
    return reservation(uid, ("reservation", 1, shape), match_policy="Owner", **more)


def world(*facts):
    shapes = [shape("s"), shape("theirs", scheduler="koord-scheduler"), shape("nobodys", scheduler="default-scheduler")]
    return given(node("a", cpu=4_000), shapes, *facts, time=NOW)


def reviewed(state):
    return run(state, reservations.decider, c.Review(NOW))


def scheduled(state):
    return run(state, session.decider, c.Schedule(NOW))


def is_held(state, uid="r"):
    return any(key[0] == uid for held in state.held_on.values() for key in held)


def touches(state, uid="r"):
    """Whether anything is decided about it, done to it or said of it."""
    due = reservations.decider.due(state, NOW)
    later = [x for x in when(state, gc.decider, c.Collect(NOW + YEARS)) if getattr(x, "reservation", "") == uid]
    effects = [x for x in reservations.decider.pending(state, None) if x == WriteReservationStatus(uid, state.seq)]
    return bool(due or later or effects or scheduled(state))


def test_one_that_names_another_scheduler_is_left_alone():
    state = world(asked("theirs"))
    assert other_scheduler(state, state.reservations["r"]) == "koord-scheduler"
    assert not touches(state)
    assert state.slots["r"] == {}


@pytest.mark.parametrize("kind", ["s", "nobodys"])
def test_one_that_names_ours_or_none_is_ours(kind):
    """Nobody else serves a Reservation that names no scheduler."""
    state = world(asked(kind))
    assert [type(x) for x in reviewed(state)] == [e.ReservationAccepted]
    scheduled(state)
    assert is_held(state)


def test_what_cannot_be_read_is_left_alone_too_where_it_names_another_scheduler():
    unreadable = replace(asked(), spec=None, invalid="spec.ttl: 'x'")
    state = world(replace(unreadable, schedulers=("koord-scheduler",)))
    assert not touches(state)
    state = world(unreadable)
    (event,) = reviewed(state)
    assert (event.reason, event.message) == ("InvalidSpec", "spec.ttl: 'x'")


def test_one_whose_templates_are_for_several_schedulers_is_refused_and_says_why():
    state = world(reservation("r", ("mine", 1, "s"), ("other", 1, "theirs"), match_policy="Owner"))
    (event,) = reviewed(state)
    assert (event.reason, event.message) == (
        "InvalidSpec", "template of task other: schedulerName 'koord-scheduler'; allowed beside those of other tasks: restow",
    )  # fmt: skip


def test_when_its_scheduler_becomes_ours_it_is_reviewed_and_held():
    state = world(asked("theirs"))
    then(state, serving("restow", "koord-scheduler"))
    assert [type(x) for x in reviewed(state)] == [e.ReservationAccepted]
    scheduled(state)
    assert is_held(state)


def test_when_its_scheduler_is_ours_no_more_what_is_held_is_given_back_and_its_status_stays_as_it_is():
    state = world(asked(), asked(uid="other"))
    reviewed(state)
    scheduled(state)
    then(state, serving("koord-scheduler"))
    events = reviewed(state)
    assert [(type(x), x.reason) for x in events] == [(e.ReservationRefused, "OtherScheduler")] * 2
    assert events[0].message == "its templates name scheduler restow, which is not served here (schedulerNames: koord-scheduler)"
    scheduled(state)
    assert not is_held(state)
    assert state.phases["r"].phase is P.FAILED
    assert not told_by_us(state, "r")
    assert reservations.decider.due(state, NOW) is None
    assert not [x for x in when(state, gc.decider, c.Collect(NOW + YEARS)) if isinstance(x, e.Collected)], "its object is not ours to delete"
    then(state, serving("restow"))
    assert [type(x) for x in reviewed(state)] == [e.ReservationAccepted] * 2
    scheduled(state)
    assert is_held(state)
    assert told_by_us(state, "r")


def test_an_update_may_give_it_to_another_scheduler_and_pods_that_use_it_go_on():
    state = world(asked(allocate_once=False))
    reviewed(state)
    scheduled(state)
    then(state, pod("p", "s", labels=MINE))
    scheduled(state)
    assert state.allocations["p"].reservation == "r"
    then(state, e.PodChanged("p", "a", "Running"), asked("theirs", generation=2, allocate_once=False))
    (event,) = reviewed(state)
    assert (event.reason, event.generation) == ("OtherScheduler", 2)
    scheduled(state)
    assert not is_held(state)
    assert "p" in state.charges
    then(state, asked(generation=3, allocate_once=False))
    assert [type(x) for x in reviewed(state)] == [e.ReservationAccepted]


def test_one_that_was_decided_on_before_the_configuration_came_is_taken_back():
    """The review had not seen the change: the log's order is the truth."""
    state = world(asked("theirs"), e.ReservationAccepted("r", 1, 1))
    assert [x.reason for x in reviewed(state)] == ["OtherScheduler"]


def test_a_job_that_names_one_for_another_scheduler_is_told_so():
    names_it = pod("p", "s", labels=MINE, annotations={"scheduling.volcano.sh/target-reservation": "r"})
    state = world(asked("theirs"), names_it)
    (event,) = scheduled(state)
    said = "Reservation specified by job <default/p> is not Available: "
    assert (event.reason, event.message) == ("InvalidReservation", said + "Reservation default/r is for scheduler koord-scheduler, which has to hold it")


def test_a_snapshot_knows_whose_each_is():
    state = world(asked("theirs"), asked(uid="mine"), asked(uid="back"), e.ReservationAccepted("back", 1, 1))
    then(state, asked("theirs", "back", generation=2))
    assert set(state.unreviewed) == {"mine", "back"}
    assert load(dump(state)).unreviewed == state.unreviewed
