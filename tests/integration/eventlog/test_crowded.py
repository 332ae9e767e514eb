"""Whoever may only read makes as many consumers as the broker allows: others read on, and abandoned ones do not last."""

import asyncio
import json
import os

import pytest

from restow.eventlog.jetstream import connect, open_snapshots
from restow.eventlog.jetstream import stream as stream_module
from restow.eventlog.jetstream.connect import ApiError
from restow.eventlog.jetstream.replicas import set_replicas
from restow.eventlog.jetstream.stream import TOO_MANY
from restow.eventlog.port import Truncated
from restow.eventlog.snapshots import Snapshot
from restow.eventlog.testing import envelope

from .helpers import BODY, end, follow, persist, take, until
from .test_permissions import CLUSTER, guarded_server

MOST = 500
"""As deploy/nats/permissions.conf says."""


@pytest.fixture
def guarded():
    with guarded_server(sync=False) as server:
        yield server


@pytest.fixture
def as_user(guarded, opened):
    return lambda user, **more: opened(guarded.url, CLUSTER, user=user, password=f"p{user}", inbox_prefix=f"_INBOX_{user}", create=user not in ("cli", "console"), **more)


async def crowd(log, stream, filtered="", durable=False, most=1_000_000):
    """As many consumers as it gets, and `most` at most."""
    made = 0
    while made < most:
        name = f"{stream}-{made}".replace("_", "-")
        config = {"name": name, "ack_policy": "none"} | ({"durable_name": name} if durable else {}) | ({"filter_subject": filtered} if filtered else {})
        try:
            await log.broker.api(f"CONSUMER.CREATE.{stream}.{name}" + f".{filtered}" * bool(filtered), {"stream_name": stream, "config": config})
        except ApiError as error:
            if error.err_code != TOO_MANY:
                raise
            break
        made += 1
    return made


@pytest.mark.parametrize("durable", [False, True])
async def test_a_reader_beside_too_many_consumers_reads_one_by_one(as_user, durable, caplog):
    log = await as_user("scheduler_session")
    for i in range(20):
        await persist(log, f"before-{i}")
    before, seen_before = follow(log, 1)
    await until(lambda: len(seen_before) == 20)
    assert await crowd(await as_user("cli"), f"restow-{CLUSTER}", durable=durable) == MOST - 1
    # Beside one that has its consumer already.
    late = await as_user("descheduler")
    task, seen = follow(late, 1)
    await until(lambda: len(seen) == 20)

    def both_have(seq):
        return lambda: seen[-1].seq == seen_before[-1].seq == seq

    for i in range(5):
        seq = await persist(log, f"meanwhile-{i}")
        await until(both_have(seq), 5)
    assert [record.seq for record in seen] == list(range(1, 26))
    assert "has as many consumers as it may have" in caplog.text
    assert late.crowded()
    assert not log.crowded()
    # Once there is room.
    await late.broker.api(f"CONSUMER.DELETE.restow-{CLUSTER}.restow-{CLUSTER}-0")
    await until(lambda: not late.crowded(), 20)
    seq = await persist(log, "after")
    await until(both_have(seq), 5)
    assert [record.seq for record in seen] == list(range(1, 27))
    await end(task)
    await end(before)


async def test_a_record_that_the_broker_has_lost_is_not_the_end_for_who_reads_one_by_one(guarded, as_user, caplog):
    """Large ones, so that the broker keeps them in several files, of which one is damaged."""
    log = await as_user("scheduler_session")
    for i in range(12):
        await log.append("session", json.dumps({"decisions": [], "large": "x" * 1_500_000}).encode(), envelope(f"r{i}"), expected_last=await log.tail())
    await log.close()
    await asyncio.to_thread(guarded.stop)
    damage_second_block(guarded)
    await guarded.start_async()
    beside = await take(await as_user("scheduler_session"), 1, 12)
    there = [record.seq for record in beside]
    assert len(there) < 12
    await crowd(await as_user("cli"), f"restow-{CLUSTER}")
    late = await as_user("descheduler")
    task, seen = follow(late, 1)
    await until(lambda: seen and seen[-1].seq == 12, 20)
    assert [(r.seq, r.family, r.envelope, r.body, r.time) for r in seen] == [(r.seq, r.family, r.envelope, r.body, r.time) for r in beside]
    assert "lost by the broker" in caplog.text
    await end(task)
    # What was truncated is said to be truncated.
    await (await as_user("garbage_collector")).truncate(11)
    with pytest.raises(Truncated):
        await take(late, 1, 12)


def damage_second_block(server):
    files = sorted(server.folder.glob("**/streams/restow-*/msgs/*.blk"))
    assert len(files) > 2
    data = bytearray(files[1].read_bytes())
    data[len(data) // 2] ^= 1
    files[1].write_bytes(data)
    for index in files[1].parent.glob("*.db"):
        index.unlink()


async def test_snapshots_are_read_beside_too_many_consumers(as_user):
    log = await as_user("garbage_collector")
    await log.append("gc", BODY, envelope(), expected_last=0)
    snapshot = Snapshot(log_id=log.log_id, seq=1, fold_version=1, body=os.urandom(1_500_000))
    await (await open_snapshots(log)).put(snapshot)
    assert await crowd(await as_user("console"), f"OBJ_restow-{CLUSTER}", f"$O.restow-{CLUSTER}.C.x") == MOST
    reader = await as_user("reservation_cache")
    assert await asyncio.wait_for((await open_snapshots(reader, create=False)).latest(), 20) == snapshot


async def test_what_nobody_listens_to_does_not_last(as_user, monkeypatch):
    """Also where its maker says so, or that it is for ever. A reader has a consumer again then. (A few: to make as many as there may be takes longer than they last, on a busy machine.)"""
    monkeypatch.setattr(stream_module, "ABANDONED", 5.0)
    log = await as_user("garbage_collector")
    await open_snapshots(log)
    reader = await as_user("cli")
    with pytest.raises(ApiError, match="inactive threshold"):
        await reader.broker.api(f"CONSUMER.CREATE.restow-{CLUSTER}.c", {"stream_name": f"restow-{CLUSTER}", "config": {"name": "c", "inactive_threshold": 10**16}})
    assert await crowd(reader, f"restow-{CLUSTER}", durable=True, most=20) == 20
    assert await crowd(reader, f"OBJ_restow-{CLUSTER}", f"$O.restow-{CLUSTER}.C.x", most=20) == 20

    async def consumers():
        return sum([(await log.broker.api(f"STREAM.INFO.{name}-{CLUSTER}"))["state"]["consumer_count"] for name in ("restow", "OBJ_restow")])

    async with asyncio.timeout(30):
        while await consumers():
            await asyncio.sleep(0.2)


async def test_a_log_that_was_made_before_gets_the_limit_with_its_copies(as_user, monkeypatch):
    monkeypatch.setattr(stream_module, "ABANDONED", 0.0)
    log = await as_user("garbage_collector")
    await open_snapshots(log)
    monkeypatch.undo()
    await set_replicas(await as_user("operator"), 1, print, patience=10)
    for name in ("restow", "OBJ_restow"):
        config = (await log.broker.api(f"STREAM.INFO.{name}-{CLUSTER}"))["config"]
        assert config["consumer_limits"] == stream_module.consumer_limits()["consumer_limits"], json.dumps(config)
    assert (await connect(log.broker.client.connected_url.geturl(), CLUSTER, user="cli", password="pcli", inbox_prefix="_INBOX_cli", create=False)).log_id == log.log_id
