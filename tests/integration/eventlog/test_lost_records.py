"""A real broker that loses records which it had acknowledged: its volume is an old copy, its file is cut, a bit of it has flipped."""

import asyncio
import os
import shutil
from contextlib import suppress

import pytest
from click.testing import CliRunner
from domain.build import node
from integration.runtime.chained import Writer
from integration.runtime.rig import Rig, soon, until

from restow.cli import log_repair
from restow.cli.main import cli
from restow.domain import record_trust, snapshot
from restow.domain.fold import FOLD_VERSION, fold_record
from restow.domain.history import Mark
from restow.domain.state import ClusterState
from restow.eventlog.archive import covered as archived
from restow.eventlog.archive import export, full_log, import_, open_archive
from restow.eventlog.jetstream import connect, open_snapshots
from restow.eventlog.port import LogError, LogMismatch
from restow.eventlog.snapshots import Snapshot
from restow.replay.breaks import check
from restow.replay.restore import fill
from restow.replay.snapshots import state_by_snapshot
from restow.replay.source import ListSource, Until, open_broker, open_path, save
from restow.replay.why import why
from restow.runtime import logs
from restow.runtime.loading import Loading
from restow.runtime.other_history import of_another_history

from .helpers import persist

RECORDS = 30


async def written(log, count):
    writer = Writer(log)
    for _ in range(count):
        await writer.write(node(f"n{await log.tail() + 1}"))
    return await writer.fold()


def blocks(server):
    """The files that hold the log's records."""
    return sorted(server.folder.glob("**/streams/restow-*/msgs/*.blk"))


