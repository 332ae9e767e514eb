"""Owners that are deleted, or scaled down, while a pod of theirs is moved: by the real controllers and garbage collector, as `kubectl` does it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.lab import Lab
from kubernetes.services import (
    DESCHEDULER,
    SESSION,
    ended,
    kill,
    migrate,
    reached,
    read_by,
    seen,
    stand,
    victims,
)
from kubernetes.world import NS, World

from restow.domain.records import ON_NODE
from restow.domain.state import ClusterState

pytestmark = pytest.mark.usefixtures("nothing_is_left")
CONTROLLERS = "controllers"
SOON = 45.0
"""`landDeadline` is five minutes."""


async def leaving(world: World, stack: Running, kind: str, count: int = 1) -> tuple[str, Any]:
    """A pod that was evicted, and takes a while to end, and its move: the last of its controller's, which a smaller number would not have."""
    found = await victims(world, stack, count, kind=kind, term=6)
    pod = max(found, key=lambda one: str(one["metadata"]["name"]))
    move = await migrate(stack, pod, "target-0")
    await stand(world, 1)
    await world.budget(count)
    await reached(stack, move, "evicted")
    return move, pod


async def free(stack: Running) -> None:
    def found(state: ClusterState) -> bool:
        return not any(slot.phase in ON_NODE for slots in state.slots.values() for slot in slots.values())

    await seen(stack, "nothing is held", found)


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
async def test_a_statefulset_that_is_deleted_while_its_pod_leaves_frees_the_slot_at_once(world: World, stack: Running, lab: Lab, cascade: str) -> None:
    move, pod = await leaving(world, stack, "statefulsets")
    await asyncio.to_thread(lab.kubectl, "delete", "statefulset", "victim", "-n", NS, f"--cascade={cascade}", "--wait=false")
    one = await ended(stack, move, seconds=SOON)
    assert (one["step"], one["reason"]) == ("failed", "OwnerGone"), one
    await free(stack)
    await world.gone([pod])
    assert world.of("victim") == []


@pytest.mark.parametrize("kind", ["deployment", "replicaset"])
async def test_one_that_is_deleted_before_its_controller_has_made_another_pod_frees_the_slot_at_once(world: World, stack: Running, lab: Lab, kind: str) -> None:
    """Its controller is away for a moment, else the successor would have come already."""
    found = await victims(world, stack, kind=f"{kind}s", term=6)
    move = await migrate(stack, found[0], "target-0")
    await stand(world, 1)
    lab.stop(CONTROLLERS)
    try:
        await world.budget(1)
        await reached(stack, move, "evicted")
        await asyncio.to_thread(lab.kubectl, "delete", kind, "victim", "-n", NS, "--wait=false")
        one = await ended(stack, move, seconds=SOON)
        assert (one["step"], one["reason"]) == ("failed", "OwnerGone"), one
        await free(stack)
    finally:
        lab.start_controllers(lab.work / "kubeconfig")
    await world.gone(found)
    await world.stands("victim", [])


async def test_a_statefulset_that_is_scaled_down_by_the_pod_that_leaves_frees_its_slot_at_once(world: World, stack: Running, lab: Lab) -> None:
    move, pod = await leaving(world, stack, "statefulsets", 2)
    await world.gone([pod], 30)
    await asyncio.to_thread(lab.kubectl, "scale", "statefulset", "victim", "-n", NS, "--replicas=1")
    one = await ended(stack, move, seconds=SOON)
    assert one["reason"] in ("NotNeeded", "SuccessorGone"), one
    await free(stack)
    await world.stands("victim", ["source"])


async def test_a_statefulset_that_is_made_anew_around_its_pods_keeps_them_and_the_slot_is_free(world: World, stack: Running, lab: Lab) -> None:
    """As one changes what cannot be changed: `--cascade=orphan`, then `apply`. The next one takes the pods that are left for its own."""
    move, pod = await leaving(world, stack, "statefulsets", 2)
    before = await world.api.ok("GET", f"/apis/apps/v1/namespaces/{NS}/statefulsets/victim")
    await asyncio.to_thread(lab.kubectl, "delete", "statefulset", "victim", "-n", NS, "--cascade=orphan")
    await world.api.ok("POST", f"/apis/apps/v1/namespaces/{NS}/statefulsets", {"metadata": {"name": "victim"}, "spec": before["spec"]})
    one = await ended(stack, move, seconds=SOON)
    assert (one["step"], one["reason"]) == ("failed", "OwnerGone"), one
    await free(stack)
    await world.gone([pod])
    await world.running("victim", 2)
    assert sorted(world.where("victim")) != ["source", "source"], "source takes no more"


async def test_an_owner_that_is_deleted_while_the_services_are_away_frees_the_slot_when_they_are_back(world: World, stack: Running, lab: Lab) -> None:
    move, pod = await leaving(world, stack, "statefulsets")
    for service in ("cluster_watcher", DESCHEDULER, SESSION):
        kill(stack, service)
    await asyncio.to_thread(lab.kubectl, "delete", "statefulset", "victim", "-n", NS, "--wait=false")
    one = await ended(stack, move, seconds=SOON)
    assert (one["step"], one["reason"]) == ("failed", "OwnerGone"), one
    await free(stack)
    await world.gone([pod])


def left_behind(state: ClusterState) -> int:
    there = [one for one in state.workloads.values() if one.kind in ("Deployment", "ReplicaSet") and (one.name == "victim" or one.name.startswith("victim-"))]
    return state.seq if there and all(one.kind == "ReplicaSet" and one.owner is None for one in there) else 0


@pytest.mark.parametrize("at", ["held", "evicted"])
async def test_a_deployment_that_leaves_its_replicaset_behind_loses_no_pod(world: World, stack: Running, lab: Lab, at: str) -> None:
    """`--cascade=orphan`: its ReplicaSet makes the pod again. Before the eviction that is another owner than it was planned with."""
    (pod,) = await victims(world, stack, term=4)
    move = await migrate(stack, pod, "target-0")
    await stand(world, 1)
    if at == "evicted":
        await world.budget(1)
        await reached(stack, move, "evicted")
    await asyncio.to_thread(lab.kubectl, "delete", "deployment", "victim", "-n", NS, "--cascade=orphan")
    if at == "held":
        # The budget may be heard of before that: then it goes, and lands.
        await read_by(stack, DESCHEDULER, await seen(stack, "its ReplicaSet is nobody's", left_behind))
        await world.budget(1)
    one = await ended(stack, move, seconds=SOON)
    await free(stack)
    await world.running("victim", 1)
    if at == "held":
        # The Deployment is marked as deleted before it lets its ReplicaSet go; whoever looks in between sees an owner that is going away.
        assert (one["step"], world.where("victim")) == ("failed", ["source"]), one
        assert one["reason"] in ("OwnerChanged", "OwnerBusy"), one
    else:
        assert one["step"] in ("landed", "failed"), one
