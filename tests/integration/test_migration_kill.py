"""Hundreds of migrations at once while descheduler, scheduler, cache and broker are killed at random: each ends landed or rolled
back, no pod is lost, no hold leaks. What the log says is judged by `tests/checker.py`, which shares no rule with Restow.

A failure names its seed; RESTOW_KILL_SEED repeats it (the kills are allocated from it; how far the saga is when they come depends on the
machine)."""

import asyncio
import os
import random
import time
from collections import Counter
from functools import partial

import aiohttp
import pytest
from integration.killing import (
    FAMILY,
    IN_EVICTION,
    PATIENCE,
    VICTIMS,
    Killer,
    budget,
    judge,
    nobody_is_lost,
    replica_set,
)

from restow.cli.demo.feed import Api, together
from restow.cli.demo.observer import Observer
from restow.cli.embedded import configs
from restow.cli.embedded.stack import Stack
from restow.domain.records import FINAL
from restow.kubesim.nodes import NodeShape, build_node

NS = "kill"
NODES, MOVERS = 40, 240
"""So many sources, as many targets; six pods on each source."""
KILLS = 16
EARLY = 5
"""Kills while landing slots are held; the others wait until pods are evicted."""
KEPT = 3
"""ReplicaSets of movers whose budget lets nobody go: their moves must be rolled back, whoever is killed."""
AT_ONCE = 100
"""Migrations that must have been under way at once, or the test has not tested what it says."""
POLICY = configs.policy(resource="cpu", concurrent=MOVERS) + "  perNode: 50\n  budgetPatience: 1s\n"


async def nodes(api: Api, role: str) -> None:
    shapes = [NodeShape(f"{role}-{i:02}", 16_000, 64 << 30, labels={"role": role}) for i in range(NODES)]
    start = 0 if role == "source" else NODES
    await together(partial(api.create, "/api/v1/nodes", build_node(s, number=start + i)) for i, s in enumerate(shapes))


async def workloads(api: Api, observer: Observer) -> None:
    """Movers while there are sources alone, then targets, half full."""
    base = f"/apis/apps/v1/namespaces/{NS}/replicasets"
    await api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
    await nodes(api, "source")
    await together(partial(api.create, base, replica_set(NS, f"mover-{i:02}", 6, "1")) for i in range(MOVERS // 6))
    for i in range(KEPT):
        await api.create(f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets", budget(NS, f"keep-{i:02}", f"mover-{i:02}"))
    await observer.until("the movers run", lambda: observer.running() == MOVERS, PATIENCE)
    await nodes(api, "target")
    await api.create(base, replica_set(NS, "filler", NODES, "8", nodeSelector={"role": "target"}))
    await observer.until("the fillers run", lambda: observer.running() == MOVERS + NODES, PATIENCE)


async def ask(stack: Stack) -> None:
    url = f"{stack.http('descheduler')}/defragment"
    async with aiohttp.ClientSession(headers=stack.authorization) as session, session.post(url, json={}) as answer:
        assert answer.status == 200, await answer.text()


async def play(seed: int, folder, said: dict) -> None:
    stack = Stack(folder / "stack", policy=POLICY, scheduler=configs.scheduler(), keep=True, kubelet_speed=0.1)
    async with stack, Api(stack.kube) as api, Observer(stack.nats, stack.cluster) as observer:
        await workloads(api, observer)
        state = observer.state
        killer = Killer(seed, stack, observer, kills=KILLS, early=EARLY, at_once=AT_ONCE // 4)
        await ask(stack)
        await observer.until("the plan", lambda: bool(state.migrations), PATIENCE)
        began = time.monotonic()
        kills = asyncio.create_task(killer.run())

        def over() -> bool:
            killer.watch()
            return bool(state.migrations) and all(m.step in FINAL for m in state.migrations.values())

        await observer.until("every migration has ended", over, PATIENCE)
        said["seconds"] = round(time.monotonic() - began, 1)
        await kills
        said |= {
            "kills": dict(killer.killed), "under way when killed": {str(k): n for k, n in killer.hit.items()}, "at once": killer.most,
            "ended": dict(Counter(f"{m.step} {m.reason}".strip() for m in state.migrations.values())),
        }  # fmt: skip

        def settled() -> bool:
            done = observer.running() == MOVERS + NODES == len(state.pods) and not state.reservations and not observer.holds()
            return done and killer.recovered()

        await observer.until("all pods run, no hold is left, and all services lead", settled, PATIENCE)
        await nobody_is_lost(api, NS, MOVERS + NODES)
        await asyncio.to_thread(judge, stack, folder / "log.jsonl.zst", said)


@pytest.mark.slow
def test_whoever_is_killed_every_migration_ends_no_pod_is_lost_and_no_hold_leaks(tmp_path, capsys):
    seed = int(os.environ.get("RESTOW_KILL_SEED") or random.randrange(10**6))
    said: dict = {}
    try:
        asyncio.run(play(seed, tmp_path, said))
    except BaseException as error:
        raise AssertionError(f"RESTOW_KILL_SEED={seed}: {error}; {said}") from error
    with capsys.disabled():
        print(f"\nseed {seed}: {said}")
    assert said["at once"] >= AT_ONCE, f"RESTOW_KILL_SEED={seed}: {said}"
    assert set(said["kills"]) == set(VICTIMS), f"RESTOW_KILL_SEED={seed}: {said}"
    assert all(said["leaders"][family] >= 2 for family in FAMILY.values()), f"no leader was killed; RESTOW_KILL_SEED={seed}: {said}"
    met = said["under way when killed"]
    assert met.get("holding", 0), f"no kill before an eviction; RESTOW_KILL_SEED={seed}: {said}"
    assert any(met.get(str(step), 0) for step in IN_EVICTION), f"no kill during evictions; RESTOW_KILL_SEED={seed}: {said}"
    ended = said["ended"]
    assert ended.get("landed", 0) >= MOVERS // 2, f"RESTOW_KILL_SEED={seed}: {said}"
    assert ended.get("failed Budget", 0) == 6 * KEPT, f"RESTOW_KILL_SEED={seed}: {said}"
