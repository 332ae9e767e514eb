"""The stream survives whatever the API does to it, and the facts end up right."""

import asyncio
from contextlib import aclosing

import pytest

from restow.kube import decode as d
from restow.kube import reflector as reflector_module
from restow.kube.client import ClientConfig, connect
from restow.kube.reflector import Bookmark, Config, Delete, Reflector, Replace, Restart, Upsert
from restow.kube.watch import watch
from restow.kubesim.cluster import Options
from restow.kubesim.testing import kubesim

FAST = Config(page_size=2, min_backoff=1, max_backoff=20)


class Mirror:
    """Follows a collection and keeps what it was told, as the watcher's fold would."""

    def __init__(self, client, known: str = "", collection=d.NODES):
        self.reflector = Reflector(collection, known, FAST)
        self._client = client
        self._news = asyncio.Event()
        self.objects: set[str] = set()
        self.restarts: list[str] = []
        self.changes: list = []

    async def run(self) -> None:
        async with aclosing(watch(self._client, self.reflector)) as stream:
            async for changes in stream:
                for change in changes:
                    self._take(change)
                self._news.set()

    def _take(self, change) -> None:
        self.changes.append(change)
        match change:
            case Upsert(one):
                self.objects.add(self.reflector.collection.key(one))
            case Delete(key):
                self.objects.discard(key)
            case Replace(keys):
                self.objects &= keys
            case Restart(reason):
                self.restarts.append(reason)

    async def until(self, condition) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def until_objects(self, *names: str) -> None:
        await self.until(lambda: self.reflector.synced and self.objects == set(names))


@pytest.fixture
async def follow(api):
    """Starts mirrors; they are stopped at the end, and must not have died before."""
    tasks = []

    def start(**more) -> Mirror:
        mirror = Mirror(api.client, **more)
        tasks.append(asyncio.create_task(mirror.run()))
        return mirror

    yield start
    for task in tasks:
        assert not task.done(), task.exception()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def watched(api) -> None:
    """The server has an open watch: what a test breaks must be there."""
    async with asyncio.timeout(60):
        while not api.server.cluster.hub.watchers():
            await asyncio.sleep(0.001)


async def delete(api, name: str) -> None:
    await api.client.delete(f"/api/v1/nodes/{name}")


async def test_a_list_in_pages_and_then_changes(api, follow):
    for name in "abcde":
        await api.node(name)
    mirror = follow()
    await mirror.until_objects(*"abcde")
    await api.node("f")
    await delete(api, "a")
    await mirror.until_objects(*"bcdef")
    assert mirror.restarts == []


async def test_a_cut_watch_misses_nothing(api, follow):
    await api.node("a")
    mirror = follow()
    await mirror.until_objects("a")
    await watched(api)
    await delete(api, "a")
    api.faults.watches("cut")
    await api.node("b")
    await mirror.until_objects("b")
    assert all(not isinstance(change, Replace) for change in mirror.changes[2:])


async def test_duplicated_events_are_told_once(api, follow):
    await api.node("a")
    mirror = follow()
    await mirror.until_objects("a")
    await api.node("b")
    await mirror.until_objects("a", "b")
    api.faults.watches("duplicate", last=1)
    await api.node("c")
    await mirror.until_objects("a", "b", "c")
    told = [change.object.metadata.name for change in mirror.changes if isinstance(change, Upsert)]
    assert told == ["a", "b", "c"]


async def test_a_410_in_the_stream_lists_again(api, follow):
    await api.node("a")
    mirror = follow()
    await mirror.until_objects("a")
    await watched(api)
    api.faults.watches("gone")
    await delete(api, "a")
    await api.node("b")
    await mirror.until_objects("b")
    assert mirror.restarts == ["Expired"]


async def test_a_410_to_the_watch_request_lists_again(api, follow):
    await api.node("a")
    api.faults.add("status", verb="watch", resource="nodes", code=410)
    mirror = follow()
    await mirror.until(lambda: mirror.restarts == ["Expired"])
    await api.node("b")
    await mirror.until_objects("a", "b")


