"""KS-250..264: StatefulSets."""

from __future__ import annotations

import pytest
from kubesim.simworld import World, deleting, is_ready, phase, pod_spec, workload

from restow.kubesim.objects import clone
from restow.kubesim.resources import CONTROLLERREVISIONS, PERSISTENTVOLUMECLAIMS, PODS, STATEFULSETS

LABELS = {"app": "db"}
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.fixture
def world() -> World:
    return World(nodes=2)


def make(world: World, replicas: int = 3, *, settle: bool = True, **more) -> None:
    world.create(STATEFULSETS, "db", workload(LABELS, replicas=replicas, serviceName="db", **more))
    if settle:
        world.run(1)


def set_image(world: World, image: str) -> None:
    template = clone(world.get(STATEFULSETS, "db")["spec"]["template"])
    template["spec"]["containers"][0]["image"] = image
    world.change(STATEFULSETS, "db", template=template)


def images(world: World) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in world.pods()]


def test_pods_have_ordinal_names_and_are_made_one_after_the_other_is_ready(world):
    """KS-250"""
    order: list[tuple[str, int]] = []

    def watch(change) -> None:
        if change.resource == PODS and change.type == "ADDED":
            order.append((change.new["metadata"]["name"], sum(is_ready(pod) for pod in world.pods())))

    world.store.subscribe(watch)
    make(world)
    assert order == [("db-0", 0), ("db-1", 1), ("db-2", 2)]


def test_parallel_makes_all_pods_at_once(world):
    """KS-251"""
    make(world, podManagementPolicy="Parallel", settle=False)
    assert world.names() == ["db-0", "db-1", "db-2"]


def test_pods_wear_their_index_their_name_and_the_revision(world):
    """KS-252"""
    make(world, 1)
    labels = world.get(PODS, "db-0")["metadata"]["labels"]
    assert labels["apps.kubernetes.io/pod-index"] == "0"
    assert labels["statefulset.kubernetes.io/pod-name"] == "db-0"
    assert labels["controller-revision-hash"] == world.status(STATEFULSETS, "db")["updateRevision"]
    spec = world.get(PODS, "db-0")["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("db-0", "db")


def test_a_pod_comes_again_under_its_name_only_when_the_old_one_is_gone(world):
    """KS-253"""
    make(world, 1)
    world.annotate(PODS, "db-0", **{"kubesim.restow.dev/stop-after": "5s"})
    before = world.get(PODS, "db-0")["metadata"]["uid"]
    world.delete(PODS, "db-0")
    world.run(4)
    assert [deleting(pod) for pod in world.pods()] == [True]
    world.run(2)
    (pod,) = world.pods()
    assert (pod["metadata"]["name"], pod["metadata"]["uid"] != before, deleting(pod)) == ("db-0", True, False)


def test_a_failed_pod_is_deleted_and_made_again(world):
    """KS-254"""
    make(world, 1)
    before = world.get(PODS, "db-0")["metadata"]["uid"]
    world.annotate(PODS, "db-0", **{"kubesim.restow.dev/fail-after": "1ms"})
    world.run(1)
    assert world.get(PODS, "db-0")["metadata"]["uid"] != before
    assert phase(world.get(PODS, "db-0")) == "Running"


def test_claims_are_made_from_the_templates_bound_and_kept(world):
    """KS-255"""
    make(world, 2, volumeClaimTemplates=[CLAIM])
    claims = world.store.list(PERSISTENTVOLUMECLAIMS, "default")
    assert [claim["metadata"]["name"] for claim in claims] == ["data-db-0", "data-db-1"]
    assert all(claim["status"]["phase"] == "Bound" for claim in claims)
    volume = world.get(PODS, "db-1")["spec"]["volumes"][0]
    assert volume["persistentVolumeClaim"]["claimName"] == "data-db-1"
    world.change(STATEFULSETS, "db", replicas=0)
    world.run(1)
    assert len(world.store.list(PERSISTENTVOLUMECLAIMS, "default")) == 2


def test_a_claim_without_a_class_is_bound_at_once(world):
    """KS-256"""
    world.create(PERSISTENTVOLUMECLAIMS, "mine", clone(CLAIM["spec"]))
    assert world.status(PERSISTENTVOLUMECLAIMS, "mine")["phase"] == "Bound"
    assert world.get(PERSISTENTVOLUMECLAIMS, "mine")["spec"]["storageClassName"] == "standard"


def test_a_scale_down_goes_from_the_highest_ordinal_one_at_a_time(world):
    """KS-257"""
    make(world, 3)
    gone: list[str] = []
    most = 0

    def watch(change) -> None:
        nonlocal most
        if change.resource == PODS and change.new is not None and deleting(change.new):
            most = max(most, sum(deleting(pod) for pod in world.pods()))
            if change.new["metadata"]["name"] not in gone:
                gone.append(change.new["metadata"]["name"])

    world.store.subscribe(watch)
    world.change(STATEFULSETS, "db", replicas=1)
    world.run(1)
    assert (gone, world.names(), most) == (["db-2", "db-1"], ["db-0"], 1)


def test_a_rolling_update_goes_from_the_highest_ordinal_and_waits_for_ready(world):
    """KS-258"""
    make(world, 3)
    order: list[tuple[str, int]] = []

    def watch(change) -> None:
        if change.resource == PODS and change.type == "ADDED":
            order.append((change.new["metadata"]["name"], sum(is_ready(pod) for pod in world.pods())))

    world.store.subscribe(watch)
    set_image(world, "new")
    world.run(2)
    assert order == [("db-2", 2), ("db-1", 2), ("db-0", 2)]
    assert images(world) == ["new"] * 3
    status = world.status(STATEFULSETS, "db")
    assert status["currentRevision"] == status["updateRevision"]


def test_pods_below_the_partition_keep_and_come_back_with_the_old_template(world):
    """KS-259"""
    make(world, 3, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    set_image(world, "new")
    world.run(2)
    assert images(world) == ["i", "i", "new"]
    world.delete(PODS, "db-0")
    world.run(1)
    assert images(world) == ["i", "i", "new"]


def test_on_delete_updates_a_pod_only_when_somebody_deletes_it(world):
    """KS-260"""
    make(world, 2, updateStrategy={"type": "OnDelete"})
    set_image(world, "new")
    world.run(1)
    assert images(world) == ["i", "i"]
    world.delete(PODS, "db-1")
    world.run(1)
    assert images(world) == ["i", "new"]


def test_the_status_counts_and_names_the_revisions(world):
    """KS-261"""
    make(world, 2)
    status = world.status(STATEFULSETS, "db")
    revision = status["updateRevision"]
    assert status == {
        "observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2,
        "availableReplicas": 2, "currentRevision": revision, "updateRevision": revision, "collisionCount": 0,
    }  # fmt: skip
    assert world.find(CONTROLLERREVISIONS, revision)["revision"] == 1


def test_ordinals_may_start_elsewhere(world):
    """KS-262"""
    make(world, 2, ordinals={"start": 5})
    assert world.names() == ["db-5", "db-6"]


def test_min_ready_seconds_delay_the_next_pod(world):
    """KS-263"""
    make(world, 2, minReadySeconds=5)
    assert world.names() == ["db-0"]
    world.run(6)
    assert world.names() == ["db-0", "db-1"]


def test_an_unready_pod_holds_up_ordered_creation(world):
    """KS-250"""
    make(world, 2, spec=pod_spec(schedulerName="nobody"))
    world.run(60)
    assert world.names() == ["db-0"]
