"""A log from anywhere, read synchronously: a running broker, an archive folder, an exported file, a list.

A replay is one long computation, so it pulls batches from an ordinary iterator; the broker's event loop runs in a thread
beside it and reads ahead.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from restow.contracts.redact import addresses
from restow.eventlog.access import NO_FILES, AccessFiles
from restow.eventlog.archive import Archive, Where, full_log, has_segments, open_archive
from restow.eventlog.bucket import is_address
from restow.eventlog.port import Closed, EventLog, LogMismatch, OnBrokers, Record
from restow.eventlog.segment import ArchiveError
from restow.replay.exported import PLAIN, PlainFile, open_packed, open_plain, write

T = TypeVar("T")

ANSWER = 30.0
"""Seconds that a broker has for one question, connecting included."""


class Source(Protocol):
    """Records first..last in order, and without holes but for those of a log whose broker has lost records. `last` is first - 1 where there are none."""

    @property
    def name(self) -> str:
        """What to call it in a message: a path or an address."""
        ...

    @property
    def cluster(self) -> str: ...

    @property
    def log_id(self) -> str: ...

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    @property
    def claimed(self) -> int:
        """Where its broker says that it ends, if that has lost the last records; else 0."""
        ...

    def batches(self, from_seq: int = 0, to_seq: int | None = None) -> Iterator[list[Record]]:
        """Batches of records with from_seq <= seq <= to_seq (None: `last`). May be called again. Raises LogError."""
        ...

    def close(self) -> None: ...


class _Bounded:
    """What all sources share: the end of `batches`."""

    first: int
    last: int
    claimed: int = 0

    def batches(self, from_seq: int = 0, to_seq: int | None = None) -> Iterator[list[Record]]:
        start = max(from_seq, self.first)
        stop = self.last if to_seq is None else min(to_seq, self.last)
        if start > stop:
            return
        for batch in self._read(start):
            if batch[-1].seq >= stop:
                if rest := [record for record in batch if record.seq <= stop]:
                    yield rest
                return
            yield batch

    def _read(self, from_seq: int) -> Iterator[list[Record]]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to release."""


class ListSource(_Bounded):
    """Records in memory. Raises LogMismatch where they have holes."""

    def __init__(self, records: Sequence[Record], *, name: str = "records", cluster: str = "test", log_id: str = "") -> None:
        self.name, self.cluster, self.log_id = name, cluster, log_id
        self._records = list(records)
        self.first = self._records[0].seq if records else 1
        self.last = self.first + len(self._records) - 1
        for expected, record in enumerate(self._records, self.first):
            if record.seq != expected:
                raise LogMismatch(f"{name}: sequence {record.seq} where {expected} must be")

    def _read(self, from_seq: int) -> Iterator[list[Record]]:
        yield self._records[from_seq - self.first :]


class ArchiveSource(_Bounded):
    """A checked archive, or one segment of it."""

    def __init__(self, archive: Archive, name: str = "") -> None:
        self._archive = archive
        self.name = name or str(archive.path)
        self.cluster, self.log_id = archive.cluster, archive.log_id
        self.first, self.last = archive.first, archive.last

    def _read(self, from_seq: int) -> Iterator[list[Record]]:
        return self._archive.batches(from_seq)


class FileSource(_Bounded):
    """An exported `.jsonl`."""

    def __init__(self, file: PlainFile) -> None:
        self._file, header = file, file.header
        self.name, self.cluster, self.log_id = str(file.path), header.cluster, header.log_id
        self.first, self.last = header.first, header.last

    def _read(self, from_seq: int) -> Iterator[list[Record]]:
        return self._file.batches(from_seq)


class Until(_Bounded):
    """Another source, as it was when sequence `last` was its last one. Closing it is the other one's business."""

    def __init__(self, source: Source, last: int) -> None:
        self.source = source
        self.name, self.cluster, self.log_id = source.name, source.cluster, source.log_id
        self.first, self.last = source.first, min(last, source.last)

    def _read(self, from_seq: int) -> Iterator[list[Record]]:
        return self.source.batches(from_seq)


