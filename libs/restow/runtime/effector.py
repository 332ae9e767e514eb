"""The effect loop: what is owed to the world, tried until it is done or no longer owed.

Effects come from the fold, never from a decision's return value (DESIGN 2). Each is safe to repeat and safe to be late.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from restow import machine
from restow.contracts import commands as c
from restow.contracts.redact import redacted
from restow.domain.decider import Decider
from restow.domain.effects import (
    AbortEviction,
    AskConsent,
    Bind,
    BindClaim,
    CreateHold,
    CreatePlaceholder,
    DeletePlaceholder,
    DeleteReservation,
    Effect,
    Evict,
    EvictVictim,
    Land,
    LetGo,
    ListOwners,
    MarkNode,
    NominateAgain,
    TellNominated,
    TellUnschedulable,
    WithdrawRequest,
    WritePodGroupStatus,
    WriteQueueStatus,
    WriteReservationStatus,
)
from restow.domain.state import ClusterState, Touched
from restow.kube.effects import Failed, Refused
from restow.runtime import effect_spans, logs
from restow.runtime.command_queue import Outcome
from restow.runtime.commander import Commander
from restow.runtime.follower import Follower
from restow.runtime.leadership import Leadership
from restow.runtime.signals import Bell
from restow.runtime.telemetry import Labelled, Metrics
from restow.runtime.tracer import Tracer
from restow.tracing.spans import Values

FIRST, LONGEST = 0.05, 10.0
"""Seconds before the first retry, doubled up to the longest."""
REFUSED = 30.0
"""Seconds until what the API has refused is tried again, and the longest pause there is: a gateway that is being serviced may ask for an hour of
everything, and an eviction has a deadline, and so has the mark that stops one."""

SLICE = 256
"""Effects started or looked at before everything else in the process gets its turn."""


class Done(msgspec.Struct, frozen=True):
    """The effect is in the world. The fact will follow."""


class Retry(msgspec.Struct, frozen=True):
    """Not yet. `after`: seconds, up to REFUSED, 0 for the usual backoff."""

    reason: str
    after: float = 0.0


class Wait(msgspec.Struct, frozen=True):
    """Not now, and nothing went wrong: it is looked at again after so many seconds, if it is still owed then."""

    after: float


class Report(msgspec.Struct, frozen=True):
    """The world's answer is an input of a decision. Where that decides nothing, and the effect is still owed, it is tried again."""

    command: c.Command


Answer = Done | Retry | Wait | Report
Execute = Callable[[Any, ClusterState], Awaitable[Answer]]


class Executor(msgspec.Struct, frozen=True):
    """How one kind of effect is carried out: at most `limit` at once. What was done is not done again for `settle`
    seconds although its fact is not folded yet; then it is, if it is still owed. For `gap` seconds after an attempt the next
    one on the same thing waits: of what changes often the first change is told at once, and many later ones as one."""

    execute: Execute
    limit: int = 32
    settle: float = 15.0
    gap: float = 0.0


class _Work(msgspec.Struct, eq=False):
    effect: Effect
    since: float
    """Of the steady clock: from then on it is owed."""
    attempts: int = 0
    task: asyncio.Task[None] | None = None
    """The attempt that is under way."""


class _Lane:
    """One kind's queue and what of it is under way."""

    def __init__(self, kind: str, executor: Executor, metrics: Metrics) -> None:
        self.kind, self.executor = kind, executor
        self.ready: deque[Any] = deque()
        self.running = 0
        self.done, self.retried, self.seconds = metrics.effect(kind)


