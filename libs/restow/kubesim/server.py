"""A running kubesim: the HTTP server around a cluster, with or without controllers."""

from __future__ import annotations

import asyncio
import importlib
import logging
import random
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from aiohttp import web

from restow.kubesim.api import MAX_BODY, Api
from restow.kubesim.cluster import Cluster, Options
from restow.kubesim.store import utc_now

log = logging.getLogger(__name__)


_BUDGET_DELAY = 0.01


class Server:
    """`start` binds the port; `url` is then where it answers; `stop` ends watches and closes."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        controllers: bool = False,
        kubelet_speed: float = 1.0,
        options: Options | None = None,
        clock: Callable[[], datetime] = utc_now,
        rng: random.Random | None = None,
        seed: int | None = None,
        metrics_server: bool = False,
        turns: Callable[[], float] = time.perf_counter,
    ):
        """`turns`: the clock that bounds the controllers' turns."""
        self.host = host
        self.port = port
        self._with_controllers = controllers
        self._kubelet_speed = kubelet_speed
        self._turns = turns
        self._runner: web.ServerRunner | None = None
        self._controllers: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.cluster = Cluster(options=options, clock=clock, rng=rng, seed=seed, soon=self._soon, later=self._later)
        if metrics_server:
            self.cluster.metrics.on()

    def _soon(self, work: Callable[[], None]) -> None:
        if self._loop is None:
            work()
        else:
            self._loop.call_soon(work)

    def _later(self, work: Callable[[], None]) -> None:
        # Budgets look at all pods of their namespace, so bursts of changes are taken together.
        if self._loop is None:
            work()
        else:
            self._loop.call_later(_BUDGET_DELAY, work)

    @property
    def controllers(self) -> Any:
        """What runs beside the API while it is up (`controllers.Running`), else None."""
        return self._controllers

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises OSError where the port is taken."""
        self._loop = asyncio.get_running_loop()
        api = Api(self.cluster)
        server = web.Server(api.handle, request_factory=_request, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]
        if self._with_controllers:
            module = importlib.import_module("restow.kubesim.controllers")
            self._controllers = module.start(
                self.cluster.store, self._loop, kubelet_speed=self._kubelet_speed, clock=self._turns
            )
            runtime = self._controllers.runtime
            self.cluster.namespaces.later = partial(runtime.timers.after, runtime.timings.namespace)

    async def stop(self) -> None:
        """End all watches and stop listening; safe to call twice."""
        self.cluster.stopping = True
        if self._controllers is not None:
            self._controllers.close()
            self._controllers = None
        for watcher in self.cluster.hub.watchers():
            watcher.close()
        await asyncio.sleep(0)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)
