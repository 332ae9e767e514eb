"""The command loop: the one place where a service writes to the log.

It sleeps until something has changed, decides everything that is there to be decided at one `read`, appends it as one
commit, and waits until its own fold includes it. What arrives meanwhile is gathered into the next commit: batching is by
back-pressure, never by a timer (DESIGN 2).
"""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision, decode, encode, name_of
from restow.contracts.envelope import Envelope
from restow.contracts.ids import Millis
from restow.contracts.times import rfc3339
from restow.domain import config
from restow.domain.decider import Decider, Rejected, decide_all
from restow.domain.state import ClusterState
from restow.eventlog.port import Conflict, EventLog, TooLarge, Unavailable, Unknown
from restow.runtime import logs
from restow.runtime.clock import Clock, Timer
from restow.runtime.follower import Follower
from restow.runtime.leadership import Leadership, Phase
from restow.runtime.offload import in_copy
from restow.runtime.signals import Bell
from restow.runtime.telemetry import Metrics, Span, Tracer

AGAIN = Millis(1_000)
"""A deadline that has passed and led to nothing is not asked about again for so long, in ms."""

QUEUE = 10_000
"""Most commands that wait to be decided."""

MANY = 5_000
"""Pods from which on a heavy command is decided on a copy of the process: below it takes under about 50 ms."""

BACKOFF = (0.02, 0.05, 0.1, 0.3, 1.0)
"""Seconds between questions to a log that does not answer; the last one repeats."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of a submitted command: the commit and its events; `seq` 0 where there was nothing to decide."""

    seq: int
    events: tuple[e.Event, ...] = ()


class Refused(RuntimeError):
    """The command was not taken: this process does not lead, stops, or has too much to do."""


class Waiting(msgspec.Struct, eq=False):
    """A command, and who waits for its outcome."""

    command: c.Command
    cause: str
    outcome: asyncio.Future[Outcome] | None = None


class Book:
    """Told what becomes of commits; the cluster watcher keeps its buffer by it."""

    def committed(self, seq: int) -> None:
        """It is folded."""

    def conflicted(self) -> None:
        """Somebody else wrote to our family."""


Propose = Callable[[ClusterState, Sequence[c.Command]], list[Decision]]


