"""A log put back into a broker: with its id, its sequences and every byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from restow.eventlog.archive import BulkLog
from restow.eventlog.port import EventLog, LogMismatch, Record
from restow.replay.at import Progress, no_progress
from restow.replay.source import Source


def restore(source: Source, servers: Sequence[str], cluster: str, progress: Progress = no_progress) -> int:
    """Make the cluster's log and fill it; returns the number of records. Raises LogMismatch where it is not empty."""

    async def run() -> int:
        from restow.eventlog.jetstream import connect

        log = await connect(servers, cluster, log_id=source.log_id, first_seq=source.first, name="restow-cli", wait=5.0)
        try:
            return await fill(source, log, progress)
        finally:
            await log.close()

    return asyncio.run(run())


async def fill(source: Source, log: EventLog, progress: Progress = no_progress) -> int:
    """Append everything to an empty log that was made with this id and first sequence."""
    first, tail = await log.first(), await log.tail()
    if log.log_id != source.log_id:
        raise LogMismatch(
            f"cluster {log.cluster!r} has another log already ({log.log_id}; {source.name} is of {source.log_id}). "
            "Import under another --cluster name"
        )
    if tail >= first:
        raise LogMismatch(
            f"cluster {log.cluster!r} has this log already, with sequences {first} to {tail}; an import needs an empty one. "
            "Import under another --cluster name"
        )
    if first != source.first:
        raise LogMismatch(f"{source.name} begins at {source.first}, but the empty log at {first}")
    if isinstance(log, BulkLog):
        return await log.bulk_append(_records(source, progress))
    last_of: dict[str, int] = {}
    count = 0
    async for record in _records(source, progress):
        expected = last_of.get(record.family, 0)
        last_of[record.family] = await log.append(record.family, record.body, record.envelope, expected_last=expected)
        count += 1
    return count


async def _records(source: Source, progress: Progress) -> AsyncIterator[Record]:
    batches = source.batches()
    while batch := await asyncio.to_thread(next, batches, None):
        for record in batch:
            yield record
        progress(batch[-1].seq - source.first + 1, source.last - source.first + 1)
