"""A console on a running log, and the command that starts one."""

import asyncio
import json
import signal
import subprocess
import urllib.request

import aiohttp
import pytest
from cli.conftest import RESTOW, export
from console.browser import browser, needs_chromium
from console.conftest import Client
from console.logs import shown
from msgspec.structs import replace
from replay.handmade import LOG_ID, Handmade, migration, pod, shape

from restow.console.frames import frame
from restow.console.service import Console
from restow.console.view import view
from restow.contracts import events as e
from restow.contracts.codec import decode
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION
from restow.eventlog.jetstream import connect, open_snapshots
from restow.eventlog.snapshots import Snapshot
from restow.eventlog.testing import running_server, unique_cluster
from restow.replay.restore import restore
from restow.replay.source import ListSource, Until, open_broker
from restow.replay.state_at import state_at


@pytest.fixture(scope="module")
def broker():
    with running_server(sync=False) as server:
        yield server


async def test_what_is_written_while_it_runs_is_shown_and_told(looking, broker):
    source, cluster = migration().source(), unique_cluster()
    await asyncio.to_thread(restore, Until(source, 9), [broker.url], cluster)
    opened = await asyncio.to_thread(open_broker, [broker.url], cluster)
    try:
        async with looking(opened) as client, client.session.get(client.url + "/api/v1/live") as stream:
            await client.until(9)
            log = await connect([broker.url], cluster)
            try:
                for batch in source.batches(10):
                    for record in batch:
                        await log.append(record.family, record.body, record.envelope, expected_last=last_of(source, record))
            finally:
                await log.close()
            async with asyncio.timeout(20):
                while (said := await told(stream))["last"] < source.last:
                    assert said["error"] == ""
            assert (said["live"], said["done"], said["tail"]) == (True, False, source.last)
            index = client.console.follower.index
            for at in (9, 12, source.last):
                assert shown(index, frame(index, at)) == view(state_at(source, seq=at))
            assert (await client.json("/api/v1/why", what="p1-1"))["verdict"][0].startswith("landed since")
            assert [one["seq"] for one in await client.json("/api/v1/happened", limit="1")] == [source.last]
    finally:
        await asyncio.to_thread(opened.close)


@pytest.mark.parametrize("kept", [True, False], ids=["snapshot", "none"])
async def test_a_running_log_that_has_let_its_beginning_go_is_shown_from_its_oldest_snapshot_on(looking, broker, kept):
    source, cluster = migration().source(), unique_cluster()
    await asyncio.to_thread(restore, source, [broker.url], cluster)
    log = await connect([broker.url], cluster)
    try:
        stored = await open_snapshots(log)
        for seq in (7, 9) if kept else ():
            await stored.put(Snapshot(log.log_id, seq, FOLD_VERSION, snapshot.dump(state_at(source, seq=seq))))
        await log.truncate(7)
    finally:
        await log.close()
    opened = await asyncio.to_thread(open_broker, [broker.url], cluster)
    try:
        async with looking(opened) as client:
            if not kept:
                async with asyncio.timeout(20):
                    while not (said := await client.json("/api/v1/log"))["error"]:
                        await asyncio.sleep(0.02)
                assert "begins at sequence 8, and no snapshot continues it: name the archive" in said["error"]
                return
            await client.until(source.last)
            index = client.console.follower.index
            assert index.first == 7
            for at in (7, 8, source.last):
                assert shown(index, frame(index, at)) == view(state_at(source, seq=at))
            status, _, body = await client.get("/api/v1/why", what="p1-1")
            assert status == 400
            assert "--archive" in json.loads(body)["error"]
    finally:
        await asyncio.to_thread(opened.close)


async def test_on_demand_nothing_is_read_before_somebody_asks():
    console = Console(migration().source(), on_demand=True)
    await console.start()
    try:
        async with aiohttp.ClientSession() as session, session.get(console.address + "/") as page:
            assert page.status == 200
            assert console.follower.index.last == 0
            client = Client(console, session)
            await client.until(console.follower.source.last)
    finally:
        await console.stop()


PODS, COMMITS, EACH, RATE = 2_000, 500, 100, 100
"""Pods; commits, events of each, and commits a second: 10 000 events a second."""


