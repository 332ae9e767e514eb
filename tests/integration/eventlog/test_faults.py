"""Reading goes on without loss or repeat, whatever happens to the broker or the wire."""

import asyncio
import gc
import shutil
import time

import pytest

from restow.eventlog.jetstream import reader as reader_module
from restow.eventlog.jetstream.connect import REQUEST_TIMEOUT, NoAnswer
from restow.eventlog.jetstream.reader import Feed
from restow.eventlog.port import LogMismatch, OtherHistory, Truncated, Unknown
from restow.eventlog.server import NatsServer
from restow.eventlog.testing import envelope

from .helpers import BODY, end, follow, persist, take, until


async def write(log, count, last=0):
    for _ in range(count):
        last = await log.append("session", BODY, envelope(), expected_last=last)
    return last


async def test_a_killed_and_restarted_broker_loses_and_repeats_nothing(own_server, opened, cluster):
    log, other = await opened(own_server.url, cluster), await opened(own_server.url, cluster)
    reader, seen = follow(other, 1)

    async def writer():
        return [await persist(log, f"commit-{number}") for number in range(200)]

    writing = asyncio.create_task(writer())
    for crash in (own_server.kill, own_server.stop):
        count = len(seen)
        await until(lambda count=count: len(seen) > count + 20)
        await asyncio.to_thread(crash)
        await until(lambda: not other.connected)
        await own_server.start_async()
    async with asyncio.timeout(60):
        sequences = await writing
    await until(lambda: len(seen) >= 200)
    assert sequences == list(range(1, 201))
    assert [r.seq for r in seen] == sequences
    assert [r.envelope.id for r in seen] == [f"commit-{number}" for number in range(200)]
    await end(reader)


async def test_a_cut_wire_loses_and_repeats_nothing(wire, nats_server, opened, cluster):
    writer, through = await opened(nats_server.url, cluster), await opened(wire.url, cluster)
    reader, seen = follow(through, 1)
    last = 0
    for _ in range(5):
        last = await write(writer, 100, last)
        wire.cut()
    last = await write(writer, 10, last)
    await until(lambda: len(seen) >= last)
    assert [r.seq for r in seen] == list(range(1, last + 1))
    await end(reader)


@pytest.mark.parametrize("dropped", [1, 7, 50])
async def test_a_lost_delivery_is_noticed_and_read_again(nats_server, opened, cluster, monkeypatch, dropped):
    log = await opened(nats_server.url, cluster)
    await write(log, 60)
    original, count = Feed._on_message, 0

    def lossy(self, inbox, message):
        nonlocal count
        count += 1
        if count != dropped:
            original(self, inbox, message)

    monkeypatch.setattr(Feed, "_on_message", lossy)
    assert [r.seq for r in await take(log, 1, 60)] == list(range(1, 61))
    assert count > 60, "something was read again"


async def test_a_deleted_consumer_is_made_again(nats_server, opened, cluster):
    log = await opened(nats_server.url, cluster)
    last = await write(log, 5)
    reader, seen = follow(log, 1)
    await until(lambda: len(seen) == 5)
    for _ in range(3):
        names = (await log.broker.api(f"CONSUMER.NAMES.restow-{cluster}"))["consumers"]
        assert len(names) == 1
        await log.broker.api(f"CONSUMER.DELETE.restow-{cluster}.{names[0]}")
        last = await write(log, 5, last)
        await until(lambda last=last: len(seen) == last)
    assert [r.seq for r in seen] == list(range(1, last + 1))
    await end(reader)


@pytest.mark.parametrize("lost", ["question", "answer"])
async def test_a_consumer_that_a_broker_without_a_leader_did_not_make_is_asked_for_again_at_once(nats_server, opened, cluster, monkeypatch, lost):
    """Brokers that elect whoever makes consumers drop what is asked meanwhile. Made twice it is the same one."""
    monkeypatch.setattr(reader_module, "SLOW", 60.0)
    log = await opened(nats_server.url, cluster)
    await write(log, 3)
    publish, asked = log.broker.client.publish, []

    async def loses(subject, payload=b"", reply="", headers=None):
        if "CONSUMER.CREATE" in subject:
            asked.append(payload)
            if len(asked) == 1:
                if lost == "answer":
                    await publish(subject, payload, log.broker.inbox(), headers)
                return
        await publish(subject, payload, reply, headers)

    monkeypatch.setattr(log.broker.client, "publish", loses)
    started = asyncio.get_running_loop().time()
    assert [record.seq for record in await take(log, 1, 3)] == [1, 2, 3]
    assert asyncio.get_running_loop().time() - started < REQUEST_TIMEOUT
    assert len(asked) >= 2
    assert len({*asked}) == 1


