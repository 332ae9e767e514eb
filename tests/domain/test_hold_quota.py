"""A queue's capability binds what is allocated beyond the hold, in every action (RULES G-12)."""

import pytest
from domain.build import (
    NOW,
    configured,
    given,
    in_queue,
    member,
    node,
    owner,
    pod_group,
    queue,
    reservation,
    run,
    shape,
    then,
)

from restow.contracts import events as e
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig

decider = session.decider
PLUGINS = pytest.mark.parametrize("plugin", ["proportion", "capacity"])
ONCE = pytest.mark.parametrize("once", [True, False], ids=["once", "for many"])


def conf(plugin: str, *actions: str) -> e.Event:
    names = actions or ("enqueue", "reserve", "allocate", "backfill")
    plugins = ("priority", "gang", "conformance", "predicates", plugin, "nodeorder", "reservation")
    return configured("session", SessionConfig(actions=tuple(map(ActionConfig, names)), tiers=(tuple(map(PluginConfig, plugins)),)))


def settle(state) -> list[e.Event]:
    events: list[e.Event] = []
    for _ in range(8):
        for who in (reservations.decider, decider):
            if (due := who.due(state, NOW)) is not None:
                events += run(state, who, due)
    return events


def held(plugin: str, once: bool = True, capability: int = 4_000, *actions: str, of: str = "q", **more):
    """100m are held for pods with the label app=x, in a queue that may use so much."""
    state = given(conf(plugin, *actions), node("n", cpu=64_000), shape("tiny", cpu=100, memory=1), shape("huge", cpu=32_000, memory=1),
                  shape("fits", cpu=3_000, memory=1), queue("q", capability={"cpu": capability}), queue("other"))  # fmt: skip
    then(state, reservation("r", ("t", 1, "tiny"), owners=(owner(app="x"),), queue=of, match_policy="Owner", allocate_once=once, **more))
    settle(state)
    assert state.held_on
    return state


def used(state, name: str = "q") -> int:
    return state.accounts.of(name).get(state.table.columns["cpu"], 0)


@PLUGINS
@ONCE
def test_a_hold_of_100m_takes_nobody_past_his_queues_capability(plugin, once):
    state = held(plugin, once)
    then(state, in_queue("p", "q", "huge", labels={"app": "x"}))
    settle(state)
    assert "p" not in state.placed
    assert "q has no cpu left" in state.waiting[state.parked["p"][0]].message
    assert used(state) == 100


@PLUGINS
@ONCE
def test_within_its_queues_capability_a_pod_draws_the_rest_from_the_node(plugin, once):
    state = held(plugin, once)
    then(state, in_queue("p", "q", "fits", labels={"app": "x"}))
    settle(state)
    assert state.placed["p"].hold == ("r", "t-0")
    assert used(state) == 3_000


@PLUGINS
def test_when_the_capability_grows_the_pod_takes_its_hold(plugin):
    state = held(plugin)
    then(state, in_queue("p", "q", "huge", labels={"app": "x"}))
    settle(state)
    then(state, queue("q", capability={"cpu": 32_000}))
    settle(state)
    assert state.placed["p"].hold == ("r", "t-0")


@PLUGINS
def test_who_takes_no_more_than_is_held_needs_no_quota(plugin):
    state = held(plugin)
    then(state, queue("q", capability={"cpu": 50}))
    then(state, in_queue("p", "q", "tiny", labels={"app": "x"}))
    settle(state)
    assert state.placed["p"].hold == ("r", "t-0"), "the queue had less before, and has no more now"


@PLUGINS
def test_a_hold_of_another_queue_leaves_the_pods_queue_its_limit(plugin):
    state = held(plugin, of="other")
    then(state, in_queue("p", "q", "huge", labels={"app": "x"}))
    settle(state)
    assert "p" not in state.placed
    then(state, in_queue("fits", "q", "fits", labels={"app": "x"}))
    settle(state)
    assert state.placed["fits"].hold == ("r", "t-0")


def test_a_hold_of_a_sibling_that_is_handed_over_leaves_capacity_above_both():
    tree = [queue("root-q", capability={"cpu": 3_000}), queue("q1", parent="root-q"), queue("q2", parent="root-q")]
    state = given(conf("capacity"), node("n", cpu=64_000), shape("s", cpu=3_000, memory=1), *tree)
    then(state, reservation("r", ("t", 1, "s"), owners=(owner(app="x"),), queue="q1", match_policy="Owner"))
    settle(state)
    then(state, in_queue("p", "q2", "s", labels={"app": "x"}))
    settle(state)
    assert state.placed["p"].hold == ("r", "t-0")


@PLUGINS
def test_a_gang_with_a_hold_keeps_within_its_queue_too(plugin):
    state = held(plugin)
    then(state, pod_group("g", "q", need=2), [member(f"m{i}", "g", "fits", labels={"app": "x"}) for i in range(2)])
    settle(state)
    assert not state.placed, "6 of 4 cores"
    then(state, queue("q", capability={"cpu": 6_000}))
    settle(state)
    assert len(state.placed) == 2
    assert used(state) == 6_000


@PLUGINS
def test_a_hold_does_not_grow_past_its_queues_capability(plugin):
    state = held(plugin)

    def grows(to: str, generation: int):
        then(state, reservation("r", ("t", 1, to), owners=(owner(app="x"),), queue="q", match_policy="Owner", generation=generation))
        settle(state)

    grows("huge", 2)
    assert used(state) == 100, "it stays as it is"
    assert "q has no cpu left" in state.slots["r"]["t-0"].message
    grows("fits", 3)
    assert used(state) == 3_000
