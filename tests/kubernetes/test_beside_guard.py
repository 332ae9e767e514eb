"""Whatever our services are told to, of other people's pods they change the gate, the nomination, and notes of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from kubernetes.lab import Lab
from kubernetes.world import NS, World, path_of, pod_spec
from kubesim.conformance.harness import JSON_PATCH, STRATEGIC, Api, Target, plain

WHO = ("scheduler-session", "descheduler")
META = {
    "a label": {"metadata": {"labels": {"evil": "1"}}},
    "a label less": {"metadata": {"labels": {"app": None}}},
    "somebody's annotation": {"metadata": {"annotations": {"example.com/note": "theirs"}}},
    "somebody's annotation away": {"metadata": {"annotations": {"kubelets/term": None}}},
    "an owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/wait"]}},
}
SPEC = {
    "an image": {"spec": {"containers": [{"name": "main", "image": "evil"}]}},
    "a toleration": {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}},
    "a deadline": {"spec": {"activeDeadlineSeconds": 1}},
    "another's gate": {"spec": {"schedulingGates": [{"$patch": "delete", "name": "theirs"}]}},
    "a pin": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n"}}},
}
STATUS = {
    "a phase": {"status": {"phase": "Failed"}},
    "an address": {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
    "readiness": {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    "a condition away": {"status": {"conditions": [{"type": "PodScheduled", "$patch": "delete"}]}},
    "a word": {"status": {"message": "hello"}},
}
OURS = {
    "our gate": ("", {"spec": {"schedulingGates": [{"$patch": "delete", "name": "restow.dev/landing"}]}}),
    "our annotation": ("", {"metadata": {"annotations": {"restow.dev/migration": "aborted"}}}),
    "a nomination": ("/status", {"status": {"nominatedNodeName": "n"}}),
    "our condition": ("/status", {"status": {"conditions": [{"type": "restow.dev/moving", "status": "True"}]}}),
    "why it is not scheduled": (
        "/status",
        {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "none fits"}]}},
    ),
}


@pytest.fixture(params=WHO)
async def service(request: pytest.FixtureRequest, lab: Lab, accounts: dict[str, Target]) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        yield Api(accounts[request.param], session)


@pytest.fixture
async def pod(world: World) -> Any:
    gates = [{"name": "theirs"}, {"name": "restow.dev/landing"}]
    return await world.pod("theirs", pod_spec(schedulingGates=gates), annotations={"kubelets/term": "0"})


async def refused(service: Api, pod: Any, changes: dict[str, Any], subresource: str) -> None:
    for what, change in changes.items():
        answer = await service.call("PATCH", path_of(pod, subresource), change, media=STRATEGIC)
        assert answer.status in (403, 422), f"{what} was not refused: {answer.status} {answer.body}"
        assert "restow-guard" in answer.body["message"], f"{what}: {answer.body['message']}"


async def test_what_a_pod_is_and_runs_is_not_ours_to_change(world: World, service: Api, pod: Any) -> None:
    await refused(service, pod, META | SPEC, "")


async def test_how_a_pod_fares_is_not_ours_to_say(world: World, accounts: dict[str, Target], pod: Any) -> None:
    async with aiohttp.ClientSession() as session:
        await refused(Api(accounts["scheduler-session"], session), pod, STATUS, "/status")


async def test_the_condition_of_a_pod_that_has_a_node_is_its_kubelets(world: World, lab: Lab, accounts: dict[str, Target]) -> None:
    await world.node("n")
    await world.pod("bound", pod_spec())
    (bound,) = await world.running("bound")
    async with aiohttp.ClientSession() as session:
        service = Api(accounts["scheduler-session"], session)
        await refused(service, bound, {"scheduled": OURS["why it is not scheduled"][1]}, "/status")


@pytest.mark.parametrize("what", OURS)
async def test_what_is_ours_we_may_change(world: World, accounts: dict[str, Target], pod: Any, what: str) -> None:
    subresource, change = OURS[what]
    async with aiohttp.ClientSession() as session:
        await Api(accounts["scheduler-session"], session).ok("PATCH", path_of(pod, subresource), change, media=STRATEGIC)


async def test_an_administrator_is_not_guarded(world: World, pod: Any) -> None:
    await world.api.ok("PATCH", path_of(pod), META["a label"], media=STRATEGIC)


async def test_pods_are_made_and_deleted_among_the_placeholders_only(world: World, service: Api, pod: Any) -> None:
    await service.fails(403, "Forbidden", "POST", f"/api/v1/namespaces/{NS}/pods?dryRun=All", {"metadata": {"name": "x"}, "spec": pod_spec()})
    await service.fails(403, "Forbidden", "DELETE", path_of(pod))
    gates = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    assert (await service.call("PATCH", path_of(pod), gates, media=JSON_PATCH)).status == 422


async def test_the_placeholders_namespace_takes_no_pod_with_privileges(world: World, accounts: dict[str, Target]) -> None:
    async with aiohttp.ClientSession() as session:
        service = Api(accounts["scheduler-session"], session)
        spec = pod_spec(priority="", hostNetwork=True)
        failed = await service.fails(
            403, "Forbidden", "POST", "/api/v1/namespaces/restow-holds/pods?dryRun=All", {"metadata": {"name": "x"}, "spec": spec}
        )
        assert "PodSecurity" in failed["message"]


def test_the_guards_expressions_are_well_typed(lab: Lab) -> None:
    there = plain(lab.target, "GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/restow-guard")
    assert "expressionWarnings" not in there["status"].get("typeChecking", {}), there["status"]