class Effector:
    """One family's effects. Nothing is done while this process does not lead, nor ever where it does not act (`RESTOW_READ_ONLY`)."""

    def __init__(
        self,
        follower: Follower,
        decider: Decider,
        leadership: Leadership,
        commander: Commander,
        executors: Mapping[type[Effect], Executor],
        metrics: Metrics,
        *,
        acts: bool = True,
        tracer: Tracer | None = None,
    ) -> None:
        self._acts = acts
        self._tracer = tracer if tracer is not None and tracer.exporter is not None else None
        self._follower, self._decider, self._leadership, self._commander = follower, decider, leadership, commander
        self._lanes = {kind: _Lane(kind.__name__, executor, metrics) for kind, executor in executors.items()}
        self._waiting: dict[Any, _Work] = {}
        """By key; in a lane's queue, or waiting for its retry."""
        self._running: dict[Any, _Work] = {}
        self._settling: dict[Any, tuple[Effect, float]] = {}
        self._retries: dict[Any, asyncio.TimerHandle] = {}
        self._resting: dict[Any, float] = {}
        """Until when (monotonic seconds) no attempt may begin, by key."""
        self._bell = Bell()
        self._acting = self._draining = False
        self._log = logs.get(family=decider.family)
        follower.listeners.append(self._bell.ring)
        leadership.changed.append(self._bell.ring)

    @property
    def under_way(self) -> int:
        return len(self._running)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [work.task for work in self._running.values() if work.task is not None]

    @property
    def owed(self) -> int:
        """Effects that wait or are under way."""
        return len(self._waiting) + len(self._running)

    def oldest(self) -> list[Labelled]:
        """For how long the oldest of each kind is owed. O(owed)."""
        now, since = machine.steady(), dict.fromkeys((lane.kind for lane in self._lanes.values()), 0.0)
        for work in (*self._waiting.values(), *self._running.values()):
            kind = type(work.effect).__name__
            since[kind] = max(since[kind], now - work.since)
        rows = [((kind,), seconds) for kind, seconds in since.items()]
        return [Labelled("effect_oldest_seconds", "For how long the oldest effect of a kind is owed that is not done", ("kind",), rows)]

    def forgotten(self) -> list[Effect]:
        """What is owed by the state, is answered by a fact when it is done, and neither waits, is under way, nor was done a moment ago. Between an
        answer and the commit that tells it, or before the next look, there may be some; at rest each would be a defect."""
        known = self._waiting.keys() | self._running.keys() | self._settling.keys()
        return [effect for effect in self._decider.pending(self._follower.state, None) if _expects_a_fact(effect) and _key(effect) not in known]

    # -- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until drained."""
        sweep = asyncio.create_task(self._sweep())
        try:
            while not self._draining:
                await self._bell.wait()
                if self._leadership.leading and self._acts:
                    await self._look()
                else:
                    self._follower.state.touched = Touched()
                    if self._acting:
                        self._stop_acting()
        finally:
            sweep.cancel()
            if not self._draining:
                for task in self._tasks():
                    task.cancel()
            for handle in self._retries.values():
                handle.cancel()

    async def drain(self, seconds: float) -> None:
        """Start nothing more; give what is under way this long."""
        self._draining = True
        self._bell.ring()
        if self._running:
            await asyncio.wait(self._tasks(), timeout=seconds)
        for task in self._tasks():
            task.cancel()

    def _stop_acting(self) -> None:
        """Another process leads: it does what is owed."""
        self._acting = False
        for handle in self._retries.values():
            handle.cancel()
        for lane in self._lanes.values():
            lane.ready.clear()
        for task in self._tasks():
            task.cancel()
        self._waiting.clear()
        self._retries.clear()
        self._settling.clear()
        self._resting.clear()

    async def _look(self) -> None:
        """Take in what the fold has touched, or everything when this process has just begun to act."""
        state = self._follower.state
        touched: Touched | None = state.touched
        state.touched = Touched()
        if not self._acting:
            self._acting, touched = True, None
        for number, effect in enumerate(self._decider.pending(state, touched), 1):
            self._take(effect)
            if number % SLICE == 0:
                self._start()
                if touched is None:
                    await asyncio.sleep(0)
        self._start()

    def _take(self, effect: Effect) -> None:
        key = _key(effect)
        work = self._waiting.get(key)
        if work is not None:
            if work.effect != effect:
                work.effect = effect
            return
        running = self._running.get(key)
        settled = self._settling.get(key)
        if (running is not None and key == effect) or (settled is not None and settled[0] == effect):
            return
        self._waiting[key] = _Work(effect, machine.steady())
        if running is None:
            self._queue(self._lanes[type(effect)], key)

    def _queue(self, lane: _Lane, key: Any) -> None:
        """Its turn comes when it has rested."""
        rest = self._resting.get(key, 0.0) - machine.steady() if self._resting else 0.0
        if rest > 0:
            self._retries[key] = asyncio.get_running_loop().call_later(rest, self._again, lane, key)
        else:
            lane.ready.append(key)

    def _start(self) -> None:
        for lane in self._lanes.values():
            while lane.ready and lane.running < lane.executor.limit:
                self._begin(lane, lane.ready.popleft())

    def _begin(self, lane: _Lane, key: Any) -> None:
        work = self._waiting.pop(key, None)
        if work is None:
            return
        lane.running += 1
        self._running[key] = work
        work.task = asyncio.get_running_loop().create_task(self._attempt(lane, key, work))

    # -- one attempt -------------------------------------------------------------------------------------------------

    async def _attempt(self, lane: _Lane, key: Any, work: _Work) -> None:
        started = machine.steady()
        if not self._decider.owed(self._follower.state, work.effect):
            # Asked here, because the fold may have gone on between the start of this task and its first step.
            self._ended(lane, key)
            self._after(lane, key)
            return
        work.attempts += 1
        answer: Answer | None = None
        span = effect_spans.begun(self._tracer, self._follower.log.log_id, work.effect, self._follower.state, work.attempts) if self._tracer is not None else None
        try:
            answer = await lane.executor.execute(work.effect, self._follower.state)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            # A bug for one object must not keep all others waiting: it is logged in full and tried again later.
            self._log.exception("effect failed", effect=repr(work.effect))
            answer = Retry(f"{type(error).__name__}: {error}")
        self._ended(lane, key)
        lane.seconds.observe(machine.steady() - started)
        if span is not None:
            span.end(*_said(answer))
        if answer is not None and self._acting and not self._draining:
            self._answered(lane, key, work, answer)

    def _ended(self, lane: _Lane, key: Any) -> None:
        lane.running -= 1
        self._running.pop(key, None)

    def _answered(self, lane: _Lane, key: Any, work: _Work, answer: Answer) -> None:
        match answer:
            case Retry(reason=reason, after=after):
                lane.retried.inc()
                pause = min(after, REFUSED) or min(FIRST * 2 ** min(work.attempts - 1, 16), LONGEST) * (1 - machine.share() / 4)
                self._log.warning(
                    "effect is tried again", effect=repr(work.effect), reason=reason, again_in=round(pause, 3),
                    attempt=work.attempts,
                )
                return self._pause(lane, key, work, pause)
            case Wait(after=after):
                work.since = machine.steady() + after
                return self._pause(lane, key, work, after)
            case Report(command=command):
                self._commander.submit(command, cause="effect").add_done_callback(partial(self._told, lane, key, work))
        lane.done.inc()
        if lane.executor.settle and isinstance(answer, Done):
            self._settling[key] = (work.effect, machine.steady() + lane.executor.settle)
        self._after(lane, key)

    def _told(self, lane: _Lane, key: Any, work: _Work, outcome: asyncio.Future[Outcome]) -> None:
        """Where nothing was decided of it, for the world has gone on since the attempt, nothing else has it tried again before a deadline."""
        decided = not outcome.cancelled() and outcome.exception() is None and outcome.result().seq > 0
        known = key in self._running or key in self._waiting
        if self._acting and not self._draining and not decided and not known and self._decider.owed(self._follower.state, work.effect):
            self._answered(lane, key, work, Retry("nothing was decided of what the API answered"))

    def _pause(self, lane: _Lane, key: Any, work: _Work, seconds: float) -> None:
        """Then it is asked again whether it is owed, and what of."""
        newer = self._waiting.get(key)
        if newer is None:
            self._waiting[key] = work
        else:
            newer.attempts, newer.since = work.attempts, work.since
        self._retries[key] = asyncio.get_running_loop().call_later(seconds, self._again, lane, key)
        self._start()

    def _after(self, lane: _Lane, key: Any) -> None:
        """The lane has capacity again; what came for the same key meanwhile is next."""
        if lane.executor.gap:
            self._resting[key] = machine.steady() + lane.executor.gap
        if key in self._waiting:
            self._queue(lane, key)
        if self._acting and not self._draining:
            self._start()

    def _again(self, lane: _Lane, key: Any) -> None:
        self._retries.pop(key, None)
        lane.ready.append(key)
        self._start()

    async def _sweep(self) -> None:
        """What was done long ago and is still owed (its fact never came) is done again."""
        while True:
            await asyncio.sleep(1.0)
            now = machine.steady()
            self._resting = {key: until for key, until in self._resting.items() if until > now}
            old: Iterable[tuple[Any, Effect]] = [(k, e) for k, (e, until) in self._settling.items() if until <= now]
            for key, effect in old:
                del self._settling[key]
                if self._leadership.leading and _expects_a_fact(effect) and self._decider.owed(self._follower.state, effect):
                    self._log.info("done, but no fact came: once more", effect=repr(effect))
                    self._take(effect)
            if old:
                self._start()


