"""Moves on 50 nodes while everything else goes on: rollouts, scaling, strangers of equal and higher priority, lost nodes, budgets."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from kubernetes.churn import Churn
from kubernetes.moves import Move, Mover, told, uid_of
from kubernetes.world import NS, World, controller, gated

NODES, GPUS = 50, 2
MOVES, AT_ONCE = 150, 6


def free(world: World, promised: Counter[str]) -> list[str]:
    """Nodes with room for one more GPU, as Restow would see them."""
    used: Counter[str] = Counter(promised)
    for pod in world.pods.values():
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Failed", "Succeeded"):
            limits = pod["spec"]["containers"][0]["resources"].get("limits") or {}
            used[pod["spec"]["nodeName"]] += int(limits.get("nvidia.com/gpu", 0))
    return [name for name in sorted(world.nodes) if used[name] < GPUS]


async def moves_of(world: World, mover: Mover, count: int) -> list[Move]:
    rnd, promised, busy, done = random.Random(2), Counter[str](), set[str](), list[Move]()

    async def worker() -> None:
        while len(done) + len(busy) < count:
            pods = [
                p for p in world.pods.values()
                if controller(p) and p["metadata"]["namespace"] == NS and p["status"].get("phase") == "Running"
                and not p["metadata"].get("deletionTimestamp") and uid_of(p) not in busy
            ]  # fmt: skip
            targets = free(world, promised)
            if not pods or not targets:
                await asyncio.sleep(0.1)
                continue
            pod = rnd.choice(pods)
            target = rnd.choice([name for name in targets if name != pod["spec"]["nodeName"]] or targets)
            busy.add(uid_of(pod))
            promised[target] += 1
            try:
                done.append(await mover.move(pod, target, seconds=10))
            finally:
                busy.discard(uid_of(pod))
                promised[target] -= 1

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return done


@pytest.mark.slow
async def test_99_of_100_evicted_pods_land_on_their_hold_under_churn(world: World, mover: Mover) -> None:
    churn = Churn(world, 1, nodes=NODES, gpus=GPUS, sets=15, replicas=3)
    await churn.open()
    going = asyncio.create_task(churn.run(0.15))
    try:
        moves = await moves_of(world, mover, MOVES)
    finally:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
    evicted = [move for move in moves if move.evicted]
    excused = [m for m in evicted if m.stolen or m.target in churn.lost or m.end in ("no successor", "gone")]
    judged = [move for move in evicted if move not in excused]
    print(f"churn: {dict(churn.did)}; all {dict(Counter(m.end for m in moves))}")
    print(f"of {len(evicted)} evicted {len(excused)} lost their place or their reason {dict(Counter(m.end for m in excused))}; the rest: {told(judged)}")
    for move in [move for move in evicted if move.end == "elsewhere"]:
        print(f"{move.target} → {move.node}, stolen {move.stolen}: {story(world, move)}")
    assert len([move for move in judged if move.end == "landed"]) >= 0.99 * len(judged)
    assert world.kubelets.rejected == []
    await world.until(lambda: not world.placeholders(), "nothing is left behind")
    await world.until(lambda: not [p for p in world.pods.values() if gated(p)], "nobody waits for us")


def story(world: World, move: Move) -> str:
    """Who was bound or nominated to the target, in ms before and after the successor was bound."""
    assert move.successor is not None
    bound = world.at[uid_of(move.successor), "bound"]
    takers = sorted((round(1000 * (at - bound)), priority, uid[:8]) for (node, uid), (at, priority) in world.takers.items() if node == move.target)
    return f"successor {uid_of(move.successor)[:8]}, gates {move.successor['spec'].get('schedulingGates')}, {takers}"
