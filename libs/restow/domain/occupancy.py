"""Who occupies nodes, kept beside the state: what the indexes of NUMA zones and of CPUs have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, Protocol, Self, TypeVar

from restow.contracts.ids import NodeName
from restow.domain.changes import Changes
from restow.domain.occupants import Who, everybody
from restow.domain.state import ClusterState


class OnRow(Protocol):
    """An occupant, as far as the index cares; equal where it counts equally."""

    @property
    def row(self) -> int: ...


T = TypeVar("T", bound=OnRow)


class Occupancy(ABC, Generic[T]):
    """Kept in `state.memo` and refreshed by what has changed: occupants, nodes and their NodeResourceTopologies. `_stale` are rows
    that are to be worked out again, `_changed` those that were; `_tentative` those of whom a session says something else than the
    state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._rebuild()

    @classmethod
    def of(cls, state: ClusterState) -> Self:
        """The index of this state, up to date."""
        known = state.memo.find(cls)
        if known is None:
            return state.memo.keep(cls(state))
        known._refresh()
        return known

    @abstractmethod
    def _empty(self) -> None:
        """Nothing is known of any row."""

    @abstractmethod
    def _observe(self, rows: Iterable[int]) -> None:
        """The nodes of these rows, or what is said of them, may be other ones."""

    @abstractmethod
    def _occupant(self, who: Who) -> T | None:
        """What the state says."""

    def _occupy(self, who: Iterable[Who]) -> None:
        """These may be somewhere else."""
        for one in dict.fromkeys(who):
            self._set(one, self._occupant(one))

    def _rebuild(self) -> None:
        state = self._state
        self._at: dict[Who, T] = {}
        self._on: dict[int, dict[Who, T]] = {}
        self._tentative: dict[Who, None] = {}
        self._stale: set[int] = set()
        self._changed: Changes[int] = Changes()
        self._empty()
        self._objects, self._moved, self._rows = state.objects.position, state.moved.position, state.changed_rows.position
        self._observe(range(len(state.table.names)))
        self._occupy(everybody(state))

    def _refresh(self) -> None:
        state = self._state
        objects, moved = state.objects.since(self._objects), state.moved.since(self._moved)
        changed = state.changed_rows.since(self._rows)
        if objects is None or moved is None or changed is None:
            return self._rebuild()
        self._objects, self._moved, self._rows = state.objects.position, state.moved.position, state.changed_rows.position
        rows = set(changed)
        for kind, name in objects:
            if kind == "numa" and (row := state.table.rows.get(NodeName(name))) is not None:
                rows.add(row)
        self._observe(sorted(rows))
        self._occupy(moved)
        return None

    def _set(self, who: Who, new: T | None) -> None:
        old = self._at.get(who)
        if old == new:
            return
        if old is not None:
            del self._at[who]
            del self._on[old.row][who]
            self._stale.add(old.row)
        if new is not None:
            self._at[who] = new
            self._on.setdefault(new.row, {})[who] = new
            self._stale.add(new.row)

    def _settled(self) -> None:
        """What was stale has been worked out."""
        self._changed.extend(self._stale)
        self._changed.trim()
        self._stale.clear()

    def close(self) -> None:
        """Takes back whatever was added and removed."""
        for who in self._tentative:
            self._set(who, self._occupant(who))
        self._tentative.clear()
