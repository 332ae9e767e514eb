"""A pod that takes longer to end than an entry in the Landing counts: the entry is renewed for as long, whoever is killed or takes it away, and the successor gets the gate at the end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.lab import Lab
from kubernetes.left import listed
from kubernetes.services import SESSION, ended, kill, known, migrate, reached, stand
from kubernetes.world import World, controller, gated, pod_spec

from restow.domain.landing_gate import LEASE, RENEWED

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.slow]
TERM = LEASE / 1000 + 40


async def left(world: World, owner: str) -> float:
    """Seconds for which the controller's entry counts still; 0 where there is none."""
    said = [until for one in await listed(world, "/apis/restow.dev/v1/landings") for uid, until in (one["spec"].get("open") or {}).items() if uid == owner]
    return (datetime.fromisoformat(said[0]) - datetime.now(UTC)).total_seconds() if said else 0.0


async def test_the_entry_of_a_pod_that_ends_after_minutes_is_renewed_until_its_successor_has_come(world: World, stack: Running, lab: Lab) -> None:
    await world.node("source", gpus=1)
    await world.statefulset("victim", 1, pod_spec(terminationGracePeriodSeconds=int(TERM) + 20), term=TERM)
    (pod,) = await world.running("victim", 1)
    owner = controller(pod)
    assert owner is not None
    await world.cordon("source")
    await world.node("target", gpus=1)
    await known(stack, [pod])
    move = await migrate(stack, pod, "target")
    await stand(world, 1)
    await reached(stack, move, "evicted")
    came = list[str]()

    def told(_: str, one: Any) -> None:
        if gated(one) and one["metadata"]["uid"] not in came:
            came.append(one["metadata"]["uid"])

    world.told.append(told)
    began, seen, killed, taken = datetime.now(UTC), list[float](), False, False
    while (at := (datetime.now(UTC) - began).total_seconds()) < TERM - 15:
        if at > 60 and not killed:
            killed = True
            kill(stack, SESSION)
        if at > 110 and not taken:
            taken = True
            for one in await listed(world, "/apis/restow.dev/v1/landings"):
                await world.api.ok("PATCH", f"/apis/restow.dev/v1/landings/{one['metadata']['name']}", {"spec": {"open": {owner["uid"]: None}}}, media="application/merge-patch+json")
            assert await left(world, owner["uid"]) == 0
        seen.append(await left(world, owner["uid"]))
        await asyncio.sleep(2)
    print("seconds left, every two seconds:", [round(one) for one in seen])
    assert killed
    assert taken
    gone = [i for i, one in enumerate(seen) if one == 0]
    assert gone
    assert 2 * len(gone) <= 2.5 * RENEWED / 1000, "who took the entry away is followed by the session, a while later"
    assert min(one for one in seen if one) > (LEASE - 3 * RENEWED) / 1000, "it is renewed in time"
    one = await ended(stack, move, 120)
    assert one["step"] == "landed", one
    assert len(came) == 1
    await world.stands("victim", ["target"])
