"""Time, as one thing that tests can replace: nothing in the runtime reads a clock in another way."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from restow import machine
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


TOLERANCE = 2_000
"""Milliseconds that a machine's clock may be away from the log's before its service says so."""


class SystemClock:
    """The machine's, whichever that is."""

    def now(self) -> Millis:
        return Millis(machine.wall() // 1_000_000)

    def at(self, when: Millis, call: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0, when - self.now()) / 1000 + 0.0005, call)


class LogClock(SystemClock):
    """The time of the log, which stands in every record: what is due is decided by it, whoever leads on whatever machine.

    It is asked for once, when the log is opened, and carried on by the machine's steady seconds; the machine's own clock counts only
    where nothing is known yet. From then on every record corrects it. A commit of ours was stamped before it was stored, so
    a stamp that is later than the record's time says that we are ahead; a record that is later than our now, that we are behind.
    """

    def __init__(self) -> None:
        self._time, self._since = machine.wall() / 1e6, machine.steady()
        self._asked = False

    def now(self) -> Millis:
        if not self._asked:
            return super().now()
        return Millis(int(self._time + (machine.steady() - self._since) * 1000))

    def asked(self, time: int, sent: float, received: float) -> None:
        """The log said that it is `time` (ns since the epoch) between two of our steady seconds."""
        self._set(time / 1e6, (sent + received) / 2)

    def stored(self, time: int, stamped: Millis | None = None) -> None:
        """A record came that was stored at `time` (ns since the epoch). `stamped`: the time in its envelope, if that is ours."""
        at, now = time // 1_000_000, self.now()
        if stamped is not None and stamped > at:
            self._set(now - (stamped - at), machine.steady())
        elif at > now:
            self._set(at, machine.steady())

    @property
    def ahead(self) -> int:
        """Milliseconds that the machine's own clock is ahead of the log's; less than 0 where it is behind."""
        return machine.wall() // 1_000_000 - self.now()

    def problem(self) -> str:
        """Empty while the machine's own clock is right enough."""
        ahead = self.ahead
        if abs(ahead) <= TOLERANCE:
            return ""
        where = "ahead of" if ahead > 0 else "behind"
        return (
            f"this machine's clock is {abs(ahead) / 1000:.0f} s {where} the log's: what is due is decided by the log's. "
            "Correct the clock (NTP) here, or on the broker's machine if all services say so"
        )

    def _set(self, time: float, since: float) -> None:
        self._time, self._since, self._asked = time, since, True
