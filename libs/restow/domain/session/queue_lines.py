"""What waits, by queue and sorted."""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class QueueLines(Generic[T]):
    """`by_queue`: each sorted by `key`, which tells any two apart and never changes; a queue of which nothing waits has no line."""

    def __init__(self, key: Callable[[T], Any]) -> None:
        self._key = key
        self._known: dict[Hashable, tuple[str, T]] = {}
        self.by_queue: dict[str, list[T]] = {}

    def __contains__(self, name: Hashable) -> bool:
        return name in self._known

    def put(self, name: Hashable, queue: str, item: T) -> None:
        """It must not be there under this name."""
        self._known[name] = queue, item
        insort(self.by_queue.setdefault(queue, []), item, key=self._key)

    def drop(self, name: Hashable) -> None:
        """Nothing where it is not there."""
        known = self._known.pop(name, None)
        if known is not None:
            queue, item = known
            line = self.by_queue[queue]
            del line[bisect_left(line, self._key(item), key=self._key)]
            if not line:
                del self.by_queue[queue]
