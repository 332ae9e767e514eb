"""A scheduler that has thousands of pods in its queue looks at a probe only after all of them. Moves wait for that, and land on their holds all the same. A control plane
of its own."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab, own
from kubernetes.services import POLICY, all_ended, all_held, services
from kubernetes.world import World, gated, pod_spec, refused

from restow.kube.canary import CANARY
from restow.kube.hearing import PATIENCE

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.slow]
COUNT, QUEUE, QPS = 10, 3000, 40
LONG = 600.0
"""Seconds. The queue alone takes QUEUE / QPS, each time that the scheduler says something new of all of it."""


@pytest.fixture(scope="module", name="lab")
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "queue") as one:
        one.install()
        yield one


@pytest.fixture(scope="module", name="stack")
def patient_stack(lab: Lab, kubelets: Kubelets) -> Iterator[Running]:
    """The budget keeps the pods until the queue is there."""
    with services(lab, POLICY.replace("budgetPatience: 60s", "budgetPatience: 15m") + "  landDeadline: 10m\n") as running:
        yield running


def is_probe(pod: Any) -> bool:
    return str((pod["metadata"].get("labels") or {}).get(CANARY, "")).startswith("nowhere-")


async def test_moves_land_behind_a_queue_of_3000_equal_pods(world: World, stack: Running, lab: Lab) -> None:
    """All of them fit where the successors go, were it not for the holds."""
    _, moves = await all_held(world, stack, COUNT)
    lab.stop("scheduler")
    try:
        await world.replicaset("crowd", QUEUE, pod_spec())
        await world.until(lambda: len(world.of("crowd")) == QUEUE, "the queue is there", LONG)
    finally:
        await asyncio.to_thread(lab.start_scheduler, qps=QPS)
    asked: set[str] = set()
    world.told.append(lambda _, pod: asked.add(pod["metadata"]["uid"]) if is_probe(pod) else None)
    begun = time.perf_counter()
    await world.budget(1)
    over = [one for one in await all_ended(stack, LONG) if one["id"] in moves]
    took = time.perf_counter() - begun
    heard = [world.at.get((uid, "gone"), time.perf_counter()) - world.at[uid, "seen"] for uid in asked]
    looked = len([one for one in world.of("crowd") if refused(one)])
    print(f"{dict(Counter((one['step'], one['reason']) for one in over))} after {took:.1f} s; probes took {[f'{one:.1f} s' for one in heard]}, {looked} were looked at")
    assert Counter((one["step"], one["reason"]) for one in over) == {("landed", ""): COUNT}
    await world.stands("victim", sorted(f"target-{i}" for i in range(COUNT)))
    assert world.where("crowd") == ["waits"] * QUEUE
    assert not any(gated(one) for one in world.pods.values())
    assert max(heard) > PATIENCE, "the queue was too short to show anything"
    assert world.kubelets.rejected == []
