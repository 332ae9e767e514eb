"""Slots for pods that wait: held first, freed by moves, given up where nobody needs them (demand; issue 5)."""

import pytest
from domain.build import NOW, changed, configured, given, node, pod, replica_of, reservation, run, shape, then
from domain.saga import (
    OWNER,
    advance,
    begun,
    decider,
    failed,
    hold,
    land,
    move,
    observe,
    owed,
    plan,
    session_answers,
    step,
    terminate,
)
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import SlotFor
from restow.domain import config, gc, snapshot
from restow.domain import reservation as reservations
from restow.domain.effects import CreateDemandSlot, DeleteReservation
from restow.domain.evolve.demand_slots import PLAN
from restow.domain.other_schedulers import LOG
from restow.domain.records import SlotPhase, Step
from restow.kube.reservation_manifest import demand_slot_manifest, hold_manifest

CAPACITY = SlotFor("restow-slot-x", "big", "default", "b")
KEY = "default/restow-slot-x"
HOLD = config.MigrationConfig().hold_deadline


def waiting():
    """A pod that would fit on b if q went to c."""
    return given(
        configured("migration", config.MigrationConfig()), node("a", cpu=4_000), node("b", cpu=4_000), node("c", cpu=2_000),
        shape("s"), shape("big", cpu=4_000), pod("f", node="a", owner=OWNER), pod("q", node="b", owner=OWNER), pod("big", "big"),
        plan("x", move("x-1", "q", "b", "c"), slots=(CAPACITY,), trigger="demand"),
    )  # fmt: skip


def made():
    """The capacity waits for what q leaves."""
    state = waiting()
    observe(state, demand_slot_manifest(state, state.demand_slots[KEY]), "room")
    session_answers(state)
    return state


def test_the_capacity_is_asked_for_before_anything_moves():
    state = waiting()
    assert owed(state) == [CreateDemandSlot(KEY)]
    assert advance(state) == []
    assert decider.deadline(state) == NOW + HOLD


def test_it_is_a_reservation_for_this_pod_alone_on_this_node_of_its_shape():
    state = waiting()
    observe(state, demand_slot_manifest(state, state.demand_slots[KEY]), "room")
    record = state.reservations["room"]
    spec, (task,) = record.fact.spec, record.fact.spec.tasks
    assert (spec.allocate_once, spec.pre_allocation, spec.ttl, spec.match_policy) == (True, True, 600_000, "Owner")
    assert [rule.object.uid for rule in spec.owners] == ["big"]
    assert (task.node, state.shapes[task.shape].requests) == ("b", {"cpu": 4_000, "memory": 1 << 30, "pods": 1})
    assert record.fact.migration == ""
    assert record.fact.invalid == ""


def test_moves_begin_when_the_capacity_waits_and_the_pod_gets_it_when_they_have_left():
    state = made()
    assert [(slot.phase, slot.node) for slot in state.slots["room"].values()] == [(SlotPhase.WAITING, "b")]
    assert begun(advance(state)) == ["x-1"]
    hold(state, "x-1")
    land(state, "x-1", "q2")
    session_answers(state)
    session_answers(state)
    assert state.placed["big"].node == "b"
    assert state.allocations["big"].reservation == "room"
    assert advance(state) == []
    assert owed(state) == [DeleteReservation("hold-x-1")]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ((e.PodGone("big"),), "PodGone"),
        ((changed("big", node="a", phase="Running"),), "PodPlaced"),
        ((e.ReservationGone("room"),), "SlotFailed"),
    ],
)
def test_where_the_pod_does_not_need_it_any_more_the_plan_is_cancelled(facts, reason):
    state = made()
    advance(state)
    then(state, *facts)
    (cancelled, *rest) = advance(state)
    assert isinstance(cancelled, e.PlanCancelled)
    assert cancelled.reason.startswith(f"{reason}: ")
    assert failed(rest) == {"x-1": "Cancelled"}
    assert owed(state) == ([] if reason == "SlotFailed" else [DeleteReservation("room")])
    then(state, *([e.ReservationGone("room")] if reason != "SlotFailed" else []))
    session_answers(state)
    assert state.demand_slots == {}
    assert state.held_on == {}
    assert owed(state) == []


