"""The collector's snapshots and archive when things are lost, too large or full: archive and stream are always the whole log, or it is said."""

import asyncio
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from domain.build import NOW, configured, given, node, run, when

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.reader import READER
from restow.domain import config, snapshot
from restow.domain.effects import DropPrefix
from restow.domain.fold import FOLD_VERSION
from restow.domain.gc import decider
from restow.domain.history import KEPT
from restow.domain.records import Needs
from restow.domain.state import ClusterState
from restow.eventlog.archive import covered as archived
from restow.eventlog.archive import export, open_archive, place_of
from restow.eventlog.bucket import is_address
from restow.eventlog.memory import MemoryLog
from restow.eventlog.port import Full, LogMismatch, Unavailable, Unknown
from restow.eventlog.snapshots import MemorySnapshots, Snapshot
from restow.garbage_collector import rereading, snapshot_keeper
from restow.garbage_collector.effects import executors
from restow.garbage_collector.metrics import CollectorMetrics
from restow.garbage_collector.snapshot_keeper import Keeper
from restow.runtime import loading, logs
from restow.runtime.commander import Commander
from restow.runtime.effector import Done, Retry
from restow.runtime.follower import Follower
from restow.runtime.health import Health
from restow.runtime.leadership import Leadership
from restow.runtime.loading import Loading
from restow.runtime.settings import Settings
from restow.runtime.telemetry import Metrics

from .chained import Writer
from .rig import SOON, ManualClock, facts, memory


class Collector:
    """The collector's parts on a log in memory, as `runtime.service.Context` has them."""

    client = None

    def __init__(self, log, data, conf, state, snapshots=None):
        kept = {"archive": data} if is_address(data) else {"data": str(data)}
        self.log, self.settings, self.clock, self.health = log, Settings(cluster=log.cluster, **kept), ManualClock(), Health()
        self.snapshots = snapshots or MemorySnapshots(log.log_id)
        self.follower = Follower(log, "gc", state)
        self.leadership = Leadership("gc", "one")
        self.metrics = Metrics("gc")
        self.commander = Commander(
            log, self.follower, decider, self.leadership, self.clock, self.metrics, service="garbage_collector"
        )
        self.commander.configuration = config.text_of(conf)
        self.keeper = Keeper(self)

    @property
    def state(self):
        return self.follower.state

    @property
    def folder(self):
        return Path(self.settings.archive_of(self.log.cluster))

    async def drop(self, upto):
        return await executors(self)[DropPrefix].execute(DropPrefix(upto), self.state)

    async def until(self, holds):
        """Not by turns: threads write the files."""
        async with asyncio.timeout(SOON):
            while not holds():
                await asyncio.sleep(0.002)

    def notes(self):
        return self.health.report().notes


@asynccontextmanager
async def collecting(log, data, state=None, snapshots=None, **conf):
    one = Collector(log, data, config.GcConfig(**conf), ClusterState() if state is None else snapshot.load(snapshot.dump(state)), snapshots)
    tasks = [asyncio.create_task(part.run()) for part in (one.follower, one.commander, one.keeper)]
    one.leadership.claim()
    try:
        await one.until(lambda: one.leadership.leading and one.state.gc_config == config.GcConfig(**conf))
        yield one
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def grow(log, count=30):
    for i in range(count):
        await facts(log, node(f"n{i:02}"))


async def records_of(log, first=1):
    found = []
    async for batch in log.read(first):
        found += batch
        if found[-1].seq == await log.tail():
            return found


async def copy_of(log):
    copy, last = MemoryLog(clock=lambda: NOW * 1_000_000, log_id=log.log_id), {}
    for record in await records_of(log):
        last[record.family] = await copy.append(record.family, record.body, record.envelope, expected_last=last.get(record.family, 0))
    return copy


def values(shown):
    return {(gauge.name, gauge.samples[0][1]) for gauge in shown.read()}


# -- a lost archive -------------------------------------------------------------------------------------------------------


