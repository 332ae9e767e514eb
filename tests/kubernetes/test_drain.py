"""Somebody drains a node with kubectl while Restow moves pods from it, or to it. Each pod is disrupted once, the drain comes to its end, the moves end with a reason,
and nothing is left behind. Pods of the stock scheduler and of Restow's own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.lab import Lab
from kubernetes.services import ended, known, migrate, reached
from kubernetes.world import World, pod_spec

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.parametrize("scheduler", ["default-scheduler", "restow"])]
COUNT = 4


async def moving(world: World, stack: Running, scheduler: str) -> tuple[list[Any], list[str]]:
    """All pods of a Deployment leave `source` for nodes of their own; a budget keeps them all for now, and their slots are held."""
    await world.node("source", gpus=COUNT)
    await world.workload("deployments", "victim", COUNT, pod_spec(schedulerName=scheduler), 0.5)
    pods = await world.running("victim", COUNT)
    await world.budget(0)
    for i in range(COUNT):
        await world.node(f"target-{i}", gpus=1)
    await known(stack, pods)
    moves = [await migrate(stack, pod, f"target-{i}") for i, pod in enumerate(pods)]
    for move in moves:
        await reached(stack, move, "held", "evicting")
    return pods, moves


async def cordoned(world: World, node: str) -> None:
    """The drain has begun."""
    for _ in range(300):
        if (await world.api.ok("GET", f"/api/v1/nodes/{node}"))["spec"].get("unschedulable"):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{node} is not cordoned")


def drain(lab: Lab, node: str) -> asyncio.Task[str]:
    return asyncio.create_task(asyncio.to_thread(lab.kubectl, "drain", node, "--timeout=60s"))


async def test_a_node_that_somebody_drains_while_its_pods_are_moved_away_loses_each_pod_once(
    world: World, stack: Running, lab: Lab, scheduler: str
) -> None:
    """Whoever of both evicts it: its successor lands on its slot, unless Restow finds that it was not the one in time."""
    pods, moves = await moving(world, stack, scheduler)
    drained = drain(lab, "source")
    await cordoned(world, "source")
    await world.budget(1)
    assert "node/source drained" in await drained
    over = [await ended(stack, move) for move in moves]
    assert {(one["step"], one["reason"]) for one in over} <= {("landed", ""), ("failed", "PodGone")}
    await world.running("victim", COUNT)
    if all(one["step"] == "landed" for one in over):
        await world.stands("victim", [f"target-{i}" for i in range(COUNT)])
    new = {pod["metadata"]["uid"] for pod in world.of("victim")}
    assert {uid for uid, what in world.at if what == "ending" and uid in new} == set(), "who has come is not disrupted again"
    assert {uid for uid, what in world.at if what == "gone"} >= {pod["metadata"]["uid"] for pod in pods}


async def test_a_node_that_somebody_drains_while_pods_are_moved_to_it_is_nobodys_target_any_more(
    world: World, stack: Running, lab: Lab, scheduler: str
) -> None:
    """kubectl cordons it first, and then stops at a placeholder, which no controller owns. As the node is cordoned, that goes, and the drain works again."""
    pods, moves = await moving(world, stack, scheduler)
    (said,) = await asyncio.gather(drain(lab, "target-0"), return_exceptions=True)
    if isinstance(said, AssertionError):
        assert scheduler == "default-scheduler"
        assert "cannot delete Pods that declare no controller (use --force to override): restow-holds/hold-" in str(said)
    one = await ended(stack, moves[0])
    assert (one["step"], one["reason"]) == ("failed", "TargetLost"), one
    await world.until(lambda: "target-0" not in [pod["spec"].get("nodeName") for pod in world.placeholders()], "the placeholder goes")
    assert "node/target-0 drained" in await drain(lab, "target-0")
    await world.budget(1)
    assert [(await ended(stack, move))["step"] for move in moves[1:]] == ["landed"] * (COUNT - 1)
    await world.stands("victim", ["source", *(f"target-{i}" for i in range(1, COUNT))])
    assert (pods[0]["metadata"]["uid"], "ending") not in world.at
