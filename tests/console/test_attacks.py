"""What an attack on the console has found: threads that met, pages that are gone, stories that take long, another run, a broker that is away."""

import asyncio
import threading
from contextlib import aclosing

import pytest
from console.browser import needs_chromium
from domain import build
from integration.runtime.chained import Writer
from replay.handmade import LOG_ID, START, Handmade, migration, node, placements, pod, proposed, shape

from restow.console import follow
from restow.console.answers import MOST_MARKS, _thinned
from restow.console.api import MOST_STREAMS
from restow.console.index import Mark
from restow.console.service import Console
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION
from restow.eventlog.jetstream import connect, open_snapshots
from restow.eventlog.snapshots import Snapshot
from restow.eventlog.testing import running_server, unique_cluster
from restow.replay.restore import restore
from restow.replay.source import ListSource, open_broker
from restow.replay.state_at import state_at
from restow.runtime.http_bounds import CONNECTIONS


async def test_health_is_told_while_a_commit_is_folded_and_touches_nothing_of_it(looking):
    """It flushed the times of commits into their array, in another thread than the one that appends to them: commits were lost, or the fold died."""
    async with looking(placements().source()) as client:
        follower = client.console.follower
        with follower.lock:
            async with asyncio.timeout(10):
                said = await client.json("/api/v1/log")
                by_time = asyncio.create_task(client.json("/api/v1/frame.json", time=str(START)))
                await asyncio.sleep(0.2)
            assert (said["from"], said["to"], said["last"]) == (START + 1_000, START + 7_000, 7)
            assert len(follower.index._commits._pending) == 7
            assert not by_time.done(), "it waits for whoever writes"
        assert (await by_time)["at"] == 1


async def test_pages_that_have_gone_follow_nothing(looking):
    async with looking(placements().source()) as client:
        for _ in range(MOST_STREAMS + 5):
            async with client.session.get(client.url + "/api/v1/live") as stream:
                while stream.status == 503:
                    await asyncio.sleep(0.1)
                    stream = await client.session.get(client.url + "/api/v1/live")
                assert (await stream.content.readline()) == b"event: log\n"
                stream.close()
        async with asyncio.timeout(5):
            while client.console.api._streams:
                await asyncio.sleep(0.05)


async def test_the_map_does_not_wait_for_stories_nor_are_any_told_to_nobody(looking):
    async with looking(migration().source()) as client:
        stories, go, told = client.console.api._stories, threading.Event(), []

        def why(what, at):
            told.append(what)
            go.wait(30)
            return {"verdict": []}

        stories.why = why
        asked = [asyncio.create_task(client.get("/api/v1/why", what=f"pod/shop/{i}")) for i in range(12)]
        async with asyncio.timeout(10):
            while not told:
                await asyncio.sleep(0.02)
            for at in (3, 5, 9):
                assert (await client.json("/api/v1/frame.json", at=str(at)))["at"] == at
            assert (await client.json("/api/v1/happened", at="3", limit="1"))[0]["seq"] == 3
        for one in asked[:-1]:
            one.cancel()
        await asyncio.gather(*asked[:-1], return_exceptions=True)
        await asyncio.sleep(0.3)
        go.set()
        assert (await asked[-1])[0] == 200
        assert len(told) == 2, "the first was being told already; nobody waits for those between"


async def test_too_many_stories_at_once_are_refused(looking):
    async with looking(migration().source()) as client:
        go = threading.Event()
        client.console.api._stories.why = lambda what, at: go.wait(30) and {}
        asked = [asyncio.create_task(client.get("/api/v1/why", what=f"pod/shop/{i}")) for i in range(40)]
        await asyncio.sleep(0.5)
        go.set()
        statuses = [status for status, _, _ in await asyncio.gather(*asked)]
        assert set(statuses) == {200, 503}