async def test_an_archive_that_was_lost_begins_anew_at_once_with_all_that_the_log_still_holds_and_the_gap_is_said(tmp_path):
    log = memory()
    await grow(log)
    async with collecting(log, tmp_path, snapshot_every=20, keep=1_000) as one:
        await one.until(lambda: one.state.archived)
        covered = one.state.archived
        assert one.notes() == ()
    await log.truncate(10)
    shutil.rmtree(tmp_path / "archive")
    async with collecting(log, tmp_path, one.state, snapshot_every=20, keep=1_000) as one:
        assert isinstance(await one.drop(20), Retry), "nothing is dropped that no archive holds"
        await facts(log, node("more"))
        await one.until(lambda: one.state.archive_first == 11)
        archive = open_archive(one.folder)
        assert (archive.first, archive.last) == (11, one.state.archived)
        assert archive.last > covered
        assert one.notes() == ("an archive was lost: records 1 to 10 of the log are in none",)
        assert await log.first() == 11
        assert isinstance(await one.drop(20), Done)
        assert await log.first() == 21


async def test_an_old_copy_of_the_archive_that_ends_before_the_log_begins_is_put_aside(tmp_path):
    log = memory()
    await grow(log)
    async with collecting(log, tmp_path, snapshot_every=20, keep=1_000) as one:
        await one.until(lambda: one.state.archived)
        folder = one.folder
    shutil.rmtree(folder)
    await export(log, folder, to_seq=8)
    await log.truncate(15)
    async with collecting(log, tmp_path, one.state, snapshot_every=20, keep=1_000) as one:
        await facts(log, node("more"))
        await one.until(lambda: one.state.archive_first == 16)
        assert (open_archive(folder).first, open_archive(folder).last) == (16, one.state.archived)
        aside = folder.with_name(f"{folder.name}.until-8")
        assert (open_archive(aside).first, open_archive(aside).last) == (1, 8)


async def test_an_archive_of_a_history_that_its_log_has_lost_is_put_aside_and_never_continued(tmp_path):
    """The broker's volume was restored from before the archive's end, or lost what it had not on disk. Continued, the archive would tell for ever
    what never happened, and what did would be dropped from the log."""
    for more in (2, 30):  # the log is behind the archive's end, or beyond it
        data = tmp_path / str(more)
        log = memory()
        await grow(log)
        async with collecting(log, data, snapshot_every=20, keep=1_000) as one:
            await one.until(lambda: one.state.archived)
            folder = one.folder
        lost = await copy_of(log)
        await facts(lost, *(node(f"lost{i}") for i in range(5)))
        for i in range(5):
            await facts(lost, node(f"lost{i}", cpu=7))
        await export(lost, folder)
        end = await lost.tail()
        for i in range(more):
            await facts(log, node(f"other{i:02}"))
        async with collecting(log, data, one.state, snapshot_every=20, keep=1_000) as one:
            for i in range(20):
                await facts(log, node(f"end{i:02}"))
            await one.until(lambda: one.state.archived > 50)
            archive = open_archive(folder)
            assert archive.first == 1
            assert [(r.seq, r.body) for r in archive.records()] == [(r.seq, r.body) for r in await records_of(log)][: archive.last]
            assert open_archive(folder.with_name(f"{folder.name}.until-{end}")).last == end


