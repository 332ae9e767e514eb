"""A user of the Kubernetes API: creates, deletes, and watches with a clock in hand."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from restow.cli.embedded import configs
from restow.cli.embedded.stack import Stack
from restow.kubesim.nodes import NodeShape, build_node

NAMESPACE = "bench"
GIB = 1 << 30
PATIENCE = 120.0
"""Seconds that a benchmark waits for one thing."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _State(msgspec.Struct):
    state: str = ""


class _Status(msgspec.Struct):
    phase: str = ""
    state: _State = msgspec.field(default_factory=_State)


class Seen(msgspec.Struct):
    """The part of an object that benchmarks look at."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: Seen


_decode = msgspec.json.Decoder(_Event).decode


class Api:
    """`first` has, per object name, when a watch first showed what was looked for (perf_counter)."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url, self._session = url, session
        self.first: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def create(self, path: str, body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._url + path, data=body, headers=headers) as answer:
            if answer.status not in (200, 201):
                raise RuntimeError(f"POST {path}: {answer.status} {await answer.text()}")
            await answer.read()

    async def patch(self, path: str, body: bytes) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self._session.patch(self._url + path, data=body, headers=headers) as answer:
            if answer.status != 200:
                raise RuntimeError(f"PATCH {path}: {answer.status} {await answer.text()}")
            await answer.read()

    async def some(self, path: str) -> bool:
        """Whether there is any of these."""
        async with self._session.get(self._url + path, params={"limit": "1"}) as answer:
            return bool((await answer.json())["items"])

    async def delete(self, path: str) -> None:
        async with self._session.delete(self._url + path, params={"propagationPolicy": "Background"}) as answer:
            if answer.status not in (200, 202, 404):
                raise RuntimeError(f"DELETE {path}: {answer.status} {await answer.text()}")
            await answer.read()

    @asynccontextmanager
    async def watching(self, path: str, reached: Callable[[Seen], bool]) -> AsyncIterator[None]:
        """While inside, note in `first` when each object is first seen to have `reached` it."""
        self.first.clear()
        begun = asyncio.Event()
        task = asyncio.create_task(self._watch(path, reached, begun))
        try:
            async with asyncio.timeout(10):
                await begun.wait()
            yield
        finally:
            if task.done():
                task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, path: str, reached: Callable[[Seen], bool], begun: asyncio.Event) -> None:
        """For ever. A real API server ends the watch of who does not keep up with it: it is gone on with from there."""
        timeout, params = aiohttp.ClientTimeout(total=None), {"watch": "true"}
        while True:
            async with self._session.get(self._url + path, params=params, timeout=timeout) as answer:
                if answer.status != 200:
                    raise RuntimeError(f"GET {path}: {answer.status} {await answer.text()}")
                begun.set()
                rest = b""
                async for piece in answer.content.iter_any():
                    now = time.perf_counter()
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        event = _decode(line)
                        if event.type == "ERROR":
                            raise RuntimeError(f"watch of {path}: {line.decode()}")
                        seen = event.object
                        params["resourceVersion"] = seen.metadata.resource_version
                        if seen.metadata.name not in self.first and reached(seen):
                            self.first[seen.metadata.name] = now
                    self._changed.set()

    async def reached(self, names: Iterable[str]) -> None:
        """Wait until all of these are in `first`. TimeoutError names one that is not."""
        waiting = list(names)
        deadline = time.perf_counter() + PATIENCE
        while waiting:
            self._changed.clear()
            waiting = [name for name in waiting if name not in self.first]
            if waiting and time.perf_counter() > deadline:
                raise TimeoutError(f"{len(waiting)} objects, such as {waiting[0]}, did not get there within {PATIENCE:g} s")
            if waiting:
                try:
                    await asyncio.wait_for(self._changed.wait(), 1.0)
                except TimeoutError:
                    pass


def bound(seen: Seen) -> bool:
    return bool(seen.spec.node_name)


@asynccontextmanager
async def stack(folder: str, nodes: int, *, gpus: int = 0, policy: str = "") -> AsyncIterator[tuple[Stack, Api]]:
    """The whole embedded stack as real processes, with `nodes` equal nodes known to the session, and a user of its API."""
    path = Path(folder) / "nodes.json"
    items = [build_node(NodeShape(f"node-{i:05d}", 32_000, 128 * GIB, gpus=gpus), number=i) for i in range(nodes)]
    path.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "NodeList", "items": items}))
    running = Stack(
        Path(folder) / "stack", policy=policy or configs.policy(), scheduler=configs.scheduler(), nodes=[path], log_level="warning"
    )
    async with running, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64)) as session:
        api = Api(running.kube, session)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await api.create("/api/v1/namespaces", msgspec.json.encode(namespace))
        yield running, api


PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def pod(name: str, scheduler: str, cpu: str = "500m") -> bytes:
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": cpu, "memory": "512Mi"}}}
    spec = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return msgspec.json.encode(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "bench"}}, "spec": spec}
    )


async def together(calls: Iterable[Callable[[], Any]], limit: int = 32) -> None:
    """All of these, `limit` at a time."""
    pending = iter(calls)

    async def work() -> None:
        for call in pending:
            await call()

    async with asyncio.TaskGroup() as group:
        for _ in range(limit):
            group.create_task(work())
