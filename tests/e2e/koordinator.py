"""Seed 004 as `kubectl` shows it: its machine, Koordinator's Reservations, pods that may use them, and what each says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest
from e2e.world import KOORDINATOR, TAG, Obj, World, node_of, uid_of

OWNER = {"restow.dev/owner": "job"}
"""Labels of pods that may use a test's Reservations."""
OWNERS = [{"labelSelector": {"matchLabels": OWNER}}]
HOST = "kubernetes.io/hostname"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
DEVICES = "scheduling.koordinator.sh/device-allocated"
CPUS = "scheduling.koordinator.sh/resource-status"
TAKEN = "scheduling.koordinator.sh/reservation-allocated"
GPU = "koordinator.sh/gpu"
NATIVE = ("cpu", "memory")
SUFFIX = {"m": Fraction(1, 1000), "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


async def machine(world: World, name: str = "a", **more: Any) -> str:
    """Seed 004: "on the 16000m CPU and 32G Memory machine"; its full name."""
    return await world.node(name, "16", "32Gi", **more)


def containers(asked: Obj, ports: Iterable[int] = ()) -> list[Obj]:
    """One container with these requests. Extended resources must have limits, which are their requests."""
    resources: Obj = {"requests": asked}
    if extended := {name: amount for name, amount in asked.items() if name not in NATIVE}:
        resources["limits"] = extended
    said: Obj = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    if listening := [{"containerPort": port, "hostPort": port, "protocol": "TCP"} for port in ports]:
        said["ports"] = listening
    return [said]


def at(world: World, node: str) -> Obj:
    """Pins a pod to a node, by what its spec says alone."""
    return {"nodeSelector": {TAG: world.ns, HOST: node}}


# -- pods ----------------------------------------------------------------------------------------------------------------


async def pod(
    world: World, name: str, asked: Obj, *, labels: Obj | None = None, annotations: Obj | None = None,
    ports: Iterable[int] = (), **spec: Any,
) -> Obj:  # fmt: skip
    """A pod that owns nothing, if its labels are not OWNER."""
    body = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": world.spec(containers=containers(asked, ports), **spec),
    }  # fmt: skip
    return await world.api.ok("POST", f"/api/v1/namespaces/{world.ns}/pods", body)


async def owner(world: World, name: str, asked: Obj, *, labels: Obj | None = None, **more: Any) -> Obj:
    return await pod(world, name, asked, labels=OWNER | (labels or {}), **more)


async def fill(world: World, name: str, node: str, asked: Obj, **more: Any) -> Obj:
    """A pod that owns nothing and uses capacity of this node, once it runs there."""
    await pod(world, name, asked, **more, **at(world, node))
    return await world.lands(name, node)


async def end(world: World, *names: str) -> None:
    for name in names:
        await world.remove(f"/api/v1/namespaces/{world.ns}/pods/{name}", grace=0)


async def still_waits(world: World, *names: str) -> None:
    """None of these has got a node in the meantime."""
    for name in names:
        there = await world.get(name)
        assert there is not None, name
        assert not node_of(there), name


# -- Reservations --------------------------------------------------------------------------------------------------------


def named(world: World, name: str) -> str:
    """They have no namespace: the test's is in the name."""
    return f"e2e-{world.ns}-{name}"


async def reserve(
    world: World, name: str, asked: Obj, *, labels: Obj | None = None, annotations: Obj | None = None,
    ports: Iterable[int] = (), owners: Any = OWNERS, once: bool = True, template: Obj | None = None,
) -> None:  # fmt: skip
    """A Reservation of what such a pod in the test's namespace would ask for; `template` is more of its spec. allocateOnce is
    said only where it is not the default."""
    metadata = {"namespace": world.ns, "labels": labels or {}, "annotations": annotations or {}}
    spec: Obj = {
        "template": {"metadata": metadata, "spec": world.spec(containers=containers(asked, ports), **(template or {}))},
        "owners": owners, "ttl": "1h",
    }  # fmt: skip
    if not once:
        spec["allocateOnce"] = False
    body = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation",
        "metadata": {"name": named(world, name)}, "spec": spec,
    }  # fmt: skip
    await world.make(KOORDINATOR, body)


async def status_of(world: World, name: str) -> Obj:
    return (await world.api.ok("GET", f"{KOORDINATOR}/{named(world, name)}")).get("status") or {}


async def release(world: World, name: str) -> None:
    await world.remove(f"{KOORDINATOR}/{named(world, name)}")


async def available(world: World, name: str, asked: Obj) -> str:
    """Its node, once it is Available; it holds all that is asked for, and nobody has anything of it."""
    said = await settled(world, name, "Available", {}, {})
    assert amounts(said["allocatable"]) == amounts(asked), said
    conditions = {c["type"]: (c["status"], c["reason"]) for c in said["conditions"]}
    assert conditions == {"Scheduled": ("True", "Scheduled"), "Ready": ("True", "Available")}, said
    return said["nodeName"]


