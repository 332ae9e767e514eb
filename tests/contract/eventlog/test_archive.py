"""Archives hold exactly what the log held, from and into every adapter (DESIGN 2)."""

import asyncio
from contextlib import aclosing

import msgspec
import pytest

from restow.contracts.envelope import Envelope
from restow.eventlog.archive import export, full_log, import_, open_archive
from restow.eventlog.memory import MemoryLog
from restow.eventlog.parquet import write_parquet
from restow.eventlog.port import MAX_BODY, LogMismatch
from restow.eventlog.segment import ArchiveError, Header
from restow.eventlog.testing import envelope


async def fill(log, count, start=0):
    for number in range(start, start + count):
        family = ("session", "cluster", "gc")[number % 3]
        body = b'{"number":%d}' % number
        await log.append(family, body, envelope(family=family), expected_last=await log.last_of(family))


async def everything(batches, last):
    records = []
    async with asyncio.timeout(60), aclosing(batches):
        async for batch in batches:
            records += batch
            if records[-1].seq >= last:
                return records
    raise AssertionError("ended early")


async def test_an_export_continues_where_it_ended(log, tmp_path):
    await fill(log, 10)
    archive = await export(log, tmp_path / "a", segment_bytes=500)
    assert (archive.first, archive.last, archive.log_id) == (1, 10, log.log_id)
    assert len(archive.segments) > 2
    assert await export(log, tmp_path / "a") is not None, "nothing new is no error"
    await fill(log, 5, 10)
    await export(log, tmp_path / "a")
    again = open_archive(tmp_path / "a", log_id=log.log_id)
    assert list(again.records()) == await everything(log.read(1), 15)
    with pytest.raises(ValueError, match="continued at 16 only"):
        await export(log, tmp_path / "a", 3)


async def test_an_export_continues_although_the_log_lets_go_what_is_archived_meanwhile(log, tmp_path, monkeypatch):
    """The collector truncates beside its archiving: the archive's last record may go between two questions about it."""
    await fill(log, 10)
    await export(log, tmp_path / "a")
    await fill(log, 5, 10)
    first = log.first

    async def and_then_it_goes():
        begins = await first()
        await log.truncate(10)
        return begins

    monkeypatch.setattr(log, "first", and_then_it_goes)
    archive = await export(log, tmp_path / "a")
    assert (archive.first, archive.last) == (1, 15)


async def test_an_import_restores_sequences_bytes_and_id(log, make_log, tmp_path):
    await fill(log, 30)
    await export(log, tmp_path / "a")
    copy = await make_log(log_id=log.log_id)
    assert await import_(tmp_path / "a", copy) == 30
    original, restored = await everything(log.read(1), 30), await everything(copy.read(1), 30)
    assert [(r.seq, r.family, r.envelope, r.body) for r in original] == [
        (r.seq, r.family, r.envelope, r.body) for r in restored
    ]
    with pytest.raises(LogMismatch, match="is not empty"):
        await import_(tmp_path / "a", copy)


@pytest.mark.parametrize("body", [b"\x00\xff\n", b'{},"body":{}', b'{"a":{},"body":{}}', b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000])
async def test_a_record_that_is_not_ours_is_archived_and_restored_as_it_came(log, make_log, tmp_path, body):
    """The archive and the log are the full log, whoever wrote into it (RULES G-16)."""
    foreign = Envelope.of({"note": "not ours", "Nats-Msg-Id": "7", "body": '},"body":{}', "body64": "x", "headers": "{}"})
    await fill(log, 2)
    await log.append("gc", body, foreign, expected_last=0)
    await fill(log, 2, 3)
    archive = await export(log, tmp_path / "a")
    assert list(archive.records()) == await everything(log.read(1), 5)
    copy = await make_log(log_id=log.log_id)
    assert await import_(tmp_path / "a", copy) == 5
    for record in (await everything(log.read(1), 5))[2], (await everything(copy.read(1), 5))[2]:
        assert record.envelope.given["note"] == "not ours"
        assert record.body == body
    assert write_parquet(archive.records(), tmp_path / "log.parquet") == 5