def cut_half(server, old):
    (block,) = blocks(server)
    data = block.read_bytes()
    block.write_bytes(data[: len(data) * 2 // 3])
    for index in block.parent.glob("*.db"):
        index.unlink()


def cut_few(server, old):
    """Not even a whole record."""
    (block,) = blocks(server)
    block.write_bytes(block.read_bytes()[:-20])
    for index in block.parent.glob("*.db"):
        index.unlink()


def flip(server, old):
    (block,) = blocks(server)
    data = bytearray(block.read_bytes())
    data[data.index(b'"n20"') + 2] ^= 1
    block.write_bytes(data)
    for index in block.parent.glob("*.db"):
        index.unlink()


def restore(server, old):
    shutil.rmtree(server.folder)
    shutil.copytree(old, server.folder)


async def damaged(server, damage, opened, cluster, old):
    """What the log was, and the log that has lost some of it."""
    log = await opened(server.url, cluster)
    await written(log, RECORDS // 2)
    await asyncio.to_thread(server.stop)
    shutil.copytree(server.folder, old)
    await server.start_async()
    await until_connected(log)
    before = await written(log, RECORDS // 2)
    rig = Rig(log)
    return log, before.state, rig


async def until_connected(log):
    async with asyncio.timeout(30):
        await log.wait_connected()


@pytest.mark.parametrize("damage", [restore, cut_half, cut_few, flip])
async def test_who_has_read_what_is_lost_puts_that_on_record_and_nobody_decides_until_a_repair(own_server, opened, cluster, tmp_path, damage):
    log, before, rig = await damaged(own_server, damage, opened, cluster, tmp_path / "old")
    rig.start()
    try:
        await rig.lead()
        await rig.folded(RECORDS + 1)
        await asyncio.to_thread(own_server.stop)
        damage(own_server, tmp_path / "old")
        await own_server.start_async()
        # The service ends, as it would in a cluster, and has said why.
        done, _ = await soon(asyncio.wait(rig.tasks, return_when=asyncio.FIRST_COMPLETED))
        assert isinstance(done.pop().exception(), LogError)
    finally:
        await rig.end()
    await log.close()
    again = await connect(own_server.url, cluster, create=False)
    try:
        late = await Writer(again).fold()
        assert late.state.broken, "it is on record"
        assert 0 < len(late.state.nodes) <= RECORDS
        assert list(late.state.nodes) == list(before.nodes)[: len(late.state.nodes)]
        rig = Rig(again, holder="late").start()
        try:
            await soon(rig.follower.known.wait())
            rig.leadership.claim()
            await soon(rig.follower.to_tail())
            assert rig.follower.broken
            assert not rig.leadership.leading
            found = await log_repair.look(again, None, None)
            assert found.what == f"The log is broken at record {late.state.broken}"
            await log_repair.write(again, found, "ann", "a test")
            await until(lambda: rig.leadership.leading, rig.follower)
            assert rig.follower.broken == ""
        finally:
            await rig.end()
        await written(again, 3)
        records = [r for batch in [b async for b in batches(again)] for r in batch]
        report = check(ListSource(records, cluster=cluster, log_id=again.log_id))
        assert not report.broken
        assert [one.seq for one in report.breaks] == [late.state.broken]
        assert report.breaks[0].repaired == report.repairs[0]
    finally:
        await again.close()


async def batches(log):
    tail = await log.tail()
    async for batch in log.read(await log.first()):
        yield batch
        if batch[-1].seq >= tail:
            return


@pytest.mark.parametrize("damage", [restore, cut_half, cut_few, flip])
async def test_a_broker_and_services_that_died_together_are_found_out_by_what_the_last_leader_has_left(own_server, opened, cluster, tmp_path, damage):
    """Nobody is left who has read what is lost; the mark in his Lease is."""
    log, before, _ = await damaged(own_server, damage, opened, cluster, tmp_path / "old")
    mark = Mark(before.repairs, before.seq, before.history.digest)
    await log.close()
    await asyncio.to_thread(own_server.stop)
    damage(own_server, tmp_path / "old")
    await own_server.start_async()
    again = await opened(own_server.url, cluster)
    rig = Rig(again).start()
    try:
        rig.follower.expect(mark)
        await soon(rig.follower.known.wait())
        await soon(rig.follower.to_tail())
        rig.leadership.claim()
        assert f"it ends at {rig.state.seq}, and {RECORDS} was read of it before" in rig.follower.broken
        found = await log_repair.look(again, None, None, lost=RECORDS)
        await log_repair.write(again, found, "ann", "a test")
        await until(lambda: rig.leadership.leading, rig.follower)
    finally:
        await rig.end()


def flip_last(server):
    """The index stays, by which the broker counts its records."""
    (block,) = blocks(server)
    data = bytearray(block.read_bytes())
    data[data.rindex(b'"n30"') + 2] ^= 1
    block.write_bytes(data)


def cut_end(server):
    (block,) = blocks(server)
    data = block.read_bytes()
    block.write_bytes(data[: data.rindex(b'"n27"')])


@pytest.mark.parametrize(("damage", "left"), [(flip_last, 29), (cut_end, 26)])
async def test_the_last_records_that_a_broker_counts_and_cannot_show_keep_nobody_waiting(own_server, opened, cluster, damage, left):
    """Nobody was left who had read them: services, and commands, waited for ever to have folded what there is not."""
    log = await opened(own_server.url, cluster)
    await written(log, RECORDS)
    await log.close()
    await asyncio.to_thread(own_server.stop)
    damage(own_server)
    await own_server.start_async()
    again = await opened(own_server.url, cluster)
    assert (await again._stream.state()).last == RECORDS, "or the broker has found out by itself"
    assert (await again.tail(), again.claimed) == (left, RECORDS)

    def verified():
        source = open_broker(own_server.url, cluster)
        try:
            return check(source)
        finally:
            source.close()

    found = await asyncio.wait_for(asyncio.to_thread(verified), 30)
    assert (found.last, found.broken) == (left, left + 1)
    rig = Rig(again).start()
    try:
        await soon(rig.follower.known.wait())
        await soon(rig.follower.folded.reached(left))
        # The first commit comes behind what is lost, so from then on everybody knows.
        rig.leadership.claim()
        await until(lambda: rig.state.broken == left + 1, rig.follower)
        assert rig.follower.broken
        assert (await again.tail(), again.claimed) == (RECORDS + 1, 0)
        found = await log_repair.look(again, None, None)
        assert found.what == f"The log is broken at record {left + 1}"
        await log_repair.write(again, found, "ann", "a test")
        await until(lambda: rig.leadership.leading and not rig.follower.broken, rig.follower)
    finally:
        await rig.end()


async def test_a_snapshot_of_lost_records_is_not_shown_where_the_log_ends_with_others_just_there(own_server, opened, cluster):
    """Nothing comes behind it that would say so."""
    log = await opened(own_server.url, cluster)
    await keep(log, await written(log, 20))
    await keep(log, await written(log, RECORDS - 20))
    await log.close()
    await asyncio.to_thread(own_server.stop)
    cut_end(own_server)
    for index in blocks(own_server)[0].parent.glob("*.db"):
        index.unlink()
    await own_server.start_async()
    again = await opened(own_server.url, cluster)
    writer = Writer(again)
    while await again.tail() < RECORDS:
        await writer.write(node(f"other{await again.tail()}"))
    await again.truncate(10)

    def shown(seq):
        source = open_broker(own_server.url, cluster)
        try:
            return state_by_snapshot(source, seq=seq)
        finally:
            source.close()

    found = await asyncio.to_thread(shown, None)
    assert found.seq == RECORDS
    assert f"n{RECORDS}" not in found.nodes, "of the log that is lost"
    assert {"n20", "other29"} <= {*found.nodes}
    assert {*(await asyncio.to_thread(shown, 20)).nodes} == {f"n{number}" for number in range(1, 21)}, "one that is of this log is believed"


async def test_a_log_that_is_damaged_before_and_behind_its_snapshot_is_broken_where_services_stop(own_server, opened, cluster):
    """All began with the first damage, which the snapshot had passed: the repair that they asked for voided everything behind that, holds, windows and history of weeks; and verify and why said
    that none was needed."""
    log = await opened(own_server.url, cluster)
    writer = await written(log, 20)
    await keep(log, writer)
    await written(log, RECORDS - 20)
    await log.close()
    await asyncio.to_thread(own_server.stop)
    (block,) = blocks(own_server)
    data = bytearray(block.read_bytes())
    for name in (b'"n7"', b'"n25"'):
        data[data.index(name) + 2] ^= 1
    block.write_bytes(data)
    await own_server.start_async()
    again = await opened(own_server.url, cluster)
    assert await again.tail() == RECORDS

    def shown():
        source = open_broker(own_server.url, cluster)
        try:
            state = state_by_snapshot(source)
            return (state.broken, len(state.nodes)), why(source, "node/n1").verdict[0]
        finally:
            source.close()

    where, said = await asyncio.to_thread(shown)
    assert where == (25, 24)
    assert "no repair is needed" not in said
    verified = await asyncio.to_thread(CliRunner().invoke, cli, ["log", "verify", "--server", own_server.url, "--cluster", cluster])
    assert "no repair is needed" not in verified.output
    snapshots = await open_snapshots(again)
    found = await log_repair.look(again, snapshots, None)
    assert found.what == "The log is broken at record 25"
    await log_repair.write(again, found, "ann", "a test")
    state = await Loading(again, snapshots, None, lambda said: None, logs.silent()).state()
    assert (state.broken, state.repairs, len(state.nodes)) == (0, 1, 24)


@pytest.mark.parametrize(("lost", "broken", "nodes"), [((20,), 0, RECORDS), ((7, 20, 21), 21, 20)])
async def test_a_snapshot_whose_own_last_record_the_disk_has_changed_is_continued_by_the_next_one(own_server, opened, cluster, lost, broken, nodes):
    """That one was taken for another one of the same number: the snapshot was passed over, the log had "lost records", and of all that a repair was to void the snapshot had everything."""
    log = await opened(own_server.url, cluster)
    await keep(log, await written(log, 20))
    await written(log, RECORDS - 20)
    await log.close()
    await asyncio.to_thread(own_server.stop)
    (block,) = blocks(own_server)
    data = bytearray(block.read_bytes())
    for number in lost:
        data[data.index(b'"n%d"' % number) + 2] ^= 1
    block.write_bytes(data)
    await own_server.start_async()
    again = await opened(own_server.url, cluster)
    snapshots = await open_snapshots(again)
    load = Loading(again, snapshots, None, lambda said: None, logs.silent())
    state = await load.state()
    assert (load.began, load.mark, state.seq, state.broken, len(state.nodes)) == (20, None, RECORDS, broken, nodes)
    # One of records that the log has lost, and has others in their place, is still none of it.
    if broken:
        return
    other = await written(await opened(own_server.url, f"{cluster}-other"), 20)
    assert await of_another_history(again, other.state) == "record 20 is missing, and what comes behind it follows from another history: its writer had read another record 20, or another one before it"


async def test_a_repair_says_before_it_asks_that_the_archive_holds_what_is_missing(own_server, opened, cluster, tmp_path):
    """It advised nothing, and voided what the collector was about to take from there."""
    log = await opened(own_server.url, cluster)
    await written(log, RECORDS)
    await export(log, tmp_path / "whole", to_seq=20)
    await export(log, tmp_path / "short", to_seq=5)
    await log.close()
    await asyncio.to_thread(own_server.stop)
    (block,) = blocks(own_server)
    data = bytearray(block.read_bytes())
    data[data.index(b'"n7"') + 2] ^= 1
    block.write_bytes(data)
    await own_server.start_async()
    for archive, holds in (("whole", True), ("short", False)):
        at = ["--server", own_server.url, "--cluster", cluster, "--archive", str(tmp_path / archive)]
        asked = await asyncio.to_thread(CliRunner().invoke, cli, ["log", "repair", *at], "n\n")
        assert asked.exit_code == 1, asked.output
        assert "The log is broken at record 7." in asked.output
        assert ("The archive holds what is missing: the garbage collector takes it from there within a minute, and services go on. No repair is needed." in asked.output) == holds


async def keep(log, writer):
    await (await open_snapshots(log)).put(Snapshot(log.log_id, writer.state.seq, FOLD_VERSION, snapshot.dump(writer.state)))


@pytest.mark.parametrize("part", [0.1, 0.6, 0.95])
async def test_a_snapshot_of_which_a_part_is_damaged_is_passed_over_at_once(own_server, opened, cluster, part):
    """The broker counts what it cannot show; every service that started waited a minute for it."""
    log = await opened(own_server.url, cluster)
    for number in range(3):
        await persist(log, f"id-{number}")
    for seq in (1, 2):
        await (await open_snapshots(log)).put(Snapshot(log.log_id, seq, 1, os.urandom(1_200_000)))
    await log.close()
    await asyncio.to_thread(own_server.stop)
    (block,) = own_server.folder.glob("**/streams/OBJ_*/msgs/*.blk")
    data = bytearray(block.read_bytes())
    half = len(data) // 2
    data[half + int(half * part)] ^= 1
    block.write_bytes(data)
    await own_server.start_async()
    again = await opened(own_server.url, cluster)
    found = await asyncio.wait_for((await open_snapshots(again, create=False)).latest(), 20)
    assert found.seq == 1


async def test_a_record_that_is_lost_in_the_middle_is_a_hole_that_every_reader_passes_in_the_same_way(own_server, opened, cluster, tmp_path):
    """Large records, so that the broker keeps them in several files, of which one is damaged."""
    log = await opened(own_server.url, cluster)
    writer = Writer(log)
    for number in range(12):
        await writer.write(node(f"n{number}", labels={"large": "x" * 1_500_000}))
    await writer.fold()
    await log.close()
    await asyncio.to_thread(own_server.stop)
    files = blocks(own_server)
    assert len(files) > 2
    data = bytearray(files[1].read_bytes())
    data[len(data) // 2] ^= 1
    files[1].write_bytes(data)
    for index in files[1].parent.glob("*.db"):
        index.unlink()
    await own_server.start_async()
    again = await opened(own_server.url, cluster)
    late = await Writer(again).fold()
    assert late.state.seq == 12
    assert 0 < late.state.broken < 12
    assert len(late.state.nodes) == late.state.broken - 1

    # Who had read what is missing has stored a snapshot: services start from it, and `restow state` shows what they know.
    await (await open_snapshots(again)).put(Snapshot(again.log_id, 12, FOLD_VERSION, snapshot.dump(writer.state)))

    def present(seq=None):
        source = open_broker(own_server.url, cluster)
        try:
            return state_by_snapshot(source, seq=seq)
        finally:
            source.close()

    def told():
        source = open_broker(own_server.url, cluster)
        try:
            return [why(part, "node/n0").verdict[0] for part in (source, Until(source, 12))]
        finally:
            source.close()

    # What needs the log from its beginning says so, and advises no repair, which would void what services have decided since.
    said = f"the log is broken at record {late.state.broken} as its broker shows it now, so this is as of before that; services go on from a snapshot up to 12 by who had read it, and no repair is needed"
    assert [one.partition(":")[0] for one in await asyncio.to_thread(told)] == [said, said]
    verified = await asyncio.to_thread(CliRunner().invoke, cli, ["log", "verify", "--server", own_server.url, "--cluster", cluster])
    assert verified.exit_code == 1
    assert verified.output.endswith("Services go on from a snapshot up to 12 by who had read what is missing: no repair is needed (docs/failures.md).\n")

    shown = [await asyncio.to_thread(present, seq) for seq in (None, 11)]
    assert [(state.seq, state.broken, len(state.nodes)) for state in shown] == [(12, 0, 12), (11, late.state.broken, late.state.broken - 1)]

    found = await log_repair.look(again, None, None)
    await log_repair.write(again, found, "ann", "a test")
    await Writer(again).write(node("more"))
    whole = await Writer(again).fold()
    assert (whole.state.broken, whole.state.repairs) == (0, 1)
    assert "more" in whole.state.nodes

    # The archive goes on behind it, and says what is missing; so does an export.
    records = [r async for batch in batches(again) for r in batch]
    missing = [seq for seq in range(1, records[-1].seq + 1) if seq not in {r.seq for r in records}]
    assert missing
    folder = tmp_path / "archive"
    upto = missing[0] - 1
    await export(again, folder, to_seq=upto)
    archive = await export(again, folder, segment_bytes=1)
    assert (archive.first, archive.last, archived(folder, 1)) == (1, records[-1].seq, records[-1].seq)
    assert archive.holes == [(missing[0], missing[-1])]
    assert [r.seq for r in open_archive(folder).records()] == [r.seq for r in records]
    await Writer(again).write(node("and more"))
    assert (await export(again, folder)).last == records[-1].seq + 1
    async for batch in full_log(folder, again):
        if batch[-1].seq > records[-1].seq:
            break
    sources = [open_path(folder)]
    for name in ("log.jsonl.zst", "log.jsonl"):
        save(sources[0], tmp_path / name)
        sources.append(open_path(tmp_path / name))
    for source in sources:
        state = ClusterState()
        for batch in source.batches():
            for r in batch:
                fold_record(state, r.seq, r.family, r.envelope, r.body, again.log_id)
        assert (state.seq, state.broken, state.repairs, "and more" in state.nodes) == (records[-1].seq + 1, 0, 1, True)
        found = check(source)
        assert (found.broken, found.breaks[0].seq, found.repairs) == (0, missing[0], whole_repairs(records))
        with pytest.raises(LogMismatch, match=f"missing in it, for its broker had lost them.*--from {missing[-1] + 1}"):
            await fill(source, again)

    # It is put back from behind the hole on, and the collector folds the rest from its archive.
    at = ["--server", own_server.url, "--cluster", f"{cluster}-back", "--from", str(missing[-1] + 1)]
    done = await asyncio.to_thread(CliRunner().invoke, cli, ["log", "import", str(folder), *at])
    assert done.exit_code == 0, done.output
    back = await opened(own_server.url, f"{cluster}-back")
    assert (await back.first(), await back.tail()) == (missing[-1] + 1, records[-1].seq + 1)
    load = Loading(back, await open_snapshots(back), folder, lambda said: None, logs.silent())
    there = await load.state()
    assert (there.seq, there.broken, there.repairs, there.history) == (state.seq, 0, 1, state.history)
    after = Writer(back)
    after.state = there
    await after.write(node("at last"))
    assert "at last" in (await after.fold()).state.nodes


def whole_repairs(records):
    return [r.seq for r in records if record_trust.repairs(r.family, r.body)]


async def test_a_log_that_was_imported_has_the_digest_that_it_had(own_server, opened, cluster, tmp_path):
    """Also where strangers have written into it."""
    log = await opened(own_server.url, cluster)
    await written(log, 5)
    await log.broker.client.publish(f"restow.{cluster}.session", b"stranger", headers={"Some": "thing", "nats-like": "x"})
    await log.broker.client.publish(f"restow.{cluster}.audit", b"stranger")
    await log.broker.client.flush()
    async with asyncio.timeout(30):
        while await log.tail() < 7:
            await asyncio.sleep(0.01)
    before = await written(log, 5)
    await export(log, tmp_path / "archive")
    other = await opened(own_server.url, f"{cluster}-b", log_id=log.log_id)
    await import_(tmp_path / "archive", other)
    after = await Writer(other).fold()
    assert after.state.history == before.state.history
    assert after.state.broken == 0
    with suppress(LogError):
        await persist(other, "x")
    state = ClusterState()
    async for batch in batches(log):
        for r in batch:
            fold_record(state, r.seq, r.family, r.envelope, r.body, log.log_id)
    assert state.history == before.state.history
