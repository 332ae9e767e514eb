"""The state that a service begins with: from the newest snapshot that its fold can read, else from the whole log.

A snapshot of what the log does not hold any more is of another history: it is passed over, and says how far the log was read once. A log that is
broken (`ClusterState.broken`) behind the newest snapshot may follow from an older one, or from its beginning.

A log whose prefix was truncated, without such a snapshot, is what a release with a new fold finds. Whoever has the archive (the
garbage collector) folds archive and stream anew and stores the snapshot; the others wait for it, and say so. Whatever is asked of a
broker that goes away meanwhile is asked again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION, fold_record
from restow.domain.history import Mark
from restow.domain.state import ClusterState
from restow.domain.too_old import too_old
from restow.eventlog.archive import Archive, Where, mismatch, open_archive
from restow.eventlog.bucket import ArchiveAway
from restow.eventlog.port import EventLog, LogError, LogMismatch, Record, Truncated, Unavailable
from restow.eventlog.segment import ArchiveError
from restow.eventlog.snapshots import Snapshot, SnapshotError, Snapshots
from restow.runtime import logs, release
from restow.runtime.other_history import of_another_history

T = TypeVar("T")

ASKED_EVERY = 2.0
"""Seconds between two looks for a snapshot that another service is to store."""

SAVED_ASKED_EVERY = 30.0
"""Seconds between two looks for a snapshot by somebody who has read of a log what is missing in it now."""

PAUSES = (0.05, 0.1, 0.3, 1.0, 2.0)
"""Seconds before a question to the broker is asked again; the last one repeats."""

MOST_LOOKED_AT = 8
"""Snapshots that are looked at: there are two, unless somebody copied some."""


class Loading:
    """One start. `archive`: where the log's archive is, None where this service has none. `say` is told what is waited for. `waits`: whether for a
    snapshot that another service is to store; else that there is none is an error."""

    def __init__(
        self, log: EventLog, snapshots: Snapshots | None, archive: Where | None, say: Callable[[str], None], logger: logs.Logger, *, waits: bool = True
    ) -> None:
        self._log, self._snapshots, self._archive, self._say, self._logger = log, snapshots, archive, say, logger
        self._waits = waits
        self.mark: Mark | None = None
        """How far the log was read by whoever has stored a snapshot of what it does not hold any more."""
        self.began = 0
        """The last record that was in the snapshot with which the state begins; 0 for none."""
        self.bytes = 0
        """Of the commits that were folded behind the snapshot."""
        self._newest_there = 0
        """The newest snapshot that was there, whether or not it is of use."""
        self._broken: ClusterState | None = None
        """What the newest snapshot with what follows it has become, on a log that is broken behind it."""

    async def state(self) -> ClusterState:
        """Raises LogMismatch where the log cannot be folded any more, and what the log raises."""
        while True:
            first = await self.ask(self._log.first)
            found = await self.ask(partial(self._newest, first))
            if found is not None:
                return found
            if first <= 1:
                return await self.ask(self._from_the_beginning)
            if self._broken is not None:
                return self._broken
            if self._archive is not None:
                return await self._refold(self._archive, first)
            if self._snapshots is None:
                raise LogMismatch(f"the log begins at {first}, and there are no snapshots: fold it from its archive")
            if not self._waits:
                raise LogMismatch(f"the log begins at {first}, and no snapshot continues it: name its archive (--archive DIR)")
            last = await self._collectors()
            self._say(
                f"waiting for the garbage collector: the log begins at {first}, and no snapshot of fold {FOLD_VERSION} continues it; this is release {release.name()}"
                + (f", what it wrote last is of {last}: it is to be of this release, too" if last else "")
            )
            await asyncio.sleep(ASKED_EVERY)

    async def _newest(self, first: int) -> ClusterState | None:
        """Of the newest snapshot that is of our fold, has lost nothing, and is continued by the log: an old copy of the broker's volume may hold
        snapshots of records that its log has lost, and that have gone on differently since."""
        at_most: int | None = None
        for _ in range(MOST_LOOKED_AT if self._snapshots is not None else 0):
            assert self._snapshots is not None
            try:
                found = await self._snapshots.latest(at_most=at_most)
            except SnapshotError as error:
                self._logger.warning("no snapshot can be read", reason=str(error))
                return None
            if found is None or found.seq < first - 1:
                return None
            self._newest_there = max(self._newest_there, found.seq)
            if found.fold_version == FOLD_VERSION:
                try:
                    state = snapshot.load(found.body)
                except snapshot.SnapshotError as error:
                    self._logger.warning("a snapshot is passed over", seq=found.seq, reason=str(error))
                else:
                    if why := await of_another_history(self._log, state):
                        self._logger.error("a snapshot is passed over: the log has lost what it holds", seq=found.seq, reason=why)
                        self._note(Mark(state.repairs, state.seq, state.history.digest))
                    else:
                        self._logger.info("snapshot loaded", seq=found.seq, size=len(found.body))
                        self.began = found.seq
                        if await self.follow(state):
                            return state
                        self._logger.error("a snapshot is passed over: the log behind it is broken", seq=found.seq, broken=state.broken)
                        self._broken = self._broken or state
            at_most = found.seq - 1
        return None

    async def _from_the_beginning(self) -> ClusterState:
        """Or what the newest snapshot has become, where that is broken later: a repair voids all that comes behind the break, and what was before the snapshot may be damaged, too."""
        state = ClusterState()
        if self._broken is None:
            self.began = self.bytes = 0
        elif await self.follow(state) or state.broken >= self._broken.broken:
            self.began = 0
        else:
            state = self._broken
        return state

    def _note(self, mark: Mark) -> None:
        if self.mark is None or (mark.repairs, mark.seq) > (self.mark.repairs, self.mark.seq):
            self.mark = mark

    async def follow(self, state: ClusterState, first: int = 0) -> bool:
        """Fold what the log holds beyond the state, up to its present end; whether all of it follows. `first`: where it begins, if nothing that there ever was is between."""
        self.bytes = 0
        if state.seq < (tail := await self._log.tail()):
            async with aclosing(self._log.read(max(state.seq + 1, first))) as batches:  # type: ignore[type-var]
                async for batch in batches:
                    await self._add(state, batch)
                    if state.seq >= tail:
                        break
        return not state.broken

    async def until_saved(self, state: ClusterState) -> None:
        """Raises LogMismatch where the log is broken as it was read here, and somebody stores a snapshot who has read before what is missing now (the collector looks for
        that, `Rereading`), or the archive has it and one was stored here: whoever starts again begins with it. For ever, where that is not so."""
        looked = 0
        while True:
            await asyncio.sleep(SAVED_ASKED_EVERY)
            if not state.broken or self._snapshots is None:
                continue
            by_archive = self._archive is not None and looked != state.broken
            try:
                if max(await self._snapshots.sequences(), default=0) <= self._newest_there and not by_archive:
                    continue
                found = await self._snapshots.latest()
                saved = found.seq if found is not None and found.fold_version == FOLD_VERSION and found.seq > state.broken else 0
                # One that is there already was of no use, and another one by the archive would not be either.
                if self._archive is not None and by_archive:
                    if not saved and (whole := await self.by_archive(self._archive, state.broken)) is not None and state.broken:
                        await self._store(whole)
                        raise LogMismatch(f"the log is broken at record {state.broken}, and the archive has what is missing: a snapshot up to {whole.seq} is stored, and this process starts again from it")
                    looked = state.broken
            except (SnapshotError, Unavailable):
                continue
            if saved > self._newest_there:
                raise LogMismatch(f"the log is broken at record {state.broken}, and a snapshot up to {saved} by somebody who has read that is there now: this process starts again from it")

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask until the broker answers."""
        for attempt in range(1_000_000):
            try:
                answer = await question()
            except Unavailable as error:
                pause = PAUSES[min(attempt, len(PAUSES) - 1)]
                away = isinstance(error, ArchiveAway)
                self._say(f"waiting for the {'archive' if away else 'broker'}: {error}")
                self._logger.warning(f"the {'archive' if away else 'log'} does not answer", reason=str(error), again_in=pause)
                await asyncio.sleep(pause)
            else:
                self._say("starting")
                return answer
        raise AssertionError

    # -- a fold of its own ---------------------------------------------------------------------------------------------------

    async def refold(self) -> ClusterState:
        """The whole log folded anew, whatever snapshots there are, and stored as one. Raises LogMismatch where its beginning is in no archive."""
        first = await self.ask(self._log.first)
        if first > 1 and self._archive is None:
            raise LogMismatch(f"the log begins at {first}: name the archive with what was before. {await self._advice()}")
        if first > 1:
            assert self._archive is not None
            return await self._refold(self._archive, first)
        state = await self.ask(partial(self._folded, None, first))
        await self._store(state)
        return state

    async def _refold(self, where: Where, first: int) -> ClusterState:
        """Fold the archive; what the stream holds beyond it follows as always."""
        self._say(f"folding the archive anew: no snapshot of fold {FOLD_VERSION} continues the log, which begins at {first}")
        self._logger.info("folding the archive anew", archive=str(where), log_begins=first, fold=FOLD_VERSION)
        why = f"the log begins at {first} and no snapshot of fold {FOLD_VERSION} continues it"
        try:
            archive = await self.ask(partial(asyncio.to_thread, open_archive, where, log_id=self._log.log_id))
        except (ArchiveError, OSError) as error:
            raise LogMismatch(f"{why}; it cannot be folded anew: {error}. {await self._advice()}") from error
        if archive.first > 1 or archive.last < first - 1:
            raise LogMismatch(f"{why}; the archive in {where} holds {archive.first} to {archive.last} only. {await self._advice()}")
        state = await self.ask(partial(self._folded, archive, first))
        await self._store(state)
        return state

    async def by_archive(self, where: Where, broken: int) -> ClusterState | None:
        """The state by what the archive holds and the log behind it; None where that is broken, too. Raises Unavailable."""
        try:
            archive = await asyncio.to_thread(open_archive, where, log_id=self._log.log_id)
            if archive.first > 1 or archive.last < broken or await mismatch(archive, self._log):
                return None
            state = await self._folded(archive, archive.last + 1)
        except Unavailable:
            raise
        except (ArchiveError, LogError, OSError) as error:
            self._logger.warning("the archive does not help against a broken log", reason=str(error))
            return None
        return None if state.broken or too_old(state) else state

    async def _store(self, state: ClusterState) -> None:
        if self._snapshots is not None and not too_old(state) and not state.broken:
            stored = Snapshot(self._log.log_id, state.seq, FOLD_VERSION, await asyncio.to_thread(snapshot.dump, state))
            await self.ask(lambda: self._put(stored))
            self._logger.info("snapshot stored", seq=stored.seq, size=len(stored.body))

    async def _advice(self) -> str:
        """What helps where the log's beginning is in no archive. A release whose fold the newest snapshot is of can still start: the collector's last."""
        last = await self._collectors()
        named = f" ({last} was the collector's last)" if last else ""
        return (
            f"Restore the archive from a backup, or run the release that stored the newest snapshot{named}; or begin a new log "
            '(docs/install.md, "A new log"): facts come back, history and unused holds do not'
        )

    async def _collectors(self) -> str:
        """The release of the collector's last commit; empty where the log has none any more, or it says none."""
        last = await self.ask(partial(self._log.last_of, "gc"))
        if not last:
            return ""
        try:
            async with aclosing(self._log.read(last)) as batches:  # type: ignore[type-var]
                return (await anext(batches))[0].envelope.release
        except Truncated:
            return ""

    async def _put(self, stored: Snapshot) -> None:
        assert self._snapshots is not None
        await self._snapshots.put(stored)

    async def _folded(self, archive: Archive | None, first: int) -> ClusterState:
        """The archive for what the log has let go, then the log to its end: of the snapshots in a store the newest stay, and those of the other fold may
        be newer than the archive."""
        state, batches = ClusterState(), iter(()) if archive is None else archive.batches()
        while state.seq < first - 1 and (batch := await asyncio.to_thread(next, batches, None)):
            await self._add(state, [record for record in batch if record.seq < first])
        # The archive ends where the log begins, or with a hole that reaches to there.
        await self.follow(state, first if archive is not None else 0)
        return state

    async def _add(self, state: ClusterState, batch: list[Record]) -> None:
        for record in batch:
            self.bytes += len(record.body)
            fold_record(state, record.seq, record.family, record.envelope, record.body, self._log.log_id)
        state.touched = type(state.touched)()
        await asyncio.sleep(0)
