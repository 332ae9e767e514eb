"""Time, as one thing that tests can replace: nothing in the runtime reads a clock in another way."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from restow.contracts.ids import Millis


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> Millis:
        """Milliseconds since the epoch, UTC."""
        ...

    def at(self, when: Millis, call: Callable[[], None]) -> Timer:
        """Call once, when `now() >= when`."""
        ...


class SystemClock:
    """The machine's."""

    def now(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000)

    def at(self, when: Millis, call: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0, when - self.now()) / 1000 + 0.0005, call)
