"""Reclaim between queues, from the first session to the last: what was lent comes back, and then it is quiet."""

import pytest
from domain.build import NOW, configured, given, in_queue, node, queue, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig

decider = session.decider


def conf(plugin):
    return configured(
        "session",
        SessionConfig(
            actions=tuple(map(ActionConfig, ("enqueue", "allocate", "backfill", "reclaim"))),
            tiers=(tuple(map(PluginConfig, ("priority", "gang", "conformance"))), tuple(map(PluginConfig, ("drf", "predicates", plugin, "nodeorder")))),
        ),
    )


def cluster(plugin, **reclaimable):
    """Queue a uses all eight cores and wants more; half of them b deserves, and wants."""
    more = {name: {"deserved": {"cpu": 4_000}} if plugin == "capacity" else {} for name in "ab"}
    state = given(conf(plugin), node("n", cpu=8_000), shape("s"), *[queue(name, **more[name], reclaimable=reclaimable.get(name, True)) for name in "ab"])
    then(state, *[in_queue(f"a{i}", "a", node="n") for i in range(8)], *[in_queue(f"x{i}", "a") for i in range(8)])
    return then(state, *[in_queue(f"b{i}", "b") for i in range(8)])


def live_on(state, turns=40):
    """Sessions, and what the cluster makes of them: victims go, placed pods run."""
    evicted, placed = [], []
    for turn in range(turns):
        events = run(state, decider, c.Schedule(NOW + turn, 1_000))
        victims = [event.pod for event in events if isinstance(event, e.Preempted)]
        for event in events:
            if isinstance(event, e.PodPlaced):
                placed.append(event.pod)
                then(state, e.PodChanged(event.pod, node=event.node, phase="Running", ready=True))
        for uid in victims:
            then(state, e.PodGone(uid))
        evicted += victims
        if not victims and not any(isinstance(event, e.PodPlaced | e.Nominated) for event in events):
            return evicted, placed, turn
    raise AssertionError("it never becomes quiet")


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_a_queue_gets_back_what_it_deserves_and_no_more_and_nobody_takes_it_back_again(plugin):
    state = cluster(plugin)
    evicted, placed, _ = live_on(state)
    assert len(evicted) == 4
    assert sorted(name[0] for name in placed) == ["b"] * 4
    assert state.accounts.of("a") == state.accounts.of("b")


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_from_a_queue_that_is_not_reclaimable_nothing_is_taken(plugin):
    evicted, placed, _ = live_on(cluster(plugin, a=False))
    assert (evicted, placed) == ([], [])
