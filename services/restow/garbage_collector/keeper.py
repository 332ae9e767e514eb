"""Snapshots and archive segments, when the log has grown enough; what was stored is reported and so becomes a fact."""

from pathlib import Path

from restow.contracts import commands as c
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION
from restow.eventlog.archive import export
from restow.eventlog.port import LogError, Unavailable
from restow.eventlog.segment import ArchiveError
from restow.eventlog.snapshots import Snapshot
from restow.runtime import logs
from restow.runtime.offload import in_copy
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
        self._log = logs.get(service="garbage_collector")
        context.follower.listeners.append(self._bell.ring)
        context.leadership.changed.append(self._bell.ring)

    async def run(self) -> None:
        if self._context.snapshots is None:
            return await self._for_ever()
        while True:
            await self._bell.wait()
            if self._due():
                try:
                    await self._keep()
                except (Unavailable, ArchiveError, OSError, RuntimeError) as error:
                    self._log.error("could not store a snapshot or archive", reason=str(error), again_in_ms=AGAIN)
                    self._not_before = self._context.clock.now() + AGAIN

    async def _for_ever(self) -> None:
        while True:
            await self._bell.wait()

    def _due(self) -> bool:
        context = self._context
        state = context.state
        return (
            context.leadership.leading
            and context.follower.caught_up
            and state.seq - state.snapshot_seq >= state.gc_config.snapshot_every
            and context.clock.now() >= self._not_before
        )

    async def _keep(self) -> None:
        """The archive first, up to what the snapshot will cover: only both together allow truncation."""
        context = self._context
        seq, state = context.state.seq, context.state
        body = await in_copy(lambda: snapshot.dump(state))
        stored = Snapshot(context.log.log_id, seq, FOLD_VERSION, body)
        assert context.snapshots is not None
        await context.snapshots.put(stored)
        now = context.clock.now()
        await context.commander.submit(c.ReportSnapshot(now, seq, FOLD_VERSION, len(body)), cause="snapshot")
        self._log.info("snapshot stored", seq=seq, size=len(body))
        if context.settings.data:
            await self._archive(Path(context.settings.data) / "archive" / context.log.cluster, seq)

    async def _archive(self, folder: Path, upto: int) -> None:
        context = self._context
        try:
            archive = await export(context.log, folder, to_seq=upto)
        except LogError as error:
            raise RuntimeError(f"archive: {error}") from error
        if archive is None:
            return
        segment = archive.segments[-1]
        command = c.ReportArchive(
            context.clock.now(), archive.first, archive.last, segment.path.name, archive.digest
        )
        await context.commander.submit(command, cause="archive")
        self._log.info("archived", last=archive.last, file=segment.path.name)