async def test_while_nobody_makes_consumers_records_are_read_one_by_one_and_as_they_are(nats_server, opened, cluster, monkeypatch):
    """Brokers elect who makes consumers by themselves: the log may have its leader, and take commits, for seconds before."""
    log, other = await opened(nats_server.url, cluster), await opened(nats_server.url, cluster)
    publish, elects = log.broker.client.publish, True

    async def loses(subject, payload=b"", reply="", headers=None):
        if not (elects and "CONSUMER.CREATE" in subject):
            await publish(subject, payload, reply, headers)

    monkeypatch.setattr(log.broker.client, "publish", loses)
    last = await write(other, 3)
    reader, seen = follow(log, 1)
    await until(lambda: len(seen) == 3, 2)
    last = await write(other, 2, last)
    await other.broker.client.publish(f"restow.{cluster}.session", b"no commit", headers={"odd": "a: b", "ce-id": "x"})
    await until(lambda: len(seen) == 6, 2)
    # Longer than one question for a consumer waits.
    await asyncio.sleep(REQUEST_TIMEOUT)
    last = await write(other, 1, 6)
    await until(lambda: len(seen) == 7, 2)
    elects = False
    await write(other, 3, last)
    await until(lambda: len(seen) == 10, 5)
    await end(reader)
    assert seen == await take(other, 1, 10)
    assert [record.seq for record in seen] == list(range(1, 11))


async def test_read_one_by_one_another_history_is_noticed(nats_server, opened, cluster, monkeypatch):
    log = await opened(nats_server.url, cluster)
    await write(log, 3)
    reader, seen = follow(log, 1)
    await until(lambda: len(seen) == 3)
    publish = log.broker.client.publish

    async def loses(subject, payload=b"", reply="", headers=None):
        if "CONSUMER.CREATE" not in subject:
            await publish(subject, payload, reply, headers)

    async def another(seq, **how):
        there = await message(seq, **how)
        return there and there._replace(data=b"another")

    message = log._stream.message
    monkeypatch.setattr(log.broker.client, "publish", loses)
    monkeypatch.setattr(log._stream, "message", another)
    (name,) = (await log.broker.api(f"CONSUMER.NAMES.restow-{cluster}"))["consumers"]
    await log.broker.api(f"CONSUMER.DELETE.restow-{cluster}.{name}")
    with pytest.raises(OtherHistory, match="record 3 is another one"):
        await asyncio.wait_for(reader, 5)


async def test_a_silent_broker_is_noticed_by_its_missing_heartbeat(own_server, opened, cluster, monkeypatch):
    monkeypatch.setattr(reader_module, "HEARTBEAT", 0.2)
    monkeypatch.setattr(reader_module, "SILENCE", 1.2)
    log = await opened(own_server.url, cluster)
    last = await write(log, 3)
    made = []
    original = Feed._start

    async def counted(self, from_seq):
        made.append(from_seq)
        await original(self, from_seq)

    monkeypatch.setattr(Feed, "_start", counted)
    reader, seen = follow(log, 1)
    await until(lambda: len(seen) == 3)
    await asyncio.sleep(1.5)
    assert made == [1], "heartbeats keep a quiet reader alive"
    own_server.pause()
    await until(lambda: len(made) > 1)
    own_server.resume()
    await write(log, 2, last)
    await until(lambda: len(seen) == 5)
    assert [r.seq for r in seen] == [1, 2, 3, 4, 5]
    await end(reader)


async def test_pull_requests_that_expire_are_renewed(nats_server, opened, cluster, monkeypatch):
    monkeypatch.setattr(reader_module, "EXPIRES", 0.3)
    monkeypatch.setattr(reader_module, "HEARTBEAT", 0.1)
    monkeypatch.setattr(reader_module, "PULL_BATCH", 3)
    log = await opened(nats_server.url, cluster)
    reader, seen = follow(log, 1)
    last = 0
    for _ in range(4):
        last = await write(log, 4, last)
        await asyncio.sleep(0.25)
    await until(lambda: len(seen) == 16)
    assert [r.seq for r in seen] == list(range(1, 17))
    await end(reader)


