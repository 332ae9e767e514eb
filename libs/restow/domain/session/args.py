"""What the arguments of actions and plugins have in common: one frozen Struct each, under Volcano's published names."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Self

import msgspec

from restow.domain.quantity import QuantityError, nano

MAX_WEIGHT = 1_000_000
"""Weights times scores times nodes must stay far below int64."""
MAX_FACTOR = 1_000_000
MILLI = 10**6
"""Nano (the step of `quantity.nano`) in a thousandth."""


class ArgsError(ValueError):
    """Arguments of the wrong shape. Says the name below `arguments`, the value and what is allowed."""


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of one action or plugin. What `msgspec.to_builtins` makes of them is read back as equal arguments:
    so they are logged with every default written out."""

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        """From the `arguments` of a YAML file, where numbers and booleans may be quoted. Raises ArgsError."""
        try:
            return msgspec.convert(dict(said), cls, strict=False)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$")
            where = where.rstrip("`").lstrip(".")
            if "unknown field" in what:
                name = what.split("`")[1] if "`" in what else ""
                names = ", ".join(sorted(cls.__struct_encode_fields__)) or "no arguments"
                raise ArgsError(f"{where + '.' if where else ''}{name}: unknown; allowed: {names}") from None
            raise ArgsError(f"{where}: {what}" if where else what) from None

    def check(self) -> str:
        """Why these arguments are refused, such as `binpack.weight: -1; allowed: 0 to 1000000`; empty where they are not."""
        return ""

    @classmethod
    def switches_wrong(cls, enabled: Mapping[str, bool]) -> str:
        """Why a plugin's `enable…` switches, where they are not at their default, are refused; empty where they are not."""
        return ""


class NoArgs(Arguments, frozen=True):
    """Of whoever takes none."""


def weights_wrong(weights: Mapping[str, int]) -> str:
    """For `check`: the first of these named weights that is out of bounds."""
    for name, weight in weights.items():
        if not 0 <= weight <= MAX_WEIGHT:
            return f"{name}: {weight}; allowed: 0 to {MAX_WEIGHT}"
    return ""


def mapped(name: str, value: Any) -> dict[str, Any]:
    """A mapping by names; nothing is an empty one. Raises ArgsError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ArgsError(f"{name}: {value!r}; allowed: a mapping by names")
    return dict(value)


def with_prefix(said: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The arguments whose names start so, under the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in said.items() if name.startswith(prefix)}


def without_prefix(said: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name: value for name, value in said.items() if not name.startswith(prefix)}


def thousandths(name: str, value: Any, least: int = 0) -> int:
    """A factor such as `1.2` in thousandths: decisions know no fractions. Raises ArgsError."""
    allowed = f"allowed: a number from {decimal(least)} to {MAX_FACTOR}, of at most three decimals"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ArgsError(f"{name}: {value!r}; {allowed}")
    try:
        amount = nano(value)
    except QuantityError:
        raise ArgsError(f"{name}: {value!r}; {allowed}") from None
    if amount % MILLI or not least <= amount // MILLI <= MAX_FACTOR * 1000:
        raise ArgsError(f"{name}: {value}; {allowed}")
    return amount // MILLI


def decimal(milli: int) -> str:
    """`1200` thousandths as `1.2`."""
    text = f"{Decimal(milli) / 1000:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def listed(name: str, value: Any) -> tuple[str, ...]:
    """Names separated by commas, or a list of them; each once. Raises ArgsError."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ArgsError(f"{name}: {value!r}; allowed: names of resources, separated by commas")
    names = [item.strip() for item in items if item.strip()]
    if len(set(names)) < len(names):
        raise ArgsError(f"{name}: {', '.join(names)}; allowed: each resource once")
    return tuple(names)
