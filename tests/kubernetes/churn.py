"""What goes on beside moves on a cluster that is in use: rollouts, scaling, strangers of equal and higher priority, lost nodes; within budgets."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from typing import Any

from kubernetes.world import APPS, HIGH, MID, NS, World, path_of, pod_spec
from kubesim.conformance.harness import MERGE

ROLLING = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}


class Churn:
    """Deployments w0, w1, … on nodes n0, n1, … `strangers`: the namespace of pods that are nobody's. `lost`: nodes, and when (as `World.at`);
    `changed`: by workload, when its owner asked for other pods."""

    def __init__(self, world: World, seed: int, *, nodes: int, gpus: int, sets: int, replicas: int, strangers: str = NS):
        self.world, self.rnd, self.strangers = world, random.Random(seed), strangers
        self.nodes, self.gpus, self.sets, self.replicas = nodes, gpus, sets, replicas
        self.lost: dict[str, float] = {}
        self.changed: defaultdict[str, list[float]] = defaultdict(list)
        self.did: Counter[str] = Counter()

    async def open(self, spec: dict[str, Any] | None = None) -> None:
        """`spec`: of the workloads' pods."""
        for i in range(self.nodes):
            await self.world.node(f"n{i}", gpus=self.gpus)
        for i in range(self.sets):
            await self.world.workload("deployments", f"w{i}", self.replicas, spec or pod_spec(), 0.3, strategy=ROLLING)
            budget = {"metadata": {"name": f"w{i}"}, "spec": {"maxUnavailable": 2, "selector": {"matchLabels": {"app": f"w{i}"}}}}
            await self.world.api.ok("POST", f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets", budget)
        for i in range(self.sets):
            await self.world.running(f"w{i}", self.replicas)

    async def run(self, pause: float) -> None:
        """Until it is cancelled, something each `pause` seconds."""
        for turn in range(10**6):
            await asyncio.sleep(pause)
            what = self.rnd.choices((self.rollout, self.scale, self.stranger, self.leave, self.lose), (1, 2, 6, 5, 0.5))[0]
            await what(turn)
            self.did[what.__name__] += 1

    async def rollout(self, turn: int) -> None:
        await self._change({"template": {"metadata": {"annotations": {"turn": str(turn)}}}})

    async def scale(self, _: int) -> None:
        await self._change({"replicas": self.rnd.randint(self.replicas - 1, self.replicas + 1)})

    async def _change(self, spec: dict[str, Any]) -> None:
        name = f"w{self.rnd.randrange(self.sets)}"
        self.changed[name].append(time.perf_counter())
        await self.world.api.ok("PATCH", f"{APPS}/deployments/{name}", {"spec": spec}, media=MERGE)

    async def stranger(self, turn: int) -> None:
        spec = pod_spec(self.rnd.choice((1, 1, 2)), self.rnd.choice((MID, MID, MID, HIGH)))
        body = {"metadata": {"name": f"stranger-{turn}", "labels": {"app": "stranger"}}, "spec": spec}
        await self.world.api.ok("POST", f"/api/v1/namespaces/{self.strangers}/pods", body)

    async def leave(self, _: int) -> None:
        there = self.world.of("stranger")
        for pod in self.rnd.sample(there, min(2, len(there))):
            await self.world.api.call("DELETE", path_of(pod), {"gracePeriodSeconds": 0})

    async def lose(self, turn: int) -> None:
        name = f"n{self.rnd.randrange(self.nodes)}"
        if name not in self.lost:
            self.lost[name] = time.perf_counter()
            await self.world.lose(name)
            await self.world.node(f"new-{turn}", gpus=self.gpus)
