"""Preemption as `kubectl` shows it: who goes, who lands, and that a disruption budget is kept."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

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


async def test_the_replacement_of_a_victim_waits_and_does_not_take_the_room_back(world: World) -> None:
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
        assert "Insufficient cpu" in await world.unschedulable(after["metadata"]["name"])


async def test_a_pod_waits_for_its_victims_room_and_says_where(world: World) -> None:
    async with priorities(world) as (low, high):
        node = await world.node("a", cpu="1")
        await world.replicaset("low", 1, "800m", **low)
        (victim,) = await world.replicas("low", 1)
        await world.budget("keep", {"app": "low"}, minAvailable=1)

        await world.pod("high", "800m", **high)

        async def nominated() -> bool:
            pod = await world.get("high")
            return (pod or {}).get("status", {}).get("nominatedNodeName") == node

        await world.until("the pod is nominated", nominated)
        # The budget keeps the victim; without the budget it goes.
        there = await world.get(victim["metadata"]["name"])
        assert there is not None
        assert not there["metadata"].get("deletionTimestamp")
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
