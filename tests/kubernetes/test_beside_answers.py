"""What the whole of Restow answers to what happens in the middle of a move beside the stock scheduler. Its old node is kept for a pod until it has
landed, and is the way back (shared/BESIDE.md, "Event → answer")."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.lab import DEPLOY, Lab
from kubernetes.services import DESCHEDULER, SESSION, ended, kill, known, migrate, not_gated, stand
from kubernetes.world import APPS, HIGH, World, path_of, pod_spec
from kubesim.conformance.harness import MERGE

from restow.domain import thefts
from restow.domain.beside import SLOT
from restow.kube.annotations import TOUCHED
from restow.kube.gates import Gates

pytestmark = pytest.mark.usefixtures("nothing_is_left")
TERM = 2.0
"""Seconds that a pod takes to end, so that something may happen meanwhile."""


async def ready(world: World, stack: Running, kind: str = "deployments", term: float = TERM) -> Any:
    """A pod that fills `source`, and `target` with room for one; equal pods wait for either once there is a hold. A StatefulSet's successor comes
    when the pod has gone."""
    await world.node("source", gpus=1)
    await world.workload(kind, "victim", 1, pod_spec(), term, **({"serviceName": "victim"} if kind == "statefulsets" else {}))
    (victim,) = await world.running("victim")
    await world.budget(0)
    await world.node("target", gpus=1)
    await known(stack, [victim])
    return victim


async def begun(world: World, stack: Running, kind: str = "deployments", term: float = TERM) -> tuple[Any, str, Any]:
    """The pod, its move, and what holds its slot; the eviction waits for a budget."""
    victim = await ready(world, stack, kind, term)
    move = await migrate(stack, victim, "target")
    (held,) = await stand(world, 1)
    await world.crowd()
    await world.until(lambda: guards(world), "the source is kept")
    return victim, move, held


def guards(world: World) -> list[Any]:
    """Placeholders that are nominated for the source."""
    found = [pod for pod in world.placeholders() if pod["metadata"].get("annotations", {}).get(SLOT, "").startswith("guard/")]
    return [pod for pod in found if pod["status"].get("nominatedNodeName") == "source"]


async def ending(world: World, victim: Any) -> None:
    await world.budget(1)
    await world.until(lambda: (victim["metadata"]["uid"], "ending") in world.at, "it is evicted", 30)


async def steal(world: World, held: Any) -> None:
    """By a pod of higher priority."""
    await world.pod("high", pod_spec(priority=HIGH, nodeSelector={"kubernetes.io/hostname": "target"}))
    await world.until(lambda: (held["metadata"]["uid"], "gone") in world.at, "the hold is taken")


def metrics(stack: Running) -> list[str]:
    """Lines of the descheduler's."""
    request = urllib.request.Request(f"{stack.service_url(DESCHEDULER)}/metrics", headers=stack.authorization)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return list(answer.read().decode().splitlines())


def counted(stack: Running, reason: str) -> float:
    """Migrations that ended so, as Prometheus is told."""
    lines = metrics(stack)
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("restow_migrations_ended_total") and f'reason="{reason}"' in line)


async def test_the_source_is_not_refilled_before_the_pod_has_landed_and_given_away_then(world: World, stack: Running) -> None:
    victim, move, _ = await begun(world, stack)
    refilled: list[str] = []

    def told(kind: str, pod: Any) -> None:
        if guards(world) and "source" in world.where("crowd"):
            refilled.append(pod["metadata"]["name"])

    world.told.append(told)
    await ending(world, victim)
    one = await ended(stack, move)
    assert one["step"] == "landed", one
    await world.stands("victim", ["target"])
    assert refilled == []
    await world.until(lambda: "source" in world.where("crowd"), "what is free is given away at the end")
    assert world.kubelets.rejected == []


@pytest.mark.parametrize("kind", ["deployments", "statefulsets"])
async def test_where_a_kubelet_rejects_the_successor_the_next_one_has_the_slot(world: World, stack: Running, kind: str) -> None:
    """The evicted pod has gone by then. (Nothing holds the place between the rejection and the next placeholder: nobody else waits for it here.)"""
    victim = await ready(world, stack, kind, 0.2)
    move = await migrate(stack, victim, "target")
    await stand(world, 1)
    world.kubelets.refuse = "victim"
    await world.budget(1)
    one = await ended(stack, move)
    rejected = [said for said in world.kubelets.rejected if said.endswith("UnexpectedAdmissionError")]
    world.kubelets.rejected.clear()
    assert len(rejected) == 1
    assert one["step"] == "landed", one
    await world.stands("victim", ["target"])


