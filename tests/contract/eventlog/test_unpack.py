"""A file of a few kilobytes cannot fill the memory or the disk of whoever reads it: archives, exports and snapshots (issue 10, log 11)."""

import hashlib
import tracemalloc

import msgspec
import pytest
import zstandard

from restow.contracts.envelope import Envelope
from restow.eventlog import segment, snapshots, unpack
from restow.eventlog.folder import Folder
from restow.eventlog.lines import encode_line
from restow.eventlog.port import FORMAT, Record
from restow.eventlog.segment import ArchiveError, Header, open_segment, read_segment, segment_name
from restow.eventlog.snapshots import SnapshotError
from restow.eventlog.testing import envelope
from restow.replay.exported import write
from restow.replay.source import open_path

MIB = 1 << 20
HEADER = msgspec.json.encode(Header(FORMAT, "a" * 32, "test", 1, 1, "0" * 64)) + b"\n"


def packed(pieces, *, size=False, window=0):
    """A frame of what `pieces` gives; without its size in the header unless asked."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window or 21, write_content_size=size)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return b"".join([*(packer.compress(piece) for piece in pieces), packer.flush()])


def sealed(folder, head, records=b"", name=""):
    body = head + records
    path = folder / (name or segment_name(1, 1))
    path.write_bytes(body + segment._SKIPPABLE.pack(segment._SKIPPABLE_MAGIC, 32) + hashlib.sha256(body).digest())
    return path


@pytest.fixture
def frugal():
    """What the test allocates at most, in MiB; zstd's own window is bounded by what it refuses."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1] / MIB
    tracemalloc.stop()


BLANKS = [b" " * MIB] * 800


@pytest.mark.parametrize("name", ["", "export.jsonl.zst"], ids=["segment", "export"])
def test_a_header_of_800_mib_of_blanks_is_refused(tmp_path, frugal, name):
    bomb = packed(BLANKS)
    assert len(bomb) < 100_000
    path = sealed(tmp_path, bomb, name=name)
    with pytest.raises(ArchiveError, match=r"line 1: its header unpacks to over 65536 bytes.*get the file from where it was exported"):
        open_path(path)
    assert frugal() < 8


def test_one_line_without_an_end_is_refused(tmp_path, frugal):
    path = sealed(tmp_path, packed([HEADER]), packed(BLANKS))
    with pytest.raises(ArchiveError, match=r"line 1.* (unpacks to over|is longer than) 64 MiB"):
        list(read_segment(open_segment(path)))
    assert frugal() < 3 * 64


def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path, frugal, monkeypatch):
    """Records that are whole, but far too many for so small a file: nothing of the like fills a disk by import."""
    monkeypatch.setattr(unpack, "FLOOR", 4 * MIB)
    line = encode_line(Record(1, "session", envelope("same"), b'{"x":"' + b" " * 100_000 + b'"}', 0))
    lines = [line.replace(b'"seq":1', b'"seq":%d' % number) for number in range(1, 400)]
    path = sealed(tmp_path, packed([msgspec.json.encode(Header(FORMAT, "a" * 32, "test", 1, 399, "0" * 64)) + b"\n"]), packed(lines), segment_name(1, 399))
    with pytest.raises(ArchiveError, match=r"it unpacks to over \d+ MiB, 1000 times its size"):
        list(read_segment(open_segment(path)))


def test_an_export_of_records_that_pack_to_nothing_can_be_read(tmp_path, monkeypatch):
    """A stranger's, whoever may append."""
    monkeypatch.setattr(unpack, "FLOOR", MIB)
    path = tmp_path / "x.jsonl.zst"
    write(path, (Record(n, "gc", Envelope.of({}), bytes(MIB), 0) for n in range(1, 9)), first=1, last=8, log_id="a" * 32, cluster="c")
    assert sum(len(batch) for batch in open_path(path).batches()) == 8


def test_batches_of_large_records_are_handed_on_early(tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "BATCH_BYTES", 50_000)
    writer = segment.SegmentWriter(Folder(tmp_path), "a" * 32, "test", "0" * 64)
    for seq in range(1, 21):
        writer.add(Record(seq, "session", envelope(), b'"' + b"x" * 20_000 + b'"', 0))
    batches = list(read_segment(writer.finish()))
    assert [len(batch) for batch in batches] == [3] * 6 + [2]


def test_a_frame_that_asks_for_a_huge_window_is_refused(tmp_path):
    path = sealed(tmp_path, packed([HEADER]), packed([b"x" * MIB] * 40, window=27))
    with pytest.raises(ArchiveError, match=r"cannot be unpacked.*(memory|[Ww]indow)"):
        list(read_segment(open_segment(path)))


@pytest.mark.parametrize(
    ("size", "frame"),
    [
        (100, packed(BLANKS)),
        (100, packed([b" " * 800 * MIB], size=False)),
        (800 * MIB, packed(BLANKS)),
        (4 << 30, packed([b"x"])),
    ],
    ids=["no size in the frame", "one piece", "as large as it says", "larger than it is"],
)
def test_a_snapshot_that_expands_is_refused(frugal, size, frame):
    head = msgspec.json.encode(snapshots._Header(FORMAT, "a" * 32, 1, 5, size))
    rest = head + b"\n" + frame
    with pytest.raises(SnapshotError, match="snapshot 1: "):
        snapshots.unpack(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest, "snapshot 1")
    assert frugal() < 8


def test_a_line_of_an_export_that_is_not_packed_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "MAX_LINE", 10_000)
    path = tmp_path / "log.jsonl"
    path.write_bytes(HEADER + b" " * 20_000 + b"\n")
    with pytest.raises(ArchiveError, match="the line is longer than"):
        open_path(path)
