"""The server itself: version, health, discovery, refusals."""

from __future__ import annotations

import json

from kubesim.conformance.harness import Api

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_version(api: Api) -> None:
    """KS-1"""
    body = await api.ok("GET", "/version")
    assert body["major"] == "1"
    assert body["gitVersion"].startswith("v1.")


async def test_health(api: Api) -> None:
    """KS-2"""
    for path in ("/healthz", "/livez", "/readyz"):
        answer = await api.call("GET", path)
        assert (answer.status, answer.body) == (200, "ok")


async def test_discovery(api: Api) -> None:
    """KS-3"""
    assert (await api.ok("GET", "/api"))["versions"] == ["v1"]
    groups = {group["name"]: group for group in (await api.ok("GET", "/apis"))["groups"]}
    assert groups["apps"]["preferredVersion"]["groupVersion"] == "apps/v1"
    assert (await api.ok("GET", "/apis/apps"))["kind"] == "APIGroup"
    resources = {item["name"]: item for item in (await api.ok("GET", "/apis/apps/v1"))["resources"]}
    deployments = resources["deployments"]
    assert (deployments["kind"], deployments["namespaced"], deployments["shortNames"]) == (
        "Deployment",
        True,
        ["deploy"],
    )
    assert {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"} == set(
        deployments["verbs"]
    )
    assert resources["deployments/scale"]["kind"] == "Scale"
    core = {item["name"]: item for item in (await api.ok("GET", "/api/v1"))["resources"]}
    assert core["pods/eviction"] | {"verbs": []} == {
        "name": "pods/eviction", "singularName": "", "namespaced": True, "group": "policy", "version": "v1",
        "kind": "Eviction", "verbs": [],
    }  # fmt: skip


async def test_aggregated_discovery(api: Api) -> None:
    """KS-4"""
    answer = await api.call("GET", "/apis", accept=AGGREGATED)
    assert "as=APIGroupDiscoveryList" in answer.headers["Content-Type"]
    assert answer.body["kind"] == "APIGroupDiscoveryList"
    apps = next(item for item in answer.body["items"] if item["metadata"]["name"] == "apps")
    resources = {item["resource"]: item for item in apps["versions"][0]["resources"]}
    # Group and version are left empty where they are those of the list.
    assert resources["deployments"]["responseKind"] == {"group": "", "version": "", "kind": "Deployment"}
    assert {sub["subresource"] for sub in resources["deployments"]["subresources"]} == {"scale", "status"}
    core = await api.ok("GET", "/api", accept=AGGREGATED)
    assert {item["resource"] for item in core["items"][0]["versions"][0]["resources"]} >= {"pods", "nodes"}


async def test_unknown_paths(api: Api) -> None:
    """KS-5"""
    for path in (
        "/apis/nope.example/v1/things",
        "/api/v1/namespaces/default/nothings",
        "/apis/apps/v9/deployments",
    ):
        answer = await api.call("GET", path)
        assert answer.status == 404


async def test_methods_that_a_resource_does_not_have(api: Api) -> None:
    """KS-6"""
    await api.fails(405, "MethodNotAllowed", "POST", "/api/v1/pods", {"metadata": {"name": "x"}})
    await api.fails(405, "MethodNotAllowed", "DELETE", "/api/v1/namespaces")


async def test_unknown_body_types(api: Api) -> None:
    """KS-7"""
    path = "/api/v1/namespaces/default/configmaps"
    await api.fails(415, "UnsupportedMediaType", "POST", path, raw=b"<x/>", media="text/xml")


async def test_unknown_accept(api: Api) -> None:
    """KS-8"""
    body = await api.fails(406, "NotAcceptable", "GET", "/api/v1/namespaces", accept="image/png")
    assert body["message"].startswith("406: Not Acceptable\n\nAvailable representations: application/json, ")


async def test_malformed_bodies(api: Api) -> None:
    """KS-9"""
    path = "/api/v1/namespaces/default/configmaps"
    await api.fails(400, "BadRequest", "POST", path, raw=b"{")


async def test_openapi(api: Api) -> None:
    """KS-10"""
    index = await api.ok("GET", "/openapi/v3")
    if isinstance(index, str):  # kube-apiserver says text/plain of it.
        index = json.loads(index)
    assert {"api/v1", "apis/apps/v1"} <= set(index["paths"])
    document = await api.ok("GET", index["paths"]["apis/apps/v1"]["serverRelativeURL"])
    assert document["openapi"].startswith("3.0")
    kinds = [
        gvk["kind"]
        for schema in document["components"]["schemas"].values()
        for gvk in schema.get("x-kubernetes-group-version-kind", ())
    ]
    assert "Deployment" in kinds
    assert (await api.ok("GET", "/openapi/v2"))["swagger"] == "2.0"


async def test_access_reviews_allow(api: Api) -> None:
    """KS-11"""
    attributes = {"namespace": "default", "verb": "get", "resource": "pods"}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}  # fmt: skip
    body = await api.ok("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert body["status"]["allowed"] is True


async def test_initial_namespaces(api: Api) -> None:
    """KS-12"""
    names = {item["metadata"]["name"] for item in (await api.ok("GET", "/api/v1/namespaces"))["items"]}
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= names
    body = await api.fails(403, "Forbidden", "DELETE", "/api/v1/namespaces/default")
    assert body["message"] == 'namespaces "default" is forbidden: this namespace may not be deleted'


async def test_yaml_bodies(api: Api, ns: str) -> None:
    """KS-13"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, raw=b"metadata:\n  name: yam\ndata: {a: b}\n", media="application/yaml")
    answer = await api.call("GET", f"{path}/yam", accept="application/yaml")
    assert "kind: ConfigMap" in answer.body