def test_what_was_evicted_for_it_goes_on_to_its_end():
    state = made()
    advance(state)
    hold(state, "x-1")
    terminate(state, "q")
    advance(state)
    then(state, changed("big", node="a", phase="Running"))
    advance(state)
    assert "x" in state.cancelled
    assert step(state, "x-1") is Step.EVICTED
    land(state, "x-1", "q2")
    assert step(state, "x-1") is Step.LANDED


def test_a_move_that_fails_takes_the_capacity_with_it():
    state = made()
    advance(state)
    run(state, decider, c.ReportHold(NOW, "x-1", "forbidden"))
    (event,) = advance(state)
    assert event.reason.startswith("MoveFailed: migration x-1")
    assert owed(state) == [DeleteReservation("room")]


TTL = 600_000


def expires_at(state) -> int | None:
    """When the collector would end the capacity, after NOW."""
    at = gc.decider.deadline(state)
    return None if at is None else at - NOW


def test_it_does_not_expire_while_its_moves_are_under_way():
    """Waves, budgets and grace periods take what they take: its time counts from the last landing (RULES G-14)."""
    state = made()
    assert expires_at(state) is None
    advance(state)
    hold(state, "x-1")
    assert gc.decider.due(state, NOW + 3 * TTL) is None, "the eviction waits for a budget"
    terminate(state, "q")
    advance(state, 3 * TTL)
    then(state, pod("q2", owner=OWNER), e.PodGone("q"), time=NOW + 3 * TTL)
    session_answers(state, 3 * TTL)
    then(state, changed("q2", node="c", phase="Running", ready=True), time=NOW + 3 * TTL)
    landed = run(state, decider, c.Advance(NOW + 3 * TTL))
    assert [type(event) for event in landed] == [e.Landed]
    assert state.placed["big"].node == "b"


def landed_at(after: int, grace: int = 0):
    state = made()
    advance(state)
    hold(state, "x-1")
    then(state, changed("q", node="b", phase="Running", deleting=NOW + grace))
    advance(state)
    then(state, pod("q2", owner=OWNER))
    session_answers(state)
    if not grace:
        then(state, e.PodGone("q"))
    then(state, changed("q2", node="c", phase="Running", ready=True))
    then(state, e.Landed("x-1", "q2", "c"), time=NOW + after)
    return then(state, e.ReservationGone("hold-x-1"))


def test_its_time_is_anew_at_the_last_landing_and_when_the_pod_has_ended_that_was_moved():
    assert expires_at(landed_at(5_000)) == 5_000 + TTL
    assert expires_at(landed_at(2 * TTL)) == 3 * TTL
    assert expires_at(landed_at(5_000, grace=900_000)) == 900_000 + TTL


def test_a_slot_that_nobody_takes_after_that_ends_and_its_plan_with_it():
    state = landed_at(5_000)
    then(state, pod("big", "big", gated=True))
    assert gc.decider.due(state, NOW + 5_000 + TTL - 1) is None
    assert run(state, gc.decider, c.Collect(NOW + 5_000 + TTL)) == [e.Expired("room")]
    session_answers(state, 5_000 + TTL)
    (event,) = advance(state, 5_000 + TTL)
    assert event.reason.startswith("SlotFailed")


def test_who_labels_it_meanwhile_takes_nothing_of_its_time():
    state = landed_at(2 * TTL)
    record = state.reservations["room"]
    fact = replace(record.fact, labels=record.fact.labels | {"scheduling.koordinator.sh/reservation-order": "1"}, generation=2)
    then(state, fact)
    run(state, reservations.decider, c.Review(NOW + 2 * TTL))
    assert state.reservations["room"].accepted == 2
    assert expires_at(state) == 3 * TTL


def test_a_restart_knows_how_long_it_is_kept():
    state = landed_at(2 * TTL)
    loaded = snapshot.load(snapshot.dump(state))
    assert expires_at(loaded) == expires_at(state)
    assert loaded.demand_slots == state.demand_slots


