"""The broker as one simulated process, and each service's connection to it.

The log itself is the port's own memory adapter. Around it stands what a broker on a disk does: a commit is stored when it
is synced, so that one which was not yet is lost with a crash (as with `sync_interval: always`, which our configurations set:
what nobody was told of may be lost, never what was acknowledged); answers may be lost, late, or come for a commit that
arrives twice.
"""

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from restow.contracts.envelope import Envelope
from restow.contracts.ids import Family
from restow.eventlog.memory import MemoryLog
from restow.eventlog.port import LogError, Record, Unavailable, Unknown
from restow.eventlog.snapshots import MemorySnapshots, Snapshot
from simulation.loop import EPOCH, SimLoop

T = TypeVar("T")
TIMEOUT = 5.0
"""Seconds until a client takes a commit for unanswered, as the JetStream adapter does."""
LOST, UNACKED, LATE, REPEAT, SLOW = "lost", "unacked", "late", "repeat", "slow"


class Broker:
    """`records`: every commit that was ever stored, also those that were truncated since."""

    def __init__(
        self, loop: SimLoop, seed: object, log_id: str, stored: Callable[[Record], None],
        acknowledged: Callable[[int, str], None] = lambda seq, id: None,
    ) -> None:
        self.loop = loop
        self.chance = random.Random(f"broker {seed}")
        self.log = MemoryLog("sim", log_id=log_id, clock=lambda: int((EPOCH + loop.time()) * 1e6) * 1000)
        self.snapshots = MemorySnapshots(log_id)
        self.records: list[Record] = []
        self.shares: dict[str, float] = {}
        """Fault → share of the commits that it hits."""
        self.sync = 0.0
        """Seconds until a commit is on the disk."""
        self.count: Counter[str] = Counter()
        self.down = False
        self.back = asyncio.Event()
        self.back.set()
        self._stored, self.acknowledged = stored, acknowledged
        self._unsynced: list[asyncio.TimerHandle] = []

    def stop(self, crash: bool = False) -> None:
        """Out of reach; a crash also loses what was not synced."""
        self.down = True
        self.back.clear()
        if crash:
            self.count["crash"] += 1
            for waiting in self._unsynced:
                if not waiting.cancelled() and waiting.when() > self.loop.time():
                    self.count["tail lost"] += 1
                    waiting.cancel()
            self._unsynced.clear()

    def start(self) -> None:
        self.down = False
        self.back.set()

    def fault(self) -> str:
        """What happens to the next commit, "" for nothing."""
        if self.down:
            return LOST
        draw = self.chance.random()
        for kind, share in self.shares.items():
            if draw < share:
                self.count[kind] += 1
                return kind
            draw -= share
        return ""

    def arrive(self, after: float, store: Callable[[], None]) -> None:
        """A commit reaches the broker, and later its disk."""
        self._unsynced = [handle for handle in self._unsynced if not handle.cancelled() and handle.when() > self.loop.time()]
        self._unsynced.append(self.loop.outside(after + self.sync, store))

    def store(self, family: Family, body: bytes, envelope: Envelope, expected_last: int) -> int:
        """Raises Conflict and whatever else the log refuses with."""
        appending = self.log.append(family, body, envelope, expected_last=expected_last)
        try:
            appending.send(None)
        except StopIteration as stop:
            seq: int = stop.value
        else:
            raise AssertionError("the memory log waits for nothing")
        record = self.log._records[-1]
        self.records.append(record)
        self._stored(record)
        return seq


    def contents(self) -> tuple[int, dict[int, str]]:
        """The first sequence that is there or is to come, and the commits by their sequences."""
        there = {record.seq: record.envelope.id for record in self.log._records}
        return min(there, default=self.records[-1].seq + 1 if self.records else 1), there


