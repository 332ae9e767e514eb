"""How a large map stands in a snapshot: what many of its values have in common is written, read and kept in memory once. Of half a million
pods most have labels, owner and shape in common with others, and share a node's name; of its own each has little more than a uid and a name."""

from collections.abc import Iterable, Sequence
from sys import intern
from typing import Any, NamedTuple, get_type_hints

import msgspec
import numpy as np
from msgspec.structs import force_setattr, replace

_encode = msgspec.msgpack.Encoder().encode


_WIDTHS = {1: "u1", 2: "u2", 4: "u4"}
"""Bytes of a number → its type, without the order of its bytes: the lowest first."""


def packed(numbers: Sequence[int]) -> bytes:
    """Places in a list, as narrow as the largest allows, and the bytes that each takes: read at once, where a list of them would be as many objects."""
    width = next(width for width in _WIDTHS if max(numbers, default=0) < 256**width)
    return np.array(numbers, "<" + _WIDTHS[width]).tobytes() + bytes([width])


def unpacked(data: bytes) -> memoryview:
    """Raises ValueError or LookupError where these are no such numbers."""
    kind = _WIDTHS[data[-1]]
    return np.frombuffer(memoryview(data)[:-1], "<" + kind).astype(kind, copy=False).data


class Columns(NamedTuple):
    """Of values of one type. `own` are fields that hardly two have in common: a column each. Of `few` there are few different ones, beside
    whatever else: a list of those, and a column that says which. `known` are fields that whoever loads them sets (`set`). The rest of all
    fields is written once for all values that agree in it."""

    kind: Any
    own: tuple[str, ...]
    few: tuple[str, ...]
    known: tuple[str, ...] = ()

    @property
    def type(self) -> Any:
        hints = get_type_hints(self.kind)
        few: list[Any] = [tuple.__class_getitem__((list.__class_getitem__(hints[name]), bytes)) for name in self.few]
        own: list[Any] = [list.__class_getitem__(hints[name]) for name in self.own]
        return tuple.__class_getitem__((list.__class_getitem__(self.kind), bytes, *few, *own))

    def dump(self, values: Sequence[Any]) -> list[Any]:
        # What stands in the common ones for the columns does not matter: the first one's.
        blank = {name: getattr(values[0], name) for name in (*self.few, *self.own, *self.known)} if values else {}
        common: dict[bytes, tuple[int, Any]] = {}
        which = []
        for value in values:
            rest = replace(value, **blank)
            which.append(common.setdefault(_encode(rest), (len(common), rest))[0])
        few = [_few([getattr(value, name) for value in values]) for name in self.few]
        return [[rest for _, rest in common.values()], packed(which), *few, *[[getattr(value, name) for value in values] for name in self.own]]

    def load(self, said: Sequence[Any]) -> list[Any]:
        common, which, *columns = said
        values = [common[i].__copy__() for i in unpacked(which)]
        for name, (different, number) in zip(self.few, columns, strict=False):
            shared = [intern(one) if isinstance(one, str) else one for one in different]
            self.set(values, name, map(shared.__getitem__, unpacked(number)))
        for name, column in zip(self.own, columns[len(self.few) :], strict=True):
            self.set(values, name, column)
        return values

    @staticmethod
    def set(values: Iterable[Any], name: str, column: Iterable[Any]) -> None:
        """A field of each value. They are new: nobody has seen them yet."""
        for value, mine in zip(values, column, strict=True):
            force_setattr(value, name, mine)


def _few(column: Iterable[Any]) -> tuple[list[Any], bytes]:
    different: dict[Any, int] = {}
    numbers = packed([different.setdefault(one, len(different)) for one in column])
    return list(different), numbers
