"""Deletion: graceful, by finalizers, with preconditions, by ownership."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubesim.conformance.harness import MERGE, Api, unique
from kubesim.conformance.objects import binding, config_map, pod

collector = pytest.mark.needs_controllers("the garbage collector is one")


async def bound(api: Api, ns: str, name: str, **spec: Any) -> str:
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod(name, **spec))
    await api.ok("POST", f"{path}/{name}/binding", binding(name, unique("node")))
    return path


async def gone(api: Api, path: str) -> None:
    async with asyncio.timeout(20):
        while (await api.call("GET", path)).status != 404:
            await asyncio.sleep(0.02)


async def test_answer_is_a_status(api: Api, ns: str) -> None:
    """KS-90"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    created = await api.ok("POST", path, config_map("a"))
    body = await api.ok("DELETE", f"{path}/a")
    assert (body["kind"], body["status"]) == ("Status", "Success")
    assert body["details"] == {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    await api.fails(404, "NotFound", "DELETE", f"{path}/a")


async def test_unbound_pods_go_at_once(api: Api, ns: str) -> None:
    """KS-91"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod("a"))
    body = await api.ok("DELETE", f"{path}/a")
    assert (body["kind"], body["metadata"]["name"]) == ("Pod", "a")
    await api.fails(404, "NotFound", "GET", f"{path}/a")


async def test_bound_pods_get_their_grace(api: Api, ns: str) -> None:
    """KS-92"""
    path = await bound(api, ns, "a", terminationGracePeriodSeconds=20)
    body = await api.ok("DELETE", f"{path}/a")
    meta = body["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 20
    assert meta["deletionTimestamp"].endswith("Z")
    shorter = await api.ok("DELETE", f"{path}/a", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    longer = await api.ok("DELETE", f"{path}/a?gracePeriodSeconds=60")
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 5
    await api.ok("DELETE", f"{path}/a?gracePeriodSeconds=0")
    await api.fails(404, "NotFound", "GET", f"{path}/a")


async def test_terminal_pods_go_at_once(api: Api, ns: str) -> None:
    """KS-93"""
    path = await bound(api, ns, "a")
    await api.ok("PATCH", f"{path}/a/status", {"status": {"phase": "Succeeded"}}, media=MERGE)
    await api.ok("DELETE", f"{path}/a")
    await api.fails(404, "NotFound", "GET", f"{path}/a")


async def test_finalizers_hold_an_object(api: Api, ns: str) -> None:
    """KS-94"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    held = config_map("a")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await api.ok("POST", path, held)
    body = await api.ok("DELETE", f"{path}/a")
    assert body["kind"] == "ConfigMap"
    assert body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.ok("GET", f"{path}/a"))["metadata"]["deletionTimestamp"]
    await api.ok("PATCH", f"{path}/a", {"metadata": {"finalizers": None}}, media=MERGE)
    await api.fails(404, "NotFound", "GET", f"{path}/a")


