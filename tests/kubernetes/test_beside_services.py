"""The whole of Restow beside the stock scheduler: five services, their own rights, a broker; pods of `default-scheduler` are moved."""

from __future__ import annotations

import asyncio
import json
import statistics
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.lab import DEPLOY, Lab
from kubernetes.services import DESCHEDULER, SESSION, kill, migrate, services
from kubernetes.world import NS, World, path_of, pod_spec

from restow.contracts.values import OwnerRef
from restow.kube.beside import Beside, NotGated

LONG = 30.0


@pytest.fixture(scope="module", name="stack")
def running_stack(lab: Lab, kubelets: object) -> Iterator[Running]:
    with services(lab) as running:
        yield running


@pytest.fixture(autouse=True)
async def nothing_is_left(world: World, stack: Running) -> Any:
    yield
    await left_over(world)


async def left_over(world: World) -> None:
    """After each test: no placeholder, no gate, no entry, no Reservation."""
    await world.until(lambda: not world.placeholders(), "no placeholder is left", LONG)
    await world.until(lambda: "gated" not in [where for app in apps(world) for where in world.where(app)], "no gate is left", LONG)
    await ends(world, "no entry is left", entries)
    await ends(world, "no Reservation is left", reservations)


def apps(world: World) -> set[str]:
    return {(pod["metadata"].get("labels") or {}).get("app", "") for pod in world.pods.values()}


async def entries(world: World) -> list[str]:
    listed = await world.api.ok("GET", "/apis/restow.dev/v1/landings")
    return [uid for one in listed["items"] for uid in (one.get("spec", {}).get("open") or {})]


async def reservations(world: World) -> list[str]:
    listed = await world.api.ok("GET", "/apis/batch.volcano.sh/v1alpha1/reservations")
    return [one["metadata"]["name"] for one in listed["items"]]


async def ends(world: World, what: str, left: Any) -> None:
    for _ in range(int(LONG / 0.1)):
        if not (found := await left(world)):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {LONG:g} s: {what}: {found}")


async def known(stack: Running, pods: list[Any]) -> None:
    """Restow has seen them."""
    names = {pod["metadata"]["uid"] for pod in pods}
    for _ in range(600):
        said = await asyncio.to_thread(stack.restow, "get", "pods", "-A", "--output", "json")
        if all(name in said for name in names):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not known: {names}")


async def ended(stack: Running, move: str) -> dict[str, Any]:
    """A migration, once it is over."""
    for _ in range(int(LONG / 0.2)):
        told = json.loads(await asyncio.to_thread(stack.restow, "get", "migrations", "--output", "json"))["items"]
        (one,) = [one for one in told if one["id"] == move]
        if one["step"] in ("landed", "failed", "not_recreated"):
            return dict(one)
        await asyncio.sleep(0.2)
    raise AssertionError(f"{move} is not over: {one}")


async def victims(world: World, stack: Running, count: int = 1, kind: str = "deployments") -> list[Any]:
    """They run on `source`, which takes no more; then there are as many targets, with room for one each."""
    await world.node("source", gpus=count)
    await world.workload(kind, "victim", count, pod_spec(), 0.2)
    found = await world.running("victim", count)
    await world.cordon("source")
    await budget(world, 0)
    for i in range(count):
        await world.node(f"target-{i}", gpus=1)
    await known(stack, found)
    return found


async def budget(world: World, allowed: int) -> None:
    """How many of the victims may be evicted."""
    path = f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets"
    await world.api.call("DELETE", f"{path}/victim")
    if not allowed:
        body = {"metadata": {"name": "victim"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "victim"}}}}
        await world.api.ok("POST", path, body)


async def crowd(world: World, count: int = 50, **more: Any) -> None:
    """Pods like the victims wait for the same room."""
    await world.replicaset("crowd", count, pod_spec(**more))
    await world.unschedulable("crowd", count)


async def plan(stack: Running, count: int) -> list[str]:
    """Defragmentation's moves, once it finds so many."""
    for _ in range(100):
        events = (await asyncio.to_thread(defragment, stack, "?dryRun=true"))["events"]
        if sum(len(event.get("moves", ())) for event in events) == count:
            events = (await asyncio.to_thread(defragment, stack))["events"]
            return [move["migration"] for event in events for move in event.get("moves", ())]
        await asyncio.sleep(0.2)
    raise AssertionError(f"no plan of {count} moves: {events}")