async def test_of_an_archive_that_goes_on_with_what_its_log_has_lost_the_beginning_stays(tmp_path):
    """The log has let that go: without it nobody could fold the log again."""
    log = memory()
    await grow(log)
    async with collecting(log, tmp_path, snapshot_every=20, keep=1_000) as one:
        await one.until(lambda: one.state.archived)
        folder = one.folder
    covered = one.state.archived
    lost = await copy_of(log)
    await facts(lost, *(node(f"lost{i}") for i in range(5)))
    for i in range(30):
        await facts(lost, node(f"lost{i % 5}", cpu=8 + i))
    await export(lost, folder, segment_bytes=1)
    whole = [(r.seq, r.body) for r in await records_of(log)]
    await log.truncate(covered - 3)
    async with collecting(log, tmp_path, one.state, snapshot_every=20, keep=1_000) as one:
        for i in range(25):
            await facts(log, node(f"end{i:02}"))
        await one.until(lambda: one.state.archived > covered)
        archive = open_archive(folder)
        assert (archive.first, one.state.archive_first) == (1, 1)
        records = whole[:covered] + [(r.seq, r.body) for r in await records_of(log, covered + 1)]
        assert [(r.seq, r.body) for r in archive.records()] == records[: archive.last]
        assert archive.last > covered
        assert not one.notes()
    aside = open_archive(folder.with_name(f"{folder.name}.until-{await lost.tail()}"))
    assert (aside.first, aside.last) == (1, await lost.tail())


async def test_an_archive_that_could_not_be_written_is_tried_again_although_nothing_happens_and_no_snapshot_is_made_for_it(tmp_path):
    log, stores = memory(), []

    class Counted(MemorySnapshots):
        async def put(self, stored):
            stores.append(stored.seq)
            return await super().put(stored)

    (tmp_path / "archive").write_text("where the folder should be")
    await grow(log)
    async with collecting(log, tmp_path, snapshots=Counted(log.log_id), snapshot_every=20, keep=1_000) as one:
        await one.until(lambda: one.notes())
        assert "the log grows" in one.notes()[0]
        one.clock.advance(31_000)
        await asyncio.sleep(0.05)
        assert one.notes()
        shown = CollectorMetrics(one, one.keeper.failing, one.keeper.damaged)
        assert values(shown) >= {("keeper_failing", 1.0), ("archive_behind", float(one.state.seq)), ("snapshot_behind", float(one.state.seq - stores[0])), ("snapshot_every", 20.0)}
        (tmp_path / "archive").unlink()
        one.clock.advance(31_000)
        await one.until(lambda: one.state.archived)
        await one.until(lambda: one.notes() == ())
        assert one.state.archived >= one.state.snapshot_seq
        assert len(stores) == 1
        assert values(shown) >= {("keeper_failing", 0.0), ("archive_behind", float(one.state.seq - one.state.archived))}
        free, size = (dict(values(shown))[f"archive_disk_{what}_bytes"] for what in ("free", "size"))
        assert 0 < free <= size


def test_an_archive_with_a_gap_before_it_covers_nothing_that_may_go():
    """Records 61 to 199 were never archived: they were dropped, because 200 to 300 are."""
    conf = configured("gc", config.GcConfig(keep=100))
    state = given(conf, e.Archived(1, 60, "f", "d"), e.SnapshotTaken(300, 5, 1), e.Truncated(50))
    state.seq = 1_000
    assert run(state, decider, c.ReportArchive(NOW, 200, 300, "f", "d")) == [e.Archived(200, 300, "f", "d")]
    state.seq = 1_000
    assert decider.due(state, NOW) is None
    assert run(state, decider, c.ReportArchive(NOW, 51, 300, "f", "d")) == [e.Archived(51, 300, "f", "d")]
    state.seq = 1_000
    assert decider.due(state, NOW) == c.Truncate(NOW, 300)
    # The broker's volume was an old copy: the log has them again.
    assert when(state, decider, c.ReportArchive(NOW, 200, 300, "f", "d", log_first=51)) == [e.Archived(200, 300, "f", "d")]
    assert when(state, decider, c.ReportArchive(NOW, 200, 300, "f", "d", log_first=200)) == [e.Truncated(199), e.Archived(200, 300, "f", "d")]


async def test_an_archive_that_was_lost_after_a_full_store_had_freed_capacity_off_the_record_does_not_keep_the_log_growing_for_ever(tmp_path):
    """It begins with the log; that nothing is between was only on no record."""
    log = memory()
    await grow(log, 60)
    async with collecting(log, tmp_path, snapshot_every=20, keep=50) as one:
        await one.until(lambda: one.state.archived >= 40)
    await log.truncate(one.state.archived)
    first = await log.first()
    shutil.rmtree(one.folder)
    async with collecting(log, tmp_path, one.state, snapshot_every=20, keep=50) as one:
        await facts(log, node("more"))
        await one.until(lambda: one.state.archive_first == first)
        assert one.state.truncated == first - 1
        await grow(log, 100)
        await one.until(lambda: one.state.truncated >= first + 40)


