"""A queue that is closed, or is not there, takes no jobs: nobody is evicted for one, and nobody starts in it by a nomination either,
whichever plugins there are."""

import pytest
from domain.build import NOW, configured, given, in_queue, member, node, pod_group, queue, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.session.reasons import REFRESH

decider = session.decider
OWN = ((PluginConfig("priority"), PluginConfig("gang"), PluginConfig("predicates"), PluginConfig("nodeorder")),)
TIERS = {"own": OWN, "default": SessionConfig().tiers, "capacity": (*OWN, (PluginConfig("capacity"),))}
ACTIONS = tuple(ActionConfig(name) for name in ("allocate", "preempt", "reclaim"))


def busy(tiers: str):
    state = given(configured("session", SessionConfig(actions=ACTIONS, tiers=TIERS[tiers])), node("n", cpu=4_000))
    then(state, shape("low", cpu=4_000, memory=1), shape("high", cpu=2_000, memory=1, priority=5))
    return then(state, in_queue("victim", "q", "low", node="n"), in_queue("pod", "q", "high"))


@pytest.mark.parametrize("tiers", TIERS)
@pytest.mark.parametrize("there", [True, False])
def test_nobody_is_evicted_for_a_pod_of_a_queue_that_takes_no_jobs(tiers, there):
    state = busy(tiers)
    if there:
        then(state, queue("q", state="Closed"))
    events = run(state, decider, c.Schedule(NOW, 1_000))
    assert [type(event) for event in events] == [e.Withheld]
    assert events[0].reason == ("QueueClosed" if there else "QueueNotFound")


GONE, CLOSED = e.QueueGone("q"), queue("q", state="Closed", parent="p")
CASES = [(GONE, "QueueNotFound"), (CLOSED, "QueueClosed"), (queue("q", invalid="weight: no number"), "InvalidQueue")]


@pytest.mark.parametrize(("fact", "reason"), CASES)
def test_who_waits_for_capacity_is_told_when_its_queue_takes_no_jobs_any_more(fact, reason):
    state = given(node("n", cpu=1_000), queue("q"), shape("s", cpu=2_000), pod_group("g", "q", need=2))
    then(state, in_queue("alone", "q", "s"), member("g1", "g"), member("g2", "g"))
    run(state, decider, c.Schedule(NOW))
    assert all(under[0] != "reason" for _, under in state.parked.values()), "for room"
    then(state, fact)
    while run(state, decider, c.Schedule(NOW)):
        pass
    assert {uid: state.waiting[key].reason for uid, (key, _) in state.parked.items()} == dict.fromkeys(("alone", "g1", "g2"), reason)


def test_so_is_who_waits_in_a_queue_below_one_that_is_closed():
    state = given(configured("session", SessionConfig(actions=ACTIONS, tiers=TIERS["capacity"])), node("n", cpu=1_000), shape("s", cpu=2_000))
    then(state, queue("p"), queue("q", parent="p"), in_queue("alone", "q", "s"))
    run(state, decider, c.Schedule(NOW))
    then(state, queue("p", state="Closed"))
    run(state, decider, c.Schedule(NOW))
    assert state.waiting[state.parked["alone"][0]].reason == "QueueClosed"


@pytest.mark.parametrize("ready", [(), ("g3",)])
def test_so_is_a_gang_whose_queue_is_invalid_because_its_sibling_asks_their_parent_for_too_much(ready):
    nodes = [node(f"n{i}", cpu=1_000) for i in range(8)]
    state = given(configured("session", SessionConfig(actions=ACTIONS, tiers=TIERS["capacity"])), *nodes, shape("s", cpu=2_000), shape("t", cpu=100))
    then(state, queue("p", guarantee={"cpu": 500}), queue("q", parent="p"), queue("r", parent="p", guarantee={"cpu": 500}))
    then(state, pod_group("g", "q", need=2), member("g1", "g"), member("g2", "g"), *[member(name, "g", "t", node="n0") for name in ready])
    while run(state, decider, c.Schedule(NOW)):
        pass
    assert all(under[0] != "reason" for _, under in state.parked.values()), "for room"
    then(state, queue("r", parent="p", guarantee={"cpu": 900}))
    while run(state, decider, c.Schedule(NOW)):
        pass
    assert {uid: state.waiting[key].reason for uid, (key, _) in state.parked.items()} == dict.fromkeys(("g1", "g2"), "InvalidQueue")
    then(state, queue("r", parent="p", guarantee={"cpu": 500}))
    while run(state, decider, c.Schedule(NOW)):
        pass
    assert {state.waiting[key].reason for key, _ in state.parked.values()} == {"Unschedulable"}


def test_who_waits_for_capacity_is_told_when_its_queue_has_nothing_left_either():
    state = given(node("n", cpu=1_000), queue("q"), shape("s", cpu=2_000), in_queue("alone", "q", "s"))
    run(state, decider, c.Schedule(NOW))
    then(state, queue("q", capability={"cpu": 1_000}))
    run(state, decider, c.Schedule(NOW + REFRESH))
    assert state.waiting[state.parked["alone"][0]].reason == "QueueQuota"
    then(state, node("n", cpu=4_000), queue("q"))
    assert [type(event) for event in run(state, decider, c.Schedule(NOW + REFRESH))] == [e.PodPlaced]


@pytest.mark.parametrize("tiers", TIERS)
def test_where_the_queue_closes_after_the_preemption_the_pod_waits_with_that_reason(tiers):
    state = then(busy(tiers), queue("q"))
    assert any(isinstance(event, e.Nominated) for event in run(state, decider, c.Schedule(NOW, 1_000)))
    then(state, queue("q", state="Closing"), e.PodGone("victim"))
    events = [*run(state, decider, c.Schedule(NOW, 1_000)), *run(state, decider, c.Schedule(NOW, 1_000))]
    assert e.NominationEnded("pod", "QueueTakesNoJobs") in events
    assert [event.reason for event in events if isinstance(event, e.Withheld)] == ["QueueClosed"]
    assert not any(isinstance(event, e.PodPlaced) for event in events)
