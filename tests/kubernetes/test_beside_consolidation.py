"""The whole of Restow consolidates 50 nodes of the stock scheduler while everything else goes on: rollouts, scaling, strangers of equal and higher
priority, lost nodes, budgets, a quota, Pod Security `restricted`, somebody else's admission, and each of the services killed.

Judged by what the API server showed, not by what Restow says: a move's place is its target, and the pod that came is the one that was bound there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import statistics
import time
import urllib.error
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.kubelets import TERM
from kubernetes.lab import Lab
from kubernetes.services import kill, services
from kubernetes.test_beside_services import defragment, ends, entries, reservations
from kubernetes.world import APPS, HIGH, MID, NS, PRIORITIES, World, controller, path_of, pod_spec
from kubesim.conformance.harness import MERGE

from restow.cli.embedded import configs
from restow.contracts.ids import SERVICES

NODES, GPUS = 50, 4
SETS, REPLICAS = 20, 4
SECONDS = 150
OTHERS = "others"
"""The namespace of pods that have nothing to do with Restow."""
POLICY = (
    configs.policy(protection=100).replace("coolDownTime: 0", "coolDownTime: 0\n          planner: optimizing\n          objective: nodes")
    + "  beside: [default-scheduler]\n  perNode: 50\n  maxMoves: 12\n  holdDeadline: 10s\n  landDeadline: 60s\n"
)
LONG = 90.0
OTHERS_ADMISSION = Path(__file__).with_name("others_admission.yaml")


def restricted(spec: dict[str, Any]) -> dict[str, Any]:
    """As Pod Security `restricted` asks for it."""
    spec["securityContext"] = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    for container in spec["containers"]:
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return spec


class Cluster:
    """What goes on beside. `changed`: by workload, when its owner last asked for other pods; `lost`: nodes, and when."""

    def __init__(self, world: World, stack: Running, seed: int):
        self.world, self.stack, self.rnd = world, stack, random.Random(seed)
        self.lost: dict[str, float] = {}
        self.changed: defaultdict[str, list[float]] = defaultdict(list)
        self.did: Counter[str] = Counter()
        self.names: dict[str, str] = {}
        """Pod uid → its workload, also of those that have gone."""
        world.told.append(self._told)

    def _told(self, kind: str, pod: dict[str, Any]) -> None:
        self.names[pod["metadata"]["uid"]] = (pod["metadata"].get("labels") or {}).get("app", "")

    async def open(self) -> None:
        api = self.world.api
        await api.ok("PATCH", f"/api/v1/namespaces/{NS}", {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}, media=MERGE)
        await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": OTHERS}})
        quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {"requests.nvidia.com/gpu": str(SETS * REPLICAS + 8)}}}
        await api.ok("POST", f"/api/v1/namespaces/{NS}/resourcequotas", quota)
        for i in range(NODES):
            await self.world.node(f"n{i}", gpus=GPUS)
        for i in range(SETS):
            made = {"labels": {"app": f"w{i}"}, "annotations": {TERM: "0.3"}}
            spec = {
                "replicas": REPLICAS, "selector": {"matchLabels": {"app": f"w{i}"}}, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
                "template": {"metadata": made, "spec": restricted(pod_spec())},
            }  # fmt: skip
            await api.ok("POST", f"{APPS}/deployments", {"metadata": {"name": f"w{i}"}, "spec": spec})
            budget = {"metadata": {"name": f"w{i}"}, "spec": {"maxUnavailable": 2, "selector": {"matchLabels": {"app": f"w{i}"}}}}
            await api.ok("POST", f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets", budget)
        for i in range(SETS):
            await self.world.running(f"w{i}", REPLICAS)

    async def close(self) -> None:
        """Other tests' pods are not restricted."""
        label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}
        await self.world.api.ok("PATCH", f"/api/v1/namespaces/{NS}", label, media=MERGE)
        await self.world.api.call("DELETE", f"/api/v1/namespaces/{OTHERS}/pods", {"gracePeriodSeconds": 0})

    async def churn(self) -> None:
        for turn in range(10**6):
            await asyncio.sleep(0.4)
            what = self.rnd.choices((self.rollout, self.scale, self.stranger, self.leave, self.lose), (1, 2, 6, 5, 0.5))[0]
            await what(turn)
            self.did[what.__name__] += 1

    async def plans(self) -> None:
        """Again and again, as an interval would have it."""
        while True:
            await asyncio.sleep(2)
            with contextlib.suppress(OSError, urllib.error.URLError, ValueError):
                # A service that was killed a moment ago, or does not lead yet.
                await asyncio.to_thread(defragment, self.stack)
                self.did["plan"] += 1

    async def kills(self) -> None:
        for turn in range(10**6):
            await asyncio.sleep(7)
            with contextlib.suppress(ValueError, ProcessLookupError, FileNotFoundError):
                # Not up again yet.
                kill(self.stack, SERVICES[turn % len(SERVICES)])
                self.did[f"kill {SERVICES[turn % len(SERVICES)]}"] += 1

    async def rollout(self, turn: int) -> None:
        name = f"w{self.rnd.randrange(SETS)}"
        self.changed[name].append(self.now())
        await self._patch(name, {"template": {"metadata": {"annotations": {"turn": str(turn)}}}})

    async def scale(self, _: int) -> None:
        name = f"w{self.rnd.randrange(SETS)}"
        self.changed[name].append(self.now())
        await self._patch(name, {"replicas": self.rnd.randint(REPLICAS - 1, REPLICAS + 1)})

    async def _patch(self, name: str, spec: dict[str, Any]) -> None:
        await self.world.api.ok("PATCH", f"{APPS}/deployments/{name}", {"spec": spec}, media=MERGE)

    async def stranger(self, turn: int) -> None:
        spec = pod_spec(self.rnd.choice((1, 1, 2)), self.rnd.choice((MID, MID, MID, HIGH)))
        body = {"metadata": {"name": f"stranger-{turn}", "labels": {"app": "stranger"}}, "spec": spec}
        await self.world.api.ok("POST", f"/api/v1/namespaces/{OTHERS}/pods", body)

    async def leave(self, _: int) -> None:
        there = self.world.of("stranger")
        for pod in self.rnd.sample(there, min(2, len(there))):
            await self.world.api.call("DELETE", path_of(pod), {"gracePeriodSeconds": 0})

    async def lose(self, turn: int) -> None:
        name = f"n{self.rnd.randrange(NODES)}"
        if name in self.lost:
            return
        self.lost[name] = self.now()
        self.world.nodes.discard(name)
        await self.world.api.ok("DELETE", f"/api/v1/nodes/{name}")
        for pod in [p for p in self.world.pods.values() if p["spec"].get("nodeName") == name]:
            await self.world.api.call("DELETE", path_of(pod), {"gracePeriodSeconds": 0})
        await self.world.node(f"new-{turn}", gpus=GPUS)

    @staticmethod
    def now() -> float:
        """As `World.at` has it."""
        return time.perf_counter()