# -- events of a later version ----------------------------------------------------------------------------------------------


async def test_a_fold_that_passed_over_events_stores_a_snapshot_that_says_which(tmp_path):
    """A log that went back by one release is to be truncated like any other."""
    log = memory()
    await grow(log)
    async with collecting(log, tmp_path, snapshot_every=10_000) as one:
        one.state.unknown["session.of_a_later_version"] += 1
        one.commander.configuration = config.text_of(config.GcConfig(snapshot_every=5))
        one.commander.wake()
        await one.until(lambda: one.state.snapshot_seq)
        assert not one.notes()
        stored = await one.snapshots.latest()
        assert dict(snapshot.load(stored.body).unknown) == {"session.of_a_later_version": 1}


async def test_a_release_that_is_too_old_for_the_log_stores_no_snapshot_and_says_why(tmp_path):
    log = memory()
    await grow(log)
    async with collecting(log, tmp_path, snapshot_every=10_000) as one:
        one.state.reader = Needs(READER + 1, 3, "9.9.9")
        with pytest.raises(RuntimeError, match=f"too old for the log: record 3, written by 9.9.9, needs reader {READER + 1}"):
            await one.keeper._keep()
        assert await one.snapshots.sequences() == []


# -- bytes ----------------------------------------------------------------------------------------------------------------


async def test_a_snapshot_is_due_by_bytes_and_what_it_and_the_archive_cover_goes_by_bytes(tmp_path):
    """A few thousand commits of 4 MiB fill any store, long before there are 50 000."""
    log = memory()
    async with collecting(log, tmp_path, snapshot_bytes=3_000, keep_bytes=5_000) as one:
        for _ in range(20):
            before = one.state.snapshot_seq
            await grow(log, 30)
            await one.until(lambda before=before: one.state.snapshot_seq > before and one.state.archived >= one.state.snapshot_seq)
            if one.state.truncated:
                break
        assert 0 < one.state.truncated < one.state.snapshot_seq
        stays = [record async for record in upto(log, one.state.truncated + 1)]
        assert sum(len(record.body) for record in stays) >= 5_000


async def upto(log, first):
    """Every record from there on."""
    tail = await log.tail()
    async for batch in log.read(first):
        for record in batch:
            yield record
        if batch[-1].seq >= tail:
            return


# -- a store that is full ---------------------------------------------------------------------------------------------------


async def test_the_collector_frees_capacity_in_a_full_store_without_having_to_append_first(tmp_path):
    log = memory()
    await grow(log)
    async with collecting(log, tmp_path, snapshot_every=20, keep=1_000) as one:
        await one.until(lambda: one.state.archived)
        covered, append = one.state.archived, log.append

        async def full(family, body, envelope, *, expected_last):
            if await log.first() == 1:
                raise Unknown(family, envelope.id, "the broker's store is full: insufficient resources", full=True)
            return await append(family, body, envelope, expected_last=expected_last)

        log.append = full
        one.commander.configuration = config.text_of(config.GcConfig(snapshot_every=21, keep=1_000))
        one.commander.wake()
        await one.until(lambda: one.state.gc_config.snapshot_every == 21)
        assert await log.first() == covered + 1
        # The commit may be read, and folded, before its own answer is.
        await one.until(lambda: one.commander.trouble.why == "")


