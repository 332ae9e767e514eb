"""The virtual placeholder: it keeps the source until the move has landed, is the way back, and swaps full nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubernetes.moves import Mover
from kubernetes.world import HIGH, World, pod_spec

from restow.kube.effects import PodRef


async def full(world: World, *nodes: str) -> list[Any]:
    """Nodes of one GPU, each full with one pod of an own controller; the first gets its pod first."""
    found = []
    for name in nodes:
        await world.node(name, gpus=1)
        await world.replicaset(f"on-{name}", 1, pod_spec())
        found += await world.running(f"on-{name}")
    assert [pod["spec"]["nodeName"] for pod in found] == list(nodes)
    return found


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "bare"])
async def test_the_source_is_refilled_only_where_nothing_guards_it(world: World, mover: Mover, guarded: bool) -> None:
    (victim,) = await full(world, "source")
    await world.node("target", gpus=1)
    sources = []

    async def crowd(_: PodRef) -> None:
        await world.crowd()

    async def look(_: PodRef) -> None:
        await world.until(lambda: (victim["metadata"]["uid"], "gone") in world.at, "the victim has gone")
        await asyncio.sleep(0.7)
        sources.extend(world.where("crowd"))

    move = await mover.move(victim, "target", before=crowd, after=look, guarded=guarded)
    assert move.end == "landed"
    assert ("source" in sources) is not guarded
    await world.until(lambda: "source" in world.where("crowd"), "what is free is given away at the end")


async def test_a_stolen_hold_sends_the_pod_back_to_its_source(world: World, mover: Mover) -> None:
    (victim,) = await full(world, "source")
    await world.node("target", gpus=1)

    async def crowd(_: PodRef) -> None:
        await world.crowd()

    async def steal(held: PodRef) -> None:
        await world.pod("high", pod_spec(priority=HIGH, nodeSelector={"kubernetes.io/hostname": "target"}))
        await world.until(lambda: (held.uid, "gone") in world.at, "the hold is taken")

    move = await mover.move(victim, "target", before=crowd, after=steal, guarded=True)
    assert move.stolen
    assert move.node == "source"
    assert world.where("crowd") == ["waits"] * 50


async def test_two_pods_on_full_nodes_change_places(world: World, mover: Mover) -> None:
    """Each virtual hold is on room that is still occupied; 30 equal pods wait for either."""
    a, b = await full(world, "left", "right")
    await world.crowd(30)
    gone = {pod["metadata"]["uid"] for pod in (a, b)}

    async def both_gone(_: PodRef) -> None:
        await world.until(lambda: all((uid, "gone") in world.at for uid in gone), "both have gone")

    moves = await asyncio.gather(
        mover.move(a, "right", after=both_gone, virtual=True), mover.move(b, "left", after=both_gone, virtual=True)
    )
    assert [move.end for move in moves] == ["landed", "landed"]
    assert world.where("crowd") == ["waits"] * 30
    assert world.kubelets.rejected == []
