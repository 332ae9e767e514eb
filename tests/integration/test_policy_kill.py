"""A whole policy, three plugins in one pass, while descheduler, scheduler, cache and broker are killed at random: what is moved ends
landed or rolled back, what is only evicted ends removed, no pod is lost, no hold leaks.

A failure names its seed; RESTOW_KILL_SEED repeats it (the kills are allocated from it; how far the saga is when they come depends on the
machine)."""

import asyncio
import json
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
from restow.domain.records import FINAL, Step
from restow.kubesim.nodes import NodeShape, build_node

NS = "kill"
NODES, EACH = 10, 6
"""Nodes of each role, and movers on each tainted node and on each source."""
MOVERS, FAILED = NODES * EACH, 24
"""Pods that a plugin moves (two do), and bare pods that have failed."""
KILLS, EARLY = 9, 2
AT_ONCE = 40
"""Migrations that must have been under way at once, or the test has not tested what it says."""
KEPT = "tainted-00"
"""The ReplicaSet whose budget lets nobody go."""
FAILS, TAINTS, PACKS = "RemoveFailedPods", "RemovePodsViolatingNodeTaints", "Defragmentation"

POLICY = {
    "apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy",
    "profiles": [
        {
            "name": "clean",
            "pluginConfig": [
                {"name": "DefaultEvictor", "args": {"evictFailedBarePods": True}},
                {"name": FAILS, "args": {"minPodLifetimeSeconds": 0}},
                {"name": TAINTS, "args": {"includedTaints": ["going"]}},
            ],
            "plugins": {"deschedule": {"enabled": [FAILS, TAINTS]}},
        },
        {
            "name": "pack",
            "pluginConfig": [{"name": PACKS, "args": {"ResourceType": "cpu", "lowThresholds": {"cpu": 40}, "defragmentThresholds": {"cpu": 45}, "protectionThresholds": {"cpu": 95}, "coolDownTime": 0}}],
            "plugins": {"balance": {"enabled": [PACKS]}},
        },
    ],
    "restow": {"concurrent": 500, "perNode": 50, "maxUnavailable": 0, "evictionsPerMinute": 0, "budgetPatience": "1s"},
}  # fmt: skip


async def nodes(api: Api, role: str, start: int) -> None:
    pool = "a" if role in ("tainted", "spare") else "b"
    shapes = [NodeShape(f"{role}-{i:02}", 16_000, 64 << 30, labels={"role": role, "pool": pool}) for i in range(NODES)]
    await together(partial(api.create, "/api/v1/nodes", build_node(s, number=start + i)) for i, s in enumerate(shapes))