async def test_a_broker_that_was_away_for_a_moment_is_no_trouble_of_the_keeper_once_it_is_back(tmp_path):
    """Nothing was due: a critical alert fired until the next snapshot was, in a quiet cluster for hours."""

    class Away(MemorySnapshots):
        away = False

        async def probe(self):
            if self.away:
                raise Unavailable("no answer")

    log = memory()
    snapshots = Away(log.log_id)
    async with collecting(log, tmp_path, snapshots=snapshots, snapshot_every=1_000) as one:
        await grow(log, 3)
        end = await log.tail()
        await one.until(lambda: one.state.seq >= end)
        for _ in range(3):
            one.clock.advance(snapshot_keeper.QUIET + 1)
            await asyncio.sleep(0.05)
        assert not one.keeper.failing()
        snapshots.away = True
        one.clock.advance(snapshot_keeper.QUIET + 1)
        await one.until(one.keeper.failing)
        one.clock.advance(snapshot_keeper.AGAIN + 1)
        await asyncio.sleep(0.05)
        assert one.keeper.failing(), "it is still away"
        snapshots.away = False
        one.clock.advance(snapshot_keeper.AGAIN + 1)
        await one.until(lambda: not one.keeper.failing())


async def test_a_full_store_of_which_nothing_may_go_is_said_and_left_as_it_is(tmp_path):
    log = memory()
    await grow(log, 5)
    async with collecting(log, tmp_path) as one:
        async def full(family, body, envelope, *, expected_last):
            raise Unknown(family, envelope.id, "the broker's store is full", full=True)

        async def none(snapshot):
            raise Full("the broker's store is full")

        log.append, one.snapshots.put = full, none
        one.commander.configuration = config.text_of(config.GcConfig(snapshot_every=21))
        one.commander.wake()
        await one.until(one.notes)
        assert "no snapshot and archive cover anything that could go: give it more space" in one.notes()[0]
        assert await log.first() == 1


async def test_what_a_snapshot_holds_whose_report_finds_no_capacity_is_archived_and_goes(tmp_path):
    """The archive takes no capacity at the broker."""
    log = memory()
    await grow(log, 5)
    async with collecting(log, tmp_path) as one:
        async def full(family, body, envelope, *, expected_last):
            raise Unknown(family, envelope.id, "the broker's store is full", full=True)

        log.append = full
        one.commander.configuration = config.text_of(config.GcConfig(snapshot_every=21))
        one.commander.wake()
        async with asyncio.timeout(SOON):
            while await log.first() <= 5:
                await asyncio.sleep(0.002)
        first = await log.first()
        assert await one.snapshots.sequences() == [first - 1]
        assert open_archive(one.folder).last == first - 1


async def test_what_only_the_names_of_an_archives_files_say_is_not_dropped_from_a_full_store(tmp_path):
    """The broker's volume was restored from before the archive's end, other records came in place of the lost ones, and then there is capacity for
    nothing: what follows in the archive is not what the log holds there."""
    log = memory()
    await grow(log)
    async with collecting(log, tmp_path, snapshot_every=20, keep=1_000) as one:
        await one.until(lambda: one.state.archived)
    lost = await copy_of(log)
    for i in range(20):
        await facts(lost, node(f"lost{i}", cpu=7))
    await export(lost, one.folder)
    end, append = await lost.tail(), log.append
    async with collecting(log, tmp_path, one.state, snapshot_every=20, keep=1_000) as one:
        async def full(family, body, envelope, *, expected_last):
            if await log.first() == 1:
                raise Unknown(family, envelope.id, "the broker's store is full", full=True)
            return await append(family, body, envelope, expected_last=expected_last)

        before, log.append = await records_of(log), full
        one.commander.configuration = config.text_of(config.GcConfig(snapshot_every=21))
        one.commander.wake()
        aside = one.folder.with_name(f"{one.folder.name}.until-{end}")
        await one.until(lambda: one.clock.advance(5_000) or (aside.exists() and one.state.archived >= before[-1].seq))
        kept = {r.seq: r.body for folder in (aside, one.folder) for r in open_archive(folder).records()}
        assert [r.body for r in before] == [kept[r.seq] for r in before]


# -- a disk that changes what is on it ------------------------------------------------------------------------------------------


