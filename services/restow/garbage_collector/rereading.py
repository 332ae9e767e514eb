"""Whether the broker still shows what was read of it since the last snapshot.

A bit that flips on its disk is noticed by whoever reads there next: mostly a service that starts, for which everything behind that record is void. Whoever has read the
record before that knows what it was; and his snapshot says it to all who start.
"""

import asyncio
from contextlib import aclosing

from restow.domain.history import History
from restow.eventlog.port import LogMismatch, Truncated
from restow.runtime import logs
from restow.runtime.service import Context

EVERY = 600_000
"""Milliseconds between two readings. One of 50 000 commits takes one to two seconds of the collector's time."""
PATIENCE = 60.0
"""Seconds without a record that one waits: a log that ends earlier than it did is the follower's to notice."""


class Rereading:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._at = context.clock.now() + EVERY
        state = context.state
        self._seq, self._digest = state.seq, state.history.digest
        """Behind this is read: the last snapshot, or with what this process began."""
        self._damaged = 0
        self._log = logs.get(service="garbage_collector")

    @property
    def damaged(self) -> bool:
        """Whether the log holds records that are other ones than were read. They go with what is truncated."""
        return self._damaged > self._context.state.truncated

    @property
    def unsaved(self) -> bool:
        """Whether no snapshot holds yet what these said."""
        return self.damaged and self._damaged > self._context.state.snapshot_seq

    def note(self) -> str:
        if not self.damaged:
            return ""
        saved = "no snapshot holds yet what they said, so no service is to be started again" if self.unsaved else "a snapshot holds what they said"
        return f"records of the log up to {self._damaged} have changed on the broker's disk since they were read; {saved}. Look at that disk (docs/failures.md)"

    def learn(self) -> None:
        """What was folded last may be a report of a snapshot."""
        state = self._context.state
        if state.snapshot_seq > self._seq and (digest := state.history.at(state.snapshot_seq)):
            self.covered(state.snapshot_seq, digest)

    def covered(self, seq: int, digest: bytes) -> None:
        """By a snapshot. Whoever stores one says so himself: what it was of may be remembered no more (`history.KEPT`) once that is on record."""
        self._seq, self._digest = seq, digest

    async def finds_damage(self) -> bool:
        """Reads again once it is time; whether what comes is not what was folded, or does not come, or was not the last time and no snapshot holds it yet. Raises Unavailable."""
        if self.unsaved:
            return True
        context = self._context
        state, now = context.state, context.clock.now()
        if now < self._at or state.seq <= self._seq or context.follower.broken:
            return False
        self._at = now + EVERY
        began, upto, digest = self._seq, state.seq, state.history.digest
        try:
            found = await self._read(upto)
        except Truncated:
            # Snapshots that this process knows nothing of.
            self._seq, self._digest = upto, digest
            return False
        except TimeoutError:
            # The last record may be the damaged one, of a log in which nothing comes behind it; or the broker is slow, and a snapshot more does no harm.
            self._log.warning("the log could not be read again to its end: a snapshot is stored at once", reason=f"no record within {PATIENCE:g} s", last=upto)
            return True
        except LogMismatch as error:
            self._log.warning("the log could not be read again", reason=str(error))
            return False
        if found == digest:
            return False
        self._damaged = upto
        self._log.error("records have changed on the broker's disk since they were read: a snapshot is stored at once", first=began + 1, last=upto)
        return True

    async def _read(self, upto: int) -> bytes:
        """The digest of the history up to there, as the broker shows it now. Raises TimeoutError."""
        history, now = History(self._seq, self._digest), asyncio.get_running_loop().time
        async with asyncio.timeout(PATIENCE) as patience, aclosing(self._context.log.read(self._seq + 1)) as batches:  # type: ignore[type-var]
            async for batch in batches:
                patience.reschedule(now() + PATIENCE)
                for record in batch:
                    if record.seq <= upto:
                        history.add(record.seq, record.family, record.envelope, record.body)
                if batch[-1].seq >= upto:
                    break
                await asyncio.sleep(0)
        return history.digest
