"""pods/eviction and budgets. The tests write the budget's status themselves, so a bare API server suffices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubesim.conformance.harness import MERGE, Api
from kubesim.conformance.objects import binding, budget, deployment, eviction, pod

LABELS = {"app": "web"}


async def running(api: Api, ns: str, name: str, *, ready: bool = True) -> Any:
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod(name, labels=LABELS))
    await api.ok("POST", f"{path}/{name}/binding", binding(name, "ks-node"))
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "conditions": conditions}
    return await api.ok("PATCH", f"{path}/{name}/status", {"status": status}, media=MERGE)


async def with_budget(api: Api, ns: str, allowed: int, healthy: int, desired: int, **spec: Any) -> str:
    """A budget whose status is what a disruption controller would write."""
    path = f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
    made = await api.ok("POST", path, budget("b", LABELS, **spec))
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": healthy,
        "observedGeneration": made["metadata"]["generation"],
    }
    await api.ok("PATCH", f"{path}/b/status", {"status": status}, media=MERGE)
    return f"{path}/b"


async def evict(api: Api, ns: str, name: str, **options: Any) -> Any:
    return await api.call("POST", f"/api/v1/namespaces/{ns}/pods/{name}/eviction", eviction(name, **options))


async def test_without_a_budget(api: Api, ns: str) -> None:
    """KS-140"""
    await running(api, ns, "a")
    answer = await evict(api, ns, "a")
    assert answer.status == 201
    assert (answer.body["kind"], answer.body["status"]) == ("Status", "Success")
    meta = (await api.ok("GET", f"/api/v1/namespaces/{ns}/pods/a"))["metadata"]
    assert meta["deletionTimestamp"]


async def test_condition(api: Api, ns: str) -> None:
    """KS-141"""
    await running(api, ns, "a")
    await evict(api, ns, "a")
    body = await api.ok("GET", f"/api/v1/namespaces/{ns}/pods/a")
    target = next(item for item in body["status"]["conditions"] if item["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"], target["message"]) == (
        "True",
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )


async def test_budget_refuses(api: Api, ns: str) -> None:
    """KS-142"""
    await running(api, ns, "a")
    await with_budget(api, ns, 0, 1, 1, minAvailable=1)
    answer = await evict(api, ns, "a")
    assert answer.status == 429
    assert answer.body["reason"] == "TooManyRequests"
    assert answer.body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
    }
    assert answer.body["details"]["causes"] == [cause]
    assert "deletionTimestamp" not in (await api.ok("GET", f"/api/v1/namespaces/{ns}/pods/a"))["metadata"]


async def test_budget_is_charged(api: Api, ns: str) -> None:
    """KS-143"""
    for name in ("a", "b"):
        await running(api, ns, name)
    path = await with_budget(api, ns, 1, 2, 1, minAvailable=1)
    assert (await evict(api, ns, "a")).status == 201
    assert (await api.ok("GET", path))["status"]["disruptionsAllowed"] == 0
    assert (await evict(api, ns, "b")).status == 429


async def test_two_budgets(api: Api, ns: str) -> None:
    """KS-144"""
    await running(api, ns, "a")
    path = f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
    for name in ("one", "two"):
        await api.ok("POST", path, budget(name, LABELS, maxUnavailable=1))
    answer = await evict(api, ns, "a")
    assert answer.status == 500
    assert answer.body["message"] == (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )


async def test_preconditions(api: Api, ns: str) -> None:
    """KS-145"""
    made = await running(api, ns, "a")
    answer = await evict(api, ns, "a", preconditions={"uid": "00000000-0000-4000-8000-000000000000"})
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    old = made["metadata"]["resourceVersion"]
    await api.ok(
        "PATCH", f"/api/v1/namespaces/{ns}/pods/a", {"metadata": {"annotations": {"a": "b"}}}, media=MERGE
    )
    answer = await evict(api, ns, "a", preconditions={"uid": made["metadata"]["uid"], "resourceVersion": old})
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert "the ResourceVersion in the precondition" in answer.body["message"]
    current = await api.ok("GET", f"/api/v1/namespaces/{ns}/pods/a")
    right = {"uid": current["metadata"]["uid"], "resourceVersion": current["metadata"]["resourceVersion"]}
    assert (await evict(api, ns, "a", preconditions=right)).status == 201


async def test_dry_run(api: Api, ns: str) -> None:
    """KS-146"""
    await running(api, ns, "a")
    assert (await evict(api, ns, "a", dryRun=["All"])).status == 201
    assert "deletionTimestamp" not in (await api.ok("GET", f"/api/v1/namespaces/{ns}/pods/a"))["metadata"]


async def test_pending_and_finished_pods_always_go(api: Api, ns: str) -> None:
    """KS-147"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await running(api, ns, "done")
    await api.ok("PATCH", f"{path}/done/status", {"status": {"phase": "Failed"}}, media=MERGE)
    await api.ok("POST", path, pod("waiting", labels=LABELS))
    await with_budget(api, ns, 0, 0, 2, minAvailable=2)
    assert (await evict(api, ns, "done")).status == 201
    assert (await evict(api, ns, "waiting")).status == 201
    assert (await api.ok("GET", path))["items"] == []


async def test_missing_pod(api: Api, ns: str) -> None:
    """KS-148"""
    answer = await evict(api, ns, "none")
    assert (answer.status, answer.body["reason"]) == (404, "NotFound")


async def test_unready_pods_above_the_budget(api: Api, ns: str) -> None:
    """KS-149"""
    await running(api, ns, "good")
    await running(api, ns, "bad", ready=False)
    await with_budget(api, ns, 0, 1, 1, minAvailable=1)
    assert (await evict(api, ns, "good")).status == 429
    assert (await evict(api, ns, "bad")).status == 201


async def test_always_allow(api: Api, ns: str) -> None:
    """KS-150"""
    await running(api, ns, "bad", ready=False)
    await with_budget(api, ns, 0, 0, 1, minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")
    assert (await evict(api, ns, "bad")).status == 201


@pytest.mark.needs_controllers("the disruption controller is one")
@pytest.mark.parametrize(
    ("spec", "expected", "desired", "allowed"),
    [
        ({"minAvailable": 2}, 3, 2, 1),
        ({"maxUnavailable": 1}, 4, 3, 0),
        ({"minAvailable": "50%"}, 4, 2, 1),
        ({"maxUnavailable": "30%"}, 4, 2, 1),
    ],
)
async def test_budget_status(api: Api, ns: str, spec: Any, expected: int, desired: int, allowed: int) -> None:
    """KS-151"""
    made = deployment("web", replicas=4)
    made["spec"]["paused"] = True
    owner = await api.ok("POST", f"/apis/apps/v1/namespaces/{ns}/deployments", made)
    owner = await api.ok("GET", f"/apis/apps/v1/namespaces/{ns}/deployments/web")
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": owner["metadata"]["uid"],
    }
    for name in ("a", "b", "c"):
        await running(api, ns, name)
        change = {"metadata": {"ownerReferences": [{**reference, "controller": True}]}}
        await api.ok("PATCH", f"/api/v1/namespaces/{ns}/pods/{name}", change, media=MERGE)
    path = f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
    await api.ok("POST", path, budget("b", LABELS, **spec))
    async with asyncio.timeout(20):
        while True:
            status = (await api.ok("GET", f"{path}/b")).get("status") or {}
            if status.get("observedGeneration") == 1 and status.get("currentHealthy") == 3:
                break
            await asyncio.sleep(0.02)
    assert (status["expectedPods"], status["desiredHealthy"], status["disruptionsAllowed"]) == (
        expected,
        desired,
        allowed,
    )
