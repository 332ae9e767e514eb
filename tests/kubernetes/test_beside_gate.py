"""The gate is for new pods of listed controllers, while they are listed; and whatever fails, pods are made and scheduled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from kubernetes.lab import Lab
from kubernetes.moves import LOG, until_gated
from kubernetes.world import APPS, NS, World, pod_spec
from kubesim.conformance.harness import MERGE, Api

from restow.contracts.times import rfc3339
from restow.contracts.values import OwnerRef
from restow.kube.beside import Beside
from restow.kube.client import ClientConfig, connect
from restow.kube.effects import Done, PodRef
from restow.kube.gates import Gated, Gates, Missing, NotGated, RenewOutcome

OTHER_LOG = "another-installations-log"
BINDING = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/restow-landing"
NOBODY = OwnerRef("ReplicaSet", "nobody", "00000000-0000-0000-0000-000000000000", "apps/v1")


@pytest.fixture(autouse=True)
async def heard_of(world: World, descheduler: Gates) -> None:
    """By the API server: of Landings at all, where this file is the first that it sees."""
    await until_gated(descheduler)


def soon(seconds: float = 60) -> int:
    return int((time.time() + seconds) * 1000)


def owner_of(workload: Any) -> OwnerRef:
    return OwnerRef(workload["kind"], workload["metadata"]["name"], workload["metadata"]["uid"], workload["apiVersion"])


async def counts(effects: Gates, owner: OwnerRef, wanted: type = Gated, seconds: float = 10) -> float:
    """Milliseconds until the API gates a pod of this controller, or does not any more."""
    began = time.perf_counter()
    while not isinstance(await effects.gated(owner), wanted):
        assert time.perf_counter() - began < seconds, f"not {wanted.__name__} within {seconds:g} s"
    return 1000 * (time.perf_counter() - began)


async def scale(world: World, name: str, replicas: int) -> None:
    await world.api.ok("PATCH", f"{APPS}/replicasets/{name}", {"spec": {"replicas": replicas}}, media=MERGE)


async def test_a_gated_pod_says_for_which_installation_and_until_when(world: World, session: Beside, descheduler: Gates) -> None:
    """So that another one neither lets it go nor takes it, before that is over. Both are gone with the gate."""
    await world.node("n")
    listed = await world.replicaset("listed", 1, pod_spec())
    await world.running("listed")
    until = soon()
    assert await descheduler.landing(LOG, {owner_of(listed).uid: until}) == Done()
    await counts(descheduler, owner_of(listed))
    await scale(world, "listed", 2)
    await world.until(lambda: world.where("listed") == ["gated", "n"], "the second one waits")
    (pod,) = [pod for pod in world.of("listed") if pod["spec"].get("schedulingGates")]
    meta = pod["metadata"]
    assert meta["annotations"]["restow.dev/landing"] == f"{LOG} {rfc3339(until)}"
    assert await session.let_go(PodRef(meta["namespace"], meta["name"], meta["uid"])) == Done()
    await world.running("listed", 2)
    assert ["restow.dev/landing" in (pod["metadata"].get("annotations") or {}) for pod in world.of("listed")] == [False, False]


async def test_new_pods_of_a_listed_controller_wait_and_nobody_elses(world: World, descheduler: Gates) -> None:
    await world.node("n")
    listed, other = await world.replicaset("listed", 1, pod_spec()), await world.replicaset("other", 1, pod_spec())
    await world.running("listed")
    await world.running("other")
    assert await descheduler.landing(LOG, {owner_of(listed).uid: soon()}) == Done()
    await counts(descheduler, owner_of(listed))
    for name in ("listed", "other"):
        await scale(world, name, 2)
    await world.running("other", 2)
    await world.until(lambda: world.where("listed") == ["gated", "n"], "the second one waits")
    assert await descheduler.gated(owner_of(other)) == NotGated()


async def test_after_the_instant_in_the_entry_nobody_waits(world: World, descheduler: Gates) -> None:
    await world.node("n")
    late = await world.replicaset("late", 0, pod_spec())
    until = soon(4)
    assert await descheduler.landing(LOG, {owner_of(late).uid: until}) == Done()
    await counts(descheduler, owner_of(late))
    await counts(descheduler, owner_of(late), NotGated)
    # The clock of admission has whole seconds.
    assert -1500 < time.time() * 1000 - until < 1500
    await scale(world, "late", 1)
    await world.running("late")


async def test_who_is_taken_off_the_list_is_free(world: World, descheduler: Gates) -> None:
    ends = []
    await descheduler.landing(LOG, {NOBODY.uid: soon()})
    await counts(descheduler, NOBODY)
    for _ in range(30):
        await descheduler.landing(LOG, {NOBODY.uid: None})
        ends.append(await counts(descheduler, NOBODY, NotGated))
        await descheduler.landing(LOG, {NOBODY.uid: soon()})
        ends.append(await counts(descheduler, NOBODY))
    ends.sort()
    print(f"entry answered → counts: p50 {ends[30]:.1f} p99 {ends[-1]:.1f} ms of 60")


async def test_each_installation_has_a_list_of_its_own(world: World, descheduler: Gates) -> None:
    first, second = OwnerRef("ReplicaSet", "a", "uid-a", "apps/v1"), OwnerRef("ReplicaSet", "b", "uid-b", "apps/v1")
    await descheduler.landing(LOG, {first.uid: soon(), second.uid: soon()})
    await descheduler.landing(OTHER_LOG, {second.uid: soon()})
    await counts(descheduler, first)
    await counts(descheduler, second)
    await descheduler.landing(LOG, {first.uid: None, second.uid: None})
    await counts(descheduler, first, NotGated)
    assert isinstance(await descheduler.gated(second), Gated)


async def test_a_pod_that_names_its_node_is_left_alone(world: World, descheduler: Gates) -> None:
    await world.node("n")
    await descheduler.landing(LOG, {NOBODY.uid: soon()})
    await counts(descheduler, NOBODY)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": NOBODY.name, "uid": NOBODY.uid, "controller": True}
    made = await world.api.ok(
        "POST", f"/api/v1/namespaces/{NS}/pods?dryRun=All",
        {"metadata": {"name": "bound", "ownerReferences": [owner]}, "spec": pod_spec(nodeName="n")},
    )  # fmt: skip
    assert "schedulingGates" not in made["spec"]
    made = await world.api.ok(
        "POST", f"/api/v1/namespaces/{NS}/pods?dryRun=All",
        {"metadata": {"name": "owned", "ownerReferences": [owner | {"controller": False}]}, "spec": pod_spec()},
    )  # fmt: skip
    assert "schedulingGates" not in made["spec"], "whom it belongs to is not whom it is controlled by"


async def test_without_the_policys_binding_pods_are_made_and_scheduled(world: World, descheduler: Gates, lab: Lab) -> None:
    await world.node("n")
    owner = owner_of(await world.replicaset("web", 0, pod_spec()))
    await descheduler.landing(LOG, {owner.uid: soon()})
    await counts(descheduler, owner)
    await world.api.ok("DELETE", BINDING)
    try:
        await counts(descheduler, owner, NotGated)
        await scale(world, "web", 1)
        await world.running("web")
    finally:
        lab.kubectl("apply", "-k", "deploy/beside")
    await counts(descheduler, owner)


async def test_without_the_crd_pods_are_made_and_scheduled_and_it_counts_again_once_it_is_back(
    world: World, descheduler: Gates, lab: Lab
) -> None:
    await world.node("n")
    owner = owner_of(await world.replicaset("web", 0, pod_spec()))
    await descheduler.landing(LOG, {owner.uid: soon()})
    await counts(descheduler, owner)
    lab.kubectl("delete", "crd", "landings.restow.dev", "--wait=true", "--timeout=30s")
    try:
        await counts(descheduler, owner, NotGated, 30)
        await scale(world, "web", 1)
        await world.running("web")
    finally:
        lab.kubectl("apply", "-k", "deploy/beside")
    began = time.perf_counter()
    while await descheduler.landing(LOG, {owner.uid: soon()}) != Done():
        assert time.perf_counter() - began < 60
        await asyncio.sleep(0.2)
    await counts(descheduler, owner, seconds=90)
    print(f"CRD new → counts: {time.perf_counter() - began:.1f} s")


# -- several API servers -----------------------------------------------------------------------------------------------


@pytest.fixture
async def second(lab: Lab, descheduler: Gates) -> AsyncIterator[tuple[Gates, Api]]:
    """The descheduler's effects and the API, at another server of the same cluster."""
    target = lab.another_server("second")
    try:
        token = lab.account("descheduler").headers
        config = lab.kubeconfig(type(target)(target.kind, target.url, token, target.ssl), "second")
        async with await connect(ClientConfig(kubeconfig=str(config))) as client, aiohttp.ClientSession() as session:
            yield Gates(client), Api(target, session)
    finally:
        lab.stop("second")


