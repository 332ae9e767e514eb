"""How the maps of a state are written: at once, or in a draft with a journal, so that all of it can be taken back.

A state chooses one of the two when a draft begins and ends; no write asks. An index is a map of sets, each a dict without values; a set that
has become empty is not kept.
"""

from collections.abc import Callable
from operator import setitem
from typing import Any, cast

_ABSENT: Any = object()


class AtOnce:
    """Outside a draft."""

    __slots__ = ()

    put = staticmethod(cast(Callable[[dict, Any, Any], None], setitem))

    @staticmethod
    def drop(mapping: dict, key: Any) -> Any:
        """Remove and return, or None."""
        return mapping.pop(key, None)

    @staticmethod
    def put_in(index: dict, key: Any, member: Any) -> None:
        """Add to one of the sets of an index."""
        inner = index.get(key)
        if inner is None:
            index[key] = {member: None}
        else:
            inner[member] = None

    @staticmethod
    def drop_in(index: dict, key: Any, member: Any) -> None:
        inner = index.get(key)
        if inner is not None:
            inner.pop(member, None)
            if not inner:
                del index[key]


class Journal:
    """In a draft: what was there before each write, in order."""

    __slots__ = ("_before", "_orders")

    def __init__(self) -> None:
        self._before: list[tuple[Any, Any, Any]] = []
        self._orders: dict[int, tuple[dict, list]] = {}
        """By its id: a map that has lost an entry, and its keys before."""

    def put(self, mapping: dict, key: Any, value: Any) -> None:
        self._before.append((mapping, key, mapping.get(key, _ABSENT)))
        mapping[key] = value

    def drop(self, mapping: dict, key: Any) -> Any:
        old = mapping.get(key, _ABSENT)
        if old is _ABSENT:
            return None
        self._before.append((mapping, key, old))
        if id(mapping) not in self._orders:
            self._orders[id(mapping)] = mapping, list(mapping)
        del mapping[key]
        return old

    def put_in(self, index: dict, key: Any, member: Any) -> None:
        inner = index.get(key)
        if inner is None:
            inner = {}
            self.put(index, key, inner)
        self.put(inner, member, None)

    def drop_in(self, index: dict, key: Any, member: Any) -> None:
        inner = index.get(key)
        if inner is not None:
            self.drop(inner, member)
            if not inner:
                self.drop(index, key)

    def did(self, undo: Callable[..., object], *args: Any) -> None:
        """Something was done that is no map's, and this undoes it."""
        self._before.append((None, undo, args))

    def take_back(self) -> None:
        for mapping, key, old in reversed(self._before):
            if mapping is None:
                key(*old)
            elif old is _ABSENT:
                mapping.pop(key, None)
            else:
                mapping[key] = old
        for mapping, order in self._orders.values():
            _reorder(mapping, order)


def _reorder(mapping: dict, order: list) -> None:
    """What was taken out and put back stands at the end: the state would differ from its log in the order of a map."""
    if len(order) > len(mapping):
        order = [key for key in order if key in mapping]
    if list(mapping) != order:
        entries = {key: mapping[key] for key in order}
        mapping.clear()
        mapping.update(entries)