class SimLog:
    """The EventLog of one run of one service."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._loop, self._log = broker, broker.loop, broker.log

    @property
    def cluster(self) -> str:
        return self._log.cluster

    @property
    def log_id(self) -> str:
        return self._log.log_id

    @property
    def max_body(self) -> int:
        return self._log.max_body

    @property
    def connected(self) -> bool:
        return not self._broker.down

    async def wait_connected(self) -> None:
        await self._broker.back.wait()

    async def append(self, family: Family, body: bytes, envelope: Envelope, *, expected_last: int) -> int:
        loop, broker, fault = self._loop, self._broker, self._broker.fault()
        answer: asyncio.Future[int] = loop.create_future()
        mine = contextvars.copy_context()

        def tell(seq: int, error: Exception | None) -> None:
            if not answer.done():
                if error is None:
                    answer.set_result(seq)
                else:
                    answer.set_exception(error)

        def store(told: bool = True, wait: float = 0.0) -> None:
            seq, error = 0, None
            try:
                seq = broker.store(family, body, envelope, expected_last)
            except (LogError, ValueError) as problem:
                error = problem
            if told:
                loop.call_later(loop.lag() + wait, tell, seq, error, context=mine)

        if fault != LOST:
            chance = broker.chance
            after = chance.uniform(1.0, 2 * TIMEOUT) if fault == LATE else loop.lag()
            told = fault not in (UNACKED, LATE)
            wait = chance.uniform(0.5, 1.5 * TIMEOUT) if fault == SLOW else 0.0
            broker.arrive(after, lambda: store(told, wait))
            if fault == REPEAT:
                broker.arrive(after + chance.uniform(0.001, TIMEOUT), lambda: store(False))
        try:
            async with asyncio.timeout(TIMEOUT):
                seq = await answer
        except TimeoutError:
            raise Unknown(family, envelope.id, f"no answer in {TIMEOUT:g} s") from None
        broker.acknowledged(seq, envelope.id)
        return seq

    async def read(self, from_seq: int) -> AsyncIterator[list[Record]]:
        async for batch in self._log.read(from_seq):
            rest = batch
            while rest:
                take = len(rest) if self._loop.chance.random() < 0.5 else self._loop.chance.randint(1, len(rest))
                await asyncio.sleep(self._loop.lag())
                await self._broker.back.wait()
                yield rest[:take]
                rest = rest[take:]

    async def tail(self) -> int:
        return await ask(self._broker, self._log.tail)

    async def time(self) -> int:
        return await ask(self._broker, self._log.time)

    async def first(self) -> int:
        return await ask(self._broker, self._log.first)

    async def last_of(self, family: Family) -> int:
        return await ask(self._broker, lambda: self._log.last_of(family))

    async def truncate(self, upto: int) -> None:
        await ask(self._broker, lambda: self._log.truncate(upto))

    async def close(self) -> None:
        pass


class SimSnapshots:
    """Snapshots at the broker; what they are packed into is the real format."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._there = broker, broker.snapshots

    async def put(self, snapshot: Snapshot) -> int:
        return await ask(self._broker, lambda: self._there.put(snapshot))

    async def latest(self, *, at_most: int | None = None) -> Snapshot | None:
        return await ask(self._broker, lambda: self._there.latest(at_most=at_most))

    async def sequences(self) -> list[int]:
        return await ask(self._broker, self._there.sequences)

    async def hold_back(self, size: int) -> None:
        await ask(self._broker, lambda: self._there.hold_back(size))

    async def let_go(self) -> bool:
        return await ask(self._broker, self._there.let_go)

    async def probe(self) -> None:
        await ask(self._broker, self._there.probe)


async def ask(broker: Broker, question: Callable[[], Awaitable[T]]) -> T:
    """A question that is safe to ask again. Raises Unavailable."""
    await asyncio.sleep(broker.loop.lag())
    if broker.down:
        await asyncio.sleep(2.0)
        raise Unavailable("the broker does not answer")
    found = await question()
    await asyncio.sleep(broker.loop.lag())
    return found
