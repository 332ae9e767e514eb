"""One archive segment: a zstd file of JSON lines, sealed so that any change to it is noticed; and the port for where segments are kept.

Layout of `<first>-<last>.jsonl.zst`, or `<first>.jsonl.zst` in a bucket (sequences padded to 20 digits):

1. a zstd frame with the header line: `{"restow":"archive","format":1,"log_id":…,"cluster":…,"first":…,"last":…,"previous":…}`,
   where `previous` is the seal of the segment before (64 zeros at the beginning of a chain). Where the broker has lost records in between, `"holes":[[790,791]]`
   says which: all of them, both ends included, from `first` on;
2. a zstd frame with the records, one a line (`eventlog.lines`);
3. a zstd skippable frame with the seal: SHA-256 of every byte before it. Where the records would unpack to more than a reader
   takes (`eventlog.unpack`), one of zeros before it.

So `zstd -dc segment | jq` shows the header and the records, and the seal chains each segment to all before it. The seal
is of the packed bytes: it covers header, records and compression, and costs a tenth of hashing the lines.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, Literal, Protocol

import msgspec
import zstandard

from restow.eventlog import unpack
from restow.eventlog.lines import LineError, decode_line, encode_line
from restow.eventlog.port import FORMAT, READ_BATCH, LogError, Record

SUFFIX = ".jsonl.zst"

GENESIS = "0" * 64
"""`previous` of the first segment of a chain."""

_SKIPPABLE = struct.Struct("<II")
_SKIPPABLE_MAGIC = 0x184D2A50
_SEAL = _SKIPPABLE.size + 32
_LEVEL = 3
_BLOCK = 1024 * 1024
_MAX_HEADER = 64 * 1024


class ArchiveError(LogError):
    """A segment or archive that is refused: file, line or byte, and why."""

    def __init__(self, path: object, where: str, why: str) -> None:
        self.path, self.where, self.why = path, where, why
        super().__init__(f"{path}: {where}: {why}" if where else f"{path}: {why}")


class Header(msgspec.Struct, frozen=True, tag_field="restow", tag="archive", forbid_unknown_fields=True, omit_defaults=True):
    """First line of a segment. first, last: sequences, both included. previous: seal of the segment before, hex. holes: what is missing in between, each with
    its first and last sequence, ascending."""

    format: int
    log_id: str
    cluster: str
    first: int
    last: int
    previous: str
    holes: tuple[tuple[int, int], ...] = ()

    @property
    def problem(self) -> str:
        """Why these are no sequences of a segment; empty where they are."""
        if not 1 <= self.first <= self.last:
            return f"first {self.first} and last {self.last} are no range"
        end = self.first - 1
        for first, last in self.holes:
            if not end < first <= last < self.last:
                return f"hole {first} to {last} is none of {self.first} to {self.last}, or not behind the one before it"
            end = last
        return ""


class Order:
    """The sequences that follow each other from `first` on: at each, or where there is a hole behind it. `first`: 0 for whichever comes first."""

    def __init__(self, first: int = 0, holes: Sequence[tuple[int, int]] | None = ()) -> None:
        """`holes`: those that there are; None for any, and they are noted."""
        self.first, self.next = first, first
        self.holes: list[tuple[int, int]] = list(holes or ())
        self._any = holes is None
        self._behind = {first: last + 1 for first, last in holes or ()}

    def follows(self, seq: int) -> bool:
        """Whether this one is the next. Then it is the last one so far."""
        if not self.next:
            self.first = self.next = seq
        expected = self._behind.get(self.next, self.next)
        if seq > expected and self._any:
            self.holes.append((expected, seq - 1))
        elif seq != expected:
            return False
        self.next = seq + 1
        return True


class File(Protocol):
    """One segment's bytes, by its name: a `Path`, or an object in a bucket. As text, what to call it in a message."""

    @property
    def name(self) -> str: ...

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """To read, from any position. Raises OSError, Unavailable."""
        ...


class Segment(msgspec.Struct, frozen=True):
    """A segment whose seal fits. digest: its seal, hex. offset: where its records' frame begins, bytes."""

    path: File
    header: Header
    digest: str
    offset: int