async def test_what_is_kept_of_one_run_is_not_taken_for_that_of_another(looking):
    """Slots are numbered as the log is read: from a snapshot on others than from its beginning."""
    tags = []
    for _ in range(2):
        async with looking(migration().source()) as client:
            _, headers, _ = await client.get("/api/v1/frame", at="5")
            tags.append((headers["ETag"], headers["Restow-Run"]))
            assert (await client.json("/api/v1/log"))["run"] == headers["Restow-Run"]
    assert tags[0][0] != tags[1][0]
    assert tags[0][1] != tags[1][1]


@pytest.fixture(scope="module")
def broker():
    with running_server(sync=False) as server:
        yield server


async def beginning_at(broker, log, seq):
    """A running log whose beginning up to `seq` is a snapshot."""
    source, cluster = log.source(), unique_cluster()
    await asyncio.to_thread(restore, source, [broker.url], cluster)
    opened = await connect([broker.url], cluster)
    try:
        stored = await open_snapshots(opened)
        await stored.put(Snapshot(opened.log_id, seq, FOLD_VERSION, snapshot.dump(state_at(source, seq=seq))))
        await opened.truncate(seq)
    finally:
        await opened.close()
    return await asyncio.to_thread(open_broker, [broker.url], cluster)


async def test_before_a_snapshot_there_was_not_nothing(looking, broker):
    opened = await beginning_at(broker, migration(), 9)
    try:
        async with looking(opened) as client:
            await client.until(15)
            for path in ("/api/v1/frame", "/api/v1/frame.json", "/api/v1/plans", "/api/v1/happened"):
                status, _, body = await client.get(path, at="5")
                assert status == 404, path
                assert b"begins at 9" in body
            (plan,) = await client.json("/api/v1/plans")
            assert (plan["plan"], plan["seq"], plan["time"], plan["steps"]) == ("p1", 9, START + 3_000, {"landed": 1})
    finally:
        await asyncio.to_thread(opened.close)


async def test_a_log_that_its_broker_has_damaged_is_shown_from_the_snapshot_by_which_services_go_on(looking, broker, monkeypatch):
    """A console that was started after a bit had flipped showed the cluster as it was before that, until the log let those records go: perhaps for weeks."""
    monkeypatch.setattr(follow, "SAVED_ASKED_EVERY", 0.0)
    cluster = unique_cluster()
    log = await connect([broker.url], cluster)
    writer = Writer(log)
    for number in range(8):
        await writer.write(build.node(f"n{number}"))
    await writer.fold()
    opened = await asyncio.to_thread(open_broker, [broker.url], cluster)
    read = opened.log.read

    async def lacking(from_seq):
        async with aclosing(read(from_seq)) as batches:
            async for batch in batches:
                if there := [record for record in batch if record.seq != 5]:
                    yield there

    monkeypatch.setattr(opened.log, "read", lacking)
    try:
        async with looking(opened) as client:
            await client.until(8)
            said = await client.json("/api/v1/log")
            assert (said["first"], said["broken"]) == (1, 5)
            assert len((await client.json("/api/v1/frame.json", at="8"))["nodes"]["slot"]) == 4
            await (await open_snapshots(log)).put(Snapshot(log.log_id, 8, FOLD_VERSION, snapshot.dump(writer.state)))
            await writer.write(build.node("n8"))
            await client.until(9)
            async with asyncio.timeout(10):
                while (now := await client.json("/api/v1/log"))["first"] != 8:
                    await asyncio.sleep(0.02)
            await client.until(9)
            assert (now["broken"], now["run"] != said["run"]) == (0, True), "a page loads anew"
            assert len((await client.json("/api/v1/frame.json", at="9"))["nodes"]["slot"]) == 9
    finally:
        await log.close()
        await asyncio.to_thread(opened.close)