def storm():
    """Pods on a hundred nodes, and then for five seconds each of them becomes ready, or not ready, two or three times a second. Sequences up to which it is quiet, and the log."""
    log = Handmade()
    log.facts(*(e.NodeObserved(f"n{i:03}", f"uid-n{i}", {"cpu": 64_000, "memory": 1 << 38, "pods": 110}) for i in range(100)), kind="nodes")
    log.facts(shape(), *(replace(pod(f"p{i}"), node=f"n{i % 100:03}", phase="Running", ready=True) for i in range(PODS)))
    quiet = log.seq
    for k in range(COMMITS):
        ready = k * EACH // PODS % 2 == 1
        log.facts(*(e.PodChanged(f"uid-p{(k * EACH + i) % PODS}", f"n{(k * EACH + i) % PODS % 100:03}", "Running", ready) for i in range(EACH)))
    return quiet, log


@needs_chromium
async def test_ten_thousand_events_a_second_are_shown_as_they_come_and_the_page_still_answers(broker):
    quiet, log = storm()
    cluster = unique_cluster()
    await asyncio.to_thread(restore, ListSource(log.records[:quiet], log_id=LOG_ID), [broker.url], cluster)
    opened = await asyncio.to_thread(open_broker, [broker.url], cluster)
    console = Console(opened)
    await console.start()
    try:
        async with browser() as page, asyncio.timeout(120):
            complaints = []
            page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            await page.goto(console.address)
            await page.wait_for_selector(".now b:not(:text('–'))")
            seen, writing = [], asyncio.create_task(append(broker, cluster, log.records[quiet:]))
            while not writing.done():
                seen.append(int((await page.inner_text(".now .seq")).removeprefix("sequence ")))
                await asyncio.sleep(0.1)
            await writing
            while await page.inner_text(".now .seq") != f"sequence {log.seq}":
                await asyncio.sleep(0.05)
            assert len(set(seen)) > 5, "it follows while they come"
            assert seen == sorted(seen)
            assert console.follower.index.events == sum(len(decision.events) for record in log.records for decision in decode(record.body))
            assert complaints == []
    finally:
        await console.stop()
        await asyncio.to_thread(opened.close)


async def append(broker, cluster, records):
    log = await connect([broker.url], cluster)
    try:
        began, last = asyncio.get_running_loop().time(), records[0].seq - 1
        for i, record in enumerate(records):
            await asyncio.sleep(max(0.0, began + i / RATE - asyncio.get_running_loop().time()))
            last = await log.append(record.family, record.body, record.envelope, expected_last=last)
    finally:
        await log.close()


def last_of(source, record):
    return max((one.seq for batch in source.batches(1, record.seq - 1) for one in batch if one.family == record.family), default=0)


async def told(stream):
    while not (line := await stream.content.readline()).startswith(b"data: "):
        assert line, "the stream has ended"
    return json.loads(line.removeprefix(b"data: "))


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("live", [False, True], ids=["file", "live"])
def test_the_command_says_where_it_is_and_ends_when_it_is_told_to(broker, tmp_path, stop, live):
    if live:
        cluster = unique_cluster()
        restore(ListSource(migration().records, log_id=LOG_ID), [broker.url], cluster)
        arguments = ["--server", broker.url, "--cluster", cluster]
    else:
        arguments = [export(tmp_path / "log.jsonl.zst", migration())]
    process = subprocess.Popen([RESTOW, "console", "--port", "0", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        address, _, rest = process.stdout.readline().partition("  ")
        assert "Ctrl-C ends it" in rest
        if live:
            assert "--access FILE lets people approve plans" in process.stdout.readline()
        with urllib.request.urlopen(f"{address}/api/v1/log", timeout=30) as answer:
            assert json.load(answer)["live"] is live
        process.send_signal(stop)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")
    finally:
        process.kill()
        process.wait(10)


def test_a_port_that_is_taken_is_said(restow, tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = restow("console", export(tmp_path / "log.jsonl", migration()), "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 2
    assert "name another one with --port" in result.said


def test_a_log_without_its_beginning_is_refused_with_what_to_do(restow, tmp_path):
    from restow.replay import exported

    log, path = migration(), tmp_path / "rest.jsonl"
    exported.write(path, log.records[4:], first=5, last=len(log.records), log_id=LOG_ID, cluster="test")
    result = restow("console", str(path))
    assert result.exit_code == 2
    assert "--archive" in result.said
