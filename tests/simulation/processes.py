"""Services under a supervisor: each is started again whenever it ends, as a Deployment's pod is."""

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import aiohttp

from restow.cluster_watcher.service import service as cluster_watcher
from restow.descheduler.service import service as descheduler
from restow.domain.state import ClusterState
from restow.eventlog.port import LogError
from restow.garbage_collector.service import service as garbage_collector
from restow.kube.client import Client, ClientConfig
from restow.reservation_cache.service import service as reservation_cache
from restow.runtime.leadership import Deposed
from restow.runtime.process import Process as ServiceProcess
from restow.runtime.settings import Settings
from restow.scheduler_session.service import service as scheduler_session
from simulation.broker import SimLog, SimSnapshots
from simulation.loop import Process
from simulation.network import Connector

if TYPE_CHECKING:
    from simulation.world import World

SERVICES: dict[str, Callable[[], Any]] = {
    "cluster_watcher": cluster_watcher,
    "scheduler_session": scheduler_session,
    "reservation_cache": reservation_cache,
    "descheduler": descheduler,
    "garbage_collector": garbage_collector,
}
TOKEN = "t" * 32
EXPECTED = (Deposed, LogError)
"""What ends a process by rule: another one leads, or the broker cannot be used."""


class Unit:
    """One replica of one service."""

    def __init__(self, world: "World", name: str, number: int) -> None:
        self.world, self.name, self.number = world, name, number
        self.chance = random.Random(f"unit {world.plan.seed} {name} {number}")
        self.process: Process | None = None
        self.service: ServiceProcess | None = None
        self.skew = 0.0
        self.starts = 0
        self.ends: Counter[str] = Counter()
        self._buried: list[Any] = []

    def start(self) -> None:
        if self.world.over or (self.process is not None and not self.process.dead):
            return
        self.starts += 1
        self.process = process = Process(f"{self.name}-{self.number}.{self.starts}", self.skew)
        process.on_kill = self._killed
        task = self.world.loop.create_task(self._life(), context=process.context())
        self._buried.append((process, task))
        task.add_done_callback(self._ended, context=contextvars.Context())

    async def _life(self) -> None:
        world = self.world
        session = aiohttp.ClientSession(connector=Connector(world.loop), read_bufsize=2**20, cookie_jar=aiohttp.DummyCookieJar())
        given = Settings(
            cluster="sim", kube=world.kube_url, http="127.0.0.1:0", identity=f"{self.name}-{self.number}",
            config=world.configs.get(self.name, ""), api_token=TOKEN, lease=world.plan.lease,
            # Not the default's two: every look at a Lease costs processor time, and what is looked for is the same.
            lease_duration=10,
        )  # fmt: skip
        self.service = ServiceProcess(
            SERVICES[self.name](), given, log=SimLog(world.broker), snapshots=SimSnapshots(world.broker),
            client=Client(world.kube_url, session, ClientConfig(url=world.kube_url)),
        )  # fmt: skip
        self._buried.append(self.service)
        await self.service.life()

    def _killed(self) -> None:
        self.ends["killed"] += 1
        self._again()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        assert self.process is not None
        error = None if task.cancelled() else task.exception()
        self.ends["cancelled" if task.cancelled() else type(error).__name__ if error else "stopped"] += 1
        if not isinstance(error, EXPECTED):
            self.world.crashed(self.process.name, error)
        self.process.dead = True
        for connection in list(self.process.connections):
            connection.reset(by=self.process)
        self._again()

    def _again(self) -> None:
        if not self.world.over:
            self.world.loop.outside(self.chance.uniform(0.3, 2.0), self.start)

    # -- what can be seen ----------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self.process is not None and not self.process.dead

    @property
    def state(self) -> ClusterState | None:
        """What it has folded, while it lives."""
        context = self.service.context if self.alive and self.service is not None else None
        return context.state if context is not None else None

    @property
    def leads(self) -> bool:
        context = self.service.context if self.alive and self.service is not None else None
        return context is not None and context.leadership.leading

    @property
    def forgotten(self) -> list[Any]:
        """What it owes and does not do, while it leads."""
        effector = self.service._effector if self.leads and self.service is not None else None
        return effector.forgotten() if effector is not None else []

    @property
    def address(self) -> str:
        """Of its HTTP server, while it lives."""
        return self.service.server.address if self.alive and self.service is not None else ""
