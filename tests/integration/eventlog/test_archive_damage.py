"""An archive comes back byte for byte, or is refused with file, place and reason."""

import asyncio
import json
import os
import random
import resource
import shutil
import subprocess

import pytest
import zstandard
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slow_archiver import SlowArchiver

from restow.eventlog.archive import export, open_archive
from restow.eventlog.folder import Folder
from restow.eventlog.memory import MemoryLog
from restow.eventlog.port import Record
from restow.eventlog.segment import GENESIS, ArchiveError, SegmentWriter
from restow.eventlog.testing import envelope

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)
BODIES = st.binary(max_size=200) | JSON.map(lambda v: json.dumps(v).encode()) | st.sampled_from([b',"body":', b'{"body":1}\n'])


def write(folder, bodies, *, log_id="a-log", first=1, previous=GENESIS, family="session"):
    """One segment of these bodies."""
    folder.mkdir(exist_ok=True)
    writer = SegmentWriter(Folder(folder), log_id, "test", previous)
    try:
        for seq, body in enumerate(bodies, first):
            writer.add(Record(seq, family, envelope(f'id-"{seq}', read=seq), body, seq * 1000))
        return writer.finish()
    finally:
        writer.abandon()


def read(path, **options):
    return list(open_archive(path, **options).records())


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies=st.lists(BODIES, min_size=1, max_size=20), cut=st.integers(0, 19))
def test_whatever_bytes_go_in_come_out(tmp_path, bodies, cut):
    folder = tmp_path / "a"
    shutil.rmtree(folder, ignore_errors=True)
    head, tail = bodies[:cut], bodies[cut:]
    previous = write(folder, head).digest if head else GENESIS
    if tail:
        write(folder, tail, first=len(head) + 1, previous=previous)
    records = read(folder)
    assert [r.body for r in records] == bodies
    assert [(r.seq, r.time, r.envelope.id) for r in records] == [
        (n, n * 1000, f'id-"{n}') for n in range(1, len(bodies) + 1)
    ]
    assert [r.seq for r in open_archive(folder).records(3)] == list(range(3, len(bodies) + 1))


def test_every_flipped_bit_is_refused(tmp_path):
    segment = write(tmp_path, [b'{"n":%d}' % n for n in range(3)])
    blob = segment.path.read_bytes()
    for bit in range(len(blob) * 8):
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        segment.path.write_bytes(damaged)
        with pytest.raises(ArchiveError) as refused:
            open_archive(tmp_path)
        assert str(segment.path) in str(refused.value)
        assert refused.value.where


def test_every_truncation_and_addition_is_refused(tmp_path):
    segment = write(tmp_path, [b'{"n":%d}' % n for n in range(3)])
    blob = segment.path.read_bytes()
    for damaged in [blob[:size] for size in range(len(blob))] + [blob + b"x", blob + blob, b"x" + blob]:
        segment.path.write_bytes(damaged)
        with pytest.raises(ArchiveError, match=r"byte|line"):
            open_archive(tmp_path)


def test_sampled_damage_in_a_large_segment_is_refused(tmp_path):
    segment = write(tmp_path, [random.Random(n).randbytes(300) for n in range(2000)])
    blob = segment.path.read_bytes()
    chance = random.Random(1)
    for _ in range(60):
        damaged = bytearray(blob)
        at = chance.randrange(len(blob))
        damaged[at] ^= 1 << chance.randrange(8)
        segment.path.write_bytes(damaged)
        with pytest.raises(ArchiveError):
            open_archive(tmp_path)


@pytest.fixture
def chain(tmp_path):
    """Three segments, 1 to 9."""
    folder = tmp_path / "chain"
    segments = []
    for first in (1, 4, 7):
        previous = segments[-1].digest if segments else GENESIS
        segments.append(write(folder, [b"%d" % n for n in range(first, first + 3)], first=first, previous=previous))
    assert [r.seq for r in read(folder)] == list(range(1, 10))
    return folder, segments


