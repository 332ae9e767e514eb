"""A log, or a part of it, in one file of any name.

`<name>.jsonl.zst` is an archive segment (`eventlog.segment`): renamed, it can join an archive. `<name>.jsonl` is the same
unpacked: the header line, one record a line, and the seal as the last line, `{"restow":"seal","sha256":…}`, the SHA-256 of
every byte before it. Either way a single changed bit is noticed before the first record is used.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import zstandard

from restow.eventlog import unpack
from restow.eventlog.archive import Archive, open_archive
from restow.eventlog.disk import sync_folder
from restow.eventlog.folder import Folder
from restow.eventlog.lines import LineError, decode_line, encode_line
from restow.eventlog.port import FORMAT, READ_BATCH, Record
from restow.eventlog.segment import GENESIS, ArchiveError, Header, Order, SegmentWriter, is_name, segment_name

PACKED, PLAIN = ".jsonl.zst", ".jsonl"
_HEADER = 64 * 1024
_BLOCK = 1024 * 1024


class _Seal(msgspec.Struct, tag_field="restow", tag="seal", forbid_unknown_fields=True):
    sha256: str


class PlainFile:
    """A `.jsonl` whose seal fits. Made by `open_plain`."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path, self.header = path, header

    def batches(self, from_seq: int) -> Iterator[list[Record]]:
        """Records from `from_seq` on. Raises ArchiveError."""
        order, batch, size = Order(self.header.first, self.header.holes), [], 0
        with self.path.open("rb") as file:
            file.readline()
            for number, line in enumerate(unpack.plain_lines(file), 2):
                if order.next > self.header.last:
                    break
                record = _record(self.path, number, line)
                if not order.follows(record.seq):
                    raise ArchiveError(self.path, f"line {number}", f"sequence {record.seq} where {order.next} must be")
                if record.seq >= from_seq:
                    batch.append(record)
                    size += len(line)
                    if len(batch) == READ_BATCH or size >= unpack.BATCH_BYTES:
                        yield batch
                        batch, size = [], 0
        if order.next != self.header.last + 1:
            raise ArchiveError(self.path, "", f"it ends at {order.next - 1}, its header says {self.header.last}")
        if batch:
            yield batch


def open_packed(path: Path) -> Archive:
    """A segment under any name. Raises ArchiveError with this name."""
    header = _packed_header(path)
    if header is None or is_name(path.name, header):
        return open_archive(path)
    with tempfile.TemporaryDirectory(prefix="restow-") as folder:
        named = Path(folder) / segment_name(header.first, header.last)
        named.symlink_to(path.resolve())
        try:
            archive = open_archive(named)
        except ArchiveError as error:
            raise ArchiveError(path, error.where, error.why) from error
    segment = msgspec.structs.replace(archive.segments[0], path=path)
    return Archive(path, [segment])


def _packed_header(path: Path) -> Header | None:
    """The header if there is one; what else the file may be is for `open_archive` to say."""
    try:
        with path.open("rb") as file:
            line, _ = unpack.head(file.read(_HEADER), _HEADER)
        return msgspec.json.decode(line, type=Header)
    except (OSError, EOFError, unpack.TooMuch, zstandard.ZstdError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def open_plain(path: Path) -> PlainFile:
    """Check every byte of a `.jsonl`. Raises ArchiveError (file, line, reason)."""
    try:
        return _open_plain(path)
    except OSError as error:
        raise ArchiveError(path, "", f"cannot be read: {error.strerror or error}") from error
    except unpack.TooMuch as error:
        raise ArchiveError(path, "", str(error)) from error


def _open_plain(path: Path) -> PlainFile:
    digest, last, number = hashlib.sha256(), b"", 0
    header: Header | None = None
    with path.open("rb") as file:
        for number, line in enumerate(unpack.plain_lines(file), 1):
            if number == 1:
                header = _plain_header(path, line)
            digest.update(last)
            last = line
    if header is None:
        raise ArchiveError(path, "", "the file is empty; a Restow export has a header, records and a seal")
    if not last.endswith(b"\n"):
        raise ArchiveError(path, f"line {number}", "the line is cut: the file was not copied to its end")
    try:
        seal = msgspec.json.decode(last, type=_Seal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ArchiveError(path, f"line {number}", "the seal is missing: the file is cut, or not a Restow export") from None
    if seal.sha256 != digest.hexdigest():
        raise ArchiveError(path, _damage(path, header), "the content does not fit its seal: it was damaged or edited")
    return PlainFile(path, header)


def _plain_header(path: Path, line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArchiveError(path, "line 1", f"it is not the header of a Restow export: {error}") from error
    if header.format != FORMAT:
        raise ArchiveError(path, "line 1", f"format {header.format}; this Restow reads format {FORMAT}")
    if header.problem:
        raise ArchiveError(path, "line 1", header.problem)
    return header


def _damage(path: Path, header: Header) -> str:
    """Where a file that does not fit its seal stops making sense, as well as that can be told."""
    order, number = Order(header.first, header.holes), 1
    with path.open("rb") as file:
        file.readline()
        for number, line in enumerate(file, 2):
            if order.next > header.last:
                break
            try:
                msgspec.json.decode(line)
                if not order.follows(decode_line(line).seq):
                    return f"line {number}"
            except (LineError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return f"line {number}"
    return f"lines 1 to {number}"


def _record(path: Path, number: int, line: bytes) -> Record:
    try:
        return decode_line(line)
    except LineError as error:
        raise ArchiveError(path, f"line {number}", str(error)) from error


def write(
    path: Path,
    records: Iterable[Record],
    *,
    first: int,
    last: int,
    log_id: str,
    cluster: str,
    progress: Callable[[int], None] = lambda seq: None,
) -> int:
    """Write records first..last to `path`, packed where its name ends in `.zst`; returns its bytes. The file appears only
    when it is whole. Its folder must be there. Raises OSError, and what `records` raises."""
    with tempfile.TemporaryDirectory(prefix=".restow-export-", dir=path.parent) as scratch:
        if path.name.endswith(PACKED):
            writer = SegmentWriter(Folder(Path(scratch)), log_id, cluster, GENESIS, Order(first, None))
            try:
                for record in records:
                    writer.add(record)
                    progress(record.seq)
                segment = writer.finish()
                made = Path(scratch) / segment.path.name
            finally:
                writer.abandon()
        else:
            made = Path(scratch) / "export"
            lines, order = Path(scratch) / "lines", Order(first, None)
            _write_lines(lines, records, order, progress)
            _write_plain(made, lines, Header(FORMAT, log_id, cluster, first, order.next - 1, GENESIS, tuple(order.holes)))
        size = made.stat().st_size
        os.replace(made, path)
    sync_folder(path.parent)
    return size


def _write_lines(path: Path, records: Iterable[Record], order: Order, progress: Callable[[int], None]) -> None:
    """The header comes before them, and says what they lack."""
    with path.open("wb", buffering=_BLOCK) as file:
        for record in records:
            if not order.follows(record.seq):
                raise ArchiveError(path, "", f"record {record.seq} does not follow {order.next - 1}")
            file.write(encode_line(record))
            progress(record.seq)


def _write_plain(path: Path, lines: Path, header: Header) -> None:
    digest = hashlib.sha256()
    with path.open("wb", buffering=_BLOCK) as file, lines.open("rb") as body:
        block = msgspec.json.encode(header) + b"\n"
        while block:
            digest.update(block)
            file.write(block)
            block = body.read(_BLOCK)
        file.write(msgspec.json.encode(_Seal(digest.hexdigest())) + b"\n")
        file.flush()
        os.fsync(file.fileno())
