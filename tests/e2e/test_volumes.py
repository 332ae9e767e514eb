"""Claims and volumes: which nodes they leave, what a placement gives them, and what happens when that fails."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.puppet_volumes import FAIL_ON, PROVISIONER, SELECTED_NODE
from e2e.world import TAG, World, node_of

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
STORAGE = "/apis/storage.k8s.io/v1"
WAIT = "WaitForFirstConsumer"
OWNED = {"restow.dev/owner": "job"}
Obj = dict[str, Any]


class Storage:
    """Classes, volumes and claims of one test; all of them go with it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.claims = f"/api/v1/namespaces/{world.ns}/persistentvolumeclaims"

    async def kind(self, provisioner: str = PROVISIONER, mode: str = WAIT, **parameters: str) -> str:
        """A StorageClass; its name."""
        name = f"{self.world.ns}-{mode.lower()}"
        body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, "parameters": parameters}
        await self.world.make(f"{STORAGE}/storageclasses", {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"} | body)
        return name

    async def local(self, name: str, node: str, kind: str, size: str = "1Gi", **labels: str) -> str:
        """A local volume of this node; "" for one that every node reaches."""
        full = f"{self.world.ns}-{name}"
        rule = {"key": HOST, "operator": "In", "values": [node]}
        spec: Obj = {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": kind,
            "persistentVolumeReclaimPolicy": "Retain",
        }  # fmt: skip
        if node:
            spec["local"] = {"path": f"/mnt/{name}"}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
        else:
            spec["csi"] = {"driver": PROVISIONER, "volumeHandle": full}
        meta = {"name": full, "labels": labels}
        await self.world.make("/api/v1/persistentvolumes", {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec})
        return full

    async def claim(self, name: str, kind: str, size: str = "1Gi", **spec: Any) -> None:
        asked = {"accessModes": ["ReadWriteOnce"], "storageClassName": kind, "resources": {"requests": {"storage": size}}}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": asked | spec}
        await self.world.make(self.claims, body)

    async def bound(self, name: str) -> Obj:
        """The claim, once its status says that it is bound."""

        async def probe() -> Obj | None:
            there = await self.world.api.ok("GET", f"{self.claims}/{name}")
            return there if (there.get("status") or {}).get("phase") == "Bound" else None

        return await self.world.until(f"claim {name} is bound", probe)

    async def pod(self, name: str, *claims: str, cpu: str = "100m", **more: Any) -> None:
        await self.world.pod(name, cpu, **using(*claims), **more)


def using(*claims: str) -> Obj:
    """A part of a pod's spec."""
    return {"volumes": [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]}


def rather_on(node: str) -> Obj:
    rule = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    chosen = [{"weight": 100, "preference": rule}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": chosen}}


# -- provisioning --------------------------------------------------------------------------------------------------------


async def test_a_claim_that_waits_for_its_consumer_gets_a_volume_where_the_pod_fits(world: World) -> None:
    storage = Storage(world)
    await world.node("small", cpu="1")
    large = await world.node("large")
    kind = await storage.kind()
    for name in ("data", "logs"):
        await storage.claim(name, kind)
    await storage.pod("p", "data", "logs", cpu="2")
    await world.lands("p", large)
    for name in ("data", "logs"):
        claim = await storage.bound(name)
        assert claim["metadata"]["annotations"][SELECTED_NODE] == large
        volume = await world.api.ok("GET", f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
        assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert (await world.events("p", "Scheduled"))[0]["message"] == f"Successfully assigned {world.ns}/p to {large}"


async def test_where_no_volume_can_be_made_the_pod_is_placed_elsewhere(world: World) -> None:
    storage = Storage(world)
    bad = await world.node("bad")
    good = await world.node("good")
    kind = await storage.kind(**{FAIL_ON: bad})
    await storage.claim("data", kind)
    await storage.pod("p", "data", affinity=rather_on(bad))
    await world.lands("p", good)
    assert (await storage.bound("data"))["metadata"]["annotations"][SELECTED_NODE] == good


async def test_where_no_volume_can_be_made_anywhere_the_pod_waits_for_a_node(world: World) -> None:
    storage = Storage(world)
    bad = [await world.node("bad"), await world.node("worse")]
    kind = await storage.kind(**{FAIL_ON: ",".join(bad)})
    await storage.claim("data", kind)
    await storage.pod("p", "data")
    await world.waits("p", "2 node(s) didn't find available persistent volumes to bind")
    await world.lands("p", await world.node("good"))


async def test_a_claim_that_is_bound_at_once_is_waited_for(world: World) -> None:
    storage = Storage(world)
    a = await world.node("a")
    kind = await storage.kind("kubernetes.io/no-provisioner", "Immediate")
    await storage.claim("data", kind)
    await storage.pod("p", "data")
    await world.waits("p", "nodes are available: pod has unbound immediate PersistentVolumeClaims.", undetermined=True)
    await storage.local("v", a, kind)
    await world.lands("p", a)


# -- what is there already --------------------------------------------------------------------------------------------------


async def test_a_pod_goes_where_a_local_volume_is_and_waits_where_none_is_left(world: World) -> None:
    storage = Storage(world)
    a = await world.node("a")
    b = await world.node("b", cpu="2")
    kind = await storage.kind("kubernetes.io/no-provisioner")
    volume = await storage.local("b", b, kind)
    await storage.claim("c0", kind)
    await storage.claim("c1", kind)
    await storage.pod("p0", "c0")
    await world.lands("p0", b)
    assert (await storage.bound("c0"))["spec"]["volumeName"] == volume
    await storage.pod("p1", "c1")
    await world.waits("p1", "2 node(s) didn't find available persistent volumes to bind")
    await storage.local("tiny", b, kind, "100Mi")
    await world.pod("later", "3", **using("c0"))
    await world.waits("later", "1 Insufficient cpu", "1 node(s) didn't match PersistentVolume's node affinity")
    assert not node_of(await world.get("p1") or {"spec": {}}), "a volume that is too small serves nobody"
    volume = await storage.local("a", a, kind, "2Gi")
    await world.lands("p1", a)
    assert (await storage.bound("c1"))["spec"]["volumeName"] == volume


async def test_of_the_volumes_that_fit_the_smallest_is_taken(world: World) -> None:
    storage = Storage(world)
    a = await world.node("a")
    kind = await storage.kind("kubernetes.io/no-provisioner")
    for name, size in (("large", "9Gi"), ("right", "3Gi"), ("small", "1Gi")):
        await storage.local(name, a, kind, size)
    # Pods and volumes are watched apart. Who has one that was made after them finds all of them known.
    await storage.local("last", a, kind, "20Gi")
    await storage.claim("c0", kind, "10Gi")
    await storage.pod("p0", "c0")
    await world.lands("p0", a)
    await storage.claim("c", kind, "2Gi")
    await storage.pod("p", "c")
    await world.lands("p", a)
    assert (await storage.bound("c"))["spec"]["volumeName"] == f"{world.ns}-right"


async def test_a_bound_volume_keeps_its_pods_in_its_zone(world: World) -> None:
    storage = Storage(world)
    east = await world.node("east", cpu="1", labels={ZONE: f"{world.ns}-east"})
    await world.node("west", labels={ZONE: f"{world.ns}-west"})
    kind = await storage.kind("kubernetes.io/no-provisioner", "Immediate")
    await storage.local("v", "", kind, **{ZONE: f"{world.ns}-east"})
    await storage.claim("c", kind)
    await storage.bound("c")
    await storage.pod("p", "c")
    await world.lands("p", east)
    await storage.pod("large", "c", cpu="2")
    await world.waits("large", "1 Insufficient cpu", "1 node(s) had no available volume zone")


async def test_a_node_takes_no_more_volumes_than_its_driver_attaches(world: World) -> None:
    storage = Storage(world)
    a = await world.node("a")
    csinodes = f"{STORAGE}/csinodes"
    driver = {"name": PROVISIONER, "nodeID": a, "topologyKeys": None, "allocatable": {"count": 1}}
    await world.make(csinodes, {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": a}, "spec": {"drivers": [driver]}})
    kind = await storage.kind()
    for i in range(2):
        await storage.claim(f"c{i}", kind)
    await storage.pod("p0", "c0")
    await world.lands("p0", a)
    await storage.pod("p1", "c1")
    await world.waits("p1", "1 node(s) exceed max volume count")
    # The same volume again is no other one.
    await storage.pod("p2", "c0")
    await world.lands("p2", a)
    for name in ("p0", "p2"):
        await world.remove(f"/api/v1/namespaces/{world.ns}/pods/{name}", grace=0)
    await world.lands("p1", a)


async def test_a_claim_of_one_pod_alone_is_waited_for_until_that_pod_is_gone(world: World) -> None:
    storage = Storage(world)
    nodes = [await world.node("a"), await world.node("b")]
    await storage.claim("c", await storage.kind(), accessModes=["ReadWriteOncePod"])
    await storage.pod("first", "c")
    await world.running("first")
    await storage.pod("second", "c")
    await world.waits("second", "2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod")
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/first", grace=0)
    (pod,) = await world.running("second")
    assert node_of(pod) in nodes


async def test_a_pod_waits_for_a_claim_that_does_not_exist_yet(world: World) -> None:
    storage = Storage(world)
    a = await world.node("a")
    await storage.pod("early", "data")
    await world.waits("early", 'nodes are available: persistentvolumeclaim "data" not found.', undetermined=True)
    await storage.claim("data", await storage.kind())
    await world.lands("early", a)


# -- holds ------------------------------------------------------------------------------------------------------------------


async def test_an_owner_with_a_claim_takes_the_hold_and_its_volume_is_made_there(world: World) -> None:
    storage = Storage(world)
    a = await world.node("a", cpu="1")
    await world.reservation("r", {"t": (1, world.spec("800m"))}, owners=[{"labelSelector": {"matchLabels": OWNED}}])
    await world.held("r", "Available")
    await storage.claim("data", await storage.kind())
    await storage.pod("stranger", cpu="800m")
    await world.waits("stranger", "1 Insufficient cpu")
    await world.node("b", labels={"late": "yes"})
    await world.running("stranger")
    await storage.pod("owner", "data", cpu="800m", labels=OWNED)
    pod = await world.lands("owner", a)
    assert (await storage.bound("data"))["metadata"]["annotations"][SELECTED_NODE] == a
    status = await world.held("r", "Succeeded")
    assert status["currentOwner"]["uid"] == pod["metadata"]["uid"]


async def test_an_owner_takes_the_place_where_its_local_volume_is(world: World) -> None:
    storage = Storage(world)
    nodes = [await world.node(name, cpu="1") for name in "abc"]
    kind = await storage.kind("kubernetes.io/no-provisioner")
    await world.reservation("r", {"t": (3, world.spec("800m"))}, owners=[{"labelSelector": {"matchLabels": OWNED}}])
    await world.held("r", "Available")
    await storage.claim("data", kind)
    await storage.pod("owner", "data", cpu="800m", labels=OWNED)
    await world.waits("owner", "3 Insufficient cpu")
    volume = await storage.local("v", nodes[1], kind)
    await world.lands("owner", nodes[1])
    assert (await storage.bound("data"))["spec"]["volumeName"] == volume


@pytest.mark.parametrize("gone", ["claim", "volume"])
async def test_what_a_pod_counts_on_may_go_and_come_again_while_it_waits(world: World, gone: str) -> None:
    storage = Storage(world)
    await world.node("a")
    b = await world.node("b", labels={"disk": "fast"})
    kind = await storage.kind("kubernetes.io/no-provisioner")
    await storage.local("v", b, kind)
    await storage.claim("data", kind)
    await storage.pod("p", "data", nodeSelector={TAG: world.ns, "disk": "slow"})
    await world.waits("p", "2 node(s) didn't match Pod's node affinity/selector")
    if gone == "claim":
        await world.remove(f"{storage.claims}/data")
        await world.patch(f"/api/v1/nodes/{b}", {"metadata": {"labels": {"disk": "slow"}}})
        await world.waits("p", 'persistentvolumeclaim "data" not found', undetermined=True)
        await storage.claim("data", kind)
    else:
        await world.remove(f"/api/v1/persistentvolumes/{world.ns}-v")
        await world.patch(f"/api/v1/nodes/{b}", {"metadata": {"labels": {"disk": "slow"}}})
        await storage.local("again", b, kind)
    await world.lands("p", b)
