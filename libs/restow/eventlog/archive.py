"""Archives: sealed segments in a folder or a bucket, checked as one chain; export, import, and archive + stream as one log."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from restow.eventlog import bucket
from restow.eventlog.folder import Folder
from restow.eventlog.port import EventLog, LogMismatch, Record, Truncated, Unavailable, missing
from restow.eventlog.segment import (
    GENESIS,
    SUFFIX,
    ArchiveError,
    File,
    Order,
    Place,
    Segment,
    SegmentWriter,
    read_segment,
)

T = TypeVar("T")

Where: TypeAlias = str | Path | Place
"""The path of a folder or of one segment, the address of a bucket, or what was made of either."""


def place_of(where: Where) -> Place:
    """Raises NotAllowed for an address that is none, or that cannot be used here."""
    if isinstance(where, str) and bucket.is_address(where):
        return _connected(where)
    return Folder(Path(where)) if isinstance(where, str | Path) else where


@functools.lru_cache(maxsize=16)
def _connected(address: str) -> Place:
    """One for each address: it knows what it has found whole before."""
    return bucket.connect(address)


@runtime_checkable
class BulkLog(Protocol):
    """A log that can take many records at once (JetStream)."""

    async def bulk_append(self, records: AsyncIterator[Record]) -> int:
        """Append all in order; each must get its own sequence."""
        ...

    def check_bulk(self, record: Record) -> None:
        """Raises TooLarge or LogMismatch where `bulk_append` cannot store this record, so that nothing is stored before one that cannot be."""
        ...


class Archive:
    """A checked chain of segments of one log, in order and without holes, but for those that the log has, too. Made by `open_archive`."""

    def __init__(self, path: object, segments: list[Segment]) -> None:
        """`path`: what to call it in messages."""
        self.path, self.segments = path, segments

    @property
    def log_id(self) -> str:
        """Id of the log that the segments are from."""
        return self.segments[0].header.log_id

    @property
    def cluster(self) -> str:
        """Cluster of the log that the segments are from."""
        return self.segments[0].header.cluster

    @property
    def first(self) -> int:
        """First sequence in the archive."""
        return self.segments[0].header.first

    @property
    def last(self) -> int:
        """Last sequence in the archive."""
        return self.segments[-1].header.last

    @property
    def holes(self) -> list[tuple[int, int]]:
        """What the log had lost when it was written: of each hole the first and the last sequence."""
        return [hole for segment in self.segments for hole in segment.header.holes]

    @property
    def digest(self) -> str:
        """Seal of the last segment, which stands for all of them."""
        return self.segments[-1].digest

    def batches(self, from_seq: int = 0) -> Iterator[list[Record]]:
        """Every record from `from_seq` on, in order. Raises ArchiveError."""
        for segment in self.segments:
            if segment.header.last >= from_seq:
                yield from read_segment(segment, from_seq)

    def records(self, from_seq: int = 0) -> Iterator[Record]:
        """`batches`, one by one."""
        for batch in self.batches(from_seq):
            yield from batch


def open_archive(where: Where, *, log_id: str | None = None) -> Archive:
    """Check a folder of segments, one segment file, or a bucket. Every byte is read once, but for those of a bucket that this process has read before and whose
    server says that they are the same.

    log_id: refuse another log's. Raises ArchiveError (file, line or byte, reason) for what is cut, damaged, renamed,
    reordered, duplicated, missing or foreign, and where there is no segment; Unavailable.
    """
    place = place_of(where)
    # A path that is no folder is one segment, which need not begin a chain.
    single = place.path if isinstance(where, str | Path) and isinstance(place, Folder) and not place.path.is_dir() else None
    files: Sequence[File] = [single] if single else place.files()
    if not files:
        raise ArchiveError(place, "", f"the {'folder' if isinstance(place, Folder) else 'bucket'} holds no segment (*{SUFFIX})")
    segments: list[Segment] = []
    for file in files:
        segment = place.check(file)
        if log_id is not None and segment.header.log_id != log_id:
            raise ArchiveError(file, "line 1", f"it is from log {segment.header.log_id}, not from {log_id}")
        if segments:
            _check_joint(segments[-1], segment)
        elif single is None and segment.header.previous != GENESIS:
            raise ArchiveError(file, "line 1", "a segment before it is missing: it does not begin a chain")
        segments.append(segment)
    return Archive(place, segments)


def _check_joint(before: Segment, segment: Segment) -> None:
    path, old, new = segment.path, before.header, segment.header
    if new.log_id != old.log_id:
        raise ArchiveError(path, "line 1", f"it is from log {new.log_id}, the segment before from {old.log_id}")
    if new.first <= old.last:
        raise ArchiveError(path, "line 1", f"it begins at {new.first}, but {before.path.name} already ends at {old.last}")
    if new.first > old.last + 1:
        raise ArchiveError(path, "line 1", f"{missing(old.last + 1, new.first - 1)} before it")
    if new.previous != before.digest:
        raise ArchiveError(path, "line 1", f"it does not continue {before.path.name}: that segment was replaced")


def has_segments(where: Where) -> bool:
    """Whether anything is there. Raises Unavailable."""
    return bool(place_of(where).files())


def covered(where: Where, from_seq: int) -> int:
    """The last sequence up to which the segments, by their names or headers, hold everything from `from_seq` on; 0 for nothing. Reads nothing else: enough to know
    that an archive is there, as it was when it was checked and reported. Raises Unavailable."""
    end = 0
    for first, last in place_of(where).ranges():
        if first > (end + 1 if end else from_seq):
            break
        if last >= from_seq:
            end = max(end, last)
    return end


async def export(
    log: EventLog,
    where: Where,
    from_seq: int | None = None,
    to_seq: int | None = None,
    *,
    segment_bytes: int | None = None,
) -> Archive | None:
    """Write the log's records to a folder or a bucket, continuing the archive that is there; returns all of it.

    from_seq: None continues after the archive's end, or begins at the log's first sequence. to_seq: None is the log's
    tail now. None is returned where there is nothing to write and no archive. segment_bytes: unpacked bytes of lines after which a segment is closed, None for what
    the place takes. What may block runs in a thread.
    Raises ArchiveError, LogMismatch (also for an archive of records that the log has lost), Truncated, Unavailable, ValueError.
    """
    place = place_of(where)
    with place.only_writer():
        return await _continued(log, place, from_seq, to_seq, segment_bytes or place.segment_bytes)


async def _continued(log: EventLog, place: Place, from_seq: int | None, to_seq: int | None, segment_bytes: int) -> Archive | None:
    present = await asyncio.to_thread(open_archive, place, log_id=log.log_id) if await asyncio.to_thread(has_segments, place) else None
    start = from_seq if from_seq is not None else present.last + 1 if present else await log.first()
    stop = await log.tail() if to_seq is None else to_seq
    if present and start != present.last + 1:
        raise ValueError(f"the archive in {place} ends at {present.last}; it can be continued at {present.last + 1} only")
    if to_seq is not None and to_seq > await log.tail():
        raise ValueError(f"the log ends at {await log.tail()}; cannot export up to {to_seq}")
    if present and (why := await mismatch(present, log)):
        raise LogMismatch(why)
    if start > stop:
        return present
    segments = present.segments if present else []
    previous = present.digest if present else GENESIS
    async for segment in _written(log, place, start, stop, previous, segment_bytes):
        segments.append(segment)
    return Archive(place, segments)


async def _written(
    log: EventLog, place: Place, start: int, stop: int, previous: str, segment_bytes: int
) -> AsyncIterator[Segment]:
    writer: SegmentWriter | None = None
    begins, seen = start, start - 1
    try:
        async with aclosing(log.read(start)) as batches:  # type: ignore[type-var]
            async for batch in batches:
                rest = [record for record in batch if record.seq <= stop]
                if len(rest) < len(batch) and (rest[-1].seq if rest else seen) < stop:
                    # The last one is lost, which is told by the one that follows: a segment ends with a record.
                    rest.append(batch[len(rest)])
                    stop = rest[-1].seq
                seen = batch[-1].seq
                while rest:
                    # What the broker has lost is told as lost: else the archive would end there, and nothing behind it could ever be truncated.
                    writer = writer or SegmentWriter(place, log.log_id, log.cluster, previous, Order(begins, None))
                    taken = await _whole(_add, writer, rest, segment_bytes)
                    rest = rest[taken:]
                    if writer.size >= segment_bytes or writer.last == stop:
                        segment = await _whole(writer.finish)
                        writer, previous, begins = None, segment.digest, segment.header.last + 1
                        yield segment
                if batch[-1].seq >= stop:
                    if writer is not None:
                        segment, writer = await _whole(writer.finish), None
                        yield segment
                    return
    finally:
        if writer is not None:
            writer.abandon()


async def _whole(work: Callable[..., T], *arguments: object) -> T:
    """`work` in a thread; a caller that is cancelled waits for its end, so that nothing is taken from under it."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


