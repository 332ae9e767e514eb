"""KS-230..247: Deployments."""

from __future__ import annotations

import pytest
from kubesim.simworld import World, condition, deleting, name_of, phase, pod_spec, workload

from restow.kubesim.objects import clone, controller_of
from restow.kubesim.resources import DEPLOYMENTS, PODS, REPLICASETS
from restow.kubesim.workloads import rollout

REVISION = "deployment.kubernetes.io/revision"


@pytest.fixture
def world() -> World:
    return World(nodes=4)


def sets(world: World) -> list[dict]:
    """Oldest revision first."""
    found = world.store.list(REPLICASETS, "default")
    return sorted(found, key=lambda s: int(s["metadata"]["annotations"][REVISION]))


def sizes(world: World) -> list[int]:
    return [s["spec"]["replicas"] for s in sets(world)]


def set_image(world: World, image: str) -> None:
    template = clone(world.get(DEPLOYMENTS, "web")["spec"]["template"])
    template["spec"]["containers"][0]["image"] = image
    world.change(DEPLOYMENTS, "web", template=template)


def deploy(world: World, replicas: int = 4, *, settle: bool = True, **more) -> None:
    world.create(DEPLOYMENTS, "web", workload(replicas=replicas, **more))
    if settle:
        world.run(1)


def rolling(surge, unavailable) -> dict:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def test_it_makes_one_replicaset_named_and_labelled_by_the_templates_hash(world):
    """KS-230"""
    deploy(world, 2)
    (only,) = sets(world)
    digest = only["metadata"]["labels"]["pod-template-hash"]
    assert name_of(only) == f"web-{digest}"
    assert only["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": digest}
    assert controller_of(only)["name"] == "web"
    assert all(pod["metadata"]["labels"]["pod-template-hash"] == digest for pod in world.pods())


def test_revisions_count_up_and_the_deployment_wears_the_newest(world):
    """KS-231"""
    deploy(world, 1)
    set_image(world, "new")
    world.run(1)
    assert [s["metadata"]["annotations"][REVISION] for s in sets(world)] == ["1", "2"]
    assert world.get(DEPLOYMENTS, "web")["metadata"]["annotations"][REVISION] == "2"


def test_going_back_to_an_old_template_reuses_its_replicaset_with_a_new_revision(world):
    """KS-232"""
    deploy(world, 1)
    first = name_of(sets(world)[0])
    set_image(world, "new")
    world.run(1)
    set_image(world, "i")
    world.run(1)
    assert len(sets(world)) == 2
    assert (name_of(sets(world)[-1]), sizes(world)) == (first, [0, 1])
    assert world.get(DEPLOYMENTS, "web")["metadata"]["annotations"][REVISION] == "3"


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas"),
    [(1, 0, 4), (0, 1, 4), ("25%", "25%", 8), ("100%", 0, 3), (2, 3, 10)],
)
def test_a_rolling_update_stays_within_surge_and_unavailable(world, surge, unavailable, replicas):
    """KS-233"""
    deploy(world, replicas, strategy=rolling(surge, unavailable))
    deployment = world.get(DEPLOYMENTS, "web")
    extra, missing = rollout.bounds(deployment)
    most, least = 0, replicas

    def watch(change) -> None:
        nonlocal most, least
        if change.resource == PODS:
            alive = world.alive()
            most = max(most, len(alive))
            ready = sum((s.get("status") or {}).get("availableReplicas", 0) for s in sets(world))
            least = min(least, ready)

    world.store.subscribe(watch)
    set_image(world, "new")
    world.run(5)
    assert sizes(world) == [0, replicas]
    assert most <= replicas + extra
    assert least >= replicas - missing


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "bounds"),
    [("25%", "25%", 10, (3, 2)), ("25%", "25%", 1, (1, 0)), (0, 0, 3, (0, 1)), ("0%", "10%", 5, (0, 1))],
)
def test_surge_rounds_up_unavailable_down_and_both_are_never_zero(surge, unavailable, replicas, bounds):
    """KS-234"""
    spec = {"replicas": replicas, "strategy": rolling(surge, unavailable)}
    assert rollout.bounds({"spec": spec}) == bounds


def test_a_rollout_that_cannot_become_ready_keeps_the_old_pods(world):
    """KS-235"""
    deploy(world, 4, strategy=rolling(1, 0))
    template = clone(world.get(DEPLOYMENTS, "web")["spec"]["template"])
    template["metadata"]["annotations"] = {"kubesim.restow.dev/ready-after": "24h"}
    world.change(DEPLOYMENTS, "web", template=template)
    world.run(5)
    assert sizes(world) == [4, 1]


