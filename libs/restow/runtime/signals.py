"""How the loops of one process wake each other: nobody polls, nobody sleeps."""

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def within(happens: asyncio.Event, seconds: float) -> bool:
    """Whether it happens in that time; answers as soon as it has. (Not `wait_for`: before Python 3.12 it can swallow a cancellation.)"""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await happens.wait()
            return True
    return False


async def unless(happens: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What comes of the work; None where this happens before."""
    there = asyncio.create_task(work)
    stop = asyncio.create_task(happens.wait())
    try:
        await asyncio.wait({there, stop}, return_when=asyncio.FIRST_COMPLETED)
        return there.result() if there.done() else None
    finally:
        there.cancel()
        stop.cancel()
        await asyncio.gather(there, stop, return_exceptions=True)


class Bell:
    """Rung by many, heard by one. A ring while nobody listens is kept: `wait` returns at once."""

    __slots__ = ("_rung", "_waiter")

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rung = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self) -> None:
        if not self._rung:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._rung = False


class Progress:
    """A number that only grows, and those who wait for it to reach something."""

    __slots__ = ("_ids", "_waiting", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._ids = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def advance(self, value: int) -> None:
        self.value = value
        while self._waiting and self._waiting[0][0] <= value:
            waiter = heapq.heappop(self._waiting)[2]
            if not waiter.done():
                waiter.set_result(None)

    async def reached(self, value: int) -> None:
        if self.value >= value:
            return
        waiter = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (value, next(self._ids), waiter))
        await waiter
