"""A log of what changed, for those who keep something derived and want to refresh just that."""

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

KEPT = 1 << 17
"""Entries kept at least. Whoever has not looked for longer starts anew."""


class Changes(Generic[T]):
    """Positions only grow. `since(p)` is what was added after position `p`, or None where that is forgotten."""

    __slots__ = ("_base", "_items", "append", "extend")

    def __init__(self) -> None:
        self._base = 0
        self._items: list[T] = []
        self.append = self._items.append
        self.extend = self._items.extend

    @property
    def position(self) -> int:
        return self._base + len(self._items)

    def since(self, position: int) -> Sequence[T] | None:
        if position < self._base:
            return None
        return self._items[position - self._base :]

    def repeat(self, position: int) -> None:
        """What was added after `position` is taken back: to whoever follows it has changed once more."""
        again = self.since(position)
        if again is None:
            self.forget()
        else:
            self.extend(again)

    def trim(self) -> None:
        """Forget what is long ago. Called after every commit."""
        if len(self._items) > 2 * KEPT:
            self._base += len(self._items) - KEPT
            del self._items[:-KEPT]

    def forget(self) -> None:
        """Everything may have changed: whoever has looked starts anew."""
        self._base += len(self._items) + 1
        self._items.clear()
