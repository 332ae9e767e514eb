"""API servers that start again in the middle of moves, while equal pods wait for the same room: every successor lands on its slot, and nothing is left behind. A control
plane of its own."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab, own
from kubernetes.moves import LOG
from kubernetes.services import LONG, POLICY, all_ended, all_held, services
from kubernetes.world import NS, World, gated, summary
from kubesim.conformance.harness import Target, plain

from restow.kube.canaries import honours_nominations
from restow.kube.canary import Verdict
from restow.kube.client import ClientConfig, connect

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.slow]
COUNT = 20
GONE = ("SuccessorGone", "NotNeeded")


@pytest.fixture(scope="module", name="lab")
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "outages") as one:
        one.install()
        yield one


@pytest.fixture(scope="module", name="stack")
def quick_stack(lab: Lab, kubelets: Kubelets) -> Iterator[Running]:
    """Who is not bound is not waited for as long as usual."""
    with services(lab, f"{POLICY}  landDeadline: 120s\n") as running:
        yield running


async def held(world: World, stack: Running) -> tuple[list[Any], list[str]]:
    """`all_held`, and equal pods wait for the slots."""
    pods, moves = await all_held(world, stack, COUNT)
    await world.crowd()
    return pods, moves


async def all_land(world: World, stack: Running, moves: list[str]) -> None:
    """Every pod runs, once, on the slot that was held for it."""
    over = [one for one in await all_ended(stack, 240) if one["id"] in moves]
    assert Counter((one["step"], one["reason"]) for one in over) == {("landed", ""): COUNT}
    await world.running("victim", COUNT)
    await world.stands("victim", sorted(f"target-{i}" for i in range(COUNT)))
    assert world.where("crowd") == ["waits"] * 50
    assert world.kubelets.rejected == []


async def none_loses_its_slot(world: World, stack: Running, moves: list[str], began: int, free: set[str], ungated: set[str]) -> None:
    """Every successor lands on the slot that was held for it, but for those at risk at most: `free` (names) by kube-scheduler, `ungated`, and where it does not know whether it has bound one.
    Where the controller has made a pod twice, since the answer was lost, it deletes one of
    them: the successor, perhaps, and the other one then competes like any other; and who was not evicted yet stays meanwhile (`OwnerBusy`)."""
    over = [one for one in await all_ended(stack, 240) if one["id"] in moves]
    unsure = unanswered(world, began)
    at_risk = len(free | unsure) + len(ungated)
    print(f"{dict(Counter((one['step'], one['reason']) for one in over))}, at risk {len(free)}, {len(unsure)} whose binding was not answered, and {len(ungated)} without the gate")
    evicted = [one for one in over if one["pod"] not in world.pods]
    lost = [one for one in evicted if one["step"] != "landed" and one["reason"] not in GONE]
    assert len(lost) <= at_risk, "\n".join(story(world, stack, one) for one in lost)
    await world.until(lambda: len(world.where("victim")) == COUNT, "every pod is there once")
    await world.running("victim", COUNT - at_risk - len(evicted) + len([one for one in evicted if one["reason"] not in GONE]))
    # Two are bound where there is room for one: the kubelet, which lists its pods anew, takes in the older one, which may be either.
    assert [one for one in world.kubelets.rejected if not one.startswith((f"{NS}/crowd-", *(f"{NS}/{name} " for name in unsure)))] == []


def unanswered(world: World, began: int) -> set[str]:
    """Victims whose binding was not answered, by kube-scheduler's own word from there on in its log. It may be there all the same: only the answer was lost. Either way it forgets where the pod is, and gives the
    node to another one that waits."""
    failed = re.compile(rf'"Plugin Failed" err=.*(?:connection|EOF).* pod="{NS}/(victim-[a-z0-9-]+)" plugin="DefaultBinder"')
    return {found[1] for line in world.lab.log("scheduler")[began:].splitlines() if (found := failed.search(line))}


def story(world: World, stack: Running, move: dict[str, Any]) -> str:
    """Of a move that has lost its slot: what the log says of it, what kube-scheduler says of its successor, and who was bound or nominated to its target when."""
    successor = (move["beside"] or {}).get("successor", "")
    said = [line[:400] for line in world.lab.log("scheduler").splitlines() if successor and successor in line]
    takers = sorted((at, uid) for (node, uid), (at, _) in world.takers.items() if node == move["target"])
    told = [f"{at:.3f} {uid} {summary(world.pods[uid]) if uid in world.pods else 'gone'}" for at, uid in takers]
    return "\n".join([str(move), stack.restow("why", f"migration/{move['id']}"), *said[-20:], *told])


def successors(world: World, pods: list[Any]) -> list[Any]:
    before = {pod["metadata"]["uid"] for pod in pods}
    return [pod for pod in world.of("victim") if pod["metadata"]["uid"] not in before]


@contextlib.asynccontextmanager
async def scheduler_of_its_own_server(lab: Lab) -> AsyncIterator[Target]:
    """The scheduler is at another API server than Restow, until the end."""
    second = await asyncio.to_thread(lab.another_server, "second")
    lab.stop("scheduler")
    await asyncio.to_thread(lab.start_scheduler, lab.kubeconfig(second, "second"))
    yield second
    lab.stop("scheduler")
    lab.stop("second", hard=True)
    await asyncio.to_thread(lab.start_scheduler)


async def test_a_scheduler_that_has_heard_of_no_nomination_is_waited_for(world: World, stack: Running, lab: Lab) -> None:
    """Its API server is down while all pods are evicted, their successors made and nominated. It lists pods again, and hears of who has gone first."""
    async with scheduler_of_its_own_server(lab) as second:
        pods, moves = await held(world, stack)
        lab.stop("second", hard=True)
        await world.budget(1)
        await world.gone(pods)
        await world.until(lambda: len([one for one in successors(world, pods) if one["status"].get("nominatedNodeName")]) == COUNT, "all are nominated")
        await asyncio.sleep(2)
        assert len([one for one in world.of("victim") if gated(one)]) == COUNT
        await asyncio.to_thread(lab.server_again, "second", second.url)
        await all_land(world, stack, moves)


async def test_a_scheduler_that_lists_the_canaries_is_not_taken_for_one_that_ignores_nominations(world: World, lab: Lab) -> None:
    """Its API server is down while both are made, and it hears of them together. Of a gated pod that it lists it counts the nomination only when the pod changes."""
    await world.node("n")
    async with scheduler_of_its_own_server(lab) as second:
        lab.stop("second", hard=True)
        async with await connect(ClientConfig(kubeconfig=str(lab.kubeconfig(lab.account("scheduler-session"), "canary")))) as client:
            checking = asyncio.create_task(honours_nominations(client, "default-scheduler", "n", LOG, "t", patience=LONG))
            await world.until(lambda: len(world.placeholders()) == 2, "both canaries are there")
            await asyncio.to_thread(lab.server_again, "second", second.url)
            assert await checking == Verdict("honoured")


@pytest.mark.parametrize("compacted", [False, True])
async def test_an_api_server_that_starts_again_in_the_middle_of_moves(world: World, stack: Running, lab: Lab, compacted: bool) -> None:
    """Everybody is at it. `compacted`: etcd has forgotten where they were by then. At risk are successors whose gate is off and of which kube-scheduler does not know at that moment
    that they are bound: it forgets the nomination of a pod that it fails to bind (another server tells who they are, and its own log), and while the server is away nobody can make it again; and those that the server makes without the gate before it counts
    the policy, where moves that end make room elsewhere."""
    witness = await asyncio.to_thread(lab.another_server, "witness")
    pods, moves = await held(world, stack)
    began = len(lab.log("scheduler"))
    await world.budget(1)
    await world.until(lambda: len(successors(world, pods)) >= COUNT // 4, "a quarter has gone")
    lab.stop("api", hard=True)
    before, ungated = {pod["metadata"]["uid"] for pod in pods}, set[str]()

    def told(kind: str, pod: Any) -> None:
        if kind == "ADDED" and pod in world.of("victim") and not gated(pod):
            ungated.add(pod["metadata"]["uid"])

    world.told.append(told)
    there = plain(witness, "GET", f"/api/v1/namespaces/{NS}/pods?labelSelector=app%3Dvictim")["items"]
    free = {pod["metadata"]["name"] for pod in there if pod["metadata"]["uid"] not in before and not gated(pod) and not pod["spec"].get("nodeName")}
    if compacted:
        lab.compact()
    await asyncio.to_thread(lab.server_again, "api", lab.target.url)
    lab.stop("witness", hard=True)
    await none_loses_its_slot(world, stack, moves, began, free, ungated)


async def test_successors_that_an_api_server_makes_that_has_just_started_land_without_the_gate(world: World, stack: Running, lab: Lab) -> None:
    """The controllers are at a server that does not count the policy yet, Restow at one that does, and the scheduler at a third."""
    async with scheduler_of_its_own_server(lab):
        pods, moves = await held(world, stack)
        lab.stop("controllers")
        await world.budget(1)
        await world.gone(pods, 90)
        third = await asyncio.to_thread(lab.another_server, "third")
        lab.start_controllers(lab.kubeconfig(third, "third"))
        try:
            await all_land(world, stack, moves)
        finally:
            lab.stop("controllers")
            lab.stop("third", hard=True)
            lab.start_controllers(lab.work / "kubeconfig")
