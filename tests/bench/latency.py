"""A pod is created; when does a watch show it bound? At a steady rate, through the API, on the whole embedded stack."""

import asyncio
import tempfile
import time

from .api import PODS, Api, bound, pod, stack
from .table import Row, Size, percentile

TITLE = "pod created → bound through the API, 20 pods/s"
BASELINE = (
    "kubesim's default-scheduler: first fit, inside the API server, no log, no bind request: a floor "
    "(kube-scheduler on a real API server, known elsewhere: p50 6 ms, p99 9 ms)"
)
RATE = 20
SIZES = {Size.FULL: (1_000, 600), Size.QUICK: (1_000, 120), Size.SMOKE: (10, 10)}


async def measure(size: Size) -> list[Row]:
    nodes, pods = SIZES[size]
    with tempfile.TemporaryDirectory() as folder:
        async with stack(folder, nodes) as (_, api):
            await arrivals(api, "warm", "restow", max(5, pods // 20))
            ours = await arrivals(api, "ours", "restow", pods)
            floor = await arrivals(api, "floor", "default-scheduler", pods // 2)
    what = f"{nodes:,} nodes"
    full = size is Size.FULL
    return [
        Row(f"{what}, p50", percentile(ours, 50), "ms", baseline=percentile(floor, 50), goal=15.0 if full else None),
        Row(f"{what}, p99", percentile(ours, 99), "ms", baseline=percentile(floor, 99), goal=40.0 if full else None),
    ]


async def arrivals(api: Api, prefix: str, scheduler: str, count: int) -> list[float]:
    """Milliseconds from sending each request to seeing the pod bound; arrivals do not wait for each other."""
    names = [f"{prefix}-{i:04d}" for i in range(count)]
    bodies = [pod(name, scheduler) for name in names]
    sent: dict[str, float] = {}
    async with api.watching(PODS, bound), asyncio.TaskGroup() as group:
        began = time.perf_counter()
        for i, (name, body) in enumerate(zip(names, bodies, strict=True)):
            await asyncio.sleep(max(0.0, began + i / RATE - time.perf_counter()))
            sent[name] = time.perf_counter()
            group.create_task(api.create(PODS, body))
        await api.reached(names)
    return [(api.first[name] - sent[name]) * 1e3 for name in names]
