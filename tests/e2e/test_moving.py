"""Pods that not every node can take: with volumes, ports, CPUs and GPUs of their own. They move only where all of it can go, and have
there what was held for them."""

from __future__ import annotations

import json

import pytest
from e2e.koordinator import (
    GPU,
    TOPOLOGIES,
    containers,
    core_of,
    cpus_of,
    exclusive,
    gpus_of,
)
from e2e.moving import Obj, moved, nothing_is_held, stays, workload
from e2e.test_volumes import HOST, Storage, using
from e2e.world import APPS, World, node_of


async def target_of(world: World, pod: Obj) -> str:
    """Where `restow migrate` would take it."""
    said = await world.restow_json("migrate", f"pod/{world.ns}/{pod['metadata']['name']}", "--dry-run")
    (move,) = next(event for event in said["events"] if "moves" in event)["moves"]
    return move["target"]


async def migrates(world: World, pod: Obj, to: str = "") -> Obj:
    """`restow migrate` to its end; the move as it was planned."""
    args = ("migrate", f"pod/{world.ns}/{pod['metadata']['name']}", *(("--to", to) if to else ()))
    said = await world.restow_json(*args)
    (move,) = next(event for event in said["events"] if "moves" in event)["moves"]
    assert [one["step"] for one in said["migrations"]] == ["landed"], said["migrations"]
    return move


async def is_refused(world: World, pod: Obj, *texts: str, to: str = "") -> None:
    """`restow migrate` says no, and all of this, once the log has seen why."""
    args = ("migrate", f"pod/{world.ns}/{pod['metadata']['name']}", *(("--to", to) if to else ()))
    seen = ""

    async def probe() -> bool:
        nonlocal seen
        seen = await refusal(world, *args, "--dry-run")
        return all(text in seen for text in texts)

    try:
        await world.until("restow migrate refuses", probe)
    except AssertionError as error:
        raise AssertionError(f"{error}\nit says: {seen}") from None
    assert await refusal(world, *args), "it is refused in earnest, too"


async def refusal(world: World, *args: str) -> str:
    """What the command says in one line where it refuses, with exit code 1 (the pod stays); empty where it does not."""
    try:
        await world.restow(*args)
    except AssertionError as error:
        said = " ".join(str(error).split())
        assert ": 1 restow: the descheduler at " in said, said
        return said
    return ""


# -- volumes -------------------------------------------------------------------------------------------------------------------


async def test_a_pod_stays_where_its_local_volume_is(world: World) -> None:
    storage = Storage(world)
    a = await world.node("a")
    kind = await storage.kind("kubernetes.io/no-provisioner")
    await storage.local("v", a, kind)
    await storage.claim("data", kind)
    (pod,) = await workload(world, "db", world.spec(**using("data")))
    await storage.bound("data")
    b = await world.node("b")
    await is_refused(world, pod, "1 node(s) didn't match PersistentVolume's node affinity")
    await is_refused(world, pod, "didn't match PersistentVolume's node affinity", to=b)
    await stays(world, pod)
    assert await world.reservations() == []