async def test_an_entry_that_was_taken_off_while_it_is_renewed_stays_away(world: World, descheduler: Gates) -> None:
    """By whichever write comes first. It came back, for API servers add what `replace` does not find, and gated pods for which nothing was held for three minutes."""
    await descheduler.landing(LOG, {NOBODY.uid: soon(), "u/1~": soon()})
    for number in range(20):
        await descheduler.landing(LOG, {NOBODY.uid: soon()})

        async def renewed(after: float) -> RenewOutcome:
            await asyncio.sleep(after)
            return await descheduler.renew(LOG, {NOBODY.uid: soon(), "u/1~": soon()}, {})

        closed, outcome = await asyncio.gather(descheduler.landing(LOG, {NOBODY.uid: None}), renewed(0.001 * (number % 7)))
        assert closed == Done()
        assert outcome in (Done(), Missing(frozenset({NOBODY.uid})))
        assert await descheduler.renew(LOG, {NOBODY.uid: soon(), "u/1~": soon()}, {}) == Missing(frozenset({NOBODY.uid}))
    await descheduler.landing(LOG, {"u/1~": None})


async def test_another_api_server_counts_an_entry_within_a_second(world: World, descheduler: Gates, second: tuple[Gates, Api]) -> None:
    there, _ = second
    await descheduler.landing(LOG, {NOBODY.uid: soon()})
    await counts(there, NOBODY, seconds=60)
    lags = []
    for _ in range(30):
        await descheduler.landing(LOG, {NOBODY.uid: None})
        lags.append(await counts(there, NOBODY, NotGated))
        await descheduler.landing(LOG, {NOBODY.uid: soon()})
        lags.append(await counts(there, NOBODY))
    lags.sort()
    print(f"entry answered by one server → counts at another: p50 {lags[30]:.1f} p99 {lags[-1]:.1f} ms of 60")
    assert lags[-1] < 1000