async def test_forgotten_history_lists_again_and_finds_what_vanished(api, follow):
    await api.node("a")
    mirror = follow()
    await mirror.until_objects("a")
    await watched(api)
    api.faults.add("cut", verb="watch", resource="nodes", count=3)
    api.faults.watches("cut")
    await mirror.until(lambda: mirror.restarts)
    await delete(api, "a")
    await api.node("b")
    api.faults.watches("compact")
    await mirror.until_objects("b")
    # Whether the watch came back before the history was forgotten is a matter of time; that nothing is missed is not.


@pytest.mark.parametrize("code", [429, 500, 503, 504])
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_transient_answers_are_survived(api, follow, code, verb):
    await api.node("a")
    api.faults.add("status", verb=verb, resource="nodes", code=code, count=2)
    mirror = follow()
    await mirror.until(lambda: len(mirror.restarts) == 2)
    await api.node("b")
    await mirror.until_objects("a", "b")


async def test_a_continue_token_that_expires_between_pages(api, follow):
    for name in "abc":
        await api.node(name)
    api.faults.add("status", verb="list", resource="nodes", code=410, after=1)
    mirror = follow()
    await mirror.until_objects(*"abc")
    assert mirror.restarts == ["ContinueExpired"]


async def test_a_lagging_server_cannot_move_the_stream_back(api, follow):
    await api.node("a")
    await api.node("b")
    first = follow()
    await first.until_objects("a", "b")
    known = first.reflector.version
    await delete(api, "b")
    await first.until_objects("a")
    api.faults.add("lag", verb="list", resource="nodes", versions=10, count=3)
    second = follow(known=first.reflector.version)
    await second.until_objects("a")
    versions = [int(change.version) for change in second.changes if isinstance(change, Replace)]
    assert min(versions) >= int(first.reflector.version) > int(known)


async def test_bookmarks_move_the_version_on_and_keep_an_idle_watch_alive():
    options = Options(bookmark_interval=0.02)
    async with kubesim(options=options) as server, await connect(ClientConfig(url=server.url)) as client:
        mirror = Mirror(client)
        task = asyncio.create_task(mirror.run())
        await mirror.until(lambda: mirror.reflector.synced)
        await client.create("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
        await mirror.until(lambda: any(isinstance(change, Bookmark) for change in mirror.changes))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_server_that_restarts_is_found_again():
    async with kubesim() as server:
        port = server.port
        client = await connect(ClientConfig(url=server.url, timeout=1.0))
        mirror = Mirror(client)
        task = asyncio.create_task(mirror.run())
        await mirror.until(lambda: mirror.reflector.synced)
    await mirror.until(lambda: "Disconnected" in mirror.restarts)
    async with kubesim(port=port) as server:
        for i in range(5):
            await client.create("/api/v1/nodes", {"metadata": {"name": f"n{i}"}})
        await mirror.until(lambda: len(mirror.objects) == 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()


async def test_a_collection_without_its_crd_is_waited_for(api, follow):
    mirror = follow(collection=d.VOLCANO_RESERVATIONS)
    await mirror.until(lambda: "Status404" in mirror.restarts)
    await api.crds()
    await mirror.until(lambda: mirror.reflector.synced)


async def test_a_page_of_large_objects_is_read_with_fewer_at_a_time(api, monkeypatch):
    """Whoever may create objects of 1.5 MB could have ended a watcher for its memory, at each start."""
    monkeypatch.setattr(reflector_module, "MOST", 20_000)
    names = [f"node-{i:02}" for i in range(40)]
    for name in names:
        await api.client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": {"x": "y" * 2_000}}})
    mirror = Mirror(api.client)
    mirror.reflector = Reflector(d.NODES, "", Config(page_size=64, min_backoff=1, max_backoff=20))
    running = asyncio.create_task(mirror.run())
    try:
        await mirror.until(lambda: mirror.reflector.synced and mirror.objects >= set(names))
    finally:
        running.cancel()
    assert mirror.restarts == ["PageTooLarge"]