def test_a_missing_segment_is_refused(chain):
    folder, segments = chain
    segments[1].path.unlink()
    with pytest.raises(ArchiveError, match=r"00007-.*line 1: records 4 to 6 are missing before it"):
        open_archive(folder)


def test_a_missing_first_segment_is_refused(chain):
    folder, segments = chain
    segments[0].path.unlink()
    with pytest.raises(ArchiveError, match=r"00004-.*a segment before it is missing"):
        open_archive(folder)


def test_renamed_and_reordered_segments_are_refused(chain):
    folder, segments = chain
    spare = folder / "spare"
    segments[1].path.rename(spare)
    segments[2].path.rename(segments[1].path)
    spare.rename(segments[2].path)
    with pytest.raises(ArchiveError, match="was renamed or replaced"):
        open_archive(folder)


def test_a_duplicated_segment_is_refused(chain):
    folder, segments = chain
    write(folder, [b"%d" % n for n in range(4, 6)], first=4, previous=segments[0].digest)
    with pytest.raises(ArchiveError, match=r"it begins at 4, but .* already ends at 5"):
        open_archive(folder)


def test_a_replaced_segment_breaks_the_chain(chain):
    folder, segments = chain
    write(folder, [b"40", b"50", b"60"], first=4, previous=segments[0].digest)
    with pytest.raises(ArchiveError, match=r"00007-.*does not continue .*00004-.* was replaced"):
        open_archive(folder)


def test_a_foreign_segment_is_refused(chain):
    folder, segments = chain
    write(folder, [b"1"], first=10, previous=segments[2].digest, log_id="foreign")
    with pytest.raises(ArchiveError, match="it is from log foreign, the segment before from a-log"):
        open_archive(folder)


def test_an_archive_of_another_log_is_refused(chain):
    with pytest.raises(ArchiveError, match=r"line 1: it is from log a-log, not from mine"):
        open_archive(chain[0], log_id="mine")


def test_things_that_are_no_archive_are_refused(tmp_path):
    with pytest.raises(ArchiveError, match="holds no segment"):
        open_archive(tmp_path)
    with pytest.raises(ArchiveError, match="cannot be read: No such file"):
        open_archive(tmp_path / "none.jsonl.zst")
    (tmp_path / "x.jsonl.zst").write_bytes(zstandard.compress(b"".join(b"%d\n" % n for n in range(100))))
    with pytest.raises(ArchiveError, match="seal is missing: the file is cut, or not a Restow archive"):
        open_archive(tmp_path)


def test_a_single_segment_can_be_read_alone(chain):
    assert [r.seq for r in read(chain[1][1].path)] == [4, 5, 6]


def test_an_unfinished_segment_leaves_nothing(tmp_path):
    writer = SegmentWriter(Folder(tmp_path), "a-log", "test", GENESIS)
    writer.add(Record(1, "session", envelope(), b"{}", 0))
    writer.abandon()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ArchiveError, match="record 3 does not follow 1"):
        _skip(SegmentWriter(Folder(tmp_path), "a-log", "test", GENESIS))


def _skip(writer):
    try:
        for seq in (1, 3):
            writer.add(Record(seq, "session", envelope(), b"{}", 0))
    finally:
        writer.abandon()


def test_standard_tools_can_read_it(tmp_path):
    segment = write(tmp_path, [b'{"n":1}', b'{"n":2}'])
    blob = segment.path.read_bytes()
    unpacked = zstandard.ZstdDecompressor().stream_reader(blob, read_across_frames=True).readall()
    lines = [json.loads(line) for line in unpacked.splitlines()]
    assert lines[0]["log_id"] == "a-log"
    assert [line["body"] for line in lines[1:]] == [{"n": 1}, {"n": 2}]
    assert lines[1]["headers"]["restow-read"] == "1"
    if tool := shutil.which("zstd"):
        assert subprocess.run([tool, "-dc", segment.path], capture_output=True, check=True).stdout == unpacked


