"""A placeholder is placed by the stock scheduler where the pod itself may be, in the sight of everybody, and fits Pod Security's `restricted`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubernetes.lab import Lab
from kubernetes.moves import LOG, Mover, manifest_of, ref, shape_of, uid_of
from kubernetes.test_beside_moves import alone
from kubernetes.world import HIGH, LOW, MID, PRIORITIES, World, controller, pod_spec, refused
from kubesim.conformance.harness import MERGE

from restow.kube.beside import Beside
from restow.kube.effects import Done, Failed, PodRef, Refused
from restow.kube.reservation_objects import Created


async def held(world: World, session: Beside, victim: Any, node: str = "target", **more: Any) -> PodRef:
    """A placeholder that was created; whether it runs is to be seen."""
    manifest, shape = manifest_of(victim, node, **more)
    outcome = await session.occupy(manifest, shape.priority, LOG)
    assert isinstance(outcome, Created), outcome
    await world.until(lambda: outcome.uid in world.pods, "the placeholder is seen")
    return PodRef(manifest.metadata.namespace, manifest.metadata.name, outcome.uid)


async def runs(world: World, pod: PodRef) -> None:
    await world.until(lambda: (pod.uid, "running") in world.at, "the placeholder runs")


async def waits(world: World, name: str) -> None:
    await world.until(lambda: [p for p in world.of(name) if refused(p)], f"{name} is refused")


async def test_it_has_the_pods_priority_and_counts_for_everybody(world: World, session: Beside) -> None:
    victim = await alone(world)
    pod = await held(world, session, victim)
    await runs(world, pod)
    got = world.pods[pod.uid]
    assert (got["spec"]["priority"], got["spec"]["preemptionPolicy"]) == (PRIORITIES[MID], "Never")
    assert shape_of(got)[0].requests == shape_of(victim)[0].requests
    await world.closed("source")
    for priority in (LOW, MID):
        await world.pod(f"rival-{priority}", pod_spec(priority=priority))
        await waits(world, f"rival-{priority}")
    await world.pod("rival-high", pod_spec(priority=HIGH))
    await world.running("rival-high")
    assert (pod.uid, "gone") in world.at


async def test_nobody_adopts_it(world: World, session: Beside) -> None:
    victim = await alone(world)
    pod = await held(world, session, victim)
    await runs(world, pod)
    await asyncio.sleep(1)
    assert controller(world.pods[pod.uid]) is None
    assert len(world.of("victim")) == 1


async def test_one_that_does_not_fit_is_refused_and_preempts_nobody(world: World, session: Beside) -> None:
    victim = await alone(world)
    await world.closed("source")
    await world.pod("low", pod_spec(priority=LOW))
    await world.running("low")
    pod = await held(world, session, victim)
    await world.until(lambda: refused(world.pods[pod.uid]), "the placeholder is refused")
    await world.stands("low", ["target"])


async def test_it_is_refused_where_the_pod_itself_may_not_be(world: World, session: Beside) -> None:
    victim = await alone(world, pod_spec(nodeSelector={"kubernetes.io/hostname": "source"}))
    pod = await held(world, session, victim)
    await world.until(lambda: refused(world.pods[pod.uid]), "the placeholder is refused")


async def test_a_tainted_node_takes_the_placeholder_of_a_pod_that_tolerates_it(world: World, session: Beside) -> None:
    await world.node("source")
    await world.replicaset("victim", 1, pod_spec(tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]))
    (victim,) = await world.running("victim")
    await world.node("target", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    await runs(world, await held(world, session, victim))


async def test_it_keeps_others_apart_as_the_pod_would(world: World, session: Beside) -> None:
    """Its anti-affinity names the pod's namespace: in its own there is nobody."""
    term = {"labelSelector": {"matchLabels": {"app": "rival"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await world.node("source")
    await world.replicaset("victim", 1, pod_spec(affinity=apart))
    (victim,) = await world.running("victim")
    await world.node("target")
    await runs(world, await held(world, session, victim))
    await world.closed("source")
    await world.pod("rival", pod_spec(0))
    await waits(world, "rival")


async def test_zonal_anti_affinity_with_itself_is_held_in_its_own_zone(world: World, mover: Mover) -> None:
    """The pod itself is in the way until it has gone: the term is left out, and the nomination waits for its end."""
    term = {"labelSelector": {"matchLabels": {"app": "victim"}}, "topologyKey": "topology.kubernetes.io/zone"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    victim = await alone(world, pod_spec(affinity=apart))
    await world.closed("source")

    async def crowd(_: object) -> None:
        await world.replicaset("crowd", 30, pod_spec())
        await world.unschedulable("crowd", 30)

    move = await mover.move(victim, "target", before=crowd, wait_end=True, shared=frozenset({"topology.kubernetes.io/zone"}))
    assert move.end == "landed"


async def test_a_lost_place_is_freed_by_its_kubelet_when_nobody_comes_back(world: World, session: Beside) -> None:
    victim = await alone(world)
    await runs(world, await held(world, session, victim, lifetime=2))
    await world.closed("source")
    await world.pod("next", pod_spec())
    await waits(world, "next")
    await world.running("next")


async def test_host_ports_are_held_where_they_are_allowed(world: World, session: Beside, mover: Mover, lab: Lab) -> None:
    victim = await alone(world, pod_spec(host_ports=[8080]))
    manifest, shape = manifest_of(victim, "target")
    absent = await session.occupy(manifest, shape.priority, LOG)
    assert isinstance(absent, Refused), "their namespace is not installed yet"
    lab.kubectl("apply", "-k", "deploy/beside/host-ports")
    try:
        await world.closed("source")

        async def rivals(_: object) -> None:
            await world.pod("rival", pod_spec(0, host_ports=[8080]))
            await waits(world, "rival")

        move = await mover.move(victim, "target", before=rivals)
        assert move.end == "landed"
        assert world.where("rival") == ["waits"]
        assert world.kubelets.rejected == []
    finally:
        lab.kubectl("delete", "-k", "deploy/beside/host-ports", "--timeout=60s")


async def test_the_place_of_host_ports_takes_nothing_but_placeholders(world: World, session: Beside, lab: Lab) -> None:
    lab.kubectl("apply", "-k", "deploy/beside/host-ports")
    try:
        path, other = "/api/v1/namespaces/restow-holds-ports/pods?dryRun=All", {"metadata": {"name": "x"}, "spec": pod_spec(0)}
        for _ in range(100):
            if (await world.api.call("POST", path, other)).status == 422:
                break
            await asyncio.sleep(0.1)  # until the new policy counts
        for spec in (pod_spec(0), pod_spec(0, hostNetwork=True), pod_spec(0, volumes=[{"name": "host", "hostPath": {"path": "/"}}])):
            failed = await world.api.fails(422, None, "POST", path, {"metadata": {"name": "x"}, "spec": spec})
            assert "restow-holds-ports" in failed["message"]
        victim = await alone(world, pod_spec(host_ports=[8080]))
        await runs(world, await held(world, session, victim))
    finally:
        lab.kubectl("delete", "-k", "deploy/beside/host-ports", "--timeout=60s")


@pytest.mark.parametrize("restart", [False, True], ids=["scheduler-stays", "scheduler-restarts"])
async def test_a_virtual_one_holds_without_a_kubelet_and_after_a_restart_once_it_is_touched(
    world: World, session: Beside, lab: Lab, restart: bool
) -> None:
    victim = await alone(world)
    pod = await held(world, session, victim, virtual=True)
    assert await session.patch_nominated_node(pod, "target") == Done()
    if restart:
        lab.stop("scheduler")
        lab.start_scheduler()
        assert await session.touch(pod, "1") == Done()
    # Pods are told in order: where the probe has been looked at, the nomination is known.
    await world.closed("source")
    await world.pod("rival", pod_spec())
    await waits(world, "rival")
    assert await session.vacate(pod) == Done()
    await world.running("rival")


async def test_a_second_placeholder_is_never_made_for_one_slot(world: World, session: Beside) -> None:
    victim = await alone(world)
    both = await asyncio.gather(*(held(world, session, victim) for _ in range(5)))
    assert len({pod.uid for pod in both}) == 1
    assert [uid_of(p) for p in world.placeholders()] == [both[0].uid]
    assert ref(world.pods[both[0].uid]) == both[0]


async def test_one_that_somebodys_finalizer_keeps_is_not_taken_for_gone(world: World, session: Beside) -> None:
    pod = await held(world, session, await alone(world))
    await runs(world, pod)
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    await world.api.ok("PATCH", path, {"metadata": {"finalizers": ["example.com/theirs"]}}, media=MERGE)
    kept = await session.vacate(pod)
    assert isinstance(kept, Failed), kept
    assert "example.com/theirs" in kept.message
    await world.api.ok("PATCH", path, {"metadata": {"finalizers": None}}, media=MERGE)
    assert await session.vacate(pod) == Done()
    await world.until(lambda: (pod.uid, "gone") in world.at, "it has gone")
