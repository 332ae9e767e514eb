"""Verdicts on slots of Reservations that have no node: which rules remove how many, and what alone would be enough."""

import re

import pytest
from domain.build import (
    NOW,
    given,
    node,
    pod,
    queue,
    reservation,
    run,
    shape,
    then,
)
from domain.test_verdict_property import settled
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from oracle.strategies import FEATURES, worlds

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Taint
from restow.domain import session
from restow.domain.session.verdict import explain_slots
from restow.domain.snapshot import dump


def reliefs(fit):
    return [(relief.change, relief.nodes) for relief in fit.reliefs]


def asked(*facts, replicas=1, cpu=1_000, need=0, **more):
    """A Reservation of `replicas` places that is accepted, after these facts."""
    return given(*facts, shape("s", cpu=cpu), reservation("r", ("t", replicas, "s"), **more), e.ReservationAccepted("r", 1, need or replicas))


def test_rules_are_counted_and_the_greatest_request_that_would_fit_is_named():
    fit = explain_slots(asked(node("a", cpu=3_000), node("b", cpu=2_000), cpu=4_000), "r")
    assert (fit.need, fit.have, fit.waiting, fit.fit, fit.complete, fit.first) == (1, 0, 1, 0, False, "t-0")
    assert (fit.nodes, fit.reasons) == (2, {"Insufficient cpu": 2})
    assert ("a cpu request of at most 3", 1) in reliefs(fit)


def test_a_rule_that_alone_keeps_it_off_is_named_with_the_nodes_that_it_would_open():
    nodes = [node("a", unschedulable=True), node("b", taints=(Taint("gpu", "NoSchedule", "yes"),))]
    fit = explain_slots(asked(*nodes), "r")
    assert set(fit.reasons.values()) == {1}
    assert [(change.partition(": ")[0], count) for change, count in reliefs(fit)] == [("without the rule", 1), ("without the rule", 1)]


def test_of_several_places_is_said_how_many_fit_beside_each_other_and_what_would_be_enough_for_all():
    fit = explain_slots(asked(node("a", cpu=2_500), node("b", cpu=900), replicas=4), "r")
    assert (fit.need, fit.waiting, fit.fit, fit.first) == (4, 4, 2, "t-2")
    assert reliefs(fit) == [
        ("1 more empty node like a", 0),
        ("a minAvailable of at most 2", 0),
        ("a cpu request of at most 833m each", 0),
    ]


def test_what_would_help_helps():
    """Every change that is named is made, and the session holds all of it."""
    little = [node("a", cpu=2_500), node("b", cpu=900)]
    for state in (
        asked(*little, node("c", cpu=2_500), replicas=4),
        asked(*little, replicas=4, cpu=833),
    ):
        assert sum(isinstance(event, e.HoldPlaced) for event in run(state, session.decider, c.Schedule(NOW))) == 4
    state = asked(*little, replicas=4, need=2)
    assert sum(isinstance(event, e.HoldPlaced) for event in run(state, session.decider, c.Schedule(NOW))) == 2


def test_a_rule_that_would_open_too_few_nodes_for_all_is_not_named():
    fit = explain_slots(asked(node("a", unschedulable=True), node("b", cpu=1), replicas=2), "r")
    assert reliefs(fit) == []


def test_a_pinned_place_may_be_let_go():
    fit = explain_slots(asked(node("a", cpu=500), node("b"), node="a"), "r")
    assert fit.reasons == {"Insufficient cpu": 1, "node(s) didn't match the requested node name": 1}
    assert ("without the pin to a", 1) in reliefs(fit)


def test_a_closed_queue_is_a_block_and_nothing_about_nodes_is_said_to_help():
    state = asked(node("a"), queue("q", state="Closed"), queue="q")
    fit = explain_slots(state, "r")
    assert [block.reason for block in fit.blocks] == ["QueueClosed"]
    assert not fit.reliefs


def test_places_that_fit_now_wait_for_the_next_session():
    fit = explain_slots(asked(node("a"), replicas=2), "r")
    assert (fit.complete, fit.fit, fit.first, fit.reliefs) == (True, 2, "", ())


def test_what_is_held_already_counts_and_the_rest_waits():
    state = asked(node("a", cpu=2_000), replicas=3, need=2)
    run(state, session.decider, c.Schedule(NOW))
    fit = explain_slots(state, "r")
    assert (fit.need, fit.have, fit.waiting, fit.fit, fit.first) == (2, 2, 1, 0, "t-2")