async def over(stack: Running) -> list[dict[str, Any]]:
    """All migrations, once none is under way."""
    for _ in range(int(LONG / 0.5)):
        told = json.loads(await asyncio.to_thread(stack.restow, "get", "migrations", "--output", "json"))["items"]
        open = [one for one in told if one["step"] not in ("landed", "failed", "not_recreated")]
        if not open:
            return list(told)
        await asyncio.sleep(0.5)
    raise AssertionError(f"not over within {LONG:g} s: {open[:5]}")


@pytest.fixture(name="stack")
def running_stack(lab: Lab, kubelets: object) -> Iterator[Running]:
    lab.kubectl("apply", "-f", str(OTHERS_ADMISSION))
    try:
        with services(lab, POLICY) as running:
            yield running
    finally:
        lab.kubectl("delete", "-f", str(OTHERS_ADMISSION), "--ignore-not-found")


def evicted(moves: list[dict[str, Any]], told: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """For each pod that the Eviction API let go, the last one of its moves: an earlier one may have been rolled back."""
    last = {move["pod"]: move for move in sorted(moves, key=lambda move: move["since"])}
    return [last[uid] for uid, _ in told if uid in last]


@pytest.mark.slow
async def test_99_of_100_moves_land_on_their_hold_while_everything_else_goes_on(world: World, stack: Running) -> None:
    gone_by_eviction: list[tuple[str, str]] = []

    def told(kind: str, pod: dict[str, Any]) -> None:
        """Of pods that the Eviction API has let go."""
        by = any(c["type"] == "DisruptionTarget" and c.get("reason") == "EvictionByEvictionAPI" for c in pod["status"].get("conditions") or ())
        if by and (entry := (pod["metadata"]["uid"], pod["metadata"]["namespace"])) not in gone_by_eviction:
            gone_by_eviction.append(entry)

    world.told.append(told)
    cluster = Cluster(world, stack, 1)
    try:
        await consolidated(world, stack, cluster, gone_by_eviction)
    finally:
        await cluster.close()


async def consolidated(world: World, stack: Running, cluster: Cluster, gone_by_eviction: list[tuple[str, str]]) -> None:
    await cluster.open()
    tasks = [asyncio.create_task(work) for work in (cluster.churn(), cluster.plans(), cluster.kills())]
    try:
        done, _ = await asyncio.wait(tasks, timeout=SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    moves = await over(stack)
    judge(world, cluster, moves, gone_by_eviction)
    await nothing_is_left(world)


def judge(world: World, cluster: Cluster, moves: list[dict[str, Any]], evictions: list[tuple[str, str]]) -> None:
    went = evicted(moves, evictions)
    landed = [move for move in went if move["successor"] and (move["target"], move["successor"]) in world.takers]
    excuses = {move["id"]: why for move in went if move not in landed and (why := excuse(world, cluster, move))}
    judged = [move for move in went if move["id"] not in excuses]
    missed = [move for move in judged if move not in landed]
    waits = sorted(world.at[m["successor"], "bound"] - world.at[m["pod"], "gone"] for m in landed if (m["successor"], "bound") in world.at)
    print(f"{dict(cluster.did)}; ends {dict(Counter((m['step'], m['reason']) for m in moves))}")
    print(f"evicted {len(went)}, landed {len(landed)}, excused {dict(Counter(excuses.values()))}")
    if waits:
        print(f"pod gone → successor bound p50 {1000 * statistics.median(waits):.0f} ms, max {1000 * waits[-1]:.0f} ms")
    for move in missed:
        print("missed:", move, world.takers.get((move["target"], move["successor"])))
    assert {uid for uid, namespace in evictions if namespace == NS} <= {move["pod"] for move in moves}, "whom nobody planned to move was evicted"
    assert len(went) >= 60, "too few to say anything"
    assert len(missed) <= len(judged) // 100, missed
    assert statistics.median(waits) <= 1.0
    assert world.kubelets.rejected == []


def excuse(world: World, cluster: Cluster, move: dict[str, Any]) -> str:
    """Why a pod that was evicted could not land on its hold, by what the API showed; empty where nothing says so."""
    left = world.at.get((move["pod"], "ending"), 0.0)
    if move["target"] in cluster.lost:
        return "node lost"
    if any(node == move["target"] and at >= left - 1 and priority > PRIORITIES[MID] for (node, _), (at, priority) in world.takers.items()):
        return "higher priority"
    if any(left - 30 <= at <= left + 60 for at in cluster.changed[cluster.names.get(move["pod"], "")]):
        return "its owner changed"
    return ""


async def nothing_is_left(world: World) -> None:
    await world.until(lambda: not world.placeholders(), "no placeholder is left", LONG)
    await world.until(lambda: not [p for p in world.pods.values() if gated(p)], "no gate is left", LONG)
    await ends(world, "no entry is left", entries)
    await ends(world, "no Reservation is left", reservations)
    for pod in world.pods.values():
        assert controller(pod) is None or pod["metadata"]["namespace"] != NS or pod["status"].get("phase") != "Failed", pod


def gated(pod: dict[str, Any]) -> bool:
    return any(gate["name"].startswith("restow.dev/") for gate in pod["spec"].get("schedulingGates") or ())
