"""The reason of a waiting pod's condition PodScheduled: cluster autoscalers add nodes for `Unschedulable`, and for nothing else."""

import pytest
from domain.build import (
    NOW,
    configured,
    given,
    in_queue,
    member,
    node,
    pod,
    pod_group,
    queue,
    run,
    shape,
    then,
)
from domain.test_gang_successors import moved, not_yet

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.records import Waiting
from restow.domain.session.reasons import UNDETERMINED, condition_reason, lacks_node
from restow.domain.session.session import Session
from restow.domain.session_config import read_conf

GROUPS = e.Synced("podgroups.scheduling.volcano.sh", "1")
LARGE = shape("l", cpu=9_000)
TARGET = {"scheduling.volcano.sh/target-reservation": "none"}


def conf(queues: str):
    tiers = [{"plugins": [{"name": name} for name in names]} for names in (("gang", "sla"), ("overcommit", "predicates", "reservation", queues))]
    return configured("session", read_conf({"actions": "enqueue, allocate", "tiers": tiers}))


def told(*facts, queues="proportion", nodes=(node("n", cpu=8_000),)):
    """By pod, the reason that its condition has once nothing more is placed."""
    state = given(conf(queues), *nodes, shape("s"), LARGE, GROUPS, *facts)
    while any(isinstance(event, e.PodPlaced) for event in run(state, session.decider, c.Schedule(NOW, 1_000))):
        pass
    return {uid: condition_reason(state.waiting[key]) for uid, (key, _) in state.parked.items()}


def full(name, least):
    return pod_group(name, "q", phase="Pending", min_resources={"cpu": least})


MORE_NODES = {
    "fits nowhere": [pod("p", "l")],
    "a gang that does not fit as a whole": [pod_group("g", need=2), member("p", "g"), member("q", "g", "l")],
    "a PodGroup whose minimum the cluster is too small for": [queue("q"), full("g", 10**9), member("p", "g")],
}
NO_NODE = {
    "its queue's capability": [queue("q", capability={"cpu": 500}), in_queue("p", "q")],
    "a gang's queue's capability": [queue("q", capability={"cpu": 1_500}), pod_group("g", "q", need=2), member("p", "g"), member("q", "g")],
    "the capability of its PodGroup's queue": [queue("q", capability={"cpu": 500}), full("g", 1_000), member("p", "g")],
    "a queue": [in_queue("p", "none")],
    "a queue that is closed": [queue("q", state="Closed"), in_queue("p", "q")],
    "a PodGroup": [member("p", "g")],
    "other members of its gang": [pod_group("g", need=2), member("p", "g")],
    "a Reservation": [pod("p", annotations=TARGET)],
    "a claim": [pod("p", claims=("gone",))],
    "a correction": [shape("u", unreadable="GPU request: 150 %; allowed: 100"), pod("p", "u")],
}


@pytest.mark.parametrize("what", MORE_NODES)
def test_who_lacks_a_node_is_unschedulable(what):
    waiting = told(*MORE_NODES[what])
    assert waiting
    assert {*waiting.values()} == {"Unschedulable"}


@pytest.mark.parametrize("what", NO_NODE)
def test_who_waits_for_something_that_no_node_brings_is_undetermined(what):
    waiting = told(*NO_NODE[what])
    assert waiting
    assert {*waiting.values()} == {UNDETERMINED}


@pytest.mark.parametrize("facts", [[pod("p")], [pod_group("g", need=2), member("p", "g"), member("q", "g")]], ids=["a pod", "a gang"])
def test_in_a_cluster_without_nodes_everybody_lacks_one(facts):
    assert {*told(*facts, nodes=()).values()} == {"Unschedulable"}


@pytest.mark.parametrize("queues", ["proportion", "capacity"])
def test_what_a_queue_may_not_use_because_the_cluster_is_shared_more_nodes_may_bring(queues):
    shared = [queue("a"), queue("b", guarantee={"cpu": 3_000}), *[in_queue(f"a{i}", "a") for i in range(8)]]
    assert told(*shared, queues=queues) == dict.fromkeys(("a5", "a6", "a7"), "Unschedulable")


def test_of_two_queues_that_have_their_shares_each_may_have_more_of_a_larger_cluster():
    both = [queue("a"), queue("b"), *[in_queue(f"{name}{i}", name) for name in "ab" for i in range(8)]]
    waiting = told(*both)
    assert len(waiting) == 8
    assert {*waiting.values()} == {"Unschedulable"}


def test_a_gang_that_waits_for_the_slot_of_one_that_is_moved_lacks_no_node(monkeypatch):
    state = then(moved(), pod_group("g", need=3))
    monkeypatch.setattr(Session, "hand_over", not_yet)
    run(state, session.decider, c.Schedule(NOW, 2_000))
    assert {condition_reason(state.waiting[key]) for key, _ in state.parked.values()} == {UNDETERMINED}


def test_who_waits_for_capacity_that_is_being_freed_for_its_gang_lacks_no_node():
    freed = "capacity is being freed for 2 pods of the gang; the others follow them"
    assert not lacks_node(Waiting(0, {}, NOW, reason="Unschedulable", message=freed))
