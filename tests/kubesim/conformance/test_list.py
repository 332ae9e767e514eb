"""Lists: selectors, pages, versions."""

from __future__ import annotations

import pytest
from kubesim.conformance.harness import MERGE, Api
from kubesim.conformance.objects import config_map, pod


async def three(api: Api, ns: str) -> str:
    """a (x=1), b (x=2), c (no label)."""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2", "y": ""}), ("c", {})):
        obj = config_map(name)
        obj["metadata"]["labels"] = labels
        await api.ok("POST", path, obj)
    return path


def names(body: dict) -> list[str]:
    return [
        item["metadata"]["name"]
        for item in body["items"]
        if not item["metadata"]["name"].startswith("kube-root")
    ]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("x=1", ["a"]),
        ("x==1", ["a"]),
        ("x!=1", ["b", "c"]),
        ("x in (1,2)", ["a", "b"]),
        ("x notin (1)", ["b", "c"]),
        ("x", ["a", "b"]),
        ("!x", ["c"]),
        ("x,y=", ["b"]),
        ("x>1", ["b"]),
        ("x<2", ["a"]),
    ],
)
async def test_label_selectors(api: Api, ns: str, selector: str, expected: list[str]) -> None:
    """KS-50"""
    path = await three(api, ns)
    from urllib.parse import quote

    assert names(await api.ok("GET", f"{path}?labelSelector={quote(selector)}")) == expected


async def test_malformed_label_selector(api: Api, ns: str) -> None:
    """KS-51"""
    body = await api.fails(
        400, "BadRequest", "GET", f"/api/v1/namespaces/{ns}/configmaps?labelSelector=a%20b%20c"
    )
    assert body["message"].startswith("unable to parse requirement")


async def test_field_selectors(api: Api, ns: str) -> None:
    """KS-52"""
    path = await three(api, ns)
    assert names(await api.ok("GET", f"{path}?fieldSelector=metadata.name%3Db")) == ["b"]
    assert names(await api.ok("GET", f"/api/v1/configmaps?fieldSelector=metadata.namespace%3D{ns},metadata.name!%3Db")) == ["a", "c"]  # fmt: skip
    pods = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", pods, pod("p"))
    await api.ok("POST", pods, pod("q", schedulerName="other"))
    assert names(await api.ok("GET", f"{pods}?fieldSelector=spec.schedulerName%3Dother")) == ["q"]
    assert names(await api.ok("GET", f"{pods}?fieldSelector=spec.nodeName%3D,status.phase%3DPending")) == [
        "p",
        "q",
    ]


async def test_unknown_field_selector(api: Api, ns: str) -> None:
    """KS-53"""
    body = await api.fails(
        400, "BadRequest", "GET", f"/api/v1/namespaces/{ns}/pods?fieldSelector=spec.nope%3Dx"
    )
    assert body["message"] == "field label not supported: spec.nope"


async def test_pages_are_consistent(api: Api, ns: str) -> None:
    """KS-54"""
    path = await three(api, ns)
    selector = "labelSelector=!none"
    first = await api.ok("GET", f"{path}?limit=2&{selector}")
    assert names(first)[:1] == ["a"]
    token = first["metadata"]["continue"]
    await api.ok("DELETE", f"{path}/c")
    await api.ok("POST", path, config_map("d"))
    rest = await api.ok("GET", f"{path}?limit=5&{selector}&continue={token}")
    assert "c" in names(rest)
    assert "d" not in names(rest)
    assert "continue" not in rest["metadata"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_remaining_item_count(api: Api, ns: str) -> None:
    """KS-55"""
    path = f"/api/v1/namespaces/{ns}/pods"
    for name in ("a", "b", "c"):
        await api.ok("POST", path, pod(name))
    assert (await api.ok("GET", f"{path}?limit=1"))["metadata"]["remainingItemCount"] == 2
    page = await api.ok("GET", f"{path}?limit=1&fieldSelector=status.phase%3DPending")
    assert "remainingItemCount" not in page["metadata"]


async def test_bad_continue(api: Api, ns: str) -> None:
    """KS-56"""
    body = await api.fails(
        400, "BadRequest", "GET", f"/api/v1/namespaces/{ns}/pods?limit=1&continue=garbage!"
    )
    assert body["message"].startswith("invalid continue token: continue key is not valid")


async def test_versions_of_the_future(api: Api, ns: str) -> None:
    """KS-57"""
    path = f"/api/v1/namespaces/{ns}/pods?resourceVersion=999999999&resourceVersionMatch=NotOlderThan"
    body = await api.fails(504, "Timeout", "GET", path)
    assert "Too large resource version: 999999999, current: " in body["message"]
    assert body["details"]["causes"] == [
        {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    ]
    assert body["details"]["retryAfterSeconds"] == 1


async def test_version_match_rules(api: Api, ns: str) -> None:
    """KS-58"""
    path = f"/api/v1/namespaces/{ns}/pods"
    body = await api.fails(422, "Invalid", "GET", f"{path}?resourceVersionMatch=Exact")
    assert body["details"]["causes"][0]["field"] == "resourceVersionMatch"
    assert "resourceVersionMatch is forbidden unless resourceVersion is provided" in body["message"]
    await api.fails(422, "Invalid", "GET", f"{path}?resourceVersion=0&resourceVersionMatch=Exact")
    await api.fails(422, "Invalid", "GET", f"{path}?resourceVersion=1&resourceVersionMatch=Sometimes")


async def test_exact_versions(api: Api, ns: str) -> None:
    """KS-59"""
    path = f"/api/v1/namespaces/{ns}/pods"
    created = await api.ok("POST", path, pod("a"))
    rv = created["metadata"]["resourceVersion"]
    await api.ok("PATCH", f"{path}/a", {"metadata": {"labels": {"later": "yes"}}}, media=MERGE)
    await api.ok("POST", path, pod("b"))
    body = await api.ok("GET", f"{path}?resourceVersion={rv}&resourceVersionMatch=Exact")
    assert names(body) == ["a"]
    assert "later" not in body["items"][0]["metadata"].get("labels", {})
    assert body["metadata"]["resourceVersion"] == rv


async def test_lists_of_all_namespaces(api: Api, ns: str) -> None:
    """KS-60"""
    await api.ok("POST", f"/api/v1/namespaces/{ns}/pods", pod("a"))
    body = await api.ok("GET", "/api/v1/pods")
    assert body["kind"] == "PodList"
    assert ns in {item["metadata"]["namespace"] for item in body["items"]}


@pytest.mark.kubesim_only("compaction needs access to etcd")
async def test_expired_continue(api: Api, ns: str) -> None:
    """KS-61"""
    path = await three(api, ns)
    first = await api.ok("GET", f"{path}?limit=1")
    await api.ok("POST", path, config_map("d"))
    await api.ok("POST", "/kubesim/watches", {"action": "compact"})
    body = await api.fails(410, "Expired", "GET", f"{path}?limit=5&continue={first['metadata']['continue']}")
    assert body["message"].startswith("The provided continue parameter is too old")
    rest = await api.ok("GET", f"{path}?limit=5&continue={body['metadata']['continue']}")
    assert names(rest) == ["b", "c", "d"]
