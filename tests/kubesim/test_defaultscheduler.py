"""KS-310..319, and of 400.. what needs no real one beside it: the built-in default-scheduler."""

from __future__ import annotations

import pytest
from kubesim.simworld import World, condition, pod_spec

from restow.kubesim.resources import (
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PODDISRUPTIONBUDGETS,
    PODS,
    PRIORITYCLASSES,
)


@pytest.fixture
def world() -> World:
    return World(nodes=2)


def make(world: World, name: str = "p", **more) -> str:
    """Create the pod; returns its node or ""."""
    world.create(PODS, name, pod_spec(**more))
    world.run(0.1)
    return world.get(PODS, name)["spec"].get("nodeName", "")


def waits(world: World, name: str = "p") -> str:
    found = condition(world.get(PODS, name), "PodScheduled")
    return found["message"] if found and found["status"] == "False" else ""


def test_a_pod_goes_to_a_node_with_capacity(world):
    """KS-310"""
    assert [make(world, name, cpu="3") for name in ("a", "b")] == ["n0", "n1"]
    assert condition(world.get(PODS, "a"), "PodScheduled")["status"] == "True"


def test_a_pod_of_another_scheduler_is_never_touched(world):
    """KS-311"""
    assert make(world, schedulerName="restow") == ""
    assert condition(world.get(PODS, "p"), "PodScheduled") is None


def test_a_pod_that_fits_nowhere_says_why(world):
    """KS-312"""
    assert make(world, cpu="5") == ""
    assert waits(world) == "0/2 nodes are available: 2 Insufficient cpu."
    assert condition(world.get(PODS, "p"), "PodScheduled")["reason"] == "Unschedulable"


def test_a_waiting_pod_is_placed_when_capacity_appears(world):
    """KS-313"""
    for name in ("a", "b"):
        make(world, name, cpu="3")
    assert make(world, cpu="2") == ""
    world.delete(PODS, "b")
    world.run(0.2)
    assert world.get(PODS, "p")["spec"]["nodeName"] == "n1"


def test_a_waiting_pod_is_placed_on_a_new_node(world):
    """KS-313"""
    assert make(world, cpu="5") == ""
    world.add_nodes(1, cpu=8000)
    world.run(0.2)
    assert world.get(PODS, "p")["spec"]["nodeName"] == "n2"


def test_pods_of_other_schedulers_count_as_used(world):
    """KS-314"""
    world.pod("theirs", node="n0", cpu="3")
    assert make(world, cpu="2") == "n1"


def test_node_selector_taints_and_cordons_are_honoured(world):
    """KS-315"""
    world.label(NODES, "n1", disk="ssd")
    assert make(world, "selected", nodeSelector={"disk": "ssd"}) == "n1"
    world.change(NODES, "n1", taints=[{"key": "k", "effect": "NoSchedule"}])
    assert make(world, "tainted", nodeSelector={"disk": "ssd"}) == ""
    tolerant = [{"key": "k", "operator": "Exists"}]
    assert make(world, "tolerant", nodeSelector={"disk": "ssd"}, tolerations=tolerant) == "n1"
    world.change(NODES, "n0", unschedulable=True)
    assert make(world, "cordoned") == ""


def test_a_pod_pinned_to_a_node_waits_for_that_node(world):
    """KS-316"""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    make(world, "a", cpu="3")
    make(world, "b", cpu="3")
    assert make(world, cpu="2", affinity={"nodeAffinity": required}) == ""
    assert "It may run on n1 only" in waits(world)
    world.delete(PODS, "b")
    world.run(0.2)
    assert world.get(PODS, "p")["spec"]["nodeName"] == "n1"


def test_a_gated_pod_waits_for_its_gates(world):
    """KS-317"""
    assert make(world, schedulingGates=[{"name": "example.com/wait"}]) == ""
    world.change(PODS, "p", schedulingGates=None)
    world.run(0.1)
    assert world.get(PODS, "p")["spec"].get("nodeName")


def test_gpus_are_placed_by_device():
    """KS-318"""
    world = World(nodes=2, gpus=1)
    share = {"alibabacloud.com/gpu-milli": "600", "alibabacloud.com/gpu-count": "1"}
    assert [make(world, name, requests=share) for name in ("a", "b", "c")] == ["n0", "n1", ""]
    assert world.running.kubelet.rejections == 0


def test_a_restart_changes_nothing_for_pods_that_run_or_wait(world):
    """KS-319"""
    make(world, "a", cpu="3")
    make(world, "b", cpu="3")
    assert make(world, cpu="2") == ""
    scheduler = world.running.by_name["default-scheduler"]
    scheduler.restart()
    world.run(0.2)
    assert waits(world)
    world.delete(PODS, "a")
    world.run(0.2)
    assert world.get(PODS, "p")["spec"]["nodeName"] == "n0"


def nominate(world: World, name: str, node: str) -> None:
    pod = world.get(PODS, name)
    world.store.update(PODS, {**pod, "status": {**pod["status"], "nominatedNodeName": node}}, subresource="status")


