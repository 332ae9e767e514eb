"""Seed 002's scenario Time0 to Time6, with and without the action `reserve` after `allocate`: one node of 3C3G, seven pods."""

from __future__ import annotations

import asyncio

from e2e.world import Obj, World, node_of

STARVES = 12
"""Seconds: long enough that nothing starves before Time3 on a busy machine."""
CONF = """\
schedulerNames: [restow, volcano]
actions:
- name: enqueue
- name: allocate
- name: backfill
{reserve}
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
RESERVE = f"""\
- name: reserve
  arguments:
    starvingJobTimeThreshold: {STARVES}
    reservedNodePercent: 50
"""


async def seven_pods(world: World) -> str:
    """Time0 and Time1; the node. One after the other, so that the queue has their order."""
    node = await world.node("n", cpu="3", memory="3Gi")
    for i in range(1, 8):
        await world.pod(f"pod-{i}", *(("3", "3Gi") if i == 4 else ("1", "1Gi")), restartPolicy="Never")
    await world.running("pod-1", "pod-2", "pod-3")
    await world.unschedulable("pod-4", "Insufficient cpu")
    return node


async def complete(world: World, *names: str) -> None:
    """As their kubelet says when their containers have ended."""
    over = {"status": {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}]}}
    for name in names:
        await world.patch(f"/api/v1/namespaces/{world.ns}/pods/{name}/status", over)


async def pending(world: World) -> set[str]:
    def waits(pod: Obj) -> bool:
        return pod["status"]["phase"] == "Pending" and not node_of(pod)

    return {pod["metadata"]["name"] for pod in await world.pods() if waits(pod)}


async def test_without_the_action_the_large_pod_runs_last(world: World) -> None:
    with world.stack.configured("scheduler_session", CONF.format(reserve="")):
        await seven_pods(world)
        await complete(world, "pod-1")
        await world.running("pod-5")
        await complete(world, "pod-2", "pod-3")
        await world.running("pod-6", "pod-7")
        await complete(world, "pod-5")
        assert await pending(world) == {"pod-4"}
        await complete(world, "pod-6", "pod-7")
        await world.running("pod-4")


async def test_with_the_action_the_node_is_reserved_for_the_large_pod(world: World) -> None:
    with world.stack.configured("scheduler_session", CONF.format(reserve=RESERVE)):
        node = await seven_pods(world)
        await complete(world, "pod-1")
        await world.running("pod-5")
        await world.unschedulable("pod-4", f"reserved on node {node} (its job starves); waits there for cpu (asks for 3, 0 free)")
        await complete(world, "pod-2", "pod-3")
        for name in ("pod-6", "pod-7"):
            await world.unschedulable(name, "node(s) resource was(were) reserved")
        await asyncio.sleep(1)
        assert await pending(world) == {"pod-4", "pod-6", "pod-7"}, "2C2G are idle, and nobody comes to the node"
        assert f"reserved on node {node}" in await world.restow("why", f"pod/{world.ns}/pod-4")
        await complete(world, "pod-5")
        (pod,) = await world.running("pod-4")
        assert node_of(pod) == node
        await complete(world, "pod-4")
        await world.running("pod-6", "pod-7")


async def test_a_pod_that_asks_for_nothing_still_comes_to_the_node(world: World) -> None:
    with world.stack.configured("scheduler_session", CONF.format(reserve=RESERVE.replace(f": {STARVES}", ": 0"))):
        node = await world.node("n", cpu="3", memory="3Gi")
        await world.pod("small", "1", "1Gi")
        await world.running("small")
        await world.pod("whole", "3", "3Gi")
        await world.unschedulable("whole", "reserved on node")
        await world.pod("nothing", containers=[{"name": "main", "image": "registry.k8s.io/pause:3.10"}])
        (pod,) = await world.running("nothing")
        assert node_of(pod) == node
        await world.pod("other", "1", "1Gi")
        await world.unschedulable("other", "was(were) reserved")
