"""The log in one file: a journal of lines on a local disk, for one process at a time.

`<folder>/journal.jsonl` begins with a header line; every further line is a CRC-32 of the rest, a blank, and the
record. An append is fsynced before it is acknowledged. A last line without its newline is an append that nobody was
told of (the process died): it is dropped on opening. Anything else that does not fit is refused.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import time
import zlib
from array import array
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from restow.contracts.envelope import Envelope
from restow.eventlog.disk import replace_file, sync_folder
from restow.eventlog.lines import LineError, decode_line, encode_line
from restow.eventlog.memory import Wakeup
from restow.eventlog.port import (
    FORMAT,
    MAX_BODY,
    READ_BATCH,
    BrokerRefused,
    Closed,
    Conflict,
    Family,
    LogMismatch,
    Record,
    Truncated,
    beyond_end,
    check_append,
    check_from,
    check_token,
)

READ_BYTES = 8 * 1024 * 1024
"""Most bytes of lines in one batch of `read` (a single longer line is still one batch)."""

_CRC = 9
"""Bytes of "xxxxxxxx " before each record."""


class _Header(msgspec.Struct, tag_field="restow", tag="journal"):
    format: int
    log_id: str
    cluster: str
    first: int


class FileLog:
    """An EventLog in a folder. Made by `open_file`."""

    def __init__(self, folder: Path, clock: Callable[[], int], max_body: int) -> None:
        self.path = folder / "journal.jsonl"
        self.max_body = min(max_body, MAX_BODY)
        self._clock = clock
        self._header = _Header(FORMAT, "", "", 1)
        self._offsets = array("Q")
        self._end_offset = 0
        self._last_of: dict[Family, int] = {}
        self._file: BinaryIO | None = None
        self._lock_file: BinaryIO | None = None
        self._lock = asyncio.Lock()
        self._wakeup = Wakeup()

    @property
    def cluster(self) -> str:
        """See EventLog.cluster."""
        return self._header.cluster

    @property
    def log_id(self) -> str:
        """See EventLog.log_id."""
        return self._header.log_id

    @property
    def connected(self) -> bool:
        """True until closed."""
        return self._file is not None

    async def wait_connected(self) -> None:
        """See EventLog.wait_connected."""
        self._opened()

    async def append(self, family: Family, body: bytes, envelope: Envelope, *, expected_last: int) -> int:
        """See EventLog.append."""
        check_append(family, body, expected_last, self.max_body)
        # A task of its own: a caller that is cancelled halfway must not leave a written line outside the index.
        return await asyncio.shield(asyncio.create_task(self._append(family, body, envelope, expected_last)))

    async def _append(self, family: Family, body: bytes, envelope: Envelope, expected_last: int) -> int:
        async with self._lock:
            file = self._opened()
            actual = self._last_of.get(family, 0)
            if actual != expected_last:
                raise Conflict(family, expected_last, actual)
            record = Record(self._end(), family, envelope, bytes(body), self._clock())
            line = _guarded(encode_line(record))
            try:
                await asyncio.to_thread(_write, file, self._end_offset, line)
            except OSError as error:
                raise BrokerRefused(f"cannot append to {self.path}: {error}") from error
            self._offsets.append(self._end_offset)
            self._end_offset += len(line)
            self._last_of[family] = record.seq
            self._wakeup.notify()
            return record.seq

    async def read(self, from_seq: int) -> AsyncIterator[list[Record]]:
        """See EventLog.read."""
        position = check_from(from_seq)
        self._opened()
        if position > self._end():
            raise beyond_end(position, self._end() - 1, self.log_id)
        while True:
            file = self._opened()
            first = self._header.first
            if position < first:
                raise Truncated(position, first)
            if position < self._end():
                batch = self._slice(file, position - first)
                position = batch[-1].seq + 1
                yield batch
            else:
                await self._wakeup.wait()

    def _slice(self, file: BinaryIO, start: int) -> list[Record]:
        stop = start + 1
        limit = min(len(self._offsets), start + READ_BATCH)
        while stop < limit and self._offsets[stop] - self._offsets[start] < READ_BYTES:
            stop += 1
        begin = self._offsets[start]
        end = self._offsets[stop] if stop < len(self._offsets) else self._end_offset
        block = os.pread(file.fileno(), end - begin, begin)
        return [
            _unguarded(line, self.path, index + 2, self._header.first + index)
            for index, line in enumerate(block[:-1].split(b"\n"), start)
        ]

    async def tail(self) -> int:
        """See EventLog.tail."""
        self._opened()
        return self._end() - 1

    async def time(self) -> int:
        """See EventLog.time."""
        self._opened()
        return self._clock()

    async def first(self) -> int:
        """See EventLog.first."""
        self._opened()
        return self._header.first

    async def last_of(self, family: Family) -> int:
        """See EventLog.last_of."""
        self._opened()
        return self._last_of.get(check_token("family", family), 0)

    async def truncate(self, upto: int) -> None:
        """See EventLog.truncate. Writes the rest to a new file and replaces the old one in one step."""
        async with self._lock:
            file = self._opened()
            if upto >= self._end():
                raise LogMismatch(f"cannot truncate up to {upto}: the log ends at {self._end() - 1}")
            dropped = upto + 1 - self._header.first
            if dropped <= 0:
                return
            begin = self._offsets[dropped] if dropped < len(self._offsets) else self._end_offset
            rest = os.pread(file.fileno(), self._end_offset - begin, begin)
            header = msgspec.structs.replace(self._header, first=upto + 1)
            await asyncio.to_thread(replace_file, self.path, [_guarded(msgspec.json.encode(header) + b"\n"), rest])
            file.close()
            self._file = None
            self._load()
            self._wakeup.notify()

    async def close(self) -> None:
        """See EventLog.close."""
        async with self._lock:
            for file in (self._file, self._lock_file):
                if file is not None:
                    file.close()
            self._file = self._lock_file = None
            self._wakeup.notify()

    def _open(self, cluster: str, log_id: str, first_seq: int) -> None:
        folder = self.path.parent
        folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = (folder / "lock").open("ab")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock_file.close()
            raise BrokerRefused(f"another process has the log in {folder} open; one may, at a time") from None
        if not self.path.exists():
            header = _Header(FORMAT, log_id or secrets.token_hex(16), cluster, first_seq)
            replace_file(self.path, [_guarded(msgspec.json.encode(header) + b"\n")])
            sync_folder(folder)
        self._load()
        if self.cluster != cluster:
            raise LogMismatch(f"{self.path} is the log of cluster {self.cluster!r}, not of {cluster!r}")

    def _load(self) -> None:
        """Index the journal; drop a torn last line; refuse everything else that does not fit."""
        file = self.path.open("r+b", buffering=0)
        offsets, last_of, offset = array("Q"), {}, 0
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    os.ftruncate(file.fileno(), offset)
                    os.fsync(file.fileno())
                    break
                if number == 1:
                    self._header = _read_header(line, self.path)
                else:
                    record = _unguarded(line, self.path, number, self._header.first + number - 2)
                    offsets.append(offset)
                    last_of[record.family] = record.seq
                offset += len(line)
        if not offset:
            raise LogMismatch(f"{self.path}: line 1: the journal's header is missing")
        self._file, self._offsets, self._last_of, self._end_offset = file, offsets, last_of, offset

    def _end(self) -> int:
        return self._header.first + len(self._offsets)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise Closed("this log was closed")
        return self._file


async def open_file(
    folder: str | Path,
    cluster: str,
    *,
    log_id: str = "",
    first_seq: int = 1,
    clock: Callable[[], int] = time.time_ns,
    max_body: int = MAX_BODY,
) -> FileLog:
    """Open or create the log in `folder`, for this process alone.

    log_id, first_seq: only for a new log ("" makes a random id). clock: nanoseconds since the epoch. Raises
    BrokerRefused (in use), LogMismatch (damaged, another format or cluster; with file and line).
    """
    log = FileLog(Path(folder), clock, max_body)
    check_token("cluster", cluster)
    try:
        await asyncio.to_thread(log._open, cluster, log_id, first_seq)
    except BaseException:
        await log.close()
        raise
    return log


def _guarded(line: bytes) -> bytes:
    return b"%08x %s" % (zlib.crc32(line[:-1]), line)


def _content(line: bytes, path: Path, number: int) -> bytes:
    content = line[_CRC:].removesuffix(b"\n")
    if line[:_CRC] != b"%08x " % zlib.crc32(content):
        raise LogMismatch(f"{path}: line {number}: its checksum does not fit; the file was damaged or edited")
    return content


def _unguarded(line: bytes, path: Path, number: int, expected: int) -> Record:
    try:
        record = decode_line(_content(line, path, number))
    except LineError as error:
        raise LogMismatch(f"{path}: line {number}: {error}") from error
    if record.seq != expected:
        raise LogMismatch(f"{path}: line {number}: sequence {record.seq} where {expected} must be")
    return record


def _read_header(line: bytes, path: Path) -> _Header:
    try:
        header = msgspec.json.decode(_content(line, path, 1), type=_Header)
    except msgspec.DecodeError as error:
        raise LogMismatch(f"{path}: line 1: it is not a Restow journal: {error}") from error
    if header.format != FORMAT:
        raise LogMismatch(f"{path}: line 1: format {header.format}; this Restow reads format {FORMAT}")
    return header


def _write(file: BinaryIO, offset: int, line: bytes) -> None:
    """Write and fsync one line at `offset`; on failure leave the file as it was."""
    try:
        view = memoryview(line)
        at = offset
        while view:
            written = os.pwrite(file.fileno(), view, at)
            view, at = view[written:], at + written
        os.fdatasync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), offset)
        raise
