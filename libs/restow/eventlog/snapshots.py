"""Snapshots: a folded state at a sequence, so that a restart need not fold the whole log.

A snapshot is a cache: it can always be folded again from archive + stream. It names its log id, and is refused where
that is another one. A damaged newest snapshot is reported and the one before it is used.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec
import zstandard

from restow.eventlog.disk import replace_file
from restow.eventlog.port import FORMAT, LogError, LogMismatch
from restow.eventlog.unpack import TooMuch
from restow.eventlog.unpack import whole as unpacked

KEPT = 2
"""Snapshots that `put` leaves: the new one, and the one before it should the new one prove unreadable."""

PROBE = 64 * 1024
"""Bytes that a store with capacity takes."""

MAX_BODY = 4 * 1024 * 1024 * 1024
"""Bytes that an unpacked snapshot may have."""

_log = logging.getLogger(__name__)


class SnapshotError(LogError):
    """A snapshot that is cut, damaged or not ours. Says which and why."""


class Snapshot(msgspec.Struct, frozen=True):
    """A folded state. seq: the last sequence that is in it. fold_version: of the fold that made it. body: any bytes."""

    log_id: str
    seq: int
    fold_version: int
    body: bytes


@runtime_checkable
class Snapshots(Protocol):
    """The snapshots of one log. All methods raise LogMismatch for another log's, Unavailable where a broker is away."""

    async def put(self, snapshot: Snapshot) -> int:
        """Store it durably under its sequence, then drop all but the newest two. Same sequence: the new one replaces. Returns the bytes that it takes.
        Raises Full."""
        ...

    async def latest(self, *, at_most: int | None = None) -> Snapshot | None:
        """The newest readable one, of those with seq <= `at_most`. Raises SnapshotError if all there are are damaged."""
        ...

    async def sequences(self) -> list[int]:
        """Sequences of what is stored, ascending."""
        ...

    async def hold_back(self, size: int) -> None:
        """Take so many bytes of the store's capacity for nothing, so that there is some when it is full: `let_go`. As much as is held already is left as it
        is. Raises Full."""
        ...

    async def let_go(self) -> bool:
        """Give back what is held back; whether there was any."""
        ...

    async def probe(self) -> None:
        """Find out whether the store takes `PROBE` bytes. Raises Full."""
        ...


class _Header(msgspec.Struct, tag_field="restow", tag="snapshot"):
    format: int
    log_id: str
    seq: int
    fold_version: int
    size: int


_DIGEST = 65
"""Bytes of the first line: SHA-256 in hex, and a newline."""

_MAX_HEADER = 4096


def pack(snapshot: Snapshot) -> bytes:
    """Three parts: the SHA-256 of all that follows as a line in hex, a header line in JSON, the body by zstd."""
    packed = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(snapshot.body)
    header = _Header(FORMAT, snapshot.log_id, snapshot.seq, snapshot.fold_version, len(snapshot.body))
    rest = msgspec.json.encode(header) + b"\n" + packed
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def unpack(blob: bytes, name: str) -> Snapshot:
    """The snapshot in `blob`. name: where it is from, for the message. Raises SnapshotError."""
    rest = blob[_DIGEST:]
    if blob[:_DIGEST] != hashlib.sha256(rest).hexdigest().encode() + b"\n":
        raise SnapshotError(f"{name}: the content does not fit its digest: it is cut, damaged or no snapshot")
    head, _, packed = rest.partition(b"\n")
    try:
        header = msgspec.json.decode(head, type=_Header)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"{name}: its second line is not a snapshot's header: {error}") from error
    if header.format != FORMAT:
        raise SnapshotError(f"{name}: format {header.format}; this Restow reads format {FORMAT}")
    if header.size > MAX_BODY:
        raise SnapshotError(f"{name}: {header.size} bytes exceed the limit of {MAX_BODY}")
    try:
        body = unpacked(packed, header.size)
    except (TooMuch, zstandard.ZstdError) as error:
        raise SnapshotError(f"{name}: cannot be unpacked: {error}") from error
    if len(body) != header.size:
        raise SnapshotError(f"{name}: {len(body)} bytes, its header says {header.size}")
    return Snapshot(header.log_id, header.seq, header.fold_version, body)


def check_log(snapshot_log: str, log_id: str, what: str) -> None:
    """Raise LogMismatch unless the snapshot is of this log."""
    if snapshot_log != log_id:
        raise LogMismatch(
            f"{what} is of log {snapshot_log}, not of {log_id}: it belongs to another history. Remove it, "
            "or connect to the log that it was made from"
        )


def too_old(sequences: list[int], stored: int) -> list[int]:
    """Of ascending sequences, those that are not among the newest two, nor `stored` just now: a store that was restored with a log may hold snapshots
    of what that log has lost, and they are the newest."""
    return [seq for seq in sequences[:-KEPT] if seq != stored]


