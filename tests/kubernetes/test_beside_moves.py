"""Moves of pods that the stock scheduler places: they land on their hold, whoever else wants the room."""

from __future__ import annotations

import asyncio

import pytest
from kubernetes.moves import Mover, crowded, told
from kubernetes.world import World, pod_spec

from restow.kube.effects import PodRef


async def alone(world: World, spec: dict | None = None, app: str = "victim") -> dict:
    """The victim runs on `source`; then `target` is there, with room for it alone."""
    await world.node("source")
    await world.replicaset(app, 1, spec or pod_spec())
    (victim,) = await world.running(app)
    await world.node("target", gpus=1)
    return victim


async def test_a_move_lands_on_its_hold_though_emptier_nodes_exist(world: World, mover: Mover) -> None:
    victim = await alone(world)
    for i in range(3):
        await world.node(f"other-{i}")
    move = await mover.move(victim, "target")
    assert move.end == "landed"
    await world.until(lambda: not world.placeholders(), "nothing is left behind")
    assert world.kubelets.rejected == []
    print(told([move]))


@pytest.mark.parametrize("virtual", [False, True], ids=["bound", "virtual"])
@pytest.mark.parametrize("at_once", [False, True], ids=["one-by-one", "all-at-once"])
async def test_20_moves_land_where_50_equal_pods_wait_for_the_same_room(world: World, mover: Mover, at_once: bool, virtual: bool) -> None:
    moves = await crowded(world, mover, 20, at_once=at_once, virtual=virtual)
    print(f"50 wait, {'all at once' if at_once else 'one by one'}, {'virtual' if virtual else 'bound'}:", told(moves))


async def test_several_moves_to_one_node_land_one_swap_after_the_other(world: World, mover: Mover) -> None:
    """A nomination is charged beside the placeholder that it replaces: while one successor is swapped in, another
    does not fit, and goes elsewhere (7 of 20 did when all were swapped at once)."""
    count, each = 5, 4
    await world.node("source", gpus=count * each)
    await world.replicaset("victim", count * each, pod_spec())
    victims = await world.running("victim", count * each)
    await world.cordon("source")
    for i in range(count):
        await world.node(f"target-{i}", gpus=each)
    held, arrived = asyncio.Event(), 0

    async def before(_: PodRef) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == len(victims):
            await world.node("other", gpus=100)
            held.set()
        await held.wait()

    moves = await asyncio.gather(*(mover.move(v, f"target-{i % count}", before=before) for i, v in enumerate(victims)))
    print("several to one node:", told(moves))
    assert [move.end for move in moves] == ["landed"] * len(moves)