@pytest.mark.parametrize("kind", ["deployments", "statefulsets"])
async def test_where_somebody_has_the_slot_after_a_rejection_the_next_one_has_a_place_all_the_same(world: World, stack: Running, kind: str) -> None:
    """Equal pods wait, and nothing holds the slot between the rejection and the next placeholder; the guard keeps the old node."""
    _, move, _ = await begun(world, stack, kind, 0.2)
    world.kubelets.refuse = "victim"
    await world.budget(1)
    one = await ended(stack, move, seconds=90)  # landDeadline is five minutes
    rejected = [said for said in world.kubelets.rejected if said.endswith("UnexpectedAdmissionError")]
    world.kubelets.rejected.clear()
    assert len(rejected) == 1
    assert one["step"] in ("landed", "failed"), one
    await world.stands("victim", ["target" if one["step"] == "landed" else "source"])


@pytest.mark.parametrize("lost", ["cordoned", "deleted"])
async def test_a_target_that_is_lost_before_the_eviction_leaves_the_pod_where_it_is(world: World, stack: Running, lost: str) -> None:
    victim, move, _ = await begun(world, stack)
    await (world.cordon if lost == "cordoned" else world.lose)("target")
    one = await ended(stack, move)
    assert one["step"] == "failed", one
    await world.stands("victim", ["source"])
    assert (victim["metadata"]["uid"], "ending") not in world.at


@pytest.mark.parametrize("lost", ["cordoned", "deleted"])
async def test_a_target_that_is_lost_after_the_eviction_sends_the_pod_back(world: World, stack: Running, lost: str) -> None:
    victim, move, _ = await begun(world, stack, "statefulsets")
    await ending(world, victim)
    await (world.cordon if lost == "cordoned" else world.lose)("target")
    one = await ended(stack, move)
    assert one["step"] == "failed", one
    await world.stands("victim", ["source"])
    assert world.where("crowd") == ["waits"] * 50


async def test_a_successor_that_the_api_did_not_gate_runs_and_nothing_keeps_it_waiting(
    world: World, stack: Running, lab: Lab, descheduler: Gates
) -> None:
    victim, move, _ = await begun(world, stack, "statefulsets")
    await ending(world, victim)
    lab.kubectl("delete", "-f", str(DEPLOY / "beside" / "landing.yaml"))
    try:
        await not_gated(descheduler, victim)
        one = await ended(stack, move)
    finally:
        lab.kubectl("apply", "-k", str(DEPLOY / "beside"))
    assert one["step"] in ("landed", "failed"), one
    assert world.where("victim") in (["target"], ["source"])


async def test_pods_that_come_by_a_scale_up_meanwhile_are_let_go(world: World, stack: Running) -> None:
    victim, move, _ = await begun(world, stack)
    await ending(world, victim)
    await world.api.ok("PATCH", f"{APPS}/deployments/victim", {"spec": {"replicas": 3}}, media=MERGE)
    one = await ended(stack, move)
    assert one["step"] == "landed", one
    # The watch may lag behind the services: who has landed may be seen waiting for a moment.
    await world.until(lambda: sorted(world.where("victim")) == ["target", "waits", "waits"], "one has landed, and nobody is gated")


async def test_a_deployment_that_is_scaled_down_meanwhile_frees_the_slot_at_once(world: World, stack: Running) -> None:
    """Whether its successor has come by then, or has the slot already, or neither."""
    victim, move, held = await begun(world, stack)
    await ending(world, victim)
    await world.api.ok("PATCH", f"{APPS}/deployments/victim", {"spec": {"replicas": 0}}, media=MERGE)
    one = await ended(stack, move, seconds=45)  # landDeadline is five minutes
    assert (one["step"], one["reason"]) == ("failed", "NotNeeded"), one
    await world.until(lambda: (held["metadata"]["uid"], "gone") in world.at, "the slot is free")
    await world.until(lambda: sorted(set(world.where("crowd"))) == ["source", "target", "waits"], "what is free is given away")


async def test_a_rollout_meanwhile_replaces_what_has_landed(world: World, stack: Running) -> None:
    victim, move, _ = await begun(world, stack)
    await ending(world, victim)
    # One that is made before: where the rollout comes first nobody follows, until it is over.
    await world.until(lambda: [p for p in world.of("victim") if p["metadata"]["uid"] != victim["metadata"]["uid"]], "the successor comes")
    template = {"template": {"metadata": {"labels": {"app": "victim", "rollout": "2"}}}, "strategy": {"type": "Recreate", "rollingUpdate": None}}
    await world.api.ok("PATCH", f"{APPS}/deployments/victim", {"spec": template}, media=MERGE)
    one = await ended(stack, move)
    assert one["step"] in ("landed", "failed"), one
    await world.until(lambda: [p for p in world.of("victim") if p["metadata"]["labels"].get("rollout")], "the new one comes", 30)


