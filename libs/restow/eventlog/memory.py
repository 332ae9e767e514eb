"""The log in memory: the reference implementation of the port, and what the services' tests run on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from restow import machine
from restow.contracts.envelope import Envelope
from restow.eventlog.port import (
    MAX_BODY,
    READ_BATCH,
    Closed,
    Conflict,
    Family,
    LogMismatch,
    Record,
    Truncated,
    beyond_end,
    check_append,
    check_from,
    check_token,
)


class Wakeup:
    """Wakes all present waiters; nobody polls."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}
        """In the order in which they came."""

    def notify(self) -> None:
        """Wake everybody who waits now."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Until the next `notify`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            del self._waiters[waiter]


class MemoryLog:
    """An EventLog in this process. Share one instance among the services of a test.

    log_id: "" makes a random one. first_seq: where the empty log begins. clock: nanoseconds since the Unix epoch.
    max_body: bytes.
    """

    def __init__(
        self,
        cluster: str = "test",
        *,
        log_id: str = "",
        first_seq: int = 1,
        clock: Callable[[], int] = machine.wall,
        max_body: int = MAX_BODY,
    ) -> None:
        self.cluster = check_token("cluster", cluster)
        self.log_id = log_id or machine.token(16)
        self.max_body = min(max_body, MAX_BODY)
        self._clock = clock
        self._records: list[Record] = []
        self._first = first_seq
        self._last_of: dict[Family, int] = {}
        self._wakeup = Wakeup()
        self._closed = False

    @property
    def connected(self) -> bool:
        """True until closed."""
        return not self._closed

    async def wait_connected(self) -> None:
        """See EventLog.wait_connected."""
        self._check_open()

    async def append(self, family: Family, body: bytes, envelope: Envelope, *, expected_last: int) -> int:
        """See EventLog.append."""
        self._check_open()
        check_append(family, body, expected_last, self.max_body)
        actual = self._last_of.get(family, 0)
        if actual != expected_last:
            raise Conflict(family, expected_last, actual)
        seq = self._first + len(self._records)
        self._records.append(Record(seq, family, envelope, bytes(body), self._clock()))
        self._last_of[family] = seq
        self._wakeup.notify()
        return seq

    async def read(self, from_seq: int) -> AsyncIterator[list[Record]]:
        """See EventLog.read."""
        position = check_from(from_seq)
        self._check_open()
        if position > self._end():
            raise beyond_end(position, self._end() - 1, self.log_id)
        while True:
            self._check_open()
            if position < self._first:
                raise Truncated(position, self._first)
            start = position - self._first
            batch = self._records[start : start + READ_BATCH]
            if batch:
                position = batch[-1].seq + 1
                yield batch
            else:
                await self._wakeup.wait()

    async def tail(self) -> int:
        """See EventLog.tail."""
        self._check_open()
        return self._end() - 1

    async def time(self) -> int:
        """See EventLog.time."""
        self._check_open()
        return self._clock()

    async def first(self) -> int:
        """See EventLog.first."""
        self._check_open()
        return self._first

    async def last_of(self, family: Family) -> int:
        """See EventLog.last_of."""
        self._check_open()
        return self._last_of.get(check_token("family", family), 0)

    async def truncate(self, upto: int) -> None:
        """See EventLog.truncate."""
        self._check_open()
        if upto >= self._end():
            raise LogMismatch(f"cannot truncate up to {upto}: the log ends at {self._end() - 1}")
        if upto >= self._first:
            del self._records[: upto + 1 - self._first]
            self._first = upto + 1
            self._last_of = {f: s for f, s in self._last_of.items() if s > upto}
            self._wakeup.notify()

    async def close(self) -> None:
        """See EventLog.close."""
        self._closed = True
        self._wakeup.notify()

    def _end(self) -> int:
        return self._first + len(self._records)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this log was closed")
