"""Reservations for pods of the stock scheduler, with all services: nobody else gets the capacity, who owns it does, and then nothing is left."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.left import LONG, entries
from kubernetes.moves import until_gated
from kubernetes.services import SESSION, kill
from kubernetes.world import HIGH, NS, World, pod_spec

from restow.kube.gates import Gates

RESERVATIONS = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{NS}/reservations"


@pytest.fixture(autouse=True)
async def they_go(nothing_is_left: None, world: World, descheduler: Gates) -> Any:
    """And nothing is left of them. The API server has heard of Landings before, where this file is the first that it sees: owners are not gated earlier, and scheduled as ever."""
    await until_gated(descheduler)
    yield
    for one in (await world.api.ok("GET", RESERVATIONS))["items"]:
        await world.api.ok("DELETE", f"{RESERVATIONS}/{one['metadata']['name']}")


async def reserve(world: World, name: str = "tomorrow", replicas: int = 1, **spec: Any) -> None:
    task = {"name": "worker", "replicas": replicas, "template": {"spec": pod_spec()}}
    said = {"schedulerName": "default-scheduler", "owners": [{"labelSelector": {"matchLabels": {"app": "owner"}}}], "tasks": [task]} | spec
    await world.api.ok("POST", RESERVATIONS, {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name}, "spec": said})


async def phase(world: World, wanted: str, name: str = "tomorrow") -> dict[str, Any]:
    for _ in range(int(LONG / 0.1)):
        status = (await world.api.ok("GET", f"{RESERVATIONS}/{name}")).get("status", {})
        if status.get("phase") == wanted:
            return dict(status)
        await asyncio.sleep(0.1)
    raise AssertionError(f"not {wanted}: {json.dumps(status)}")


async def available(world: World) -> None:
    """And its owners are gated, as every API server knows."""
    await phase(world, "Available")
    for _ in range(int(LONG / 0.1)):
        if await entries(world):
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)


async def test_owners_land_on_what_is_held_while_50_equal_pods_wait_for_it(world: World, stack: Running) -> None:
    await world.node("n", gpus=3)
    await reserve(world, replicas=3)
    await available(world)
    await world.crowd()
    assert world.where("crowd") == ["waits"] * 50
    assert [pod["spec"]["nodeName"] for pod in world.placeholders()] == ["n"] * 3
    await world.replicaset("owner", 3, pod_spec())
    await world.running("owner", 3)
    await world.stands("owner", ["n"] * 3)
    assert world.where("crowd") == ["waits"] * 50
    status = await phase(world, "Succeeded")
    assert status["succeeded"] == 3


async def test_more_owners_than_slots_are_let_go_and_scheduled_as_ever(world: World, stack: Running) -> None:
    await world.node("n", gpus=1)
    await reserve(world)
    await available(world)
    await world.node("other", gpus=8)
    await world.replicaset("owner", 5, pod_spec())
    await world.running("owner", 5)
    await world.stands("owner", ["n", *["other"] * 4])


async def test_a_session_that_is_killed_loses_no_hold_and_lets_owners_land(world: World, stack: Running) -> None:
    await world.node("n", gpus=1)
    await reserve(world)
    await available(world)
    await world.crowd(20)
    kill(stack, SESSION)
    await world.replicaset("owner", 1, pod_spec())
    await world.running("owner")
    await world.stands("owner", ["n"])


async def test_a_placeholder_that_is_preempted_is_a_lost_hold_and_the_status_says_so(world: World, stack: Running) -> None:
    await world.node("n", gpus=1)
    await reserve(world)
    await available(world)
    await world.pod("vip", pod_spec(priority=HIGH))
    await world.running("vip")
    status = await phase(world, "Failed")
    assert status["state"]["reason"] == "HoldStolen"


async def test_the_end_of_a_reservation_gives_its_capacity_to_who_waits(world: World, stack: Running) -> None:
    await world.node("n", gpus=1)
    await reserve(world)
    await available(world)
    await world.crowd(1)
    await world.api.ok("DELETE", f"{RESERVATIONS}/tomorrow")
    await world.running("crowd")
