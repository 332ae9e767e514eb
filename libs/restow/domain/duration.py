"""Durations as Go writes them: `600s`, `1h30m`, `1.5h`, `-2m`, `0` ⇄ integers."""

import re

from restow.contracts.ids import MOST

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_TERM = re.compile(r"(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MAX_LENGTH = 128
_ALLOWED = "allowed: numbers with units h m s ms us ns, such as 600s or 1h30m, or 0"


class DurationError(ValueError):
    """A value that is not a duration. Says the value and what is allowed."""


class TooLong(DurationError):
    """One that no field can hold."""


def nanoseconds(text: str) -> int:
    """As Go's `time.ParseDuration`; fractions of a nanosecond are cut off. Raises DurationError."""
    if len(text) > _MAX_LENGTH:
        # Before a digit is read: anybody may have written it, and Python refuses to read thousands of them, with another error.
        raise DurationError(f"{text[:_MAX_LENGTH]!r} is not a duration; {_ALLOWED}")
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    total, at = 0, 0
    while match := _TERM.match(rest, at):
        whole, part, only, unit = match.groups()
        part = part or only or ""
        total += int((whole or "") + part) * _UNITS[unit] // 10 ** len(part)
        at = match.end()
    if at != len(rest) or not rest:
        raise DurationError(f"{text!r} is not a duration; {_ALLOWED}")
    if total > MOST:
        raise TooLong(f"{text!r} is too long; allowed: up to {format_milliseconds(MOST // 10**6)}")
    return sign * total


def milliseconds(text: str) -> int:
    """Whole milliseconds, rounded up. Raises DurationError."""
    return -(-nanoseconds(text) // 10**6)


def format_milliseconds(amount: int) -> str:
    """As Go's `Duration.String`: `10m0s`, `1h30m0s`, `1.5s`, `250ms`, `0s`."""
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    if 0 < amount < 1000:
        return f"{sign}{amount}ms"
    minutes, rest = divmod(amount, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest // 1000}.{rest % 1000:03d}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"