class Flipped(MemoryLog):
    """Records in `lost` are not shown any more, as of a broker on whose disk a bit of them has flipped."""

    lost: tuple[int, ...] = ()

    async def read(self, from_seq):
        async for batch in super().read(from_seq):
            if there := [record for record in batch if record.seq not in self.lost]:
                yield there


async def test_what_a_disk_has_changed_since_it_was_read_is_found_within_ten_minutes_and_a_snapshot_saves_it(tmp_path):
    """The next service that started read a log that was broken there, and a repair voided all that came behind it."""
    log = Flipped(clock=lambda: NOW * 1_000_000)
    async with collecting(log, tmp_path, snapshot_every=1_000, keep=10) as one:
        shown = CollectorMetrics(one, one.keeper.failing, one.keeper.damaged)
        await grow(log)
        await one.until(lambda: one.state.seq >= 30)
        one.clock.advance(snapshot_keeper.QUIET)
        log.lost = (7, 8)
        one.clock.advance(500_000)
        await asyncio.sleep(0.05)
        assert (one.state.snapshot_seq, one.notes()) == (0, ())
        one.clock.advance(100_000)
        await one.until(lambda: one.state.snapshot_seq)
        saved = one.state.snapshot_seq
        assert one.notes() == (
            f"records of the log up to {saved} have changed on the broker's disk since they were read; a snapshot holds what they said. Look at that disk (docs/failures.md)",
        )
        assert ("log_damaged", 1.0) in values(shown)
        load = Loading(log, one.snapshots, None, lambda said: None, logs.get())
        state = await load.state()
        assert (load.began, state.broken, len(state.nodes)) == (saved, 0, 30)
        # Once more, behind the snapshot: there is nothing new to be said.
        await grow(log, 3)
        one.clock.advance(600_000)
        await asyncio.sleep(0.05)
        assert one.state.snapshot_seq == saved


async def test_the_snapshot_that_saves_it_is_tried_again_until_it_is_stored_and_nobody_says_that_it_is_before(tmp_path, monkeypatch):
    """The broker was away just then: it came with the next reading, ten minutes later, and the note said that all was saved."""
    log = Flipped(clock=lambda: NOW * 1_000_000)
    async with collecting(log, tmp_path, snapshot_every=1_000, keep=10) as one:
        await grow(log)
        await one.until(lambda: one.state.seq >= 30)
        log.lost = (7, 8)

        async def away(stored):
            raise Unavailable("the broker is away")

        with monkeypatch.context() as patched:
            patched.setattr(one.snapshots, "put", away)
            one.clock.advance(600_000)
            await one.until(lambda: one.keeper.failing() and one.keeper.damaged())
            assert any("no snapshot holds yet what they said, so no service is to be started again" in note for note in one.notes())
        one.clock.advance(snapshot_keeper.AGAIN)
        await one.until(lambda: one.state.snapshot_seq and not one.keeper.failing())
        assert [note for note in one.notes() if "a snapshot holds what they said" not in note] == []
        load = Loading(log, one.snapshots, None, lambda said: None, logs.get())
        state = await load.state()
        assert (state.broken, len(state.nodes)) == (0, 30)


async def test_the_last_record_of_a_quiet_log_is_saved_by_a_snapshot_too(tmp_path, monkeypatch):
    """A broker shows nothing in the place of a damaged record behind which none comes: it could not be told from one that is slow, and nothing was done until another record followed."""
    monkeypatch.setattr(rereading, "PATIENCE", 0.05)
    log = Flipped(clock=lambda: NOW * 1_000_000)
    async with collecting(log, tmp_path, snapshot_every=1_000, keep=10) as one:
        await grow(log)
        await one.until(lambda: one.state.seq >= 30)
        await asyncio.sleep(0.02)
        last = one.state.seq
        log.lost = (last,)
        one.clock.advance(600_000)
        await one.until(lambda: one.state.snapshot_seq == last and one.state.archived)
        load = Loading(log, one.snapshots, None, lambda said: None, logs.get())
        state = await load.state()
        assert (load.began, state.broken, len(state.nodes)) == (last, 0, 30)
        # Once: it is not stored again each time.
        stored = one.state.snapshot_seq
        one.clock.advance(600_000)
        await asyncio.sleep(0.1)
        assert one.state.snapshot_seq == stored