async def test_large_commits_do_not_stall_a_reader(nats_server, opened, cluster):
    log = await opened(nats_server.url, cluster)
    last = 0
    for _ in range(12):
        last = await log.append("session", b"x" * log.max_body, envelope(), expected_last=last)
    assert [len(r.body) for r in await take(log, 1, 12)] == [log.max_body] * 12


async def test_a_slow_caller_bounds_the_buffer(nats_server, opened, cluster, monkeypatch):
    monkeypatch.setattr(reader_module, "PULL_BATCH", 10)
    monkeypatch.setattr(reader_module, "BUFFER_MESSAGES", 20)
    log = await opened(nats_server.url, cluster)
    last = await write(log, 300)
    sizes, seen = [], []
    async with asyncio.timeout(60):
        async for batch in log.read(1):
            sizes.append(len(batch))
            seen += [r.seq for r in batch]
            await asyncio.sleep(0.005)
            if seen[-1] == last:
                break
    assert seen == list(range(1, 301))
    assert max(sizes) <= 20 + 2 * 10


async def test_a_prefix_truncated_under_a_reader_is_reported(nats_server, opened, cluster, monkeypatch):
    monkeypatch.setattr(reader_module, "PULL_BATCH", 2)
    monkeypatch.setattr(reader_module, "BUFFER_MESSAGES", 2)
    log = await opened(nats_server.url, cluster)
    await write(log, 50)
    batches = log.read(1)
    await anext(batches)
    await asyncio.sleep(0.05)
    await log.truncate(40)

    async def read_on():
        while True:
            await anext(batches)

    with pytest.raises(Truncated) as truncated:
        await asyncio.wait_for(read_on(), 10)
    assert truncated.value.first_seq == 41


async def test_a_foreign_message_is_handed_on_as_it_came_and_reading_goes_on(nats_server, opened, cluster):
    """Whether a record is ours is for the fold to say; a reader that stopped at one could be stopped by anyone (RULES G-16)."""
    log = await opened(nats_server.url, cluster)
    foreign = {"Nats-Msg-Id": "1", "note": "not ours"}
    await log.broker.client.publish(f"restow.{cluster}.session", b"{}", headers=foreign)
    await log.broker.client.flush()
    await log.broker.client.publish(f"restow.{cluster}.gc", b"x" * (8 * 1024 * 1024))
    await log.broker.client.flush()
    last = await write(log, 1, last=1)
    async with asyncio.timeout(60):
        records = await take(log, 1, 3)
    assert [(r.seq, r.family, r.envelope.given) for r in records[:2]] == [(1, "session", foreign), (2, "gc", {})]
    assert records[0].body == b"{}"
    assert records[2].envelope.given is None
    assert last == 3


@pytest.mark.parametrize("headers", [b"\r\n\r\n", b"NATS/1.0", b"NATS/1.0 \xff\xff\xff\r\n\r\n", b"NATS/1.0 404 \xff\r\n\r\n"])
async def test_a_message_whose_headers_are_none_stops_no_reader(nats_server, opened, cluster, headers):
    """The broker looks into no headers and stores what anybody with one service's password sends; the client library gave up the connection, for ever."""
    log = await opened(nats_server.url, cluster)
    reader, writer = await asyncio.open_connection("127.0.0.1", nats_server.port)
    async with asyncio.timeout(60):
        await reader.readline()
        size = b"%d %d" % (len(headers), len(headers) + 2)
        writer.write(b'CONNECT {"headers":true,"verbose":false}\r\n')
        writer.write(b"HPUB restow." + cluster.encode() + b".cluster " + size + b"\r\n" + headers + b"hi\r\nPING\r\n")
        while b"PONG" not in await reader.readline():
            pass
        writer.close()
        last = await write(log, 1)
        records = await take(log, 1, last)
    assert [(r.family, r.body, r.envelope.given is None) for r in records] == [("cluster", b"hi", False), ("session", BODY, True)]


async def test_an_abandoned_reader_leaves_no_consumer(nats_server, opened, cluster):
    log = await opened(nats_server.url, cluster)
    await write(log, 3)
    async for _ in log.read(1):
        break
    async with asyncio.timeout(20):  # less than INACTIVE, after which the broker would end it by itself
        while (await log.broker.api(f"CONSUMER.NAMES.restow-{cluster}"))["consumers"]:
            await asyncio.sleep(0.01)


