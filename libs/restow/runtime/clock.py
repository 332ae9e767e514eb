"""Time, as one thing that tests can replace: nothing in the runtime reads a clock in another way."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
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


def rfc3339(time_ms: int) -> str:
    """`2026-01-01T00:00:00.000Z`."""
    at = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def time_ms(text: str) -> Millis:
    """Milliseconds since the epoch of an envelope's RFC 3339 time. Raises ValueError."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"time {text!r} has no zone")
    return Millis(round(at.timestamp() * 1000))
