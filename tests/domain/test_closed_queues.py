"""A queue that is closed, or is not there, takes no jobs: nobody is evicted for one, and nobody starts in it by a nomination either,
whichever plugins there are."""

import pytest
from domain.build import NOW, configured, given, in_queue, node, queue, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig

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


@pytest.mark.parametrize("tiers", TIERS)
def test_where_the_queue_closes_after_the_preemption_the_pod_waits_with_that_reason(tiers):
    state = then(busy(tiers), queue("q"))
    assert any(isinstance(event, e.Nominated) for event in run(state, decider, c.Schedule(NOW, 1_000)))
    then(state, queue("q", state="Closing"), e.PodGone("victim"))
    events = [*run(state, decider, c.Schedule(NOW, 1_000)), *run(state, decider, c.Schedule(NOW, 1_000))]
    assert e.NominationEnded("pod", "QueueTakesNoJobs") in events
    assert [event.reason for event in events if isinstance(event, e.Withheld)] == ["QueueClosed"]
    assert not any(isinstance(event, e.PodPlaced) for event in events)
