"""Snapshots and archive segments, when the log has grown enough; what was stored is reported and so becomes a fact."""

import asyncio
from collections import deque

from restow.contracts import commands as c
from restow.contracts.ids import Millis
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION
from restow.domain.gc.decider import covered
from restow.domain.too_old import too_old
from restow.eventlog.archive import Archive, agreeing, export, has_segments, mismatch, open_archive, place_of
from restow.eventlog.archive import covered as archived_to
from restow.eventlog.port import Closed, EventLog, Full, LogError, LogMismatch, OnBrokers, Unavailable
from restow.eventlog.segment import ArchiveError, Place
from restow.eventlog.snapshots import Snapshot
from restow.garbage_collector.rereading import Rereading
from restow.runtime import logs
from restow.runtime.clock import Timer
from restow.runtime.offload import CopyFailed, in_copy
from restow.runtime.service import Context
from restow.runtime.signals import Bell

AGAIN = 30_000
"""Milliseconds after a failure before the next attempt."""
QUIET = 60_000
"""Milliseconds without a new record after which the store is asked whether it has capacity: nobody can tell us through a log that is full."""
RESERVE = 8 << 20
"""Bytes that are held back at least: what the reports and a small snapshot need. Twice a snapshot, where that is more."""
RESERVE_FROM = 1 << 20
"""Bytes of commits, or of a snapshot, from which on something is held back."""