async def test_a_service_for_which_the_log_was_broken_starts_again_from_the_snapshot_that_saves_it(tmp_path, monkeypatch):
    """It had started before the collector looked, and waited for a repair. Once for each snapshot: one that does not help does not start it again and again."""
    monkeypatch.setattr(loading, "SAVED_ASKED_EVERY", 0.001)
    log = Flipped(clock=lambda: NOW * 1_000_000)
    snapshots = MemorySnapshots(log.log_id)
    writer = Writer(log)
    for number in range(20):
        await writer.write(node(f"n{number}"))
    whole = (await writer.fold()).state
    log.lost = (7,)

    async def started():
        load = Loading(log, snapshots, None, lambda said: None, logs.get())
        state = await load.state()
        await load.follow(state)
        return load, state

    load, state = await started()
    assert state.broken == 7
    waits = asyncio.create_task(load.until_saved(state))
    await asyncio.sleep(0.05)
    assert not waits.done()
    await snapshots.put(Snapshot(log.log_id, whole.seq, FOLD_VERSION, snapshot.dump(whole)))
    with pytest.raises(LogMismatch, match="a snapshot up to 20 by somebody who has read that is there now"):
        await asyncio.wait_for(waits, SOON)
    load, state = await started()
    assert (load.began, state.broken, len(state.nodes)) == (20, 0, 20)
    # Behind it, too, now; nobody has stored another one.
    for number in range(20, 25):
        await writer.write(node(f"n{number}"))
    log.lost = (7, 22)
    load, state = await started()
    assert (load.began, state.broken, len(state.nodes)) == (20, 22, 21)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(load.until_saved(state), 0.05)


async def test_a_collector_for_which_the_log_is_broken_takes_what_is_missing_from_its_archive(tmp_path, monkeypatch):
    """A release with another fold has no snapshot to begin with: it found a log broken of which every record was archived before a bit flipped, and a repair voided all behind that."""
    monkeypatch.setattr(loading, "SAVED_ASKED_EVERY", 0.001)
    log = Flipped(clock=lambda: NOW * 1_000_000)
    writer, snapshots = Writer(log), MemorySnapshots(log.log_id)
    for number in range(15):
        await writer.write(node(f"n{number}"))
    await export(log, tmp_path / "whole")
    for number in range(15, 20):
        await writer.write(node(f"n{number}"))
    log.lost = (7, 8)
    await export(log, tmp_path / "hole")

    states = []

    async def broken(archive, at=7):
        load = Loading(log, snapshots, tmp_path / archive, lambda said: None, logs.get())
        state = await load.state()
        await load.follow(state)
        assert (state.broken, len(state.nodes)) == (at, at - 1)
        states.append(state)
        return load.until_saved(state)

    for archive in ("hole", "none"):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(await broken(archive), 0.2)
    # Nor of one that somebody has repaired meanwhile: by that, what the archive holds behind the break is void.
    async def repaired(load, where, at):
        states[-1].broken = 0
        return (await writer.fold()).state

    with monkeypatch.context() as patched:
        patched.setattr(Loading, "by_archive", repaired)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(await broken("whole"), 0.2)
    assert await snapshots.sequences() == []
    # Of a log that needs a later release nothing is stored, so nobody is to start again for that.
    with monkeypatch.context() as patched:
        patched.setattr(loading, "too_old", lambda state: "this release is too old for the log")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(await broken("whole"), 0.2)
    assert await snapshots.sequences() == []
    with pytest.raises(LogMismatch, match="the log is broken at record 7, and the archive has what is missing: a snapshot up to 20 is stored"):
        await asyncio.wait_for(await broken("whole"), SOON)
    state = await Loading(log, snapshots, None, lambda said: None, logs.get()).state()
    assert (state.broken, len(state.nodes)) == (0, 20)
    assert state.history.digest == (await writer.fold()).state.history.digest
    # One that did not help is not stored again and again, each time with a new start.
    load = Loading(log, snapshots, tmp_path / "whole", lambda said: None, logs.get())
    await load.state()
    state = ClusterState()
    state.broken = 7
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(load.until_saved(state), 0.2)
    # Behind the archive's end nobody knows what there was.
    log.lost = (17,)
    snapshots.blobs.clear()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(await broken("whole", at=17), 0.2)