async def test_no_finalizer_comes_to_an_object_that_is_being_deleted(api: Api, ns: str) -> None:
    """KS-94"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    held = config_map("a")
    held["metadata"]["finalizers"] = ["example.com/hold", "example.com/more"]
    await api.ok("POST", path, held)
    await api.ok("DELETE", f"{path}/a")
    for added in (["example.com/hold", "example.com/new"], ["example.com/new"]):
        body = await api.fails(422, "Invalid", "PATCH", f"{path}/a", {"metadata": {"finalizers": added}}, media=MERGE)
        assert body["details"]["causes"][0]["field"] == "metadata.finalizers"
    await api.ok("PATCH", f"{path}/a", {"metadata": {"finalizers": ["example.com/more"]}}, media=MERGE)
    await api.ok("PATCH", f"{path}/a", {"metadata": {"finalizers": None}}, media=MERGE)


async def test_preconditions(api: Api, ns: str) -> None:
    """KS-95"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    created = await api.ok("POST", path, config_map("a"))
    wrong = {"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}}
    body = await api.fails(409, "Conflict", "DELETE", f"{path}/a", wrong)
    uid = created["metadata"]["uid"]
    assert body["message"] == (
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition '
        f"(00000000-0000-4000-8000-000000000000) does not match the UID in record ({uid}). "
        "The object might have been deleted and then recreated"
    )
    body = await api.fails(
        409, "Conflict", "DELETE", f"{path}/a", {"preconditions": {"resourceVersion": "1"}}
    )
    assert (
        "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record"
        in body["message"]
    )
    right = {"uid": uid, "resourceVersion": created["metadata"]["resourceVersion"]}
    await api.ok("DELETE", f"{path}/a", {"preconditions": right})


async def test_collections(api: Api, ns: str) -> None:
    """KS-96"""
    path = f"/api/v1/namespaces/{ns}/pods"
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        await api.ok("POST", path, pod(name, labels={"l": label}))
    body = await api.ok("DELETE", f"{path}?labelSelector=l%3Dx")
    assert (body["kind"], len(body["items"])) == ("PodList", 2)
    left = await api.ok("GET", path)
    assert [item["metadata"]["name"] for item in left["items"]] == ["c"]


async def test_unknown_propagation(api: Api, ns: str) -> None:
    """KS-97"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a"))
    body = await api.fails(422, "Invalid", "DELETE", f"{path}/a", {"propagationPolicy": "Sideways"})
    assert body["details"]["causes"][0]["field"] == "propagationPolicy"


async def owner_and_owned(api: Api, ns: str, *, block: bool = False, finalizer: bool = False) -> str:
    path = f"/api/v1/namespaces/{ns}/configmaps"
    owner = await api.ok("POST", path, config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = config_map("owned")
    owned["metadata"]["ownerReferences"] = [{**reference, "blockOwnerDeletion": block}]
    if finalizer:
        owned["metadata"]["finalizers"] = ["example.com/hold"]
    await api.ok("POST", path, owned)
    return path


@collector
async def test_background_collection(api: Api, ns: str) -> None:
    """KS-98"""
    path = await owner_and_owned(api, ns)
    await api.ok("DELETE", f"{path}/owner", {"propagationPolicy": "Background"})
    await gone(api, f"{path}/owned")


@collector
async def test_foreground_collection(api: Api, ns: str) -> None:
    """KS-99"""
    path = await owner_and_owned(api, ns, block=True, finalizer=True)
    body = await api.ok("DELETE", f"{path}/owner", {"propagationPolicy": "Foreground"})
    assert body["metadata"]["finalizers"] == ["foregroundDeletion"]
    async with asyncio.timeout(20):
        while "deletionTimestamp" not in (await api.ok("GET", f"{path}/owned"))["metadata"]:
            await asyncio.sleep(0.02)
    assert (await api.call("GET", f"{path}/owner")).status == 200
    await api.ok("PATCH", f"{path}/owned", {"metadata": {"finalizers": None}}, media=MERGE)
    await gone(api, f"{path}/owner")


@collector
async def test_orphans(api: Api, ns: str) -> None:
    """KS-100"""
    path = await owner_and_owned(api, ns)
    await api.ok("DELETE", f"{path}/owner", {"propagationPolicy": "Orphan"})
    await gone(api, f"{path}/owner")
    assert "ownerReferences" not in (await api.ok("GET", f"{path}/owned"))["metadata"]


@pytest.mark.needs_controllers("the namespace controller is one")
async def test_namespaces_empty_themselves(api: Api) -> None:
    """KS-101"""
    name = unique("ks")
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    await api.ok("POST", f"/api/v1/namespaces/{name}/configmaps", config_map("a"))
    await api.ok("DELETE", f"/api/v1/namespaces/{name}")
    await gone(api, f"/api/v1/namespaces/{name}")
    await api.fails(404, "NotFound", "GET", f"/api/v1/namespaces/{name}/configmaps/a")


async def test_nothing_new_in_a_terminating_namespace(api: Api) -> None:
    """KS-102"""
    name = unique("ks")
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    held = config_map("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    path = f"/api/v1/namespaces/{name}/configmaps"
    await api.ok("POST", path, held)
    body = await api.ok("DELETE", f"/api/v1/namespaces/{name}")
    assert body["status"]["phase"] == "Terminating"
    body = await api.fails(403, "Forbidden", "POST", path, config_map("late"))
    assert "because it is being terminated" in body["message"]
    assert body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await api.ok("PATCH", f"{path}/held", {"metadata": {"finalizers": None}}, media=MERGE)
    await api.call(
        "PUT", f"/api/v1/namespaces/{name}/finalize", {"metadata": {"name": name}, "spec": {"finalizers": []}}
    )