async def test_a_pod_moves_only_where_its_volume_can_follow(world: World) -> None:
    storage = Storage(world)
    a = await world.node("a")
    kind = await storage.kind("kubernetes.io/no-provisioner")
    c = f"{a.removesuffix('-a')}-c"
    rule = {"key": HOST, "operator": "In", "values": [a, c]}
    spec = {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": kind, "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": "disk.e2e.restow.dev", "volumeHandle": f"{world.ns}-rack"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
    }  # fmt: skip
    await world.make("/api/v1/persistentvolumes", {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{world.ns}-rack"}, "spec": spec})
    await storage.claim("data", kind)
    (pod,) = await workload(world, "db", world.spec(**using("data")))
    assert node_of(pod) == a
    await storage.bound("data")
    await world.node("b")
    assert await world.node("c", cpu="2") == c
    await world.until("the log has seen c", lambda: _goes_to(world, pod, c))
    assert (await migrates(world, pod))["target"] == c
    await moved(world, "db", pod, c)
    await nothing_is_held(world)


async def _goes_to(world: World, pod: Obj, node: str) -> bool:
    try:
        return await target_of(world, pod) == node
    except AssertionError:
        return False


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteOncePod"])
async def test_a_network_volume_goes_where_its_pod_goes(world: World, mode: str) -> None:
    storage = Storage(world)
    a = await world.node("a")
    kind = await storage.kind()
    await storage.claim("data", kind, accessModes=[mode])
    (pod,) = await workload(world, "db", world.spec(**using("data")))
    assert node_of(pod) == a
    volume = (await storage.bound("data"))["spec"]["volumeName"]
    b = await world.node("b")
    await world.until("the log has seen b", lambda: _goes_to(world, pod, b))
    await migrates(world, pod)
    after = await moved(world, "db", pod, b)
    assert after["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "data"}
    assert (await storage.bound("data"))["spec"]["volumeName"] == volume
    await nothing_is_held(world)


# -- ports ---------------------------------------------------------------------------------------------------------------------


async def test_a_pod_with_a_host_port_goes_where_the_port_is_free(world: World) -> None:
    a = await world.node("a")
    port = world.spec(containers=containers({"cpu": "100m"}, [8080]))
    (pod,) = await workload(world, "web", port)
    assert node_of(pod) == a
    b = await world.node("b")
    await world.api.ok("POST", f"/api/v1/namespaces/{world.ns}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": port})
    await world.lands("other", b)
    await is_refused(world, pod, "didn't have free ports for the requested pod ports")
    c = await world.node("c", cpu="1")
    await world.until("the log has seen c", lambda: _goes_to(world, pod, c))
    await is_refused(world, pod, "didn't have free ports for the requested pod ports", to=b)
    await migrates(world, pod)
    await moved(world, "web", pod, c)
    await nothing_is_held(world)


# -- CPUs ----------------------------------------------------------------------------------------------------------------------


async def with_cpus(world: World, name: str) -> str:
    """A node of 16 CPUs, two of each core. The log may not have its topology yet."""
    if world.stack.kind == "cluster" and (await world.api.call("GET", f"{TOPOLOGIES}?limit=1")).status == 404:
        pytest.skip("the cluster has no NodeResourceTopology")
    node = await world.node(name, "16", "32Gi")
    detail = [{"id": cpu, "core": core_of(cpu), "socket": core_of(cpu) // 4, "node": core_of(cpu) // 4} for cpu in range(16)]
    body = {
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": node, "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})}},
        "zones": [{"name": f"node-{i}", "type": "Node", "resources": []} for i in range(2)],
    }  # fmt: skip
    await world.make(TOPOLOGIES, body)
    return node


def own(world: World, qos: str, cpus: int, policy: str = "FullPCPUs") -> tuple[Obj, Obj]:
    """Spec, and labels and annotations."""
    said = exclusive(policy)
    said["labels"] = {"koordinator.sh/qosClass": qos}
    return world.spec(containers=containers({"cpu": str(cpus)})), said


@pytest.mark.parametrize("qos", ["LSR", "LSE"])
async def test_the_successor_has_the_cpus_that_were_held_for_it(world: World, qos: str) -> None:
    a = await with_cpus(world, "a")
    spec, said = own(world, qos, 4)
    (pod,) = await workload(world, "fast", spec, **said)
    assert node_of(pod) == a
    assert len(cpus_of(pod)) == 4
    b = await with_cpus(world, "b")
    await world.until("the log has seen b's CPUs", lambda: _goes_to(world, pod, b))
    # Somebody has the first ones there.
    near, more = own(world, qos, 4)
    (other,) = await workload(world, "near", near, **more)
    assert node_of(other) == b
    move = await migrates(world, pod)
    after = await moved(world, "fast", pod, b)
    assert cpus_of(after) == set(move["cores"])
    assert len(cpus_of(after)) == 4
    assert {core_of(cpu) for cpu in cpus_of(after)}.isdisjoint({core_of(cpu) for cpu in cpus_of(other)})
    await nothing_is_held(world)
    # The first node has them back.
    spec, said = own(world, qos, 16)
    (all_of_it,) = await workload(world, "whole", spec, **said)
    assert (node_of(all_of_it), cpus_of(all_of_it)) == (a, set(range(16)))


