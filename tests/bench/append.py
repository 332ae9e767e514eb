"""Appends: one commit in flight, and a window of them, each on disk before it is acknowledged."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.eventlog.jetstream import connect
from restow.eventlog.port import Record
from restow.eventlog.server import NatsServer

from .table import Row, Size, median, percentile
from .world import START, envelope, record

TITLE = "append to JetStream, fsync before each acknowledgement"
BASELINE = "nats-py's js.publish, with the same bodies, headers and expectation"

SIZES = {Size.FULL: (2_000, 5_000), Size.QUICK: (500, 1_000), Size.SMOKE: (50, 50)}
PLACEMENTS = 100


def commit(seq: int, events: int) -> Record:
    placed = [e.PodPlaced(f"00000000-0000-4000-8000-{seq * events + i:012d}", f"node-{i:05d}") for i in range(events)]  # type: ignore[arg-type]
    return record(seq, "session", c.Schedule(START), placed)


async def measure(size: Size) -> list[Row]:
    singles, bulk = SIZES[size]
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder) / "nats") as server:
        ours, theirs, delivered = await _one_in_flight(server.url, singles)
        windowed = await _bulk(server.url, bulk)
    return [
        Row("one in flight", ours, "commits/s", baseline=theirs),
        Row("one in flight, 100 events a commit", windowed[0], "events/s"),
        Row("windowed (imports), 100 events each", windowed[1], "events/s"),
        Row("sent → delivered to a reader, p50", percentile(delivered, 50) * 1e3, "ms"),
        Row("sent → delivered to a reader, p99", percentile(delivered, 99) * 1e3, "ms"),
    ]


async def _one_in_flight(url: str, count: int) -> tuple[float, float, list[float]]:
    """Ours and the baseline in turns, so that both see the same disk; and how soon a reader has ours."""
    log, reader = await connect(url, "single"), await connect(url, "single")
    sent: dict[int, float] = {}
    delivered: list[float] = []

    async def follow() -> None:
        async with aclosing(reader.read(1)) as batches:  # type: ignore[type-var]
            async for batch in batches:
                now = time.perf_counter()
                delivered.extend(now - sent[record.seq] for record in batch if record.seq in sent)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.1)
    js, last, ours, theirs = log.broker.client.jetstream(), 0, [], []
    part = max(1, count // 5)
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(part):
            sent[last + 1] = time.perf_counter()
            one = commit(last + 1, 1)
            last = await log.append("session", one.body, one.envelope, expected_last=last)
        ours.append(part / (time.perf_counter() - started))
        started = time.perf_counter()
        for _ in range(part):
            one = commit(last + 1, 1)
            headers = one.envelope.headers() | {"Nats-Expected-Last-Subject-Sequence": str(last)}
            last = (await js.publish("restow.single.session", one.body, headers=headers)).seq
        theirs.append(part / (time.perf_counter() - started))
    while len(delivered) < 5 * part:
        await asyncio.sleep(0.01)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await log.close()
    await reader.close()
    return median(ours), median(theirs), delivered


async def _bulk(url: str, count: int) -> tuple[float, float]:
    """Events a second: a service's way (one commit in flight), then an import's (many)."""
    log = await connect(url, "hundred")
    commits = [commit(seq, PLACEMENTS) for seq in range(1, count + 1)]
    started, last = time.perf_counter(), 0
    for one in commits:
        last = await log.append("session", one.body, envelope(one.seq, "session"), expected_last=last)
    single = count * PLACEMENTS / (time.perf_counter() - started)
    await log.close()
    log = await connect(url, "window")

    async def records() -> AsyncIterator[Record]:
        for one in commits:
            yield one

    started = time.perf_counter()
    await log.bulk_append(records())
    windowed = count * PLACEMENTS / (time.perf_counter() - started)
    await log.close()
    return single, windowed