def test_a_slot_that_is_not_placed_in_time_is_given_up():
    state = waiting()
    assert decider.due(state, NOW + HOLD - 1) is None
    (event, *rest) = advance(state, HOLD)
    assert event.reason.startswith("SlotTimeout")
    assert failed(rest) == {"x-1": "Cancelled"}


def test_a_slot_that_the_api_refuses_cancels_the_plan():
    state = waiting()
    report = c.ReportSlot(NOW, "x", KEY, "403 Forbidden")
    assert run(state, decider, report) == [e.PlanCancelled("x", "SlotFailed: 403 Forbidden")]
    assert run(state, decider, report) == []
    assert failed(advance(state)) == {"x-1": "Cancelled"}


def test_a_slot_that_comes_late_is_deleted():
    state = waiting()
    manifest = demand_slot_manifest(state, state.demand_slots[KEY])
    advance(state, HOLD)
    observe(state, manifest, "room")
    assert owed(state) == [DeleteReservation("room")]


def test_a_slot_that_an_earlier_release_has_made_under_another_name_is_known_and_deleted():
    """A plan's slots are found by the names that it has recorded, whatever this release would call them."""
    old = SlotFor("restow-room-x-1", "big", "default", "b")
    state = given(
        configured("migration", config.MigrationConfig()), node("a", cpu=4_000), node("b", cpu=4_000), node("c", cpu=2_000),
        shape("s"), shape("big", cpu=4_000), pod("f", node="a", owner=OWNER), pod("q", node="b", owner=OWNER), pod("big", "big"),
        plan("x", move("x-1", "q", "b", "c"), slots=(old,), trigger="demand"),
    )  # fmt: skip
    key = "default/restow-room-x-1"
    observe(state, demand_slot_manifest(state, state.demand_slots[key]), "old")
    assert (state.reservations["old"].fact.name, state.demand_slots[key].reservation) == ("restow-room-x-1", "old")
    session_answers(state)
    assert begun(advance(state)) == ["x-1"]
    then(state, e.PodGone("big"))
    advance(state)
    assert owed(state) == [DeleteReservation("old")]


def test_somebody_elses_reservation_of_that_name_is_no_capacity():
    state = waiting()
    then(state, reservation("restow-slot-x", ("t", 1, "big")))
    assert state.demand_slots[KEY].reservation == ""
    then(state, replace(reservation("other", ("t", 1, "big")), name="restow-slot-x", labels={PLAN: "x", LOG: "another installation's"}))
    assert state.demand_slots[KEY].reservation == ""


def test_what_is_made_says_which_log_knows_why():
    """Two installations on one API server leave each other's objects alone."""
    state = waiting()
    state.log = "ab12"
    assert demand_slot_manifest(state, state.demand_slots[KEY]).metadata.labels[LOG] == "ab12"
    assert hold_manifest(state, state.migrations["x-1"]).metadata.labels[LOG] == "ab12"


def test_a_restart_knows_the_slots():
    state = made()
    loaded = snapshot.load(snapshot.dump(state))
    assert loaded.demand_slots == state.demand_slots
    assert decider.due(loaded, NOW) == c.Advance(NOW)


def test_several_slots_are_all_placed_before_anything_moves():
    state = waiting()
    second = SlotFor("restow-slot-y", "big2", "default", "a")
    then(state, e.PlanCancelled("x", "over"), pod("big2", "big"))
    advance(state)
    then(state, plan("y", move("y-1", "q", "b", "c"), slots=(SlotFor("restow-slot-z", "big", "default", "b"), second)))
    observe(state, demand_slot_manifest(state, state.demand_slots["default/restow-slot-z"]), "z")
    session_answers(state)
    assert begun(advance(state)) == []
    observe(state, demand_slot_manifest(state, state.demand_slots["default/restow-slot-y"]), "y")
    session_answers(state)
    assert begun(advance(state)) == ["y-1"]


def test_owners_of_other_workloads_do_not_take_the_capacity():
    state = made()
    then(state, pod("thief", "s", owner=replica_of("thief")), pod("thief2", "big", owner=replica_of("thief")))
    advance(state)
    hold(state, "x-1")
    land(state, "x-1", "q2")
    session_answers(state)
    assert state.node_of("thief2") != "b"
    assert state.node_of("big") == "b"
