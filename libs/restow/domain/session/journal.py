"""How a session takes back what it has only tried: one journal of inverses for all that it works on, as `Maps.draft` has one for the fold."""

from collections.abc import Callable
from typing import Any


class Journal:
    """`undo` are the inverses of what has changed since the outermost mark, the latest last; None where nothing is tried, so that what is
    decided for good costs nothing. Whatever changes the working state of a session notes here how it is taken back."""

    __slots__ = ("undo",)

    def __init__(self) -> None:
        self.undo: list[tuple[Any, ...]] | None = None
        """Each a function and its arguments, in one tuple: a large gang notes tens of thousands, and Python's collector looks at all."""

    def note(self, function: Callable[..., object], *args: object) -> None:
        """Called with these where what has just changed is taken back."""
        if self.undo is not None:
            self.undo.append((function, *args))

    def mark(self) -> int:
        if self.undo is None:
            self.undo = []
        return len(self.undo)

    def rollback(self, mark: int) -> None:
        """As it was at the mark. An inverse may be one of the functions that note theirs: nothing is noted meanwhile."""
        undo, self.undo = self.undo or [], None
        while len(undo) > mark:
            function, *args = undo.pop()
            function(*args)
        self.undo = undo


class Attempt:
    """What has changed within is taken back at its end, unless it is to be kept."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept = False

    def keep(self) -> None:
        self.kept = True