async def newest_readable(
    sequences: list[int], at_most: int | None, load: Callable[[int], Awaitable[Snapshot]]
) -> Snapshot | None:
    """The newest of `sequences` (ascending) that `load` can read. Raises SnapshotError if it can read none of them."""
    damaged: SnapshotError | None = None
    for seq in reversed(sequences):
        if at_most is None or seq <= at_most:
            try:
                return await load(seq)
            except SnapshotError as error:
                _log.warning("snapshot passed over: %s", error)
                damaged = damaged or error
    if damaged:
        raise damaged
    return None


class MemorySnapshots:
    """Snapshots in this process, packed as everywhere else."""

    def __init__(self, log_id: str) -> None:
        self._log_id = log_id
        self.blobs: dict[int, bytes] = {}
        self.held_back = 0

    async def put(self, snapshot: Snapshot) -> int:
        """See Snapshots.put."""
        check_log(snapshot.log_id, self._log_id, f"snapshot {snapshot.seq}")
        blob = self.blobs[snapshot.seq] = pack(snapshot)
        for seq in too_old(sorted(self.blobs), snapshot.seq):
            del self.blobs[seq]
        return len(blob)

    async def latest(self, *, at_most: int | None = None) -> Snapshot | None:
        """See Snapshots.latest."""
        return await newest_readable(sorted(self.blobs), at_most, self._load)

    async def sequences(self) -> list[int]:
        """See Snapshots.sequences."""
        return sorted(self.blobs)

    async def hold_back(self, size: int) -> None:
        """See Snapshots.hold_back."""
        self.held_back = max(self.held_back, size)

    async def let_go(self) -> bool:
        """See Snapshots.let_go."""
        held, self.held_back = self.held_back, 0
        return held > 0

    async def probe(self) -> None:
        """See Snapshots.probe."""

    async def _load(self, seq: int) -> Snapshot:
        snapshot = unpack(self.blobs[seq], f"snapshot {seq}")
        check_log(snapshot.log_id, self._log_id, f"snapshot {seq}")
        return snapshot


class DirectorySnapshots:
    """Snapshots as files `<seq>.snapshot` in a folder, each written in one step."""

    _NAME = re.compile(r"(\d{20})\.snapshot")

    def __init__(self, folder: str | Path, log_id: str) -> None:
        self._folder, self._log_id = Path(folder), log_id

    async def put(self, snapshot: Snapshot) -> int:
        """See Snapshots.put. Raises OSError."""
        check_log(snapshot.log_id, self._log_id, f"snapshot {snapshot.seq}")
        return await asyncio.to_thread(self._put, snapshot)

    async def latest(self, *, at_most: int | None = None) -> Snapshot | None:
        """See Snapshots.latest."""
        return await newest_readable(await self.sequences(), at_most, self._load)

    async def sequences(self) -> list[int]:
        """See Snapshots.sequences."""
        return await asyncio.to_thread(self._stored)

    async def hold_back(self, size: int) -> None:
        """Nothing: a folder is not where a log is kept."""

    async def let_go(self) -> bool:
        """See Snapshots.let_go."""
        return False

    async def probe(self) -> None:
        """See Snapshots.probe."""

    def _put(self, snapshot: Snapshot) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._stored()
        blob = pack(snapshot)
        replace_file(self._path(snapshot.seq), [blob])
        for seq in too_old(self._stored(), snapshot.seq):
            self._path(seq).unlink(missing_ok=True)
        return len(blob)

    def _stored(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        found = (self._NAME.fullmatch(file.name) for file in self._folder.iterdir())
        sequences = sorted(int(match[1]) for match in found if match)
        for seq in sequences:
            self._check_owner(self._path(seq))
        return sequences

    def _check_owner(self, path: Path) -> None:
        """Refuse a folder of another log's snapshots, even to add to it; a damaged one is `latest`'s matter."""
        try:
            with path.open("rb") as file:
                file.seek(_DIGEST)
                header = msgspec.json.decode(file.readline(_MAX_HEADER), type=_Header)
        except (OSError, msgspec.DecodeError):
            return
        check_log(header.log_id, self._log_id, str(path))

    def _path(self, seq: int) -> Path:
        return self._folder / f"{seq:020d}.snapshot"

    async def _load(self, seq: int) -> Snapshot:
        path = self._path(seq)
        try:
            snapshot = await asyncio.to_thread(lambda: unpack(path.read_bytes(), str(path)))
        except OSError as error:
            raise SnapshotError(f"{path}: cannot be read: {error.strerror or error}") from error
        check_log(snapshot.log_id, self._log_id, str(path))
        if snapshot.seq != seq:
            raise SnapshotError(f"{path}: it holds snapshot {snapshot.seq}; the file was renamed")
        return snapshot
