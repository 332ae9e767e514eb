"""What happens to a move when something happens to its place, its pod, or the scheduler."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubernetes.lab import Lab
from kubernetes.moves import Mover, ref, told
from kubernetes.test_beside_moves import alone
from kubernetes.world import APPS, HIGH, LOW, NS, World, path_of, pod_spec
from kubesim.conformance.harness import MERGE

from restow.kube.beside import Beside
from restow.kube.effects import PodRef

WHEN = pytest.mark.parametrize("when", ["before", "after"])
BINDING = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/restow-landing"


async def crowd(world: World) -> None:
    """Equal pods that fit on the target alone."""
    await world.cordon("source")
    await world.crowd()


async def same(world: World, victim: Any) -> bool:
    """It is as it was."""
    there = world.pods.get(victim["metadata"]["uid"])
    return there is not None and there["status"]["phase"] == "Running" and not there["metadata"].get("deletionTimestamp")


# -- the place ---------------------------------------------------------------------------------------------------------


@WHEN
async def test_a_higher_priority_steals_the_hold(world: World, mover: Mover, when: str) -> None:
    """Before the eviction the move rolls back; after it the pod is let go, and waits as any other."""
    victim = await alone(world)
    await world.cordon("source")

    async def steal(held: PodRef) -> None:
        await world.pod("high", pod_spec(priority=HIGH))
        await world.until(lambda: (held.uid, "ending") in world.at or (held.uid, "gone") in world.at, "the hold is taken")
        await world.running("high")

    more: Any = {when: steal}
    move = await mover.move(victim, "target", seconds=3, **more)
    if when == "before":
        assert move.end == "no hold: stolen before the eviction"
        assert await same(world, victim)
    else:
        assert (move.end, move.stolen) == ("waits", True)
        await world.cordon("source", on=False)
        await world.running("victim")
        await world.stands("victim", ["source"])
    await world.until(lambda: not world.placeholders(), "nothing is left behind")
    assert world.kubelets.rejected == []


@WHEN
@pytest.mark.parametrize("what", ["cordoned", "deleted"])
async def test_the_target_is_lost(world: World, mover: Mover, when: str, what: str) -> None:
    victim = await alone(world)
    await world.node("other")

    async def lose(held: PodRef) -> None:
        if what == "cordoned":
            await world.cordon("target")
        else:
            await world.api.ok("DELETE", "/api/v1/nodes/target")
            # Its pods are collected by a controller that does not run here.
            await world.api.ok("DELETE", path_of(world.pods[held.uid]), {"gracePeriodSeconds": 0})
            await world.until(lambda: (held.uid, "gone") in world.at, "the placeholder has gone")

    more: Any = {when: lose}
    move = await mover.move(victim, "target", seconds=5, **more)
    if when == "before" and what == "deleted":
        assert move.end == "no hold: stolen before the eviction"
        assert await same(world, victim)
    else:
        # A cordoned node is the session's to see: here it goes on, and the pod finds another place.
        assert move.end == "elsewhere"
        assert move.node in ("other", "source")
    await world.until(lambda: not world.placeholders(), "nothing is left behind")


async def test_an_eviction_that_a_budget_forbids_leaves_all_as_it_was(world: World, mover: Mover) -> None:
    victim = await alone(world)
    budget = {"metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "victim"}}}}
    await world.api.ok("POST", f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets", budget)
    move = await mover.move(victim, "target")
    assert move.end == "not evicted: OverBudget"
    assert await same(world, victim)
    await world.until(lambda: not world.placeholders(), "nothing is left behind")


# -- the pod -----------------------------------------------------------------------------------------------------------


async def test_a_statefulsets_pod_lands_with_its_name_once_it_has_gone(world: World, mover: Mover) -> None:
    await world.node("source")
    await world.statefulset("db", 1, pod_spec(), term=0.5)
    (victim,) = await world.running("db")
    await world.node("target", gpus=1)
    move = await mover.move(victim, "target", before=lambda _: crowd(world))
    assert move.end == "landed"
    assert move.successor is not None
    assert move.successor["metadata"]["name"] == "db-0"


async def test_a_read_write_once_pod_claim_moves_once_its_pod_has_gone(world: World, mover: Mover) -> None:
    """The claim admits one pod: the placeholder does without it, and the nomination waits for the victim's end."""
    claim = {"accessModes": ["ReadWriteOncePod"], "storageClassName": "static", "volumeName": "disk", "resources": {"requests": {"storage": "1Gi"}}}
    volume = {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"], "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "static", "csi": {"driver": "example.com", "volumeHandle": "disk"},
    }  # fmt: skip
    await world.api.ok("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "disk"}, "spec": volume})
    claims = f"/api/v1/namespaces/{NS}/persistentvolumeclaims"
    await world.api.ok("POST", claims, {"metadata": {"name": "data"}, "spec": claim})
    for _ in range(200):
        if (await world.api.ok("GET", f"{claims}/data"))["status"].get("phase") == "Bound":
            break
        await asyncio.sleep(0.05)
    spec = pod_spec(
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}], mounts=[{"name": "data", "mountPath": "/data"}]
    )
    victim = await alone(world, spec)
    move = await mover.move(victim, "target", before=lambda _: crowd(world), wait_end=True)
    assert move.end == "landed"
    assert world.where("crowd") == ["waits"] * 50