def failing(i: int) -> dict:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
    metadata = {"name": f"failed-{i:02}", "namespace": NS, "annotations": {"kubesim.restow.dev/fail-after": "50ms"}}
    spec = {"schedulerName": "restow", "restartPolicy": "Never", "nodeSelector": {"role": "source"}, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def world(stack: Stack, api: Api, observer: Observer) -> None:
    """Pods on nodes that get a taint, and elsewhere empty nodes for them; nodes that are nearly empty, and others that are half full;
    and what has failed."""
    base, state = f"/apis/apps/v1/namespaces/{NS}/replicasets", observer.state
    await api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
    await api.create(f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets", budget(NS, "kept", KEPT))
    await nodes(api, "tainted", 0)
    await nodes(api, "source", NODES)
    for role, pool in (("tainted", "a"), ("source", "b")):
        sets = [replica_set(NS, f"{role}-{i:02}", EACH, "1", nodeSelector={"pool": pool}) for i in range(NODES)]
        await together(partial(api.create, base, one) for one in sets)
    await observer.until("the movers run", lambda: observer.running() == 2 * MOVERS, PATIENCE)
    await together(partial(api.create, f"/api/v1/namespaces/{NS}/pods", failing(i)) for i in range(FAILED))
    await nodes(api, "spare", 2 * NODES)
    await nodes(api, "target", 3 * NODES)
    await api.create(base, replica_set(NS, "filler", NODES, "8", nodeSelector={"role": "target"}))
    async with aiohttp.ClientSession(stack.kube, headers={"Content-Type": "application/merge-patch+json"}) as session:
        for i in range(NODES):
            body = json.dumps({"spec": {"taints": [{"key": "going", "effect": "NoSchedule"}]}})
            async with session.patch(f"/api/v1/nodes/tainted-{i:02}", data=body) as answer:
                assert answer.status == 200, await answer.text()
    await observer.until("the fillers run", lambda: observer.running() == 2 * MOVERS + NODES, PATIENCE)
    await observer.until("pods have failed", lambda: sum(x.live.phase == "Failed" for x in state.pods.values()) == FAILED, PATIENCE)
    await observer.until("taints", lambda: sum(bool(node.taints) for node in state.nodes.values()) == NODES, PATIENCE)


async def ask(stack: Stack) -> None:
    """The service folds for itself: a dry run says whether it has seen all of it."""
    wanted = {FAILS: FAILED, TAINTS: MOVERS, PACKS: MOVERS}
    url, moves = f"{stack.http('descheduler')}/deschedule", {}
    async with aiohttp.ClientSession(headers=stack.authorization) as session:
        until = time.monotonic() + PATIENCE
        for query in ("?dryRun=true", ""):
            while moves != wanted or not query:
                async with session.post(url + query, json={}) as answer:
                    said = await answer.json()
                    assert answer.status == 200, said
                moves = {plan["plugin"]: len(plan.get("moves", ())) for plan in said["events"]}
                if not query:
                    break
                assert time.monotonic() < until, f"{moves} are planned, not {wanted}"
    assert moves == wanted


async def play(seed: int, folder, said: dict) -> None:
    policy = folder / "policy.yaml"
    policy.write_text(json.dumps(POLICY))
    stack = Stack(folder / "stack", policy=policy, scheduler=configs.scheduler(), keep=True, kubelet_speed=0.1)
    async with stack, Api(stack.kube) as api, Observer(stack.nats, stack.cluster) as observer:
        await world(stack, api, observer)
        state = observer.state
        kept = {uid for uid, pod in state.pods.items() if pod.fact.labels.get("app") == KEPT}
        killer = Killer(seed, stack, observer, kills=KILLS, early=EARLY, at_once=AT_ONCE // 4)
        kills = asyncio.create_task(killer.run())
        began = time.monotonic()
        await ask(stack)

        def over() -> bool:
            killer.watch()
            return len(state.migrations) == 2 * MOVERS + FAILED and all(m.step in FINAL for m in state.migrations.values())

        await observer.until("every migration has ended", over, PATIENCE)
        said["seconds"] = round(time.monotonic() - began, 1)
        await kills
        ended: dict[str, Counter[str]] = {}
        for m in state.migrations.values():
            ended.setdefault(state.plans[m.plan].planned.plugin, Counter())[f"{m.step} {m.reason}".strip()] += 1
        said |= {
            "kills": dict(killer.killed), "under way when killed": {str(k): n for k, n in killer.hit.items()}, "at once": killer.most,
            "ended": {plugin: dict(counts) for plugin, counts in ended.items()},
        }  # fmt: skip

        def settled() -> bool:
            done = observer.running() == 2 * MOVERS + NODES == len(state.pods) and not state.reservations and not observer.holds()
            return done and killer.recovered()

        await observer.until("all pods run, those that had failed are gone, no hold is left, and all services lead", settled, PATIENCE)
        rolled_back = [m for m in state.migrations.values() if m.step is Step.FAILED]
        gone = [f"{m.id}: {m.reason}" for m in rolled_back if m.move.pod not in state.pods or state.node_of(m.move.pod) != m.move.source]
        assert not gone, f"these have failed, but their pods have left: {gone}"
        assert kept == {uid for uid, pod in state.pods.items() if pod.fact.labels.get("app") == KEPT}, "a budget was not respected"
        await nobody_is_lost(api, NS, 2 * MOVERS + NODES)
        await asyncio.to_thread(judge, stack, folder / "log.jsonl.zst", said)


@pytest.mark.slow
def test_whoever_is_killed_each_move_of_a_policy_ends_as_its_plugin_says(tmp_path, capsys):
    seed = int(os.environ.get("RESTOW_KILL_SEED") or random.randrange(10**6))
    said: dict = {}
    try:
        asyncio.run(play(seed, tmp_path, said))
        assert said["at once"] >= AT_ONCE
        assert set(said["kills"]) == set(VICTIMS), "somebody was never killed"
        assert all(said["leaders"][family] >= 2 for family in FAMILY.values()), "no leader was killed"
        assert any(said["under way when killed"].get(str(step)) for step in IN_EVICTION), "no kill during evictions"
        ended = said["ended"]
        assert ended[FAILS] == {"removed": FAILED}
        for plugin, stay in ((TAINTS, EACH), (PACKS, 0)):
            assert {what.split()[0] for what in ended[plugin]} <= {"landed", "failed"}, plugin
            assert MOVERS // 2 <= ended[plugin].get("landed", 0) <= MOVERS - stay, plugin
    except BaseException as error:
        raise AssertionError(f"RESTOW_KILL_SEED={seed}: {error}; {said}") from error
    with capsys.disabled():
        print(f"\nseed {seed}: {said}")
