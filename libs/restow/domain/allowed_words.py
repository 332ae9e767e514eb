"""What a field of a configuration may say, where it is one of a few words: for errors, which msgspec's own are silent about."""

import re
from collections.abc import Iterable
from typing import Any

from msgspec import inspect

_STEP = re.compile(r"\.([^.\[\]]+)|\[[^\]]*\]")


def allowed_words(kind: type, where: str) -> list[str]:
    """Of `kind`, a struct; `where`: msgspec's path below it, such as `.mode` or `.profiles[0].kind`. Empty where any text may be, or the path leads nowhere."""
    types = _one_by_one([inspect.type_info(kind)])
    for step in _STEP.finditer(where):
        types = _one_by_one(_below(types, step[1]))
    return [str(word) for one in types for word in _words(one)]


def _one_by_one(types: Iterable[inspect.Type]) -> list[inspect.Type]:
    return [part for one in types for part in (one.types if isinstance(one, inspect.UnionType) else (one,))]


def _below(types: list[inspect.Type], name: str | None) -> list[inspect.Type]:
    """Of the field of that name; None: of what a list or mapping has in it."""
    if name is not None:
        return [field.type for one in types if isinstance(one, inspect.StructType) for field in one.fields if field.encode_name == name]
    held: list[inspect.Type] = []
    for one in types:
        if isinstance(one, inspect.DictType):
            held.append(one.value_type)
        elif isinstance(one, inspect.CollectionType):
            held.append(one.item_type)
    return held


def _words(one: inspect.Type) -> list[Any]:
    if isinstance(one, inspect.LiteralType):
        return list(one.values)
    return [member.value for member in one.cls] if isinstance(one, inspect.EnumType) else []
