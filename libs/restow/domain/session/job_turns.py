"""Whose turn it is: jobs of one queue beside each other, and queues beside each other."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import Any

from restow.domain.session.jobs import Job
from restow.domain.session.standing_jobs import Feed

Made = tuple[tuple, Job]
"""(key, job): smaller keys first, no two are equal."""


class Line:
    """First things first. Most jobs have one turn, and those are sorted once; who comes back is put into a heap."""

    __slots__ = ("_again", "_feed", "_granted", "_sorted")

    def __init__(self, entries: Iterable[Made], granted: Mapping[str, int], feed: Feed | None = None) -> None:
        """`granted`: how often the session has given something to each account (`Job.granted`)."""
        self._feed, self._granted = feed, granted
        self._sorted = sorted(entries, key=itemgetter(0), reverse=True)
        self._again: list[Made] = []

    def __bool__(self) -> bool:
        return bool(self._sorted) or bool(self._again) or (self._feed is not None and self._feed.first() is not None)

    def untold(self, reason: str, message: str) -> Iterator[Job]:
        """All that are left and were not told this last; those that were made when the session opened in any case."""
        yield from (job for _, job in sorted((*self._sorted, *self._again), key=itemgetter(0)))
        if self._feed is not None:
            yield from self._feed.rest(reason, message)

    def pop(self, key: Callable[[Job], tuple]) -> Job | None:
        """The next one; None where all that are left wait for something else. Of jobs that share an account another one may have got
        something since: then this one's turn has changed, to a later one."""
        while (first := self._next()) is not None:
            known, job = first
            if job is None:
                continue
            if job.granted == self._granted.get(job.account, 0) or (now := key(job)) <= known:
                return job
            self.push(now, job)
        return None

    def _next(self) -> tuple[tuple, Job | None] | None:
        again, once, feed = self._again, self._sorted, self._feed
        comes_back = bool(again) and not (once and once[-1][0] < again[0][0])
        if feed is not None and (fed := feed.first()) is not None:
            made = again[0][0] if comes_back else once[-1][0] if once else None
            if made is None or fed < made:
                return fed, feed.pop()
        if comes_back:
            return heappop(again)
        return once.pop() if once else None

    def push(self, key: tuple, job: Job) -> None:
        heappush(self._again, (key, job))


class Turns:
    """A heap of queues by their `queueOrder` and then their name. A queue that is charged can only come later, so the first
    one in the heap is first if its key is still what it was; where anything was taken back, all keys are made anew."""

    def __init__(self, session: Any, queues: Collection[str]) -> None:
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
