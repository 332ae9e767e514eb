"""Trying again: the one helper for every call that may. Bounded in number and in time between."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from restow import machine
from restow.kube.client import ApiStatus

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
OnRetry = Callable[[ApiStatus, float], None]


class Backoff(msgspec.Struct, frozen=True):
    """`attempts` in all; waits double from `first` to `longest` seconds, each shortened by up to a half at random."""

    attempts: int = 5
    first: float = 0.05
    longest: float = 2.0

    def wait(self, failures: int, retry_after: int | None, random_share: float) -> float:
        """Seconds before the next attempt after so many failures; `Retry-After` (ms) is honoured up to `longest`."""
        wait = min(self.first * 2 ** (failures - 1), self.longest) * (1 - random_share / 2)
        return max(wait, min((retry_after or 0) / 1000, self.longest))


async def retrying(
    call: Callable[[], Awaitable[T]],
    backoff: Backoff = Backoff(),
    sleep: Sleep = asyncio.sleep,
    on_retry: OnRetry | None = None,
    share: Callable[[], float] = machine.share,
) -> T:
    """Calls until it succeeds, fails for good or the attempts are used up; raises the last ApiStatus. `call` must be safe
    to repeat. `on_retry` is told the reason and the wait, for the log."""
    failures = 0
    while True:
        try:
            return await call()
        except ApiStatus as status:
            failures += 1
            if not status.transient or failures >= backoff.attempts:
                raise
            wait = backoff.wait(failures, status.retry_after, share())
            if on_retry is not None:
                on_retry(status, wait)
            await sleep(wait)
