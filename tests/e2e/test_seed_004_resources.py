"""Seed 004, "Tests": NodeResources and NodePorts, bullet by bullet, on the machine with 16000m CPU and 32 GiB that it states.

Pods that own nothing fill the machine but for the hold, so that who runs can only have its capacity from there."""

from __future__ import annotations

import pytest
from e2e.koordinator import (
    available,
    end,
    fill,
    machine,
    owner,
    pod,
    release,
    reserve,
    settled,
    still_waits,
    took_nothing,
)
from e2e.world import World

SHORT = "1 Insufficient cpu"
TAKEN_PORT = "1 node(s) didn't have free ports for the requested pod ports"
BOTH = {"cpu": "4000m", "memory": "4Gi"}
CPU = {"cpu": "4000m"}
REST = {"cpu": "12", "memory": "28Gi"}
"""What the machine has besides a hold of BOTH."""


# -- NodeResources -------------------------------------------------------------------------------------------------------


async def test_reservation_reserved_4000m_cpu_and_4gi_memory__owner_pod_has_same_resource_requirements(world: World) -> None:
    node = await machine(world)
    await reserve(world, "r", BOTH)
    assert await available(world, "r", BOTH) == node
    await fill(world, "rest", node, REST)
    await pod(world, "stranger", BOTH)
    await world.waits("stranger", SHORT)
    await owner(world, "owner", BOTH)
    await world.lands("owner", node)
    await settled(world, "r", "Succeeded", ["owner"], BOTH)
    # Once only: the next owner is as any other pod.
    await owner(world, "next", BOTH)
    await world.waits("next", SHORT)
    await still_waits(world, "stranger")


async def test_reservation_reserved_4000m_cpu_and_4gi_memory__owner_pod_requests_4000m_cpu(world: World) -> None:
    """What the owner does not use of a hold that is allocated once is the node's again: the memory."""
    node = await machine(world)
    await reserve(world, "r", BOTH)
    await available(world, "r", BOTH)
    await fill(world, "rest", node, REST)
    await pod(world, "memory", {"memory": "4Gi"})
    await world.waits("memory", "1 Insufficient memory")
    await owner(world, "owner", CPU)
    await world.lands("owner", node)
    await settled(world, "r", "Succeeded", ["owner"], CPU)
    await world.lands("memory", node)
    await took_nothing(world, "memory")


async def test_reservation_reserved_4000m_cpu_and_4gi_memory__owner_pod_requests_4000m_cpu_and_1gi_memory(world: World) -> None:
    node = await machine(world)
    await reserve(world, "r", BOTH)
    await available(world, "r", BOTH)
    await fill(world, "rest", node, REST)
    await pod(world, "three", {"memory": "3Gi"})
    await world.waits("three", "1 Insufficient memory")
    asked = {"cpu": "4000m", "memory": "1Gi"}
    await owner(world, "owner", asked)
    await world.lands("owner", node)
    await settled(world, "r", "Succeeded", ["owner"], asked)
    await world.lands("three", node)
    await pod(world, "more", {"memory": "1Mi"})
    await world.waits("more", "1 Insufficient memory")


async def test_reservation_reserved_4000m_cpu__owner_pod_requests_4000m_cpu_and_1gi_memory(world: World) -> None:
    """The memory is the node's to give, or not."""
    node = await machine(world)
    await reserve(world, "r", CPU)
    await available(world, "r", CPU)
    await fill(world, "cores", node, {"cpu": "12"})
    await fill(world, "memory", node, {"memory": "32Gi"})
    await owner(world, "owner", {"cpu": "4000m", "memory": "1Gi"})
    await world.waits("owner", "1 Insufficient memory")
    await available(world, "r", CPU)
    await end(world, "memory")
    await world.lands("owner", node)
    await settled(world, "r", "Succeeded", ["owner"], CPU)