class Keeper:
    """One snapshot or archive at a time, while this process leads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._bell = Bell()
        self._not_before = 0
        self._space_at = 0
        self._checked = False
        """Whether the archive on disk was compared with what the log says of it."""
        self._lost = False
        self._stretches: deque[tuple[int, int]] = deque()
        """Of each snapshot that was stored here: after which sequence its stretch of the log begins, and its bytes."""
        self._problem = ""
        self._full = False
        """Whether the store refused something of ours; what the commander says of commits is beside it."""
        self._repairs = context.state.repairs
        """As of the snapshot that was stored last."""
        self._stored = 0
        """The snapshot that was stored here last, whether or not that could be put on record."""
        self._reserve = 0
        self._thin = ""
        """Why as much as should be is not held back."""
        self._quiet_since = (-1, 0)
        self._rereading = Rereading(context)
        self._timer: Timer | None = None
        self._log = logs.get(service="garbage_collector")
        context.follower.listeners.append(self._bell.ring)
        context.leadership.changed.append(self._bell.ring)
        context.commander.trouble.on_stuck.append(self._bell.ring)
        context.health.notes += [self._note, self._rereading.note]

    async def run(self) -> None:
        if self._context.snapshots is None:
            return await self._for_ever()
        while True:
            await self._bell.wait()
            self._rereading.learn()
            try:
                if self._full or self._context.commander.trouble.full:
                    await self._free_space()
                elif await self._due():
                    await (self._catch_up() if self._is_archive_alone() else self._keep())
                    self._problem = ""
                elif await self._is_damaged():
                    await self._keep()
                    self._problem = ""
                else:
                    await self._look_for_space()
            except Full as error:
                # Something may go, or what is held back: at once.
                self._full = True
                self._problem = str(error)
                self._log.warning("the broker's store is full", reason=str(error))
                self._bell.ring() if self._context.clock.now() >= self._space_at else self._wake_at(self._space_at)
            except (LogError, ArchiveError, OSError, CopyFailed, RuntimeError) as error:
                if isinstance(error, Closed | LogMismatch):
                    raise
                self._failed(str(error))

    async def _for_ever(self) -> None:
        while True:
            await self._bell.wait()

    def _failed(self, why: str) -> None:
        self._problem = why
        self._log.error("could not store a snapshot or archive", reason=why, again_in_ms=AGAIN)
        self._not_before = self._context.clock.now() + AGAIN
        self._wake_at(self._not_before)

    def _wake_at(self, when: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now = self._context.clock.now()
        self._timer = self._context.clock.at(Millis(max(when, now + 1)), self._bell.ring)

    def failing(self) -> bool:
        """Whether the last attempt came to nothing, and the log grows."""
        return bool(self._problem)

    def _note(self) -> str:
        """What people must see although the service works on."""
        first = self._context.state.archive_first
        if self._problem:
            return f"no snapshot or archive could be stored, the log grows: {self._problem}"
        return f"an archive was lost: records 1 to {first - 1} of the log are in none" if first > 1 else self._thin

    async def _due(self) -> bool:
        context = self._context
        state, rules = context.state, context.state.gc_config
        if not self._is_ready():
            return False
        away: Unavailable | None = None
        if not self._checked:
            try:
                self._lost = await self._is_lost()
                self._checked = True
            except Unavailable as error:
                away = error
        grown = state.seq - state.snapshot_seq
        # Those of before may be of records that were lost: whoever starts is not to look for one that is not.
        repaired = state.repairs != self._repairs
        due = self._lost or self._behind or repaired or grown >= rules.snapshot_every or (grown > 0 and context.follower.bytes >= rules.snapshot_bytes)
        if away is not None and not due:
            raise away  # What is due is done all the same: snapshots need no bucket.
        return due

    async def _is_damaged(self) -> bool:
        return self._is_ready() and await self._rereading.finds_damage()

    def _is_ready(self) -> bool:
        context = self._context
        return context.leadership.leading and context.follower.caught_up and context.clock.now() >= self._not_before and not context.follower.broken

    def damaged(self) -> bool:
        """By what was read again, or where one of several brokers lacks what another one has."""
        log = self._context.log
        return self._rereading.damaged or (isinstance(log, OnBrokers) and bool(log.damaged_copy()))

    async def _is_lost(self) -> bool:
        """Whether the archive that the log tells of is not there. Then what the log still holds is archived at once."""
        state, place = self._context.state, self._place
        if place is None or not state.archived:
            return False
        there = await asyncio.to_thread(archived_to, place, state.archive_first or 1)
        if there >= state.archived and (there == state.archived or not await self._is_of_another_history(place)):
            return False
        self._log.error("the archive is not what the log says of it", archive=str(place), archived=state.archived, there=there)
        return True

    async def _is_of_another_history(self, place: Place) -> bool:
        """Files that the log knows nothing of: of a collector that was killed before it could report them, or of records that the log has lost."""
        log = self._context.log
        try:
            return bool(await mismatch(await asyncio.to_thread(open_archive, place, log_id=log.log_id), log))
        except ArchiveError:
            return False  # damaged: whoever continues it says so

    async def _continues_the_log(self) -> bool:
        """Whether the files on disk are whole and of the log's own history: what was not reported nobody has checked, and names say nothing."""
        place, log = self._place, self._context.log
        if place is None:
            return False
        try:
            return not await mismatch(await asyncio.to_thread(open_archive, place, log_id=log.log_id), log)
        except ArchiveError as error:
            self._log.warning("the archive beyond what the log says of it is of no use", reason=str(error))
            return False

    @property
    def _behind(self) -> bool:
        """Whether what a snapshot covers could not be archived: its disk was full, or not there."""
        return self._place is not None and self._context.state.archived < self._context.state.snapshot_seq

    @property
    def _place(self) -> Place | None:
        """Where the archive is: a folder or a bucket."""
        return place_for(self._context)

    async def _keep(self, let_go: bool = False) -> None:
        """The archive first, up to what the snapshot will cover: only both together allow truncation. `let_go`: the snapshot goes to where
        something was held back, which is given up when the snapshot is made and not before: everybody's commits want that capacity."""
        context = self._context
        seq, state, size = context.state.seq, context.state, context.follower.bytes
        digest = state.history.digest
        if why := too_old(state):
            raise RuntimeError(why)
        body = await in_copy(lambda: snapshot.dump(state))
        stored = Snapshot(context.log.log_id, seq, FOLD_VERSION, body)
        assert context.snapshots is not None
        if let_go:
            await self._let_go()
        packed = await context.snapshots.put(stored)
        self._stored, self._repairs = seq, state.repairs
        self._rereading.covered(seq, digest)
        context.follower.bytes -= size
        self._stretches.append((state.snapshot_seq, size))
        now = context.clock.now()
        await self._report(c.ReportSnapshot(now, seq, FOLD_VERSION, len(body)), "snapshot")
        self._log.info("snapshot stored", seq=seq, size=len(body))
        if self._place is not None:
            await self._archive(self._place, seq)
            self._lost = False
            await self._bound_bytes()
        await self._hold_back(2 * packed)

    def _is_archive_alone(self) -> bool:
        """Whether the snapshot is young enough, and only the archive is behind it: a disk that stays full costs no snapshot each time."""
        state, rules = self._context.state, self._context.state.gc_config
        if not (self._stored if self._lost else self._behind):
            return False
        return state.seq - state.snapshot_seq < rules.snapshot_every and self._context.follower.bytes < rules.snapshot_bytes

    async def _catch_up(self) -> None:
        place = self._place
        assert place is not None
        await self._archive(place, self._context.state.snapshot_seq)
        self._lost = False
        await self._bound_bytes()

    async def _report(self, command: c.Command, cause: str) -> None:
        """Put on record what was done. Raises Full where the log takes nothing: whoever frees capacity must not wait for some."""
        commander = self._context.commander
        outcome = commander.submit(command, cause=cause)
        stuck = Bell()
        commander.trouble.on_stuck.append(stuck.ring)
        try:
            while not outcome.done():
                if commander.trouble.full:
                    raise Full(commander.trouble.why)
                rung = asyncio.ensure_future(stuck.wait())
                await asyncio.wait({outcome, rung}, return_when=asyncio.FIRST_COMPLETED)
                rung.cancel()
            outcome.result()
        finally:
            commander.trouble.on_stuck.remove(stuck.ring)

    async def _hold_back(self, size: int) -> None:
        """Some of the store's capacity is kept from everybody, so that there is some for a snapshot and its reports when nobody has any."""
        assert self._context.snapshots is not None
        wanted = max(RESERVE, size)
        if wanted <= self._reserve:
            return
        try:
            await self._context.snapshots.hold_back(wanted)
        except Full as error:
            self._thin = f"the broker's store has no {wanted >> 20} MiB to hold back for when it is full: give it more space ({error})"
            self._log.warning("nothing could be held back", bytes=wanted, reason=str(error))
        else:
            self._reserve, self._thin = wanted, ""

    async def _look_for_space(self) -> None:
        """Of a log that does not grow nobody can tell whether nothing happens, or nothing can be stored."""
        context, now = self._context, self._context.clock.now()
        if context.snapshots is None or not (context.leadership.leading and context.follower.caught_up):
            return
        if not self._reserve and context.follower.bytes >= RESERVE_FROM and now >= self._not_before:
            await self._hold_back(RESERVE)
        if self._problem and now >= self._not_before:
            # What came to nothing is not due any more, or it was this question: a broker that was away for a moment.
            await context.snapshots.probe()
            self._problem = ""
        seq, since = self._quiet_since
        if context.state.seq != seq:
            self._quiet_since = (context.state.seq, now)
        elif now - since >= QUIET:
            self._quiet_since = (seq, now)
            await context.snapshots.probe()
        else:
            return
        self._wake_at(now + QUIET)

    async def _bound_bytes(self) -> None:
        """Large commits fill a store long before there are many of them: what snapshot and archive cover goes by bytes, too."""
        context, kept = self._context, 0
        state = context.state
        for number, (after, size) in enumerate(reversed(self._stretches)):
            kept += size
            if kept >= state.gc_config.keep_bytes:
                while len(self._stretches) > number + 1:
                    self._stretches.popleft()
                upto = min(after, covered(state))
                if upto > state.truncated:
                    await self._report(c.Truncate(context.clock.now(), upto), "bytes")
                return

    async def _archive(self, place: Place, upto: int) -> None:
        context = self._context
        known = context.state.archive_first
        try:
            archive = await export_or_begin(context.log, place, upto, self._log)
        except LogError as error:
            raise RuntimeError(f"archive: {error}") from error
        if archive is None:
            return
        segment = archive.segments[-1]
        command = c.ReportArchive(
            context.clock.now(), archive.first, archive.last, segment.path.name, archive.digest, await context.log.first()
        )
        await self._report(command, "archive")
        if archive.first > max(known, 1):
            self._log.error("the archive was lost and begins anew: what was before is in none", first=archive.first, last=archive.last)
        self._log.info("archived", last=archive.last, file=segment.path.name)

    async def _free_space(self) -> None:
        """The broker's store is full, and not even what may go can be put on record before it goes: it goes first. Snapshot and archive
        hold it (both together are always the whole), only what `keep` would leave behind is missing for a while. Where they hold
        nothing that could go, what was held back becomes the capacity in which they are made."""
        context = self._context
        if not context.leadership.leading or context.clock.now() < self._space_at or context.follower.broken:
            return
        self._space_at = context.clock.now() + AGAIN
        self._wake_at(self._space_at)
        assert context.snapshots is not None
        if not await self._drop_held():
            try:
                await self._keep(let_go=True)
            except Full as error:
                self._log.warning("a snapshot could not be stored or put on record", reason=str(error))
            if not await self._drop_held():
                self._failed("the broker's store is full, and no snapshot and archive cover anything that could go: give it more space")
                return
        self._full, self._problem = False, ""
        context.commander.trouble.retry()

    async def _let_go(self) -> None:
        context = self._context
        assert context.snapshots is not None
        held, self._reserve = await context.snapshots.let_go(), 0
        if held:
            self._log.warning("the broker's store is full: what was held back is used for a snapshot")
            context.commander.trouble.retry()
            # What was stuck is to be taken again before anything else is asked of it.
            context.commander.trouble.full = False

    async def _drop_held(self) -> bool:
        """Drop what both hold, on record or not; whether anything went."""
        context = self._context
        await self._archive_stored()
        first = await context.log.first()
        reported = covered(context.state)
        upto = await holds(context, first, max(reported, self._stored))
        if upto > reported and not await self._continues_the_log():
            upto = min(upto, reported)
        if upto < first:
            return False
        await context.log.truncate(upto)
        self._log.warning("the broker's store is full: what snapshot and archive hold was dropped", first=first, upto=upto)
        return True

    async def _archive_stored(self) -> None:
        """What a snapshot covers that is stored, and may not be on record yet, is archived: that takes no capacity at the broker."""
        place = self._place
        if place is None or self._stored <= self._context.state.archived:
            return
        try:
            await export_or_begin(self._context.log, place, self._stored, self._log)
        except (LogError, ArchiveError, OSError) as error:
            self._log.warning("nothing more could be archived", reason=str(error))


