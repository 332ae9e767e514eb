"""In a namespace whose pods may move with their claims, a stolen account of the session makes and deletes placeholders only, and gives no devices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from domain.build import shape
from kubernetes.lab import Lab, own
from kubernetes.test_dynamic_resources import CLAIMS, DRIVER, claiming, let_claims_move, template
from kubernetes.world import NS, World, path_of, pod_spec
from kubesim.conformance.harness import MERGE, STRATEGIC, Api, plain

from restow.kube.placeholder import Hold, placeholder

Obj = dict[str, Any]
PODS = f"/api/v1/namespaces/{NS}/pods"
CLASS = "restow-hold-0"
CLAIMING = {"scheduler": "default-scheduler", "resource_claims": ("gpu",), "claim_templates": {"gpu": "one"}}


@pytest.fixture(scope="module", name="lab")
def with_rights_in_the_namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "claim-guard") as one:
        let_claims_move(one)
        plain(one.target, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": CLASS}, "value": 0, "preemptionPolicy": "Never"})
        yield one


@pytest.fixture(name="session")
async def stolen(lab: Lab, world: World) -> Api:
    """Once the guards are in force."""
    session = Api(lab.account("scheduler-session"), world.api.session)
    async with asyncio.timeout(30):
        while "restow-guard-placeholders" not in str((await session.call("POST", PODS + "?dryRun=All", changed({"hostNetwork": True}))).body):
            await asyncio.sleep(0.1)
    return session


def body() -> Obj:
    """A placeholder's, as the session makes it."""
    facts = shape("gpu", cpu=100, **CLAIMING)
    return msgspec.json.decode(msgspec.json.encode(placeholder(facts.spec, Hold("log", "slot", "n", NS, migration="m", lifetime=60))))


def changed(spec: Obj | None = None, meta: Obj | None = None, container: Obj | None = None) -> Obj:
    one = body()
    one["metadata"] |= meta or {}
    one["spec"] |= spec or {}
    one["spec"]["containers"][0] |= container or {}
    return one


TOKEN = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
SECURITY = body()["spec"]["containers"][0]["securityContext"]
EVIL: dict[str, Obj] = {
    "a token by hand": changed({"serviceAccountName": "default", "volumes": [TOKEN]}),
    "the labels of their service": changed(meta={"labels": {"app": "theirs"}}),
    "their owner": changed(meta={"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x"}]}),
    "a device": changed(container={"resources": {"claims": [{"name": "gpu"}]}}),
    "a capability": changed(container={"securityContext": SECURITY | {"capabilities": {"add": ["SYS_ADMIN"]}}}),
}
PROXY = {"name": "istio-proxy", "image": body()["spec"]["containers"][0]["image"]}
RUNS = {"httpGet": {"host": "theirs", "port": 80}}
EVIL |= {
    "another image": changed(container={"image": "their/tools"}),
    "a command": changed(container={"command": ["sh"]}),
    "arguments": changed(container={"args": ["-c"]}),
    "what runs when it starts": changed(container={"lifecycle": {"postStart": RUNS}}),
    "a probe, which asks from its node": changed(container={"livenessProbe": RUNS}),
    "a second container": changed({"containers": [body()["spec"]["containers"][0], PROXY]}),
    "a container before it": changed({"initContainers": [PROXY]}),
    "a mesh's token": changed({"serviceAccountName": "default", "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "istio-ca"}}]}}]}),
}


@pytest.mark.parametrize("what", EVIL)
async def test_what_is_made_in_a_namespace_of_peoples_is_a_placeholder(session: Api, what: str) -> None:
    answer = await session.call("POST", PODS + "?dryRun=All", EVIL[what])
    assert (answer.status, "restow-guard" in str(answer.body)) == (422, True), answer


async def test_a_placeholder_may_be_made_and_deleted(session: Api) -> None:
    await session.ok("POST", PODS, body())
    await session.ok("DELETE", f"{PODS}/{body()['metadata']['name']}", {"gracePeriodSeconds": 0})


@pytest.mark.parametrize("service", ["scheduler-session", "garbage-collector"])
async def test_no_pod_of_peoples_is_deleted_whatever_it_is_named(world: World, lab: Lab, session: Api, service: str) -> None:
    there = await world.pod("hold-music", pod_spec(0), annotations={})
    answer = await Api(lab.account(service), world.api.session).call("DELETE", path_of(there), {"gracePeriodSeconds": 0})
    assert (answer.status, "restow-guard-placeholders" in str(answer.body)) == (422, True), answer


HELD = "hold-0123456789abcdef0123"
OF_A_POD = {"resource.kubernetes.io/pod-claim-name": "gpu"}


def owners(*pods: Obj) -> list[Obj]:
    return [{"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"], "controller": True} for pod in pods]


def users(*pods: Obj) -> list[Obj]:
    return [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]} for pod in pods]


