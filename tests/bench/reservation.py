"""A Reservation is created; when does a watch show it Available? With none present and with many; and of one that waits for
capacity that is in use (preAllocation), once the capacity is free."""

import asyncio
import tempfile
import time
from functools import partial
from typing import Any

import msgspec

from .api import NAMESPACE, PODS, Api, Seen, bound, stack, together
from .table import Row, Size, percentile

TITLE = "Reservation created → Available through the API"
BASELINE = "none can be run here"
PATH = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{NAMESPACE}/reservations"
SIZES = {Size.FULL: (1_000, 300), Size.QUICK: (1_000, 80), Size.SMOKE: (10, 5)}
RATE = 20
WHOLE_NODE = "31"
"""CPUs of a node's 32."""


def _template(cpu: str, node: str = "") -> dict[str, Any]:
    container = {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}
    spec: dict[str, Any] = {"containers": [container], "restartPolicy": "Never"}
    if node:
        spec |= {"nodeSelector": {"kubernetes.io/hostname": node}}
    return spec


def reservation(name: str, cpu: str = "500m", node: str = "") -> bytes:
    """With a `node`: only there, and also while its capacity is in use."""
    task = {"name": "task", "replicas": 1, "template": {"spec": _template(cpu, node)}}
    spec: dict[str, Any] = {
        "schedulerName": "volcano", "queue": "default", "minAvailable": 1, "ttl": "600s", "tasks": [task],
        "owners": [{"labelSelector": {"matchLabels": {"job": name}}}],
    }  # fmt: skip
    if node:
        spec["preAllocation"] = True
    return msgspec.json.encode(
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name}, "spec": spec}
    )


def occupant(name: str, node: str) -> bytes:
    """A pod that uses what such a Reservation waits for."""
    spec = _template(WHOLE_NODE, node) | {"schedulerName": "restow", "terminationGracePeriodSeconds": 0}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def available(seen: Seen) -> bool:
    return "Available" in (seen.status.phase, seen.status.state.state)


def waiting(seen: Seen) -> bool:
    return "Waiting" in (seen.status.phase, seen.status.state.state)


async def measure(size: Size) -> list[Row]:
    nodes, count = SIZES[size]
    with tempfile.TemporaryDirectory() as folder:
        async with stack(folder, nodes) as (_, api):
            await _request(api, "warm", max(3, count // 20))
            ours = await _request(api, "ours", count)
            await _keep(api, count)
            among = await _request(api, "among", count)
            freed = await _free(api, max(3, count // 10))
    return [
        *_rows(f"{nodes:,} nodes, 20/s", ours, size),
        *_rows(f"{count} others held", among, size),
        *_rows("capacity free, preAllocation", freed, size),
    ]


def _rows(what: str, times: list[float], size: Size) -> list[Row]:
    goal = 50.0 if size is Size.FULL else None
    return [
        Row(f"{what}, p50", percentile(times, 50), "ms"),
        Row(f"{what}, p99", percentile(times, 99), "ms", goal=goal),
    ]


async def _keep(api: Api, count: int) -> None:
    """So many Reservations of others, held from now on."""
    names = [f"kept-{i:04d}" for i in range(count)]
    async with api.watching(PATH, available):
        await together(partial(api.create, PATH, reservation(name)) for name in names)
        await api.reached(names)


async def _free(api: Api, count: int) -> list[float]:
    """Milliseconds from asking for a pod's deletion to seeing the Reservation available that waited for its capacity."""
    pods, names = [f"occupant-{i:03d}" for i in range(count)], [f"waits-{i:03d}" for i in range(count)]
    nodes = [f"node-{i:05d}" for i in range(count)]
    async with api.watching(PODS, bound):
        await together(partial(api.create, PODS, occupant(pod, node)) for pod, node in zip(pods, nodes, strict=True))
        await api.reached(pods)
    async with api.watching(PATH, waiting):
        await together(partial(api.create, PATH, reservation(name, WHOLE_NODE, node)) for name, node in zip(names, nodes, strict=True))
        await api.reached(names)
    sent: dict[str, float] = {}
    async with api.watching(PATH, available):
        for name, pod in zip(names, pods, strict=True):
            sent[name] = time.perf_counter()
            await api.delete(f"{PODS}/{pod}")
            await asyncio.sleep(1 / RATE)
        await api.reached(names)
    return [(api.first[name] - sent[name]) * 1e3 for name in names]


async def _request(api: Api, prefix: str, count: int) -> list[float]:
    sent: dict[str, float] = {}
    names = [f"{prefix}-{i:04d}" for i in range(count)]
    async with api.watching(PATH, available):
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for i, name in enumerate(names):
                await asyncio.sleep(max(0.0, began + i / RATE - time.perf_counter()))
                sent[name] = time.perf_counter()
                group.create_task(api.create(PATH, reservation(name)))
                if i >= 20:
                    group.create_task(api.delete(f"{PATH}/{names[i - 20]}"))
            await api.reached(names)
    return [(api.first[name] - sent[name]) * 1e3 for name in names]
