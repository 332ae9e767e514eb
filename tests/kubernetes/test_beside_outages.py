"""API servers that start again in the middle of moves, while equal pods wait for the same room: every successor lands on its slot, and nothing is left behind. A control
plane of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.lab import Lab, own
from kubernetes.services import all_ended, known, migrate, stand
from kubernetes.world import World, gated, pod_spec

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.slow]
COUNT = 20


@pytest.fixture(scope="module", name="lab")
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "outages") as one:
        one.install()
        yield one


async def held(world: World, stack: Running) -> tuple[list[Any], list[str]]:
    """All pods of a Deployment are to leave `source`, for nodes of their own; their slots are held, a budget keeps them, and equal pods wait for the slots."""
    await world.node("source", gpus=COUNT)
    await world.workload("deployments", "victim", COUNT, pod_spec(), 0.3)
    pods = await world.running("victim", COUNT)
    await world.cordon("source")
    await world.budget(0)
    for i in range(COUNT):
        await world.node(f"target-{i}", gpus=1)
    await known(stack, pods)
    moves = [await migrate(stack, pod, f"target-{i}") for i, pod in enumerate(pods)]
    await stand(world, COUNT)
    await world.crowd()
    return pods, moves


async def come_to_an_end(world: World, stack: Running, moves: list[str]) -> None:
    """Every pod runs, once, on the slot that was held for it."""
    await world.until(lambda: not {"gated", "waits"} & {*world.where("victim")} or {*world.where("crowd")} != {"waits"}, "all successors are bound", 120)
    assert Counter(world.where("crowd")) == {"waits": 50}
    over = [one for one in await all_ended(stack, 120) if one["id"] in moves]
    ends = Counter((str(one["step"]), one["reason"]) for one in over)
    assert ends == {("landed", ""): COUNT}
    await world.running("victim", COUNT)
    assert world.where("victim") == sorted(f"target-{i}" for i in range(COUNT))
    assert world.kubelets.rejected == []


def successors(world: World, pods: list[Any]) -> list[Any]:
    before = {pod["metadata"]["uid"] for pod in pods}
    return [pod for pod in world.of("victim") if pod["metadata"]["uid"] not in before]


async def test_a_scheduler_that_has_heard_of_no_nomination_is_waited_for(world: World, stack: Running, lab: Lab) -> None:
    """Its API server is down while all pods are evicted, their successors made and nominated. It lists pods again, and hears of who has gone first."""
    second = await asyncio.to_thread(lab.another_server, "second")
    lab.stop("scheduler")
    await asyncio.to_thread(lab.start_scheduler, lab.kubeconfig(second, "second"))
    pods, moves = await held(world, stack)
    lab.stop("second", hard=True)
    await world.budget(1)
    await world.gone(pods)
    await world.until(lambda: len([one for one in successors(world, pods) if one["status"].get("nominatedNodeName")]) == COUNT, "all are nominated")
    await asyncio.sleep(2)
    assert len([one for one in world.of("victim") if gated(one)]) == COUNT
    await asyncio.to_thread(lab.server_again, "second", second.url)
    await come_to_an_end(world, stack, moves)
    lab.stop("scheduler")
    lab.stop("second", hard=True)
    await asyncio.to_thread(lab.start_scheduler)


async def test_an_api_server_that_starts_again_in_the_middle_of_moves(world: World, stack: Running, lab: Lab) -> None:
    pods, moves = await held(world, stack)
    await world.budget(1)
    await world.until(lambda: len(successors(world, pods)) >= COUNT // 4, "a quarter has gone")
    lab.stop("api", hard=True)
    await asyncio.to_thread(lab.server_again, "api", lab.target.url)
    await come_to_an_end(world, stack, moves)
