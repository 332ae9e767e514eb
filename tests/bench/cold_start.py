"""A large cluster, a snapshot, and services that start: how soon does each decide, and how much memory does it take?

The log is made the real way: the cluster watcher lists what a real API shows. Nothing here is folded twice."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import msgspec

from restow.cli.demo.observer import Observer
from restow.cli.embedded import configs, shipped, stack
from restow.cli.embedded.stack import Stack
from restow.contracts.ids import SERVICES, PodUid
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION
from restow.eventlog.jetstream import open_snapshots
from restow.eventlog.snapshots import Snapshot

from .api import NAMESPACE, PATIENCE, PODS, Api, pod
from .table import Row, Size, median, progress

TITLE = "cold start: process started → its first decision in the log, from a snapshot"
BASELINE = "the same service without a snapshot: it folds the log (Volcano at this size, known elsewhere: 8 min 17 s)"
SIZES = {Size.HUGE: (15_000, 500_000, 1), Size.FULL: (5_000, 140_000, 3), Size.QUICK: (1_000, 20_000, 1), Size.SMOKE: (10, 40, 1)}
GOALS: dict[Size, tuple[float, float]] = {Size.HUGE: (4.0, 1.0), Size.FULL: (2.0, 1.5)}
"""Seconds until the first decision, and GB of memory."""
FAMILIES = dict(zip(SERVICES, ("cluster", "session", "reservation", "migration", "gc"), strict=True))


class Large(Stack):
    """The embedded stack around an API that has a running cluster from the start."""

    def __init__(self, folder: Path, nodes: int, pods: int) -> None:
        super().__init__(folder, policy=configs.policy(), scheduler=configs.scheduler(), log_level="info")
        self._size = (nodes, pods)

    async def _start_kubesim(self) -> None:
        port_file = self.folder / "run" / "kubesim.port"
        argv = [sys.executable, "-m", f"{__package__}.simulated", "--port-file", str(port_file)]
        argv += ["--nodes", str(self._size[0]), "--pods", str(self._size[1])]
        for path in shipped.crds():
            argv += ["--apply", str(path)]
        child = self._child("kubesim", argv, {}, restart=False)
        await child.start()
        self.kube = f"http://127.0.0.1:{(await self._appears(port_file, child)).strip()}"

    @property
    def stores_snapshots(self) -> str:
        """The address of the broker for the only user that may."""
        return self._broker.address_of("garbage_collector")

    async def start_again(self, *names: str) -> None:
        await asyncio.gather(*(self._start_service(name) for name in names))

    async def end(self, *names: str) -> None:
        await asyncio.gather(*(self.children[name].stop() for name in names))


async def measure(size: Size) -> list[Row]:
    nodes, pods, repeats = SIZES[size]
    patience = PATIENCE * (5 if size is Size.HUGE else 1)
    stack.READY_TIMEOUT = patience
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        large = Large(Path(folder) / "stack", nodes, pods)
        async with large, aiohttp.ClientSession() as session:
            api = Api(large.kube, session)
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await api.create("/api/v1/namespaces", msgspec.json.encode(namespace))
            async with Observer(large.stores_snapshots, large.cluster) as log:
                await log.until("the whole cluster to be in the log", lambda: len(log.state.pods) == pods, patience)
                progress(f"{pods} pods in the log after {time.perf_counter() - started:.0f} s")
                return await _restarts(large, api, log, repeats, size)


async def _restarts(large: Large, api: Api, log: Observer, repeats: int, size: Size) -> list[Row]:
    peak = {name: _peak(large, name) for name in SERVICES}
    await large.end(*SERVICES)
    scratch = await _first_decisions(large, api, log, ["scheduler_session"], "scratch")
    await large.end("scheduler_session")
    snapshots = await open_snapshots(log.log, create=True)
    body = snapshot.dump(log.state)
    await snapshots.put(Snapshot(log.log.log_id, log.state.seq, FOLD_VERSION, body))
    rows: list[Row] = []
    soon, memory = GOALS.get(size, (None, None))
    for name in SERVICES if size is not Size.SMOKE else ("scheduler_session",):
        seconds = []
        for i in range(repeats):
            seconds.append((await _first_decisions(large, api, log, [name], f"{FAMILIES[name]}-{i}"))[name])
            peak[name] = max(peak[name], _peak(large, name))
            await large.end(name)
        baseline = scratch.get(name)
        rows.append(Row(f"{name} alone", median(seconds), "s", baseline=baseline, goal=soon))
    together = await _first_decisions(large, api, log, list(SERVICES), "all")
    for name in SERVICES:
        peak[name] = max(peak[name], _peak(large, name))
    rows.append(Row("all five at once, until the last one", max(together.values()), "s"))
    await large.end(*SERVICES)
    rows.append(Row("all five, a new pod listed and placed", await _listed(large, api, log), "s", goal=soon if size is Size.HUGE else None))
    for name in SERVICES:
        peak[name] = max(peak[name], _peak(large, name))
    rows.append(Row("size of the snapshot", len(body) / 1e6, "MB"))
    rows += [Row(f"peak memory of {name}", peak[name] / 1e9, "GB", goal=memory) for name in SERVICES]
    return rows


async def _listed(large: Large, api: Api, log: Observer) -> float:
    """Seconds from starting all services to the place of a pod that came while none ran: the cluster watcher lists everything first."""
    await api.create(PODS, pod("came-meanwhile", "restow"))
    started = time.perf_counter()
    await large.start_again(*SERVICES)

    def placed() -> bool:
        return any(log.state.pods[uid].fact.name == "came-meanwhile" for uid in log.state.placed)

    await log.until("the pod that came meanwhile to be placed", placed, PATIENCE)
    return time.perf_counter() - started


async def _first_decisions(large: Large, api: Api, log: Observer, names: list[str], mark: str) -> dict[str, float]:
    """Seconds from starting these to what each first decides, as soon as a reader of the log knows it: a pod placed for the
    session (it waits already), leadership for the others (nobody claims it before the state is there)."""
    first: dict[str, float] = {}
    wanted = f"waits-{mark}"
    before = {name: log.state.leaders[FAMILIES[name]].epoch for name in names}

    def look() -> None:
        for name in names:
            leads = log.state.leaders[FAMILIES[name]].epoch > before[name]
            if name not in first and leads and (name != "scheduler_session" or waiting in log.state.placed):
                first[name] = time.perf_counter() - started

    waiting = await _waiting_pod(large, api, log, wanted) if "scheduler_session" in names else None
    started = time.perf_counter()
    await large.start_again(*names)

    def all_decided() -> bool:
        look()
        return len(first) == len(names)

    await log.until(f"the first decision of {', '.join(names)}", all_decided, PATIENCE)
    return first


async def _waiting_pod(large: Large, api: Api, log: Observer, name: str) -> PodUid:
    """A pod that came while no session ran: the watcher says so, and stops again."""
    await api.create(PODS, pod(name, "restow"))
    await large.start_again("cluster_watcher")

    def there() -> list[PodUid]:
        return [uid for uid in log.state.queue if log.state.pods[uid].fact.name == name]

    await log.until("the waiting pod to be in the log", lambda: bool(there()), PATIENCE)
    await large.end("cluster_watcher")
    return there()[0]


def _peak(large: Large, name: str) -> int:
    """Bytes of resident memory at most so far (VmHWM)."""
    pid = large.children[name].pid
    if pid is None:
        return 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0
