"""The jobs of a queue that wait for their turn."""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from operator import itemgetter

from restow.domain.session.jobs import Job

Entry = tuple[tuple, Job]
"""(key, job): smaller keys first, no two are equal."""


class Line:
    """First things first. Most jobs have one turn, and those are sorted once; who comes back is put into a heap."""

    __slots__ = ("_again", "_sorted")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._sorted = sorted(entries, key=itemgetter(0), reverse=True)
        self._again: list[Entry] = []

    def __bool__(self) -> bool:
        return bool(self._sorted) or bool(self._again)

    def __iter__(self) -> Iterator[Job]:
        """In their order."""
        return (job for _, job in sorted((*self._sorted, *self._again), key=itemgetter(0)))

    def pop(self) -> Job:
        """The next one. Raises IndexError where there is none."""
        again = self._again
        if again and (not self._sorted or again[0][0] < self._sorted[-1][0]):
            return heappop(again)[1]
        return self._sorted.pop()[1]

    def push(self, key: tuple, job: Job) -> None:
        heappush(self._again, (key, job))