def place_for(context: Context) -> Place | None:
    """Where this service's archive is; None where it has none."""
    where = context.settings.archive_of(context.log.cluster)
    return None if where is None else place_of(where)


async def holds(context: Context, first: int, upto: int) -> int:
    """The last sequence, at most `upto`, up to which the archive that is there now holds the log from `first` on. Raises Unavailable where a bucket does not say."""
    place = place_for(context)
    if place is None:
        return 0
    return min(upto, await asyncio.to_thread(archived_to, place, first))


async def export_or_begin(log: EventLog, place: Place, upto: int, logger: logs.Logger) -> Archive | None:
    """Continue the archive; where the log does not hold what would follow (an old copy of the archive's volume was restored), or has other
    records in place of the archive's (an old copy of the broker's volume was), put it aside and begin a new one, with what of it the log continues."""
    if await asyncio.to_thread(has_segments, place):
        with place.only_writer():
            present = await asyncio.to_thread(open_archive, place, log_id=log.log_id)
            first = await log.first()
            why = f"it ends at {present.last}, the log begins at {first}" if present.last < first - 1 else await mismatch(present, log)
            if why:
                kept = await agreeing(present, log)
                aside = await asyncio.to_thread(place.set_aside, present.last, kept)
                begins = f"a new one begins with its records up to {kept[-1].header.last}" if kept else "a new one begins"
                logger.error(f"the archive does not fit the log: it was put aside, and {begins}", moved_to=aside, reason=why)
    return await export(log, place, to_seq=upto)
