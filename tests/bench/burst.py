"""Many pods at once, until the last one is bound, through the API, on the whole embedded stack."""

import tempfile
import time
from functools import partial

from .api import PODS, Api, bound, pod, stack, together
from .table import Row, Size

TITLE = "burst of pods through the API, all bound"
BASELINE = (
    "kubesim's default-scheduler: first fit, inside the API server, no log, no bind request: a ceiling "
    "(kube-scheduler on a real API server, known elsewhere: 390 to 405 pods/s)"
)
SIZES = {Size.FULL: (1_000, 5_000), Size.QUICK: (1_000, 1_500), Size.SMOKE: (10, 50)}


async def measure(size: Size) -> list[Row]:
    nodes, pods = SIZES[size]
    with tempfile.TemporaryDirectory() as folder:
        async with stack(folder, nodes) as (_, api):
            await burst(api, "warm", "restow", max(10, pods // 50))
            ours, _ = await burst(api, "ours", "restow", pods)
            ceiling, _ = await burst(api, "ceiling", "default-scheduler", pods)
    what = f"{pods:,} pods, {nodes:,} nodes"
    return [Row(what, ours, "pods/s", baseline=ceiling, goal=400 if size is Size.FULL else None)]


async def burst(api: Api, prefix: str, scheduler: str, count: int) -> tuple[float, list[float]]:
    """Pods a second, from the first request to the last pod seen bound; and milliseconds of each from its own request."""
    bodies = {f"{prefix}-{i:05d}": pod(f"{prefix}-{i:05d}", scheduler) for i in range(count)}
    sent: dict[str, float] = {}

    async def create(name: str) -> None:
        sent[name] = time.perf_counter()
        await api.create(PODS, bodies[name])

    async with api.watching(PODS, bound):
        started = time.perf_counter()
        await together([partial(create, name) for name in bodies])
        await api.reached(bodies)
        return count / (max(api.first[name] for name in bodies) - started), [(api.first[name] - sent[name]) * 1e3 for name in bodies]