def _add(writer: SegmentWriter, records: list[Record], segment_bytes: int) -> int:
    """Add records until the segment is full; returns how many."""
    for count, record in enumerate(records, 1):
        writer.add(record)
        if writer.size >= segment_bytes:
            return count
    return len(records)


async def import_(where: Where, log: EventLog) -> int:
    """Append an archive to an empty log that was made with the archive's log id and first sequence; returns how many.

    The log keeps the records' bytes, envelopes and sequences; a broker stamps its own storage time. Raises
    LogMismatch (not empty, another id or beginning), ArchiveError, and what `append` raises.
    """
    archive = await asyncio.to_thread(open_archive, where)
    if archive.log_id != log.log_id:
        raise LogMismatch(
            f"{archive.path} is from log {archive.log_id}, this log is {log.log_id}: create it with the archive's id"
        )
    tail, first = await log.tail(), await log.first()
    if tail >= first:
        raise LogMismatch(f"log {log.log_id} is not empty (it holds {first} to {tail}); an import needs an empty one")
    if archive.holes:
        raise LogMismatch(hole(archive.path, *archive.holes[0]))
    if first != archive.first:
        raise LogMismatch(f"{archive.path} begins at {archive.first}, the empty log at {first}: create it with that first sequence")
    if isinstance(log, BulkLog):
        return await log.bulk_append(_following(archive, 0))
    last_of: dict[str, int] = {}
    count = 0
    async for record in _following(archive, 0):
        expected = last_of.get(record.family, 0)
        last_of[record.family] = await log.append(
            record.family, record.body, record.envelope, expected_last=expected
        )
        count += 1
    return count


