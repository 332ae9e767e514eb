"""Something that leads dies, hangs or is drained, while pods arrive. When is the next decision in the log?

Three brokers, an API, and two of each service that is looked at, all of them real processes. What is measured is the broker's time of the record, less the time at
which the victim was gone: nothing that observes is in between.
"""

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from restow.cli.embedded import configs
from restow.cli.embedded.child import Child
from restow.cli.embedded.shipped import crds, others
from restow.contracts.ids import Family
from restow.domain.state import ClusterState
from restow.eventlog.jetstream import connect
from restow.eventlog.port import Record, Unavailable
from restow.eventlog.server import NatsServer
from restow.eventlog.testing import running_brokers
from restow.kubesim.nodes import NodeShape, build_node
from restow.runtime.follower import Follower

from .api import GIB, NAMESPACE, PODS, Api, pod
from .table import Row, Size, percentile

TITLE = "what leads dies, hangs or is drained: time until the next decision, pods arriving"
BASELINE = "kube-scheduler's and most operators' Lease of 15 s (client-go's defaults: 15 s, 10 s, 2 s) bounds the same from below; not measured here"
GOAL = 3_000.0
RATE = 10
"""Pods a second."""
REPEATS = {Size.FULL: 20, Size.QUICK: 5, Size.SMOKE: 1}
PATIENCE = 120.0
CLUSTER = "failover"
_LEADS = re.compile(rb'"type": ?"(lead|configure)"')
"""What a new leader says of itself, before it decides anything."""
SERVICES: dict[str, Family] = {"cluster_watcher": "cluster", "scheduler_session": "session"}  # type: ignore[dict-item]