async def test_a_scheduler_that_was_restarted_lets_nobody_have_the_source_once_the_guard_was_touched(world: World, stack: Running, lab: Lab) -> None:
    victim, move, _ = await begun(world, stack, "statefulsets")
    lab.stop("scheduler")
    (guard,) = guards(world)
    was = guard["metadata"]["annotations"].get(TOUCHED, "0")
    lab.start_scheduler()
    await world.until(lambda: int(guards(world)[0]["metadata"]["annotations"].get(TOUCHED, "0")) > int(was), "the guard is touched", 30)
    await ending(world, victim)
    refilled: list[str] = []
    world.told.append(lambda kind, pod: refilled.extend(["source"] * ("source" in world.where("crowd") and bool(guards(world)))))
    one = await ended(stack, move)
    assert one["step"] == "landed", one
    assert refilled == []


STEPS = ("placeholder", "held", "guarded", "ending", "gated", "landing")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("service", [SESSION, DESCHEDULER, "cluster_watcher", "reservation_cache"])
async def test_a_service_that_is_killed_anywhere_in_between_lands_the_pod_when_it_is_back(world: World, stack: Running, service: str, step: str) -> None:
    victim = await ready(world, stack, term=0.5)
    killed: list[str] = []

    def told(kind: str, pod: Any) -> None:
        if not killed and _reached(world, victim, step):
            killed.append(service)
            kill(stack, service)

    world.told.append(told)
    move = await migrate(stack, victim, "target")
    await stand(world, 1)
    await world.crowd()
    await world.budget(1)
    one = await ended(stack, move)
    assert killed
    assert one["step"] == "landed", one
    await world.stands("victim", ["target"])
    assert world.kubelets.rejected == []


def _reached(world: World, victim: Any, step: str) -> bool:
    new = [pod for pod in world.of("victim") if pod["metadata"]["uid"] != victim["metadata"]["uid"]]
    match step:
        case "placeholder":
            return bool(world.placeholders())
        case "held":
            return any(pod["status"].get("phase") == "Running" for pod in world.placeholders())
        case "guarded":
            return bool(guards(world))
        case "ending":
            return (victim["metadata"]["uid"], "ending") in world.at
        case "gated":
            return any(pod["spec"].get("schedulingGates") for pod in new)
        case _:
            return any(pod["status"].get("nominatedNodeName") for pod in new)


# -- thefts: last, for after three of them moves rest -----------------------------------------------------------------------


async def test_a_hold_that_a_higher_priority_takes_after_the_eviction_sends_the_pod_back(world: World, stack: Running) -> None:
    victim, move, held = await begun(world, stack, "statefulsets")
    await ending(world, victim)
    await steal(world, held)
    one = await ended(stack, move)
    assert (one["step"], one["reason"]) == ("failed", "HoldStolen"), one
    await world.stands("victim", ["source"])
    assert world.where("crowd") == ["waits"] * 50
    assert world.kubelets.rejected == []


async def test_a_hold_that_a_higher_priority_takes_before_the_eviction_leaves_the_pod_where_it_is(world: World, stack: Running) -> None:
    before = counted(stack, "HoldStolen")
    victim, move, held = await begun(world, stack)
    await steal(world, held)
    one = await ended(stack, move)
    assert (one["step"], one["reason"]) == ("failed", "HoldStolen")
    await world.stands("victim", ["source"])
    assert (victim["metadata"]["uid"], "ending") not in world.at
    assert "HoldStolen" in await asyncio.to_thread(stack.restow, "why", f"migration/{move}")
    assert counted(stack, "HoldStolen") == before + 1


async def test_after_some_thefts_in_a_row_no_move_begins_for_a_while(world: World, stack: Running) -> None:
    victim = await ready(world, stack)
    rests = 'restow_moves_beside_rest{family="migration"} 1.0'
    for number in range(thefts.MOST):
        # Those of the tests before count, and a service that was killed meanwhile has counted none of them.
        if rests in metrics(stack):
            break
        await world.node(f"target-{number}", gpus=1)
        move = await migrate(stack, victim, f"target-{number}")
        (held,) = await stand(world, 1)
        await world.api.ok("DELETE", path_of(held), {"gracePeriodSeconds": 0})
        one = await ended(stack, move)
        assert (one["step"], one["reason"]) == ("failed", "HoldStolen")
        await world.until(lambda: not world.placeholders(), "the placeholder goes")
    name = f"pod/{victim['metadata']['namespace']}/{victim['metadata']['name']}"
    await asyncio.to_thread(stack.restow, "migrate", name, "--to", "target", "--no-follow", code=1)
    assert rests in metrics(stack)
