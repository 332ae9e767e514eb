"""All of Restow dies in the middle of moves: from the end of a lease of three minutes on, pods are made and scheduled as if it were not there; what has the gate keeps it until it is back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.left import listed
from kubernetes.services import all_held, ended
from kubernetes.world import World, path_of

from restow.contracts.ids import SERVICES
from restow.domain.landing_gate import LEASE

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.slow]
MERGE = "application/merge-patch+json"
MOVES = 3


def dies(stack: Running) -> int:
    """Every service, at once; whoever would start them again stands still meanwhile. The supervisor's pid."""
    parent = int(json.loads((stack.folder / ".restow" / "stack.json").read_text())["pid"])
    os.kill(parent, signal.SIGSTOP)
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if any(service in Path(f"/proc/{pid}/cmdline").read_text() for service in SERVICES):
            os.kill(int(pid), signal.SIGKILL)
    return parent


async def listed_until(world: World) -> list[datetime]:
    """When entries of controllers end."""
    return [datetime.fromisoformat(said) for one in await listed(world, "/apis/restow.dev/v1/landings") for said in (one["spec"].get("open") or {}).values()]


async def scaled(world: World, replicas: int) -> None:
    await world.api.ok("PATCH", "/apis/apps/v1/namespaces/work/deployments/victim", {"spec": {"replicas": replicas}}, media=MERGE)


def count(world: World, where: str) -> int:
    return world.where("victim").count(where)


async def test_with_all_services_dead_nobody_new_is_gated_after_three_minutes_and_who_was_gated_lands_when_they_are_back(world: World, stack: Running) -> None:
    before, moves = await all_held(world, stack, MOVES, term=0.2)
    await world.budget(MOVES)
    await world.until(lambda: any((pod["metadata"]["uid"], "ending") in world.at for pod in before), "the first is evicted", 60)
    parent = dies(stack)
    dead = datetime.now(UTC)
    try:
        # Room for everybody that comes.
        await world.node("more", gpus=8)
        await asyncio.sleep(1)
        gone = sum((pod["metadata"]["uid"], "ending") in world.at for pod in before)
        ends = await listed_until(world)
        assert ends
        assert max((end - dead).total_seconds() for end in ends) <= LEASE / 1000
        await scaled(world, MOVES + 1)
        await world.until(lambda: count(world, "gated") >= 1, "whoever is made before the end of the entry is gated", 10)
        print(f"{gone} of {MOVES} were evicted when all services died; entries end {(max(ends) - dead).total_seconds():.0f} s after that")
        await asyncio.sleep(max(0.0, (max(ends) - datetime.now(UTC)).total_seconds()) + 2)
        caught = count(world, "gated")
        print(f"{caught} pods are gated")
        began = datetime.now(UTC)
        await scaled(world, MOVES + 3)
        await world.until(lambda: count(world, "more") == 2, "two that are made later are bound like any other", 10)
        print(f"bound {(datetime.now(UTC) - began).total_seconds():.2f} s after they were asked for, {(began - dead).total_seconds():.0f} s after all services died")
        assert count(world, "gated") == caught, "nothing but a client takes a gate away"
        one = next(pod for pod in world.of("victim") if pod["spec"].get("schedulingGates"))
        await world.api.ok("DELETE", path_of(one))
        await world.until(lambda: count(world, "more") == 3, "what is deleted by hand is made again without a gate", 10)
        assert count(world, "gated") == caught - 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(parent, signal.SIGCONT)
    over = [await ended(stack, move, 120) for move in moves]
    print([(one["step"], one["reason"]) for one in over])
    await world.until(lambda: count(world, "gated") == 0, "nobody is gated any more", 60)
    placed: list[Any] = await world.running("victim", MOVES + 3)
    assert len({pod["metadata"]["uid"] for pod in placed}) == MOVES + 3
    assert world.kubelets.rejected == []
