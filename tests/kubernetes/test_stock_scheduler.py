"""kube-scheduler as kubesim plays it: every test asks both, kubesim always, the real one where KUBEBUILDER_ASSETS has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from kubernetes.lab import minor
from kubernetes.world import HIGH, LOW, MID, NS, World, path_of, pod_spec, refused
from kubesim.conformance.harness import MERGE, STRATEGIC, Api, Target, unique

from restow.kubesim.testing import kubesim

Obj = dict[str, Any]
GATE = "restow.dev/landing"
BESIDE = Path(__file__).parents[2] / "deploy" / "beside"
SETTLED = 0.5
"""Seconds after which whatever was about to happen has happened."""


@dataclass
class NoKubelets:
    """kubesim brings its own."""

    rejected: list[str] = field(default_factory=list)


@dataclass
class Stock:
    world: World
    restart: Callable[[], None]

    async def pod(self, name: str, **more: Any) -> Obj:
        meta = {key: more.pop(key) for key in ("ownerReferences", "labels") if key in more}
        return await self.world.pod(name, pod_spec(**more), **meta)

    async def priority_class(self, name: str, value: int, policy: str) -> None:
        """Made, and known to admission."""
        made = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        await self.world.api.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", made)
        asks = {"metadata": {"name": "asks"}, "spec": pod_spec(priority=name)}
        for _ in range(100):
            if (await self.world.api.call("POST", f"/api/v1/namespaces/{NS}/pods?dryRun=All", asks)).status < 300:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"PriorityClass {name} is not known after 10 s")

    async def bound(self, name: str, node: str) -> Obj:
        await self.world.until(lambda: self.world.where(name) == [node], f"{name} is on {node}")
        return self.only(name)

    async def placed(self, name: str, *nodes: str) -> None:
        """On one of these, or on any."""
        await self.world.until(lambda: [p for p in self.world.of(name) if p["spec"].get("nodeName") and (not nodes or p["spec"]["nodeName"] in nodes)], f"{name} is placed")

    async def waits(self, name: str) -> Obj:
        await self.world.until(lambda: [p for p in self.world.of(name) if refused(p)], f"{name} is refused")
        return self.only(name)

    def only(self, name: str) -> Obj:
        (pod,) = self.world.of(name)
        return pod

    async def nominate(self, pod: Obj, node: str) -> None:
        await self.world.api.ok("PATCH", path_of(pod, "/status"), {"status": {"nominatedNodeName": node}}, media=MERGE)

    async def ungate(self, pod: Obj) -> None:
        patch = {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}
        await self.world.api.ok("PATCH", path_of(pod), patch, media=STRATEGIC)

    async def touch(self, pod: Obj) -> None:
        await self.world.api.ok("PATCH", path_of(pod), {"metadata": {"annotations": {"touched": unique("t")}}}, media=MERGE)

    async def delete(self, pod: Obj) -> None:
        await self.world.api.ok("DELETE", path_of(pod), {"gracePeriodSeconds": 0})

    async def gone(self, name: str) -> None:
        await self.world.until(lambda: not self.world.of(name), f"{name} is gone")


def gated() -> Obj:
    return {"schedulingGates": [{"name": GATE}]}


def only_on(node: str) -> Obj:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}


@pytest.fixture(params=["kubesim", "kubernetes"])
async def stock(request: pytest.FixtureRequest) -> AsyncIterator[Stock]:
    async for one in running_stock(request):
        yield one


async def running_stock(request: pytest.FixtureRequest) -> AsyncIterator[Stock]:
    """What the parameter names."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_read=90)) as session:
        if request.param == "kubesim":
            async with kubesim(controllers=True) as server:
                api = Api(Target("kubesim", server.url), session)
                for name in ("crd", "namespace", "landing"):
                    await install(api, name)
                scheduler = server.controllers.by_name["default-scheduler"]
                async for one in opened(World(None, NoKubelets(), api), scheduler.restart):
                    yield one
            return
        lab, kubelets = request.getfixturevalue("lab"), request.getfixturevalue("kubelets")

        def restart() -> None:
            lab.stop("scheduler")
            lab.start_scheduler()

        async for one in opened(World(lab, kubelets, Api(lab.target, session)), restart):
            yield one


async def opened(world: World, restart: Callable[[], None]) -> AsyncIterator[Stock]:
    await world.open()
    try:
        yield Stock(world, restart)
    finally:
        await world.close()


