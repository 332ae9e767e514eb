"""One migration at a time: a plan is asked for, the hold is placed, the pod evicted, its successor ready on the target."""

import asyncio
import tempfile
import time

import aiohttp
import msgspec

from restow.cli.demo.observer import Observer
from restow.cli.embedded import configs
from restow.cli.embedded.stack import Stack
from restow.domain.records import Step

from .api import NAMESPACE, PATIENCE, Api, stack
from .table import Row, Size, percentile

TITLE = "one migration: plan asked for → landed (30 ms of it are the kubelet's start)"
BASELINE = "none can be run here"
PATH = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
SIZES = {Size.FULL: (200, 60), Size.QUICK: (200, 20), Size.SMOKE: (8, 2)}
FULL_NODES = 4
"""Nodes of four GPUs that are half full, and so receive."""


def replica_set(name: str, gpus: int) -> bytes:
    resources = {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {"schedulerName": "restow", "terminationGracePeriodSeconds": 5, "containers": [{"name": "main", "image": "pause", "resources": resources}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    body = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return msgspec.json.encode({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": body})


async def measure(size: Size) -> list[Row]:
    nodes, count = SIZES[size]
    with tempfile.TemporaryDirectory() as folder:
        policy = configs.policy(low=40, defragment=45)
        async with (
            stack(folder, nodes, gpus=4, policy=policy) as (running, api),
            Observer(running.nats, running.cluster) as log,
            aiohttp.ClientSession() as session,
        ):
            for i in range(FULL_NODES):
                await api.create(PATH, replica_set(f"base-{i}", 2))
            await log.until("pods that receive", lambda: log.running() == FULL_NODES, PATIENCE)
            await _migrate(running, api, log, session, "warm")
            ours = [await _migrate(running, api, log, session, f"job-{i:03d}") for i in range(count)]
    what = f"{nodes} nodes"
    return [
        Row(f"{what}, p50", percentile(ours, 50), "ms", goal=150.0 if size is Size.FULL else None),
        Row(f"{what}, p99", percentile(ours, 99), "ms"),
    ]


async def _migrate(running: Stack, api: Api, log: Observer, session: aiohttp.ClientSession, name: str) -> float:
    """A pod of one GPU lands on an empty node (least allocated), and is moved from there. Milliseconds."""
    await api.create(PATH, replica_set(name, 1))
    await log.until("the pod to run", lambda: log.running() == FULL_NODES + 1, PATIENCE)
    plan, started = await _plan(running, session)
    await log.until("the plan to be carried out", lambda: log.finished(plan), PATIENCE)
    took = (time.perf_counter() - started) * 1e3
    steps = [m.step for m in log.state.migrations.values() if m.plan == plan]
    if steps != [Step.LANDED]:
        raise AssertionError(f"one migration should have landed, but there are {[str(s) for s in steps]}")
    await api.delete(f"{PATH}/{name}")
    await log.until("the pod to be gone", lambda: len(log.state.pods) == FULL_NODES and log.settled() and not log.holds(), PATIENCE)
    return took


async def _plan(running: Stack, session: aiohttp.ClientSession) -> tuple[str, float]:
    """The plan that moves the pod, and when it was asked for. The descheduler folds for itself, and may know later than we
    do that the pod is ready: then it has nothing to move, and is asked again."""
    for _ in range(200):
        started = time.perf_counter()
        async with session.post(f"{running.http('descheduler')}/defragment", json={"trigger": "bench"}, headers=running.authorization) as answer:
            body = await answer.json()
            if answer.status != 200:
                raise RuntimeError(f"POST /defragment: {answer.status} {body}")
        if any(event.get("moves") for event in body["events"]):
            return body["plan"], started
        await asyncio.sleep(0.01)
    raise RuntimeError(f"no plan moves the pod: {body}")
