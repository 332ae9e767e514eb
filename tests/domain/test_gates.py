"""The reason that is given for a pod is the reason that there was: what a session logs of a pod that waits at a gate is the first thing that a
verdict says of it."""

import pytest
from domain.build import NOW, configured, given, in_queue, member, node, pod, pod_group, queue, run, shape

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.session.verdict import explain
from restow.domain.session_config import read_conf

GROUPS = e.Synced("podgroups.scheduling.volcano.sh", "1")
WIDE = {"cpu": 64_000}
WAITS = {
    "QueueNotFound": [in_queue("p", "none")],
    "QueueClosed": [queue("q", state="Closed"), in_queue("p", "q")],
    "QueueQuota": [queue("q", capability={"cpu": 500}), in_queue("p", "q")],
    "NotEnqueued": [GROUPS, queue("q", capability=WIDE), pod_group("g", "q", phase="Pending", min_resources={"cpu": 10**9}), member("p", "g")],
    "PodGroupNotFound": [GROUPS, member("p", "g")],
    "NotEnoughPods": [GROUPS, pod_group("g", need=2), member("p", "g")],
    "InvalidWaitingTime": [pod("p", annotations={"sla-waiting-time": "soon"})],
    "Unschedulable": [pod("p", claims=("gone",))],
    "Unreadable": [shape("u", unreadable="GPU request: 150 %; allowed: 100"), pod("p", "u")],
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
    assert said.reason == {"Unreadable": "Unschedulable"}.get(reason, reason)
