"""A log may come from anywhere, and is never trusted."""

import gc
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress

import pytest
import zstandard
from replay.handmade import placements

from restow.eventlog.archive import export
from restow.eventlog.memory import MemoryLog
from restow.eventlog.port import Closed, LogMismatch
from restow.eventlog.segment import ArchiveError
from restow.replay import exported
from restow.replay.source import ListSource, LiveSource, open_path


def written(path, source=None):
    source = source or placements().source()
    records = (r for batch in source.batches() for r in batch)
    exported.write(path, records, first=source.first, last=source.last, log_id=source.log_id, cluster=source.cluster)
    return path


def everything(source, *bounds):
    return [r for batch in source.batches(*bounds) for r in batch]


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.zst"])
def test_an_exported_file_gives_the_same_records(tmp_path, name):
    source = open_path(written(tmp_path / name))
    assert everything(source) == placements().records
    assert (source.first, source.last, source.log_id, source.cluster) == (1, 7, "f" * 32, "test")
    assert [r.seq for r in everything(source, 3, 5)] == [3, 4, 5]
    assert [r.seq for r in everything(source, 6)] == [6, 7]


def test_a_part_keeps_its_sequences(tmp_path):
    part = ListSource(placements().records[2:5], log_id="f" * 32)
    for name in ("part.jsonl", "part.jsonl.zst"):
        assert [r.seq for r in everything(open_path(written(tmp_path / name, part)))] == [3, 4, 5]


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.zst"])
def test_every_flipped_bit_is_refused(tmp_path, name):
    path = written(tmp_path / name)
    whole = path.read_bytes()
    for at in range(0, len(whole), 37):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(ArchiveError, match=str(path)):
            everything(open_path(path))


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.zst"])
def test_every_truncation_is_refused(tmp_path, name):
    path = written(tmp_path / name)
    whole = path.read_bytes()
    for size in [*range(0, len(whole), 61), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ArchiveError, match=str(path)):
            everything(open_path(path))


def test_the_line_of_the_damage_is_named(tmp_path):
    path = written(tmp_path / "log.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"seq":4', b'"seq":5')
    path.write_bytes(b"".join(lines))
    with pytest.raises(ArchiveError, match="line 5: the content does not fit its seal"):
        open_path(path)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.jsonl", b'{"hello":1}\n', "not the header of a Restow export"),
        ("a.jsonl", b"", "the file is empty"),
        ("a.jsonl", b'{"restow":"archive","format":9,"log_id":"x","cluster":"c","first":1,"last":1,"previous":""}\n', "format 9"),
        ("a.jsonl.zst", zstandard.compress(b'{"hello":1}\n'), "cut"),
        ("a.jsonl.zst", b"hello" * 100, "seal is missing"),
        ("a.tar", b"hello" * 100, "seal is missing"),
    ],
)
def test_foreign_files_are_refused(tmp_path, name, content, why):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ArchiveError, match=why):
        open_path(tmp_path / name)


def test_a_missing_file_is_refused(tmp_path):
    for name in ("none.jsonl", "none.jsonl.zst", "none"):
        with pytest.raises(ArchiveError, match="No such file"):
            open_path(tmp_path / name)


def test_a_list_with_a_hole_is_refused():
    records = placements().records
    with pytest.raises(LogMismatch, match="sequence 3 where 2 must be"):
        ListSource([records[0], records[2]])


async def _filled():
    log = MemoryLog("test")
    for record in placements().records:
        await log.append(record.family, record.body, record.envelope, expected_last=await log.last_of(record.family))
    return log


def test_a_live_log_is_read_up_to_its_tail_when_opened():
    source = LiveSource(_filled, "memory")
    try:
        assert [r.seq for r in everything(source)] == [1, 2, 3, 4, 5, 6, 7]
        assert [r.seq for r in everything(source, 2, 3)] == [2, 3]
        assert everything(source, 8) == []
    finally:
        source.close()
        source.close()


def test_closed_while_others_read_nothing_is_left_behind(caplog):
    """Readers that begin and end all the time, as the console's stories do: whatever was asked of the loop has come to an end when it is closed."""
    for round in range(60):
        source, ready = LiveSource(_filled, "memory"), threading.Barrier(5)

        def reads(source=source, ready=ready):
            ready.wait()
            with suppress(Closed):
                while True:
                    everything(source, 1, 3)

        def follows(source=source, ready=ready):
            ready.wait()
            # Cancelled while it waits for more, or told at its next question.
            with suppress(Closed, CancelledError):
                for _ in source.follow(1):
                    pass

        readers = [threading.Thread(target=one) for one in (reads, reads, reads, follows)]
        for one in readers:
            one.start()
        ready.wait()
        time.sleep(round % 5 / 500)
        source.close()
        for one in readers:
            one.join(5)
            assert not one.is_alive()
        with pytest.raises(Closed):
            everything(source)
    gc.collect()
    assert [record.getMessage() for record in caplog.records] == []


def test_archive_and_live_log_are_one(tmp_path):
    async def truncated():
        log = await _filled()
        await export(log, tmp_path)
        await log.truncate(5)
        return log

    source = LiveSource(truncated, "memory", tmp_path)
    try:
        assert (source.first, source.last) == (1, 7)
        assert [r.seq for r in everything(source)] == [1, 2, 3, 4, 5, 6, 7]
    finally:
        source.close()


def test_an_archive_folder_is_a_source(tmp_path):
    async def archived():
        log = await _filled()
        await export(log, tmp_path, segment_bytes=1000)
        return log

    LiveSource(archived, "memory").close()
    source = open_path(tmp_path)
    assert len(list(tmp_path.glob("*.zst"))) > 1
    assert [r.body for r in everything(source)] == [r.body for r in placements().records]
