"""Preemption as `kubectl` shows it: who goes, who lands, and that a disruption budget is kept."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from e2e.world import World, node_of, uid_of

SCHEDULER = """\
schedulerNames: [restow]
actions: "enqueue, reserve, allocate, preempt, reclaim, backfill"
"""
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@contextlib.asynccontextmanager
async def priorities(world: World) -> AsyncIterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What a pod's spec says to be of low or of high priority, while the session preempts."""
    specs = []
    for name, value in (("low", 10), ("high", 1000)):
        full = f"{world.ns}-{name}"
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": full}, "value": value}
        await world.api.ok("POST", CLASSES, body)
        world.also_remove(f"{CLASSES}/{full}")
        # Where there is no admission, nobody fills the number in; elsewhere it has to be the class's.
        specs.append({"priorityClassName": full, "priority": value, "preemptionPolicy": "PreemptLowerPriority"})
    with world.stack.configured("scheduler_session", SCHEDULER):
        yield specs[0], specs[1]


async def test_a_pod_of_high_priority_preempts_one_of_low_priority_and_lands(world: World) -> None:
    async with priorities(world) as (low, high):
        node = await world.node("a", cpu="1")
        await world.pod("low", "800m", **low)
        await world.running("low")
        await world.pod("high", "800m", **high)
        (pod,) = await world.running("high")
        assert node_of(pod) == node
        assert await world.get("low") is None
        (event, *_) = await world.events("low", "Preempted")
        assert f"Preempted by pod {world.ns}/high on node {node}" in event["message"]


async def test_the_replacement_of_a_victim_waits_and_does_not_take_the_capacity_back(world: World) -> None:
    async with priorities(world) as (low, high):
        await world.node("a", cpu="1")
        await world.replicaset("low", 1, "800m", **low)
        (before,) = await world.replicas("low", 1)
        await world.pod("high", "800m", **high)
        await world.running("high")

        async def replaced() -> Any:
            pods = await world.pods("low")
            return [pod for pod in pods if uid_of(pod) != uid_of(before) and not node_of(pod)] if len(pods) == 1 else None

        (after,) = await world.until("the victim's replacement waits", replaced)
        await world.unschedulable(after["metadata"]["name"], "Insufficient cpu")


async def test_a_budget_that_lets_nobody_go_keeps_its_pods_and_without_it_the_more_important_pod_comes(world: World) -> None:
    """A budget at zero is a veto (RULES G-11): nobody waits for a victim that the API would not evict."""
    async with priorities(world) as (low, high):
        node = await world.node("a", cpu="1")
        await world.replicaset("low", 1, "800m", **low)
        (victim,) = await world.replicas("low", 1)
        await world.budget("keep", {"app": "low"}, minAvailable=1)

        await world.pod("high", "800m", **high)
        await world.unschedulable("high", "Insufficient cpu")
        there, waits = await world.get(victim["metadata"]["name"]), await world.get("high")
        assert there is not None
        assert waits is not None
        assert not there["metadata"].get("deletionTimestamp")
        assert not waits["status"].get("nominatedNodeName")
        await world.remove(f"/apis/policy/v1/namespaces/{world.ns}/poddisruptionbudgets/keep")
        (pod,) = await world.running("high")
        assert node_of(pod) == node


async def test_without_a_lower_priority_nobody_goes(world: World) -> None:
    async with priorities(world) as (low, _):
        await world.node("a", cpu="1")
        before = await world.pod("first", "800m", **low)
        await world.running("first")
        await world.pod("second", "800m", **low)
        await world.unschedulable("second")
        after = await world.get("first")
        assert after is not None
        assert uid_of(after) == uid_of(before)


@pytest.mark.simulated("an eviction that is forbidden for good")
async def test_when_a_victim_may_never_be_evicted_another_one_goes(world: World) -> None:
    async with priorities(world) as (low, high):
        await world.node("a", cpu="1")
        await world.pod("first", "400m", **low)
        await world.running("first")
        await world.pod("second", "400m", **low)
        await world.running("second")
        before = await world.get("second")
        await world.fault("status", verb="create", resource="pods/eviction", name="second", count=-1, code=403)
        await world.pod("high", "400m", **high)
        await world.running("high")
        assert await world.get("first") is None
        after = await world.get("second")
        assert before is not None
        assert after is not None
        assert uid_of(after) == uid_of(before)


async def test_a_gang_takes_capacity_for_all_of_it_or_for_none(world: World) -> None:
    async with priorities(world) as (low, high):
        await world.node("a", cpu="2")
        await world.replicaset("low", 2, "900m", **low)
        await world.replicas("low", 2)
        await gang(world, "three", 3, high)

        async def waits() -> bool:
            pods = [await world.get(f"three-{i}") for i in range(3)]
            return all(any(c["type"] == "PodScheduled" for c in (pod or {}).get("status", {}).get("conditions") or ()) for pod in pods)

        await world.until("the gang that is too large is told so", waits)
        assert len(await world.replicas("low", 2)) == 2
        for i in range(3):
            await world.remove(f"/api/v1/namespaces/{world.ns}/pods/three-{i}", grace=0)
        await gang(world, "two", 2, high)
        await world.running("two-0", "two-1")


async def gang(world: World, name: str, size: int, spec: dict[str, Any]) -> None:
    path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{world.ns}/podgroups"
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"minMember": size, "queue": "default"},
    }  # fmt: skip
    await world.api.ok("POST", path, group)
    for i in range(size):
        body = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"{name}-{i}", "annotations": {"scheduling.k8s.io/group-name": name}},
            "spec": world.spec("900m", **spec),
        }  # fmt: skip
        await world.api.ok("POST", f"/api/v1/namespaces/{world.ns}/pods", body)
