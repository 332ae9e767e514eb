"""KS-270..279: DaemonSets."""

from __future__ import annotations

import pytest
from kubesim.simworld import World, pod_spec, workload

from restow.kubesim.nodes import set_ready
from restow.kubesim.objects import clone
from restow.kubesim.resources import DAEMONSETS, NODES, PODS

LABELS = {"app": "agent"}


@pytest.fixture
def world() -> World:
    return World(nodes=3)


def make(world: World, *, spec: dict | None = None, **more) -> None:
    world.create(DAEMONSETS, "agent", workload(LABELS, spec=spec, **more))
    world.run(0.5)


def on(world: World) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in world.alive())


def test_there_is_one_pod_on_every_node_pinned_by_node_affinity(world):
    """KS-270"""
    make(world)
    assert on(world) == ["n0", "n1", "n2"]
    for pod in world.pods():
        required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert required["nodeSelectorTerms"] == [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}]}
        ]


def test_a_new_node_gets_a_pod(world):
    """KS-271"""
    make(world)
    world.add_nodes(1)
    world.run(0.5)
    assert on(world) == ["n0", "n1", "n2", "n3"]


def test_a_deleted_pod_is_made_again_on_its_node(world):
    """KS-272"""
    make(world)
    victim = next(pod for pod in world.pods() if pod["spec"]["nodeName"] == "n1")
    world.delete(PODS, victim["metadata"]["name"])
    world.run(0.5)
    assert on(world) == ["n0", "n1", "n2"]


def test_a_failed_pod_is_deleted_and_made_again(world):
    """KS-272"""
    make(world)
    world.annotate(PODS, world.names()[0], **{"kubesim.restow.dev/fail-after": "1ms"})
    world.run(0.5)
    assert len(world.pods()) == 3
    assert on(world) == ["n0", "n1", "n2"]


def test_the_node_selector_decides_and_a_label_change_moves_the_line(world):
    """KS-273"""
    world.label(NODES, "n1", disk="ssd")
    make(world, spec=pod_spec(nodeSelector={"disk": "ssd"}))
    assert on(world) == ["n1"]
    world.label(NODES, "n2", disk="ssd")
    world.label(NODES, "n1", disk="hdd")
    world.run(0.5)
    assert on(world) == ["n2"]


def test_untolerated_taints_keep_its_pods_away(world):
    """KS-274"""
    world.change(NODES, "n0", taints=[{"key": "gpu", "value": "only", "effect": "NoSchedule"}])
    make(world)
    assert on(world) == ["n1", "n2"]


def test_a_no_schedule_taint_does_not_remove_a_running_pod(world):
    """KS-274"""
    make(world)
    world.change(NODES, "n0", taints=[{"key": "gpu", "value": "only", "effect": "NoSchedule"}])
    world.run(0.5)
    assert on(world) == ["n0", "n1", "n2"]
    assert world.status(DAEMONSETS, "agent")["numberMisscheduled"] == 1


def test_its_pods_stay_on_cordoned_and_unready_nodes(world):
    """KS-275"""
    make(world)
    world.change(NODES, "n0", unschedulable=True)
    set_ready(world.store, "n1", None)
    world.run(1000)
    assert on(world) == ["n0", "n1", "n2"]


def test_its_pods_are_left_to_the_scheduler_that_the_template_names(world):
    """KS-276"""
    make(world, spec=pod_spec(schedulerName="restow"))
    assert on(world) == ["", "", ""]


def test_the_status_counts_nodes(world):
    """KS-277"""
    make(world)
    assert world.status(DAEMONSETS, "agent") == {
        "currentNumberScheduled": 3, "numberMisscheduled": 0, "desiredNumberScheduled": 3, "numberReady": 3,
        "observedGeneration": 1, "updatedNumberScheduled": 3, "numberAvailable": 3,
    }  # fmt: skip


def test_a_rolling_update_replaces_max_unavailable_pods_at_a_time(world):
    """KS-278"""
    make(world)
    template = clone(world.get(DAEMONSETS, "agent")["spec"]["template"])
    template["spec"]["containers"][0]["image"] = "new"
    least = 3

    def watch(change) -> None:
        nonlocal least
        if change.resource == PODS:
            least = min(least, len([p for p in world.alive() if p["status"]["phase"] == "Running"]))

    world.store.subscribe(watch)
    world.change(DAEMONSETS, "agent", template=template)
    world.run(3)
    assert least == 2
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"new"}
    assert world.status(DAEMONSETS, "agent")["updatedNumberScheduled"] == 3


def test_on_delete_waits_for_somebody_to_delete(world):
    """KS-279"""
    make(world, updateStrategy={"type": "OnDelete"})
    before = world.names()
    template = clone(world.get(DAEMONSETS, "agent")["spec"]["template"])
    template["spec"]["containers"][0]["image"] = "new"
    world.change(DAEMONSETS, "agent", template=template)
    world.run(3)
    assert world.names() == before