async def test_closing_leaves_no_consumer(nats_server, opened, cluster):
    log, other = await opened(nats_server.url, cluster), await opened(nats_server.url, cluster)
    reader, _ = follow(log, 1)
    await asyncio.sleep(0.1)
    assert (await other.broker.api(f"CONSUMER.NAMES.restow-{cluster}"))["consumers"]
    await log.close()
    await asyncio.gather(reader, return_exceptions=True)
    async with asyncio.timeout(20):  # less than INACTIVE
        while (await other.broker.api(f"CONSUMER.NAMES.restow-{cluster}"))["consumers"]:
            await asyncio.sleep(0.01)


async def test_a_giant_foreign_message_is_named(nats_server, opened, cluster, monkeypatch):
    monkeypatch.setattr(reader_module, "PULL_BYTES", 20_000)
    log = await opened(nats_server.url, cluster)
    last = await write(log, 3)
    await log.append("session", b"x" * 30_000, envelope(), expected_last=last)
    async with asyncio.timeout(60):
        with pytest.raises(LogMismatch, match="a message of over 20000 bytes"):
            await take(log, 1, 4)


async def test_commits_that_fill_a_request_by_their_bytes_all_come(nats_server, opened, cluster, monkeypatch):
    monkeypatch.setattr(reader_module, "PULL_BYTES", 20_000)
    log = await opened(nats_server.url, cluster)
    last = 0
    for size in (1, 15_000, 15_000, 1, 18_000, 7, 15_000, 15_000):
        last = await log.append("session", b"x" * size, envelope(), expected_last=last)
    assert [r.seq for r in await take(log, 1, last)] == list(range(1, last + 1))


async def test_a_caller_that_blocks_for_long_does_not_lose_its_consumer(nats_server, opened, cluster, monkeypatch):
    monkeypatch.setattr(reader_module, "HEARTBEAT", 0.2)
    monkeypatch.setattr(reader_module, "SILENCE", 1.0)
    log = await opened(nats_server.url, cluster)
    last = await write(log, 3)
    batches = log.read(1)
    while (await anext(batches))[-1].seq < last:
        pass
    name = (await log.broker.api(f"CONSUMER.NAMES.restow-{cluster}"))["consumers"]
    time.sleep(1.3)  # noqa: ASYNC251
    waiting = asyncio.create_task(anext(batches))
    await asyncio.sleep(0.05)
    await write(log, 1, last)
    assert [r.seq for r in await waiting] == [4]
    assert (await log.broker.api(f"CONSUMER.NAMES.restow-{cluster}"))["consumers"] == name
    await batches.aclose()


async def test_a_quiet_life_needs_one_consumer_and_few_requests(nats_server, opened, cluster, monkeypatch):
    monkeypatch.setattr(reader_module, "PULL_BATCH", 7)
    monkeypatch.setattr(reader_module, "EXPIRES", 0.2)
    monkeypatch.setattr(reader_module, "HEARTBEAT", 0.05)
    log = await opened(nats_server.url, cluster)
    reader, seen = follow(log, 1)
    last, waiting = 0, []
    for number in range(1500):
        last = await log.append("session", BODY, envelope(), expected_last=last)
        if number % 100 == 99:
            [consumer] = (await log.broker.api(f"CONSUMER.LIST.restow-{cluster}"))["consumers"]
            waiting.append((consumer["name"], consumer["num_waiting"]))
            await asyncio.sleep(0.03)
    await until(lambda: len(seen) == 1500)
    assert len({name for name, _ in waiting}) == 1, "it was never made again"
    assert all(1 <= count <= 8 for _, count in waiting)
    await end(reader)


@pytest.mark.parametrize("gone_on", [10, 30])
async def test_a_reader_does_not_go_on_in_another_history_that_a_restored_broker_has_written_meanwhile(own_server, opened, cluster, tmp_path, gone_on):
    """An old copy of the volume, of which others had gone on before this reader was back: its state would be of both histories, without a word."""
    log = await opened(own_server.url, cluster)
    last = await write(log, 20)
    await asyncio.to_thread(own_server.stop)
    shutil.copytree(own_server.folder, tmp_path / "old")
    await own_server.start_async()
    await until(lambda: log.connected)
    await write(log, 10, last)
    reader, seen = follow(log, 1)
    await until(lambda: len(seen) == 30)
    await asyncio.to_thread(own_server.stop)
    restored = NatsServer(tmp_path / "old")
    try:
        await restored.start_async()
        other = await opened(restored.url, cluster)
        await write(other, gone_on, last)
        await other.close()
        await asyncio.to_thread(restored.stop)
        restored.port = own_server.port
        await restored.start_async()
        with pytest.raises(LogMismatch, match="record 30 is another one"):
            await asyncio.wait_for(reader, 20)
        assert len(seen) == 30
        # Whose family nobody else has written to since: its sequence alone would let the commit in.
        with pytest.raises(LogMismatch, match="record 30 is another one"):
            await log.append("gc", BODY, envelope(), expected_last=0)
    finally:
        await asyncio.to_thread(restored.stop)


