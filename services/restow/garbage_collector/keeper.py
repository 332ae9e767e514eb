"""Snapshots and archive segments, when the log has grown enough; what was stored is reported and so becomes a fact."""

import asyncio
from collections import deque
from pathlib import Path

from restow.contracts import commands as c
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION
from restow.domain.gc.decider import covered
from restow.eventlog.archive import Archive, export, open_archive, set_aside
from restow.eventlog.archive import covered as archived_to
from restow.eventlog.port import EventLog, LogError, Unavailable
from restow.eventlog.segment import ArchiveError
from restow.eventlog.snapshots import Snapshot
from restow.runtime import logs
from restow.runtime.offload import CopyFailed, in_copy
from restow.runtime.service import Context
from restow.runtime.signals import Bell

AGAIN = 30_000
"""Milliseconds after a failure before the next attempt."""


class Keeper:
    """One snapshot or archive at a time, while this process leads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._bell = Bell()
        self._not_before = 0
        self._room_at = 0
        self._checked = False
        """Whether the archive on disk was compared with what the log says of it."""
        self._lost = False
        self._stretches: deque[tuple[int, int]] = deque()
        """Of each snapshot that was stored here: after which sequence its stretch of the log begins, and its bytes."""
        self._problem = ""
        self._log = logs.get(service="garbage_collector")
        context.follower.listeners.append(self._bell.ring)
        context.leadership.changed.append(self._bell.ring)
        context.commander.on_stuck.append(self._bell.ring)
        context.health.notes.append(self._note)

    async def run(self) -> None:
        if self._context.snapshots is None:
            return await self._for_ever()
        while True:
            await self._bell.wait()
            if self._context.commander.full:
                await self._make_room()
            elif await self._due():
                try:
                    await self._keep()
                except (Unavailable, ArchiveError, OSError, CopyFailed, RuntimeError) as error:
                    self._failed(str(error))
                else:
                    self._problem = ""

    async def _for_ever(self) -> None:
        while True:
            await self._bell.wait()

    def _failed(self, why: str) -> None:
        self._problem = why
        self._log.error("could not store a snapshot or archive", reason=why, again_in_ms=AGAIN)
        self._not_before = self._context.clock.now() + AGAIN

    def _note(self) -> str:
        """What people must see although the service works on."""
        first = self._context.state.archive_first
        if self._problem:
            return f"no snapshot or archive could be stored, the log grows: {self._problem}"
        return f"an archive was lost: records 1 to {first - 1} of the log are in none" if first > 1 else ""

    async def _due(self) -> bool:
        context = self._context
        state, rules = context.state, context.state.gc_config
        if not (context.leadership.leading and context.follower.caught_up and context.clock.now() >= self._not_before):
            return False
        if not self._checked:
            self._checked = True
            self._lost = await self._is_lost()
        grown = state.seq - state.snapshot_seq
        return self._lost or grown >= rules.snapshot_every or (grown > 0 and context.follower.bytes >= rules.snapshot_bytes)

    async def _is_lost(self) -> bool:
        """Whether the archive that the log tells of is not there. Then what the log still holds is archived at once."""
        state, folder = self._context.state, self._folder
        if folder is None or not state.archived:
            return False
        there = await asyncio.to_thread(archived_to, folder, state.archive_first or 1)
        if there >= state.archived:
            return False
        self._log.error("the archive is not what the log says of it", folder=str(folder), archived=state.archived, there=there)
        return True

    @property
    def _folder(self) -> Path | None:
        return self._context.settings.archive(self._context.log.cluster)

    async def _keep(self) -> None:
        """The archive first, up to what the snapshot will cover: only both together allow truncation."""
        context = self._context
        seq, state, size = context.state.seq, context.state, context.follower.bytes
        if state.unknown:
            raise RuntimeError(
                f"events of a later version were passed over ({', '.join(sorted(state.unknown))}): a snapshot would lose them. "
                "Upgrade garbage_collector"
            )
        body = await in_copy(lambda: snapshot.dump(state))
        stored = Snapshot(context.log.log_id, seq, FOLD_VERSION, body)
        assert context.snapshots is not None
        await context.snapshots.put(stored)
        context.follower.bytes -= size
        self._stretches.append((state.snapshot_seq, size))
        now = context.clock.now()
        await context.commander.submit(c.ReportSnapshot(now, seq, FOLD_VERSION, len(body)), cause="snapshot")
        self._log.info("snapshot stored", seq=seq, size=len(body))
        if self._folder is not None:
            await self._archive(self._folder, seq)
            self._lost = False
            await self._bound_bytes()

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
                    await context.commander.submit(c.Truncate(context.clock.now(), upto), cause="bytes")
                return

    async def _archive(self, folder: Path, upto: int) -> None:
        context = self._context
        known = context.state.archive_first
        try:
            archive = await export_or_begin(context.log, folder, upto, self._log)
        except LogError as error:
            raise RuntimeError(f"archive: {error}") from error
        if archive is None:
            return
        segment = archive.segments[-1]
        command = c.ReportArchive(
            context.clock.now(), archive.first, archive.last, segment.path.name, archive.digest
        )
        await context.commander.submit(command, cause="archive")
        if archive.first > max(known, 1):
            self._log.error("the archive was lost and begins anew: what was before is in none", first=archive.first, last=archive.last)
        self._log.info("archived", last=archive.last, file=segment.path.name)

    async def _make_room(self) -> None:
        """The broker's store is full, and not even what may go can be put on record before it goes: it goes first. Snapshot and archive
        hold it (RULES of the log: both together are always the whole), only what `keep` would leave behind is missing for a while."""
        context = self._context
        if not context.leadership.leading or context.clock.now() < self._room_at:
            return
        self._room_at = context.clock.now() + AGAIN
        try:
            first = await context.log.first()
            upto = await holds(context, first, covered(context.state))
            if upto < first:
                self._failed("the broker's store is full, and no snapshot and archive cover anything that could go: give it more room")
                return
            await context.log.truncate(upto)
        except Unavailable as error:
            self._failed(str(error))
        else:
            self._log.warning("the broker's store is full: what snapshot and archive hold was dropped", first=first, upto=upto)
            context.commander.retry()


async def holds(context: Context, first: int, upto: int) -> int:
    """The last sequence, at most `upto`, up to which the archive that is on disk now holds the log from `first` on."""
    folder = context.settings.archive(context.log.cluster)
    if folder is None:
        return 0
    return min(upto, await asyncio.to_thread(archived_to, folder, first))


async def export_or_begin(log: EventLog, folder: Path, upto: int, logger: logs.Logger) -> Archive | None:
    """Continue the archive; where the log has lost what would follow (an old copy of the volume was restored), put it aside and
    begin a new one."""
    if await asyncio.to_thread(lambda: any(folder.glob("*.jsonl.zst"))):
        present = await asyncio.to_thread(open_archive, folder, log_id=log.log_id)
        first = await log.first()
        if present.last < first - 1:
            aside = await asyncio.to_thread(set_aside, folder, present.last)
            logger.error(
                "the archive ends before the log begins: it was put aside", moved_to=str(aside), ends=present.last, log_begins=first
            )
    return await export(log, folder, to_seq=upto)
