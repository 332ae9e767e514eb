"""A claim is handed over: it goes, with its device, from the placeholder whose own it was to the successor, and its device is free for nobody meanwhile.

The placeholder has a claim by the template of the pod that it holds a place for, in that pod's namespace. Before the placeholder goes, the claim gets the successor as
its owner, then as whom it is reserved for, and the successor's status names it; the one that was made for the successor, which has no device, is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab, own
from kubernetes.test_dynamic_resources import (
    CLAIMS,
    OF_DRIVER,
    a_world,
    claim_of,
    claiming,
    gated,
    gpu,
    placed,
    publish,
    template,
    ungate,
)
from kubernetes.world import World, path_of
from kubesim.conformance.harness import MERGE, STRATEGIC

Obj = dict[str, Any]


@pytest.fixture(scope="module", name="lab")
def with_scheduler_and_controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "handover") as one:
        yield one


@pytest.fixture(name="world")
async def with_a_class(lab: Lab, kubelets: Kubelets) -> AsyncIterator[World]:
    async with a_world(lab, kubelets, OF_DRIVER) as one:
        yield one


class Handover:
    """The steps, in order; each can be made again."""

    def __init__(self, world: World, holder: Obj, successor: Obj, held: Obj, made: Obj) -> None:
        self.world, self.holder, self.successor, self.held, self.made = world, holder, successor, held, made
        self.path = f"{CLAIMS}/{held['metadata']['name']}"

    async def own(self) -> None:
        meta, uid = self.successor["metadata"], self.held["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
        await self.world.api.ok("PATCH", self.path, {"metadata": {"uid": uid, "ownerReferences": [owner]}}, media=MERGE)

    async def reserve(self) -> None:
        """For the successor alone. A controller that starts again meanwhile makes the placeholder a new claim, as the owner of this one is another, and looks at this
        one no more when the placeholder goes: it would stay reserved for it."""
        meta, uid = self.successor["metadata"], self.held["metadata"]["uid"]
        user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
        await self.world.api.ok("PATCH", f"{self.path}/status", {"metadata": {"uid": uid}, "status": {"reservedFor": [user, {"$patch": "delete", "uid": self.holder["metadata"]["uid"]}]}}, media=STRATEGIC)

    async def name(self) -> None:
        said = [{"name": "gpu", "resourceClaimName": self.held["metadata"]["name"]}]
        status = {"nominatedNodeName": self.held["status"]["allocation"]["devices"]["results"][0]["pool"], "resourceClaimStatuses": said}
        await self.world.api.ok("PATCH", path_of(self.successor, "/status"), {"status": status}, media=STRATEGIC)

    async def drop(self) -> None:
        meta = self.made["metadata"]
        await self.world.api.call("DELETE", f"{CLAIMS}/{meta['name']}", {"preconditions": {"uid": meta["uid"]}})

    async def leave(self) -> None:
        """Whatever an API server that has much to do answers first."""
        for _ in range(100):
            await self.world.api.call("DELETE", path_of(self.holder), {"gracePeriodSeconds": 0})
            if (self.holder["metadata"]["uid"], "gone") in self.world.at:
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the placeholder does not go")

    async def ungate(self) -> None:
        await ungate(self.world, self.successor)

    @property
    def steps(self) -> list[Any]:
        return [self.own, self.reserve, self.name, self.drop, self.leave, self.ungate]


async def prepared(world: World, waiting: int = 30) -> Handover:
    """One device; the placeholder has it, many wait for it, and the successor is gated."""
    await world.node("a", gpus=0)
    await publish(world, "a", [gpu(0)])
    await template(world)
    holder = await world.pod("holder", claiming())
    await placed(world, "holder", 1)
    await world.replicaset("crowd", waiting, claiming())
    await world.unschedulable("crowd", waiting)
    return await again(world, holder)


async def again(world: World, holder: Obj, name: str = "successor") -> Handover:
    successor = await gated(world, name)
    made, held = await claim_of(world, successor), await claim_of(world, holder)
    assert held["status"]["allocation"]
    assert not made.get("status", {}).get("allocation")
    return Handover(world, holder, successor, held, made)


async def claims(world: World) -> list[Obj]:
    return (await world.api.ok("GET", CLAIMS))["items"]


async def having(world: World) -> list[tuple[str, list[str]]]:
    """Of all claims with a device: name, and for whom it is reserved."""
    return [(one["metadata"]["name"], [user["name"] for user in one["status"].get("reservedFor") or ()]) for one in await claims(world) if one.get("status", {}).get("allocation")]


async def until_claims(world: World, found: Any, what: str) -> None:
    for _ in range(300):
        if found(said := await having(world)):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{what}: {said}")


async def landed(world: World, one: Handover) -> None:
    await placed(world, one.successor["metadata"]["labels"]["app"], 1)
    name = one.held["metadata"]["name"]
    await until_claims(world, lambda said: said == [(name, [one.successor["metadata"]["name"]])], "the successor alone has the device")
    assert [claim["metadata"]["uid"] for claim in await claims(world) if claim["metadata"]["name"] == name] == [one.held["metadata"]["uid"]]
    assert set(world.where("crowd")) == {"waits"}


async def test_a_claim_that_is_handed_over_keeps_its_device(world: World) -> None:
    """Ten times in a row, from a placeholder to a successor that is the next one's placeholder, while thirty wait for the device."""
    one = await prepared(world)
    for turn in range(10):
        for step in one.steps:
            await step()
        await landed(world, one)
        if turn < 9:
            one = await again(world, one.successor, f"successor-{turn}")


