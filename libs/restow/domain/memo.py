"""What is kept beside a state: what deciders have computed of it and would compute again, never a part of it."""

from typing import Any, Protocol, TypeVar

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


class _Follows(Protocol):
    def __init__(self, state: Any) -> None: ...
    def refresh(self, state: Any) -> object: ...


F = TypeVar("F", bound=_Follows)


def kept(state: Any, kind: type[F]) -> F:
    """The one of this type that is kept beside a state (`Maps.memo`), as the state is now: made where there is none, then refreshed."""
    memo: Memo = state.memo
    known = memo.find(kind)
    if known is None:
        known = memo.keep(kind(state))
    known.refresh(state)
    return known