async def install(api: Api, name: str) -> None:
    for made in yaml.safe_load_all((BESIDE / f"{name}.yaml").read_text()):
        group = made["apiVersion"]
        plural = made["kind"].lower().removesuffix("y") + ("ies" if made["kind"].endswith("y") else "s")
        await api.ok("POST", f"/{'api' if group == 'v1' else 'apis'}/{group}/{plural}", made)


# -- the queue ------------------------------------------------------------------------------------------------------------


async def test_room_goes_to_the_highest_priority_that_waits(stock: Stock) -> None:
    """KS-400"""
    await stock.world.node("n0", gpus=1)
    await stock.pod("first", priority=HIGH)
    first = await stock.bound("first", "n0")
    for name, priority in (("low", LOW), ("mid", MID)):
        await stock.pod(name, priority=priority)
        await stock.waits(name)
    # Who was looked at within the last second is not looked at again: the other one would have the room, and be preempted.
    await asyncio.sleep(2)
    await stock.delete(first)
    await stock.bound("mid", "n0")
    assert stock.world.where("low") == ["waits"]


async def test_a_gated_pod_is_not_tried_before_its_gates_are_gone(stock: Stock) -> None:
    """KS-401"""
    await stock.world.node("n0")
    pod = await stock.pod("p", **gated())
    (said,) = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert (said["status"], said["reason"]) == ("False", "SchedulingGated")
    await asyncio.sleep(SETTLED)
    assert not stock.only("p")["spec"].get("nodeName")
    await stock.ungate(pod)
    await stock.bound("p", "n0")


async def test_gates_are_removed_never_added_and_the_rest_stays(stock: Stock) -> None:
    """KS-402"""
    pod = await stock.pod("p", **gated())
    more = {"spec": {"schedulingGates": [{"name": GATE}, {"name": "example.com/more"}]}}
    await stock.world.api.fails(422, "Invalid", "PATCH", path_of(pod), more, media=MERGE)
    await stock.world.api.fails(422, "Invalid", "PATCH", path_of(pod), {"spec": {"priority": 7}}, media=MERGE)
    await stock.nominate(pod, "anywhere")
    await stock.ungate(pod)


# -- nominations ----------------------------------------------------------------------------------------------------------


async def test_a_gated_and_nominated_pod_keeps_its_room_against_lower_and_equal_ones(stock: Stock) -> None:
    """KS-403"""
    await stock.world.node("n0", gpus=1)
    keeper = await stock.pod("keeper", **gated())
    await stock.nominate(keeper, "n0")
    await asyncio.sleep(SETTLED)
    for name, priority in (("low", LOW), ("mid", MID)):
        await stock.pod(name, priority=priority)
        await stock.waits(name)
    await stock.pod("high", priority=HIGH)
    await stock.bound("high", "n0")


async def test_the_room_of_a_nominated_pod_is_free_when_it_goes(stock: Stock) -> None:
    """KS-403"""
    await stock.world.node("n0", gpus=1)
    keeper = await stock.pod("keeper", **gated())
    await stock.nominate(keeper, "n0")
    await asyncio.sleep(SETTLED)
    await stock.pod("mid")
    await stock.waits("mid")
    await stock.delete(keeper)
    await stock.bound("mid", "n0")


async def test_a_guard_counts_beside_the_pod_that_leaves_and_is_followed_by_whom_it_keeps_the_node_for(stock: Stock) -> None:
    """KS-403: as long as both are there, the node has room for nobody else, whatever it could take of its own."""
    await stock.world.node("n0", gpus=2)
    leaves = await stock.pod("leaves")
    await stock.bound("leaves", "n0")
    guard = await stock.pod("guard", **gated())
    await stock.nominate(guard, "n0")
    await asyncio.sleep(SETTLED)
    for name in ("stranger", "other"):
        await stock.pod(name)
        await stock.waits(name)
    await stock.delete(leaves)
    await stock.world.until(lambda: any(stock.world.where(name) == ["n0"] for name in ("stranger", "other")), "what it left beyond the guard is taken")
    back = await stock.pod("back", **gated())
    await stock.nominate(back, "n0")
    await stock.delete(guard)
    await asyncio.sleep(SETTLED)
    await stock.ungate(back)
    await stock.bound("back", "n0")
    assert sorted(stock.world.where("stranger") + stock.world.where("other")) == ["n0", "waits"]


async def test_nominations_of_another_schedulers_pods_do_not_count(stock: Stock) -> None:
    """KS-404"""
    await stock.world.node("n0", gpus=1)
    theirs = await stock.pod("theirs", schedulerName="somebody-else")
    await stock.nominate(theirs, "n0")
    await asyncio.sleep(SETTLED)
    await stock.pod("mid")
    await stock.bound("mid", "n0")


