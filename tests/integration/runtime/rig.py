"""One service's loops on a log in memory: real commander, effector and session decider, fake executors, a clock by hand."""

import asyncio
from contextlib import asynccontextmanager

from domain.build import NOW, node, pod, shape

from restow.contracts.codec import Decision, decode, encode
from restow.contracts.commands import Observe
from restow.contracts.envelope import Envelope
from restow.contracts.times import rfc3339
from restow.domain.effects import Bind, TellUnschedulable
from restow.domain.session.decider import SessionDecider
from restow.domain.state import ClusterState
from restow.eventlog.memory import MemoryLog
from restow.eventlog.port import Unknown
from restow.runtime.commander import Commander
from restow.runtime.effector import Done, Effector, Executor
from restow.runtime.follower import Follower
from restow.runtime.leadership import Leadership
from restow.runtime.telemetry import Metrics

SOON = 30.0
"""Seconds that a test waits for what must happen."""


class ManualClock:
    """Stands still until a test moves it."""

    def __init__(self, now=NOW):
        self._now, self.timers = now, []

    def now(self):
        return self._now

    def at(self, when, call):
        entry = [when, call]
        self.timers.append(entry)
        return _Timer(self, entry)

    def advance(self, by):
        self._now += by
        due = [t for t in self.timers if t[0] <= self._now]
        self.timers = [t for t in self.timers if t[0] > self._now]
        for _, call in due:
            call()


class _Timer:
    def __init__(self, clock, entry):
        self._clock, self._entry = clock, entry

    def cancel(self):
        if self._entry in self._clock.timers:
            self._clock.timers.remove(self._entry)


class CountingDecider(SessionDecider):
    """The session's, counting how often it is asked to decide."""

    def __init__(self):
        self.decided = 0

    def decide(self, state, command):
        self.decided += 1
        return super().decide(state, command)


class Rig:
    def __init__(self, log, holder="one", decider=None, executors=None, state=None, clock=None, heavy=None, tracer=None):
        self.log, self.clock = log, clock or ManualClock()
        self.decider = decider or CountingDecider()
        self.metrics = Metrics("session")
        self.follower = Follower(log, self.decider.family, state or ClusterState())
        self.leadership = Leadership(self.decider.family, holder)
        self.commander = Commander(
            log, self.follower, self.decider, self.leadership, self.clock, self.metrics, service="scheduler_session", heavy=heavy, tracer=tracer,
        )
        self.bound = asyncio.Queue()
        self.effector = Effector(
            self.follower, self.decider, self.leadership, self.commander, executors or self._executors(), self.metrics, tracer=tracer,
        )
        self.tasks = []

    def _executors(self):
        async def execute(effect, state):
            self.bound.put_nowait(effect)
            return Done()

        return {Bind: Executor(execute), TellUnschedulable: Executor(execute)}

    @property
    def state(self):
        return self.follower.state

    def start(self):
        for loop in (self.follower, self.commander, self.effector):
            self.tasks.append(asyncio.create_task(loop.run(), name=type(loop).__name__))
        return self

    async def lead(self):
        await soon(self.follower.known.wait())
        await soon(self.follower.to_tail())
        self.leadership.claim()
        await until(lambda: self.leadership.leading, self.follower)
        return self

    async def folded(self, seq):
        await soon(self.follower.folded.reached(seq))

    async def end(self):
        """As SIGKILL: nothing is finished."""
        for task in self.tasks:
            task.cancel()
        return await asyncio.gather(*self.tasks, return_exceptions=True)


@asynccontextmanager
async def running(log, **options):
    rig = Rig(log, **options).start()
    try:
        yield rig
    finally:
        await rig.end()


async def soon(awaitable):
    async with asyncio.timeout(SOON):
        return await awaitable


async def until(holds, follower):
    """Asked after every fold and every turn of the loop; never sleeps for a time."""
    async with asyncio.timeout(SOON):
        while not holds():
            await asyncio.sleep(0)


async def idle(turns=50):
    """Let everything that is ready run."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def facts(log, *events, family="cluster", time=NOW, **said):
    """One commit by another service. `said`: what else its envelope says."""
    last = await log.last_of(family)
    body = encode([Decision(Observe("test", "given"), tuple(events))])
    number = await log.tail() + 1
    envelope = Envelope(f"{family}-{number}", "/test", rfc3339(time), number - 1, f"{family}@1", **said)
    return await log.append(family, body, envelope, expected_last=last)


async def cluster(log, pods=1, nodes=1):
    await facts(log, *(node(f"n{i}") for i in range(nodes)), shape("s"), *(pod(f"p{i}") for i in range(pods)))


async def history(log, family="session"):
    """Everything that this family has in the log: (sequence, id, events)."""
    return [
        (record.seq, record.envelope.id, [event for decision in decode(record.body) for event in decision.events])
        for record in await records(log, family)
    ]


async def records(log, family=""):
    """All of them, or one family's."""
    found, tail = [], await log.tail()
    async for batch in log.read(await log.first()):
        found += [record for record in batch if family in ("", record.family)]
        if batch[-1].seq >= tail:
            return found
    return found


async def named(log, kind, family="session"):
    return [event for _, _, events in await history(log, family) for event in events if isinstance(event, kind)]


def memory():
    return MemoryLog(clock=lambda: NOW * 1_000_000)


def lose_answer(log, family, *, stored):
    """The answer to this family's next append is lost."""
    append = log.append

    async def losing(of, body, envelope, *, expected_last):
        if of != family:
            return await append(of, body, envelope, expected_last=expected_last)
        log.append = append
        if stored:
            await append(of, body, envelope, expected_last=expected_last)
        raise Unknown(of, envelope.id, "lost on the way")

    log.append = losing