def test_recreate_starts_no_new_pod_before_the_last_old_one_is_gone(world):
    """KS-236"""
    deploy(world, 2, strategy={"type": "Recreate"})
    old = set(world.names())
    for name in old:
        world.annotate(PODS, name, **{"kubesim.restow.dev/stop-after": "3s"})
    set_image(world, "new")
    world.run(2)
    assert set(world.names()) == old
    assert all(deleting(pod) for pod in world.pods())
    world.run(3)
    assert len(world.pods()) == 2
    assert not old & set(world.names())


def test_scaling_does_not_make_a_new_revision(world):
    """KS-237"""
    deploy(world, 2)
    world.change(DEPLOYMENTS, "web", replicas=5)
    world.run(1)
    assert (sizes(world), len(world.alive())) == ([5], 5)
    world.change(DEPLOYMENTS, "web", replicas=0)
    world.run(1)
    assert (sizes(world), world.pods()) == ([0], [])


def test_scaling_in_the_middle_of_a_rollout_is_spread_in_proportion(world):
    """KS-238"""
    deploy(world, 10, strategy=rolling(3, 2))
    template = clone(world.get(DEPLOYMENTS, "web")["spec"]["template"])
    template["metadata"]["annotations"] = {"kubesim.restow.dev/ready-after": "24h"}
    world.change(DEPLOYMENTS, "web", template=template)
    world.run(5)
    assert sizes(world) == [8, 5]
    world.change(DEPLOYMENTS, "web", replicas=15)
    world.run(5)
    assert sizes(world) == [11, 7]


def test_a_paused_deployment_scales_but_does_not_roll(world):
    """KS-239"""
    deploy(world, 2)
    world.change(DEPLOYMENTS, "web", paused=True)
    set_image(world, "new")
    world.change(DEPLOYMENTS, "web", replicas=3)
    world.run(1)
    assert sizes(world) == [3]
    assert condition(world.get(DEPLOYMENTS, "web"), "Progressing")["reason"] == "DeploymentPaused"
    world.change(DEPLOYMENTS, "web", paused=None)
    world.run(2)
    assert sizes(world) == [0, 3]


def test_old_replicasets_beyond_the_history_limit_are_deleted(world):
    """KS-240"""
    deploy(world, 1, revisionHistoryLimit=1)
    for image in ("b", "c", "d"):
        set_image(world, image)
        world.run(2)
    assert [s["metadata"]["annotations"][REVISION] for s in sets(world)] == ["3", "4"]


def test_the_status_of_a_complete_deployment(world):
    """KS-241"""
    deploy(world, 3)
    status = world.status(DEPLOYMENTS, "web")
    counts = {k: v for k, v in status.items() if k.endswith("eplicas")}
    assert counts == {"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3}
    live = world.get(DEPLOYMENTS, "web")
    assert status["observedGeneration"] == live["metadata"]["generation"]
    assert condition(live, "Available")["reason"] == "MinimumReplicasAvailable"
    assert condition(live, "Progressing")["reason"] == "NewReplicaSetAvailable"


def test_the_status_while_pods_are_not_ready(world):
    """KS-242"""
    deploy(world, 3, spec=pod_spec(schedulerName="nobody"))
    live = world.get(DEPLOYMENTS, "web")
    assert live["status"]["unavailableReplicas"] == 3
    assert condition(live, "Available")["status"] == "False"
    assert condition(live, "Progressing")["status"] == "True"


def test_no_progress_within_the_deadline_fails_the_progressing_condition(world):
    """KS-243"""
    deploy(world, 1, spec=pod_spec(schedulerName="nobody"), progressDeadlineSeconds=60)
    world.run(50)
    assert condition(world.get(DEPLOYMENTS, "web"), "Progressing")["status"] == "True"
    world.run(20)
    assert condition(world.get(DEPLOYMENTS, "web"), "Progressing")["reason"] == "ProgressDeadlineExceeded"


def test_an_evicted_pod_is_replaced_through_the_same_replicaset(world):
    """KS-244"""
    deploy(world, 2)
    gone = world.names()[0]
    world.delete(PODS, gone)
    assert len(world.alive()) == 2
    world.run(1)
    assert gone not in world.names()
    assert (sizes(world), [phase(pod) for pod in world.pods()]) == ([2], ["Running", "Running"])


def test_it_adopts_a_matching_replicaset_without_an_owner(world):
    """KS-245"""
    world.create(REPLICASETS, "old", workload(replicas=2), labels={"app": "web"}, annotations={REVISION: "1"})
    deploy(world, 2)
    old = world.get(REPLICASETS, "old")
    assert controller_of(old)["name"] == "web"
    assert len(sets(world)) == 1


def test_annotations_of_the_deployment_go_to_the_replicaset_but_not_the_last_applied_one(world):
    """KS-246"""
    meta = {"annotations": {"team": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}
    world.create(DEPLOYMENTS, "web", workload(replicas=1), **meta)
    annotations = sets(world)[0]["metadata"]["annotations"]
    assert annotations["team"] == "a"
    assert "kubectl.kubernetes.io/last-applied-configuration" not in annotations
