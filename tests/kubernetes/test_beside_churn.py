"""Moves on 50 nodes while everything else goes on: rollouts, scaling, strangers of equal and higher priority, lost nodes, budgets."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from kubernetes.lab import Lab
from kubernetes.moves import Move, Mover, told, uid_of
from kubernetes.world import APPS, HIGH, MID, NS, World, controller, path_of, pod_spec
from kubesim.conformance.harness import MERGE

NODES, GPUS = 50, 2
SETS, REPLICAS = 15, 3
MOVES, AT_ONCE = 150, 6


class Churn:
    """What goes on beside. `lost`: nodes that were taken away."""

    def __init__(self, world: World, lab: Lab, seed: int):
        self.world, self.lab, self.rnd = world, lab, random.Random(seed)
        self.lost: set[str] = set()
        self.did: Counter[str] = Counter()

    async def open(self) -> None:
        for i in range(NODES):
            await self.world.node(f"n{i}", gpus=GPUS)
        for i in range(SETS):
            made = {"labels": {"app": f"w{i}"}, "annotations": {"kubelets/term": "0.3"}}
            spec = {
                "replicas": REPLICAS, "selector": {"matchLabels": {"app": f"w{i}"}},
                "template": {"metadata": made, "spec": pod_spec()},
            }  # fmt: skip
            await self.world.api.ok("POST", f"{APPS}/deployments", {"metadata": {"name": f"w{i}"}, "spec": spec})
            budget = {"metadata": {"name": f"w{i}"}, "spec": {"maxUnavailable": 2, "selector": {"matchLabels": {"app": f"w{i}"}}}}
            await self.world.api.ok("POST", f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets", budget)
        for i in range(SETS):
            await self.world.running(f"w{i}", REPLICAS)

    async def run(self) -> None:
        for turn in range(10**6):
            await asyncio.sleep(0.15)
            what = self.rnd.choices(
                (self.rollout, self.scale, self.stranger, self.leave, self.lose), (1, 2, 6, 5, 0.5)
            )[0]  # fmt: skip
            await what(turn)
            self.did[what.__name__] += 1

    async def rollout(self, turn: int) -> None:
        patch = {"spec": {"template": {"metadata": {"annotations": {"turn": str(turn)}}}}}
        await self.world.api.ok("PATCH", f"{APPS}/deployments/w{self.rnd.randrange(SETS)}", patch, media=MERGE)

    async def scale(self, _: int) -> None:
        patch = {"spec": {"replicas": self.rnd.randint(REPLICAS - 1, REPLICAS + 1)}}
        await self.world.api.ok("PATCH", f"{APPS}/deployments/w{self.rnd.randrange(SETS)}", patch, media=MERGE)

    async def stranger(self, turn: int) -> None:
        spec = pod_spec(self.rnd.choice((1, 1, 2)), self.rnd.choice((MID, MID, MID, HIGH)))
        await self.world.pod(f"stranger-{turn}", spec)

    async def leave(self, _: int) -> None:
        there = [p for p in self.world.pods.values() if p["metadata"]["name"].startswith("stranger-")]
        for pod in self.rnd.sample(there, min(2, len(there))):
            await self.world.api.call("DELETE", path_of(pod), {"gracePeriodSeconds": 0})

    async def lose(self, turn: int) -> None:
        name = f"n{self.rnd.randrange(NODES)}"
        if name in self.lost:
            return
        self.lost.add(name)
        self.world.nodes.discard(name)
        await self.world.api.ok("DELETE", f"/api/v1/nodes/{name}")
        for pod in [p for p in self.world.pods.values() if p["spec"].get("nodeName") == name]:
            await self.world.api.call("DELETE", path_of(pod), {"gracePeriodSeconds": 0})
        await self.world.node(f"new-{turn}", gpus=GPUS)


def free(world: World, promised: Counter[str]) -> list[str]:
    """Nodes with room for one more GPU, as Restow would see them."""
    used: Counter[str] = Counter(promised)
    for pod in world.pods.values():
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Failed", "Succeeded"):
            limits = pod["spec"]["containers"][0]["resources"].get("limits") or {}
            used[pod["spec"]["nodeName"]] += int(limits.get("nvidia.com/gpu", 0))
    return [name for name in sorted(world.nodes) if used[name] < GPUS]


async def moves_of(world: World, mover: Mover, churn: Churn, count: int) -> list[Move]:
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
async def test_99_of_100_evicted_pods_land_on_their_hold_under_churn(world: World, mover: Mover, lab: Lab) -> None:
    churn = Churn(world, lab, 1)
    await churn.open()
    going = asyncio.create_task(churn.run())
    try:
        moves = await moves_of(world, mover, churn, MOVES)
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
    await world.until(lambda: not [p for p in world.pods.values() if mine(p)], "nobody waits for us")


def story(world: World, move: Move) -> str:
    """Who was bound or nominated to the target, in ms before and after the successor was bound."""
    assert move.successor is not None
    bound = world.at[uid_of(move.successor), "bound"]
    takers = sorted((round(1000 * (at - bound)), priority, uid[:8]) for (node, uid), (at, priority) in world.takers.items() if node == move.target)
    return f"successor {uid_of(move.successor)[:8]}, gates {move.successor['spec'].get('schedulingGates')}, {takers}"


def mine(pod: Any) -> bool:
    return any(gate["name"].startswith("restow.dev/") for gate in pod["spec"].get("schedulingGates") or ())