@pytest.mark.parametrize("answer", ["", "approved", "rejected"])
async def test_a_plan_of_before_a_snapshot_has_its_answer(looking, broker, answer):
    log = proposed(answer) if answer else proposed()
    opened = await beginning_at(broker, log, 5 if answer else 4)
    try:
        async with looking(opened) as client:
            await client.until(log.seq)
            (plan,) = await client.json("/api/v1/plans")
            assert plan["mode"] == "propose"
            said = plan["answer"]
            assert (said and (said["said"], said["by"], said["time"])) == ((answer, "ada", START + 5_000) if answer else None)
    finally:
        await asyncio.to_thread(opened.close)


async def test_a_log_that_lets_its_beginning_go_while_it_is_looked_at_is_told_as_far_as_it_is_there(looking, broker):
    source, cluster = migration().source(), unique_cluster()
    await asyncio.to_thread(restore, source, [broker.url], cluster)
    opened = await asyncio.to_thread(open_broker, [broker.url], cluster)
    try:
        async with looking(opened) as client:
            await client.until(15)
            log = await connect([broker.url], cluster)
            try:
                stored = await open_snapshots(log)
                await stored.put(Snapshot(log.log_id, 9, FOLD_VERSION, snapshot.dump(state_at(source, seq=9))))
                await log.truncate(9)
            finally:
                await log.close()
            assert [one["seq"] for one in await client.json("/api/v1/happened", at="12", limit="30")] == [12, 11, 10]
            for path, query in (("/api/v1/why", {"what": "p1-1"}), ("/api/v1/report", {})):
                status, _, body = await client.get(path, **query)
                assert status == 400
                assert b"--archive" in body
            assert (await client.json("/api/v1/frame.json", at="5"))["at"] == 5, "what was read before is known"
    finally:
        await asyncio.to_thread(opened.close)


async def test_a_broker_that_is_away_is_said_and_that_it_is_there_again_although_nothing_is_written(looking):
    with running_server(sync=False) as server:
        source, cluster = placements().source(), unique_cluster()
        await asyncio.to_thread(restore, source, [server.url], cluster)
        opened = await asyncio.to_thread(open_broker, [server.url], cluster)
        try:
            async with looking(opened) as client:
                await client.until(source.last)
                await asyncio.to_thread(server.kill)
                async with asyncio.timeout(20):
                    while "does not answer" not in (await client.json("/api/v1/log"))["error"]:
                        await asyncio.sleep(0.05)
                assert (await client.json("/api/v1/frame.json"))["at"] == source.last
                await asyncio.to_thread(server.start)
                async with asyncio.timeout(20):
                    while (await client.json("/api/v1/log"))["error"]:
                        await asyncio.sleep(0.05)
        finally:
            await asyncio.to_thread(opened.close)


def test_of_too_many_marks_the_plans_are_kept():
    marks = [Mark(i, i, "plan" if i % 1000 == 7 else "preempted", "") for i in range(30_000)]
    kept = _thinned(marks, MOST_MARKS)
    assert [mark for mark in kept if mark.what == "plan"] == [mark for mark in marks if mark.what == "plan"]
    assert MOST_MARKS // 2 < len(kept) <= MOST_MARKS
    assert kept == sorted(kept, key=lambda mark: mark.seq)
    assert len(_thinned([Mark(i, i, "plan", "") for i in range(5_000)], MOST_MARKS)) <= MOST_MARKS


# -- the page ---------------------------------------------------------------------------------------------------------


def starting():
    """One pod waits; another has a node, and its containers do not run yet."""
    from restow.contracts import events as e

    log = Handmade()
    log.facts(shape(), node("a"), pod("has-a-node"), pod("waits"), e.PodChanged("uid-has-a-node", "a", "Pending", False))
    return log


@needs_chromium
async def test_a_pod_that_has_a_node_does_not_wait_for_one(opened):
    async with opened(starting()) as it:
        await it.go()
        assert await it.text(".overview h3 b") == "1"
        assert await it.page.locator(".items button").all_inner_texts() == ["shop/waits"]