async def test_what_a_lost_broker_did_not_read_is_not_sent_to_a_restored_one(own_server, opened, cluster, tmp_path):
    """A broker that hangs takes nothing from the wire: a commit waits in the client behind a snapshot's chunks, and the client would send it to
    whoever answers next."""
    log = await opened(own_server.url, cluster)
    last = await write(log, 5)
    await log.close()
    await asyncio.to_thread(own_server.stop)
    shutil.copytree(own_server.folder, tmp_path / "old")
    await own_server.start_async()
    log = await opened(own_server.url, cluster)
    last = await write(log, 5, last)
    own_server.pause()
    chunks = [asyncio.create_task(log.broker.request(f"nobody.{n}", bytes(2**19))) for n in range(32)]
    await asyncio.sleep(0.3)
    late = asyncio.create_task(log.append("gc", BODY, envelope(), expected_last=0))
    await until(lambda: log.broker.client.pending_data_size > 0)
    await asyncio.to_thread(own_server.kill)
    await asyncio.gather(*chunks, return_exceptions=True)
    with pytest.raises(Unknown):
        await late
    restored = NatsServer(tmp_path / "old", port=own_server.port)
    try:
        await restored.start_async()
        await until(lambda: log.connected)
        await asyncio.sleep(0.3)
        assert await log.tail() == 5
    finally:
        await asyncio.to_thread(restored.stop)


@pytest.mark.parametrize("header", [b"ce-id:x", b"ce-id:  x ", "ce-id: \N{LATIN SMALL LETTER U WITH DIAERESIS}".encode("latin1"), b"ce-id:"])
async def test_however_a_strangers_client_writes_the_headers_of_the_newest_record_appends_go_on_after_a_reconnect(own_server, opened, cluster, header):
    log = await opened(own_server.url, cluster)
    last = await write(log, 1)
    _, stranger = await asyncio.open_connection("127.0.0.1", own_server.port)
    head = b"NATS/1.0\r\n" + header + b"\r\n\r\n"
    stranger.write(b'CONNECT {"verbose":false,"headers":true}\r\nHPUB restow.%s.cluster %d %d\r\n%s{}\r\n' % (cluster.encode(), len(head), len(head) + 2, head))
    reader, seen = follow(log, 1)
    await until(lambda: len(seen) == 2)
    stranger.close()
    await asyncio.to_thread(own_server.stop)
    await until(lambda: not log.connected)
    await own_server.start_async()
    await until(lambda: log.connected)
    assert await log.append("session", BODY, envelope(), expected_last=last) == 3
    await end(reader)


async def test_a_reader_whose_last_record_was_let_go_of_meanwhile_goes_on(wire, nats_server, opened, cluster):
    writer, through = await opened(nats_server.url, cluster), await opened(wire.url, cluster)
    await write(writer, 20)
    reader, seen = follow(through, 1)
    await until(lambda: len(seen) == 20)
    wire.cut()
    await writer.truncate(20)
    await write(writer, 5, 0)
    await until(lambda: len(seen) == 25)
    assert [r.seq for r in seen] == list(range(1, 26))
    await end(reader)


async def test_who_is_stopped_in_the_moment_in_which_the_broker_is_lost_leaves_no_error_behind(wire, nats_server, opened, cluster):
    """A service's log had one when both were told to end: `Future exception was never retrieved`."""
    log, said = await opened(wire.url, cluster), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    wire.deaf = True
    asking = asyncio.create_task(log.broker.api(f"STREAM.INFO.restow-{cluster}"))
    await until(lambda: bool(log.broker._pending))
    await asyncio.sleep(0.05)
    asking.cancel()
    log.broker._fail_all(NoAnswer("the connection to the broker was lost"))
    with pytest.raises(asyncio.CancelledError):
        await asking
    del asking
    gc.collect()
    await asyncio.sleep(0)
    assert said == []
