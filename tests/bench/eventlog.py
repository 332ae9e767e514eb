"""The event log's numbers beside a baseline in the same run: `python tests/bench/eventlog.py`.

Baselines: nats-py's own publish and `fetch`, one event a message. Bodies: a hundred placements a commit (about 13 KiB).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import uvloop

from restow.contracts.envelope import Envelope
from restow.eventlog.archive import export, open_archive
from restow.eventlog.jetstream import JetStreamLog, connect
from restow.eventlog.port import Record
from restow.eventlog.server import NatsServer

COMMITS, EVENTS, SINGLES = 10_000, 100, 3_000


class Event(msgspec.Struct, tag_field="type", tag="session.pod_placed"):
    pod: str
    node: str
    shape: str
    cpu: int
    memory: int


class Decision(msgspec.Struct):
    command: dict[str, str]
    events: list[Event]


class Commit(msgspec.Struct):
    decisions: list[Decision]


_decode = msgspec.json.Decoder(Commit).decode


class Row(msgspec.Struct):
    """One line of the table: what, ours, the baseline's ("" where there is none)."""

    what: str
    ours: str
    baseline: str = ""


def envelope(seq: int) -> Envelope:
    return Envelope(
        id=f"{seq:026d}", source="/restow/bench/session", time="2026-01-01T00:00:00.000Z", read=seq - 1, logic="session@1"
    )


def body(seq: int, events: int) -> bytes:
    placed = [
        Event(f"team-{i % 7}/job-{seq}-{i:05d}", f"node-{(seq * 31 + i) % 5000:05d}", "8f14e45fceea167a", i * 100, i << 20)
        for i in range(events)
    ]
    return msgspec.json.encode(Commit([Decision({"type": "schedule"}, placed)]))


async def records(count: int, events: int) -> AsyncIterator[Record]:
    for seq in range(1, count + 1):
        yield Record(seq, "session", envelope(seq), body(seq, events), 0)


def percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"p50 {ordered[len(ordered) // 2] * 1e3:.2f} ms, p99 {ordered[len(ordered) * 99 // 100] * 1e3:.2f} ms"


async def appends(url: str) -> list[Row]:
    """One commit in flight, fsynced, and how soon a reader has it."""
    log, reader = await connect(url, "single"), await connect(url, "single")
    sent: dict[int, float] = {}
    delivered: list[float] = []

    async def follow() -> None:
        async for batch in reader.read(1):
            now = time.perf_counter()
            delivered.extend(now - sent[record.seq] for record in batch)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.2)
    last, started = 0, time.perf_counter()
    for seq in range(1, SINGLES + 1):
        sent[seq] = time.perf_counter()
        last = await log.append("session", body(seq, 1), envelope(seq), expected_last=last)
    ours = SINGLES / (time.perf_counter() - started)
    while len(delivered) < SINGLES:
        await asyncio.sleep(0.01)
    following.cancel()
    js, started = log.broker.client.jetstream(), time.perf_counter()
    for seq in range(SINGLES + 1, 2 * SINGLES + 1):
        headers = envelope(seq).headers() | {"Nats-Expected-Last-Subject-Sequence": str(last)}
        last = (await js.publish("restow.single.session", body(seq, 1), headers=headers)).seq
    theirs = SINGLES / (time.perf_counter() - started)
    await log.close()
    await reader.close()
    return [
        Row("append, one in flight, fsync", f"{ours:,.0f} commits/s", f"{theirs:,.0f} (js.publish)"),
        Row("append sent → delivered to a reader", percentiles(delivered)),
    ]


async def replay(log: JetStreamLog, commits: int) -> float:
    """Events a second, decoded, from the first sequence to the tail."""
    events, started = 0, time.perf_counter()
    async for batch in log.read(1):
        for record in batch:
            events += len(_decode(record.body).decisions[0].events)
        if batch[-1].seq >= commits:
            break
    return events / (time.perf_counter() - started)


async def fetch(log: JetStreamLog, commits: int) -> float:
    """The usual way: events a second by nats-py's fetch, one event a message."""
    subscription = await log.broker.client.jetstream().pull_subscribe(
        f"restow.{log.cluster}.*", stream=f"restow-{log.cluster}"
    )
    events, started = 0, time.perf_counter()
    while events < commits:
        for message in await subscription.fetch(500, timeout=10):
            events += len(_decode(message.data).decisions[0].events)
            await message.ack()
    return events / (time.perf_counter() - started)


async def bulk(url: str, folder: Path) -> list[Row]:
    """Windowed appends, then replay of a million events from the stream and from an archive."""
    log, single = await connect(url, "hundred"), await connect(url, "one")
    started = time.perf_counter()
    await log.bulk_append(records(COMMITS, EVENTS))
    appended = COMMITS / (time.perf_counter() - started)
    await single.bulk_append(records(COMMITS, 1))
    stream, baseline = await replay(log, COMMITS), await fetch(single, COMMITS)
    started = time.perf_counter()
    await export(log, folder)
    exported = COMMITS * EVENTS / (time.perf_counter() - started)
    events, started = 0, time.perf_counter()
    for record in open_archive(folder, log_id=log.log_id).records():
        events += len(_decode(record.body).decisions[0].events)
    archived = events / (time.perf_counter() - started)
    await log.close()
    await single.close()
    return [
        Row("append, windowed, fsync", f"{appended:,.0f} commits/s, {appended * EVENTS:,.0f} events/s"),
        Row("replay from JetStream", f"{stream:,.0f} events/s", f"{baseline:,.0f} (fetch, 1 event a message)"),
        Row("replay from an archive", f"{archived:,.0f} events/s", f"{baseline:,.0f} (fetch, 1 event a message)"),
        Row("export to an archive", f"{exported:,.0f} events/s"),
    ]


async def measure() -> list[Row]:
    """All rows; takes about 15 s."""
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder) / "nats") as server:
        return await appends(server.url) + await bulk(server.url, Path(folder) / "archive")


if __name__ == "__main__":
    for row in uvloop.run(measure()):
        print(f"{row.what:38} {row.ours:42} {row.baseline}")
