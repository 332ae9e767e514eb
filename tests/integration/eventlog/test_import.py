"""Putting a log back into a broker: what cannot be stored is said before anything is, and what is stored is always what the source begins with."""

import asyncio
import socket
import sys
import threading
from urllib.parse import urlsplit

import pytest

from restow.contracts.envelope import Envelope
from restow.eventlog.jetstream import connect
from restow.eventlog.port import BrokerRefused, LogError, LogMismatch, NoLog, Record, TooLarge, Unavailable
from restow.eventlog.server import NatsServer
from restow.eventlog.testing import envelope, unique_cluster
from restow.replay.exported import open_packed, write
from restow.replay.restore import restore
from restow.replay.source import open_path

from .helpers import BODY, take

LOG_ID = "a" * 32
LARGE = b'{"decisions":[],"x":"' + b"x" * 1_400_000 + b'"}'


def logged(*commits):
    """Records of (family, body)."""
    return [Record(seq, family, envelope(f"id{seq}", family=family), body, 0) for seq, (family, body) in enumerate(commits, 1)]


def exported(path, records):
    write(path, records, first=records[0].seq, last=records[-1].seq, log_id=LOG_ID, cluster="c")
    return open_path(path)


def said(records):
    return [(record.seq, record.family, record.envelope, record.body) for record in records]


async def imported(url, cluster, source):
    return await asyncio.to_thread(restore, source, [url], cluster)


async def test_a_record_larger_than_any_commit_is_not_put_down_to_the_broker(tmp_path, nats_server):
    source = exported(tmp_path / "a.jsonl.zst", logged(("session", b'{"decisions":[],"x":"' + b"x" * (4 << 20) + b'"}')))
    with pytest.raises(LogMismatch, match=r"record 1 of .* has 4194327 bytes, and no commit of a log has more than 4194304"):
        await imported(nats_server.url, unique_cluster(), source)


async def test_an_import_that_the_brokers_limit_forbids_stores_nothing_and_the_same_command_does_it_later(tmp_path):
    records = logged(("cluster", BODY), ("session", BODY), ("cluster", LARGE), ("session", BODY), ("reservation", BODY), ("session", BODY))
    source, cluster = exported(tmp_path / "a.jsonl.zst", records), unique_cluster()
    small = NatsServer(tmp_path / "js", max_payload="1MB", sync=False).start()
    try:
        with pytest.raises(BrokerRefused, match=r"record 3 of .*a.jsonl.zst is too large for this broker: .*Give the broker a larger max_payload \(deploy/nats/nats.conf: 8MB\), and run the same command again"):
            await imported(small.url, cluster, source)
        with pytest.raises(NoLog):
            await connect(small.url, cluster, create=False)
    finally:
        small.stop()
    large = NatsServer(tmp_path / "js", sync=False).start()
    try:
        assert await imported(large.url, cluster, source) == 6
        log = await connect(large.url, cluster)
        assert said(await take(log, 1, 6)) == said(records)
        await log.close()
    finally:
        large.stop()


async def test_nobody_goes_on_with_half_a_log(nats_server, cluster, tmp_path):
    """A service that waited for the log, or was started too early, led on it, and the rest of the history could never be put back."""
    records = logged(*[("session", BODY)] * 6)
    whole, cluster = exported(tmp_path / "a.jsonl.zst", records), unique_cluster()
    log = await connect(nats_server.url, cluster, log_id=LOG_ID, import_to=6)
    try:
        last = 0
        for record in records[:4]:
            last = await log.append(record.family, record.body, record.envelope, expected_last=last)
        for create in (True, False):
            with pytest.raises(Unavailable, match=r"is being put back and is not whole: it ends at 4, and is to end at 6\. .*run the same one again, or that of another export of this log \(to begin a new one instead: docs/install.md, "):
                await connect(nats_server.url, cluster, create=create, wait=0.5)
        waits = asyncio.ensure_future(connect(nats_server.url, cluster, create=False, wait=30))
        await asyncio.sleep(0.5)
        assert not waits.done()
        assert await imported(nats_server.url, cluster, whole) == 2
        service = await waits
        assert said(await take(service, 1, 6)) == said(records)
        # The broker keeps the mark: who goes on, and lets the beginning go, is not asked again.
        await service.append("session", BODY, envelope("id7"), expected_last=6)
        await service.truncate(6)
        await service.close()
        await (await connect(nats_server.url, cluster, create=False, wait=5)).close()
    finally:
        await log.close()


