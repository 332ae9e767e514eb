"""KS-350..365: nodes, their readiness, evictions by taint, Leases, pod GC."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from kubesim.simworld import GIB, World, condition, deleting, is_ready, phase, pod_spec, workload

from restow.kubesim.nodes import NodeShape, build_node, set_ready
from restow.kubesim.objects import parse_time
from restow.kubesim.resources import LEASES, NODES, PODS, REPLICASETS
from restow.kubesim.timers import Timings

QUIET = Timings(heartbeat=0)


@pytest.fixture
def world() -> World:
    return World(nodes=2)


def taints(world: World, node: str = "n0") -> set[tuple[str, str]]:
    found = world.get(NODES, node)["spec"].get("taints") or []
    return {(t["key"].removeprefix("node.kubernetes.io/"), t["effect"]) for t in found}


def silence(world: World, ready: bool | None, node: str = "n0") -> None:
    set_ready(world.store, node, ready)
    world.run()


def test_a_node_is_built_with_labels_capacity_conditions_and_info():
    """KS-350"""
    shape = NodeShape("x", 96_000, 512 * GIB, pods=200, gpus=8, gpu_model="V100", zone="z1", labels={"a": "b"},
                      taints=({"key": "k", "value": "v", "effect": "NoSchedule"},))  # fmt: skip
    node = build_node(shape, number=7)
    assert node["status"]["allocatable"] == {
        "cpu": "96", "memory": "536870912Ki", "pods": "200", "ephemeral-storage": "100Gi",
        "nvidia.com/gpu": "8", "alibabacloud.com/gpu-count": "8",
    }  # fmt: skip
    labels = node["metadata"]["labels"]
    wanted = {"kubernetes.io/hostname": "x", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
              "topology.kubernetes.io/zone": "z1", "alibabacloud.com/gpu-card-model": "V100", "a": "b"}  # fmt: skip
    assert wanted.items() <= labels.items()
    assert condition(node, "Ready")["status"] == "True"
    assert node["spec"]["taints"] == [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    assert node["status"]["nodeInfo"]["operatingSystem"] == "linux"


def test_an_odd_amount_of_cpu_is_written_in_millicores():
    """KS-350"""
    assert build_node(NodeShape("x", 1500, 1000))["status"]["capacity"]["cpu"] == "1500m"


def test_conditions_of_a_node_that_a_demo_makes_are_of_now_and_not_of_1970():
    before = datetime.now(tz=UTC) - timedelta(seconds=1)
    made = build_node(NodeShape("x", 1_000, GIB))["status"]["conditions"]
    assert all(before <= parse_time(one[key]) for one in made for key in ("lastHeartbeatTime", "lastTransitionTime"))


def test_a_node_made_without_conditions_becomes_ready(world):
    """KS-351"""
    world.store.create(
        NODES, {"metadata": {"name": "bare"}, "status": {"allocatable": {"cpu": "1", "pods": "10"}}}
    )
    world.run()
    assert condition(world.get(NODES, "bare"), "Ready")["status"] == "True"


@pytest.mark.parametrize(
    ("ready", "status", "key"), [(False, "False", "not-ready"), (None, "Unknown", "unreachable")]
)
def test_a_node_that_fails_gets_its_condition_and_taints_and_loses_them_when_it_is_back(
    world, ready, status, key
):
    """KS-352"""
    silence(world, ready)
    assert condition(world.get(NODES, "n0"), "Ready")["status"] == status
    assert taints(world) == {(key, "NoSchedule"), (key, "NoExecute")}
    silence(world, True)
    assert condition(world.get(NODES, "n0"), "Ready")["status"] == "True"
    assert taints(world) == set()


def test_taking_the_annotation_away_brings_the_node_back(world):
    """KS-352"""
    silence(world, False)
    world.annotate(NODES, "n0", **{"kubesim.restow.dev/ready": None})
    assert (condition(world.get(NODES, "n0"), "Ready")["status"], taints(world)) == ("True", set())


def test_taints_of_users_are_kept(world):
    """KS-352"""
    world.change(NODES, "n0", taints=[{"key": "mine", "effect": "NoSchedule"}])
    silence(world, None)
    silence(world, True)
    assert taints(world) == {("mine", "NoSchedule")}


def test_a_cordoned_node_wears_the_unschedulable_taint(world):
    """KS-353"""
    world.change(NODES, "n0", unschedulable=True)
    assert taints(world) == {("unschedulable", "NoSchedule")}
    world.change(NODES, "n0", unschedulable=None)
    assert taints(world) == set()


def test_pods_of_a_silent_node_are_marked_not_ready_and_ready_again_when_it_is_back(world):
    """KS-354"""
    world.pod()
    world.run(0.1)
    silence(world, None)
    assert condition(world.get(PODS, "p"), "Ready")["reason"] == "NodeNotReady"
    silence(world, True)
    assert is_ready(world.get(PODS, "p"))


def test_a_silent_node_neither_starts_nor_stops_pods(world):
    """KS-355"""
    world.pod("old")
    world.run(0.1)
    silence(world, None)
    world.pod("new", tolerations=[{"operator": "Exists"}])
    world.delete(PODS, "old")
    world.run(60)
    assert (deleting(world.get(PODS, "old")), phase(world.get(PODS, "new"))) == (True, "Pending")
    silence(world, True)
    world.run(1)
    assert (world.find(PODS, "old"), phase(world.get(PODS, "new"))) == (None, "Running")


def test_an_unwell_node_stops_pods_but_starts_none(world):
    """KS-355"""
    world.pod("old")
    world.run(0.1)
    silence(world, False)
    world.pod("new", tolerations=[{"operator": "Exists"}])
    world.delete(PODS, "old")
    world.run(1)
    assert (world.find(PODS, "old"), phase(world.get(PODS, "new"))) == (None, "Pending")


def test_pods_leave_an_unwell_node_after_their_toleration_seconds(world):
    """KS-356"""
    key = "node.kubernetes.io/not-ready"
    patient = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
    world.pod("default")
    world.pod("patient", tolerations=patient)
    world.pod("daemon", tolerations=[{"operator": "Exists"}])
    world.run(0.1)
    silence(world, False)
    world.run(59)
    assert len(world.pods()) == 3
    world.run(2)
    assert world.names() == ["daemon", "default"]
    world.run(240)
    assert world.names() == ["daemon"]


def test_toleration_seconds_can_run_faster():
    """KS-356"""
    world = World(nodes=1, timings=replace(QUIET, toleration_scale=0.01))
    world.pod()
    world.run(0.1)
    silence(world, False)
    world.run(3.1)
    assert world.names() == []


def test_a_node_that_is_back_in_time_keeps_its_pods(world):
    """KS-357"""
    world.pod()
    world.run(0.1)
    silence(world, False)
    world.run(200)
    silence(world, True)
    world.run(200)
    silence(world, False)
    world.run(200)
    assert world.names() == ["p"]


def test_any_no_execute_taint_evicts_what_does_not_tolerate_it_at_once(world):
    """KS-358"""
    world.pod("a")
    world.pod("b", tolerations=[{"key": "k", "operator": "Exists"}])
    world.run(0.1)
    last: list[dict] = []
    world.store.subscribe(lambda c: last.append(c.stored.obj) if c.resource == PODS else None)
    world.change(NODES, "n0", taints=[{"key": "k", "effect": "NoExecute"}])
    world.run(0.1)
    assert world.names() == ["b"]
    assert condition(last[-1], "DisruptionTarget")["reason"] == "DeletionByTaintManager"


def test_pods_of_a_deleted_node_are_failed_and_removed(world):
    """KS-359"""
    world.pod()
    world.run(0.1)
    last: list[dict] = []
    world.store.subscribe(lambda c: last.append(c.stored.obj) if c.resource == PODS else None)
    world.delete(NODES, "n0")
    world.run(0.1)
    assert world.names() == []
    assert (phase(last[-1]), condition(last[-1], "DisruptionTarget")["reason"]) == (
        "Failed",
        "DeletionByPodGC",
    )


def test_a_terminating_pod_of_a_silent_node_goes_with_the_node(world):
    """KS-359"""
    world.pod()
    world.run(0.1)
    silence(world, None)
    world.delete(PODS, "p")
    world.run(60)
    assert deleting(world.get(PODS, "p"))
    world.delete(NODES, "n0")
    world.run(0.1)
    assert world.names() == []


def test_a_pod_bound_to_a_node_that_never_was_is_removed(world):
    """KS-359"""
    world.pod(node="nowhere")
    world.run(0.1)
    assert world.names() == []


def test_replicas_of_a_deleted_node_come_back_elsewhere(world):
    """KS-360"""
    world.create(REPLICASETS, "web", workload(replicas=2))
    world.run(0.1)
    home = world.pods()[0]["spec"]["nodeName"]
    world.delete(NODES, home)
    world.run(1)
    assert len(world.alive()) == 2
    assert home not in {pod["spec"]["nodeName"] for pod in world.alive()}


def test_every_node_has_a_lease_that_is_renewed():
    """KS-361"""
    world = World(nodes=2, timings=Timings(heartbeat=10))
    world.run(1)
    leases = world.store.list(LEASES, "kube-node-lease")
    assert [lease["spec"]["holderIdentity"] for lease in leases] == ["n0", "n1"]
    before = [lease["spec"]["renewTime"] for lease in leases]
    world.run(11)
    after = [lease["spec"]["renewTime"] for lease in world.store.list(LEASES, "kube-node-lease")]
    assert all(new > old for new, old in zip(after, before, strict=True))


def test_a_silent_node_does_not_renew_its_lease():
    """KS-361"""
    world = World(nodes=2, timings=Timings(heartbeat=10))
    silence(world, None)
    before = world.store.get(LEASES, "kube-node-lease", "n0")["spec"]["renewTime"]
    world.run(30)
    assert world.store.get(LEASES, "kube-node-lease", "n0")["spec"]["renewTime"] == before


def test_many_nodes_stretch_the_heartbeat_instead_of_the_load():
    """KS-362"""
    world = World(nodes=60, timings=Timings(heartbeat=1, heartbeats_per_second=10))
    renewals = 0

    def watch(change) -> None:
        nonlocal renewals
        renewals += change.resource == LEASES and change.type == "MODIFIED"

    world.store.subscribe(watch)
    world.run(10)
    assert 90 <= renewals <= 110


def test_heartbeats_can_be_switched_off(world):
    """KS-362"""
    world.run(100)
    assert world.store.count(LEASES) == 0
    assert pod_spec()