class Place(Protocol):
    """Where the segments of one archive are: a folder (`eventlog.folder`) or a bucket (`eventlog.bucket`). It keeps files and knows none of the archive's rules
    (`eventlog.archive`). As text, what to call it in a message. Everything here may block, and raises OSError or Unavailable where the place does not answer."""

    @property
    def segment_bytes(self) -> int:
        """Unpacked bytes of lines after which a segment is closed and the next begun."""
        ...

    def files(self) -> Sequence[File]:
        """Of the segments that are there, in the order of their names, which is that of their sequences."""
        ...

    def check(self, file: File) -> Segment:
        """`open_segment`, or what it said of the same bytes before, where the place can tell that they are the same. Raises ArchiveError."""
        ...

    def ranges(self) -> Sequence[tuple[int, int]]:
        """First and last sequence of each segment that is there, in order, by its name or its header; nothing else of it is read."""
        ...

    def only_writer(self) -> AbstractContextManager[None]:
        """Whoever continues the archive. Of two at once one is refused: here, or by `keep`. Raises ArchiveError where somebody has it."""
        ...

    def scratch(self) -> BinaryIO:
        """An empty file for what is not a segment yet, to write and read."""
        ...

    def drop(self, file: BinaryIO) -> None:
        """Close and remove a scratch file. May be called again."""
        ...

    def keep(self, file: BinaryIO, header: Header, digest: str, offset: int) -> Segment:
        """Make a scratch file a segment, all of it at once and durable. header, digest, offset: as of `Segment`. Raises ArchiveError where another process
        was faster: nothing of its is overwritten."""
        ...

    def set_aside(self, last: int, kept: Sequence[Segment] = ()) -> str:
        """Make way for a new archive in place of this one, which ends at `last` and stays readable; says where that is then. `kept`: segments that it begins
        with, and with which the new one begins, too. Raises ArchiveError."""
        ...


def segment_name(first: int, last: int) -> str:
    """`<first>-<last>.jsonl.zst`, each padded to 20 digits so that names sort as sequences do."""
    return f"{first:020d}-{last:020d}{SUFFIX}"


def short_name(first: int) -> str:
    """`<first>.jsonl.zst`: of all who continue an archive at the same record one alone can make a file of this name, wherever his segment ends."""
    return f"{first:020d}{SUFFIX}"


def is_name(name: str, header: Header) -> bool:
    """Whether a segment with this header may have this name."""
    return name in (segment_name(header.first, header.last), short_name(header.first))


class SegmentWriter:
    """Writes one segment. Nothing appears under its name until `finish` has made all of it durable."""

    def __init__(self, place: Place, log_id: str, cluster: str, previous: str, order: Order | None = None) -> None:
        """`order`: where it begins, and what it may lack; by default at its first record, and nothing."""
        self._place, self._log_id, self._cluster, self._previous = place, log_id, cluster, previous
        self._order = order or Order()
        self.last = 0
        self.size = 0
        """Bytes of lines so far, unpacked."""
        self._file = place.scratch()
        self._packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).stream_writer(
            self._file, closefd=False
        )

    def add(self, record: Record) -> None:
        """The next record. Raises ArchiveError unless it follows the one before."""
        if not self._order.follows(record.seq):
            raise ArchiveError(self._place, "", f"record {record.seq} does not follow {self.last}")
        self.last = record.seq
        line = encode_line(record)
        self.size += len(line)
        self._packer.write(line)

    def finish(self) -> Segment:
        """Seal, fsync and name the segment. Raises ArchiveError for one without records, OSError."""
        if not self.last:
            raise ArchiveError(self._place, "", "a segment needs at least one record")
        self._packer.flush(zstandard.FLUSH_FRAME)
        header = Header(FORMAT, self._log_id, self._cluster, self._order.first, self.last, self._previous, tuple(self._order.holes))
        head = zstandard.ZstdCompressor(write_checksum=True).compress(msgspec.json.encode(header) + b"\n")
        file = self._place.scratch()
        try:
            seal = hashlib.sha256(head)
            file.write(head)
            self._file.seek(0)
            while block := self._file.read(_BLOCK):
                seal.update(block)
                file.write(block)
            if self.size > unpack.most(file.tell()):
                # Records that pack to nothing: a reader would take the file for a bomb.
                blank = self.size // unpack.RATIO
                filler = _SKIPPABLE.pack(_SKIPPABLE_MAGIC, blank) + bytes(blank)
                seal.update(filler)
                file.write(filler)
            file.write(_SKIPPABLE.pack(_SKIPPABLE_MAGIC, 32) + seal.digest())
            file.flush()
            return self._place.keep(file, header, seal.hexdigest(), len(head))
        finally:
            self._place.drop(file)
            self.abandon()

    def abandon(self) -> None:
        """Remove what was written. May be called again. On a full disk it cannot even be closed as it should, and would fill it until tomorrow."""
        self._place.drop(self._file)


def seal_of(file: BinaryIO) -> str:
    """What the end of a file says its seal is, hex; empty where there is none. Whether it fits is another question."""
    size = file.seek(0, os.SEEK_END)
    if size <= _SEAL:
        return ""
    file.seek(size - _SEAL)
    tail = file.read(_SEAL)
    return tail[_SKIPPABLE.size :].hex() if _SKIPPABLE.unpack_from(tail) == (_SKIPPABLE_MAGIC, 32) else ""


