"""The log, folded: the one place where a service's state changes."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from restow import machine
from restow.contracts.ids import Family
from restow.domain import record_trust
from restow.domain.fold import fold_record
from restow.domain.history import BROKEN, Mark
from restow.domain.state import ClusterState
from restow.eventlog.port import EventLog, LogMismatch, OtherHistory, Record, Unavailable
from restow.runtime import logs
from restow.runtime.signals import Progress

SLICE = 0.010
"""Seconds of folding after which everything else in the process gets its turn."""

MOST_CAUSES = 32
"""Commits of others that the next one of ours names as its causes, the newest ones."""
REMEMBERED = 1024
"""Commits of our own family whose ids are remembered, to find out what became of one whose answer was lost."""


class Follower:
    """Reads the log from behind the state's sequence, folds it, tells the listeners.

    `folded`: the sequence that the state includes. `tail`: the last sequence that is known to exist.
    """

    def __init__(self, log: EventLog, family: Family, state: ClusterState) -> None:
        self.log, self.family, self.state = log, family, state
        self.folded = Progress(state.seq)
        self.tail = -1
        self.known = asyncio.Event()
        """Set when `tail` is known."""
        self.trace = ""
        """traceparent of the newest commit of another family: what our next commit most likely follows from."""
        self._causes: deque[tuple[int, str]] = deque(maxlen=MOST_CAUSES)
        self.foreign = state.seq
        """Sequence of the newest commit of another family."""
        self.listeners: list[Callable[[], None]] = []
        self.arrived: Callable[[Record], None] = lambda record: None
        """Told of the last record of each batch, and of every one of our own family, when they come."""
        self.testify: Callable[[], Awaitable[None]] | None = None
        """Puts on record what we have read, where the log holds it no more."""
        self.seen = -1
        """The last sequence that the log was seen to have, for the lag alone: nothing waits for it to be folded."""
        self._new_since = 0.0
        self.heard: dict[str, float] = {}
        """When (seconds of the steady clock) the newest commit of each family was folded here."""
        self._mark: Mark | None = None
        self._lost: Mark | None = None
        self.records = 0
        self.bytes = 0
        """Of the commits that were folded here, from the snapshot on; the collector subtracts what a new one covers."""
        self._own: dict[str, int] = {}
        self._log = logs.get(family=family)

    def causes(self) -> list[str]:
        """traceparents of the commits of other families that no commit of ours has read yet, the newest `MOST_CAUSES`."""
        return [traceparent for _, traceparent in self._causes]

    @property
    def caught_up(self) -> bool:
        """Whether the state includes everything that was in the log when this process last asked."""
        return self.tail >= 0 and self.folded.value >= self.tail

    @property
    def lag(self) -> int:
        """Commits that are known to exist and not folded yet."""
        return max(0, max(self.tail, self.seen) - self.folded.value)

    def looked(self) -> float:
        """Since when (seconds of the steady clock) there were commits of other families that nobody had looked at; 0.0 where there were none. From now on these
        are looked at."""
        since, self._new_since = self._new_since, 0.0
        return since

    async def run(self) -> None:
        """Until the log is closed. Raises what the log raises, and what a listener raises (Deposed)."""
        await self._first_tail()
        try:
            async with aclosing(self.log.read(self.folded.value + 1)) as batches:  # type: ignore[type-var]
                async for batch in batches:
                    await self._fold_all(batch)
        except OtherHistory as error:
            self._log.error("the log is not the one that was read", reason=str(error), folded=self.state.seq)
            if self.testify is not None:
                await self.testify()
            raise

    # -- whether it is whole ----------------------------------------------------------------------------------------------

    def expect(self, mark: Mark | None) -> None:
        """Somebody has folded the log as far as this mark: it must hold that."""
        if mark is not None and mark != self.lost and (self._mark is None or (mark.repairs, mark.seq) > (self._mark.repairs, self._mark.seq)):
            self._mark = mark
            self._compare()

    @property
    def lost(self) -> Mark | None:
        """What somebody has read of the log and it does not hold any more; a repair since then has settled that."""
        lost = self._lost
        return lost if lost is not None and lost.repairs >= self.state.repairs else None

    @property
    def mark(self) -> Mark:
        """What whoever comes after us is to find: what was folded here, or what is missing since."""
        return self.lost or Mark(self.state.repairs, self.state.seq, self.state.history.digest)

    @property
    def broken(self) -> str:
        """Why nothing may be decided on this log; empty while it is whole."""
        state, lost = self.state, self.lost
        if state.broken:
            return f"{BROKEN}: record {state.broken} is missing, or follows from another history"
        if lost is not None:
            there = f"record {lost.seq} is another one now" if lost.seq <= state.seq else f"it ends at {state.seq}, and {lost.seq} was read of it before"
            return f"{BROKEN}: it has lost records; {there}"
        return ""

    def _compare(self) -> None:
        """A log that merely ends earlier now may go on yet, with the same records."""
        mark, state = self._mark, self.state
        if mark is None:
            return
        if mark.repairs == state.repairs and mark.seq <= state.seq:
            self._mark, known = None, state.history.at(mark.seq)
            differs = known is not None and known != mark.digest
        else:
            differs = mark.repairs >= state.repairs and 0 <= self.tail <= state.seq
        if differs:
            self._lost = mark
        elif self._lost == mark:
            self._lost = None

    async def _first_tail(self) -> None:
        pause = 0.05
        while True:
            try:
                return self.learn_tail(await self.log.tail())
            except Unavailable as error:
                self._log.warning("the log does not answer", reason=str(error), again_in=pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 2.0)

    def learn_tail(self, tail: int) -> None:
        """The log is known to reach this far."""
        self.tail = max(self.tail, tail)
        self.known.set()
        if self.caught_up:
            self._tell()

    async def to_tail(self) -> None:
        """Wait until everything is folded that is in the log now. Raises Unavailable."""
        self.learn_tail(await self.log.tail())
        await self.folded.reached(self.tail)

    def stored(self, ce_id: str) -> int:
        """Sequence of our own family's recent commit with this id, else 0."""
        return self._own.get(ce_id, 0)

    async def _fold_all(self, batch: list[Record]) -> None:
        if self.tail < batch[-1].seq:
            self.tail = batch[-1].seq
        for record in batch:
            if record.family == self.family or record is batch[-1]:
                self.arrived(record)
        until = machine.steady() + SLICE
        for record in batch:
            self._fold(record)
            if machine.steady() > until:
                self._tell()
                await asyncio.sleep(0)
                until = machine.steady() + SLICE
        self._tell()

    def _fold(self, record: Record) -> None:
        envelope = record.envelope
        self.bytes += len(record.body)
        found = fold_record(self.state, record.seq, record.family, envelope, record.body, self.log.log_id)
        if found.kind == record_trust.OTHER_HISTORY and record_trust.repairs(record.family, record.body):
            raise LogMismatch(f"record {record.seq} repairs a log that is not the one that was read here: what was folded is another history")
        if found.kind:
            self._log.warning(
                "a record in the log is not ours: it is void", seq=record.seq, subject_family=record.family,
                kind=found.kind, reason=found.why,
            )
            return
        self.records += 1
        self.heard[record.family] = machine.steady()
        if record.family == self.family:
            self._own[envelope.id] = record.seq
            if len(self._own) > REMEMBERED:
                del self._own[next(iter(self._own))]
            while self._causes and self._causes[0][0] <= envelope.read:
                self._causes.popleft()
        else:
            self.foreign = record.seq
            self._new_since = self._new_since or machine.steady()
            self.trace = envelope.traceparent
            self._causes.append((record.seq, envelope.traceparent))

    def _tell(self) -> None:
        """Listeners first, so that they have seen a deposition before a waiter of ours goes on."""
        self._compare()
        for listener in self.listeners:
            listener()
        self.folded.advance(self.state.seq)