async def test_a_pod_goes_where_it_is_nominated_though_other_nodes_are_emptier(stock: Stock) -> None:
    """KS-405"""
    await stock.world.node("busy", gpus=8)
    await stock.pod("load", gpus=7, **only_on("busy"))
    await stock.bound("load", "busy")
    await stock.world.node("empty", gpus=8)
    pod = await stock.pod("p", **gated())
    await stock.nominate(pod, "busy")
    await stock.ungate(pod)
    await stock.bound("p", "busy")


@pytest.mark.parametrize(("policy", "kept"), [("PreemptLowerPriority", None), ("Never", "n0")])
async def test_a_failed_attempt_clears_the_nomination_of_a_pod_that_may_preempt(stock: Stock, policy: str, kept: str | None) -> None:
    """KS-406"""
    await stock.world.node("n0", gpus=1)
    await stock.pod("load")
    await stock.bound("load", "n0")
    name = {"PreemptLowerPriority": "stock-may", "Never": "stock-never"}[policy]
    await stock.priority_class(name, 1000, policy)
    pod = await stock.pod("p", priority=name, **gated())
    await stock.nominate(pod, "n0")
    await stock.ungate(pod)
    await stock.waits("p")
    await asyncio.sleep(SETTLED)
    assert stock.only("p")["status"].get("nominatedNodeName") == kept


async def test_a_restart_forgets_nominations_of_gated_pods_until_they_are_touched(stock: Stock) -> None:
    """KS-407"""
    # From 1.37 on it forgets none (kubernetes#139057).
    await stock.world.node("n0", gpus=1)
    keeper = await stock.pod("keeper", **gated())
    await stock.nominate(keeper, "n0")
    stock.restart()
    await stock.pod("taker")
    if stock.world.lab is not None and minor(stock.world.lab.assets) > 36:
        await stock.waits("taker")
        return
    taker = await stock.bound("taker", "n0")
    await stock.delete(taker)
    await stock.gone("taker")
    await stock.touch(keeper)
    await asyncio.sleep(SETTLED)
    await stock.pod("second")
    await stock.waits("second")


# -- preemption -----------------------------------------------------------------------------------------------------------


async def test_a_higher_priority_pushes_aside_the_lowest_and_no_more_than_it_needs(stock: Stock) -> None:
    """KS-408"""
    await stock.world.node("n0", gpus=4)
    for name, priority, gpus in (("mid", MID, 2), ("low-a", LOW, 1), ("low-b", LOW, 1)):
        await stock.pod(name, priority=priority, gpus=gpus)
        await stock.bound(name, "n0")
    seen: dict[str, Obj] = {}
    stock.world.told.append(lambda _, pod: seen.update({pod["metadata"]["name"]: pod}) if pod["metadata"].get("deletionTimestamp") else None)
    nominated: list[str] = []
    stock.world.told.append(lambda _, pod: nominated.append(pod["status"].get("nominatedNodeName") or "") if pod["metadata"]["name"] == "high" else None)
    await stock.pod("high", priority=HIGH)
    await stock.bound("high", "n0")
    assert len(seen) == 1
    (victim,) = seen.values()
    assert victim["metadata"]["name"].startswith("low-")
    (said,) = [c for c in victim["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert (said["status"], said["reason"]) == ("True", "PreemptionByScheduler")
    assert "n0" in nominated


async def test_it_prefers_the_node_where_lower_priorities_go(stock: Stock) -> None:
    """KS-409"""
    for node, priority in (("n0", MID), ("n1", LOW)):
        await stock.world.node(node, gpus=1)
        await stock.pod(f"on-{node}", priority=priority)
        await stock.bound(f"on-{node}", node)
    await stock.pod("high", priority=HIGH)
    await stock.bound("high", "n1")
    assert stock.world.where("on-n0") == ["n0"]


async def test_equal_ones_and_pods_that_never_preempt_push_nobody_aside(stock: Stock) -> None:
    """KS-410"""
    await stock.world.node("n0", gpus=1)
    await stock.pod("load")
    await stock.bound("load", "n0")
    await stock.pod("equal")
    await stock.waits("equal")
    await stock.priority_class("stock-high-never", 3000, "Never")
    await stock.pod("high", priority="stock-high-never")
    await stock.waits("high")
    await asyncio.sleep(SETTLED)
    assert stock.world.where("load") == ["n0"]


# -- what a node must offer -----------------------------------------------------------------------------------------------


async def test_a_pin_by_matchfields_and_host_ports(stock: Stock) -> None:
    """KS-411"""
    for node in ("n0", "n1"):
        await stock.world.node(node)
    await stock.pod("a", gpus=0, host_ports=[8080], **only_on("n1"))
    await stock.bound("a", "n1")
    await stock.pod("b", gpus=0, host_ports=[8080])
    await stock.bound("b", "n0")
    await stock.pod("c", gpus=0, host_ports=[8080])
    await stock.waits("c")


def near(app: str, key: str = "kubernetes.io/hostname", label: str = "app") -> Obj:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {"matchLabels": {label: app}}, "topologyKey": key}]}


