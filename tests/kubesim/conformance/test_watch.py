"""Watches."""

from __future__ import annotations

import pytest
from kubesim.conformance.harness import MERGE, TABLE, Api
from kubesim.conformance.objects import config_map, pod


async def test_changes_after_a_version(api: Api, ns: str) -> None:
    """KS-70"""
    path = f"/api/v1/namespaces/{ns}/pods"
    rv = (await api.ok("GET", path))["metadata"]["resourceVersion"]
    await api.ok("POST", path, pod("a"))
    async with api.watch(path, resourceVersion=rv) as watch:
        added = await watch.next()
        assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "a")
        await api.ok("PATCH", f"{path}/a", {"metadata": {"labels": {"x": "y"}}}, media=MERGE)
        changed = await watch.next()
        assert (changed["type"], changed["object"]["metadata"]["labels"]) == ("MODIFIED", {"x": "y"})
        last = changed["object"]["metadata"]["resourceVersion"]
        await api.ok("DELETE", f"{path}/a")
        marked = await watch.next()
        assert (marked["type"], marked["object"]["metadata"]["deletionGracePeriodSeconds"]) == ("MODIFIED", 0)
        gone = await watch.next()
        assert gone["type"] == "DELETED"
        assert int(gone["object"]["metadata"]["resourceVersion"]) > int(last)


async def test_without_a_version_the_present_comes_first(api: Api, ns: str) -> None:
    """KS-71"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod("a"))
    for query in ({}, {"resourceVersion": "0"}):
        async with api.watch(path, **query) as watch:
            event = await watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")


async def test_timeout_and_bookmark(api: Api, ns: str) -> None:
    """KS-72"""
    path = f"/api/v1/namespaces/{ns}/pods"
    rv = (await api.ok("GET", path))["metadata"]["resourceVersion"]
    async with api.watch(path, resourceVersion=rv, timeoutSeconds=4, allowWatchBookmarks="true", labelSelector="x=y") as watch:
        await api.ok("POST", path, pod("a", labels={"x": "z"}))  # There is no bookmark where nothing has changed.
        events = []
        while (event := await watch.next()) is not None:
            events.append(event)
    assert [event["type"] for event in events][-1] == "BOOKMARK"
    mark = events[-1]["object"]
    assert mark["kind"] == "Pod"
    assert int(mark["metadata"]["resourceVersion"]) > int(rv)


async def test_entering_and_leaving_a_selection(api: Api, ns: str) -> None:
    """KS-73"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod("a"))
    rv = (await api.ok("GET", path))["metadata"]["resourceVersion"]
    async with api.watch(path, resourceVersion=rv, labelSelector="x=y") as watch:
        await api.ok("PATCH", f"{path}/a", {"metadata": {"labels": {"x": "y"}}}, media=MERGE)
        assert (await watch.next())["type"] == "ADDED"
        left = await api.ok("PATCH", f"{path}/a", {"metadata": {"labels": {"x": "z"}}}, media=MERGE)
        gone = await watch.next()
        assert gone["type"] == "DELETED"
        assert gone["object"]["metadata"]["labels"] == {"x": "y"}
        assert gone["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_field_selectors_and_single_objects(api: Api, ns: str) -> None:
    """KS-74"""
    path = f"/api/v1/namespaces/{ns}/pods"
    rv = (await api.ok("GET", path))["metadata"]["resourceVersion"]
    async with api.watch(path, resourceVersion=rv, fieldSelector="metadata.name=b") as watch:
        await api.ok("POST", path, pod("a"))
        await api.ok("POST", path, pod("b"))
        assert (await watch.next())["object"]["metadata"]["name"] == "b"


@pytest.mark.kubesim_only("nobody outside can make a server forget")
async def test_forgotten_versions(api: Api, ns: str) -> None:
    """KS-75"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod("a"))
    if api.target.kind == "kubesim":
        await api.ok("POST", "/kubesim/watches", {"action": "compact"})
    async with api.watch("/api/v1/pods", resourceVersion=1) as watch:
        assert watch.status in (200, 410)
        event = await watch.next()
    status = event["object"] if watch.status == 200 else event
    if watch.status == 200:
        assert event["type"] == "ERROR"
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


async def test_streaming_lists(api: Api, ns: str) -> None:
    """KS-76"""
    path = f"/api/v1/namespaces/{ns}/pods"
    for name in ("a", "b"):
        await api.ok("POST", path, pod(name))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with api.watch(path, **query) as watch:
        events = [await watch.next() for _ in range(3)]
        assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
        assert events[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await api.ok("POST", path, pod("c"))
        assert (await watch.next())["object"]["metadata"]["name"] == "c"


async def test_streaming_lists_need_a_match(api: Api, ns: str) -> None:
    """KS-77"""
    body = await api.fails(
        422, "Invalid", "GET", f"/api/v1/namespaces/{ns}/pods?watch=true&sendInitialEvents=true"
    )
    assert "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan" in body["message"]


async def test_tables(api: Api, ns: str) -> None:
    """KS-78"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a", k="v"))
    async with api.watch(path, accept=TABLE, fieldSelector="metadata.name=a") as watch:
        event = await watch.next()
    table = event["object"]
    assert table["kind"] == "Table"
    assert table["rows"][0]["cells"][:2] == ["a", 1]
    assert table["rows"][0]["object"]["metadata"]["name"] == "a"


async def test_watches_of_other_namespaces_stay_apart(api: Api, ns: str) -> None:
    """KS-79"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    rv = (await api.ok("GET", path))["metadata"]["resourceVersion"]
    async with api.watch(path, resourceVersion=rv) as watch:
        other = "/api/v1/namespaces/default/configmaps"
        await api.ok("POST", other, config_map(f"{ns}-other"))
        await api.ok("DELETE", f"{other}/{ns}-other")
        await api.ok("POST", path, config_map("mine"))
        await watch.until("ADDED", "mine")


@pytest.mark.parametrize("query", ["resourceVersion=abc"])
async def test_malformed_versions(api: Api, ns: str, query: str) -> None:
    """KS-80"""
    answer = await api.call("GET", f"/api/v1/namespaces/{ns}/pods?watch=true&{query}")
    assert answer.status >= 400
