"""How a large map stands in a snapshot: what many of its values have in common is written, read and kept in memory once. Of half a million
pods most have labels, owner and shape in common with others, and share a node's name; of its own each has little more than a uid and a name."""

from collections.abc import Iterable, Sequence
from sys import intern
from typing import Any, NamedTuple, get_type_hints

import msgspec
from msgspec.structs import force_setattr, replace

_encode = msgspec.msgpack.Encoder().encode


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
        few: list[Any] = [tuple.__class_getitem__((list.__class_getitem__(hints[name]), list[int])) for name in self.few]
        own: list[Any] = [list.__class_getitem__(hints[name]) for name in self.own]
        return tuple.__class_getitem__((list.__class_getitem__(self.kind), list[int], *few, *own))

    def dump(self, values: Sequence[Any]) -> list[Any]:
        # What stands in the common ones for the columns does not matter: the first one's.
        blank = {name: getattr(values[0], name) for name in (*self.few, *self.own, *self.known)} if values else {}
        common: dict[bytes, tuple[int, Any]] = {}
        which = []
        for value in values:
            rest = replace(value, **blank)
            which.append(common.setdefault(_encode(rest), (len(common), rest))[0])
        few = [_few([getattr(value, name) for value in values]) for name in self.few]
        return [[rest for _, rest in common.values()], which, *few, *[[getattr(value, name) for value in values] for name in self.own]]

    def load(self, said: Sequence[Any]) -> list[Any]:
        common, which, *columns = said
        values = [common[i].__copy__() for i in which]
        for name, (different, number) in zip(self.few, columns, strict=False):
            shared = [intern(one) if isinstance(one, str) else one for one in different]
            self.set(values, name, map(shared.__getitem__, number))
        for name, column in zip(self.own, columns[len(self.few) :], strict=True):
            self.set(values, name, column)
        return values

    @staticmethod
    def set(values: Iterable[Any], name: str, column: Iterable[Any]) -> None:
        """A field of each value. They are new: nobody has seen them yet."""
        for value, mine in zip(values, column, strict=True):
            force_setattr(value, name, mine)


def _few(column: Iterable[Any]) -> tuple[list[Any], list[int]]:
    different: dict[Any, int] = {}
    numbers = [different.setdefault(one, len(different)) for one in column]
    return list(different), numbers
