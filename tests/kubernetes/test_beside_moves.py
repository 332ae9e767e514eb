"""Moves of pods that the stock scheduler places: they land on their hold, whoever else wants the room."""

from __future__ import annotations

import asyncio

from kubernetes.moves import Mover, told
from kubernetes.world import World, pod_spec


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


async def test_20_moves_land_where_50_equal_pods_wait_for_the_same_room(world: World, mover: Mover) -> None:
    await world.node("source", gpus=20)
    await world.replicaset("victim", 20, pod_spec())
    victims = await world.running("victim", 20)
    await world.cordon("source")
    for i in range(20):
        await world.node(f"target-{i}", gpus=1)
    held, crowd = asyncio.Event(), 0

    async def before(_: object) -> None:
        nonlocal crowd
        crowd += 1
        if crowd == 20:
            await world.replicaset("crowd", 50, pod_spec())
            await world.unschedulable("crowd", 50)
            held.set()
        await held.wait()

    moves = await asyncio.gather(*(mover.move(v, f"target-{i}", before=before) for i, v in enumerate(victims)))
    print(told(moves))
    assert [move.end for move in moves] == ["landed"] * 20
    assert world.where("crowd") == ["waits"] * 50
    assert world.kubelets.rejected == []
