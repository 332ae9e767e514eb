"""Scripted faults: each does exactly what the script says, as often as it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from kubesim.conformance.harness import Api, Target, Watch
from kubesim.conformance.objects import binding, config_map, pod

from restow.kubesim import reads
from restow.kubesim.cluster import Options
from restow.kubesim.server import Server
from restow.kubesim.testing import kubesim

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with kubesim(options=Options(watch_queue=50)) as running:
        yield running


@pytest.fixture
async def api(server: Server) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        yield Api(Target("kubesim", server.url), session)


async def drain(watch: Watch) -> None:
    while await watch.next() is not None:
        pass


async def lines(watch: Watch) -> AsyncIterator[Any]:
    while (event := await watch.next()) is not None:
        yield event


async def script(api: Api, *rules: dict[str, Any]) -> None:
    await api.ok("PUT", "/kubesim/faults", {"rules": list(rules)})


async def test_statuses(api: Api) -> None:
    """KF-1"""
    rule = {
        "action": "status",
        "verb": "create",
        "resource": "configmaps",
        "code": 429,
        "retry_after": 3,
        "after": 1,
        "count": 2,
    }
    await script(api, rule)
    await api.ok("POST", MAPS, config_map("a"))
    for _ in range(2):
        answer = await api.call("POST", MAPS, config_map("b"))
        assert (answer.status, answer.headers["Retry-After"]) == (429, "3")
        assert answer.body["reason"] == "TooManyRequests"
    await api.ok("POST", MAPS, config_map("b"))
    shown = (await api.ok("GET", "/kubesim/faults"))["rules"][0]
    assert (shown["seen"], shown["hits"]) == (3, 2)


@pytest.mark.parametrize("code", [409, 410, 500, 503])
async def test_other_statuses(api: Api, code: int) -> None:
    """KF-1"""
    await script(api, {"action": "status", "code": code})
    await api.fails(code, None, "GET", MAPS)
    await api.ok("DELETE", "/kubesim/faults")
    await api.ok("GET", MAPS)


async def test_lost_responses(api: Api) -> None:
    """KF-2"""
    await api.ok("POST", PODS, pod("a"))
    await script(api, {"action": "drop", "resource": "pods/binding", "name": "^a$"})
    with pytest.raises(aiohttp.ClientError):
        await api.call("POST", f"{PODS}/a/binding", binding("a", "n1"))
    assert (await api.ok("GET", f"{PODS}/a"))["spec"]["nodeName"] == "n1"


async def test_cut_requests(api: Api) -> None:
    """KF-3"""
    await script(api, {"action": "cut", "verb": "create"})
    with pytest.raises(aiohttp.ClientError):
        await api.call("POST", MAPS, config_map("a"))
    await api.fails(404, "NotFound", "GET", f"{MAPS}/a")


async def test_delays(api: Api) -> None:
    """KF-4"""
    await script(api, {"action": "delay", "seconds": 0.1})
    before = time.monotonic()
    await api.ok("GET", MAPS)
    assert time.monotonic() - before >= 0.1


async def test_stale_lists(api: Api) -> None:
    """KF-5"""
    await api.ok("POST", MAPS, config_map("a"))
    await api.ok("POST", MAPS, config_map("b"))
    await script(api, {"action": "lag", "resource": "configmaps", "versions": 1})
    assert len((await api.ok("GET", MAPS))["items"]) == 2, "a list without a version comes from the store itself"
    cached = f"{MAPS}?resourceVersion=0"
    assert [item["metadata"]["name"] for item in (await api.ok("GET", cached))["items"]] == ["a"]
    assert len((await api.ok("GET", cached))["items"]) == 2


async def test_cut_watches(api: Api) -> None:
    """KF-6"""
    async with api.watch(MAPS) as watch:
        assert await api.ok("POST", "/kubesim/watches", {"action": "cut", "resource": "configmaps"}) == {
            "watches": 1
        }
        with pytest.raises(aiohttp.ClientError):
            await watch.next()


async def test_duplicated_events(api: Api) -> None:
    """KF-7"""
    async with api.watch(MAPS) as watch:
        await api.ok("POST", MAPS, config_map("a"))
        first = await watch.next()
        await api.ok("POST", "/kubesim/watches", {"action": "duplicate", "last": 1})
        assert await watch.next() == first


async def test_watches_that_are_gone(api: Api) -> None:
    """KF-8"""
    async with api.watch(MAPS) as watch:
        await api.ok("POST", "/kubesim/watches", {"action": "gone"})
        event = await watch.next()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert await watch.next() is None


async def test_stalled_watches(api: Api) -> None:
    """KF-9"""
    async with api.watch(MAPS) as watch, api.watch(MAPS) as other:
        await api.ok("POST", "/kubesim/watches", {"action": "stall"})
        await api.ok("POST", MAPS, config_map("a"))
        waiting = asyncio.ensure_future(watch.next())
        await api.ok("GET", MAPS)
        assert not waiting.done()
        await api.ok("POST", "/kubesim/watches", {"action": "resume"})
        assert (await waiting)["type"] == "ADDED"
        assert (await other.next())["type"] == "ADDED"


@pytest.mark.parametrize("then", ["", "gone", "resume"])
async def test_a_stalled_watch_asks_nothing_while_it_may_send_nothing(api: Api, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    """KF-9. Its end and its bookmarks wait like everything else: asking again and again whether they may go would take the whole
    process, and in virtual time for ever."""
    wait, asked = reads._wait, []

    async def counted(watcher: Any, seconds: float) -> None:
        asked.append(seconds)
        assert len(asked) < 20
        await wait(watcher, seconds)

    monkeypatch.setattr(reads, "_wait", counted)
    async with api.watch(MAPS, timeoutSeconds="1", allowWatchBookmarks="true") as watch:
        await api.ok("POST", "/kubesim/watches", {"action": "stall"})
        await api.ok("POST", MAPS, config_map("a"))
        if then:
            await api.ok("POST", "/kubesim/watches", {"action": then})
        seen = [event["type"] async for event in lines(watch)]
    assert seen == (["ADDED", "BOOKMARK"] if then == "resume" else [])


async def test_compaction(api: Api) -> None:
    """KF-10"""
    rv = (await api.ok("GET", MAPS))["metadata"]["resourceVersion"]
    await api.ok("POST", MAPS, config_map("a"))
    await api.ok("POST", "/kubesim/watches", {"action": "compact"})
    async with api.watch(MAPS, resourceVersion=rv) as watch:
        assert (await watch.next())["object"]["code"] == 410


async def test_slow_watchers_are_cut_off(api: Api) -> None:
    """KF-11"""
    async with api.watch(MAPS) as slow:
        await api.ok("POST", "/kubesim/watches", {"action": "stall"})
        async with api.watch(MAPS) as fast:
            for index in range(60):
                await api.ok("POST", MAPS, config_map(f"m{index}"))
                assert (await fast.next())["type"] == "ADDED"
        with pytest.raises(aiohttp.ClientError):
            await drain(slow)


@pytest.mark.parametrize(
    "rule",
    [{"action": "explode"}, {"action": "status", "nope": 1}, {"name": "x"}, {"action": "cut", "name": "("}],
)
async def test_bad_rules_are_refused(api: Api, rule: dict[str, Any]) -> None:
    await api.fails(400, "BadRequest", "POST", "/kubesim/faults", rule)


async def test_a_client_that_dies_in_the_middle_of_a_watch_leaves_no_error(
    api: Api, server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = asyncio.Event()

    async def died(*_: object) -> None:
        flushed.set()
        raise ConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(reads, "_flush", died)
    async with api.watch(MAPS):
        await api.ok("POST", MAPS, config_map("a"))
        await flushed.wait()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