async def a_claim(world: World, *pods: Obj, annotations: Obj = OF_A_POD, given: bool = False) -> str:
    """Of these pods; with a device where it is given one. Returns its path."""
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    made = await world.api.ok("POST", CLAIMS, {"metadata": {"generateName": "claim-", "ownerReferences": owners(*pods), "annotations": annotations}, "spec": spec})
    path = f"{CLAIMS}/{made['metadata']['name']}"
    if given:
        allocation = {"devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": "n", "device": "gpu-0"}]}}
        await world.api.ok("PATCH", f"{path}/status", {"status": {"allocation": allocation, "reservedFor": users(*pods)}}, media=MERGE)
    return path


async def test_of_claims_without_devices_only_those_are_deleted_that_were_made_for_a_pod(world: World, session: Api) -> None:
    """One that people have made is made by nobody anew."""
    pod = await world.pod("theirs", pod_spec(0), annotations={})
    for pods, notes, refused in (([pod], OF_A_POD, False), ([], {}, True), ([], OF_A_POD, True), ([pod], {}, True)):
        answer = await session.call("DELETE", await a_claim(world, *pods, annotations=notes) + "?dryRun=All", {})
        assert ("restow-guard-claims" in str(answer.body)) == refused, (pods, notes, answer)


@pytest.mark.parametrize("name", ["hold-music", "hold-music-7d4b9c8f6-abcde", f"{HELD}-0"])
async def test_claims_of_pods_that_are_only_named_alike_stay_theirs(world: World, session: Api, name: str) -> None:
    pod, other = await world.pod(name, pod_spec(0), annotations={}), await world.pod("other", pod_spec(0), annotations={})
    path = await a_claim(world, pod, given=True)
    for ending, change in (("", {"metadata": {"ownerReferences": owners(other)}}), ("/status", {"status": {"reservedFor": None}})):
        answer = await session.call("PATCH", f"{path}{ending}?dryRun=All", change, media=MERGE)
        assert (answer.status, "restow-guard-claims" in str(answer.body)) == (422, True), answer


async def test_a_claim_is_reserved_for_nobody_but_its_owner(world: World, session: Api) -> None:
    """Else it could be kept from its pods by others, up to as many as may have it."""
    theirs, held, other = [await world.pod(name, pod_spec(0), annotations={}) for name in ("theirs", HELD, "other")]
    more = {"status": {"reservedFor": users(other)}}
    for owner in (theirs, held):
        path = await a_claim(world, owner, given=True)
        answer = await session.call("PATCH", f"{path}/status?dryRun=All", more, media=STRATEGIC)
        assert (answer.status, "restow-guard-claims" in str(answer.body)) == (422, True), answer
    await session.ok("PATCH", path, {"metadata": {"ownerReferences": owners(other)}}, media=MERGE)
    await session.ok("PATCH", f"{path}/status?dryRun=All", more, media=STRATEGIC)


async def test_a_claim_without_a_status_is_given_no_device(world: World, session: Api) -> None:
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    await world.api.ok("POST", CLAIMS, {"metadata": {"name": "theirs"}, "spec": spec})
    allocation = {"devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": "n", "device": "gpu-0"}]}}
    try:
        answer = await session.call("PATCH", f"{CLAIMS}/theirs/status", {"status": {"allocation": allocation}}, media=MERGE)
        assert (answer.status, "restow-guard-claims" in str(answer.body)) == (422, True), answer
        await world.api.ok("PATCH", f"{CLAIMS}/theirs/status", {"status": {"allocation": allocation}}, media=MERGE)
        answer = await session.call("PATCH", f"{CLAIMS}/theirs/status", {"status": None}, media=MERGE)
        there = await world.api.ok("GET", f"{CLAIMS}/theirs")
        assert there["status"]["allocation"]["devices"] == allocation["devices"], answer
    finally:
        await world.api.ok("DELETE", f"{CLAIMS}/theirs")


async def test_which_claims_a_pod_has_is_changed_only_before_it_has_a_node(world: World, session: Api) -> None:
    await world.node("n", gpus=0)
    await template(world)
    gates = [{"name": "restow.dev/landing"}]
    said = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "other"}]}}
    gated = await world.pod("gated", claiming() | {"schedulingGates": gates})
    running = await world.pod("running", claiming() | {"nodeName": "n"})
    await session.ok("PATCH", path_of(gated, "/status") + "?dryRun=All", said, media=STRATEGIC)
    answer = await session.call("PATCH", path_of(running, "/status") + "?dryRun=All", said, media=STRATEGIC)
    assert (answer.status, "restow-guard" in str(answer.body)) == (422, True), answer


def test_its_expressions_are_well_typed(lab: Lab) -> None:
    for name in ("restow-guard", "restow-guard-claims", "restow-guard-placeholders"):
        there = plain(lab.target, "GET", f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}")
        assert "expressionWarnings" not in there["status"].get("typeChecking", {}), there["status"]
