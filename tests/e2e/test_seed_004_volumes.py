"""Seed 004, "Tests": VolumeRestrictions and NodeVolumeLimits, bullet by bullet."""

from __future__ import annotations

from e2e.koordinator import available, end, machine, owner, pod, reserve, settled, still_waits, took_nothing
from e2e.puppet_volumes import PROVISIONER, SELECTED_NODE
from e2e.test_volumes import STORAGE, Storage, using
from e2e.world import World

CPU = {"cpu": "4000m"}
SMALL = {"cpu": "100m"}


async def test_reservation_reserved_with_pvc_access_mode_is_read_write_once_pod__owner_pod_has_the_same_pvc(world: World) -> None:
    node = await machine(world)
    storage = Storage(world)
    await storage.claim("c", await storage.kind(), accessModes=["ReadWriteOncePod"])
    await reserve(world, "r", CPU, template=using("c"))
    assert await available(world, "r", CPU) == node
    await pod(world, "stranger", SMALL, **using("c"))
    said = "1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    await world.waits("stranger", said)
    await owner(world, "owner", CPU, **using("c"))
    await world.lands("owner", node)
    await settled(world, "r", "Succeeded", ["owner"], CPU)
    claim = await storage.bound("c")
    assert claim["metadata"]["annotations"][SELECTED_NODE] == node
    await still_waits(world, "stranger")
    await end(world, "owner")
    await world.lands("stranger", node)
    await took_nothing(world, "stranger")


async def test_reservation_reserved_with_dynamic_provisioning_volume__owner_pod_has_same_pvc(world: World) -> None:
    """The hold makes no volume, but keeps one of those that the node's driver can attach ("Unsolved Problems")."""
    node = await machine(world)
    storage = Storage(world)
    driver = {"name": PROVISIONER, "nodeID": node, "topologyKeys": None, "allocatable": {"count": 1}}
    csinode = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node}, "spec": {"drivers": [driver]}}
    await world.make(f"{STORAGE}/csinodes", csinode)
    kind = await storage.kind()
    for name in ("data", "other"):
        await storage.claim(name, kind)
    await reserve(world, "r", CPU, template=using("data"))
    assert await available(world, "r", CPU) == node
    await pod(world, "stranger", SMALL, **using("other"))
    await world.waits("stranger", "1 node(s) exceed max volume count")
    claim = await world.api.ok("GET", f"{storage.claims}/data")
    assert not claim["spec"].get("volumeName")
    assert SELECTED_NODE not in claim["metadata"].get("annotations", {})
    await owner(world, "owner", CPU, **using("data"))
    await world.lands("owner", node)
    assert (await storage.bound("data"))["metadata"]["annotations"][SELECTED_NODE] == node
    await settled(world, "r", "Succeeded", ["owner"], CPU)
    await still_waits(world, "stranger")
    await end(world, "owner")
    await world.lands("stranger", node)
