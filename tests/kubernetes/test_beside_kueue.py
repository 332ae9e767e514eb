"""Successors that Kueue gates, too: they land when it has let them in, and go where it sends them. The test plays Kueue: it takes its gates away."""

from __future__ import annotations

import asyncio
from typing import Any

from e2e.stack import Running
from kubernetes.services import ended, known, migrate
from kubernetes.world import World, path_of, pod_spec

from restow.domain.kueue import ADMISSION
from restow.domain.landing_gate import GATE

STRATEGIC = "application/strategic-merge-patch+json"


async def admit(world: World, pod: Any, **spec: Any) -> None:
    """As Kueue does: its gate goes, and what the flavor says comes."""
    change = {"spec": {"schedulingGates": [{"$patch": "delete", "name": ADMISSION}], **spec}}
    await world.api.ok("PATCH", path_of(pod), change, media=STRATEGIC)


async def gated(world: World, *gates: str) -> Any:
    """The pod that waits with these gates."""

    def found() -> Any:
        waits = [p for p in world.of("victim") if {gate["name"] for gate in p["spec"].get("schedulingGates") or ()} == set(gates)]
        return waits[0] if waits else None

    return await world.until(found, f"one waits with {gates}")


async def moved(world: World, stack: Running) -> tuple[str, Any]:
    """The move, and the successor that both keep."""
    await world.node("source", gpus=1)
    await world.workload("deployments", "victim", 1, pod_spec(schedulingGates=[{"name": ADMISSION}]), 0.2)
    await admit(world, await gated(world, ADMISSION))
    (victim,) = await world.running("victim")
    await world.cordon("source")
    await world.node("target", gpus=1)
    await world.node("spot", gpus=1, labels={"flavor": "spot"})
    await known(stack, [victim])
    move = await migrate(stack, victim, "target")
    return move, await gated(world, ADMISSION, GATE)


async def test_a_successor_lands_when_kueue_has_let_it_in_and_its_place_is_held_until_then(world: World, stack: Running) -> None:
    move, successor = await moved(world, stack)
    await asyncio.sleep(2)
    assert "target" in [pod["spec"].get("nodeName") for pod in world.placeholders()]
    assert world.where("victim") == ["gated"]
    await admit(world, successor)
    over = await ended(stack, move)
    assert over["step"] == "landed", over
    await world.stands("victim", ["target"])


async def test_a_successor_that_kueue_sends_to_another_flavor_is_let_go_at_once(world: World, stack: Running) -> None:
    """Its slot is held until the landing deadline all the same: another pod of the controller may come."""
    _, successor = await moved(world, stack)
    await admit(world, successor, nodeSelector={"flavor": "spot"})
    await world.until(lambda: world.where("victim") == ["spot"], "it runs where Kueue sends it", 5)
