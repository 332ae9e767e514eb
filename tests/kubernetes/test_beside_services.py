"""The whole of Restow beside the stock scheduler: five services, their own rights, a broker; pods of `default-scheduler` are moved."""

from __future__ import annotations

import asyncio
import json
import statistics
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.lab import DEPLOY, Lab
from kubernetes.services import SESSION, ended, kill, known, migrate, not_gated, plan, stand, victims
from kubernetes.world import World, path_of, pod_spec

from restow.kube.gates import Gates

pytestmark = pytest.mark.usefixtures("nothing_is_left")


async def from_eviction_to_binding(world: World, before: list[Any]) -> list[float]:
    """Milliseconds, in order: the n-th victim to end, the n-th successor to be bound."""
    await world.gone(before)
    gone = sorted(world.at[pod["metadata"]["uid"], "ending"] for pod in before)
    bound = sorted(world.at[pod["metadata"]["uid"], "bound"] for pod in world.of("victim"))
    return [1000 * (b - a) for a, b in zip(gone, bound, strict=True)]


async def test_a_pod_of_a_deployment_lands_on_the_node_that_was_named_while_equal_pods_wait(world: World, stack: Running) -> None:
    (victim,) = before = await victims(world, stack)
    move = await migrate(stack, victim, "target-0")
    await stand(world, 1)
    await world.crowd()
    await world.budget(1)
    one = await ended(stack, move)
    assert one["step"] == "landed", one
    await world.stands("victim", ["target-0"])
    assert world.where("crowd") == ["waits"] * 50
    assert world.kubelets.rejected == []
    print(f"eviction -> bound {(await from_eviction_to_binding(world, before))[0]:.0f} ms")


async def test_all_20_moves_of_a_plan_land_while_equal_pods_wait_for_the_same_room(world: World, stack: Running) -> None:
    """Defragmentation empties `source`, a quarter of which is used, onto `target`, of which half is, so that 4 more fit."""
    await world.node("target", gpus=48, labels={"pool": "target"})
    await world.replicaset("filler", 24, pod_spec())
    fillers = await world.running("filler", 24)
    await world.cordon("target")
    await world.node("source", gpus=80)
    await world.workload("deployments", "victim", 20, pod_spec(), 0.2)
    before = await world.running("victim", 20)
    await world.cordon("target", on=False)
    await world.budget(0)
    await known(stack, fillers + before)
    moves = await plan(stack, 20)
    await stand(world, 20)
    await world.crowd(nodeSelector={"pool": "target"})
    await world.budget(20)
    over = [await ended(stack, move) for move in moves]
    assert [one for one in over if one["step"] != "landed"] == []
    await world.stands("victim", ["target"] * 20)
    assert world.where("crowd") == ["target"] * 4 + ["waits"] * 46
    assert world.kubelets.rejected == []
    times = await from_eviction_to_binding(world, before)
    print(f"eviction -> bound p50 {statistics.median(times):.0f} max {max(times):.0f} ms")


async def test_doctor_asks_for_each_account_that_restow_up_was_given_what_its_service_may_do(world: World, stack: Running, lab: Lab) -> None:
    def said(code: int) -> list[tuple[str, str]]:
        found = json.loads(stack.restow("doctor", "-o", "json", code=code))
        return [(one["word"], one["what"].partition(": ")[2]) for one in found if one["about"] == "rights"]

    assert await asyncio.to_thread(said, 0) == [("ok", "the services may do all that they need")]
    role = json.loads(lab.kubectl("get", "clusterrole", "restow-descheduler", "-o", "json"))
    kept = [rule for rule in role["rules"] if rule["resources"] != ["pods/eviction"]]
    lab.kubectl("patch", "clusterrole", "restow-descheduler", "--type", "merge", "-p", json.dumps({"rules": kept}))
    try:
        assert await asyncio.to_thread(said, 1) == [("bad", "descheduler may not create pods/eviction")]
    finally:
        lab.kubectl("patch", "clusterrole", "restow-descheduler", "--type", "merge", "-p", json.dumps({"rules": role["rules"]}))


async def test_a_hold_that_is_stolen_before_the_eviction_leaves_the_pod_where_it_is(world: World, stack: Running) -> None:
    (victim,) = await victims(world, stack)
    move = await migrate(stack, victim, "target-0")
    (held,) = await stand(world, 1)
    assert held["metadata"]["name"] in await asyncio.to_thread(stack.restow, "why", f"migration/{move}")
    await world.api.ok("DELETE", path_of(held), {"gracePeriodSeconds": 0})
    one = await ended(stack, move)
    assert (one["step"], one["reason"]) == ("failed", "HoldStolen")
    await world.stands("victim", ["source"])
    assert (victim["metadata"]["uid"], "ending") not in world.at


async def test_nobody_is_evicted_where_the_api_would_not_gate_the_successor(world: World, stack: Running, lab: Lab, descheduler: Gates) -> None:
    (victim,) = await victims(world, stack)
    move = await migrate(stack, victim, "target-0")
    await stand(world, 1)
    lab.kubectl("delete", "-f", str(DEPLOY / "beside" / "landing.yaml"))
    try:
        await not_gated(descheduler, victim)
        await world.budget(1)
        one = await ended(stack, move, 90)
    finally:
        lab.kubectl("apply", "-k", str(DEPLOY / "beside"))
    assert (one["step"], one["reason"]) == ("failed", "NotGated")
    await world.stands("victim", ["source"])
    assert (victim["metadata"]["uid"], "ending") not in world.at


async def test_a_session_that_is_killed_while_a_successor_is_gated_lands_it_when_it_is_back(world: World, stack: Running) -> None:
    (victim,) = await victims(world, stack)
    move = await migrate(stack, victim, "target-0")
    await stand(world, 1)
    killed = False

    def told(kind: str, pod: Any) -> None:
        nonlocal killed
        if pod["spec"].get("schedulingGates") and not killed:
            killed = True
            kill(stack, SESSION)

    world.told.append(told)
    await world.crowd()
    await world.budget(1)
    one = await ended(stack, move)
    assert killed
    assert one["step"] == "landed", one
    await world.stands("victim", ["target-0"])