async def settled(world: World, name: str, phase: str, owners: Iterable[str], allocated: Obj) -> Obj:
    """The status, once the phase is this and these pods of the test have so much of it; each of them says so itself."""
    wanted, seen = set(owners), {}
    path = f"{KOORDINATOR}/{named(world, name)}"

    async def probe() -> bool:
        said = (await world.api.ok("GET", path)).get("status") or {}
        seen.clear()
        seen.update(said)
        using = [one["name"] for one in said.get("currentOwners") or ()]
        return (
            said.get("phase") == phase and len(using) == len(wanted) and set(using) == wanted
            and amounts(said.get("allocated")) == amounts(allocated)
        )  # fmt: skip

    try:
        await world.until(f"Reservation {name} is {phase} and {sorted(wanted)} have {allocated} of it", probe)
    except AssertionError as error:
        raise AssertionError(f"{error}\nits status: {json.dumps(seen)}") from None
    found = await world.api.ok("GET", path)
    for one in seen.get("currentOwners") or ():
        using = await world.get(one["name"])
        assert using is not None, one
        assert (one["namespace"], one["uid"]) == (world.ns, uid_of(using)), one
        assert node_of(using) == seen["nodeName"], (node_of(using), seen)
        said = using["metadata"].get("annotations", {}).get(TAKEN, "null")
        assert json.loads(said) == {"name": found["metadata"]["name"], "uid": uid_of(found)}, (one["name"], said)
    return seen


async def owners_of(world: World, name: str, count: int) -> list[str]:
    """The names of those that use it, once they are so many."""

    async def probe() -> list[str] | None:
        using = [one["name"] for one in (await status_of(world, name)).get("currentOwners") or ()]
        return using if len(using) == count else None

    try:
        return await world.until(f"Reservation {name} has {count} owners", probe)
    except AssertionError as error:
        raise AssertionError(f"{error}\nits status: {json.dumps(await status_of(world, name))}") from None


async def took_nothing(world: World, *names: str) -> None:
    """These run, on capacity that no Reservation held."""
    for one in await world.running(*names):
        assert TAKEN not in one["metadata"].get("annotations", {}), one["metadata"]


def amounts(said: Obj | None) -> dict[str, Fraction]:
    """Quantities as numbers, without zeros: "4" is "4000m"."""
    found = {name: _amount(str(text)) for name, text in (said or {}).items()}
    return {name: amount for name, amount in found.items() if amount}


def _amount(text: str) -> Fraction:
    parts = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    assert parts is not None, text
    return Fraction(parts[1]) * SUFFIX[parts[2]]


# -- CPUs and devices ----------------------------------------------------------------------------------------------------


def exclusive(policy: str) -> Obj:
    """Labels and annotations of a pod (QoS class LSR) that has CPUs of its own."""
    spec = json.dumps({"preferredCPUBindPolicy": policy})
    return {
        "labels": {"koordinator.sh/qosClass": "LSR"},
        "annotations": {"scheduling.koordinator.sh/resource-spec": spec},
    }


def core_of(cpu: int) -> int:
    """CPUs n and n + 8 of the machine are one physical core."""
    return cpu % 8


async def sixteen_cpus(world: World) -> str:
    """The machine with 8 physical cores in two NUMA zones, once the scheduler knows them. Where a cluster serves no
    NodeResourceTopology the test is of no use."""
    if world.stack.kind == "cluster" and (await world.api.call("GET", f"{TOPOLOGIES}?limit=1")).status == 404:
        pytest.skip("the cluster has no NodeResourceTopology")
    node = await machine(world)
    detail = [{"id": cpu, "core": core_of(cpu), "socket": core_of(cpu) // 4, "node": core_of(cpu) // 4} for cpu in range(16)]
    zones = [
        {"name": f"node-{i}", "type": "Node", "resources": [
            {"name": "cpu", "capacity": "8", "allocatable": "8", "available": "8"},
            {"name": "memory", "capacity": "16Gi", "allocatable": "16Gi", "available": "16Gi"},
        ]} for i in range(2)
    ]  # fmt: skip
    body = {
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "zones": zones,
        "metadata": {"name": node, "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})}},
    }  # fmt: skip
    await world.make(TOPOLOGIES, body)

    async def known() -> bool:
        await pod(world, "probe", {"cpu": "16"}, **exclusive("FullPCPUs"))
        there = await world.lands("probe", node)
        await end(world, "probe")
        return CPUS in there["metadata"].get("annotations", {})

    await world.until("the scheduler knows the node's CPUs", known)
    return node


def cpus_of(of: Obj) -> set[int]:
    """The CPUs of its own that a pod's annotation says."""
    return listed(json.loads(of["metadata"]["annotations"][CPUS])["cpuset"])


def listed(cpuset: str) -> set[int]:
    """The numbers in `0-3,8`."""
    found: set[int] = set()
    for part in cpuset.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


async def cpus_running(world: World, *names: str) -> set[int]:
    """The CPUs of these pods, once they run; no two have one in common."""
    sets = [cpus_of(one) for one in await world.running(*names)]
    found = set().union(*sets)
    assert len(found) == sum(map(len, sets)), sets
    return found


def gpus_of(of: Obj) -> dict[int, int]:
    """Minor number of a device → percent of it, as a pod's annotation says."""
    return percents(json.loads(of["metadata"]["annotations"][DEVICES]))


def percents(said: Obj) -> dict[int, int]:
    """The same, of what Koordinator says of devices: on a pod, and in a Reservation's status."""
    return {one["minor"]: int(one["resources"]["koordinator.sh/gpu-core"]) for one in said["gpu"]}