async def test_siblings_of_a_scale_up_are_let_go_at_once(world: World, mover: Mover) -> None:
    victim = await alone(world)
    await world.node("other")

    async def up(_: PodRef) -> None:
        await world.api.ok("PATCH", f"{APPS}/replicasets/victim", {"spec": {"replicas": 4}}, media=MERGE)
        await world.running("victim", 4)

    move = await mover.move(victim, "target", before=up)
    assert move.end == "landed"
    await world.running("victim", 4)
    assert mover.let_go == 3


async def test_two_pods_of_one_controller_move_at_once(world: World, mover: Mover) -> None:
    await world.node("source")
    await world.replicaset("victim", 4, pod_spec())
    victims = await world.running("victim", 4)
    for name in ("target-0", "target-1"):
        await world.node(name, gpus=1)
    moves = await asyncio.gather(*(mover.move(v, f"target-{i}") for i, v in enumerate(victims[:2])))
    assert [move.end for move in moves] == ["landed", "landed"]


async def test_without_the_gate_nobody_is_evicted(world: World, mover: Mover, lab: Lab) -> None:
    victim = await alone(world)
    await world.api.ok("DELETE", BINDING)
    try:
        await asyncio.sleep(1)
        move = await mover.move(victim, "target")
        assert move.end == "no gate: not within 5 s"
        assert await same(world, victim)
    finally:
        lab.kubectl("apply", "-k", "deploy/beside")


async def test_a_successor_that_was_not_gated_lands_where_nothing_else_fits(world: World, mover: Mover, lab: Lab) -> None:
    """The policy goes after the proof: nomination and deletion in this order still put it there."""
    victim = await alone(world)
    await world.cordon("source")

    async def away(_: PodRef) -> None:
        await world.api.ok("DELETE", BINDING)
        await asyncio.sleep(0.5)

    try:
        assert (await mover.move(victim, "target", before=away)).end == "landed"
    finally:
        lab.kubectl("apply", "-k", "deploy/beside")


# -- the scheduler -----------------------------------------------------------------------------------------------------


async def test_whoever_preempts_somebody_else_on_the_target_takes_nothing_from_the_successor(
    world: World, mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kube-scheduler takes away all nominations of lower priority on a node where it preempts anybody, also that of a gated pod. The placeholder is to stay until the
    successor is nominated again: there are equal pods that wait for its place."""
    await world.node("source")
    await world.replicaset("victim", 1, pod_spec())
    (victim,) = await world.running("victim")
    await world.cordon("source")
    await world.node("target", gpus=2)
    await world.pod("least", pod_spec(priority=LOW))
    await world.running("least")
    heard, nominations = mover.session._hearing.heard, list[str]()

    async def hears(who: Any, of: tuple[str, str]) -> Any:
        said = await heard(who, of)
        if not nominations:
            await world.crowd(20)
            await world.pod("high", pod_spec(priority=HIGH))
            await world.running("high")
            await world.within(lambda: not world.pods[of[0]]["status"].get("nominatedNodeName"), 5)
            nominations.append(world.pods[of[0]]["status"].get("nominatedNodeName", ""))
        return said

    monkeypatch.setattr(mover.session._hearing, "heard", hears)
    move = await mover.move(victim, "target", seconds=30)
    print(nominations, told([move]))
    assert nominations == [""], "it was taken away"
    assert move.end == "landed"
    assert world.where("crowd") == ["waits"] * 20
    assert world.kubelets.rejected == []


@WHEN
async def test_the_scheduler_restarts_while_50_equal_pods_wait(world: World, mover: Mover, lab: Lab, when: str) -> None:
    victim = await alone(world)

    async def restart(_: PodRef) -> None:
        await crowd(world)
        lab.stop("scheduler", hard=True)
        await asyncio.to_thread(lab.start_scheduler)
        if when == "before":
            await asyncio.sleep(1)

    more: Any = {when: restart}
    move = await mover.move(victim, "target", **more)
    print(when, told([move]))
    assert move.end == "landed"
    assert world.where("crowd") == ["waits"] * 50


async def test_restow_stops_between_the_deletion_and_the_gate_and_the_place_is_kept(
    world: World, mover: Mover, session: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, let_go = await alone(world), session.let_go

    async def late(pod: PodRef) -> Any:
        await asyncio.sleep(3)
        return await let_go(pod)

    monkeypatch.setattr(session, "let_go", late)
    move = await mover.move(victim, "target", before=lambda _: crowd(world))
    assert move.end == "landed"
    assert world.where("crowd") == ["waits"] * 50
    assert move.successor is not None
    assert ref(move.successor).uid != victim["metadata"]["uid"]
