"""Several API servers, one of which starts in the middle of moves with all services: every pod lands, and nothing is left behind. A control plane of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.lab import Lab, own
from kubernetes.services import all_ended, known, migrate, stand
from kubernetes.world import World, pod_spec

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.slow]
COUNT = 20


@pytest.fixture(scope="module", name="lab")
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "outages") as one:
        one.install()
        yield one


async def held(world: World, stack: Running) -> tuple[list[Any], list[str]]:
    """All pods of a Deployment are to leave `source`, for nodes of their own; their slots are held, and a budget keeps them."""
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
    return pods, moves


async def come_to_an_end(world: World, stack: Running, pods: list[Any]) -> Counter[tuple[str, str]]:
    """How all moves end; then every pod runs, once."""
    moves = await all_ended(stack, 120)
    ends = Counter((str(one["step"]), one["reason"]) for one in moves if one["pod"] in {pod["metadata"]["uid"] for pod in pods})
    await world.running("victim", COUNT)
    assert len(world.where("victim")) == COUNT
    assert world.kubelets.rejected == []
    return ends


async def test_controllers_at_an_api_server_that_has_just_started_lose_no_pod(world: World, stack: Running, lab: Lab) -> None:
    """Restow is at a server that counts the policy, the scheduler at a second one. A successor that the third makes before it counts the policy comes without the
    gate, and is nominated like any other; nobody of 50 equal pods takes its place."""
    second = await asyncio.to_thread(lab.another_server, "second")
    lab.stop("scheduler")
    await asyncio.to_thread(lab.start_scheduler, lab.kubeconfig(second, "second"))
    pods, _ = await held(world, stack)
    await world.crowd()
    lab.stop("controllers")
    await world.budget(1)
    gone = {pod["metadata"]["uid"] for pod in pods}
    await world.until(lambda: all((uid, "gone") in world.at for uid in gone), "all have gone", 90)
    third = await asyncio.to_thread(lab.another_server, "third")
    lab.start_controllers(lab.kubeconfig(third, "third"))
    assert await come_to_an_end(world, stack, pods) == {("landed", ""): COUNT}
    assert world.where("crowd") == ["waits"] * 50
