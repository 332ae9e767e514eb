"""Moves that are paused, by a person and by Restow itself, on a real API server: nobody is evicted, whoever restarts meanwhile, and everything that is to say so says so."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab
from kubernetes.services import (
    DESCHEDULER,
    POLICY,
    SESSION,
    ended,
    kill,
    migrate,
    posted,
    process,
    reached,
    seen,
    services,
    stand,
    state_of,
    victims,
)
from kubernetes.world import World, pod_spec
from prometheus import needs_prometheus, prometheus

from restow.cli.views import migrations

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture(scope="module", name="stack")
def running_stack(lab: Lab, kubelets: Kubelets) -> Iterator[Running]:
    with services(lab, f"{POLICY}  autoPause:\n    missed: 2\n    pending: 10s\n") as running:
        yield running


@pytest.fixture(autouse=True)
async def nothing_stays_paused(stack: Running) -> AsyncIterator[None]:
    yield
    (is_paused,) = await seen(stack, "the log is read", lambda state: (bool(state.pause.since),))
    if is_paused:
        await resumed(stack)


async def paused(stack: Running) -> Any:
    """By whom and why, once it is so."""
    try:
        return await seen(stack, "moves are paused", lambda state: state.pause.since and state.pause)
    except TimeoutError as error:
        moves = await seen(stack, "the log is read", lambda state: [(one["id"], one["step"], one["reason"]) for one in migrations(state)])
        raise AssertionError(f"{error}: {moves}") from error


def metrics_of(stack: Running) -> str:
    with urllib.request.urlopen(f"{stack.service_url(DESCHEDULER)}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


async def leads(stack: Running) -> None:
    """A descheduler, once one does."""
    for _ in range(600):
        try:
            if (await asyncio.to_thread(state_of, stack, DESCHEDULER)).get("phase") == "leading":
                return
        except (OSError, ValueError):
            pass
        await asyncio.sleep(0.1)
    raise AssertionError("no descheduler leads")


async def says_so(stack: Running, by: str, why: str, well: int = 0) -> None:
    """Wherever the documents say."""
    assert "\nrestow_moves_paused{" in (metrics := await asyncio.to_thread(metrics_of, stack))
    assert float(metrics.split("\nrestow_moves_paused{")[1].splitlines()[0].split()[-1]) == 1
    told = [
        await asyncio.to_thread(stack.restow, "state"),
        await asyncio.to_thread(stack.restow, "doctor", code=well),
        json.dumps(await asyncio.to_thread(stack.service, DESCHEDULER, "/readyz")),
        json.dumps(posted(stack, "/defragment?dryRun=true", {})),
    ]
    for text in told:
        flat = " ".join(text.split())
        assert by in flat, flat
        assert why in flat, flat
        assert "restow resume" in flat, flat
    with pytest.raises(urllib.error.HTTPError, match="paused"):
        await asyncio.to_thread(posted, stack, "/defragment", {})


async def resumed(stack: Running) -> None:
    await asyncio.to_thread(stack.restow, "resume")
    await seen(stack, "moves go on", lambda state: not state.pause.since)


async def test_a_pause_by_hand_stops_what_was_not_evicted_and_outlives_its_leader(world: World, stack: Running) -> None:
    pods = await victims(world, stack, 3)
    moves = [await migrate(stack, pod, f"target-{i}") for i, pod in enumerate(pods)]
    await stand(world, 3)
    await asyncio.to_thread(stack.restow, "pause", "storage upgrade")
    kill(stack, DESCHEDULER)
    await world.budget(3)
    assert [(await ended(stack, move))["step"] for move in moves] == ["failed"] * 3
    await leads(stack)
    await says_so(stack, "", "storage upgrade")
    assert {pod["metadata"]["uid"] for pod in world.of("victim")} == {pod["metadata"]["uid"] for pod in pods}
    await resumed(stack)
    assert (await ended(stack, await migrate(stack, pods[0], "target-0")))["step"] == "landed"


async def test_evicted_pods_that_miss_their_slots_pause_all_moves_until_somebody_resumes(world: World, stack: Running) -> None:
    pods = await victims(world, stack, 3, term=6)
    moves = [await migrate(stack, pod, f"target-{i}") for i, pod in enumerate(pods[:2])]
    await stand(world, 2)
    await world.budget(2)

    async def loses_its_slot(move: str, target: str) -> None:
        await reached(stack, move, "evicted")
        await world.lose(target)

    # Each by itself: one may be evicted seconds after the other, which would have landed by then.
    await asyncio.gather(*(loses_its_slot(move, f"target-{i}") for i, move in enumerate(moves)))
    pause = await paused(stack)
    assert (pause.by, "2 evicted pods missed their slots" in pause.reason) == ("", True)
    kill(stack, DESCHEDULER)
    await leads(stack)
    await says_so(stack, "Restow itself", "autoPause.missed: 2")
    await resumed(stack)
    await asyncio.sleep(6)
    assert await seen(stack, "what was missed before counts no more", lambda state: not state.pause.since, 1)


async def test_pods_that_nobody_decides_on_pause_all_moves(world: World, stack: Running) -> None:
    await world.node("free")
    pid = process(stack, SESSION)
    os.kill(pid, signal.SIGSTOP)
    try:
        await world.pod("waits", pod_spec(0, schedulerName="restow"))
        pause = await paused(stack)
        assert "nobody has decided on pod" in pause.reason
        await says_so(stack, "Restow itself", "autoPause.pending: 10s", well=1)
    finally:
        os.kill(pid, signal.SIGCONT)
    await world.running("waits")
    await resumed(stack)


@needs_prometheus
async def test_a_query_that_fires_pauses_all_moves(world: World, stack: Running, tmp_path: Path) -> None:
    with prometheus(tmp_path, "scrape_configs: []\n") as server:
        asks = f"metricsProviders:\n  - source: Prometheus\n    prometheus:\n      url: {server.url}\n"
        policy = f"{POLICY}  autoPause:\n    every: 1s\n    queries: ['vector(0)', 'nonsense(', 'vector(7)']\n".replace("profiles:", f"{asks}profiles:", 1)
        with stack.configured(DESCHEDULER, policy):
            pause = await paused(stack)
            assert "autoPause query 'vector(7)' is 7" in pause.reason
            await says_so(stack, "Restow itself", "vector(7)")
    await resumed(stack)