async def test_pods_are_near_and_far_from_others_as_they_ask(stock: Stock) -> None:
    """KS-412"""
    zone = "topology.kubernetes.io/zone"
    for node, where in (("n0", "a"), ("n1", "a"), ("n2", "b")):
        await stock.world.node(node, zone=where)
    await stock.pod("shy", affinity={"podAntiAffinity": near("loud", zone)}, nodeSelector={zone: "a"})
    await stock.placed("shy", "n0", "n1")
    # Whoever the others want far from them is kept away, too.
    await stock.pod("loud")
    await stock.bound("loud", "n2")
    await stock.pod("friend", affinity={"podAffinity": near("loud")})
    await stock.bound("friend", "n2")
    await stock.pod("lonely", affinity={"podAffinity": near("nobody")})
    await stock.waits("lonely")
    # The first of a group that wants to be together may go anywhere.
    await stock.pod("self", affinity={"podAffinity": near("self")})
    await stock.placed("self")


async def test_a_waiting_pod_follows_the_one_that_it_wants_near(stock: Stock) -> None:
    """KS-412"""
    for node in ("n0", "n1"):
        await stock.world.node(node)
    await stock.pod("friend", affinity={"podAffinity": near("late")})
    await stock.waits("friend")
    await stock.pod("late", **only_on("n1"))
    await stock.bound("friend", "n1")


async def test_hard_spread_by_a_selector_without_requirements_counts_nobody_but_the_pod(stock: Stock) -> None:
    await stock.world.node("n0", zone="a")
    await stock.world.node("n1", zone="b", unschedulable=True)
    constraint = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    for name in ("a", "b", "c"):
        await stock.pod(name, topologySpreadConstraints=[constraint])
        await stock.bound(name, "n0")