async def test_reservation_reserved_4000m_cpu__owner_pod_requests_6000m_cpu(world: World) -> None:
    """RULES 004-4: it is scheduled, the rest from the node."""
    node = await machine(world)
    await reserve(world, "r", CPU)
    await available(world, "r", CPU)
    await fill(world, "rest", node, {"cpu": "10"})
    await fill(world, "extra", node, {"cpu": "1"})
    await owner(world, "owner", {"cpu": "6000m"})
    await world.waits("owner", SHORT)
    await available(world, "r", CPU)
    await end(world, "extra")
    await world.lands("owner", node)
    await settled(world, "r", "Succeeded", ["owner"], CPU)
    await pod(world, "stranger", {"cpu": "1m"})
    await world.waits("stranger", SHORT)


async def test_reservation_reserved_8000m_cpu_and_disable_allocate_once__two_owner_pods_each_requests_4000m_cpu(world: World) -> None:
    node = await machine(world)
    await reserve(world, "r", {"cpu": "8000m"}, once=False)
    await available(world, "r", {"cpu": "8000m"})
    await fill(world, "rest", node, {"cpu": "8"})
    await pod(world, "stranger", CPU)
    await world.waits("stranger", SHORT)
    await owner(world, "one", CPU)
    await world.lands("one", node)
    await settled(world, "r", "Available", ["one"], CPU)
    await owner(world, "two", CPU)
    await world.lands("two", node)
    await settled(world, "r", "Available", ["one", "two"], {"cpu": "8000m"})
    await owner(world, "three", CPU)
    await world.waits("three", SHORT)
    # What an owner used comes back to the hold, not to the node.
    await end(world, "one")
    await world.lands("three", node)
    await settled(world, "r", "Available", ["two", "three"], {"cpu": "8000m"})
    await end(world, "two", "three")
    await settled(world, "r", "Available", [], {})
    await still_waits(world, "stranger")


async def test_reservation_reserved_6000m_cpu_and_disable_allocate_once__two_owner_pods_each_requests_4000m_cpu(world: World) -> None:
    """RULES 004-4: both are scheduled, 2000m of the second from the node."""
    node = await machine(world)
    await reserve(world, "r", {"cpu": "6000m"}, once=False)
    await available(world, "r", {"cpu": "6000m"})
    await fill(world, "rest", node, {"cpu": "8"})
    await owner(world, "one", CPU)
    await world.lands("one", node)
    await settled(world, "r", "Available", ["one"], CPU)
    await owner(world, "two", CPU)
    await world.lands("two", node)
    await settled(world, "r", "Available", ["one", "two"], {"cpu": "6000m"})
    await pod(world, "large", {"cpu": "2001m"})
    await world.waits("large", SHORT)
    # Half of the second's cores come back to the hold, half to the node.
    await end(world, "two")
    await settled(world, "r", "Available", ["one"], CPU)
    await pod(world, "small", {"cpu": "2000m"})
    await world.lands("small", node)
    await still_waits(world, "large")


async def test_reservation_reserved_4000m_cpu__non_owner_pod_requests_4000m_cpu(world: World) -> None:
    node = await machine(world)
    await reserve(world, "r", CPU)
    await available(world, "r", CPU)
    await fill(world, "rest", node, {"cpu": "12"})
    await pod(world, "stranger", CPU)
    await world.waits("stranger", SHORT)
    await available(world, "r", CPU)
    await release(world, "r")
    await world.lands("stranger", node)
    await took_nothing(world, "stranger")


async def test_reservation_reserved_4000m_cpu__owner_pod_requests_2000m_cpu_and_non_owner_pod_requests_2000m_cpu(world: World) -> None:
    node = await machine(world)
    await reserve(world, "r", CPU)
    await available(world, "r", CPU)
    await fill(world, "rest", node, {"cpu": "12"})
    await pod(world, "stranger", {"cpu": "2000m"})
    await world.waits("stranger", SHORT)
    await owner(world, "owner", {"cpu": "2000m"})
    await world.lands("owner", node)
    await settled(world, "r", "Succeeded", ["owner"], {"cpu": "2000m"})
    await world.lands("stranger", node)
    await took_nothing(world, "stranger")