def test_parquet_has_a_row_for_each_event(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    from restow.eventlog.parquet import write_parquet

    bodies = [
        b'{"decisions":[{"command":{"type":"place","x":1},"events":[{"type":"placed","p":1},{"type":"placed","p":2}]},'
        b'{"command":{"type":"noop"},"events":[]}]}',
        b'{"decisions":[]}',
    ]
    write(tmp_path, bodies)
    assert write_parquet(open_archive(tmp_path).records(), tmp_path / "log.parquet") == 3
    rows = parquet.read_table(tmp_path / "log.parquet").to_pylist()
    assert [(r["seq"], r["decision"], r["command_type"], r["event_type"]) for r in rows] == [
        (1, 0, "place", "placed"),
        (1, 0, "place", "placed"),
        (1, 1, "noop", None),
    ]
    assert rows[1]["event"] == '{"type":"placed","p":2}'
    assert (rows[0]["ce_id"], rows[0]["read"], rows[0]["logic"]) == ('id-"1', 1, "test@1")
    assert write_parquet([Record(1, "session", envelope(), b"[]", 0)], tmp_path / "void.parquet") == 1
    (row,) = parquet.read_table(tmp_path / "void.parquet").to_pylist()
    assert (row["seq"], row["command_type"], row["event"]) == (1, None, None)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    import sys

    from restow.eventlog.parquet import ParquetError, write_parquet

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ParquetError, match=r"pip install 'restow\[parquet\]'"):
        write_parquet([], tmp_path / "x.parquet")


async def test_an_export_that_is_cancelled_leaves_whole_segments_only(tmp_path):
    log, last = MemoryLog(), 0
    for _ in range(5000):
        last = await log.append("session", b"{}", envelope(), expected_last=last)
    task = asyncio.create_task(export(log, tmp_path, segment_bytes=100_000))
    await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [f.name for f in tmp_path.iterdir() if f.name.startswith(".")] == []
    await export(log, tmp_path)
    assert [r.seq for r in read(tmp_path, log_id=log.log_id)] == list(range(1, 5001))


def test_two_writers_in_one_folder_do_not_write_into_one_file_and_what_a_killed_one_left_goes(tmp_path):
    killed, young = tmp_path / ".segment.1.tmp", tmp_path / ".segment.1.abcd.tmp"
    for file in (killed, young):
        file.write_bytes(b"half")
    os.utime(killed, (1, 1))
    one, two = (SegmentWriter(Folder(tmp_path), "id", "c", GENESIS) for _ in range(2))
    assert not killed.exists()
    assert young.exists()
    assert len(list(tmp_path.glob(".segment.*.tmp"))) == 3
    one.abandon()
    two.abandon()
    assert list(tmp_path.iterdir()) == [young]


def test_an_archive_for_which_the_disk_has_no_capacity_leaves_nothing_on_it(tmp_path):
    """It is tried again every half a minute, and what an attempt had left would be in the way of the next ones for a day."""
    bodies, before = [random.Random(i).randbytes(3_000) for i in range(20)], resource.getrlimit(resource.RLIMIT_FSIZE)
    for capacity in range(1_000, 60_000, 1_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (capacity, before[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                write(tmp_path, bodies)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


async def test_two_collectors_that_archive_at_once_leave_one_chain(tmp_path, monkeypatch):
    """One has lost its lease in the middle of a segment and has not ended yet: what both began at the same record could not be joined afterwards."""
    log, last = MemoryLog(), 0
    for _ in range(50):
        last = await log.append("session", b"{}", envelope(), expected_last=last)
    await export(log, tmp_path, to_seq=10)
    slow = SlowArchiver(monkeypatch)
    one = asyncio.create_task(export(log, tmp_path, to_seq=20))
    async with asyncio.timeout(30):
        await slow.writing.wait()
        with pytest.raises(ArchiveError, match="another process is writing to it"):
            await export(log, tmp_path, to_seq=30)
    slow.may.set()
    assert (await one).last == 20
    assert (await export(log, tmp_path, to_seq=40)).last == 40
    assert [r.seq for r in read(tmp_path, log_id=log.log_id)] == list(range(1, 41))