@pytest.mark.parametrize("end", [5, 8])
async def test_an_import_that_was_interrupted_may_be_ended_by_a_shorter_or_longer_export(nats_server, tmp_path, end):
    records = logged(*[("session", BODY)] * end)
    source, cluster = exported(tmp_path / "a.jsonl.zst", records), unique_cluster()
    log = await connect(nats_server.url, cluster, log_id=LOG_ID, import_to=6)
    await log.append("session", BODY, records[0].envelope, expected_last=0)
    await log.close()
    assert await imported(nats_server.url, cluster, source) == end - 1
    again = await connect(nats_server.url, cluster, create=False, wait=5)
    assert (said(await take(again, 1, end)), again.import_to) == (said(records), end)
    await again.close()


class Slow:
    """A source whose file is being checked until `go`, and that breaks off then if `broken`."""

    def __init__(self, source, *, broken=False):
        self.source, self.broken, self.reads, self.go = source, broken, threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self.source, name)

    def batches(self, *first):
        self.reads.set()
        assert self.go.wait(30)
        if self.broken:
            raise LogMismatch("the file breaks off")
        return self.source.batches(*first)


@pytest.mark.parametrize("end", [5, 6, 8])
@pytest.mark.parametrize("first_fails", [False, True])
async def test_an_import_that_fails_leaves_the_log_to_another_one_that_still_checks_its_file(nats_server, tmp_path, first_fails, end):
    cluster = unique_cluster()
    one, two = (exported(tmp_path / f"{n}.jsonl.zst", logged(*[("session", BODY)] * n)) for n in (6, end))
    good, bad = (Slow(two), Slow(one, broken=True)) if first_fails else (Slow(one), Slow(two, broken=True))
    under_way = {}
    for source in (bad, good) if first_fails else (good, bad):
        under_way[source] = asyncio.ensure_future(imported(nats_server.url, cluster, source))
        assert await asyncio.to_thread(source.reads.wait, 30)
    bad.go.set()
    with pytest.raises(LogMismatch, match="breaks off"):
        await under_way[bad]
    with pytest.raises(NoLog):
        await connect(nats_server.url, cluster, create=False)
    good.go.set()
    assert await under_way[good] == good.last
    log = await connect(nats_server.url, cluster, create=False)
    assert await log.tail() == good.last
    await log.close()


async def test_of_an_import_that_is_killed_while_it_checks_its_file_nothing_is_left(nats_server, tmp_path):
    """Services waited for ever, also after the same import had said that its file is broken: one that was killed seemed to be under way still."""
    cluster = unique_cluster()
    text = (
        "import sys, time\nfrom restow.replay import restore, source\n"
        "class Slow:\n    def __getattr__(self, name): return getattr(opened, name)\n    def batches(self, *first):\n        print('reads', flush=True)\n        time.sleep(60)\n"
        "opened = source.open_path(sys.argv[1])\nrestore.restore(Slow(), [sys.argv[2]], sys.argv[3])"
    )
    exported(path := tmp_path / "a.jsonl.zst", logged(("session", BODY)))
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", text, path, nats_server.url, cluster, stdout=asyncio.subprocess.PIPE)
    assert await asyncio.wait_for(child.stdout.readline(), 60) == b"reads\n"
    child.kill()
    await child.wait()
    with pytest.raises(NoLog):
        await connect(nats_server.url, cluster, create=False)


async def test_an_import_into_a_log_that_is_in_use_shuts_nobody_out(nats_server, tmp_path):
    records = logged(*[("session", BODY)] * 6)
    source, cluster = exported(tmp_path / "a.jsonl.zst", records), unique_cluster()
    log = await connect(nats_server.url, cluster, log_id=LOG_ID)
    await log.append("session", b'{"decisions":[],"x":1}', envelope("own"), expected_last=0)
    with pytest.raises(LogMismatch, match="somebody has appended to it"):
        await imported(nats_server.url, cluster, source)
    await (await connect(nats_server.url, cluster, create=False, wait=1)).close()
    await log.close()