async def test_an_archive_of_records_that_pack_to_nothing_can_be_read(tmp_path):
    """Whoever may append may append zeros: they are no reason to take our own archive for a bomb, and never to continue it."""
    log, last = MemoryLog(), 0
    for _ in range(26):
        last = await log.append("gc", bytes(MAX_BODY), Envelope.of({}), expected_last=last)
    archive = await export(log, tmp_path / "a")
    assert len(archive.segments) == 3
    assert sum(1 for _ in archive.records()) == 26


async def test_an_import_of_a_late_part_keeps_its_sequences(log, make_log, tmp_path):
    await fill(log, 12)
    await export(log, tmp_path / "a", 8)
    with pytest.raises(LogMismatch, match="begins at 8"):
        await import_(tmp_path / "a", await make_log(log_id=log.log_id))
    copy = await make_log(log_id=log.log_id, first_seq=8)
    assert await import_(tmp_path / "a", copy) == 5
    assert await copy.tail() == 12


async def test_an_import_into_another_log_is_refused(log, make_log, tmp_path):
    await fill(log, 3)
    await export(log, tmp_path / "a")
    with pytest.raises(LogMismatch, match="create it with the archive's id"):
        await import_(tmp_path / "a", await make_log())


async def test_archive_and_log_are_one_log_after_truncation(log, tmp_path):
    await fill(log, 12)
    before = await everything(log.read(1), 12)
    await export(log, tmp_path / "a", segment_bytes=700)
    await log.truncate(9)
    await fill(log, 3, 12)
    whole = await everything(full_log(tmp_path / "a", log), 15)
    assert [r.seq for r in whole] == list(range(1, 16))
    assert whole[:12] == before
    assert [r.seq for r in await everything(full_log(tmp_path / "a", log, 11), 15)] == [11, 12, 13, 14, 15]


async def test_a_hole_between_archive_and_log_is_refused(log, tmp_path):
    await fill(log, 12)
    await export(log, tmp_path / "late", 6, 8)
    await log.truncate(5)
    with pytest.raises(ArchiveError, match="records 1 to 5 are missing"):
        await everything(full_log(tmp_path / "none", log), 12)
    with pytest.raises(ArchiveError, match="records 1 to 5 are missing"):
        await everything(full_log(tmp_path / "late", log), 12)
    await log.truncate(9)
    with pytest.raises(ArchiveError, match="record 9 is missing"):
        await everything(full_log(tmp_path / "late", log, 6), 12)


async def test_an_archive_of_another_log_does_not_join(log, make_log, tmp_path):
    other = await make_log()
    await fill(other, 3)
    await export(other, tmp_path / "a")
    await fill(log, 3)
    with pytest.raises(ArchiveError, match="not from"):
        await everything(full_log(tmp_path / "a", log), 3)


@pytest.mark.parametrize(
    ("holes", "problem"),
    [
        (((3, 4),), ""), (((1, 2), (5, 5)), ""), (((0, 1),), "hole 0 to 1"), (((9, 10),), "hole 9 to 10"), (((4, 3),), "hole 4 to 3"),
        (((3, 5), (5, 6)), "hole 5 to 6"), (((5, 6), (3, 3)), "hole 3 to 3"),
    ],
)  # fmt: skip
def test_holes_are_between_the_records_of_a_segment(holes, problem):
    assert Header(1, "id", "c", 1, 10, "0" * 64, holes).problem.startswith(problem)
    assert bool(Header(1, "id", "c", 1, 10, "0" * 64, holes).problem) == bool(problem)


def test_what_has_no_hole_is_written_as_ever():
    assert b"holes" not in msgspec.json.encode(Header(1, "id", "c", 1, 10, "0" * 64))
