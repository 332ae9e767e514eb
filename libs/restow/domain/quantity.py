"""Kubernetes quantities, exactly: `1500m`, `2Gi`, `1e3`, `.5`, `-3Ki` ⇄ integers.

Everything is an integer of thousand-millionths (nano), the finest step that Kubernetes keeps. Whatever is finer, and
whatever does not fit the wanted unit, is rounded away from zero, as apimachinery does (`Quantity.Value`,
`Quantity.MilliValue`): who asks for a little gets a little. Unlike apimachinery, which caps silently, a value beyond
int64 is refused.
"""

import re
from functools import lru_cache

from restow.contracts.ids import LEAST, MOST

CPU = "cpu"
"""The one resource that is counted in thousandths; all others are whole units."""
_BYTES = ("memory", "ephemeral-storage", "storage")
_BYTES_PREFIX = "hugepages-"

_NANO = 10**9
_MAX_LENGTH = 128
_MAX_EXPONENT = 40
"""10^40 nano is far beyond int64 and 10^-40 far below one nano: larger exponents need no arithmetic."""

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+)|(?P<decimal>[numkMGTPE]?))",
    re.ASCII,
)
_ALLOWED = (
    "allowed: a number such as 2, 0.5 or -1 with one suffix of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3"
)


class QuantityError(ValueError):
    """A value that is not a quantity, or does not fit. Says the value and what is allowed."""


def nano(value: str | int | float) -> int:
    """Thousand-millionths, rounded away from zero. Raises QuantityError; has no upper bound of its own."""
    if isinstance(value, str):
        return _parse(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(f"{value!r} is not a quantity; {_ALLOWED}")
    return value * _NANO if isinstance(value, int) else _parse(repr(value))


def milli(value: str | int | float) -> int:
    """Thousandths (of a core), rounded away from zero. Raises QuantityError, also beyond int64."""
    return _fit(_up(nano(value), 10**6), value, "thousandths")


def units(value: str | int | float) -> int:
    """Whole units (bytes, devices), rounded away from zero. Raises QuantityError, also beyond int64."""
    return _fit(_up(nano(value), _NANO), value, "units")


@lru_cache(maxsize=16_384)
def _canonical_text(resource: str, text: str) -> int:
    return milli(text) if resource == CPU else units(text)


def canonical(resource: str, value: str | int | float) -> int:
    """The integer in which this resource is counted: cpu in thousandths of a core, all others in whole units."""
    if isinstance(value, str):
        return _canonical_text(resource, value)
    return milli(value) if resource == CPU else units(value)


def from_nano(resource: str, amount: int) -> int:
    """A sum of `nano` values in the unit of this resource: rounded once, after adding, as the scheduler does."""
    fine = _up(amount, 10**6 if resource == CPU else _NANO)
    return _fit(fine, f"{fine}m" if resource == CPU else str(fine), resource)


def format_resource(resource: str, amount: int) -> str:
    """The canonical string of Kubernetes for an amount in canonical units: `1500m`, `500Mi`, `3`, `2k`."""
    if resource == CPU:
        return _decimal(amount, -3)
    if resource in _BYTES or resource.startswith(_BYTES_PREFIX):
        return _binary(amount)
    return _decimal(amount, 0)


def _parse(text: str) -> int:
    if len(text) > _MAX_LENGTH:
        raise QuantityError(f"{text[:32]!r}... has {len(text)} characters; allowed: at most {_MAX_LENGTH}")
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity; {_ALLOWED}")
    part = match["part"] or match["only"] or ""
    digits = int((match["whole"] or "") + part)
    if digits == 0:
        return 0
    if match["binary"]:
        amount = _scale(digits << _BINARY[match["binary"]], 9 - len(part))
    else:
        exponent = int(match["exponent"]) if match["exponent"] else _DECIMAL[match["decimal"] or ""]
        if exponent > _MAX_EXPONENT:
            raise QuantityError(f"{text!r} is too large; allowed: up to {MOST}")
        amount = _scale(digits, max(exponent, -_MAX_LENGTH - _MAX_EXPONENT) + 9 - len(part))
    return -amount if match["sign"] == "-" else amount


def _scale(digits: int, exponent: int) -> int:
    """digits · 10^exponent, rounded up; digits is not negative."""
    return digits * 10**exponent if exponent >= 0 else -(-digits // 10**-exponent)


def _up(amount: int, unit: int) -> int:
    """amount / unit, rounded away from zero."""
    return -(-amount // unit) if amount >= 0 else amount // unit


def _fit(amount: int, value: object, unit: str) -> int:
    if LEAST <= amount <= MOST:
        return amount
    raise QuantityError(f"{value!r} is too large; allowed: up to {MOST} {unit}")


def _decimal(amount: int, exponent: int) -> str:
    if amount == 0:
        return "0"
    while exponent < 18 and amount % 1000 == 0:
        amount //= 1000
        exponent += 3
    return f"{amount}{next(suffix for suffix, power in _DECIMAL.items() if power == exponent)}"


def _binary(amount: int) -> str:
    """As apimachinery: below 1024 in decimal form, else with the largest binary suffix that leaves an integer."""
    if -1024 < amount < 1024:
        return _decimal(amount, 0)
    suffix = ""
    for bigger in _BINARY:
        if amount % 1024:
            break
        amount //= 1024
        suffix = bigger
    return f"{amount}{suffix}"
