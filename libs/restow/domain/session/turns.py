"""Whose turn it is among queues, without asking all of them each time."""

from collections.abc import Collection
from heapq import heapify, heappop, heapreplace

from restow.domain.session.run import Session


class Turns:
    """A heap of queues by their `queueOrder` and then their name. A queue that is charged can only come later, so the first
    one in the heap is first if its key is still what it was; where anything was taken back, all keys are made anew."""

    def __init__(self, session: Session, queues: Collection[str]) -> None:
        self._session = session
        self._queues = queues
        self._made(queues)

    def _made(self, queues: Collection[str]) -> None:
        self._lowered = self._session.lowered
        self._heap = [self._key(name) for name in queues]
        heapify(self._heap)

    def _key(self, queue: str) -> tuple:
        return (*self._session.extensions.key("queueOrder", queue), queue)

    def first(self) -> str:
        """Of the queues (at least one) that are left in the collection. Whoever has left it may come back before the next
        question, and not later."""
        if len(self._queues) == 1:
            return next(iter(self._queues))
        if self._lowered != self._session.lowered:
            self._made(self._queues)
        while True:
            known = self._heap[0]
            name: str = known[-1]
            if name not in self._queues:
                heappop(self._heap)
                continue
            key = self._key(name)
            if key == known:
                return name
            heapreplace(self._heap, key)