def swap(world: World, *, heard: bool, known: bool = True, touched: bool = False) -> str:
    """Where the pod is that waits, once a gated one was nominated to the node of a third, which has gone. `heard`: by then the scheduler has heard of the
    nomination; `known`: it knew the gated pod before."""
    scheduler = world.running.by_name["default-scheduler"]
    gated = {"cpu": "3", "schedulingGates": [{"name": "g"}]}
    make(world, "full", cpu="3")
    make(world, "hold", cpu="3")
    assert make(world, "waits", cpu="3") == ""
    if known:
        make(world, "next", **gated)
    scheduler.cut()
    if not known:
        make(world, "next", **gated)
    nominate(world, "next", "n1")
    if heard:
        scheduler.list_again()
        world.run(0.2)
        if touched:
            world.annotate(PODS, "next", touched="1")
            world.run(0.1)
        scheduler.cut()
    world.delete(PODS, "hold")
    world.run(1.0)
    assert waits(world, "waits"), "it stands still"
    scheduler.list_again()
    world.run(1.0)
    return world.get(PODS, "waits")["spec"].get("nodeName", "")


def test_a_scheduler_that_lists_pods_again_hears_of_who_has_gone_before_it_hears_of_a_nomination(world):
    """KS-421"""
    assert swap(world, heard=False) == "n1"


def test_one_that_has_heard_of_the_nomination_before_keeps_the_node(world):
    """KS-421"""
    assert swap(world, heard=True) == ""


@pytest.mark.parametrize(("touched", "node"), [(False, "n1"), (True, "")])
def test_a_gated_pod_that_was_first_listed_with_its_nomination_counts_once_it_changes(world, touched, node):
    """KS-407, KS-421"""
    assert swap(world, heard=True, known=False, touched=touched) == node


def test_one_that_lists_again_binds_nobody_twice_to_the_same_capacity(world):
    """KS-421"""
    scheduler = world.running.by_name["default-scheduler"]
    make(world, "a", cpu="3")
    make(world, "b", cpu="3")
    assert [make(world, name, cpu="3") for name in ("c", "d")] == ["", ""]
    scheduler.cut()
    world.delete(PODS, "a")
    assert make(world, "e", cpu="3") == ""
    scheduler.list_again()
    world.run(1.0)
    assert sorted(world.get(PODS, name)["spec"].get("nodeName", "") for name in "cde") == ["", "", "n0"]
    world.delete(PODS, "b")
    world.run(1.0)
    assert sorted(world.get(PODS, name)["spec"].get("nodeName", "") for name in "cde") == ["", "n0", "n1"]


@pytest.fixture
def classes(world: World) -> World:
    for name, value in (("low", 10), ("mid", 1000), ("high", 2000)):
        world.store.create(PRIORITYCLASSES, {"metadata": {"name": name}, "value": value})
    return world


def test_preemption_spares_a_spent_budget_where_it_can(classes):
    """KS-418"""
    for name in ("a", "b"):
        body = {"metadata": {"name": name, "labels": {"app": name}}, "spec": pod_spec(cpu="3", priorityClassName="low")}
        classes.store.create(PODS, body, "default")
        classes.run(0.2)
    # n0 would win if all else is equal.
    classes.create(PODDISRUPTIONBUDGETS, "a", {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}})
    classes.run(1)
    make(classes, cpu="3", priorityClassName="mid")
    classes.run(1)
    assert (classes.find(PODS, "b"), classes.get(PODS, "p")["spec"]["nodeName"]) == (None, "n1")


def test_preemption_takes_nominations_of_lower_priorities_away(classes):
    """KS-419"""
    classes.change(NODES, "n1", unschedulable=True)
    make(classes, "a", cpu="3", priorityClassName="low")
    gated = [{"name": "example.com/wait"}]
    make(classes, "mid", cpu="2", priorityClassName="mid", schedulingGates=gated)
    pod = classes.get(PODS, "mid")
    classes.store.update(PODS, {**pod, "status": {**pod["status"], "nominatedNodeName": "n0"}}, subresource="status")
    make(classes, "high", cpu="3", priorityClassName="high")
    classes.run(1)
    assert classes.get(PODS, "high")["spec"]["nodeName"] == "n0"
    assert "nominatedNodeName" not in classes.get(PODS, "mid")["status"]


def test_a_claim_for_a_single_pod_is_not_shared(classes):
    """KS-420"""
    spec = {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}}
    classes.create(PERSISTENTVOLUMECLAIMS, "disk", spec)
    classes.run(0.1)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]
    assert make(classes, "first", volumes=volumes, priorityClassName="mid")
    assert make(classes, "second", volumes=volumes, priorityClassName="mid") == ""
    assert "ReadWriteOncePod" in waits(classes, "second")
    make(classes, "high", volumes=volumes, priorityClassName="high")
    classes.run(1)
    assert classes.find(PODS, "first") is None
    assert classes.get(PODS, "high")["spec"].get("nodeName")