async def test_a_pod_with_cpus_of_its_own_stays_where_no_other_node_has_as_many(world: World) -> None:
    await with_cpus(world, "a")
    spec, said = own(world, "LSR", 4)
    (pod,) = await workload(world, "fast", spec, **said)
    # Capacity there is, and nobody knows which CPUs it has.
    await world.node("plain", "16", "32Gi")
    await is_refused(world, pod, "invalid CPU Topology")
    await stays(world, pod)


# -- GPUs ----------------------------------------------------------------------------------------------------------------------


async def test_a_share_of_a_gpu_moves_to_the_gpu_that_was_held_for_it(world: World) -> None:
    a = await world.node("a", "16", gpus=2)
    (pod,) = await workload(world, "half", world.spec(containers=containers({"cpu": "1", GPU: "50"})))
    assert node_of(pod) == a
    b = await world.node("b", "16", gpus=2)
    (other,) = await workload(world, "most", world.spec(containers=containers({"cpu": "1", GPU: "60"})))
    assert (node_of(other), list(gpus_of(other).values())) == (b, [60])
    await world.until("the log has seen b", lambda: _goes_to(world, pod, b))
    move = await migrates(world, pod)
    after = await moved(world, "half", pod, b)
    (share,) = move["devices"]
    assert gpus_of(after) == {share["index"]: 50}
    assert set(gpus_of(after)).isdisjoint(gpus_of(other)), "60 and 50 percent are more than one"
    await nothing_is_held(world)


# -- controllers at work -------------------------------------------------------------------------------------------------------


async def test_a_pod_of_a_deployment_stays_while_that_is_paused(world: World) -> None:
    a = await world.node("a")
    await world.replicaset("web", 1, "1", kind="Deployment")
    (pod,) = await world.replicas("web", 1)
    assert node_of(pod) == a
    b = await world.node("b")
    path = f"{APPS}/namespaces/{world.ns}/deployments/web"
    await world.patch(path, {"spec": {"paused": True}})
    await is_refused(world, pod, "Deployment web is paused")
    await stays(world, pod)
    await world.patch(path, {"spec": {"paused": False}})
    await world.until("the log has seen that it goes on", lambda: _goes_to(world, pod, b))
    await migrates(world, pod)
    await moved(world, "web", pod, b)
    await nothing_is_held(world)


# -- a gang as one -------------------------------------------------------------------------------------------------------------


async def test_a_gang_moves_as_one_where_it_is_said_that_it_starts_again(world: World) -> None:
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{world.ns}/podgroups"
    a = await world.node("a", "2")
    await world.make(groups, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "train"}, "spec": {"minMember": 2}})
    before = await workload(world, "train", world.spec("1"), 2, annotations={"scheduling.k8s.io/group-name": "train"})
    assert {node_of(pod) for pod in before} == {a}
    b = await world.node("b", "1")
    what = f"podgroup/{world.ns}/train"

    async def says(text: str) -> bool:
        return text in await refusal(world, "migrate", what, "--dry-run")

    await world.until("nobody says that it starts again", lambda: says("nobody says that its gang starts again"))
    await world.patch(f"{groups}/train", {"metadata": {"annotations": {"restow.dev/movable": "gang"}}})
    await world.until("one of them has no place", lambda: says("cannot be moved as one"))
    await stays(world, *before)
    c = await world.node("c", "1")
    await world.until("the log has seen c", lambda: _would_go(world, what))
    said = await world.restow_json("migrate", what)
    assert [one["step"] for one in said["migrations"]] == ["landed", "landed"], said["migrations"]
    after = await world.replicas("train", 2)
    assert {node_of(pod) for pod in after} == {b, c}
    await nothing_is_held(world)


async def _would_go(world: World, what: str) -> bool:
    return not await refusal(world, "migrate", what, "--dry-run")
