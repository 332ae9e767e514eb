"""A Reservation is created; when does a watch show it Available?"""

import asyncio
import tempfile
import time

import msgspec

from .api import NAMESPACE, Api, Seen, stack
from .table import Row, Size, percentile

TITLE = "Reservation created → Available through the API"
BASELINE = "none can be run here; a scheduler of 1 s cycles with a client that polls every 2 s: 3 s"
PATH = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{NAMESPACE}/reservations"
SIZES = {Size.FULL: (1_000, 300), Size.QUICK: (1_000, 80), Size.SMOKE: (10, 5)}
RATE = 20


def reservation(name: str) -> bytes:
    container = {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "500m", "memory": "500Mi"}}}
    task = {"name": "task", "replicas": 1, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    spec = {
        "schedulerName": "volcano", "queue": "default", "minAvailable": 1, "ttl": "600s", "tasks": [task],
        "owners": [{"labelSelector": {"matchLabels": {"job": name}}}],
    }  # fmt: skip
    return msgspec.json.encode(
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name}, "spec": spec}
    )


def available(seen: Seen) -> bool:
    return "Available" in (seen.status.phase, seen.status.state.state)


async def measure(size: Size) -> list[Row]:
    nodes, count = SIZES[size]
    with tempfile.TemporaryDirectory() as folder:
        async with stack(folder, nodes) as (_, api):
            await _request(api, "warm", max(3, count // 20))
            ours = await _request(api, "ours", count)
    known = 3_000.0
    return [
        Row(f"{nodes:,} nodes, 20/s, p50", percentile(ours, 50), "ms", known=known),
        Row(f"{nodes:,} nodes, 20/s, p99", percentile(ours, 99), "ms", known=known, goal=50.0 if size is Size.FULL else None),
    ]


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
