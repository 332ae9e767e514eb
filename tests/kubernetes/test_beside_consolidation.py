"""The whole of Restow consolidates 50 nodes of the stock scheduler while everything else goes on: rollouts, scaling, strangers of equal and higher
priority, lost nodes, budgets, a quota, Pod Security `restricted`, somebody else's admission, and each of the services killed.

Judged by what the API server showed, not by what Restow says: a move's place is its target, and the pod that came is the one that was bound there.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.churn import Churn
from kubernetes.lab import Lab
from kubernetes.left import nothing_is_left
from kubernetes.services import all_ended, defragment, kill, services
from kubernetes.world import MID, NS, PRIORITIES, World, controller, pod_spec, restricted
from kubesim.conformance.harness import MERGE

from restow.cli.embedded import configs
from restow.contracts.ids import SERVICES

NODES, GPUS = 50, 4
SETS, REPLICAS = 20, 4
SECONDS, LONGEST = 150, 900
ENOUGH = 60
"""Pods evicted: fewer say nothing. On a busy machine it goes on beyond SECONDS until so many were, at most for LONGEST."""
OTHERS = "others"
"""The namespace of pods that have nothing to do with Restow."""
POLICY = (
    configs.policy(protection=100).replace("coolDownTime: 0", "coolDownTime: 0\n          planner: optimizing\n          objective: nodes")
    + "  beside: [default-scheduler]\n  perNode: 50\n  maxMoves: 12\n  holdDeadline: 10s\n  landDeadline: 60s\n"
)
LONG = 90.0
OTHERS_ADMISSION = Path(__file__).with_name("others_admission.yaml")


class Cluster(Churn):
    """And plans are asked for, and services killed."""

    def __init__(self, world: World, stack: Running, seed: int):
        super().__init__(world, seed, nodes=NODES, gpus=GPUS, sets=SETS, replicas=REPLICAS, strangers=OTHERS)
        self.stack = stack
        self.names: dict[str, str] = {}
        """Pod uid → its workload, also of those that have gone."""
        self.strangers_seen: set[str] = set()
        self.down: list[tuple[float, float]] = []
        """From when until when a service that was killed was not ready (as `World.at`)."""
        world.told.append(self._told)

    def _told(self, kind: str, pod: dict[str, Any]) -> None:
        name = self.names[pod["metadata"]["uid"]] = (pod["metadata"].get("labels") or {}).get("app", "")
        if name == "stranger":
            self.strangers_seen.add(pod["metadata"]["uid"])

    async def open(self, spec: dict[str, Any] | None = None) -> None:
        api = self.world.api
        await api.ok("PATCH", f"/api/v1/namespaces/{NS}", {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}, media=MERGE)
        await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": OTHERS}})
        quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {"requests.nvidia.com/gpu": str(SETS * REPLICAS + 8)}}}
        await api.ok("POST", f"/api/v1/namespaces/{NS}/resourcequotas", quota)
        await super().open(restricted(pod_spec()))

    async def close(self) -> None:
        """Other tests' pods are not restricted."""
        label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}
        await self.world.api.ok("PATCH", f"/api/v1/namespaces/{NS}", label, media=MERGE)
        await self.world.api.call("DELETE", f"/api/v1/namespaces/{OTHERS}/pods", {"gracePeriodSeconds": 0})

    async def plans(self) -> None:
        """Again and again, as an interval would have it."""
        while True:
            await asyncio.sleep(2)
            with contextlib.suppress(OSError, urllib.error.URLError, ValueError):
                # A service that was killed a moment ago, or does not lead yet.
                await asyncio.to_thread(defragment, self.stack)
                self.did["plan"] += 1

    async def kills(self) -> None:
        """One after the other, each once the one before is ready again: on a busy machine that takes longer (19 s at a load of 20), and all would be away all the time."""
        for turn in range(10**6):
            await asyncio.sleep(7)
            with contextlib.suppress(ValueError, ProcessLookupError, FileNotFoundError):
                # Not up again yet.
                kill(self.stack, service := SERVICES[turn % len(SERVICES)])
                self.did[f"kill {service}"] += 1
                await self._until_ready(service, time.perf_counter())

    def each_was_killed(self) -> bool:
        return all(self.did[f"kill {service}"] for service in SERVICES)

    async def _until_ready(self, service: str, killed: float) -> None:
        while True:
            await asyncio.sleep(0.2)
            with contextlib.suppress(OSError, ValueError):
                # Not up again yet, or not ready.
                await asyncio.to_thread(self.stack.service, service, "/readyz")
                self.down.append((killed, time.perf_counter()))
                return


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
    tasks = [asyncio.create_task(work) for work in (cluster.run(0.4), cluster.plans(), cluster.kills())]
    try:
        begun = time.perf_counter()
        while (spent := time.perf_counter() - begun) < SECONDS or (spent < LONGEST and not (cluster.each_was_killed() and len(gone_by_eviction) >= ENOUGH * 5 // 4)):
            done, _ = await asyncio.wait(tasks, timeout=5, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    moves = await all_ended(stack)
    await world.until(lambda: all((uid, "gone") in world.at for uid, _ in gone_by_eviction), "who was evicted has gone", LONG)
    judge(world, cluster, moves, gone_by_eviction)
    await nothing_is_left(world, LONG)
    for pod in world.pods.values():
        assert controller(pod) is None or pod["metadata"]["namespace"] != NS or pod["status"].get("phase") != "Failed", pod


def judge(world: World, cluster: Cluster, moves: list[dict[str, Any]], evictions: list[tuple[str, str]]) -> None:
    went = evicted(moves, evictions)
    landed = [move for move in went if move["successor"] and (move["target"], move["successor"]) in world.takers]
    excuses = {move["id"]: why for move in went if move not in landed and (why := excuse(world, cluster, move))}
    judged = [move for move in went if move["id"] not in excuses]
    missed = [move for move in judged if move not in landed]
    spans = [(world.at[m["pod"], "gone"], world.at[m["successor"], "bound"]) for m in landed if (m["successor"], "bound") in world.at]
    waits = sorted(bound - gone for gone, bound in spans)
    up = sorted(bound - gone for gone, bound in spans if not any(begin < bound and gone < end for begin, end in cluster.down))
    others = sorted(world.at[uid, "bound"] - world.at[uid, "seen"] for uid in cluster.strangers_seen if (uid, "bound") in world.at)
    print(f"{dict(cluster.did)}; ends {dict(Counter((m['step'], m['reason']) for m in moves))}")
    print(f"evicted {len(went)}, landed {len(landed)}, excused {dict(Counter(excuses.values()))}")
    if waits:
        print(f"pod gone → successor bound p50 {1000 * statistics.median(waits):.0f} ms, max {1000 * waits[-1]:.0f} ms; a stranger made → bound p50 {1000 * statistics.median(others):.0f} ms, max {1000 * others[-1]:.0f} ms of {len(others)}")
        print(f"of {len(up)} while all services were up: p50 {1000 * statistics.median(up or [0]):.0f} ms, max {1000 * (up or [0])[-1]:.0f} ms")
        away = sorted(end - begin for begin, end in cluster.down)
        print(f"a killed service was ready again after p50 {statistics.median(away):.1f} s, max {away[-1]:.1f} s ({len(away)} times)")
    for move in missed:
        print("missed:", move, world.takers.get((move["target"], move["successor"])))
    assert {uid for uid, namespace in evictions if namespace == NS} <= {move["pod"] for move in moves}, "whom nobody planned to move was evicted"
    assert cluster.each_was_killed()
    assert len(went) >= ENOUGH, "too few to say anything"
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
