"""Plays a scenario against the Kubernetes API, as fast as the stack keeps up."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import aiohttp

from restow.cli.demo.observer import Observer
from restow.cli.demo.scenario import NAMESPACE, Scenario, Step, replica_set
from restow.kubesim.nodes import NodeShape, build_node

AHEAD = 256
"""Workloads that may be on the way to a node at once; the next ones wait for these."""

KEEP_UP = 60.0
"""Seconds in which the stack must take in what is ahead."""

REQUESTS = 24
"""API requests under way at once."""

REPLICA_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"


class ApiFailed(RuntimeError):
    """The API refused something that the demo needs. Carries its message."""


class Api:
    """The few calls that a user with kubectl would make."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> "Api":
        connector = aiohttp.TCPConnector(limit=REQUESTS)
        self._session = aiohttp.ClientSession(self._url, connector=connector, timeout=aiohttp.ClientTimeout(total=60))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def create(self, path: str, body: Any) -> None:
        async with self._session.post(path, json=body) as answer:
            if answer.status not in (200, 201):
                raise ApiFailed(f"POST {path}: {answer.status} {await answer.text()}")

    async def delete(self, path: str) -> None:
        async with self._session.delete(path, params={"propagationPolicy": "Background"}) as answer:
            if answer.status not in (200, 202, 404):
                raise ApiFailed(f"DELETE {path}: {answer.status} {await answer.text()}")

    async def list(self, path: str) -> list[Any]:
        async with self._session.get(path) as answer:
            if answer.status != 200:
                raise ApiFailed(f"GET {path}: {answer.status} {await answer.text()}")
            return (await answer.json())["items"]


async def together(calls: Iterable[Callable[[], Any]]) -> None:
    """All of these, REQUESTS at a time; the first failure ends it."""
    pending = iter(calls)

    async def work() -> None:
        for call in pending:
            await call()

    async with asyncio.TaskGroup() as group:
        for _ in range(REQUESTS):
            group.create_task(work())


async def create_nodes(api: Api, scenario: Scenario) -> None:
    """One after the other, for their order is a part of what is played."""
    for i, n in enumerate(scenario.nodes):
        await api.create("/api/v1/nodes", build_node(NodeShape(n.name, n.cpu, n.memory, gpus=n.gpus, gpu_model=n.model), number=i))


class Feed:
    """Its pods are placed by `scheduler`. `arrived` and `finished` count what was asked of the API so far; `alive` are the workloads that should run."""

    def __init__(self, api: Api, observer: Observer, scheduler: str, ahead: int = AHEAD, keep_up: float = KEEP_UP) -> None:
        self._api, self._observer, self._scheduler, self._ahead, self._keep_up = api, observer, scheduler, ahead, keep_up
        self.arrived = 0
        self.finished = 0
        self.alive: set[str] = set()

    async def open(self) -> None:
        """Before anything is played."""
        await self._api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    async def play_in_order(self, steps: Iterable[Step]) -> None:
        """So that equal steps lead to equal placements, however fast the machine is: workloads arrive one after the other, and one finishes when everybody
        before has a node, or has been looked at in vain, for who waits takes what comes free first."""
        after: Step | None = None
        for step in steps:
            if step.arrive and (after is None or after.arrive):
                await self._observer.until("the stack to keep up", self._has_space, self._keep_up)
            else:
                await self._observer.until("the stack to rest", self._rests, self._keep_up)
            await self._asks(step)
            after = step

    async def play(self, steps: Iterable[Step], pause: float = 0.0) -> None:
        """As fast as the stack keeps up. `pause`: seconds from one step to the next at least."""
        made: dict[str, asyncio.Task[None]] = {}
        slots = asyncio.Semaphore(REQUESTS)
        async with asyncio.TaskGroup() as group:
            began = asyncio.get_running_loop().time()
            for number, step in enumerate(steps):
                if pause:
                    await asyncio.sleep(began + number * pause - asyncio.get_running_loop().time())
                await self._observer.until("the stack to keep up", self._has_space, self._keep_up)
                await slots.acquire()
                name = step.workload.name
                task = group.create_task(_one(self._asks(step), slots, None if step.arrive else made.pop(name)))
                if step.arrive:
                    made[name] = task

    def _asks(self, step: Step) -> Awaitable[None]:
        """The request that plays it, counted as asked."""
        name = step.workload.name
        if step.arrive:
            self.arrived += 1
            self.alive.add(name)
            return self._api.create(REPLICA_SETS, replica_set(step.workload, self._scheduler))
        self.finished += 1
        self.alive.discard(name)
        return self._api.delete(f"{REPLICA_SETS}/{name}")

    def _rests(self) -> bool:
        """Every workload has its pod, nobody else has one, and the session has nothing to decide."""
        return len(self._observer.state.pods) == len(self.alive) and self._observer.rests()

    def _has_space(self) -> bool:
        return self.arrived - self._observer.arrived() + self._observer.undecided() < self._ahead


async def _one(call: Any, slots: asyncio.Semaphore, after: asyncio.Task[None] | None) -> None:
    try:
        if after is not None:
            await asyncio.wait([after])
        await call
    finally:
        slots.release()