@pytest.mark.parametrize("at", range(6))
async def test_it_is_kept_while_scheduler_and_controllers_start_again(world: World, lab: Lab, at: int) -> None:
    """Before the step of this number, both are killed; they start after it."""
    one = await prepared(world)
    for number, step in enumerate(one.steps):
        if number == at:
            lab.stop("controllers", hard=True)
            lab.stop("scheduler", hard=True)
        await step()
        if number == at:
            lab.start_scheduler()
            lab.start_controllers(lab.work / "kubeconfig")
            await asyncio.sleep(1)
    await landed(world, one)


@pytest.mark.parametrize("after", range(1, 7))
async def test_nothing_is_left_of_a_successor_that_goes_in_the_middle(world: World, after: int) -> None:
    """And of its placeholder: one of those that wait gets the device."""
    one = await prepared(world, 5)
    for step in one.steps[:after]:
        await step()
    await world.api.call("DELETE", path_of(one.successor), {"gracePeriodSeconds": 0})
    await world.api.call("DELETE", path_of(one.holder), {"gracePeriodSeconds": 0})
    await placed(world, "crowd", 1)
    await until_claims(world, lambda said: len(said) == 1 and said[0][1][0].startswith("crowd"), "one of those that wait has it")
    for _ in range(300):
        if len(found := await claims(world)) == 5:
            break
        await asyncio.sleep(0.1)
    assert {one["metadata"]["ownerReferences"][0]["name"].split("-")[0] for one in found} == {"crowd"}


@pytest.mark.parametrize("after", range(4))
async def test_a_placeholder_that_goes_too_early_leaves_the_device_to_one_alone(world: World, after: int) -> None:
    """After so many steps. Reserved for the successor, it stays; otherwise one of those that wait gets it, and the successor, once it is let go, waits like others."""
    one = await prepared(world, 5)
    for step in one.steps[:after]:
        await step()
    await one.leave()
    if after < 2:
        await placed(world, "crowd", 1)
    await one.ungate()
    if after < 2:
        await world.unschedulable("successor", 1)
        assert world.where("successor") == ["waits"]
    elif after == 2:
        # Its status names the claim that was made for it: the device goes with neither until that is deleted.
        await one.name()
        await placed(world, "successor", 1)
    else:
        await placed(world, "successor", 1)
    await until_claims(world, lambda said: len(said) == 1 and len(said[0][1]) == 1, "one has the device")
