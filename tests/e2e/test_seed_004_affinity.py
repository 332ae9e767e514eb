"""Seed 004, "Tests": InterPodAffinity and PodTopologySpread, bullet by bullet.

A held slot is to other pods as a pod with the template's labels; to the pods that own it, it is not there (RULES 004-4)."""

from __future__ import annotations

from e2e.koordinator import (
    HOST,
    OWNER,
    available,
    containers,
    end,
    fill,
    machine,
    owner,
    owners_of,
    pod,
    release,
    reserve,
    settled,
    took_nothing,
)
from e2e.test_rules import apart, near, spread, term
from e2e.world import World, node_of

CPU = {"cpu": "4000m"}
TWICE = {"cpu": "8000m"}
RING = {"app": "ring"}
SOLO = {"app": "solo"}
NEAR_DB = near(term({"app": "db"}))
TOGETHER = near(term(RING))
ALONE = apart(term(SOLO))
NO_COMPANY = "node(s) didn't match pod affinity rules"
AVOIDS = "node(s) didn't match pod anti-affinity rules"
AVOIDED = "node(s) didn't satisfy existing pods anti-affinity rules"
SHORT = "1 Insufficient cpu"


# -- InterPodAffinity ------------------------------------------------------------------------------------------------------


async def test_reservation_reserved_with_pod_affinity__owner_pod_has_same_pod_affinity(world: World) -> None:
    a = await machine(world)
    await machine(world, "b")
    await fill(world, "db", a, {"cpu": "12"}, labels={"app": "db"})
    await reserve(world, "r", CPU, template={"affinity": NEAR_DB})
    assert await available(world, "r", CPU) == a
    await owner(world, "owner", CPU, affinity=NEAR_DB)
    await world.lands("owner", a)
    await settled(world, "r", "Succeeded", ["owner"], CPU)
    # The next one finds no hold there any more.
    await owner(world, "next", CPU, affinity=NEAR_DB)
    await world.waits("next", SHORT, f"1 {NO_COMPANY}")


async def test_reservation_reserved_with_pod_affinity__multiple_owner_pods_have_same_pod_affinity(world: World) -> None:
    """Pods that need each other: to the first of them the hold is no company, and it needs none."""
    nodes = {await machine(world), await machine(world, "b")}
    await reserve(world, "r", TWICE, labels=RING, once=False, template={"affinity": TOGETHER})
    node = await available(world, "r", TWICE)
    await fill(world, "rest", node, {"cpu": "8"})
    assert node in nodes
    for name in ("one", "two"):
        await owner(world, name, CPU, labels=RING, affinity=TOGETHER)
        await world.lands(name, node)
    await settled(world, "r", "Available", ["one", "two"], TWICE)
    await owner(world, "three", CPU, labels=RING, affinity=TOGETHER)
    await world.waits("three", SHORT, f"1 {NO_COMPANY}")
    await end(world, "one")
    await world.lands("three", node)
    await settled(world, "r", "Available", ["two", "three"], TWICE)


async def test_reservation_reserved_with_pod_anti_affinity__owner_pod_has_same_pod_anti_affinity(world: World) -> None:
    a = await machine(world)
    await reserve(world, "r", CPU, labels=SOLO, template={"affinity": ALONE})
    assert await available(world, "r", CPU) == a
    await owner(world, "owner", CPU, labels=SOLO, affinity=ALONE)
    await world.lands("owner", a)
    await settled(world, "r", "Succeeded", ["owner"], CPU)
    # The owner itself keeps the next one away, as every pod does.
    await owner(world, "next", CPU, labels=SOLO, affinity=ALONE)
    await world.waits("next", f"1 {AVOIDS}")


async def test_reservation_reserved_with_pod_anti_affinity__multiple_owner_pods_have_the_same_pod_anti_affinity(world: World) -> None:
    """There is capacity for both in the hold, but they avoid each other: the second runs elsewhere, with nothing of the hold."""
    nodes = {await machine(world), await machine(world, "b")}
    await reserve(world, "r", TWICE, labels=SOLO, once=False, template={"affinity": ALONE})
    held = await available(world, "r", TWICE)
    (other,) = nodes - {held}
    await owner(world, "one", CPU, labels=SOLO, affinity=ALONE)
    await world.lands("one", held)
    await owner(world, "two", CPU, labels=SOLO, affinity=ALONE)
    await world.lands("two", other)
    await took_nothing(world, "two")
    await owner(world, "three", CPU, labels=SOLO, affinity=ALONE)
    await world.waits("three", f"2 {AVOIDS}")
    await settled(world, "r", "Available", ["one"], CPU)
    await end(world, "one")
    await world.lands("three", held)
    await settled(world, "r", "Available", ["three"], CPU)