async def test_a_log_that_is_whole_is_read_again_and_nothing_is_said(tmp_path):
    log = Flipped(clock=lambda: NOW * 1_000_000)
    async with collecting(log, tmp_path, snapshot_every=20, keep=1_000) as one:
        for _ in range(3):
            await grow(log, 8)
            await one.until(lambda: one.state.seq == log._end() - 1)
            one.clock.advance(600_000)
            await asyncio.sleep(0.02)
        await one.until(lambda: one.state.snapshot_seq)
        await grow(log, 8)
        await one.until(lambda: one.state.seq == log._end() - 1)
        one.clock.advance(600_000)
        await asyncio.sleep(0.05)
        assert (one.notes(), one.keeper.damaged()) == ((), False)


async def test_what_a_snapshot_covers_is_not_read_again_however_much_comes_while_it_is_stored(tmp_path, monkeypatch):
    """Under load it was all read again, at last more each time than a minute is enough for, and nothing was found any more."""
    log, reads = Flipped(clock=lambda: NOW * 1_000_000), []
    async with collecting(log, tmp_path, snapshot_every=20, keep=10_000) as one:
        put = one.snapshots.put

        async def slow(stored):
            await grow(log, KEPT + 1)
            await one.until(lambda: one.state.seq > stored.seq + KEPT)
            # Not at once another one.
            one.state.gc_config = config.GcConfig(snapshot_every=10_000, keep=10_000)
            return await put(stored)

        monkeypatch.setattr(one.snapshots, "put", slow)
        await grow(log)
        await one.until(lambda: one.state.snapshot_seq and one.state.archived)
        saved, read = one.state.snapshot_seq, log.read

        def noted(from_seq):
            reads.append(from_seq)
            return read(from_seq)

        monkeypatch.setattr(log, "read", noted)
        one.clock.advance(600_000)
        await one.until(lambda: reads)
        assert reads == [saved + 1]


async def written(log, count):
    for _ in range(count):
        await facts(log, node(f"n{await log.tail()}"))
    return log


async def test_an_archive_keeps_what_the_broker_has_lost_since_it_was_archived(tmp_path):
    """It was put aside, and a new one begun that lacks this record, too."""
    log = await written(Flipped(clock=lambda: NOW * 1_000_000), 20)
    await export(log, tmp_path / "a", to_seq=10)
    await export(log, tmp_path / "a", to_seq=20)
    await written(log, 10)
    log.lost = (18, 19, 20)
    archive = await snapshot_keeper.export_or_begin(log, place_of(tmp_path / "a"), 30, logs.get())
    assert (archive.first, archive.last, archive.holes) == (1, 30, [])
    assert [r.seq for r in archive.records()] == list(range(1, 31))


async def test_where_the_last_record_that_is_to_be_archived_is_lost_the_archive_goes_on_behind_it(tmp_path):
    """It ended before that, so that it was behind the snapshot, and was read and tried again at each commit until the next one."""
    log = await written(Flipped(clock=lambda: NOW * 1_000_000), 30)
    log.lost = (18, 19, 20)
    archive = await export(log, tmp_path / "a", to_seq=20)
    assert (archive.first, archive.last, archive.holes) == (1, 21, [(18, 20)])
    assert archived(tmp_path / "a", 1) == 21
    log.lost = (*log.lost, 22, 23)
    archive = await export(log, tmp_path / "a", to_seq=23)
    assert (archive.last, archive.holes) == (24, [(18, 20), (22, 23)])
