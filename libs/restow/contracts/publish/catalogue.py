"""What there is to publish, read off the Structs: names, families, fields, meanings."""

import inspect
import types
import typing
from typing import Any, NamedTuple

import msgspec

from restow.contracts import commands, events
from restow.contracts.ids import FAMILIES

SUBJECT = "restow.{cluster}"


class Field(NamedTuple):
    """One field as a reader sees it. `default` is its JSON where the field may be absent, else None."""

    name: str
    kind: str
    default: str | None


def tag(cls: type[msgspec.Struct]) -> str:
    """The name on the wire."""
    return str(cls.__struct_config__.tag)


def family(cls: type[events.Event]) -> str:
    """The family that an event belongs to: what stands before the first dot of its name."""
    return tag(cls).split(".", 1)[0]


def by_family() -> dict[str, list[type[events.Event]]]:
    """Every event, in the order of families and of declaration."""
    found: dict[str, list[type[events.Event]]] = {name: [] for name in FAMILIES}
    for cls in events.EVENTS:
        found[family(cls)].append(cls)
    return found


def meaning(cls: type[msgspec.Struct]) -> str:
    """The docstring of the Struct or of its nearest own base, on one line; else its name in words."""
    for base in cls.__mro__:
        if base in (events.Event, commands.Command, msgspec.Struct):
            break
        if base.__doc__:
            return " ".join(inspect.cleandoc(base.__doc__).split())
    words = tag(cls).split(".", 1)[-1].replace("_", " ")
    return words[0].upper() + words[1:] + "."


def fields(cls: type[msgspec.Struct]) -> list[Field]:
    hints = typing.get_type_hints(cls)
    return [Field(f.encode_name, kind(hints[f.name]), _default(f)) for f in msgspec.structs.fields(cls)]


def kind(hint: Any) -> str:
    """A type as the tables show it: `PodUid`, `DeviceShare[]`, `map of int`, `OwnerRef or null`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(kind(a) for a in arguments)
    if hint is type(None):
        return "null"
    if origin is typing.Literal:
        return " \\| ".join(f"`{a}`" for a in arguments)
    if origin in (tuple, list):
        return f"{kind(arguments[0])}[]"
    if origin is dict:
        return f"map of {kind(arguments[1])}"
    return str(getattr(hint, "__name__", hint))


def _default(field: msgspec.structs.FieldInfo) -> str | None:
    if field.default is not msgspec.NODEFAULT:
        return msgspec.json.encode(field.default).decode()
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.json.encode(field.default_factory()).decode()
    return None