@needs_chromium
async def test_what_is_beside_the_map_is_told_although_the_log_grows_all_the_while(opened):
    """Each new event put the question off, or broke it off."""
    async with opened(migration()) as it:
        await it.go("#view=plans")
        await it.settled()
        # A stream that tells of another end all the time, as one of a busy log does.
        said = await it.client.json("/api/v1/log")
        console, ends = it.client.console, iter(range(10**9))
        console.api.said = lambda: said | {"live": True, "last": 3 + next(ends) % 12, "events": next(ends)}
        story = console.api._stories.why

        def slow(what, at):
            import time

            time.sleep(0.6)
            return story(what, at)

        console.api._stories.why = slow
        await it.page.get_by_role("button", name="p1", exact=True).click()
        await it.page.wait_for_selector(".moves li", timeout=5_000)
        await it.page.locator(".moves button").first.click()
        await it.page.wait_for_selector(".verdict", timeout=8_000)


@needs_chromium
async def test_an_empty_log_says_so(opened):
    async with opened(Handmade()) as it:
        for view in ("map", "plans"):
            await it.page.goto("about:blank")
            await it.page.goto(f"{it.url}/#view={view}")
            await it.page.wait_for_selector("text=The log is empty")
            if view == "map":
                # The canvas is opaque: what nobody has drawn is black.
                pixel = "document.querySelector('canvas.boxes').getContext('2d').getImageData(9, 9, 1, 1).data.slice(0, 3).join(', ')"
                await it.until(f"getComputedStyle(document.body).backgroundColor === `rgb(${{{pixel}}})`", 10)
        assert "ago" not in await it.text(".health")


@needs_chromium
async def test_a_page_of_a_run_that_has_ended_is_read_anew_where_it_was(opened):
    async with opened(migration()) as it:
        await it.go("#at=5&show=pod/shop/web-old")
        await it.page.wait_for_selector(".verdict")
        await it.page.evaluate("window.before = true")
        port = int(it.url.rpartition(":")[2])
        await it.client.console.stop()
        it.client.console = Console(ListSource(migration().records, log_id=LOG_ID))
        await it.client.console.start(port)
        try:
            await it.until("window.before === undefined && !!document.querySelector('.verdict')")
            assert "sequence 5" in await it.text(".now")
        finally:
            await it.client.console.stop()
        it.complaints = [said for said in it.complaints if "net::ERR" not in said]


@needs_chromium
async def test_a_page_that_nobody_sees_takes_no_connection(opened):
    async with opened(migration()) as it:
        await it.go()
        api = it.client.console.api
        see = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); }"
        for hidden, streams in ((True, 0), (False, 1)):
            await it.page.evaluate(see, hidden)
            async with asyncio.timeout(10):
                while api._streams != streams:
                    await asyncio.sleep(0.05)


@needs_chromium
async def test_a_page_that_was_refused_the_stream_asks_again(opened):
    async with opened(migration()) as it:
        api = it.client.console.api
        api._streams = MOST_STREAMS
        await it.page.goto(it.url)
        await it.page.wait_for_selector("text=it is asked again")
        api._streams = 0
        await it.page.wait_for_selector(".now b:not(:text('–'))")
        it.complaints = [said for said in it.complaints if "503" not in said]


@needs_chromium
async def test_a_link_to_before_the_log_leads_to_its_beginning(opened):
    async with opened(migration()) as it:
        await it.go("#at=0")
        await it.at(1)


async def test_connections_that_ask_nothing_keep_nobody_away(looking):
    async with looking(placements().source()) as client:
        host, _, port = client.url.removeprefix("http://").rpartition(":")
        stream = await client.session.get(client.url + "/api/v1/live")
        assert (await stream.content.readline()) == b"event: log\n"
        opened = []
        for _ in range(2 * CONNECTIONS):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET / HTTP/1.1\r\nHost: ")
            opened.append((reader, writer))
        assert (await client.json("/api/v1/log"))["last"] == 7
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await opened[0][0].readexactly(1)
        assert not stream.content.at_eof()
        stream.close()
        for _, writer in opened:
            writer.close()
