"""What Restow's rules about owners take for granted of the real controllers (`restow.domain.movable`, `restow.domain.migration.deadlines`)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from kubernetes.world import NS, World, path_of, pod_spec
from kubesim.conformance.harness import MERGE, STRATEGIC

from restow.domain.pod_controllers import REVISION

Obj = dict[str, Any]
JOBS = f"/apis/batch/v1/namespaces/{NS}/jobs"
SETS = f"/apis/apps/v1/namespaces/{NS}/statefulsets"


async def evict(world: World, pod: Obj) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"], "namespace": NS}}
    await world.api.ok("POST", path_of(pod, "/eviction"), body)


def created(pod: Obj) -> float:
    return datetime.strptime(pod["metadata"]["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


async def test_a_job_pauses_twice_as_long_after_each_failure_also_where_it_ignores_evictions(world: World) -> None:
    """So the slot of a Job's pod waits for ten minutes more than others'."""
    await world.node("n")
    template = {"metadata": {"labels": {"app": "j"}, "annotations": {"kubelets/term": "30"}}, "spec": pod_spec(restartPolicy="Never")}
    ignores = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    await world.api.ok("POST", JOBS, {"metadata": {"name": "j"}, "spec": {"backoffLimit": 0, "podFailurePolicy": ignores, "template": template}})
    pauses = []
    for _ in range(2):
        (pod,) = await world.running("j")
        await evict(world, pod)
        # Its kubelet says how it ended.
        failed = datetime.now(UTC)
        await world.api.ok("PATCH", path_of(pod, "/status"), {"status": {"phase": "Failed"}}, media=STRATEGIC)
        (again,) = await world.until(lambda gone=pod: [p for p in world.of("j") if p["metadata"]["uid"] != gone["metadata"]["uid"] and not p["metadata"].get("deletionTimestamp")], "the next one", 60)
        pauses.append(created(again) - failed.timestamp())
    print("pauses of a Job's controller, seconds:", [round(one, 1) for one in pauses])
    assert pauses[0] > 7
    assert pauses[1] > 17
    job = await world.api.ok("GET", f"{JOBS}/j")
    assert not job["status"].get("failed"), "ignored, all the same"


async def test_a_statefulset_makes_pods_on_each_side_of_its_partition_by_another_revision(world: World) -> None:
    await world.node("n")
    spec = pod_spec()
    update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await world.workload("statefulsets", "db", 3, spec, 0.2, serviceName="db", updateStrategy=update, podManagementPolicy="Parallel")
    await world.running("db", 3)
    changed = {"spec": {"template": {"spec": {"containers": [{**spec["containers"][0], "image": "other"}]}}}}
    await world.api.ok("PATCH", f"{SETS}/db", changed, media=MERGE)
    await world.until(lambda: revision(world, "db-2") != revision(world, "db-0") and len(up(world)) == 3, "db-2 is updated")
    old, new = revision(world, "db-0"), revision(world, "db-2")
    assert [await remade(world, name) for name in ("db-0", "db-2")] == [old, new]
    raised = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 3}}}}
    await world.api.ok("PATCH", f"{SETS}/db", raised, media=MERGE)
    await asyncio.sleep(2)
    assert revision(world, "db-2") == new, "nobody takes it back"
    assert await remade(world, "db-2") == old, "but it changes sides when it is evicted"


def up(world: World) -> list[Obj]:
    return [p for p in world.of("db") if p["status"].get("phase") == "Running" and not p["metadata"].get("deletionTimestamp")]


def revision(world: World, name: str) -> str:
    return next((p["metadata"]["labels"][REVISION] for p in world.of("db") if p["metadata"]["name"] == name), "")


async def remade(world: World, name: str) -> str:
    """The revision of the one that follows it."""
    pod = next(p for p in world.of("db") if p["metadata"]["name"] == name)
    await evict(world, pod)
    await world.until(lambda: [p for p in up(world) if p["metadata"]["name"] == name and p["metadata"]["uid"] != pod["metadata"]["uid"]], f"another {name}")
    return revision(world, name)