# -- NodePorts -----------------------------------------------------------------------------------------------------------

PORTS = (7777, 8888, 9999)
SMALL = {"cpu": "100m"}


async def test_reservation_reserved_three_ports_7777_8888_9999__owner_pod_a_requests_port_7777_and_owner_pod_b_requests_port_8888(
    world: World,
) -> None:
    node = await machine(world)
    await reserve(world, "r", CPU, ports=PORTS, once=False)
    await available(world, "r", CPU)
    await owner(world, "a", SMALL, ports=[7777])
    await world.lands("a", node)
    await owner(world, "b", SMALL, ports=[8888])
    await world.lands("b", node)
    await settled(world, "r", "Available", ["a", "b"], {"cpu": "200m"})
    # A port is released to one owner, and to nobody else.
    await owner(world, "again", SMALL, ports=[7777])
    await world.waits("again", TAKEN_PORT)
    await pod(world, "stranger", SMALL, ports=[9999])
    await world.waits("stranger", TAKEN_PORT)
    await end(world, "a")
    await world.lands("again", node)
    await settled(world, "r", "Available", ["again", "b"], {"cpu": "200m"})
    await still_waits(world, "stranger")


@pytest.mark.parametrize("jobs", ["ab", "xx"], ids=["each-owns-one", "both-own-both"])
@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_reservation_a_reserved_port_7777__reservation_b_reserved_port_8888__owner_pod_a_requests_port_7777_and_owner_pod_b_requests_port_8888(
    world: World, order: str, jobs: str
) -> None:
    """Where both pods own both Reservations, each uses the one that has its port: the other's stays reserved until its owner
    comes, whoever comes first."""
    node = await machine(world)
    port = {"a": 7777, "b": 8888}
    job = {name: {"restow.dev/owner": f"job-{it}"} for name, it in zip("ab", jobs, strict=True)}
    for name in "ab":
        await reserve(world, name, CPU, ports=[port[name]], owners=[{"labelSelector": {"matchLabels": job[name]}}])
        assert await available(world, name, CPU) == node
    await fill(world, "rest", node, {"cpu": "8"})
    if jobs == "ab":
        await pod(world, "wrong", CPU, ports=[8888], labels=job["a"])
        await world.waits("wrong", TAKEN_PORT)
        await available(world, "a", CPU)
        await end(world, "wrong")
    first, second = order
    await pod(world, first, CPU, ports=[port[first]], labels=job[first])
    await world.lands(first, node)
    await settled(world, first, "Succeeded", [first], CPU)
    await pod(world, "thief", SMALL, ports=[port[second]])
    await world.waits("thief", TAKEN_PORT)
    await available(world, second, CPU)
    await pod(world, second, CPU, ports=[port[second]], labels=job[second])
    await world.lands(second, node)
    await settled(world, second, "Succeeded", [second], CPU)
    await still_waits(world, "thief")


async def test_reservation_reserved_three_ports_7777_8888_9999__non_owner_pod_requests_port_7777(world: World) -> None:
    node = await machine(world)
    await reserve(world, "r", CPU, ports=PORTS)
    await available(world, "r", CPU)
    await pod(world, "stranger", SMALL, ports=[7777])
    await world.waits("stranger", TAKEN_PORT)
    await pod(world, "other", SMALL, ports=[6666])
    await world.lands("other", node)
    # There is a machine whose port is free.
    late = await machine(world, "b")
    await world.lands("stranger", late)
    await pod(world, "second", SMALL, ports=[7777])
    await world.waits("second", "2" + TAKEN_PORT[1:])
    await release(world, "r")
    await world.lands("second", node)
