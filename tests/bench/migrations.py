"""Many migrations at once: one plan of hundreds of moves, hold first, beside evictions of as many pods without holds.

Times are the log's, of both, and begin together: with the plan's commit, or with the first request to evict. So the n-th pod that
has landed is beside the n-th successor that is ready.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import msgspec

from restow.cli.demo.observer import Observer
from restow.cli.embedded import configs
from restow.cli.embedded.stack import Stack
from restow.contracts import events as e
from restow.contracts import times
from restow.contracts.codec import decode
from restow.domain.config import MigrationConfig
from restow.domain.records import Step
from restow.kubesim.nodes import NodeShape, build_node

from .api import GIB, NAMESPACE, PATIENCE, PODS, together
from .table import Row, Size, percentile

TITLE = "hundreds of migrations in one plan: planned → landed (30 ms of it are the kubelet's start)"
BASELINE = (
    "the same pods evicted at once, without holds; the same scheduler places their successors: until they are ready, wherever they are"
)
SIZES = {Size.FULL: ((100, 300, 600), 3), Size.QUICK: ((100, 300), 1), Size.SMOKE: ((12,), 1)}
"""Migrations of a plan; how often each is carried out. Printed are medians."""
PER_SOURCE = 6
"""Pods of 1 CPU on a source of 16, as many on a target, which is half full."""
WIDE = "  perNode: 1000\n"
REPLICA_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
GOAL, LIMITED = 80.0, 60.0
"""Landed a second, at least, however many there are, with wide and with default limits: 15 and 20 % below the lowest medians of a run in
which others used half of the machine (94 to 110, and 75 to 79)."""


class Round(msgspec.Struct):
    """Of one plan, or of one round of evictions; milliseconds. `ends`: when each was ready since the beginning; `away`: how long a
    pod was missing, the mean; `there`: percent that are on nodes which the plan wanted."""

    ends: list[int]
    away: float
    there: float

    @property
    def rate(self) -> float:
        return len(self.ends) * 1e3 / max(*self.ends, 1)


async def measure(size: Size) -> list[Row]:
    counts, rounds = SIZES[size]
    rows: list[Row] = []
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            async with _World(Path(folder), count) as world:
                await world.round(world.migrate)  # not counted: all processes are warm
                ours, theirs = [], []
                for _ in range(rounds):
                    ours.append(await world.round(world.migrate))
                    theirs.append(await world.round(world.evict))
                await world.limit()
                limited = [await world.round(world.migrate) for _ in range(rounds)]
        rows += _rows(count, ours, theirs, limited, size)
    return rows


def _rows(count: int, ours: list[Round], theirs: list[Round], limited: list[Round], size: Size) -> list[Row]:
    def pair(what: str, unit: str, of: Callable[[Round], float], goal: float | None = None) -> Row:
        return Row(what, median(map(of, ours)), unit, baseline=median(map(of, theirs)), goal=goal)

    goal, limited_goal = (GOAL, LIMITED) if size is Size.FULL else (None, None)
    return [
        pair(f"{count} at once, landed", "pods/s", lambda r: r.rate, goal),
        pair("  p50", "ms", lambda r: percentile(r.ends, 50)),
        pair("  p99", "ms", lambda r: percentile(r.ends, 99)),
        pair("  a pod is missing for, mean", "ms", lambda r: r.away),
        pair("  on nodes that the plan wanted", "%", lambda r: r.there),
        Row("  default limits (50 at once), landed", median(r.rate for r in limited), "pods/s", goal=limited_goal),
        Row("    p50", median(percentile(r.ends, 50) for r in limited), "ms"),
        Row("    p99", median(percentile(r.ends, 99) for r in limited), "ms"),
        Row("    a pod is missing for, mean", median(r.away for r in limited), "ms"),
    ]


class _World:
    """Sources that are to be emptied, and targets that are half full, on the whole embedded stack."""

    def __init__(self, folder: Path, count: int) -> None:
        self._count, self._nodes = count, -(-count // PER_SOURCE)
        self._policy = folder / "policy.yaml"
        self._policy.write_text(configs.policy(resource="cpu", concurrent=1000) + WIDE)
        self._stack = Stack(folder / "stack", policy=self._policy, scheduler=configs.scheduler(), log_level="warning")
        self._names = [f"mover-{i:03d}" for i in range(self._nodes)]

    async def __aenter__(self) -> "_World":
        await self._stack.__aenter__()
        self._log = await Observer(self._stack.nats, self._stack.cluster).__aenter__()
        connector = aiohttp.TCPConnector(limit=64)
        self._session = aiohttp.ClientSession(self._stack.kube, connector=connector)
        await self._call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        shapes = [NodeShape(f"{role}-{i:03d}", 16_000, 64 * GIB, labels={"role": role}) for role in ("source", "target") for i in range(self._nodes)]
        await together([partial(self._call, "POST", "/api/v1/nodes", build_node(s, number=i)) for i, s in enumerate(shapes)])
        await self._call("POST", REPLICA_SETS, _replica_set("filler", self._nodes, "8", "target"))
        await self._log.until("the pods that receive", lambda: self._log.running() == self._nodes, PATIENCE)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._log.__aexit__()
        await self._stack.__aexit__()

    async def limit(self) -> None:
        """The default limits from now on."""
        self._policy.write_text(configs.policy(resource="cpu"))
        await self._log.until("the limits", lambda: self._log.state.migration_config.concurrent == MigrationConfig().concurrent, PATIENCE)

    async def round(self, act: Callable[[], Any]) -> Round:
        """Pods that run on the sources alone, what is done to them, and how it went; then they are gone."""
        await self._open_targets(False)
        await together([partial(self._call, "POST", REPLICA_SETS, _replica_set(n, self._left(i), "1")) for i, n in enumerate(self._names)])
        await self._log.until("the pods to be moved", lambda: self._ready() == self._count, PATIENCE)
        await self._open_targets(True)
        before = set(self._movers())
        since = await self._log.log.tail() + 1
        began = await act()
        await self._log.until("all to be ready again", lambda: self._ready() == self._count == len(self._movers()), PATIENCE)
        there = sum(self._log.state.pods[uid].live.node.startswith("target") for uid in self._movers())
        found = await self._read(since, began, before)
        await together([partial(self._call, "DELETE", f"{REPLICA_SETS}/{name}?propagationPolicy=Background") for name in self._names])
        state = self._log.state
        await self._log.until("the pods to be gone", lambda: not self._movers() and not self._log.holds() and not state.reservations, PATIENCE)
        return Round(*found, there * 100 / self._count)

    async def migrate(self) -> int:
        """Milliseconds of the plan's commit."""
        plan = await self._planned()
        await self._log.until("the plan to be carried out", lambda: self._log.finished(plan), PATIENCE)
        steps = [m.step for m in self._log.state.migrations.values() if m.plan == plan]
        if steps != [Step.LANDED] * self._count:
            raise AssertionError(f"{self._count} migrations should have landed, but there are {len(steps)}: {sorted(map(str, set(steps)))}")
        return self._log.state.plans[plan].at  # type: ignore[index]

    async def _planned(self) -> str:
        """The descheduler folds for itself, and may know later than we do that all can go: a dry run says so."""
        url = f"{self._stack.http('descheduler')}/defragment"
        for dry in ("?dryRun=true", ""):
            deadline = time.monotonic() + PATIENCE
            while True:
                async with self._session.post(url + dry, json={"trigger": "bench"}, headers=self._stack.authorization) as answer:
                    said = await answer.json()
                moves = sum(len(event.get("moves", ())) for event in said.get("events", ()))
                if answer.status == 200 and moves == self._count:
                    break
                if not dry or time.monotonic() > deadline:
                    raise RuntimeError(f"{moves} moves are planned, not {self._count}: {answer.status} {str(said)[:300]}")
        return said["plan"]

    async def evict(self) -> int:
        """Milliseconds of the first request."""
        began, state, movers = int(time.time() * 1000), self._log.state, self._movers()
        await together([partial(self._call, "POST", f"{PODS}/{name}/eviction", _eviction(name)) for name in movers.values()])
        await self._log.until("all to be evicted", lambda: not any(u in state.pods and not state.pods[u].live.deleting for u in movers), PATIENCE)
        return began

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _left(self, i: int) -> int:
        return min(PER_SOURCE, self._count - i * PER_SOURCE)

    def _movers(self) -> dict[str, str]:
        """uid → name."""
        return {uid: pod.fact.name for uid, pod in self._log.state.pods.items() if pod.fact.name.startswith("mover")}

    def _ready(self) -> int:
        pods = self._log.state.pods
        return sum((live := pods[uid].live).ready and not live.deleting for uid in self._movers())  # type: ignore[index]

    async def _open_targets(self, opened: bool) -> None:
        nodes = self._log.state.nodes
        names = [f"target-{i:03d}" for i in range(self._nodes)]
        body = {"spec": {"unschedulable": None if opened else True}}
        await together([partial(self._call, "PATCH", f"/api/v1/nodes/{name}", body) for name in names])
        await self._log.until("the targets' change", lambda: all(nodes[n].unschedulable is not opened for n in names), PATIENCE)  # type: ignore[index]

    async def _read(self, since: int, began: int, before: set[str]) -> tuple[list[int], float]:
        """When each of the new pods was ready, and for how long one was missing: whose successor is whose says nobody, but the mean
        needs not know it."""
        ready: dict[str, int] = {}
        landed: dict[str, int] = {}
        deleted: dict[str, int] = {}
        tail = await self._log.log.tail()
        async for batch in self._log.log.read(since):
            for record in batch:
                at = times.stamped(record.envelope.time)
                for event in (event for decision in decode(record.body) for event in decision.events):
                    match event:
                        case e.PodGone(pod=pod) if pod in before:
                            deleted.setdefault(pod, at)
                        case e.PodChanged(pod=pod, deleting=deleting) if pod in before and deleting:
                            deleted.setdefault(pod, at)
                        case e.PodChanged(pod=pod, ready=is_ready) if pod not in before and is_ready:
                            ready.setdefault(pod, at)
                        case e.Landed(pod=pod):
                            landed[pod] = at
            if batch[-1].seq >= tail:
                break
        if len(ready) != self._count or len(deleted) != self._count:
            raise AssertionError(f"{len(deleted)} pods went and {len(ready)} came; both should be {self._count}")
        return sorted(at - began for at in (landed or ready).values()), (sum(ready.values()) - sum(deleted.values())) / self._count

    async def _call(self, method: str, path: str, body: Any = None) -> None:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else msgspec.json.encode(body)
        async with self._session.request(method, path, data=data, headers={"Content-Type": kind}) as answer:
            if answer.status not in (200, 201, 202):
                raise RuntimeError(f"{method} {path}: {answer.status} {await answer.text()}")
            await answer.read()


def _eviction(name: str) -> Any:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}


def _replica_set(name: str, replicas: int, cpu: str, role: str = "") -> Any:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}
    spec: dict[str, Any] = {"schedulerName": "restow", "terminationGracePeriodSeconds": 5, "containers": [container]}
    if role:
        spec["nodeSelector"] = {"role": role}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": body}
