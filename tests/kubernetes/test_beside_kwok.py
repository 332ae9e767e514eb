"""The same on kwok's kubelets, which admit whatever is bound: what fits is judged here, from what was ever seen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from kubernetes.kubelets import needs
from kubernetes.lab import Lab
from kubernetes.moves import Mover, told
from kubernetes.world import World, pod_spec

from restow.kube.effects import PodRef


@pytest.fixture
def kwok(lab: Lab) -> Iterator[None]:
    lab.start_kwok("kubelets=kwok")
    yield
    lab.stop("kwok")


async def test_10_moves_land_on_kwoks_nodes_and_no_node_is_ever_overfull(world: World, mover: Mover, kwok: None) -> None:
    marks = {"kubelets": "kwok"}
    await world.node("source", gpus=10, labels=marks)
    await world.replicaset("victim", 10, pod_spec())
    victims = await world.running("victim", 10)
    await world.cordon("source")
    for i in range(10):
        await world.node(f"target-{i}", gpus=1, labels=marks)
    overfull: set[str] = set()

    def judge(*_: object) -> None:
        used: dict[str, float] = {}
        for pod in world.pods.values():
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Failed", "Succeeded"):
                used[pod["spec"]["nodeName"]] = used.get(pod["spec"]["nodeName"], 0) + needs(pod).get("nvidia.com/gpu", 0)
        overfull.update(node for node, gpus in used.items() if gpus > (10 if node == "source" else 1))

    world.told.append(judge)
    ready, arrived = asyncio.Event(), 0

    async def before(_: PodRef) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 10:
            await world.replicaset("crowd", 20, pod_spec())
            await world.unschedulable("crowd", 20)
            ready.set()
        await ready.wait()

    moves = await asyncio.gather(*(mover.move(v, f"target-{i}", before=before) for i, v in enumerate(victims)))
    print("kwok:", told(moves))
    assert [move.end for move in moves] == ["landed"] * 10
    assert overfull == set()