@pytest.mark.parametrize("facts", [(), (e.Expired("r"),)])
def test_nothing_is_said_where_nothing_waits_for_a_node(facts):
    state = asked(node("a"))
    run(state, session.decider, c.Schedule(NOW))
    then(state, *facts)
    assert explain_slots(state, "r") is None


def test_the_state_is_as_it_was_before():
    state = asked(node("a", cpu=2_500), pod("p", shape="s", node="a"), replicas=4)
    free = state.table.free.copy()
    explain_slots(state, "r")
    assert (state.table.free == free).all()
    assert sorted(state.slots["r"]) == ["t-0", "t-1", "t-2", "t-3"]


def test_with_pre_allocation_capacity_that_is_in_use_will_do():
    state = asked(node("a", cpu=2_000), shape("big", cpu=2_000), pod("p", "big", "a"), pre_allocation=True)
    assert explain_slots(state, "r").complete
    state = asked(node("a", cpu=500), pre_allocation=True)
    assert explain_slots(state, "r").fit == 0


def test_a_second_reusable_one_of_its_kind_needs_a_node_of_its_own():
    facts = (node("a"), shape("s"), reservation("first", ("t", 1, "s"), allocate_once=False), e.ReservationAccepted("first", 1, 1))
    state = given(*facts)
    run(state, session.decider, c.Schedule(NOW))
    then(state, reservation("r", ("t", 1, "s"), allocate_once=False), e.ReservationAccepted("r", 1, 1))
    fit = explain_slots(state, "r")
    assert list(fit.reasons) == ["node(s) already had an equal reusable reservation"]
    assert ("1 more empty node like a", 0) in reliefs(fit)


@settings(max_examples=examples(60), deadline=None)
@for_all(
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.integers(1, 7),
    st.integers(1, 4),
    st.integers(1, 7),
)
def test_whatever_the_nodes_what_is_counted_is_what_is_held_and_what_helps_helps(cpus, replicas, cpu, need):
    need = min(need, replicas)

    def world(cpu=1_000 * cpu, need=need, more=0):
        nodes = [node(f"n{i}", cpu=1_000 * free) for i, free in enumerate(cpus)]
        nodes += [node(f"new{i}", cpu=1_000 * max(cpus)) for i in range(more)]
        return asked(*nodes, replicas=replicas, cpu=cpu, need=need)

    def placed(state):
        return sum(isinstance(event, e.HoldPlaced) for event in run(state, session.decider, c.Schedule(NOW)))

    fit = explain_slots(world(), "r")
    assert fit.fit == placed(world(need=1))
    assert fit.complete == (fit.fit == replicas)
    for change, _ in reliefs(fit):
        if at_most := re.fullmatch(r"a minAvailable of at most (\d+)", change):
            assert placed(world(need=int(at_most[1]))) == fit.fit
        elif at_most := re.fullmatch(r"a cpu request of at most (\S+)( each)?", change):
            assert placed(world(cpu=thousandths(at_most[1]))) == replicas
        elif (new := re.fullmatch(r"(\d+) more empty nodes? like n(\d)", change)) and cpus[int(new[2])] == max(cpus):
            assert placed(world(more=int(new[1]))) == replicas


def thousandths(text):
    return int(text[:-1]) if text.endswith("m") else 1_000 * int(text)


@settings(max_examples=examples(80), deadline=None)
@for_all(st.sampled_from([FEATURES, *((feature,) for feature in FEATURES)]).flatmap(worlds), st.integers(1, 5), st.booleans())
def test_every_place_that_waits_has_a_reason_and_asking_leaves_no_trace(facts, replicas, once):
    """Reservations like the pods of any world, of which some find no capacity beside them."""
    facts = list(facts)
    shapes = dict.fromkeys(fact.shape for fact in facts if isinstance(fact, e.ShapeDeclared))
    for number, id in enumerate(shapes):
        fact = reservation(f"r{number}", ("t", replicas if once else 1, id), allocate_once=once)
        facts += [fact, e.ReservationAccepted(fact.reservation, 1, 1)]
    state = settled(facts)
    image, epoch = dump(state), state.capacity_epoch
    for uid in state.reservations:
        fit = explain_slots(state, uid)
        if fit is not None:
            assert fit.blocks or fit.quota or fit.reasons or not fit.nodes, "a session would have held it"
            assert not fit.complete or fit.blocks
    assert (dump(state), state.capacity_epoch) == (image, epoch)
