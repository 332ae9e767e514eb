"""Seed 004, "Tests": NUMANodeResources and DeviceShare, bullet by bullet.

The CPUs and GPUs that a hold has are in its status. Pods that own nothing use all the others: they never get one of those."""

from __future__ import annotations

from e2e.koordinator import (
    GPU,
    available,
    core_of,
    cpus_running,
    end,
    fill,
    gpus_of,
    listed,
    machine,
    owner,
    percents,
    pod,
    reserve,
    settled,
    sixteen_cpus,
    status_of,
    still_waits,
)
from e2e.koordinator import exclusive as lsr
from e2e.world import World

CPU = {"cpu": "4"}
SHORT = "1 Insufficient cpu"
FULL, SPREAD = "FullPCPUs", "SpreadByPCPUs"
ALL = set(range(16))


# -- NUMANodeResources ---------------------------------------------------------------------------------------------------


async def hold_four(world: World, policy: str, *, once: bool, rest: tuple[int, ...]) -> tuple[str, set[int]]:
    """Four CPUs are held and all the others are used, by pods `rest0`, `rest1`, … with so many each; the node and what is held."""
    node = await sixteen_cpus(world)
    said = lsr(policy)
    await reserve(world, "r", CPU, once=once, **said)
    assert await available(world, "r", CPU) == node
    for i, count in enumerate(rest):
        await fill(world, f"rest{i}", node, {"cpu": str(count)}, **said)
    taken = await cpus_running(world, *(f"rest{i}" for i in range(len(rest))))
    assert len(taken) == sum(rest) == 12
    held = listed((await status_of(world, "r"))["cpuset"])
    assert held == ALL - taken
    return node, held


async def lsr_owner(world: World, name: str, count: int, policy: str) -> None:
    said = lsr(policy)
    await owner(world, name, {"cpu": str(count)}, labels=said["labels"], annotations=said["annotations"])


async def test_reservation_reserved_4_cores__owner_pod_has_same_requests(world: World) -> None:
    node, held = await hold_four(world, FULL, once=True, rest=(10, 2))
    assert len({core_of(cpu) for cpu in held}) == 2
    await pod(world, "stranger", CPU, **lsr(FULL))
    await world.waits("stranger", SHORT)
    await lsr_owner(world, "owner", 4, FULL)
    await world.lands("owner", node)
    await settled(world, "r", "Succeeded", ["owner"], CPU)
    assert await cpus_running(world, "owner") == held
    await still_waits(world, "stranger")
    await end(world, "owner")
    await world.lands("stranger", node)
    assert await cpus_running(world, "stranger") == held


async def test_reservation_reserved_4_cores__owner_pod_requests_6_cores(world: World) -> None:
    """The hold's four, and two of the node."""
    node, held = await hold_four(world, FULL, once=True, rest=(10, 2))
    two = await cpus_running(world, "rest1")
    await lsr_owner(world, "owner", 6, FULL)
    await world.waits("owner", SHORT)
    await available(world, "r", CPU)
    await end(world, "rest1")
    await world.lands("owner", node)
    await settled(world, "r", "Succeeded", ["owner"], CPU)
    assert await cpus_running(world, "owner") == held | two


async def test_reservation_reserved_4_cores_disable_allocate_once__two_owner_pods_each_request_2_cores(world: World) -> None:
    node, held = await hold_four(world, FULL, once=False, rest=(10, 2))
    await pod(world, "stranger", {"cpu": "2"}, **lsr(FULL))
    await world.waits("stranger", SHORT)
    for name in ("one", "two"):
        await lsr_owner(world, name, 2, FULL)
        await world.lands(name, node)
    await settled(world, "r", "Available", ["one", "two"], CPU)
    assert await cpus_running(world, "one", "two") == held
    await lsr_owner(world, "three", 2, FULL)
    await world.waits("three", SHORT)
    # The CPUs of an owner that ends are the hold's again.
    two = await cpus_running(world, "two")
    await end(world, "one")
    await world.lands("three", node)
    assert await cpus_running(world, "three") == held - two
    await settled(world, "r", "Available", ["two", "three"], CPU)
    await still_waits(world, "stranger")