def defragment(stack: Running, query: str = "") -> Any:
    headers = {**stack.authorization, "Content-Type": "application/json"}
    request = urllib.request.Request(f"{stack.service_url(DESCHEDULER)}/defragment{query}", b"{}", headers, method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


async def not_gated(descheduler: Beside, pod: Any) -> None:
    """The API server has heard that the policy is gone."""
    (owner,) = pod["metadata"]["ownerReferences"]
    for _ in range(100):
        if isinstance(await descheduler.gated(OwnerRef(owner["kind"], owner["name"], owner["uid"], owner["apiVersion"])), NotGated):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it is still gated")


async def stand(world: World, count: int) -> list[Any]:
    """The placeholders, once they run."""

    def found() -> list[Any]:
        there = [pod for pod in world.placeholders() if pod["status"].get("phase") == "Running"]
        return there if len(there) >= count else []

    return await world.until(found, f"{count} placeholders run", LONG)


def from_eviction_to_binding(world: World, before: list[Any]) -> list[float]:
    """Milliseconds, in order: the n-th victim to end, the n-th successor to be bound."""
    gone = sorted(world.at[pod["metadata"]["uid"], "ending"] for pod in before)
    bound = sorted(world.at[pod["metadata"]["uid"], "bound"] for pod in world.of("victim"))
    return [1000 * (b - a) for a, b in zip(gone, bound, strict=True)]


async def test_a_pod_of_a_deployment_lands_on_the_node_that_was_named_while_equal_pods_wait(world: World, stack: Running) -> None:
    (victim,) = before = await victims(world, stack)
    move = await migrate(stack, victim, "target-0")
    await stand(world, 1)
    await crowd(world)
    await budget(world, 1)
    one = await ended(stack, move)
    assert one["step"] == "landed", one
    assert world.where("victim") == ["target-0"]
    assert world.where("crowd") == ["waits"] * 50
    assert world.kubelets.rejected == []
    print(f"eviction -> bound {from_eviction_to_binding(world, before)[0]:.0f} ms")


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
    await budget(world, 0)
    await known(stack, fillers + before)
    moves = await plan(stack, 20)
    await stand(world, 20)
    await crowd(world, nodeSelector={"pool": "target"})
    await budget(world, 20)
    over = [await ended(stack, move) for move in moves]
    assert [one for one in over if one["step"] != "landed"] == []
    assert world.where("victim") == ["target"] * 20
    assert world.where("crowd") == ["target"] * 4 + ["waits"] * 46
    assert world.kubelets.rejected == []
    times = from_eviction_to_binding(world, before)
    print(f"eviction -> bound p50 {statistics.median(times):.0f} max {max(times):.0f} ms")


async def test_a_hold_that_is_stolen_before_the_eviction_leaves_the_pod_where_it_is(world: World, stack: Running) -> None:
    (victim,) = await victims(world, stack)
    move = await migrate(stack, victim, "target-0")
    (held,) = await stand(world, 1)
    assert held["metadata"]["name"] in await asyncio.to_thread(stack.restow, "why", f"migration/{move}")
    await world.api.ok("DELETE", path_of(held), {"gracePeriodSeconds": 0})
    one = await ended(stack, move)
    assert (one["step"], one["reason"]) == ("failed", "HoldStolen")
    assert world.where("victim") == ["source"]
    assert (victim["metadata"]["uid"], "ending") not in world.at


async def test_nobody_is_evicted_where_the_api_would_not_gate_the_successor(world: World, stack: Running, lab: Lab, descheduler: Beside) -> None:
    (victim,) = await victims(world, stack)
    move = await migrate(stack, victim, "target-0")
    await stand(world, 1)
    lab.kubectl("delete", "-f", str(DEPLOY / "beside" / "landing.yaml"))
    try:
        await not_gated(descheduler, victim)
        await budget(world, 1)
        one = await ended(stack, move)
    finally:
        lab.kubectl("apply", "-k", str(DEPLOY / "beside"))
    assert (one["step"], one["reason"]) == ("failed", "NotGated")
    assert world.where("victim") == ["source"]
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
    await crowd(world)
    await budget(world, 1)
    one = await ended(stack, move)
    assert killed
    assert one["step"] == "landed", one
    assert world.where("victim") == ["target-0"]