def _said(answer: Answer | None) -> tuple[Values, str]:
    """What a span says of the outcome, and what went wrong."""
    match answer:
        case None:
            return {"restow.outcome": "cancelled"}, "cancelled: this process does not lead any more, or ends"
        case Retry(reason=reason):
            return {"restow.outcome": "retry"}, reason
        case Report(command=command):
            told: Values = {f"restow.{name}": redacted(value) for name in ("reason", "message", "word") if (value := getattr(command, name, ""))}
            return {"restow.outcome": str(command.__struct_config__.tag), **told}, ""
    return {"restow.outcome": "done" if isinstance(answer, Done) else "wait"}, ""


def later(outcome: Failed | Refused, refused: float = REFUSED) -> Retry:
    """What the API could not do now: when it says so, else after the usual pause. What it has refused: after so many seconds."""
    said = f"{outcome.code} {outcome.reason} {outcome.message}".strip()
    if isinstance(outcome, Refused):
        return Retry(f"refused: {said}", refused)
    return Retry(said, (outcome.retry_after or 0) / 1000)


def _key(effect: Effect) -> Any:
    """What at most one attempt is under way for. Of statuses, of entries, and of what a pod is told, only the newest matters: an older one that the API takes
    later would stay, for no fact follows."""
    match effect:
        case TellUnschedulable(pod=pod) | TellNominated(pod=pod):
            return type(effect), pod
        case WriteReservationStatus(reservation=reservation):
            return "status", reservation
        case WritePodGroupStatus(namespace=namespace, group=group):
            return "status", namespace, group
        case WriteQueueStatus(queue=queue):
            return "queue status", queue
        case ListOwners(reservation=reservation):
            return "owners", reservation
    return effect


def _expects_a_fact(effect: Effect) -> bool:
    return isinstance(
        effect,
        Bind | BindClaim | Evict | EvictVictim | CreateHold | DeleteReservation | AbortEviction
        | CreatePlaceholder | DeletePlaceholder | Land | LetGo | MarkNode | NominateAgain | AskConsent | WithdrawRequest,
    )  # fmt: skip
