"""Replay: a log of pods that come, are placed with their GPUs, run and go, a hundred events a commit."""

import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

from restow.contracts.codec import decode
from restow.domain.fold import fold_record
from restow.domain.state import ClusterState, Touched
from restow.eventlog.archive import export, open_archive
from restow.eventlog.jetstream import JetStreamLog, connect
from restow.eventlog.port import Record
from restow.eventlog.server import NatsServer

from .table import Row, Size, median
from .world import history

TITLE = "replay of 1 M events, 100 a commit"
BASELINE = "one event a message by nats-py's fetch, measured on 1 % of them and scaled"

SIZES = {Size.FULL: (1_000_000, 3), Size.QUICK: (200_000, 2), Size.SMOKE: (4_000, 1)}
MILLION = 1_000_000

Take = Callable[[Record], int]


async def measure(size: Size) -> list[Row]:
    """Seconds are for a million events, whatever the size."""
    events, repeats = SIZES[size]
    goal = 1.0 if size is Size.FULL else None
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder) / "nats") as server:
        log, plain, single = await connect(server.url, "hundred"), await connect(server.url, "plain"), await connect(server.url, "one")
        commits = await log.bulk_append(_all(events, 100))
        plains = await plain.bulk_append(_all(events, 100, gpus=False))
        singles = await single.bulk_append(_all(events // 100, 1))
        stream = median([await _stream(log, commits, _decoded) for _ in range(repeats)])
        baseline = await _fetch(single, singles)
        archive = Path(folder) / "archive"
        await export(log, archive)
        archived = median([_archive(archive, log.log_id, _decoded) for _ in range(repeats)])
        folded = median([await _stream(log, commits, _folder()) for _ in range(repeats)])
        plain_folded = median([await _stream(plain, plains, _folder()) for _ in range(repeats)])
        archive_folded = median([_archive(archive, log.log_id, _folder()) for _ in range(repeats)])
        for one in (log, plain, single):
            await one.close()
    return [
        Row("from JetStream: read, decode", stream, "s", baseline=baseline, goal=goal),
        Row("from an archive: check, read, decode", archived, "s", baseline=baseline, goal=goal),
        Row("from JetStream, with the full fold", folded, "s", goal=2 * goal if goal else None),
        Row("from an archive, with the full fold", archive_folded, "s", goal=2 * goal if goal else None),
        Row("from JetStream, full fold, no GPUs", plain_folded, "s", goal=1.5 * goal if goal else None),
    ]


async def _all(events: int, at_once: int, gpus: bool = True) -> AsyncIterator[Record]:
    for record in history(events, at_once, gpus):
        yield record


def _decoded(record: Record) -> int:
    return sum(len(decision.events) for decision in decode(record.body))


def _folder() -> Take:
    state = ClusterState()

    def take(record: Record) -> int:
        before, state.touched = state.events, Touched()  # a service takes what was touched
        found = fold_record(state, record.seq, record.family, record.envelope, record.body)
        assert not found.kind, found.why
        return state.events - before

    return take


async def _stream(log: JetStreamLog, commits: int, take: Take) -> float:
    events, started = 0, time.perf_counter()
    async with aclosing(log.read(1)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            for record in batch:
                events += take(record)
            if batch[-1].seq >= commits:
                break
    return (time.perf_counter() - started) * MILLION / events


def _archive(folder: Path, log_id: str, take: Take) -> float:
    events, started = 0, time.perf_counter()
    for record in open_archive(folder, log_id=log_id).records():
        events += take(record)
    return (time.perf_counter() - started) * MILLION / events


async def _fetch(log: JetStreamLog, commits: int) -> float:
    js = log.broker.client.jetstream()
    subscription = await js.pull_subscribe(f"restow.{log.cluster}.*", stream=f"restow-{log.cluster}")
    seen, events, started = 0, 0, time.perf_counter()
    while seen < commits:
        for message in await subscription.fetch(500, timeout=10):
            events += sum(len(decision.events) for decision in decode(message.data))
            seen += 1
            await message.ack()
            if seen == 1:
                events, started = 0, time.perf_counter()  # the nodes' commit is not like the others
    return (time.perf_counter() - started) * MILLION / events