class LiveSource(_Bounded):
    """A log that somebody may still be writing to, up to its tail when this was opened; with the archive of what was
    truncated away where there is one. The log is opened in this source's own event loop."""

    def __init__(self, opening: Callable[[], Coroutine[Any, Any, EventLog]], name: str, archive: Where | None = None) -> None:
        """`opening` makes the log. Raises what it raises."""
        self.name, self._archive = name, archive
        self._loop = asyncio.new_event_loop()
        self._closing, self._lock = False, threading.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name="restow-log", daemon=True)
        self._thread.start()
        try:
            self.log = self.run(opening())
            self.cluster, self.log_id = self.log.cluster, self.log.log_id
            self.last = self.run(self.log.tail())
            self.claimed = self.log.claimed if isinstance(self.log, OnBrokers) else 0
            self.first = self._first()
        except BaseException:
            self.close()
            raise

    def _first(self) -> int:
        first = self.run(self.log.first())
        if first > 1 and self._archive is not None and has_segments(self._archive):
            return min(first, open_archive(self._archive, log_id=self.log_id).first)
        return first

    def shown_by(self) -> str:
        """Which of several brokers leads the log now; empty for one that is alone, and where none keeps it. Raises Unavailable, TimeoutError, Closed."""
        return self.run(self.log.shown_by()) if isinstance(self.log, OnBrokers) else ""

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = ANSWER) -> T:
        """Run in the log's event loop and wait. Raises what it raises, TimeoutError; Closed once this is being closed."""
        # Whatever is begun is there before the loop is emptied, or it would be left in it half done.
        with self._lock:
            if self._closing:
                work.close()
                raise Closed("this log was closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return self._wait(future, timeout)

    def _wait(self, future: Future[T], timeout: float | None) -> T:
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def _read(self, from_seq: int) -> Iterator[list[Record]]:
        return self.follow(from_seq)

    def follow(self, from_seq: int) -> Iterator[list[Record]]:
        """Batches from `from_seq` on, for ever."""
        if self._archive is not None and from_seq < self.run(self.log.first()):
            batches: AsyncIterator[list[Record]] = full_log(self._archive, self.log, from_seq)
        else:
            batches = self.log.read(from_seq)
        try:
            while True:
                yield self.run(_next(batches), timeout=None)
        finally:
            # Where this was closed meanwhile, that has ended it.
            with suppress(Exception):
                self.run(_end(batches))

    def close(self) -> None:
        """Close the log and end its thread. May be called again."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        for work in (*((self.log.close(),) if hasattr(self, "log") else ()), _drain()):
            with suppress(Exception):
                self._wait(asyncio.run_coroutine_threadsafe(work, self._loop), ANSWER)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self._loop.close()


async def _next(batches: AsyncIterator[list[Record]]) -> list[Record]:
    return await anext(batches)


async def _end(batches: Any) -> None:
    await batches.aclose()


async def _drain() -> None:
    """Cancel what still runs, and end what was half read, so that the loop ends without complaints."""
    while others := [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]:
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def save(
    source: Source, path: Path, first: int | None = None, last: int | None = None, progress: Callable[[int], None] = lambda seq: None
) -> int:
    """Sequences first..last, by default all, in one file (`exported.write`); returns its bytes. Raises OSError, and what the source raises."""
    start, end = source.first if first is None else first, source.last if last is None else last
    records = (record for batch in source.batches(start, end) for record in batch)
    return write(path, records, first=start, last=end, log_id=source.log_id, cluster=source.cluster, progress=progress)


def open_path(path: str | Path) -> Source:
    """An archive in a folder or a bucket (`s3://...`), one of its segments, or an exported file (`.jsonl`, `.jsonl.zst`), checked to the last byte.

    Raises ArchiveError with file, line and reason; for a bucket NotAllowed, Unavailable.
    """
    if is_address(path):
        return ArchiveSource(open_archive(str(path)))
    path = Path(path)
    if not path.exists():
        raise ArchiveError(path, "", "cannot be read: No such file or directory")
    if path.is_dir():
        return ArchiveSource(open_archive(path))
    if path.name.endswith(PLAIN):
        return FileSource(open_plain(path))
    return ArchiveSource(open_packed(path))


def open_broker(
    servers: str | Sequence[str], cluster: str, *, archive: Where | None = None, wait: float = 5.0,
    user: str | None = None, password: str | None = None, files: AccessFiles = NO_FILES,
) -> LiveSource:
    """The log of `cluster` on a running broker. wait: seconds to connect. user, password: where the address names none. files: certificates and
    credentials. Raises BrokerRefused, LogMismatch, NotAllowed, Unavailable."""

    async def opening() -> EventLog:
        from restow.eventlog.jetstream import connect

        return await connect(servers, cluster, create=False, name="restow-cli", wait=wait, user=user, password=password, files=files)

    where = addresses([servers] if isinstance(servers, str) else servers)
    return LiveSource(opening, f"{where} (cluster {cluster})", archive)