class World:
    """`records`: of each family the newest record that decides something, as the log has it."""

    def __init__(self, folder: Path, brokers: list[NatsServer]) -> None:
        self.folder, self.brokers = folder, brokers
        self.children: dict[str, Child] = {}
        self.state = ClusterState()
        self.kube = ""
        self._records: dict[str, list[Record]] = {family: [] for family in SERVICES.values()}
        self._arrived = asyncio.Event()

    @property
    def urls(self) -> list[str]:
        return [broker.url for broker in self.brokers]

    @asynccontextmanager
    async def up(self) -> AsyncIterator["World"]:
        try:
            await self._start_api()
            log = await connect(self.urls, CLUSTER, replicas=len(self.brokers), wait=60.0)
            follower = Follower(log, "", self.state)  # type: ignore[arg-type]
            follower.arrived = self._note
            following = asyncio.create_task(follower.run())
            self.log = log
            async with asyncio.timeout(PATIENCE):
                for name in SERVICES:
                    await asyncio.gather(*(self._start(name, number) for number in range(2)))
            try:
                yield self
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                await log.close()
        finally:
            await asyncio.gather(*(child.stop() for child in self.children.values()))

    def _note(self, record: Record) -> None:
        if record.family in self._records and not _LEADS.search(record.body[:200]):
            self._records[record.family].append(record)
            self._arrived.set()

    async def _start_api(self) -> None:
        port, nodes = self.folder / "kubesim.port", self.folder / "nodes.json"
        items = [build_node(NodeShape(f"node-{i}", 96_000, 512 * GIB), number=i) for i in range(50)]
        nodes.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "NodeList", "items": items}))
        argv = [sys.executable, "-m", "restow.kubesim.main", "--port", "0", "--port-file", str(port), "--nodes-from", str(nodes)]
        for path in [*crds(), *others()]:
            argv += ["--apply", str(path)]
        child = self.children["kubesim"] = Child("kubesim", argv, self.folder / "kubesim.log", {})
        await child.start()
        async with asyncio.timeout(PATIENCE):
            while not (port.exists() and port.read_text()):
                await asyncio.sleep(0.05)
        self.kube = f"http://127.0.0.1:{port.read_text().strip()}"
        async with aiohttp.ClientSession() as session:
            for name in ("restow-system", NAMESPACE):
                await Api(self.kube, session).create("/api/v1/namespaces", msgspec.json.encode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))

    async def _start(self, name: str, number: int) -> None:
        config = self.folder / f"{name}.yaml"
        config.write_text(configs.scheduler() if name == "scheduler_session" else "")
        identity = f"{name}-{number}"
        environment = {
            "RESTOW_CLUSTER": CLUSTER, "RESTOW_NATS_URL": ",".join(self.urls), "RESTOW_NATS_REPLICAS": str(len(self.brokers)), "RESTOW_KUBE": self.kube,
            "RESTOW_HTTP": "127.0.0.1:0", "RESTOW_HTTP_FILE": str(self._http(identity)), "RESTOW_LOG_LEVEL": "info", "RESTOW_IDENTITY": identity,
            "RESTOW_LEASE": "on", "RESTOW_CONFIG": str(config) if name == "scheduler_session" else "",
        }
        child = Child(identity, [sys.executable, "-m", "restow.runtime.main", name], self.folder / f"{identity}.log", environment, restart=True)
        self.children[identity] = child
        await child.start()
        await self.ready(identity)

    def _http(self, identity: str) -> Path:
        return self.folder / f"{identity}.http"

    async def ready(self, identity: str) -> None:
        """Until it says so, under the address that its present process has written."""
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while True:
                try:
                    address = self._http(identity).read_text().strip()
                    async with session.get(f"{address if address.startswith('http') else f'http://{address}'}/readyz") as answer:
                        if answer.status == 200:
                            return
                except (OSError, aiohttp.ClientError, TimeoutError):
                    pass
                await asyncio.sleep(0.05)

    def leader(self, name: str) -> str:
        return self.state.leaders[SERVICES[name]].holder.partition("/")[0]

    async def brokers_leader(self) -> NatsServer:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    info = await self.log.broker.api(f"STREAM.INFO.restow-{CLUSTER}")
                except Unavailable:
                    continue
                others = info["cluster"].get("replicas") or []
                if info["cluster"].get("leader") and len(others) == len(self.brokers) - 1 and all(other.get("current") for other in others):
                    return self.brokers[int(info["cluster"]["leader"][1:])]
                await asyncio.sleep(0.1)

    async def next_decision(self, family: Family, gone: int, but: str = "") -> float:
        """Milliseconds from `gone` (ns) to the first decision that was stored later. `but`: not by this process."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for record in self._records[family]:
                    if record.time > gone and not (but and f"/{but}/" in f"{record.envelope.source}/"):
                        return (record.time - gone) / 1e6
                self._arrived.clear()
                await self._arrived.wait()


async def measure(size: Size) -> list[Row]:
    repeats = REPEATS[size]
    rows = []
    with tempfile.TemporaryDirectory() as folder, running_brokers(3) as brokers:
        async with World(Path(folder), brokers).up() as world, aiohttp.ClientSession() as session:
            api = Api(world.kube, session)
            arriving = asyncio.create_task(_pods(api))
            try:
                for what, kill in _kills(world, size):
                    took = [await kill() for _ in range(repeats)]
                    goal = GOAL if size is Size.FULL else None
                    rows += [Row(f"{what}, p50", percentile(took, 50), "ms"), Row(f"{what}, p99", percentile(took, 99), "ms", goal=goal)]
                    print(what, json.dumps([round(one) for one in took]), file=sys.stderr, flush=True)
                    if arriving.done():
                        arriving.result()
            finally:
                arriving.cancel()
                await asyncio.gather(arriving, return_exceptions=True)
    return rows


def _kills(world: World, size: Size) -> list[tuple[str, Callable[[], Awaitable[float]]]]:
    found = [
        ("session killed", lambda: _service(world, "scheduler_session", signal.SIGKILL)),
        ("broker's leader killed", lambda: _broker(world, signal.SIGKILL)),
    ]
    return found if size is Size.SMOKE else [
        *found,
        ("session hangs", lambda: _service(world, "scheduler_session", signal.SIGSTOP)),
        ("session drained", lambda: _service(world, "scheduler_session", signal.SIGTERM)),
        ("watcher killed", lambda: _service(world, "cluster_watcher", signal.SIGKILL)),
        ("broker's leader drained", lambda: _broker(world, signal.SIGTERM)),
    ]  # fmt: skip


async def _pods(api: Api) -> None:
    """For as long as it is not cancelled; each goes when it has been there for ten seconds."""
    number, began = 0, time.perf_counter()
    while True:
        await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        await api.create(PODS, pod(f"p-{number:06d}", "restow", "10m"))
        if number >= 10 * RATE:
            await api.delete(f"{PODS}/p-{number - 10 * RATE:06d}")
        number += 1


async def _service(world: World, name: str, how: signal.Signals) -> float:
    leader = world.leader(name)
    child = world.children[leader]
    pid, restarts = child.pid, child.restarts
    assert pid is not None
    world._http(leader).unlink(missing_ok=True)
    gone = time.time_ns()
    if how is signal.SIGKILL:
        child.kill()
        gone = time.time_ns()
    else:
        os.kill(pid, how)
    # One that is drained decides on until it lets go, so its successor's first decision may come after its own last one. One that was killed is started
    # again, and on a quiet machine it is there, under the same name, before its Lease has ended: then its next decision is the next one.
    took = await world.next_decision(SERVICES[name], gone, but="" if how is signal.SIGKILL else leader)
    if how is signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)
    async with asyncio.timeout(PATIENCE):
        while child.restarts == restarts:
            await asyncio.sleep(0.05)
    await world.ready(leader)
    return took


async def _broker(world: World, how: signal.Signals) -> float:
    broker = await world.brokers_leader()
    await asyncio.to_thread(broker.kill if how is signal.SIGKILL else broker.stop)
    took = await world.next_decision(SERVICES["scheduler_session"], time.time_ns())
    await asyncio.to_thread(broker.start)
    await world.brokers_leader()
    return took
