"""The three patch types."""

from __future__ import annotations

from typing import Any

from kubesim.conformance.harness import JSON_PATCH, MERGE, STRATEGIC, Api
from kubesim.conformance.objects import config_map, deployment


async def test_merge_patch(api: Api, ns: str) -> None:
    """KS-40"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a", k="1", gone="x"))
    body = await api.ok("PATCH", f"{path}/a", {"data": {"k": "2", "gone": None, "new": "y"}}, media=MERGE)
    assert body["data"] == {"k": "2", "new": "y"}


async def test_json_patch(api: Api, ns: str) -> None:
    """KS-41"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a", k="1"))
    operations: list[Any] = [
        {"op": "test", "path": "/data/k", "value": "1"},
        {"op": "replace", "path": "/data/k", "value": "2"},
        {"op": "add", "path": "/metadata/labels", "value": {"x~y": "z"}},
    ]
    operations[2]["value"] = {"x": "z"}
    body = await api.ok("PATCH", f"{path}/a", operations, media=JSON_PATCH)
    assert body["data"] == {"k": "2"}
    assert body["metadata"]["labels"] == {"x": "z"}


async def test_json_patch_that_does_not_apply(api: Api, ns: str) -> None:
    """KS-42"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a", k="1"))
    stale = [{"op": "test", "path": "/data/k", "value": "9"}]
    await api.fails(422, "Invalid", "PATCH", f"{path}/a", stale, media=JSON_PATCH)
    missing = [{"op": "remove", "path": "/data/none"}]
    await api.fails(422, "Invalid", "PATCH", f"{path}/a", missing, media=JSON_PATCH)
    await api.fails(400, "BadRequest", "PATCH", f"{path}/a", {"op": "remove"}, media=JSON_PATCH)


async def test_a_json_patch_replaces_what_is_not_there_and_removes_only_what_is(api: Api, ns: str) -> None:
    """KS-41, KS-42: RFC 6902 refuses the first; json-patch v4, which API servers use, adds it."""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a", k="1"))
    body = await api.ok("PATCH", f"{path}/a", [{"op": "replace", "path": "/data/none", "value": "2"}], media=JSON_PATCH)
    assert body["data"] == {"k": "1", "none": "2"}
    await api.fails(422, "Invalid", "PATCH", f"{path}/a", [{"op": "replace", "path": "/none/none", "value": "2"}], media=JSON_PATCH)
    both: list[Any] = [{"op": "remove", "path": "/data/k"}, {"op": "add", "path": "/data/k", "value": "3"}]
    assert (await api.ok("PATCH", f"{path}/a", both, media=JSON_PATCH))["data"]["k"] == "3"
    both += [{"op": "remove", "path": "/data/gone"}, {"op": "add", "path": "/data/gone", "value": "3"}]
    await api.fails(422, "Invalid", "PATCH", f"{path}/a", both, media=JSON_PATCH)


async def test_strategic_that_takes_away_what_is_not_there_changes_nothing(api: Api, ns: str) -> None:
    """KS-43"""
    path = f"/apis/apps/v1/namespaces/{ns}/deployments"
    made = await api.ok("POST", path, deployment("web"))
    gone = {"imagePullSecrets": [{"$patch": "delete", "name": "none"}], "nodeSelector": {"none": None}}
    change = {"metadata": {"annotations": {"none": None}}, "spec": {"template": {"metadata": {"annotations": {"none": None}}, "spec": gone}}}
    there = await api.ok("PATCH", f"{path}/web", change, media=STRATEGIC)
    assert (there["spec"], there["metadata"]["generation"]) == (made["spec"], made["metadata"]["generation"])
    change["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "one"}]
    assert (await api.ok("PATCH", f"{path}/web", change, media=STRATEGIC))["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "one"}]
    change["spec"]["template"]["spec"]["imagePullSecrets"] = [{"$patch": "delete", "name": "one"}]
    assert (await api.ok("PATCH", f"{path}/web", change, media=STRATEGIC))["spec"] == made["spec"]


async def test_strategic_merges_lists_by_key(api: Api, ns: str) -> None:
    """KS-43"""
    path = f"/apis/apps/v1/namespaces/{ns}/deployments"
    await api.ok("POST", path, deployment("web"))
    container = {"name": "c", "env": [{"name": "A", "value": "1"}]}
    change = {"spec": {"template": {"spec": {"containers": [container, {"name": "d", "image": "x"}]}}}}
    body = await api.ok("PATCH", f"{path}/web", change, media=STRATEGIC)
    found = {item["name"]: item for item in body["spec"]["template"]["spec"]["containers"]}
    assert set(found) == {"c", "d"}
    assert found["c"]["image"] == "registry.k8s.io/pause:3.9"
    container["env"] = [{"name": "B", "value": "2"}]
    body = await api.ok(
        "PATCH", f"{path}/web", {"spec": {"template": {"spec": {"containers": [container]}}}}, media=STRATEGIC
    )
    names = {item["name"] for item in body["spec"]["template"]["spec"]["containers"][0]["env"]}
    names |= {e["name"] for c in body["spec"]["template"]["spec"]["containers"] for e in c.get("env", ())}
    assert names == {"A", "B"}


async def test_strategic_directives(api: Api, ns: str) -> None:
    """KS-44"""
    path = f"/apis/apps/v1/namespaces/{ns}/deployments"
    await api.ok("POST", path, deployment("web"))

    async def apply(change: Any) -> Any:
        return (await api.ok("PATCH", f"{path}/web", {"spec": change}, media=STRATEGIC))["spec"]

    spec = await apply(
        {"template": {"spec": {"containers": [{"name": "d", "image": "x"}, {"name": "e", "image": "y"}]}}}
    )
    assert len(spec["template"]["spec"]["containers"]) == 3
    spec = await apply({"template": {"spec": {"containers": [{"name": "d", "$patch": "delete"}]}}})
    assert {item["name"] for item in spec["template"]["spec"]["containers"]} == {"c", "e"}
    spec = await apply({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}})
    assert spec["strategy"] == {"type": "Recreate"}
    replaced = [{"name": "only", "image": "z"}, {"$patch": "replace"}]
    spec = await apply({"template": {"spec": {"containers": replaced}}})
    assert [item["name"] for item in spec["template"]["spec"]["containers"]] == ["only"]


async def test_strategic_sets_of_scalars(api: Api, ns: str) -> None:
    """KS-45"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a"))
    body = await api.ok(
        "PATCH", f"{path}/a", {"metadata": {"finalizers": ["x.y/a", "x.y/b"]}}, media=STRATEGIC
    )
    body = await api.ok("PATCH", f"{path}/a", {"metadata": {"finalizers": ["x.y/c"]}}, media=STRATEGIC)
    assert set(body["metadata"]["finalizers"]) == {"x.y/a", "x.y/b", "x.y/c"}
    gone = {"$deleteFromPrimitiveList/finalizers": ["x.y/a", "x.y/b", "x.y/c"]}
    body = await api.ok("PATCH", f"{path}/a", {"metadata": gone}, media=STRATEGIC)
    assert "finalizers" not in body["metadata"]


async def test_stale_patches_conflict(api: Api, ns: str) -> None:
    """KS-46"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    first = await api.ok("POST", path, config_map("a", k="1"))
    await api.ok("PATCH", f"{path}/a", {"data": {"k": "2"}}, media=MERGE)
    stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"k": "3"}}
    await api.fails(409, "Conflict", "PATCH", f"{path}/a", stale, media=MERGE)
    other = {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}}
    body = await api.fails(422, "Invalid", "PATCH", f"{path}/a", other, media=MERGE)
    assert {cause["field"] for cause in body["details"]["causes"]} == {"metadata.uid"}


async def test_unknown_patch_types(api: Api, ns: str) -> None:
    """KS-47"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a"))
    await api.fails(415, "UnsupportedMediaType", "PATCH", f"{path}/a", {}, media="application/json")


async def test_patch_of_nothing(api: Api, ns: str) -> None:
    """KS-48"""
    await api.fails(404, "NotFound", "PATCH", f"/api/v1/namespaces/{ns}/configmaps/none", {}, media=MERGE)
