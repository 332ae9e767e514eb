"""The reason that is given for a pod is the reason that there was: what a session logs of a pod that waits at a gate is the first thing that a
verdict says of it."""

import pytest
from domain.build import NOW, configured, given, in_queue, member, node, pod, pod_group, queue, run, shape

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.session.verdict import explain
from restow.domain.session_config import read_conf
from restow.replay.verdicts import waiting_lines

GROUPS = e.Synced("podgroups.scheduling.volcano.sh", "1")
WIDE = {"cpu": 64_000}
UNREADABLE = [shape("u", unreadable="GPU request: 150 %; allowed: 100")]
WAITS = {
    "QueueNotFound": [in_queue("p", "none")],
    "QueueClosed": [queue("q", state="Closed"), in_queue("p", "q")],
    "QueueQuota": [queue("q", capability={"cpu": 500}), in_queue("p", "q")],
    "NotEnqueued": [GROUPS, queue("q", capability=WIDE), pod_group("g", "q", phase="Pending", min_resources={"cpu": 10**9}), member("p", "g")],
    "PodGroupNotFound": [GROUPS, member("p", "g")],
    "NotEnoughPods": [GROUPS, pod_group("g", need=2), member("p", "g")],
    "InvalidWaitingTime": [pod("p", annotations={"sla-waiting-time": "soon"})],
    "Unschedulable": [pod("p", claims=("gone",))],
    "Unreadable in a gang": [GROUPS, *UNREADABLE, pod_group("g", need=2), member("p", "g", "u"), member("q", "g")],
    "Unreadable": [*UNREADABLE, pod("p", "u")],
}
CONF = {
    "actions": "enqueue, allocate",
    "tiers": [{"plugins": [{"name": name} for name in ("gang", "sla")]}, {"plugins": [{"name": name} for name in ("overcommit", "predicates", "proportion")]}],
}


@pytest.mark.parametrize("reason", WAITS)
def test_what_is_logged_of_a_pod_at_a_gate_is_what_a_verdict_says_first(reason):
    state = given(configured("session", read_conf(CONF)), node("n"), shape("s"), *WAITS[reason])
    run(state, session.decider, c.Schedule(NOW, 1_000))
    said = state.waiting[state.parked["p"][0]]
    first = explain(state, "p").blocks[0]
    assert (said.reason, said.message) == (first.reason, first.message)
    assert said.reason == ("Unschedulable" if reason.startswith("Unreadable") else reason)


@pytest.mark.parametrize("first", ["its claim", "its annotation", "nothing"])
def test_what_one_pod_waits_for_keeps_no_other_of_its_shape(first):
    pods = {
        "its claim": pod("claims", claims=("gone",)),
        "its annotation": pod("names", annotations={"scheduling.volcano.sh/target-reservation": "none"}),
        "nothing": pod("plain"),
    }
    state = given(node("n"), shape("s"), pods.pop(first), *pods.values(), pod("last"))
    run(state, session.decider, c.Schedule(NOW, 1_000))
    assert {*state.placed} == {"plain", "last"}
    assert {*state.parked} == {"claims", "names"}


def test_of_a_gang_everybody_is_told_which_pod_cannot_be_read():
    state = given(configured("session", read_conf(CONF)), node("n"), shape("s"), GROUPS, *UNREADABLE, pod_group("g", need=2), member("p", "g"), member("q", "g", "u"))
    run(state, session.decider, c.Schedule(NOW, 1_000))
    which = "pod default/q of its group: what it asks for cannot be read: GPU request: 150 %; allowed: 100"
    assert {state.waiting[state.parked[uid][0]].message for uid in "pq"} == {which}
    assert f"then: {which}" in waiting_lines(explain(state, "p"))
    assert waiting_lines(explain(state, "q")) == [
        f"waits: {which}", "where it would fit cannot be said", "its gang default/g needs 2 at the same time: 0 ready, 2 wait, 1 of them fit now", f"then: {which}",
    ]  # fmt: skip


def test_of_a_gang_that_runs_who_cannot_be_read_waits_alone():
    state = given(configured("session", read_conf(CONF)), node("n"), shape("s"), GROUPS, *UNREADABLE, pod_group("g", need=1), member("p", "g"), member("q", "g", "u"))
    run(state, session.decider, c.Schedule(NOW, 1_000))
    run(state, session.decider, c.Schedule(NOW + 1_000, 1_000))
    assert "p" in state.placed
    assert state.waiting[state.parked["q"][0]].message == "what it asks for cannot be read: GPU request: 150 %; allowed: 100"
    assert explain(state, "q").blocks[0].message == "what it asks for cannot be read: GPU request: 150 %; allowed: 100"


def test_where_a_pod_would_fit_that_cannot_be_read_is_not_said():
    state = given(node("n"), *UNREADABLE, pod("p", "u"))
    assert waiting_lines(explain(state, "p")) == [
        "waits: what it asks for cannot be read: GPU request: 150 %; allowed: 100", "where it would fit cannot be said",
    ]  # fmt: skip