async def test_what_comes_behind_a_record_that_was_not_stored_is_never_stored_in_its_place(nats_server, opened, cluster):
    """Others are under way when the broker refuses one; of whichever family, they wait for their own place."""
    log = await opened(nats_server.url, cluster)
    records = logged(("cluster", BODY), ("session", BODY), ("cluster", BODY), ("session", BODY), ("reservation", BODY), ("migration", BODY))
    once = log._appender._once

    async def refusing(family, body, envelope, *rest):
        if envelope.id == "id3":
            raise TooLarge(family, len(body), 10)
        return await once(family, body, envelope, *rest)

    log._appender._once = refusing
    with pytest.raises(TooLarge):
        await log.bulk_append(each(records))
    log._appender._once = once
    await asyncio.sleep(0.2)
    assert said(await take(log, 1, await log.tail())) == said(records[:2])
    assert await log.bulk_append(each(records[2:])) == 4
    assert said(await take(log, 1, 6)) == said(records)


async def each(records):
    for record in records:
        yield record


def publish(url, subject, headers, body):
    """As any client may that has the password: the broker keeps whatever stands in the headers."""
    address = urlsplit(url)
    block = b"NATS/1.0\r\n" + headers + b"\r\n"
    with socket.create_connection((address.hostname, address.port)) as wire:
        wire.recv(4096)
        wire.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nHPUB %s %d %d\r\n' % (subject.encode(), len(block), len(block) + len(body)))
        wire.sendall(block + body + b"\r\nPING\r\n")
        assert b"PONG" in wire.recv(4096)


OURS = "".join(f"{name}: {value}\r\n" for name, value in envelope("stranger").headers().items()).encode()


@pytest.mark.parametrize(("family", "headers"), [
    ("session", b"a\x01b: x\r\n"), ("session", b"a b: x\r\n"), ("session", b": x\r\n"), ("session", b"k\xc3\xa9: x\r\n"), ("session", b"X: a\x00b\r\n"),
    ("session", b"X: a\xffb\r\n"), ("session", b"Nats-Marker: x\r\n"), ("session", b"X: " + b"y" * 65_000 + b"\r\n"), ("Session", OURS), ("x" * 80, OURS), ("session", OURS),
])
async def test_a_strangers_record_hinders_no_import(nats_server, opened, cluster, tmp_path, family, headers):
    log, last = await opened(nats_server.url, cluster, log_id=LOG_ID), 0
    for seq in range(1, 4):
        last = await log.append("cluster", BODY, envelope(f"id{seq}"), expected_last=last)
    publish(nats_server.url, f"restow.{cluster}.{family}", headers, b"x")
    assert await log.append("cluster", BODY, envelope("id5"), expected_last=last) == 5
    records = await take(log, 1, 5)
    source, copy = exported(tmp_path / "a.jsonl.zst", records), unique_cluster()
    assert await imported(nats_server.url, copy, source) == 5
    again = await take(await opened(nats_server.url, copy), 1, 5)
    assert [(r.seq, r.family, r.body) for r in again] == [(r.seq, r.family, r.body) for r in records]
    assert [r.envelope for r in again if r.seq != 4] == [r.envelope for r in records if r.seq != 4]
    assert (again[3].envelope.given is None) == (records[3].envelope.given is None)


async def test_what_an_import_has_restored_can_be_exported_as_it_was(nats_server, opened, cluster, tmp_path):
    """A stranger's headers, too, without those in which the import told the broker where each record stands."""
    records = [*logged(("cluster", BODY)), Record(2, "session", Envelope.of({"note": "not ours", "X": "y"}), b"x", 0)]
    source = exported(tmp_path / "a.jsonl.zst", records)
    await imported(nats_server.url, cluster, source)
    again = await take(await opened(nats_server.url, cluster), 1, 2)
    assert said(again) == said(records)
    assert said(r for batch in open_packed(tmp_path / "a.jsonl.zst").batches(1) for r in batch) == said(again)


@pytest.mark.parametrize("family", ["a.b", "a b", "*", ">", ""])
async def test_a_family_that_no_log_can_have_is_refused_before_anything_is_stored(nats_server, opened, cluster, tmp_path, family):
    source = exported(tmp_path / "a.jsonl.zst", logged(("cluster", BODY), (family, BODY)))
    with pytest.raises(LogError, match=r"record 2 has the family .* which no subject of a log ends with"):
        await imported(nats_server.url, cluster, source)
    assert await (await opened(nats_server.url, cluster)).tail() == 0