def smaller(command: c.Command) -> c.Command | None:
    """A command of the same meaning that leads to less, for when a commit was too large."""
    if isinstance(command, c.Schedule) and command.limit > 1:
        return msgspec.structs.replace(command, limit=command.limit // 2)
    return None


class Commander:
    """One family's command loop. `propose` decides (by default `decide_all`)."""

    def __init__(
        self,
        log: EventLog,
        follower: Follower,
        decider: Decider,
        leadership: Leadership,
        clock: Clock,
        metrics: Metrics,
        *,
        service: str,
        tracer: Tracer | None = None,
        propose: Propose | None = None,
        book: Book | None = None,
        shrink: Callable[[c.Command], c.Command | None] = smaller,
        heavy: tuple[type[c.Command], ...] = (),
    ) -> None:
        self.log, self.follower, self.decider, self.leadership = log, follower, decider, leadership
        self.configuration: str | None = None
        """Canonical JSON of what the configuration should be; None to leave the log's."""
        self.in_flight = False
        self.stuck = ""
        """Why the log takes no commit at present; empty while it does."""
        self._clock, self._metrics, self._service = clock, metrics, service
        self._tracer = tracer or Tracer(service)
        self._propose = propose or (lambda state, commands: decide_all(state, decider, commands))
        self._book = book or Book()
        self._shrink, self._heavy = shrink, heavy
        self._queue: deque[Waiting] = deque()
        self._bell = Bell()
        self._timer: Timer | None = None
        self._fruitless = -1
        self._not_before = Millis(0)
        self._most = QUEUE
        self._doubtful: dict[str, tuple[list[Waiting], list[Decision]]] = {}
        self._emptied = 0
        self._draining = False
        self._log = logs.get(service=service, family=decider.family)
        follower.listeners.append(self._on_fold)
        leadership.changed.append(self._bell.ring)

    # -- from outside ------------------------------------------------------------------------------------------------

    def submit(self, command: c.Command, cause: str = "") -> asyncio.Future[Outcome]:
        """Decide this too. The future ends with the outcome, or with Rejected or Refused."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(_looked_at)
        if self._draining:
            outcome.set_exception(Refused("this service is stopping"))
        elif len(self._queue) >= QUEUE:
            outcome.set_exception(Refused(f"{QUEUE} commands are waiting already; try again later"))
        else:
            self._queue.append(Waiting(command, cause or "submitted", outcome))
            self._bell.ring()
        return outcome

    def wake(self) -> None:
        """There may be something to decide."""
        self._fruitless = -1
        self._bell.ring()

    def drain(self) -> None:
        """Take nothing more; `run` ends after the commit in flight."""
        self._draining = True
        for waiting in self._queue:
            _fail(waiting, Refused("this service is stopping"))
        self._queue.clear()
        self._bell.ring()

    # -- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until drained. Raises Deposed, and what the log raises for good (BrokerRefused, LogMismatch, Closed)."""
        while not self._draining:
            await self._bell.wait()
            if self._draining or not self.follower.caught_up:
                continue
            if self.leadership.phase not in (Phase.CLAIMING, Phase.LEADING):
                continue
            batch = self._gather(self._clock.now())
            if batch:
                self.in_flight = True
                try:
                    await self._commit(batch)
                finally:
                    self.in_flight = False
                self._bell.ring()
            self._set_timer()

    def _on_fold(self) -> None:
        self.leadership.check(self.follower.state)
        self._bell.ring()

    def _gather(self, now: Millis) -> list[Waiting]:
        """What is there to be decided: leadership, then configuration, then what was submitted, then what is due."""
        batch: list[Waiting] = []
        state, family = self.follower.state, self.decider.family
        if self.leadership.phase is Phase.CLAIMING:
            batch.append(Waiting(c.Lead(self.leadership.holder), "lease"))
        text = self.configuration
        if text is not None and state.configured.get(family) != config.digest_of(text):
            batch.append(Waiting(c.Configure(text), "configuration"))
        if batch:
            return batch
        for _ in range(min(len(self._queue), self._most)):
            batch.append(self._queue.popleft())
        asked = any(w.outcome is None for w in batch)
        if not asked and (self._fruitless != state.seq or now >= self._not_before):
            due = self.decider.due(state, now)
            if due is not None:
                batch.append(Waiting(due, self._cause()))
        return batch

    def _cause(self) -> str:
        """The newest commit of another family is what our decision most likely follows from."""
        follower = self.follower
        return f"{follower.foreign}/0" if follower.foreign > follower.state.last[self.decider.family] else "deadline"

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.leadership.leading and (deadline := self._deadline()) is not None:
            self._timer = self._clock.at(deadline, self._bell.ring)

    def _deadline(self) -> Millis | None:
        """When to ask again. One that has passed and led to nothing waits for a while: an empty decision never spins."""
        now, deadline = self._clock.now(), self.decider.deadline(self.follower.state)
        if deadline is None or deadline > now:
            return deadline
        return max(self._not_before, Millis(now + 1)) if self._fruitless == self.follower.state.seq else now

    # -- one commit --------------------------------------------------------------------------------------------------

    async def _commit(self, batch: list[Waiting]) -> None:
        """Decide, append, wait for our own fold; or find out why not and put what was submitted back."""
        state, family = self.follower.state, self.decider.family
        started, read = time.perf_counter(), state.seq
        if len(state.pods) >= MANY and any(isinstance(w.command, self._heavy) for w in batch):
            decisions = await self._decide_aside(batch)
        else:
            decisions = self._decide(batch)
        if not decisions:
            self._nothing(batch)
            return
        self._metrics.decide.observe(time.perf_counter() - started)
        span = self._tracer.span(f"{family} commit", self.follower.trace)
        envelope = self._envelope(span, read)
        body = encode(decisions)
        started = time.perf_counter()
        try:
            seq = await self.log.append(family, body, envelope, expected_last=self._expected())
        except TooLarge as error:
            self._split(batch, error)
        except Conflict as error:
            self._metrics.conflicts.inc()
            await self._after_conflict(batch, error)
        except Unknown as error:
            self._metrics.unknown.inc()
            self._doubtful[envelope.id] = (batch, decisions)
            await self._after_unknown(batch, error)
        else:
            self._metrics.append.observe(time.perf_counter() - started)
            await self._stored(seq, batch, decisions)
            events = sum(len(d.events) for d in decisions)
            span.end(seq=seq, events=events)
            if self._log.is_enabled_for(10):
                self._log.debug("committed", seq=seq, read=envelope.read, events=events, bytes=len(body))

    def _decide(self, batch: list[Waiting]) -> list[Decision]:
        """Decisions of the batch. A rejected command is taken out of it, and its submitter is told."""
        state = self.follower.state
        try:
            decisions = self._propose(state, [w.command for w in batch])
        except Rejected:
            self._reject_some(batch)
            decisions = self._propose(state, [w.command for w in batch]) if batch else []
        causes = {id(w.command): w.cause for w in batch}
        return [d if d.cause else msgspec.structs.replace(d, cause=causes.get(id(d.command), "")) for d in decisions]

    async def _decide_aside(self, batch: list[Waiting]) -> list[Decision]:
        """The same on a copy of the process, as of now, while this one goes on folding: a plan over many pods would
        stall the loop. Nobody else writes to our family meanwhile, or the append says so."""

        def work() -> bytes:
            try:
                return encode(self._propose(self.follower.state, [w.command for w in batch]))
            except Rejected:
                return b""

        body = await in_copy(work)
        if not body:
            return self._decide(batch)
        causes = [(w.command, w.cause) for w in batch]
        return [
            msgspec.structs.replace(d, command=mine, cause=d.cause or cause)
            for d in decode(body)
            for mine, cause in causes
            if mine == d.command
        ]

    def _reject_some(self, batch: list[Waiting]) -> None:
        """Find the commands that make no sense, each on the state that includes the accepted ones before it."""
        accepted: list[Waiting] = []
        for waiting in batch:
            try:
                self._propose(self.follower.state, [*(w.command for w in accepted), waiting.command])
            except Rejected as error:
                self._metrics.rejected.inc()
                self._log.warning("rejected", command=name_of(waiting.command), reason=str(error))
                _fail(waiting, error)
            else:
                accepted.append(waiting)
        batch[:] = accepted

    def _nothing(self, batch: Iterable[Waiting]) -> None:
        """Nothing was decided: not tried again before the state changes or its deadline comes."""
        now, state = self._clock.now(), self.follower.state
        deadline = self.decider.deadline(state)
        self._fruitless = state.seq
        self._not_before = deadline if deadline is not None and deadline > now else Millis(now + AGAIN)
        for waiting in batch:
            _end(waiting, Outcome(0))

    def _envelope(self, span: Span, read: int) -> Envelope:
        return Envelope(
            id=uuid.uuid4().hex,
            source=f"/restow/{self.log.cluster}/{self._service}/{self.leadership.holder}",
            time=rfc3339(self._clock.now()),
            read=read,
            logic=self.decider.logic,
            traceparent=span.traceparent,
        )

    def _expected(self) -> int:
        last = self.follower.state.last[self.decider.family]
        return 0 if last <= self._emptied else last

    async def _stored(self, seq: int, batch: list[Waiting], decisions: Sequence[Decision]) -> None:
        """Our commit is in the log: wait until the state includes it, then tell those who wait."""
        self.stuck = ""
        self._most = QUEUE
        self._doubtful.clear()
        self._metrics.commits.inc()
        self._metrics.events.inc(sum(len(d.events) for d in decisions))
        await self.follower.folded.reached(seq)
        self._fruitless = -1
        self._lead_if_led(batch, seq)
        self._book.committed(seq)
        _end_all(batch, seq, decisions)

    def _lead_if_led(self, batch: list[Waiting], seq: int) -> None:
        if self.leadership.phase is not Phase.CLAIMING or not any(isinstance(w.command, c.Lead) for w in batch):
            return
        leader = self.follower.state.leaders[self.decider.family]
        if leader.holder != self.leadership.holder:
            self.leadership.depose(f"{leader.holder} took {self.decider.family} over at the same time")
        self.leadership.won(leader.epoch)
        self._log.info("leading", epoch=leader.epoch, seq=seq)

    # -- when it went wrong --------------------------------------------------------------------------------------------

    async def _after_conflict(self, batch: list[Waiting], error: Conflict) -> None:
        """Somebody wrote to our family: a former leader, the next one, or a commit of ours whose answer was lost."""
        self._log.info("conflict", reason=str(error))
        await self.to_tail()
        if not self._settle_doubtful(batch):
            self._book.conflicted()
            state, family = self.follower.state, self.decider.family
            if state.last[family] and await self._ask(lambda: self.log.last_of(family)) == 0:
                self._emptied = state.last[family]
        self._put_back(batch)

    async def _after_unknown(self, batch: list[Waiting], error: Unknown) -> None:
        """The commit may be there or not: fold to the tail and look (DESIGN 2)."""
        self._log.warning("no answer to a commit", reason=str(error))
        self.stuck = error.why
        await self.to_tail()
        if not self._settle_doubtful(batch):
            self._put_back(batch)

    def _settle_doubtful(self, batch: list[Waiting]) -> bool:
        """Whether one of our unanswered commits turned out to be in the log; its commands are taken out of `batch`."""
        for ce_id, (waiting, decisions) in self._doubtful.items():
            if seq := self.follower.stored(ce_id):
                self._log.info("an unanswered commit was stored", seq=seq)
                self._metrics.commits.inc()
                self._doubtful.clear()
                self._fruitless = -1
                self._lead_if_led(waiting, seq)
                self._book.committed(seq)
                _end_all(waiting, seq, decisions)
                done = set(map(id, waiting))
                batch[:] = [w for w in batch if id(w) not in done]
                return True
        return False

    def _put_back(self, batch: list[Waiting]) -> None:
        """Submitted commands wait for the next decision, in their order; the rest is asked for anew."""
        self._queue.extendleft(reversed([w for w in batch if w.outcome is not None]))
        self._fruitless = -1

    def _split(self, batch: list[Waiting], error: TooLarge) -> None:
        """Decide less at once. A single command that cannot be made smaller is refused."""
        reduced = [w for w in batch if (less := self._shrink(w.command)) is not None and _set(w, less)]
        if reduced:
            self._log.info("a commit was too large and is decided in parts", size=error.size, limit=error.limit)
            self._queue.extendleft(reversed(batch))
        elif len(batch) > 1:
            self._most = len(batch) // 2
            self._put_back(batch)
        else:
            self._metrics.rejected.inc()
            self._log.error("a decision is too large for the log", command=name_of(batch[0].command), reason=str(error))
            _fail(batch[0], Rejected(str(error)))
            self._nothing(())

    async def to_tail(self) -> None:
        """Fold everything that is in the log now; wait for the log as long as it takes."""
        await self._ask(self.follower.to_tail)

    async def _ask(self, question):
        """Ask the log until it answers."""
        for attempt in range(1_000_000):
            try:
                answer = await question()
                self.stuck = ""
                return answer
            except Unavailable as error:
                pause = BACKOFF[min(attempt, len(BACKOFF) - 1)]
                self.stuck = str(error)
                self._log.warning("the log does not answer", reason=str(error), again_in=pause)
                await asyncio.sleep(pause)
        raise AssertionError


def _set(waiting: Waiting, command: c.Command) -> bool:
    waiting.command = command
    return True


def _end(waiting: Waiting, outcome: Outcome) -> None:
    if waiting.outcome is not None and not waiting.outcome.done():
        waiting.outcome.set_result(outcome)


def _end_all(batch: Iterable[Waiting], seq: int, decisions: Iterable[Decision]) -> None:
    events = {id(d.command): d.events for d in decisions}
    for waiting in batch:
        found = events.get(id(waiting.command), ())
        _end(waiting, Outcome(seq if found else 0, found))


def _fail(waiting: Waiting, error: Exception) -> None:
    if waiting.outcome is not None and not waiting.outcome.done():
        waiting.outcome.set_exception(error)


def _looked_at(outcome: asyncio.Future[Outcome]) -> None:
    """Whoever does not await an outcome is told by the logs."""
    if not outcome.cancelled():
        outcome.exception()
