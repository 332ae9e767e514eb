"""A log put back into a broker: with its id, its sequences and every byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from restow.eventlog.access import NO_FILES, AccessFiles
from restow.eventlog.archive import BulkLog, hole
from restow.eventlog.port import (
    MAX_BODY,
    BrokerRefused,
    EventLog,
    Forbidden,
    LogMismatch,
    Record,
    TooLarge,
)
from restow.replay.source import Source
from restow.replay.state_at import Progress, no_progress

if TYPE_CHECKING:
    from restow.eventlog.jetstream import JetStreamLog


def restore(
    source: Source, servers: Sequence[str], cluster: str, progress: Progress = no_progress, *, replicas: int | None = None, user: str | None = None,
    password: str | None = None, files: AccessFiles = NO_FILES,
) -> int:
    """Make the cluster's log and fill it; returns the number of records. replicas: copies of it, one by default. user, password: where the address names
    none. files: certificates and credentials. Raises LogMismatch where the log is not empty, Forbidden where this user may not make it."""

    async def run() -> int:
        from restow.eventlog.jetstream import connect

        # While the file is read nobody waits for what it may not bring.
        log = await connect(
            servers, cluster, log_id=source.log_id, first_seq=source.first, import_to=source.last, before=lambda can_store: asyncio.to_thread(_check, source, can_store),
            name="restow-cli", wait=5.0, replicas=replicas, user=user, password=password, files=files,
        )
        try:
            return await _imported(source, log, progress)
        finally:
            await log.close()

    try:
        return asyncio.run(run())
    except Forbidden as error:
        raise Forbidden(
            f"{error}. An import makes the log of cluster {cluster!r}: where a broker has users, only `operator` may do that "
            "(--server nats://operator:PASSWORD@HOST:4222), and for the cluster of its permissions.conf only. A broker without users takes any log"
        ) from error


async def _imported(source: Source, log: JetStreamLog, progress: Progress) -> int:
    """Services that wait for the log do not begin on a part of it, also where this process is killed: that would be the end of all that is not there yet."""
    first, tail = await log.first(), await log.tail()
    begun = log.log_id == source.log_id and first == source.first and (tail < first or tail < log.import_to)
    if begun:
        await log.begin_import(source.last)
    count = await _put(source, log, progress)
    if begun:
        await log.end_import(source.last)
    return count


async def fill(source: Source, log: EventLog, progress: Progress = no_progress) -> int:
    """Append everything to an empty log that was made with this id and first sequence, or what an import that was interrupted has left to do; returns how
    many records that were. Nothing is written before all of the source was read once: a file that breaks off in its middle, or has a record that this
    broker does not take, leaves no half a log."""
    await asyncio.to_thread(_check, source, log.check_bulk if isinstance(log, BulkLog) else lambda record: None)
    return await _put(source, log, progress)


async def _put(source: Source, log: EventLog, progress: Progress) -> int:
    first, tail = await log.first(), await log.tail()
    if log.log_id != source.log_id:
        raise LogMismatch(
            f"cluster {log.cluster!r} has another log already ({log.log_id}; {source.name} is of {source.log_id}). "
            "Import under another --cluster name"
        )
    if first != source.first and (tail < first or first > source.last):
        raise LogMismatch(f"{source.name} begins at {source.first}, but the empty log at {first}")
    last_of: dict[str, int] = {}
    if tail >= first:
        if first != source.first or tail >= source.last:
            raise LogMismatch(
                f"cluster {log.cluster!r} has this log already, with sequences {first} to {tail}; an import needs an empty one. "
                "Import under another --cluster name"
            )
        last_of = await _begun(source, log, tail)
    records = _records(source, max(tail + 1, first), progress)
    if isinstance(log, BulkLog):
        return await log.bulk_append(records)
    count = 0
    async for record in records:
        expected = last_of.get(record.family, 0)
        last_of[record.family] = await log.append(record.family, record.body, record.envelope, expected_last=expected)
        count += 1
    return count


def _check(source: Source, can_store: Callable[[Record], None]) -> None:
    """Raises LogMismatch, and BrokerRefused where the broker's limit is too low for a record, with what to do."""
    expected = source.first
    for batch in source.batches():
        for record in batch:
            if record.seq != expected:
                raise LogMismatch(hole(source.name, expected, record.seq - 1))
            expected += 1
            try:
                can_store(record)
            except TooLarge as error:
                if record.envelope.given is None and len(record.body) > MAX_BODY:
                    raise LogMismatch(f"record {record.seq} of {source.name} has {len(record.body)} bytes, and no commit of a log has more than {MAX_BODY}: the file is not as it was exported") from error
                raise BrokerRefused(
                    f"record {record.seq} of {source.name} is too large for this broker: {error}. Give the broker a larger max_payload (deploy/nats/nats.conf: 8MB), "
                    "and run the same command again"
                ) from error


async def _begun(source: Source, log: EventLog, tail: int) -> dict[str, int]:
    """The last sequences of the families in what an import has brought so far. Raises LogMismatch where that is not what the source begins with."""
    last_of: dict[str, int] = {}
    theirs = _records(source, source.first, no_progress)
    async with aclosing(log.read(source.first)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            for record in batch:
                other = await anext(theirs)
                if (record.family, record.body) != (other.family, other.body) or record.envelope.id != other.envelope.id:
                    raise LogMismatch(
                        f"cluster {log.cluster!r} has a log with this id already, whose record {record.seq} is not that of {source.name}: "
                        "somebody has appended to it. Import under another --cluster name"
                    )
                last_of[record.family] = record.seq
            if batch[-1].seq >= tail:
                break
    return last_of


async def _records(source: Source, first: int, progress: Progress) -> AsyncIterator[Record]:
    batches = source.batches(first)
    while batch := await asyncio.to_thread(next, batches, None):
        for record in batch:
            yield record
        progress(batch[-1].seq - source.first + 1, source.last - source.first + 1)
