"""The jobs of a queue that wait for their turn: those that were made when the session opened, and those that are made when it comes to them."""

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from operator import itemgetter

from restow.domain.session.jobs import Job
from restow.domain.session.standing import Feed

Entry = tuple[tuple, Job]
"""(key, job): smaller keys first, no two are equal."""


class Line:
    """First things first. Most jobs have one turn, and those are sorted once; who comes back is put into a heap."""

    __slots__ = ("_again", "_feed", "_last", "_sorted")

    def __init__(self, entries: Iterable[Entry], feed: Feed | None = None) -> None:
        self._feed = feed
        self._sorted = sorted(entries, key=itemgetter(0), reverse=True)
        self._again: list[Entry] = []
        self._last: Job | None = None
        """Who was pushed last: its key is as it is."""

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
        while self:
            known, job = self._next()
            if job is None:
                continue
            if not job.account or job is self._last or (now := key(job)) <= known:
                return job
            self.push(now, job)
        return None

    def _next(self) -> tuple[tuple, Job | None]:
        again = self._again
        made = again[0][0] if again else None
        if self._sorted and (made is None or self._sorted[-1][0] < made):
            made = self._sorted[-1][0]
        fed = self._feed.first() if self._feed is not None else None
        if self._feed is not None and fed is not None and (made is None or fed < made):
            return fed, self._feed.pop()
        if again and again[0][0] == made:
            return heappop(again)
        return self._sorted.pop()

    def push(self, key: tuple, job: Job) -> None:
        self._last = job
        heappush(self._again, (key, job))
