"""Restow and the stock kube-scheduler in turn on one kube-apiserver: the same nodes, the same pods, one user who creates and watches them. And a client that
binds what it sees, for what the two writes alone take (`binder`).

Each runs in its own turns only; what the other has bound is deleted before. `KUBEBUILDER_ASSETS` names the folder with etcd, kube-apiserver and
kube-scheduler (`make bench-kubernetes` builds it). No controllers and no kubelets run: a pod is at its end once it is bound.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from restow.cli.embedded import configs
from restow.cli.embedded.stack import Stack
from restow.kubesim.nodes import NodeShape, build_node

from . import binder
from .api import GIB, NAMESPACE, PODS, Api, together
from .burst import burst
from .latency import RATE, arrivals
from .table import Row, Size, median, percentile, progress

sys.path.insert(0, str(Path(__file__).parents[1]))  # The lab is of the tests on a real control plane, which find each other so.

from kubernetes.lab import Lab, assets

TITLE = "on a real kube-apiserver, in turn with the stock kube-scheduler"
BASELINE = "kube-scheduler, with 5,000 requests a second allowed (by default it may make 50)"
SIZES = {Size.FULL: (1_000, 5_000, 600, 3), Size.QUICK: (1_000, 1_000, 120, 1), Size.SMOKE: (10, 20, 10, 1)}
"""Nodes, pods of the burst, pods that come one after another, and turns of each."""
QPS = 5_000
THROUGHPUT, WAIT, P50, P99, SPENT = 1.15, 1.5, 5.0, 10.0, 6.0
"""Goals: at least so many times its pods a second; at most so many times its p50 in the burst; ms from created to bound; CPU seconds of a burst."""


class Turn(msgspec.Struct):
    """One turn of one scheduler. `spent`: CPU seconds of the burst, by process; `burst` and `single`: ms from sent to seen bound, sorted by nothing."""

    rate: float
    burst: list[float]
    single: list[float]
    spent: dict[str, float]


Processes = Callable[[], dict[str, int]]


class Bench:
    def __init__(self, lab: Lab, api: Api, size: Size) -> None:
        self.lab, self.api = lab, api
        self.nodes, self.pods, self.few, self.turns = SIZES[size]

    async def prepare(self) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await self.api.create("/api/v1/namespaces", msgspec.json.encode(namespace))
        nodes = [build_node(NodeShape(f"node-{i:05d}", 32_000, 128 * GIB), number=i) for i in range(self.nodes)]
        await together([partial(self._join, node) for node in nodes])

    async def _join(self, node: dict[str, Any]) -> None:
        """Admission marks every new node as not ready, until a controller that does not run here looks at its status."""
        await self.api.create("/api/v1/nodes", msgspec.json.encode(node))
        await self.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", b'{"spec": {"taints": null}}')

    async def turn(self, scheduler: str, processes: Processes) -> Turn:
        await burst(self.api, "warm", scheduler, max(10, self.pods // 50))
        before = _seconds(processes())
        rate, waits = await burst(self.api, "burst", scheduler, self.pods)
        spent = _seconds(processes())
        single = await arrivals(self.api, "single", scheduler, self.few)
        await self._emptied()
        return Turn(rate, waits, single, {name: spent[name] - before[name] for name in spent})

    async def floor(self, lab: Lab) -> list[float]:
        """Of pods that come one after another, and that `binder` binds: ms from sent to seen bound."""
        known = {"URL": lab.target.url, "AUTHORIZATION": lab.target.headers["Authorization"], "NODES": str(self.nodes)}
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", binder.__name__, cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE,
            env=os.environ | {f"RESTOW_BENCH_{name}": value for name, value in known.items()},
        )  # fmt: skip
        try:
            assert child.stdout is not None
            if await child.stdout.readline() != b"ready\n":
                raise RuntimeError("the client that only binds has ended")
            await arrivals(self.api, "first", binder.NAME, max(5, self.few // 20))
            single = await arrivals(self.api, "single", binder.NAME, self.few)
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()
        await self._emptied()
        return single

    async def _emptied(self) -> None:
        """Bound pods of which no kubelet knows go at once with a grace period of none."""
        await self.api.delete(PODS)
        while await self.api.some(PODS):
            await asyncio.sleep(0.1)


def _seconds(pids: dict[str, int]) -> dict[str, float]:
    """CPU seconds of each process so far."""
    tick, spent = os.sysconf("SC_CLK_TCK"), dict[str, float]()
    for name, pid in pids.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent[name] = (int(fields[11]) + int(fields[12])) / tick
    return spent


async def measure(size: Size) -> list[Row]:
    found, why = assets()
    if found is None:
        raise RuntimeError(why)
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(found, Path(folder), durable=True)
        try:
            lab.start(controllers=False, scheduler=False)
            connector = aiohttp.TCPConnector(limit=64, ssl=lab.target.ssl)
            async with aiohttp.ClientSession(connector=connector, headers=lab.target.headers) as session:
                bench = Bench(lab, Api(lab.target.url, session), size)
                await bench.prepare()
                theirs: list[Turn] = []
                ours: list[Turn] = []
                floors: list[list[float]] = []
                for i in range(bench.turns):
                    progress(f"only binding, turn {i + 1} of {bench.turns}")
                    floors.append(await bench.floor(lab))
                    for who, turns, name in ((_stock, theirs, "default-scheduler"), (_restow, ours, "restow")):
                        progress(f"{name}, turn {i + 1} of {bench.turns}")
                        async with who(lab, bench) as processes:
                            turns.append(await bench.turn(name, processes))
        finally:
            lab.close()
    return _rows(bench, ours, theirs, floors, size)


@asynccontextmanager
async def _stock(lab: Lab, bench: Bench) -> AsyncIterator[Processes]:
    await asyncio.to_thread(lab.start_scheduler, qps=QPS)
    try:
        yield lambda: {"kube-scheduler": lab.pid("scheduler"), "kube-apiserver": lab.pid("api"), "etcd": lab.pid("etcd")}
    finally:
        await asyncio.to_thread(lab.stop, "scheduler")


@asynccontextmanager
async def _restow(lab: Lab, bench: Bench) -> AsyncIterator[Processes]:
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(
            Path(folder) / "stack", policy=configs.policy(), scheduler=configs.scheduler(), log_level="warning", kube=str(lab.work / "kubeconfig")
        )
        async with stack:
            yield lambda: {
                **{name: child.pid for name, child in stack.children.items() if child.pid is not None},
                **({"nats-server": stack.broker_pid} if stack.broker_pid else {}), "kube-apiserver": lab.pid("api"), "etcd": lab.pid("etcd"),
            }  # fmt: skip


SHARED = ("kube-apiserver", "etcd")
"""What both of them use."""


def _rows(bench: Bench, ours: list[Turn], theirs: list[Turn], floors: list[list[float]], size: Size) -> list[Row]:
    full, rows = size is Size.FULL, []

    def row(what: str, unit: str, of: Callable[[Turn], float], goal: Callable[[float], float] | None = None) -> None:
        mine, other = median(of(turn) for turn in ours), median(of(turn) for turn in theirs)
        rows.append(Row(what, mine, unit, baseline=other, goal=goal(other) if full and goal else None))

    row(f"burst: {bench.pods:,} pods, {bench.nodes:,} nodes", "pods/s", lambda turn: turn.rate, lambda other: other * THROUGHPUT)
    row("  sent → seen bound, p50", "ms", lambda turn: percentile(turn.burst, 50), lambda other: other * WAIT)
    row("  sent → seen bound, p99", "ms", lambda turn: percentile(turn.burst, 99))
    row("  CPU of the scheduler's processes", "s", _own, lambda other: SPENT)
    row("  CPU of API server and etcd", "s", lambda turn: sum(turn.spent[name] for name in SHARED))
    for name in sorted({name for turn in ours for name in turn.spent} - set(SHARED)):
        rows.append(Row(f"    of it {name}", median(turn.spent.get(name, 0.0) for turn in ours), "s"))
    row(f"{RATE} pods/s: sent → seen bound, p50", "ms", lambda turn: percentile(turn.single, 50), lambda other: P50)
    row("  p99", "ms", lambda turn: percentile(turn.single, 99), lambda other: P99)
    for percent in (50, 99):
        rows.append(Row(f"    of it without a scheduler, p{percent}", median(percentile(floor, percent) for floor in floors), "ms"))
    return rows


def _own(turn: Turn) -> float:
    return sum(seconds for name, seconds in turn.spent.items() if name not in SHARED)
