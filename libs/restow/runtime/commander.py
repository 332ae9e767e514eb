"""The command loop: the one place where a service writes to the log.

It sleeps until something has changed, decides everything that is there to be decided at one `read`, appends it as one
commit, and waits until its own fold includes it. What arrives meanwhile is gathered into the next commit: batching is by
back-pressure, never by a timer (DESIGN 2).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from restow import machine
from restow.contracts import commands as c
from restow.contracts.codec import Decision, encode, name_of
from restow.contracts.envelope import Envelope
from restow.contracts.ids import Millis
from restow.contracts.reader import needed
from restow.contracts.times import rfc3339
from restow.domain import config, record_trust
from restow.domain.decider import Decider, Rejected, decide_all
from restow.eventlog.port import (
    Conflict,
    EventLog,
    LogError,
    OtherHistory,
    TooLarge,
    Unknown,
)
from restow.runtime import logs
from restow.runtime.clock import Clock, Timer
from restow.runtime.command_queue import MOST, CommandQueue, Outcome, Refused, Unsure, Waiting
from restow.runtime.deciding import Deciding, Propose
from restow.runtime.follower import Follower
from restow.runtime.leadership import Leadership, Phase
from restow.runtime.log_trouble import LogTrouble
from restow.runtime.long_decisions import Heavy
from restow.runtime.loss import Loss
from restow.runtime.offload import CopyFailed, WorkFailed
from restow.runtime.signals import Bell
from restow.runtime.telemetry import Metrics
from restow.runtime.tracer import Span, Tracer

LACKS = 5.0
"""Seconds for which a broker may not know yet what it has acknowledged: a replica that has just become the leader may not have applied its last commits."""

AGAIN = Millis(1_000)
"""A deadline that has passed and led to nothing is not asked about again for so long, in ms."""

ENDINGS = 100
"""Attempts to put on record what came of a long decision; of a full store each takes five seconds at last."""

FACTS = "cluster"
"""The family that decides nothing."""


class Book:
    """Told what becomes of commits; the cluster watcher keeps its buffer by it."""

    def mark(self) -> int:
        """What the decision that was made last has taken. It is handed back if just that one turns out to be in the log."""
        return 0

    def committed(self, seq: int, mark: int) -> None:
        """The commit with this mark is folded; no other one that is in doubt will ever be."""

    def unanswered(self) -> None:
        """The last commit is not in the log, and may still arrive: until the next commit is folded, or a conflict, nothing that it
        has taken may be forgotten."""

    def conflicted(self) -> None:
        """Somebody else wrote to our family."""


class Doubt(msgspec.Struct, frozen=True, eq=False):
    """A commit without an answer: what was asked (a command may be made smaller later), what was decided, what it took."""

    asked: list[tuple[Waiting, c.Command]]
    decisions: list[Decision]
    mark: int


class Void(LogError):
    """What was decided is a record that every reader would take for no record of ours, so that it would be lost. Nothing was sent."""


class NotFolded(LogError):
    """The log says that our commit is in it, and what stands there is not ours."""


def smaller(command: c.Command, error: LogError) -> c.Command | None:
    """A command of the same meaning that leads to less, for when a commit was too large, or one that no reader could read."""
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
        shrink: Callable[[c.Command, LogError], c.Command | None] = smaller,
        heavy: Heavy | None = None,
    ) -> None:
        self.log, self.follower, self.decider, self.leadership = log, follower, decider, leadership
        self.configuration: str | None = None
        """Canonical JSON of what the configuration should be; None to leave the log's."""
        self.release = ""
        """What decides here (`restow.runtime.release`); part of every envelope."""
        self.in_flight = False
        self._clock, self._metrics, self._service = clock, metrics, service
        self._tracer = tracer or Tracer()
        self._book = book or Book()
        self._shrink, self._heavy = shrink, heavy
        self._queue = CommandQueue()
        self._bell = Bell()
        self._timer: Timer | None = None
        self._fruitless = -1
        self._not_before = Millis(0)
        self._most = MOST
        self._doubtful: dict[str, Doubt] = {}
        self._emptied = 0
        self._lacks = 0.0
        """Since when (steady seconds) the broker knows no more of a record of our family; 0.0 while it does."""
        self._drains = asyncio.Event()
        self._log = logs.get(service=service, family=decider.family)
        self._deciding = Deciding(follower.state, propose or (lambda state, commands: decide_all(state, decider, commands)), metrics, self._log)
        follower.listeners.append(self._on_fold)
        self.trouble = LogTrouble(self._log)
        self.loss = Loss(log, decider.family, follower.state, lambda read: self._envelope(self._tracer.span(f"{decider.family} commit", ""), read), self._log)
        follower.testify = self.loss.testify
        leadership.changed.append(self._bell.ring)

    # -- from outside ------------------------------------------------------------------------------------------------

    def submit(self, command: c.Command, cause: str = "") -> asyncio.Future[Outcome]:
        """Decide this too. The future ends with the outcome, or with Rejected or Refused."""
        outcome = self._queue.submit(command, cause or "submitted")
        self._bell.ring()
        return outcome

    def wake(self) -> None:
        """There may be something to decide."""
        self._fruitless = -1
        self._bell.ring()

    def drain(self) -> None:
        """Take nothing more; `run` ends after the commit in flight."""
        self._drains.set()
        self.trouble.retry()
        self._doubt_is_unsure()
        self._queue.close()
        self._bell.ring()

    # -- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until drained. Raises Deposed, and what the log raises for good (BrokerRefused, LogMismatch, Closed), or does for good (NotFolded)."""
        try:
            while not self._drains.is_set():
                await self._bell.wait()
                if self._drains.is_set() or not self.follower.caught_up:
                    continue
                if self.leadership.phase not in (Phase.CLAIMING, Phase.LEADING):
                    self.follower.looked()
                    continue
                if self.follower.broken and not self._queue.repairs:
                    continue
                looked = self._clock.now()
                batch = self._gather(looked)
                if batch:
                    self.in_flight = True
                    try:
                        await self._commit(batch)
                    finally:
                        self.in_flight = False
                    self._bell.ring()
                else:
                    # What was refused is needed no more: nothing tells any more whether the broker knows it by now.
                    self._lacks = 0.0
                    self.trouble.over(stored=False)
                    self.follower.looked()
                self._set_timer(looked)
        finally:
            # Also where this process is deposed, or fails: who waits is to hear it from us, and not by a connection that is closed without a word.
            self._doubt_is_unsure()
            self._queue.end()

    def _doubt_is_unsure(self) -> None:
        """What a commit without an answer was for is put back, and would count as not taken."""
        for commit in self._doubtful.values():
            for waiting, _ in commit.asked:
                waiting.fail(Unsure())

    def _on_fold(self) -> None:
        self.leadership.check(self.follower.state)
        self._bell.ring()

    def _gather(self, now: Millis) -> list[Waiting]:
        """What is there to be decided: leadership, then configuration, then what was submitted, then what is due."""
        batch: list[Waiting] = []
        state, family = self.follower.state, self.decider.family
        if self.leadership.phase is Phase.CLAIMING:
            batch.append(Waiting(c.Lead(self.leadership.holder), "lease"))
        if self.follower.broken:
            # Nothing but its repair is decided on a broken log.
            return batch + self._queue.take_repairs()
        text = self.configuration
        if text is not None and state.configured.get(family) != config.digest_of(text):
            batch.append(Waiting(c.Configure(text), "configuration"))
        if batch:
            return batch
        batch += self._queue.take(self._most)
        if all(self._is_heavy(w) for w in batch) and (self._fruitless != state.seq or now >= self._not_before):
            due = self.decider.due(state, now)
            if due is not None:
                batch.append(Waiting(due, self._cause()))
        return self._queue.without_long(batch, self._is_heavy)

    def _is_heavy(self, waiting: Waiting) -> bool:
        return self._heavy is not None and self._heavy.is_heavy(waiting.command)

    def _cause(self) -> str:
        """The newest commit of another family is what our decision most likely follows from."""
        follower = self.follower
        return f"{follower.foreign}/0" if follower.foreign > follower.state.last[self.decider.family] else "deadline"

    def _parent(self) -> str:
        """The traceparent that our commit follows from: of the newest commit of another family since our last one. Facts follow from
        nothing in the log, a deadline neither: a trace is what comes of one of them."""
        follower, family = self.follower, self.decider.family
        return follower.trace if family != FACTS and follower.foreign > follower.state.last[family] else ""

    def _set_timer(self, looked: Millis) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.leadership.leading and (deadline := self._deadline(looked)) is not None:
            self._timer = self._clock.at(deadline, self._bell.ring)

    def _deadline(self, looked: Millis) -> Millis | None:
        """When to ask again what is due, which was asked at `looked`. One that had passed by then and led to nothing, or to nothing that is due, waits for
        a while: an empty decision never spins."""
        now, deadline = self._clock.now(), self.decider.deadline(self.follower.state)
        if deadline is None or deadline > looked:
            return deadline
        return max(self._not_before, Millis(now + 1)) if self._fruitless == self.follower.state.seq else Millis(now + AGAIN)

    # -- one commit --------------------------------------------------------------------------------------------------

    async def _commit(self, batch: list[Waiting]) -> None:
        """Decide, append, wait for our own fold; or find out why not and put what was submitted back."""
        heavy, state = self._heavy, self.follower.state
        large = next((w for w in batch if self._is_heavy(w)), None)
        if heavy is not None and large is not None:
            self._put_back([w for w in batch if w is not large])
            return await self._commit_heavy(heavy, large)
        started, read, since = machine.steady(), state.seq, self.follower.looked()
        decisions = self._deciding.decide(batch)
        if decisions:
            await self._append(batch, decisions, started, read)
            if since:
                self._metrics.reaction.observe(machine.steady() - since)
        else:
            self._nothing(batch)

    async def _append(self, batch: list[Waiting], decisions: list[Decision], started: float, read: int) -> LogError | None:
        """Store what was decided as of `read`, or say what the log answered instead."""
        family = self.decider.family
        doubt = Doubt([(w, w.command) for w in batch], decisions, self._book.mark())
        self._metrics.decide.observe(machine.steady() - started)
        span = self._tracer.span(f"{family} commit", self._parent(), self.follower.causes())
        envelope = self._envelope(span, read, decisions)
        body = encode(decisions)
        started = machine.steady()
        try:
            # By the rule of every reader: a record that is void to them takes what it says with it, for good.
            if why := record_trust.examine(family, envelope, body, self.log.log_id).why:
                raise Void(f"a commit of family {family!r} would be void: {why}")
            seq = await self.log.append(family, body, envelope, expected_last=self._expected())
        except (TooLarge, Void) as error:
            self._split(batch, error)
            return error
        except OtherHistory:
            await self.loss.testify()
            raise
        except Conflict as error:
            self._metrics.conflicts.inc()
            await self._after_conflict(batch, error)
            return error
        except Unknown as error:
            self._metrics.unknown.inc()
            self._doubtful[envelope.id] = doubt
            await self._after_unknown(batch, error)
            return error
        self._metrics.append.observe(machine.steady() - started)
        self._metrics.bytes.inc(len(body))
        await self._stored(seq, envelope.id, doubt)
        events = sum(len(d.events) for d in decisions)
        span.end(seq=seq, events=events)
        if self._log.is_enabled_for(10):
            self._log.debug("committed", seq=seq, read=envelope.read, events=events, bytes=len(body))
        return None

    async def _commit_heavy(self, heavy: Heavy, waiting: Waiting) -> None:
        """One decision that may take long, or fail: put on record, then made on a copy of the process, as of then, while this one goes on folding. Whatever becomes
        of it is in the log, too; and if it takes this process with it, that it has no end is."""
        state = self.follower.state
        waiting.command = heavy.bounded(state, waiting.command)
        begin, begun = heavy.begin(state, waiting.command), ""
        if begin is not None:
            await self._commit([Waiting(begin, waiting.cause)])
            begun = heavy.under_way(state)
            if not begun or begun != getattr(waiting.command, "plan", ""):
                # Not taken, or one of before was, whose answer had been lost: of that no plan is made.
                await self._end_heavy(heavy, begun, "NotStored", "that it begins was stored late", False, waiting.cause)
                return self._put_back([waiting])
        started, read, batch = machine.steady(), state.seq, [waiting]
        reason, message = "Rejected", ""
        try:
            decisions = await self._deciding.aside(waiting, heavy.leave_out, self._drains)
        except Rejected as error:
            message = str(error)
            self._nothing(batch)
        except WorkFailed as error:
            reason, message = "Failed", error.why
            self._deciding.came_to_no_end(waiting, error)
        except CopyFailed as error:
            reason, message = type(error).__name__, str(error)
            self._deciding.came_to_no_end(waiting, error)
        except Refused as error:
            reason, message = "Stopped", str(error)
            waiting.fail(error)
        else:
            if self.follower.broken:
                # It became so meanwhile.
                reason, message = "Stopped", self.follower.broken
                waiting.fail(Refused(message))
            elif not decisions:
                # Its time came while nobody was there to see it, and is over.
                reason, message = "Stopped", "there was nothing to decide any more"
                self._nothing(batch)
            elif refusal := await self._append(batch, decisions, started, read):
                # A record that would be void is a fault of ours; what the broker did not take is decided again.
                reason, message = {TooLarge: "TooLarge", Void: "Failed"}.get(type(refusal), "NotStored"), str(refusal)
        failed = reason in ("CopyFailed", "Failed", "TooLarge") or (waiting.outcome is None and reason == "Rejected")
        await self._end_heavy(heavy, begun, reason, message, failed, waiting.cause)

    async def _end_heavy(self, heavy: Heavy, begun: str, reason: str, message: str, failed: bool, cause: str) -> None:
        """Put on record what came of it, where its decision has not, as often as the broker does not take that: what has no end is taken for what the process has died of."""
        state = self.follower.state
        for _ in range(ENDINGS):
            if not begun or heavy.under_way(state) != begun or self.follower.broken:
                return
            await self._commit([Waiting(heavy.end(state, self._clock.now(), reason, message, failed), cause)])
            if self._drains.is_set():
                return

    def _nothing(self, batch: Iterable[Waiting]) -> None:
        """Nothing was decided: what the state asks for is not tried again before it changes or its deadline comes. What was submitted says nothing of
        what is due."""
        if any(waiting.outcome is None for waiting in batch):
            now, state = self._clock.now(), self.follower.state
            deadline = self.decider.deadline(state)
            self._fruitless = state.seq
            self._not_before = deadline if deadline is not None and deadline > now else Millis(now + AGAIN)
        for waiting in batch:
            waiting.end(Outcome(0))

    def _envelope(self, span: Span, read: int, decisions: Sequence[Decision] = ()) -> Envelope:
        return Envelope(
            id=machine.token(16),
            source=f"/restow/{self.log.cluster}/{self._service}/{self.leadership.holder}",
            time=rfc3339(self._clock.now()),
            read=read,
            logic=self.decider.logic,
            traceparent=span.traceparent,
            log=self.log.log_id,
            release=self.release,
            reader=needed(decisions),
            digest=self.follower.state.history.said(),
        )

    def _expected(self) -> int:
        last = self.follower.state.last[self.decider.family]
        return 0 if last <= self._emptied else last

    async def _stored(self, seq: int, ce_id: str, commit: Doubt) -> None:
        """Our commit is in the log: wait until the state includes it, then tell those who wait. Raises NotFolded."""
        self._most, self._lacks = MOST, 0.0
        self._metrics.events.inc(sum(len(d.events) for d in commit.decisions))
        await self.follower.folded.reached(seq)
        if self.follower.stored(ce_id) != seq:
            raise NotFolded(f"record {seq} is void, or is not the commit {ce_id} that the log has stored there: what it said is decided again")
        self._folded(seq, commit)

    def _folded(self, seq: int, commit: Doubt) -> None:
        """The state includes this commit of ours. Any other one in doubt named the same last sequence and can never be stored."""
        self._doubtful.clear()
        self.trouble.over(stored=True)
        self._metrics.commits.inc()
        self._fruitless = -1
        self._lead_if_led(commit, seq)
        self._book.committed(seq, commit.mark)
        _end_all(commit, seq)

    def _lead_if_led(self, commit: Doubt, seq: int) -> None:
        if self.leadership.phase is not Phase.CLAIMING or not any(isinstance(asked, c.Lead) for _, asked in commit.asked):
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
            self._doubtful.clear()
            self._book.conflicted()
            await self._compare_last()
        self._put_back(batch)

    async def _compare_last(self) -> None:
        """Of our family the broker may know no record: all were truncated. Where it does not know one that it still has to have, for longer than a replica needs that has just
        become the leader, its disk has lost that, and it takes no commit of ours any more. Raises OtherHistory."""
        family = self.decider.family
        known = await self.trouble.ask(lambda: self.log.last_of(family))
        folded = self.follower.state.last[family]
        if known >= folded:
            self._lacks = 0.0
        elif folded < await self.trouble.ask(self.log.first):
            self._emptied = folded if not known else self._emptied
        else:
            self._lacks = self._lacks or machine.steady()
            if machine.steady() - self._lacks > LACKS:
                await self.loss.testify()
                raise OtherHistory(f"the broker says that the last record of family {family!r} is {known}, and {folded} was read of it before: it has lost commits")

    async def _after_unknown(self, batch: list[Waiting], error: Unknown) -> None:
        """The commit may be there or not: fold to the tail and look (DESIGN 2)."""
        self._log.warning("no answer to a commit", reason=str(error))
        self.trouble.why = error.why
        await self.to_tail()
        found = self._settle_doubtful(batch)
        self._put_back(batch)
        if not found:
            self._book.unanswered()
            await self.trouble.wait(error, self._drains)

    def _settle_doubtful(self, batch: list[Waiting]) -> bool:
        """Whether one of our unanswered commits turned out to be in the log: the last one, or an earlier one that was late. What it
        did is done, and nothing else: its commands wait no more, neither in `batch` nor among those that were put back."""
        for ce_id, commit in self._doubtful.items():
            if seq := self.follower.stored(ce_id):
                self._log.info("an unanswered commit was stored", seq=seq)
                self._folded(seq, commit)
                done = {id(waiting) for waiting, _ in commit.asked}
                batch[:] = [w for w in batch if id(w) not in done]
                self._queue.drop(done)
                return True
        return False

    def _put_back(self, batch: list[Waiting]) -> None:
        self._queue.put_back(batch)
        self._fruitless = -1

    def _split(self, batch: list[Waiting], error: TooLarge | Void) -> None:
        """Decide less at once. A single command that cannot be made smaller is refused."""
        reduced = [w for w in batch if (less := self._shrink(w.command, error)) is not None and _set(w, less)]
        if reduced:
            self._log.info("the log cannot hold a commit, which is decided in parts", reason=str(error))
            self._queue.put_first(batch)
        elif len(batch) > 1:
            self._most = len(batch) // 2
            self._put_back(batch)
        else:
            self._metrics.rejected.inc()
            self._log.error("the log cannot hold a decision", command=name_of(batch[0].command), reason=str(error))
            batch[0].fail(Rejected(str(error)))
            self._nothing(batch)

    async def to_tail(self) -> None:
        """Fold everything that is in the log now; wait for the log as long as it takes."""
        await self.trouble.ask(self.follower.to_tail)


def _set(waiting: Waiting, command: c.Command) -> bool:
    waiting.command = command
    return True


def _end_all(commit: Doubt, seq: int) -> None:
    events = {id(d.command): d.events for d in commit.decisions}
    for waiting, asked in commit.asked:
        found = events.get(id(asked), ())
        waiting.end(Outcome(seq if found else 0, found))
