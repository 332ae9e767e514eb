"""A log of what changed, for those who keep something derived and want to refresh just that."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

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


class Seen:
    """How far somebody who keeps something derived has looked through several such logs."""

    __slots__ = ("_changes", "_positions")

    def __init__(self, *changes: Changes) -> None:
        self._changes = changes
        self._positions = [-1] * len(changes)

    def all(self) -> bool:
        """Whether nothing has been added since."""
        for changes, position in zip(self._changes, self._positions, strict=True):
            if changes.position != position:
                return False
        return True

    def news(self) -> list[Any]:
        """Of each log what has been added since this was last asked; None where that is forgotten, and the first time."""
        found = [changes.since(position) for changes, position in zip(self._changes, self._positions, strict=True)]
        self._positions = [changes.position for changes in self._changes]
        return found
