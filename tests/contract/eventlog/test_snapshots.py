"""What every store of snapshots promises (DESIGN 2)."""

import os

import pytest

from restow.eventlog.jetstream import objects, open_snapshots
from restow.eventlog.port import LogMismatch, Unavailable
from restow.eventlog.snapshots import DirectorySnapshots, Snapshot, SnapshotError, Snapshots, pack, unpack


@pytest.fixture
def snapshot(log):
    def make(seq, body=b"state", log_id=log.log_id):
        return Snapshot(log_id=log_id, seq=seq, fold_version=7, body=body)

    return make


def test_every_adapter_is_a_store_of_snapshots(snapshots):
    assert isinstance(snapshots, Snapshots)


async def test_nothing_stored_is_no_snapshot(snapshots):
    assert await snapshots.latest() is None
    assert await snapshots.sequences() == []


async def test_the_newest_comes_back_and_two_are_kept(snapshots, snapshot):
    for seq in (5, 90, 1000):
        await snapshots.put(snapshot(seq, b"state at %d" % seq))
    assert await snapshots.sequences() == [90, 1000]
    assert await snapshots.latest() == snapshot(1000, b"state at 1000")
    assert await snapshots.latest(at_most=999) == snapshot(90, b"state at 90")
    assert await snapshots.latest(at_most=89) is None


async def test_the_same_sequence_is_replaced(snapshots, snapshot):
    await snapshots.put(snapshot(5, b"old"))
    await snapshots.put(snapshot(5, b"new"))
    assert await snapshots.sequences() == [5]
    assert await snapshots.latest() == snapshot(5, b"new")


async def test_a_large_state_survives(snapshots, snapshot):
    body = os.urandom(3_000_000)
    await snapshots.put(snapshot(5, body))
    assert (await snapshots.latest()).body == body


async def test_an_empty_state_survives(snapshots, snapshot):
    await snapshots.put(snapshot(0, b""))
    assert await snapshots.latest() == snapshot(0, b"")


async def test_another_logs_snapshot_is_refused(snapshots, snapshot):
    with pytest.raises(LogMismatch, match="of log other"):
        await snapshots.put(snapshot(5, log_id="other"))


@pytest.mark.parametrize("adapter", ["file", "jetstream"], indirect=True)
async def test_a_store_of_another_logs_snapshots_is_refused_for_reading_and_writing(
    adapter, log, make_log, snapshots, snapshot, tmp_path
):
    await snapshots.put(snapshot(5))
    if adapter == "jetstream":
        await log.broker.api(f"STREAM.DELETE.restow-{log.cluster}")
        replaced = await make_log(log.cluster)
        stale, log_id = await open_snapshots(replaced), replaced.log_id
    else:
        stale, log_id = DirectorySnapshots(tmp_path / "snapshots", "new"), "new"
    with pytest.raises(LogMismatch, match=r"another history"):
        await stale.latest()
    with pytest.raises(LogMismatch, match=r"another history"):
        await stale.put(snapshot(6, log_id=log_id))
    assert await snapshots.sequences() == [5]


async def chunks_of(snapshots) -> dict[str, int]:
    info = await snapshots._broker.api(f"STREAM.INFO.{snapshots._stream}", {"subjects_filter": f"$O.{snapshots.bucket}.C.>"})
    return info["state"].get("subjects") or {}


@pytest.mark.parametrize("adapter", ["jetstream"], indirect=True)
async def test_what_a_killed_writer_left_behind_is_dropped_by_the_next_one_and_nothing_else(snapshots, snapshot, monkeypatch):
    """Killed between the chunks and their description, or between the end of an old description and its chunks."""
    await snapshots.put(snapshot(5))
    await snapshots.hold_back(1_000_000)
    kept = await chunks_of(snapshots)
    for name in ("killed", "killed-too"):
        for part in (b"a", b"b"):
            await snapshots._publish(snapshots._chunks_subject(name), part)
    await snapshots.put(snapshot(6))  # somebody may be writing them now
    assert len(await chunks_of(snapshots)) == len(kept) + 3
    monkeypatch.setattr(objects, "ORPHANED", 0)
    await snapshots.put(snapshot(7))
    assert len(await chunks_of(snapshots)) == 3, "two snapshots and the reserve"
    assert await snapshots.sequences() == [6, 7]
    assert await snapshots.latest() == snapshot(7)
    assert await snapshots.let_go()


@pytest.mark.parametrize("adapter", ["jetstream"], indirect=True)
async def test_what_somebody_else_put_into_the_bucket_and_a_damaged_description_are_passed_over(snapshots, snapshot):
    """Otherwise no service starts any more, for the sake of a cache."""
    await snapshots.put(snapshot(5))
    await snapshots.put(snapshot(6))
    where = f"$O.{snapshots.bucket}.M"
    note = b'{"name":"\xc2\xb2","bucket":"b","nuid":"n","size":1,"chunks":1,"digest":"d","mtime":"","headers":{}}'
    for subject, said in (
        (snapshots._meta_subject(f"{6:020d}"), b"junk"), (f"{where}.!!!x", b"{}"), (f"{where}.__79", b"\xff"), (snapshots._meta_subject("note"), note),
    ):
        await snapshots._publish(subject, said)
    assert await snapshots.latest() == snapshot(5)
    await snapshots.put(snapshot(7))
    assert await snapshots.latest() == snapshot(7)


@pytest.mark.parametrize("adapter", ["jetstream"], indirect=True)
async def test_a_writer_that_slept_so_long_that_its_chunks_were_dropped_describes_nothing(log, snapshots, snapshot, monkeypatch):
    """Two collectors: one is paused behind its chunks, the other, the leader by now, takes them for a dead one's."""
    await snapshots.put(snapshot(5))
    monkeypatch.setattr(objects, "ORPHANED", 0)
    other, put_chunks = await open_snapshots(log), snapshots._put_chunks

    async def sleepy(nuid, blob):
        await put_chunks(nuid, blob)
        await other.put(snapshot(8))

    monkeypatch.setattr(snapshots, "_put_chunks", sleepy)
    with pytest.raises(Unavailable, match="put it again"):
        await snapshots.put(snapshot(6))
    assert await snapshots.sequences() == [5, 8]
    assert await snapshots.latest() == snapshot(8)


@pytest.mark.parametrize("adapter", ["memory"], indirect=True)
def test_a_damaged_snapshot_is_refused_whatever_bit_flipped_and_wherever_it_is_cut(snapshot):
    blob = pack(snapshot(5, b"some state" * 3))
    for bit in range(len(blob) * 8):
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SnapshotError):
            unpack(bytes(damaged), "it")
    for size in range(len(blob)):
        with pytest.raises(SnapshotError):
            unpack(blob[:size], "it")


@pytest.mark.parametrize("adapter", ["memory"], indirect=True)
async def test_a_damaged_newest_snapshot_is_passed_over(snapshots, snapshot, caplog):
    await snapshots.put(snapshot(5))
    await snapshots.put(snapshot(9))
    snapshots.blobs[9] = snapshots.blobs[9][:-1]
    assert await snapshots.latest() == snapshot(5)
    assert "snapshot 9: the content does not fit its digest" in caplog.text
    snapshots.blobs[5] = b"{}"
    with pytest.raises(SnapshotError, match="snapshot 9"):
        await snapshots.latest()
