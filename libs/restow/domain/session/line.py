"""The jobs of a queue that wait for their turn."""

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from operator import itemgetter

from restow.domain.session.jobs import Job

Entry = tuple[tuple, Job]
"""(key, job): smaller keys first, no two are equal."""


class Line:
    """First things first. Most jobs have one turn, and those are sorted once; who comes back is put into a heap."""

    __slots__ = ("_again", "_last", "_sorted")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._sorted = sorted(entries, key=itemgetter(0), reverse=True)
        self._again: list[Entry] = []
        self._last: Job | None = None
        """Who was pushed last: its key is as it is."""

    def __bool__(self) -> bool:
        return bool(self._sorted) or bool(self._again)

    def __iter__(self) -> Iterator[Job]:
        """In their order."""
        return (job for _, job in sorted((*self._sorted, *self._again), key=itemgetter(0)))

    def pop(self, key: Callable[[Job], tuple]) -> Job:
        """The next one. Raises IndexError where there is none. Of jobs that share an account another one may have got something
        since: then this one's turn has changed, to a later one."""
        while True:
            known, job = self._next()
            if not job.account or job is self._last or (now := key(job)) <= known:
                return job
            self.push(now, job)

    def _next(self) -> Entry:
        again = self._again
        if again and (not self._sorted or again[0][0] < self._sorted[-1][0]):
            return heappop(again)
        return self._sorted.pop()

    def push(self, key: tuple, job: Job) -> None:
        self._last = job
        heappush(self._again, (key, job))