def hole(name: object, first: int, last: int) -> str:
    """Why a log that has lost records cannot be put back into a broker."""
    return f"{name}: {missing(first, last)} in it, for its broker had lost them. A broker cannot hold a log with a hole. `restow log import --from {last + 1}` puts back what is behind it; the collector folds the rest from its archive"


async def _following(archive: Archive, from_seq: int) -> AsyncIterator[Record]:
    batches = archive.batches(from_seq)
    while batch := await asyncio.to_thread(next, batches, None):
        for record in batch:
            yield record


async def full_log(where: Where, log: EventLog, from_seq: int = 1) -> AsyncIterator[list[Record]]:
    """Archive and log as the one log that they are: from `from_seq` through the archive, then the log for ever.

    Where both hold a record the log's is taken only behind the archive's end, after the first one was compared with
    it. A missing archive is allowed while the log still holds everything. Raises ArchiveError and LogMismatch where
    they do not join, and what `read` raises.
    """
    place = place_of(where)
    first = await log.first()
    position = from_seq
    if await asyncio.to_thread(has_segments, place):
        archive = await asyncio.to_thread(open_archive, place, log_id=log.log_id)
        await _check_covers(archive, log, from_seq, first)
        batches = archive.batches(from_seq)
        while batch := await asyncio.to_thread(next, batches, None):
            position = batch[-1].seq + 1
            yield batch
    elif first > from_seq:
        raise ArchiveError(place, "", f"no archive here, and the log begins at {first}: {missing(from_seq, first - 1)}")
    async with aclosing(log.read(position)) as rest:  # type: ignore[type-var]
        async for batch in rest:
            yield batch


async def _check_covers(archive: Archive, log: EventLog, from_seq: int, first: int) -> None:
    if archive.first > from_seq:
        raise ArchiveError(archive.path, "", f"it begins at {archive.first}; {missing(from_seq, archive.first - 1)}")
    if first > archive.last + 1:
        raise ArchiveError(
            archive.path, "", f"it ends at {archive.last}, the log begins at {first}: {missing(archive.last + 1, first - 1)}"
        )
    if why := await mismatch(archive, log):
        raise LogMismatch(why)


async def agreeing(archive: Archive, log: EventLog) -> list[Segment]:
    """Of an archive that is not of the log's history to its end, the segments up to the last at whose end it is, and that the log continues; none where there is none
    such. What the log told of its archive before it let records go is always the end of a segment."""
    first = await log.first()
    for count in range(len(archive.segments) - 1, 0, -1):
        begins = Archive(archive.path, archive.segments[:count])
        if begins.last < first - 1:
            return []
        if not await mismatch(begins, log):
            return begins.segments
    return []


async def mismatch(archive: Archive, log: EventLog) -> str:
    """Why the archive, which is of the log's id, is not of its history; empty where nothing speaks against it. The archive's last record must be the
    log's: a broker whose volume was restored, or that lost what it had not on disk, has gone on with others in their place."""
    tail = await log.tail()
    if archive.last > tail:
        return f"{archive.path} ends at {archive.last}, but log {log.log_id} at {tail}: the log has lost commits"
    first, at, back = max(archive.first, await log.first()), archive.last, 1
    while at >= first:
        try:
            async with aclosing(log.read(at)) as batches:  # type: ignore[type-var]
                stored = (await anext(batches))[0]
        except Truncated:
            return ""  # The log has let it go since we asked where it begins.
        except StopAsyncIteration:
            raise Unavailable(f"log {log.log_id} did not deliver record {at}") from None
        archived = await asyncio.to_thread(lambda seq: next(iter(archive.records(seq))), at)
        if stored.seq == archived.seq:
            same = (stored.envelope, stored.family, stored.body) == (archived.envelope, archived.family, archived.body)
            return "" if same else f"record {archived.seq} differs between {archive.path} and log {log.log_id}"
        # The broker has lost it, or had when it was archived: one before it tells as well.
        at, back = at - back, 2 * back
    return ""
