"""KS-210..222: ReplicaSets."""

from __future__ import annotations

import pytest
from kubesim.simworld import World, deleting, is_ready, name_of, phase, pod_spec, workload

from restow.kubesim.objects import clone, controller_of
from restow.kubesim.resources import PODS, REPLICASETS


@pytest.fixture
def world() -> World:
    return World(nodes=2)


def test_it_creates_its_replicas_with_generated_names_and_a_controller_reference(world):
    """KS-210"""
    owner = world.create(REPLICASETS, "web", workload(replicas=3))
    pods = world.pods()
    assert len(pods) == 3
    for pod in pods:
        assert name_of(pod).startswith("web-")
        assert len(name_of(pod)) == len("web-") + 5
        assert pod["metadata"]["generateName"] == "web-"
        assert pod["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web",
                "uid": owner["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


def test_the_replacement_comes_when_the_pod_begins_to_terminate_not_when_it_is_gone(world):
    """KS-211"""
    spec = pod_spec(terminationGracePeriodSeconds=30)
    world.create(REPLICASETS, "web", workload(spec=spec, replicas=1))
    world.run(0.1)
    world.annotate(PODS, world.names()[0], **{"kubesim.restow.dev/stop-after": "10s"})
    world.delete(PODS, world.names()[0])
    assert sorted(deleting(pod) for pod in world.pods()) == [False, True]
    world.run(1)
    assert len(world.pods()) == 2
    world.run(10)
    assert [deleting(pod) for pod in world.pods()] == [False]


def test_a_finished_pod_is_replaced_and_left_where_it_is(world):
    """KS-212"""
    world.create(REPLICASETS, "web", workload(replicas=1))
    world.run(0.1)
    world.annotate(PODS, world.names()[0], **{"kubesim.restow.dev/fail-after": "1ms"})
    world.run(0.1)
    assert sorted(phase(pod) for pod in world.pods()) == ["Failed", "Running"]


def test_it_adopts_an_orphan_that_its_selector_matches(world):
    """KS-213"""
    world.pod("lonely", labels={"app": "web"})
    owner = world.create(REPLICASETS, "web", workload(replicas=2))
    assert controller_of(world.get(PODS, "lonely"))["uid"] == owner["metadata"]["uid"]
    assert len(world.pods()) == 2


def test_it_adopts_an_orphan_that_appears_later_and_removes_the_surplus(world):
    """KS-213"""
    world.create(REPLICASETS, "web", workload(replicas=1))
    world.run(0.1)
    world.pod("lonely", labels={"app": "web"})
    world.run(0.1)
    assert len(world.alive()) == 1


def test_it_leaves_pods_of_others_alone(world):
    """KS-213"""
    other = world.create(REPLICASETS, "other", workload({"app": "web", "x": "y"}, replicas=1))
    world.create(REPLICASETS, "web", workload(replicas=1))
    owners = sorted(controller_of(pod)["name"] for pod in world.pods())
    assert owners == ["other", "web"]
    assert other["metadata"]["name"] == "other"


def test_it_releases_a_pod_whose_labels_no_longer_match_and_replaces_it(world):
    """KS-214"""
    world.create(REPLICASETS, "web", workload(replicas=1))
    name = world.names()[0]
    world.label(PODS, name, app="debug")
    world.run(0.1)
    assert controller_of(world.get(PODS, name)) is None
    assert len(world.pods()) == 2


def test_the_status_counts_replicas_ready_available_and_fully_labeled(world):
    """KS-215"""
    spec = workload(replicas=2)
    spec["template"]["metadata"]["labels"]["tier"] = "front"
    world.create(REPLICASETS, "web", spec)
    world.run(0.2)
    assert world.status(REPLICASETS, "web") == {
        "replicas": 2,
        "fullyLabeledReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "observedGeneration": 1,
    }


def test_a_pod_without_all_labels_of_the_template_is_not_fully_labeled(world):
    """KS-215"""
    spec = workload(replicas=2)
    spec["template"]["metadata"]["labels"]["tier"] = "front"
    world.create(REPLICASETS, "web", spec)
    world.label(PODS, world.names()[0], tier="back")
    world.run(0.2)
    assert world.status(REPLICASETS, "web")["fullyLabeledReplicas"] == 1


def test_a_pod_is_available_after_min_ready_seconds(world):
    """KS-216"""
    world.create(REPLICASETS, "web", workload(replicas=1, minReadySeconds=5))
    world.run(2)
    status = world.status(REPLICASETS, "web")
    assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (1, 0)
    world.run(5)
    assert world.status(REPLICASETS, "web")["availableReplicas"] == 1


def test_a_scale_down_takes_pods_without_a_node_first(world):
    """KS-217"""
    world.create(REPLICASETS, "web", workload(spec=pod_spec(schedulerName="restow"), replicas=3))
    bound = world.pods()[1]
    world.bind(bound, "n0")
    world.run(0.1)
    world.change(REPLICASETS, "web", replicas=1)
    assert [name_of(pod) for pod in world.alive()] == [name_of(bound)]


def test_a_scale_down_takes_pods_that_are_not_ready_before_ready_ones(world):
    """KS-217"""
    world.create(REPLICASETS, "web", workload(spec=pod_spec(schedulerName="restow"), replicas=2))
    first, second = world.pods()
    world.bind(first, "n0")
    world.run(0.1)
    world.annotate(PODS, name_of(second), **{"kubesim.restow.dev/ready-after": "1h"})
    world.bind(second, "n1")
    world.run(0.1)
    assert (is_ready(world.get(PODS, name_of(first))), is_ready(world.get(PODS, name_of(second)))) == (
        True,
        False,
    )
    world.change(REPLICASETS, "web", replicas=1)
    assert [name_of(pod) for pod in world.alive()] == [name_of(first)]


def test_a_scale_down_heeds_the_deletion_cost(world):
    """KS-218"""
    world.create(REPLICASETS, "web", workload(replicas=3))
    world.run(0.1)
    dear = world.names()[1]
    world.annotate(PODS, dear, **{"controller.kubernetes.io/pod-deletion-cost": "100"})
    world.change(REPLICASETS, "web", replicas=1)
    assert [name_of(pod) for pod in world.alive()] == [dear]


def test_a_scale_down_thins_out_the_node_with_the_most_relatives(world):
    """KS-218"""
    world.create(REPLICASETS, "web", workload(spec=pod_spec(schedulerName="restow"), replicas=8))
    for pod, node in zip(world.pods(), ["n0"] * 7 + ["n1"], strict=True):
        world.bind(pod, node)
    world.run(0.1)
    world.change(REPLICASETS, "web", replicas=1)
    assert [pod["spec"]["nodeName"] for pod in world.alive()] == ["n1"]


def test_relatives_are_the_pods_of_all_replicasets_of_the_same_owner(world):
    """KS-218"""
    owner = {"apiVersion": "apps/v1", "kind": "Other", "name": "o", "uid": "u", "controller": True}
    for name, replicas in (("a", 8), ("b", 6)):
        spec = workload({"app": name}, spec=pod_spec(schedulerName="restow"), replicas=replicas)
        world.store.create(
            REPLICASETS, {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}, "default"
        )
    world.running.runtime.wake()
    world.run()
    pods = {kind: [p for p in world.pods() if p["metadata"]["labels"]["app"] == kind] for kind in "ab"}
    for pod, node in zip(pods["a"] + pods["b"], ["n0"] * 4 + ["n1"] * 4 + ["n1"] * 6, strict=True):
        world.bind(pod, node)
    world.run(0.1)
    world.change(REPLICASETS, "a", replicas=4)
    left = [p["spec"]["nodeName"] for p in world.alive() if p["metadata"]["labels"]["app"] == "a"]
    assert left == ["n0"] * 4


@pytest.mark.parametrize("scheduler", ["default-scheduler", "nobody"])
def test_a_scale_down_takes_the_newest_of_equal_pods(scheduler):
    """KS-218"""
    world = World(nodes=1)
    world.create(REPLICASETS, "web", workload(spec=pod_spec(schedulerName=scheduler), replicas=1))
    world.run(5)
    old = world.names()[0]
    world.change(REPLICASETS, "web", replicas=9)
    world.run(5)
    world.change(REPLICASETS, "web", replicas=1)
    assert [name_of(pod) for pod in world.alive()] == [old]


def test_a_reconcile_that_cannot_create_says_so_in_a_condition_and_tries_again(world):
    """KS-219"""
    from restow.kubesim.errors import ApiError

    create = world.store.create

    def refuse(resource, *args, **kwargs):
        if resource == PODS:
            raise ApiError(403, "Forbidden", "exceeded quota")
        return create(resource, *args, **kwargs)

    world.store.create = refuse
    world.create(REPLICASETS, "web", workload(replicas=1))
    condition = world.status(REPLICASETS, "web")["conditions"][0]
    assert (condition["type"], condition["reason"], condition["message"]) == (
        "ReplicaFailure", "FailedCreate", "exceeded quota",
    )  # fmt: skip
    world.store.create = create
    world.run(1)
    assert len(world.pods()) == 1
    assert "conditions" not in world.status(REPLICASETS, "web")


def test_a_set_that_is_being_deleted_makes_no_replacements(world):
    """KS-220"""
    world.create(REPLICASETS, "web", workload(replicas=1), finalizers=["example.com/hold"])
    world.run(0.1)
    world.delete(REPLICASETS, "web", propagation="Orphan")
    name = world.names()[0]
    world.delete(PODS, name)
    world.run(0.2)
    assert world.names() == []


def test_a_template_change_does_not_touch_existing_pods(world):
    """KS-221"""
    world.create(REPLICASETS, "web", workload(replicas=1))
    template = clone(world.get(REPLICASETS, "web")["spec"]["template"])
    template["spec"]["containers"][0]["image"] = "new"
    before = world.names()
    world.change(REPLICASETS, "web", template=template)
    world.run(0.1)
    assert world.names() == before