async def test_reservation_reserved_4_cores_disable_allocate_once__two_owner_pods_each_request_3_cores(world: World) -> None:
    """The second has the hold's last one, and two of the node."""
    node, held = await hold_four(world, SPREAD, once=False, rest=(10, 2))
    two = await cpus_running(world, "rest1")
    await lsr_owner(world, "one", 3, SPREAD)
    await world.lands("one", node)
    await settled(world, "r", "Available", ["one"], {"cpu": "3"})
    first = await cpus_running(world, "one")
    assert first < held
    await lsr_owner(world, "two", 3, SPREAD)
    await world.waits("two", SHORT)
    await end(world, "rest1")
    await world.lands("two", node)
    await settled(world, "r", "Available", ["one", "two"], CPU)
    assert await cpus_running(world, "two") == held - first | two
    # The two come back to the node, the one to the hold: a pod that does not own it gets those alone.
    await end(world, "two")
    await fill(world, "stranger", node, {"cpu": "2"}, **lsr(SPREAD))
    assert await cpus_running(world, "stranger") == two
    await pod(world, "late", {"cpu": "1"}, **lsr(SPREAD))
    await world.waits("late", SHORT)
    await lsr_owner(world, "three", 1, SPREAD)
    await world.lands("three", node)
    assert await cpus_running(world, "three") == held - first
    await still_waits(world, "late")


# -- DeviceShare -----------------------------------------------------------------------------------------------------------

ONE = {GPU: "100"}
NO_GPU = "1 Insufficient gpu"


async def gpus(world: World, name: str) -> dict[int, int]:
    """Device → percent, of a pod that runs."""
    (there,) = await world.running(name)
    return gpus_of(there)


async def hold_gpu(world: World, *, once: bool) -> tuple[str, int, int]:
    """One GPU of the machine's two is held, a pod (`rest`) uses the other: the node, and the device held and used."""
    node = await machine(world, gpus=2)
    await reserve(world, "r", ONE, once=once)
    assert await available(world, "r", ONE) == node
    await fill(world, "rest", node, ONE)
    used = await gpus(world, "rest")
    assert list(used.values()) == [100]
    (minor,) = used
    assert percents((await status_of(world, "r"))["devices"]) == {1 - minor: 100}
    return node, 1 - minor, minor


async def test_reservation_reserved_one_gpu_instance__owner_pod_has_same_requests(world: World) -> None:
    node, held, _ = await hold_gpu(world, once=True)
    await pod(world, "stranger", {GPU: "1"})
    await world.waits("stranger", NO_GPU)
    await pod(world, "whole", {"nvidia.com/gpu": "1"})
    await world.waits("whole", NO_GPU)
    await owner(world, "owner", ONE)
    await world.lands("owner", node)
    assert await gpus(world, "owner") == {held: 100}
    await settled(world, "r", "Succeeded", ["owner"], ONE)
    await still_waits(world, "stranger", "whole")


async def test_reservation_reserved_one_gpu_instance__two_owner_pods_each_request_50_percent_gpu_resources(world: World) -> None:
    node, held, _ = await hold_gpu(world, once=False)
    for name in ("one", "two"):
        await pod(world, f"not-{name}", {GPU: "50"})
        await world.waits(f"not-{name}", NO_GPU)
        await owner(world, name, {GPU: "50"})
        await world.lands(name, node)
        assert await gpus(world, name) == {held: 50}
    await settled(world, "r", "Available", ["one", "two"], ONE)
    await owner(world, "three", {GPU: "50"})
    await world.waits("three", NO_GPU)
    await end(world, "two")
    await world.lands("three", node)
    assert await gpus(world, "three") == {held: 50}
    await settled(world, "r", "Available", ["one", "three"], ONE)
    await still_waits(world, "not-one", "not-two")


async def test_reservation_reserved_one_gpu_instance__one_owner_pod_requests_60_percent_gpu_resources_another_one_owner_pod_requests_50_percent_gpu_resources(
    world: World,
) -> None:
    """RULES 004-4: what is left of the held GPU and the rest of another one are no 50 % of a GPU."""
    node, held, other = await hold_gpu(world, once=False)
    await owner(world, "sixty", {GPU: "60"})
    await world.lands("sixty", node)
    assert await gpus(world, "sixty") == {held: 60}
    await owner(world, "fifty", {GPU: "50"})
    await world.waits("fifty", NO_GPU)
    await settled(world, "r", "Available", ["sixty"], {GPU: "60"})
    await end(world, "rest")
    await world.lands("fifty", node)
    assert await gpus(world, "fifty") == {other: 50}
    # The 40 % that are left of the held one are still for owners alone.
    await fill(world, "half", node, {GPU: "50"})
    assert await gpus(world, "half") == {other: 50}
    await pod(world, "stranger", {GPU: "40"})
    await world.waits("stranger", NO_GPU)
    await owner(world, "forty", {GPU: "40"})
    await world.lands("forty", node)
    assert await gpus(world, "forty") == {held: 40}
    await settled(world, "r", "Available", ["sixty", "forty"], ONE)
    await still_waits(world, "stranger")
