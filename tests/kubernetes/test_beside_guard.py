"""Whatever our services are told to, of other people's pods they change the gate, the nomination, and notes of our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from kubernetes.lab import DEPLOY, Lab
from kubernetes.world import NS, World, path_of, pod_spec
from kubesim.conformance.harness import JSON_PATCH, STRATEGIC, Api, Target, plain

from restow.kube.annotations import DEVICES, RESERVATION_ALLOCATED, RESOURCE_STATUS

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
    "more addresses of its node": {"status": {"hostIP": "10.9.9.9", "hostIPs": [{"ip": "10.9.9.9"}]}},
    "what its kubelet has seen": {"status": {"observedGeneration": 99}},
    "how its resize fares": {"status": {"resize": "Infeasible"}},
    "what it has": {"status": {"resources": {"requests": {"cpu": "1m"}}}},
    "what it was given": {"status": {"allocatedResources": {"cpu": "1m"}}},
}
PLACEHOLDER = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [{"name": "hold", "image": "i", "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}],
}
HOLDS = "/api/v1/namespaces/restow-holds/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
OURS = {
    "our gate": ("", {"spec": {"schedulingGates": [{"$patch": "delete", "name": "restow.dev/landing"}]}}),
    "our annotation": ("", {"metadata": {"annotations": {"restow.dev/migration": "aborted"}}}),
    "until when our gate counts": ("", {"metadata": {"annotations": {"restow.dev/landing": "log-1 2026-11-28T01:00:00.000Z"}}}),
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
async def pod(world: World, accounts: dict[str, Target]) -> Any:
    """Not before the guard is in force: an API server that has just heard of a policy compiles it first."""
    gates = [{"name": "theirs"}, {"name": "restow.dev/landing"}]
    there = await world.pod("theirs", pod_spec(schedulingGates=gates), annotations={"kubelets/term": "0"})
    async with aiohttp.ClientSession() as session, asyncio.timeout(30):
        service = Api(accounts["descheduler"], session)
        while (await service.call("PATCH", path_of(there) + "?dryRun=All", META["a label"], media=STRATEGIC)).status == 200:
            await asyncio.sleep(0.1)
    return there


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


BINDINGS = {
    "somebody's annotation": {"annotations": {"example.com/note": "theirs"}},
    "a profile of its containers": {"annotations": {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}},
    "a label": {"labels": {"app": "evil"}},
}


def binding(name: str, meta: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": NS} | meta, "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}}


async def test_a_binding_says_where_a_pod_runs_and_nothing_else_of_it(world: World, accounts: dict[str, Target], pod: Any) -> None:
    """The API server writes the annotations and labels of a Binding into the pod."""
    await world.pod("unbound", pod_spec(schedulerName="nobody"))
    async with aiohttp.ClientSession() as session:
        service = Api(accounts["scheduler-session"], session)
        paths = f"/api/v1/namespaces/{NS}/pods/unbound/binding", f"/api/v1/namespaces/{NS}/bindings"
        async with asyncio.timeout(30):
            while (await service.call("POST", paths[0] + "?dryRun=All", binding("unbound", BINDINGS["a label"]))).status == 201:
                await asyncio.sleep(0.1)
        for what, meta in BINDINGS.items():
            answer = await service.call("POST", paths[0], binding("unbound", meta))
            assert answer.status in (403, 422), f"{what} was not refused: {answer.status} {await world.api.ok('GET', f'/api/v1/namespaces/{NS}/pods/unbound')}"
            assert "restow-guard-bindings" in answer.body["message"], answer.body["message"]
        await service.fails(403, "Forbidden", "POST", paths[1], binding("unbound", {}))
        given = dict.fromkeys((DEVICES, RESOURCE_STATUS, RESERVATION_ALLOCATED), "{}")
        # The API server gives a Binding the zone of its node.
        await world.node("n", zone="z7")
        await service.ok("POST", paths[0], binding("unbound", {"annotations": given, "labels": {"topology.kubernetes.io/zone": "evil"}}))
    there = await world.api.ok("GET", f"/api/v1/namespaces/{NS}/pods/unbound")
    assert (there["spec"]["nodeName"], there["metadata"]["annotations"].keys() >= given.keys()) == ("n", True)
    assert there["metadata"]["labels"]["topology.kubernetes.io/zone"] == "z7"


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


async def made(service: Api, path: str, body: dict[str, Any]) -> str:
    """Why it was not, by the name of the policy; empty where it was."""
    answer = await service.call("POST", path, body)
    assert answer.status in (201, 403, 422), answer.body
    return "" if answer.status == 201 else next(name for name in ("restow-guard-holds", "restow-guard-classes") if name in answer.body["message"])


async def test_no_pod_that_the_session_makes_preempts_or_evades_the_scheduler(world: World, accounts: dict[str, Target]) -> None:
    theirs = {"metadata": {"name": "theirs"}, "value": 9000}
    await world.api.ok("POST", CLASSES, theirs)
    try:
        async with aiohttp.ClientSession() as session:
            service = Api(accounts["scheduler-session"], session)
            for priority, why in (("system-node-critical", "restow-guard-holds"), ("theirs", "restow-guard-holds"), ("", "")):
                spec = PLACEHOLDER | ({"priorityClassName": priority} if priority else {})
                assert await made(service, HOLDS + "?dryRun=All", {"metadata": {"name": "x"}, "spec": spec}) == why, priority
            assert await made(service, HOLDS + "?dryRun=All", {"metadata": {"name": "x"}, "spec": PLACEHOLDER | {"nodeName": "n"}}) == "restow-guard-holds"
    finally:
        await world.api.ok("DELETE", f"{CLASSES}/theirs")


SECRETS: dict[str, dict[str, Any]] = {
    "a volume": {"volumes": [{"name": "v", "secret": {"secretName": "pull"}}]},
    "a part of one": {"volumes": [{"name": "v", "projected": {"sources": [{"downwardAPI": {"items": []}}, {"secret": {"name": "pull"}}]}}]},
    "a driver's": {"volumes": [{"name": "v", "csi": {"driver": "secrets-store.csi.k8s.io"}}]},
    "a variable": {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "pull", "key": "x"}}}]},
    "all variables": {"envFrom": [{"secretRef": {"name": "pull"}}]},
    "an account": {"serviceAccountName": "somebody"},
}


@pytest.mark.parametrize("what", SECRETS)
async def test_no_pod_that_the_session_makes_reads_a_secret(world: World, accounts: dict[str, Target], what: str) -> None:
    """As that by which nodes pull the image of placeholders."""
    change = SECRETS[what]
    (container,) = PLACEHOLDER["containers"]
    of_it = {key: value for key, value in change.items() if key.startswith("env")}
    spec = PLACEHOLDER | {key: value for key, value in change.items() if key not in of_it} | {"containers": [container | of_it]}
    async with aiohttp.ClientSession() as session:
        service = Api(accounts["scheduler-session"], session)
        assert await made(service, HOLDS + "?dryRun=All", {"metadata": {"name": "x"}, "spec": PLACEHOLDER}) == ""
        assert await made(service, HOLDS + "?dryRun=All", {"metadata": {"name": "x"}, "spec": spec}) == "restow-guard-holds"
        if of_it:
            spec = PLACEHOLDER | {"initContainers": [container | of_it | {"name": "first"}]}
            assert await made(service, HOLDS + "?dryRun=All", {"metadata": {"name": "x"}, "spec": spec}) == "restow-guard-holds"


async def test_where_the_cluster_has_a_default_priority_canaries_have_it(world: World, accounts: dict[str, Target]) -> None:
    await world.api.ok("POST", CLASSES, {"metadata": {"name": "usual"}, "value": 50, "globalDefault": True})
    try:
        async with aiohttp.ClientSession() as session:
            service, body = Api(accounts["scheduler-session"], session), {"metadata": {"name": "x"}, "spec": PLACEHOLDER}
            for _ in range(50):
                answer = await service.call("POST", HOLDS + "?dryRun=All", body)
                assert answer.status == 201, answer.body
                if answer.body["spec"].get("priorityClassName") == "usual":
                    return
                await asyncio.sleep(0.1)
            raise AssertionError("the default has not come into force")
    finally:
        await world.api.ok("DELETE", f"{CLASSES}/usual")


async def test_the_descheduler_makes_pods_as_a_dry_run_only(world: World, accounts: dict[str, Target]) -> None:
    async with aiohttp.ClientSession() as session:
        service, body = Api(accounts["descheduler"], session), {"metadata": {"name": "x"}, "spec": PLACEHOLDER}
        assert await made(service, HOLDS, body) == "restow-guard-holds"
        assert await made(service, HOLDS + "?dryRun=All", body) == ""


async def test_the_session_makes_classes_of_placeholders_only(world: World, accounts: dict[str, Target]) -> None:
    fit = {"metadata": {"name": "restow-hold-7"}, "value": 7, "preemptionPolicy": "Never"}
    unfit = (
        fit | {"globalDefault": True}, fit | {"preemptionPolicy": "PreemptLowerPriority"}, fit | {"metadata": {"name": "evil"}}, fit | {"value": 8},
    )  # fmt: skip
    async with aiohttp.ClientSession() as session:
        service = Api(accounts["scheduler-session"], session)
        assert await made(service, CLASSES + "?dryRun=All", fit) == ""
        assert [await made(service, CLASSES + "?dryRun=All", one) for one in unfit] == ["restow-guard-classes"] * 4


async def test_the_collector_deletes_classes_of_placeholders_only(world: World, lab: Lab) -> None:
    """No pod could be made any more whose template names a class that is gone."""
    for name, value in (("theirs", 9000), ("restow-hold-9", 9)):
        await world.api.ok("POST", CLASSES, {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"})
    async with aiohttp.ClientSession() as session:
        collector = Api(lab.account("garbage-collector"), session)
        failed = await collector.call("DELETE", f"{CLASSES}/theirs")
        assert (failed.status, "restow-guard-classes" in failed.body["message"]) == (422, True), failed.body
        await collector.ok("DELETE", f"{CLASSES}/restow-hold-9")
    await world.api.ok("DELETE", f"{CLASSES}/theirs")


async def test_nobody_gets_a_priority_by_the_class_of_a_placeholder(world: World, lab: Lab) -> None:
    """The classes have the values of others, that a quota may keep a namespace from, and are there for everybody to name: also for who may do everything there."""
    lab.kubectl("create", "serviceaccount", "tenant", "-n", NS)
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    await world.api.ok("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NS}/roles", {"metadata": {"name": "tenant"}, "rules": rules})
    lab.kubectl("create", "rolebinding", "tenant", "-n", NS, "--role=tenant", f"--serviceaccount={NS}:tenant")
    token = plain(lab.target, "POST", f"/api/v1/namespaces/{NS}/serviceaccounts/tenant/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    tenant = Api(replace(lab.target, headers={"Authorization": f"Bearer {token}"}), world.api.session)
    for name, value in (("theirs", 9000), ("restow-hold-9000", 9000)):
        await world.api.ok("POST", CLASSES, {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"})
    scope = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["theirs"]}]}
    quotas = f"/api/v1/namespaces/{NS}/resourcequotas"
    await world.api.ok("POST", quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}, "scopeSelector": scope}})
    try:
        async with asyncio.timeout(30):
            for name, why in (("theirs", "exceeded quota"), ("restow-hold-9000", "restow-guard-priorities")):
                body = {"metadata": {"name": "x"}, "spec": pod_spec(priority=name)}
                while (answer := await tenant.call("POST", f"/api/v1/namespaces/{NS}/pods?dryRun=All", body)).status == 201:
                    await asyncio.sleep(0.1)
                assert why in answer.body["message"], answer.body
        held = {"metadata": {"name": "x"}, "spec": PLACEHOLDER | {"priorityClassName": "restow-hold-9000"}}
        await world.api.ok("POST", HOLDS + "?dryRun=All", held)
    finally:
        await world.api.ok("DELETE", f"{quotas}/none")
        for kind in ("rolebinding", "role", "serviceaccount"):
            lab.kubectl("delete", kind, "tenant", "-n", NS)
        for name in ("theirs", "restow-hold-9000"):
            await world.api.ok("DELETE", f"{CLASSES}/{name}")


async def test_no_landing_gates_every_pod(world: World, service: Api) -> None:
    everybody = {"u": {"namespace": "", "labels": [{}], "until": "2099-01-01T00:00:00Z"}}
    body = {"apiVersion": "restow.dev/v1", "kind": "Landing", "metadata": {"name": "x"}, "spec": {"owners": everybody}}
    assert (await service.call("POST", "/apis/restow.dev/v1/landings?dryRun=All", body)).status == 422


@pytest.mark.parametrize("name", ["restow-guard", "restow-guard-holds", "restow-guard-classes", "restow-guard-priorities"])
def test_the_guards_expressions_are_well_typed(lab: Lab, name: str) -> None:
    there = plain(lab.target, "GET", f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}")
    assert "expressionWarnings" not in there["status"].get("typeChecking", {}), there["status"]


async def test_of_a_node_the_descheduler_changes_its_own_marks_and_the_cordon_alone(world: World, lab: Lab, accounts: dict[str, Target]) -> None:
    """The taint of a cordon is the node controller's to set: with another effect it would evict every pod, whatever budgets say."""
    await world.node("n")
    path, evil = "/api/v1/nodes/n", {"metadata": {"labels": {"evil": "1"}}}
    lab.kubectl("apply", "-k", str(DEPLOY / "autoscalers"))
    try:
        async with aiohttp.ClientSession() as session:
            service = Api(accounts["descheduler"], session)
            async with asyncio.timeout(30):
                while "restow-guard-nodes" not in str((await service.call("PATCH", path + "?dryRun=All", evil, media=STRATEGIC)).body):
                    await asyncio.sleep(0.1)
            for effect in ("NoSchedule", "NoExecute"):
                taint = {"key": "node.kubernetes.io/unschedulable", "effect": effect}
                answer = await service.call("PATCH", path + "?dryRun=All", {"spec": {"taints": [taint]}}, media=STRATEGIC)
                assert "restow-guard-nodes" in str(answer.body), f"{effect}: {answer.status}"
            marks = {"metadata": {"annotations": {"restow.dev/cordoned": "log plan", "karpenter.sh/do-not-disrupt": "true"}}, "spec": {"unschedulable": True}}
            await service.ok("PATCH", path, marks, media=STRATEGIC)
            # As the node controller answers.
            await world.api.ok("PATCH", path, {"spec": {"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}}, media=STRATEGIC)
            marks = {"metadata": {"annotations": {"restow.dev/cordoned": None}}, "spec": {"unschedulable": None}}
            await service.ok("PATCH", path, marks, media=STRATEGIC)
    finally:
        lab.kubectl("delete", "-k", str(DEPLOY / "autoscalers"), "--timeout=60s")
