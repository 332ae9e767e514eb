"""The queue of every controller: keys in FIFO order, each at most once, with delays and backoff."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from restow.kubesim.timers import Timer, Timers

Key = Hashable


class WorkQueue:
    """Deduplicating FIFO of keys (client-go `workqueue`). Single-threaded; bounded by the number of objects."""

    def __init__(
        self, timers: Timers, wake: Callable[[], None], retry_first: float = 0.005, retry_last: float = 10.0
    ):
        self._timers = timers
        self._wake = wake
        self._retry_first = retry_first
        self._retry_last = retry_last
        self._ready: dict[Key, None] = {}
        self._later: dict[Key, Timer] = {}
        self._failures: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def waiting(self) -> int:
        """Keys that wait for their time."""
        return len(self._later)

    def add(self, key: Key) -> None:
        """Queue the key, unless it is queued; an earlier delay of it is settled by this."""
        if key in self._ready:
            return
        timer = self._later.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._ready[key] = None
        self._wake()

    def add_after(self, key: Key, delay: float) -> None:
        """Queue the key in `delay` seconds; the earliest of several delays counts."""
        if delay <= 0:
            self.add(key)
            return
        if key in self._ready:
            return
        timer = self._later.get(key)
        if timer is not None:
            if timer.due <= self._timers.now() + delay:
                return
            timer.cancel()
        self._later[key] = self._timers.after(delay, self._due, key)

    def _due(self, key: Key) -> None:
        self._later.pop(key, None)
        self.add(key)

    def pop(self) -> Key | None:
        """The oldest key, or None."""
        for key in self._ready:
            del self._ready[key]
            return key
        return None

    def retry(self, key: Key) -> float:
        """Queue the key again with a delay that doubles at every failure; returns the delay in seconds."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(self._retry_first * 2 ** min(count, 30), self._retry_last)
        self.add_after(key, delay)
        return delay

    def forget(self, key: Key) -> None:
        """The key succeeded: its next failure starts with the shortest delay again."""
        self._failures.pop(key, None)