def open_segment(path: File) -> Segment:
    """Check the whole file against its seal and read its header. Raises ArchiveError."""
    try:
        with path.open("rb") as file:
            digest = _check_seal(path, file)
            return _read_header(path, file, digest)
    except OSError as error:
        raise ArchiveError(path, "", f"cannot be read: {error.strerror or error}") from error


def peek(path: File) -> Header:
    """The header, of a file whose seal nobody has checked. Raises ArchiveError."""
    try:
        with path.open("rb") as file:
            return _read_header(path, file, "").header
    except OSError as error:
        raise ArchiveError(path, "", f"cannot be read: {error.strerror or error}") from error


def _check_seal(path: File, file: BinaryIO) -> str:
    size = file.seek(0, os.SEEK_END)
    if size <= _SEAL:
        raise ArchiveError(path, f"byte {size}", "the file is cut, or not a Restow archive: it is too short for a sealed segment")
    file.seek(size - _SEAL)
    tail = file.read(_SEAL)
    if _SKIPPABLE.unpack_from(tail) != (_SKIPPABLE_MAGIC, 32):
        raise ArchiveError(path, f"byte {size - _SEAL}", "the seal is missing: the file is cut, or not a Restow archive")
    file.seek(0)
    seal, rest = hashlib.sha256(), size - _SEAL
    while rest:
        block = file.read(min(_BLOCK, rest))
        if not block:
            raise ArchiveError(path, f"byte {size - _SEAL - rest}", "the file became shorter while it was read")
        seal.update(block)
        rest -= len(block)
    if seal.digest() != tail[_SKIPPABLE.size :]:
        raise ArchiveError(path, _damage(path, file), "the content does not fit its seal: it was damaged or edited")
    return seal.hexdigest()


def _damage(path: File, file: BinaryIO) -> str:
    """Where a file that does not fit its seal stops making sense, as well as that can be told."""
    number = 0
    try:
        file.seek(0)
        for number, line in enumerate(_lines(file), 1):
            if number > 1:
                decode_line(line)
                msgspec.json.decode(line)
    except LineError:
        return f"line {number}"
    except (zstandard.ZstdError, msgspec.DecodeError, EOFError, UnicodeDecodeError, RecursionError):
        return f"after line {number}"
    return f"bytes 0 to {file.seek(0, os.SEEK_END)}"


def _read_header(path: File, file: BinaryIO, digest: str) -> Segment:
    file.seek(0)
    start = file.read(_MAX_HEADER)
    try:
        line, offset = unpack.head(start, _MAX_HEADER)
        header = msgspec.json.decode(line, type=Header)
    except EOFError:
        raise ArchiveError(path, "line 1", "the header is longer than 64 KiB; this is not a Restow archive") from None
    except unpack.TooMuch as error:
        raise ArchiveError(path, "line 1", str(error)) from error
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        raise ArchiveError(path, "line 1", f"it is not the header of a Restow archive: {error}") from error
    if header.format != FORMAT:
        raise ArchiveError(path, "line 1", f"format {header.format}; this Restow reads format {FORMAT}")
    if header.problem:
        raise ArchiveError(path, "line 1", header.problem)
    if not is_name(path.name, header):
        raise ArchiveError(
            path, "line 1", f"the header says {segment_name(header.first, header.last)}; the file was renamed or replaced"
        )
    return Segment(path, header, digest, offset)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Unpacked lines from the file's present position. Raises LineError, ZstdError."""
    begins = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(begins)
    try:
        yield from unpack.lines(file, unpack.most(size))
    except EOFError:
        raise LineError("the last line is cut") from None
    except unpack.TooMuch as error:
        raise LineError(str(error)) from error


def read_segment(segment: Segment, from_seq: int = 0) -> Iterator[list[Record]]:
    """The segment's records from `from_seq` on, in batches of at most 1000. Raises ArchiveError."""
    path, order, batch = segment.path, Order(segment.header.first, segment.header.holes), []
    number, size = 1, 0
    try:
        with path.open("rb") as file:
            file.seek(segment.offset)
            for number, line in enumerate(_lines(file), 2):
                record = decode_line(line)
                if not order.follows(record.seq):
                    raise ArchiveError(path, f"line {number}", f"sequence {record.seq} where {order.next} must be")
                if record.seq >= from_seq:
                    batch.append(record)
                    size += len(line)
                    if len(batch) == READ_BATCH or size >= unpack.BATCH_BYTES:
                        yield batch
                        batch, size = [], 0
    except LineError as error:
        raise ArchiveError(path, f"line {number}", str(error)) from error
    except zstandard.ZstdError as error:
        raise ArchiveError(path, f"after line {number}", f"cannot be unpacked: {error}") from error
    except OSError as error:
        raise ArchiveError(path, "", f"cannot be read: {error.strerror or error}") from error
    if order.next != segment.header.last + 1:
        raise ArchiveError(path, f"after line {number}", f"it ends at {order.next - 1}, its header says {segment.header.last}")
    if batch:
        yield batch
