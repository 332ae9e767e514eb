"""What is kept beside a state: what deciders have computed of it and would compute again, never a part of it."""

from typing import Any, TypeVar

T = TypeVar("T")


class Memo(dict[type, Any]):
    """One value of each type. Whoever keeps one sees to it that it follows the state; with a state's shapes all of them are forgotten."""

    def find(self, kind: type[T]) -> T | None:
        return self.get(kind)

    def keep(self, value: T) -> T:
        """In place of the one that there was."""
        self[type(value)] = value
        return value

    def make(self, kind: type[T]) -> T:
        """The one that there is, or a new one."""
        known = self.get(kind)
        return self.keep(kind()) if known is None else known
