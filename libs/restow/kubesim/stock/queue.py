"""The stock scheduler's queue: the highest priority first, in the order of coming among equals."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from restow.kubesim.podstate import PodKey
from restow.kubesim.runtime import Runtime
from restow.kubesim.workqueue import Key, WorkQueue


class ByPriority(WorkQueue):
    """`priority` is asked when a key comes, not again."""

    def __init__(self, runtime: Runtime, priority: Callable[[PodKey], int]):
        super().__init__(runtime.timers, runtime.wake, runtime.timings.retry_first, runtime.timings.retry_last)
        self._priority = priority
        self._heap: list[tuple[int, int, Key]] = []
        self._came = 0

    def add(self, key: Key) -> None:
        if key in self._ready:
            return
        super().add(key)
        self._came += 1
        heapq.heappush(self._heap, (-self._priority(key), self._came, key))  # type: ignore[arg-type]

    def pop(self) -> Key | None:
        if not self._heap:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._ready[key]
        return key
