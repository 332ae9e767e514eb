"""Queues of Reservations: holds are jobs, so a queue that takes no jobs takes no holds, and its quota counts (RULES G-6)."""

import pytest
from domain.build import GIB, NOW, configured, given, node, pod, queue, reservation, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.config import PluginConfig, SessionConfig
from restow.domain.records import ReservationPhase


def schedule(state):
    return run(state, session.decider, c.Schedule(NOW))


def asked(*facts):
    state = given(node("a", cpu=64_000, memory=256 * GIB), shape("s"), *facts)
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    return state


def said(state, uid: str = "r") -> tuple[str, str, str]:
    phase = state.phases[uid]
    return phase.phase, phase.reason, phase.message


SHUT = {
    "missing": ((), "QueueNotFound", "queue batch does not exist"),
    "closed": ((queue("batch", state="Closed"),), "QueueClosed", "queue batch is Closed"),
}


@pytest.mark.parametrize("case", SHUT)
def test_a_reservation_of_a_queue_that_takes_no_jobs_is_pending_and_says_so_until_it_does(case):
    facts, reason, message = SHUT[case]
    state = asked(reservation("r", ("t", 2, "s"), queue="batch"), *facts)
    assert said(state) == (ReservationPhase.PENDING, reason, message)
    assert schedule(state) == []
    then(state, queue("batch"))
    assert session.decider.due(state, NOW + 1) is not None
    schedule(state)
    assert said(state)[:2] == (ReservationPhase.AVAILABLE, "Held")


def test_the_queue_default_need_not_exist_as_an_object():
    assert said(asked(reservation("r", ("t", 1, "s"), queue="default")))[0] == ReservationPhase.AVAILABLE


def test_a_hold_counts_against_its_queues_capability_and_says_what_is_full():
    state = asked(queue("batch", capability={"cpu": 1_500}), reservation("r", ("t", 2, "s"), queue="batch"))
    assert said(state)[:2] == (ReservationPhase.PENDING, "QueueQuota")
    assert "batch has no cpu left" in said(state)[2]
    assert not state.held_on
    then(state, queue("batch", capability={"cpu": 2_000}))
    schedule(state)
    assert said(state)[0] == ReservationPhase.AVAILABLE


def test_what_is_needed_is_held_and_the_rest_waits_for_the_queue():
    state = asked(queue("batch", capability={"cpu": 1_500}), reservation("r", ("t", 2, "s"), queue="batch", min_available=1))
    assert said(state)[0] == ReservationPhase.AVAILABLE
    assert "batch has no cpu left" in state.slots["r"]["t-1"].message
    assert schedule(state) == []


def test_a_full_queue_keeps_pods_and_holds_from_each_other_both_ways():
    quota = queue("batch", capability={"cpu": 1_000})
    state = asked(quota, reservation("r", ("t", 1, "s"), queue="batch"))
    then(state, pod("p", annotations={"scheduling.volcano.sh/queue-name": "batch"}))
    schedule(state)
    assert "p" not in state.placed
    taken = pod("p", node="a", annotations={"scheduling.volcano.sh/queue-name": "batch"})
    state = asked(quota, taken, reservation("r", ("t", 1, "s"), queue="batch"))
    assert said(state)[0] == ReservationPhase.PENDING


def test_a_reason_that_has_changed_is_said_anew_and_no_other_twice():
    state = asked(reservation("r", ("t", 1, "s"), queue="batch"))
    then(state, queue("batch", state="Closed"))
    assert schedule(state) == [e.HoldUnfit("r", "t-0", 0, {}, "QueueClosed", "queue batch is Closed")]
    assert schedule(state) == []
    then(state, queue("batch"), e.NodeGone("a"), node("b", cpu=500))
    assert schedule(state) == [e.HoldUnfit("r", "t-0", 1, {"Insufficient cpu": 1})]
    assert said(state)[1] == "Unschedulable"


def test_with_capacity_only_leaves_of_the_tree_take_holds():
    tiers = ((PluginConfig("gang"),), (PluginConfig("predicates"), PluginConfig("capacity"), PluginConfig("sla"), PluginConfig("reservation")))
    conf = configured("session", SessionConfig(tiers=tiers))
    state = asked(conf, queue("batch"), queue("night", parent="batch"), reservation("r", ("t", 1, "s"), queue="batch"))
    assert said(state)[:2] == (ReservationPhase.PENDING, "QueueNotLeaf")
    then(state, reservation("q", ("t", 1, "s"), queue="night"))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    assert said(state, "q")[0] == ReservationPhase.AVAILABLE
