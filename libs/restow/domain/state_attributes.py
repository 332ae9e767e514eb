"""How the attributes of a state are declared: what becomes of each in a snapshot, in a draft and where two states are compared.

Each attribute is declared once, in the body of `restow.domain.state_maps.Maps`, as `stored`, `derived` or `passing`. The snapshot
(`restow.domain.snapshot`) writes what is stored and makes anew what is derived; the comparison (`restow.replay.diff`) is about both. What a
draft does follows from what an attribute is: of maps each change is journaled, values are put back, logs of changes say that everything has
changed back. Nothing else can be an attribute, for the classes have slots.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from restow.domain.changes import Changes


class Role(Enum):
    """STORED: the log says it, and a snapshot has it. DERIVED: it follows from what is stored. PASSING: what somebody has not looked at yet, and
    what was computed of the state; of no state a part."""

    STORED = "stored"
    DERIVED = "derived"
    PASSING = "passing"


class Image(NamedTuple):
    """How an attribute stands in a snapshot, where that is not as it is in the state: a type that MessagePack has, and both ways. Both are given
    the state too: what is declared before the attribute is there already. Where it stands there as several fields, `type` says of each by its
    name, and both ways are about all of them together."""

    type: Any
    dump: Callable[[Any, Any], Any]
    load: Callable[[Any, Any], Any]


V = TypeVar("V")


def values(kind: type[V], key: Callable[[V], Any]) -> Image:
    """Of a map whose values know their key: the values."""
    return Image(list[kind], lambda state, known: list(known.values()), lambda state, said: {key(value): value for value in said})  # type: ignore[valid-type]


def stored(factory: Callable[[], Any], image: Image | None = None) -> Any:
    return dataclasses.field(default_factory=factory, metadata={"role": Role.STORED, "image": image})


def derived(factory: Callable[[], Any]) -> Any:
    return dataclasses.field(default_factory=factory, metadata={"role": Role.DERIVED})


def passing(factory: Callable[[], Any]) -> Any:
    return dataclasses.field(default_factory=factory, metadata={"role": Role.PASSING})


class Attribute(NamedTuple):
    name: str
    role: Role
    image: Image


@cache
def attributes(kind: Any) -> tuple[Attribute, ...]:
    """In the order of their declaration."""
    return tuple(
        Attribute(field.name, field.metadata["role"], field.metadata.get("image") or _as_it_is(field.type))
        for field in dataclasses.fields(kind)
        if field.metadata
    )


def _as_it_is(kind: Any) -> Image:
    if get_origin(kind) is Counter:
        return Image(dict[get_args(kind)[0], int], lambda state, counted: dict(counted), lambda state, said: Counter(said))  # type: ignore[misc]
    return Image(kind, lambda state, value: value, lambda state, said: said)


class Drafted:
    """What a draft does for the attributes of a state beside the journal of its maps: taken before it, put back after it."""

    __slots__ = ("_counters", "_followed", "_state", "_values")

    def __init__(self, state: Any) -> None:
        kind: Any = type(state)
        values, counters, logs = _kinds(kind)
        self._state = state
        self._values = attrgetter(*values)(state)
        self._counters = [getattr(state, name).copy() for name in counters]
        self._followed = [getattr(state, name).position for name in logs]

    def put_back(self) -> None:
        state = self._state
        kind: Any = type(state)
        values, counters, logs = _kinds(kind)
        for name, value in zip((*values, *counters), (*self._values, *self._counters), strict=True):
            setattr(state, name, value)
        # What was changed has changed back: whoever has looked meanwhile looks again.
        for name, position in zip(logs, self._followed, strict=True):
            getattr(state, name).repeat(position)


@cache
def _kinds(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The names of attributes that are values, of counters, and of logs of changes."""
    new = kind()
    names = {a.name: getattr(new, a.name) for a in attributes(kind)}
    return (
        tuple(name for name, value in names.items() if isinstance(value, int | str | msgspec.Struct)),
        tuple(name for name, value in names.items() if isinstance(value, Counter)),
        tuple(name for name, value in names.items() if isinstance(value, Changes)),
    )