async def test_hard_spread_keeps_the_skew(stock: Stock) -> None:
    """KS-413"""
    zone = "topology.kubernetes.io/zone"
    for node, where in (("n0", "a"), ("n1", "b")):
        await stock.world.node(node, zone=where)
    spread = {"maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"team": "x"}}}
    for name in ("a", "b", "c", "d"):
        await stock.pod(name, labels={"app": name, "team": "x"}, topologySpreadConstraints=[spread])
        await stock.placed(name)
    assert sorted(stock.world.where(name)[0] for name in ("a", "b", "c", "d")) == ["n0", "n0", "n1", "n1"]
    await stock.world.cordon("n0")
    await stock.pod("e", labels={"app": "e", "team": "x"}, topologySpreadConstraints=[spread])
    await stock.bound("e", "n1")
    # A cordoned node's domain counts all the same: taints are not looked at.
    await stock.pod("f", labels={"app": "f", "team": "x"}, topologySpreadConstraints=[spread])
    await stock.waits("f")


async def test_nominated_pods_count_with_their_ports(stock: Stock) -> None:
    """KS-414"""
    await stock.world.node("n0")
    await stock.nominate(await stock.pod("ports", gpus=0, host_ports=[9090], **gated()), "n0")
    await asyncio.sleep(SETTLED)
    await stock.pod("same-port", gpus=0, host_ports=[9090])
    await stock.waits("same-port")


async def test_the_anti_affinity_of_a_nominated_pod_is_seen_only_by_pods_that_look_at_others(stock: Stock) -> None:
    """KS-414"""
    await stock.world.node("n0")
    await stock.nominate(await stock.pod("shy", affinity={"podAntiAffinity": near("loud", label="kind")}, **gated()), "n0")
    await asyncio.sleep(SETTLED)
    away = {"affinity": {"podAntiAffinity": near("whoever")}}
    await stock.pod("careful", gpus=0, labels={"app": "careful", "kind": "loud"}, **away)
    await stock.waits("careful")
    await stock.pod("careless", gpus=0, labels={"app": "careless", "kind": "loud"})
    await stock.bound("careless", "n0")


# -- gate, nominate, swap -------------------------------------------------------------------------------------------------

MOVES, RIVALS = 20, 50


async def crowd(stock: Stock) -> tuple[list[Obj], list[Obj]]:
    """Placeholders that fill the target, successors that wait for them at the gate, and rivals that would fit there only."""
    await stock.world.node("target", gpus=MOVES)
    holders = [await stock.pod(f"h{i}") for i in range(MOVES)]
    await stock.world.until(lambda: all(stock.world.where(f"h{i}") == ["target"] for i in range(MOVES)), "the placeholders are there")
    for i in range(RIVALS):
        await stock.pod(f"rival{i}")
    await stock.world.until(lambda: all(refused(p) for i in range(RIVALS) for p in stock.world.of(f"rival{i}")), "the rivals wait")
    return holders, [await stock.pod(f"v{i}", **gated()) for i in range(MOVES)]


async def landed(stock: Stock) -> int:
    """Successors that are on the target when all room there is taken."""

    def taken() -> int:
        return sum(stock.world.where(f"{kind}{i}") == ["target"] for kind, count in (("v", MOVES), ("rival", RIVALS)) for i in range(count))

    await stock.world.until(lambda: taken() == MOVES, "the target is full again", 30)
    return sum(stock.world.where(f"v{i}") == ["target"] for i in range(MOVES))


async def test_nominated_successors_take_the_room_of_their_placeholders_beside_fifty_equal_ones(stock: Stock) -> None:
    """KS-415"""
    holders, successors = await crowd(stock)
    for holder, successor in zip(holders, successors, strict=True):
        await stock.nominate(successor, "target")
        await stock.delete(holder)
        # The real one hears of ends and of gates on two paths. A successor that it tries before it knows of the end fails, and its
        # nomination is cleared (KS-406): without this pause 2 of 220 lost their room on a busy machine, with 20 ms 0 of 100.
        await asyncio.sleep(0.1)
        await stock.ungate(successor)
    assert await landed(stock) == MOVES
    assert stock.world.kubelets.rejected == []


async def test_without_a_nomination_those_who_wait_take_it(stock: Stock) -> None:
    """KS-415"""
    holders, successors = await crowd(stock)
    for holder, successor in zip(holders, successors, strict=True):
        await stock.delete(holder)
        await asyncio.sleep(0.02)
        await stock.ungate(successor)
    assert await landed(stock) < MOVES


async def test_a_higher_priority_takes_a_placeholder(stock: Stock) -> None:
    """KS-416"""
    await stock.world.node("target", gpus=1)
    await stock.priority_class("stock-hold", 1000, "Never")
    await stock.pod("h", priority="stock-hold", **only_on("target"))
    await stock.bound("h", "target")
    await stock.pod("high", priority=HIGH)
    await stock.bound("high", "target")
    await stock.gone("h")


# -- admission ------------------------------------------------------------------------------------------------------------


async def test_new_pods_of_a_listed_controller_are_gated(stock: Stock) -> None:
    """KS-417"""
    api = stock.world.api
    uid = {name: f"00000000-0000-4000-8000-00000000000{i}" for i, name in enumerate(("listed", "late", "other"))}

    def at(seconds: float) -> str:
        return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    landing = {"apiVersion": "restow.dev/v1", "kind": "Landing", "metadata": {"name": unique("log")}}
    await api.ok("POST", "/apis/restow.dev/v1/landings", landing | {"spec": {"open": {uid["listed"]: at(60), uid["late"]: at(-5)}}})

    async def gates(owner: str, controls: bool = True, **more: Any) -> list[str]:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": uid[owner], "controller": controls}
        body = {"metadata": {"name": "p", "ownerReferences": [reference]}, "spec": pod_spec(**more)}
        made = await api.ok("POST", f"/api/v1/namespaces/{NS}/pods?dryRun=All", body)
        return [gate["name"] for gate in made["spec"].get("schedulingGates") or ()]

    for _ in range(100):
        if await gates("listed"):
            break
        await asyncio.sleep(0.2)
    assert await gates("listed") == [GATE]
    assert await gates("listed", schedulingGates=[{"name": "example.com/own"}]) == ["example.com/own", GATE]
    assert await gates("late") == await gates("other") == []
    assert await gates("listed", controls=False) == []
    assert await gates("listed", nodeName="n0") == []
    await api.ok("DELETE", f"/apis/restow.dev/v1/landings/{landing['metadata']['name']}")