async def test_reservation_reserved_with_pod_affinity__non_owner_pod_has_same_pod_affinity(world: World) -> None:
    a = await machine(world)
    b = await machine(world, "b")
    await fill(world, "db", a, {"cpu": "10"}, labels={"app": "db"})
    await reserve(world, "r", CPU, labels=RING, template={"affinity": NEAR_DB})
    assert await available(world, "r", CPU) == a
    # Of four cores it could only have two that are not held.
    await pod(world, "stranger", CPU, affinity=NEAR_DB)
    await world.waits("stranger", SHORT, f"1 {NO_COMPANY}")
    await pod(world, "small", {"cpu": "1"}, affinity=NEAR_DB)
    await world.lands("small", a)
    # The hold is company for who needs such pods.
    await pod(world, "follower", {"cpu": "1"}, affinity=TOGETHER)
    await world.lands("follower", a)
    await available(world, "r", CPU)
    await fill(world, "db2", b, {"cpu": "1"}, labels={"app": "db"})
    await world.lands("stranger", b)
    await took_nothing(world, "stranger", "small", "follower")


async def test_reservation_reserved_with_pod_anti_affinity__non_owner_pod_has_same_pod_anti_affinity(world: World) -> None:
    a = await machine(world)
    await reserve(world, "r", CPU, labels=SOLO, template={"affinity": ALONE})
    assert await available(world, "r", CPU) == a
    await pod(world, "stranger", CPU, labels=SOLO, affinity=ALONE)
    await world.waits("stranger", f"1 {AVOIDS}")
    # Who avoids nobody is avoided; who has other labels is not.
    await pod(world, "plain", CPU, labels=SOLO)
    await world.waits("plain", f"1 {AVOIDED}")
    await pod(world, "other", CPU)
    await world.lands("other", a)
    await available(world, "r", CPU)
    b = await machine(world, "b")
    await world.until("one of the two runs on the other machine", lambda: _any_on(world, b, "stranger", "plain"))
    await release(world, "r")
    await world.running("stranger", "plain")


async def _any_on(world: World, node: str, *names: str) -> bool:
    return node in [node_of(await world.get(name) or {"spec": {}}) for name in names]


# -- PodTopologySpread -----------------------------------------------------------------------------------------------------


async def test_reservation_reserved_with_do_not_schedule_topology_spread_policy__multiple_owner_pods_equal_to_the_number_of_nodes_use_the_same_spread_strategy(
    world: World,
) -> None:
    """Four pods, two nodes, maxSkew 1, and a hold as large as one of them: two on each node, and one of them has the hold."""
    nodes = [await machine(world), await machine(world, "b")]
    rule = spread(HOST, {"app": "web"})
    await reserve(world, "r", CPU, labels={"app": "web"}, once=False, template={"topologySpreadConstraints": rule})
    held = await available(world, "r", CPU)
    (other,) = set(nodes) - {held}
    # To a pod that does not own it the hold is one of the pods that are spread, wherever there is more capacity.
    await fill(world, "bulk", other, {"cpu": "8"})
    await pod(world, "stranger", CPU, labels={"app": "web"}, topologySpreadConstraints=rule)
    await world.lands("stranger", other)
    await took_nothing(world, "stranger")
    await end(world, "stranger", "bulk")
    await world.replicaset("web", 4, labels=OWNER, containers=containers(CPU), topologySpreadConstraints=rule)
    pods = await world.replicas("web", 4)
    assert sorted(map(node_of, pods)) == sorted(nodes * 2)
    (using,) = await owners_of(world, "r", 1)
    await settled(world, "r", "Available", [using], CPU)
    await took_nothing(world, *({one["metadata"]["name"] for one in pods} - {using}))
