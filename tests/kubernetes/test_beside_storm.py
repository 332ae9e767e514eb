"""Many moves at once, while strangers of equal and lower priority arrive all the time and take whatever is free."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator

import pytest
from kubernetes.lab import Lab
from kubernetes.moves import LOG, Move, Mover, told
from kubernetes.test_beside_gate import NOBODY, counts, soon
from kubernetes.world import LOW, MID, World, pod_spec
from kubesim.conformance.harness import Target

from restow.kube.beside import Beside
from restow.kube.client import ClientConfig, connect
from restow.kube.effects import PodRef
from restow.kube.gates import Gates

MOVES = 30


async def storm(world: World, mover: Mover, count: int = MOVES) -> list[Move]:
    """Every target has room for its move alone; once all holds are there, a stranger comes every 20 ms."""
    rnd = random.Random(1)
    for i in range(count):
        await world.node(f"source-{i}", gpus=1)
    await world.replicaset("victim", count, pod_spec())
    victims = await world.running("victim", count)
    for i in range(count):
        await world.node(f"target-{i}", gpus=1)
    begun, waiting = asyncio.Event(), itertools.count(1)

    async def before(_: PodRef) -> None:
        if next(waiting) == count:
            begun.set()
        await begun.wait()

    async def strangers() -> None:
        await begun.wait()
        for i in itertools.count():
            await world.pod(f"stranger-{i}", pod_spec(priority=rnd.choice((MID, MID, LOW)), restartPolicy="Never"))
            await asyncio.sleep(0.02)

    noise = asyncio.create_task(strangers())
    try:
        return list(await asyncio.gather(*(mover.move(v, f"target-{i}", before=before, seconds=30) for i, v in enumerate(victims))))
    finally:
        noise.cancel()
        await asyncio.gather(noise, return_exceptions=True)


async def test_all_moves_of_a_storm_land(world: World, mover: Mover) -> None:
    moves = await storm(world, mover)
    print("storm:", told(moves))
    assert [move.end for move in moves] == ["landed"] * MOVES
    assert world.kubelets.rejected == []


@pytest.fixture
async def elsewhere(lab: Lab, world: World) -> AsyncIterator[tuple[Beside, Gates]]:
    """Session and descheduler at a second API server; controllers and scheduler are at the first."""
    target = lab.another_server("second")
    try:
        clients = []
        for service in ("scheduler-session", "descheduler"):
            account = Target(target.kind, target.url, lab.account(service).headers, target.ssl)
            clients.append(await connect(ClientConfig(kubeconfig=str(lab.kubeconfig(account, f"second-{service}")))))
        descheduler = Gates(clients[1])
        await descheduler.landing(LOG, {NOBODY.uid: soon()})
        print(f"API server new → counts: {await counts(descheduler, NOBODY, seconds=90) / 1000:.1f} s")
        yield Beside(clients[0]), descheduler
        for client in clients:
            await client.close()
    finally:
        lab.stop("second")


async def test_all_land_where_restow_speaks_to_another_api_server_than_the_controllers(
    world: World, elsewhere: tuple[Beside, Gates]
) -> None:
    moves = await storm(world, Mover(world, *elsewhere), 20)
    print("two API servers:", told(moves))
    assert [move.end for move in moves] == ["landed"] * 20
