"""When something is due: cron in five fields by wall clock, and plain intervals (RULES 001-5).

Cron is Kubernetes' own (robfig/cron): names, lists, ranges, steps, `N/step` for "from N on", and where both day fields are
restricted either one suffices. Weekday 0 and 7 are Sunday; blanks around `-` and `,` are accepted.

Daylight saving: with hours that are named, a time that the clock skips fires when that much time has passed all the same
(02:30 becomes 03:30), and one that comes twice fires the first time only. With hours left open (`*`), every real hour counts.
"""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from restow.contracts.ids import Millis

MAX_YEARS = 9
"""Longest gap between two firings: 29 February across a century that is no leap year."""

_MONTHS = {
    name: i
    for i, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_WEEKDAYS = {name: i for i, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _WEEKDAYS),
)
_BLANKS = re.compile(r"\s*([-,])\s*")
_DAYS_IN = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


_DIGITS = 9
"""Of a number in a field: more than any that is allowed there."""


class WindowError(ValueError):
    """A cron expression or a time zone that cannot be read. Names the field, its value and what is allowed."""


class Cron(msgspec.Struct, frozen=True):
    """`weekdays` count from Sunday = 0. `any_day`, `any_weekday`, `any_hour`: the field is `*`."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_hour: bool
    any_day: bool
    any_weekday: bool

    def on(self, day: date) -> bool:
        """Whether it fires on this day. Where both day fields are restricted, either one suffices."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday


@lru_cache(maxsize=256)
def parse(cron: str) -> Cron:
    """Raises WindowError."""
    parts = _BLANKS.sub(r"\1", cron.strip()).split()
    if len(parts) != len(_FIELDS):
        raise WindowError(
            f"cron: {cron!r} has {len(parts)} fields; allowed: 5 (minute hour day-of-month month day-of-week)"
        )
    sets, free = zip(*(_field(text, *field) for text, field in zip(parts, _FIELDS, strict=True)), strict=True)
    minutes, hours, days, months, weekdays = sets
    read = Cron(
        minutes, hours, days, months, frozenset(d % 7 for d in weekdays), any_hour=free[1], any_day=free[2], any_weekday=free[4]
    )
    if read.any_weekday and not any(day <= _DAYS_IN[month - 1] for day in days for month in months):
        raise WindowError(f"cron: {cron!r} never fires; allowed: a day of month that its months have")
    return read


@lru_cache(maxsize=64)
def zone(name: str) -> ZoneInfo:
    """Raises WindowError."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise WindowError(f"timeZone: {name!r} is unknown; allowed: an IANA name such as UTC or Europe/Berlin") from error


def next_firing(cron: str, tz: str, after: Millis) -> Millis:
    """The first firing strictly after this instant. Raises WindowError."""
    read, where = parse(cron), zone(tz)
    start = datetime.fromtimestamp(after / 1000, UTC).astimezone(where).date()
    # A skipped time of the day before fires on this one: look there, too.
    for offset in range(-1, MAX_YEARS * 366):
        for firing in _on_day(cron, tz, start + timedelta(days=offset)):
            if firing > after:
                return firing
    raise WindowError(f"cron: {cron!r} never fires ({sorted(read.days)} in months {sorted(read.months)})")


def last_firing(cron: str, tz: str, until: Millis) -> Millis:
    """The last firing up to this instant. Raises WindowError."""
    read, where = parse(cron), zone(tz)
    start = datetime.fromtimestamp(until / 1000, UTC).astimezone(where).date()
    for offset in range(MAX_YEARS * 366):
        # A skipped time of the day before may fire on this one.
        both = (_on_day(cron, tz, start - timedelta(days=offset + more)) for more in (0, 1))
        if found := [firing for day in both for firing in day if firing <= until]:
            return max(found)
    raise WindowError(f"cron: {cron!r} has never fired ({sorted(read.days)} in months {sorted(read.months)})")


def next_interval(interval: int, last: Millis) -> Millis | None:
    """When something that was last done at `last` is due again, None for never. All in milliseconds."""
    return Millis(last + interval) if interval > 0 else None


@lru_cache(maxsize=512)
def _on_day(cron: str, tz: str, day: date) -> tuple[Millis, ...]:
    """The firings whose wall clock shows this day, in order."""
    read, where = parse(cron), zone(tz)
    if not read.on(day):
        return ()
    found: set[int] = set()
    for hour in read.hours:
        for minute in read.minutes:
            wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=where)
            instant = wall.astimezone(UTC)
            exists = instant.astimezone(where).replace(tzinfo=None) == wall.replace(tzinfo=None)
            if exists or not read.any_hour:
                found.add(_millis(instant))
            if exists and read.any_hour:
                found.add(_millis(wall.replace(fold=1).astimezone(UTC)))
    return tuple(Millis(instant) for instant in sorted(found))


def _millis(instant: datetime) -> int:
    return round(instant.timestamp()) * 1000


def _field(text: str, name: str, low: int, high: int, names: dict[str, int]) -> tuple[frozenset[int], bool]:
    values: set[int] = set()
    for part in text.split(","):
        values.update(_part(part, text, name, low, high, names))
    return frozenset(values), text in ("*", "*/1")


def _part(part: str, text: str, name: str, low: int, high: int, names: dict[str, int]) -> range:
    span, slash, step_text = part.partition("/")
    step = 1
    if slash:
        if not _is_number(step_text) or int(step_text) < 1:
            raise _bad(name, text, f"step {step_text!r}", "a step of 1 or more")
        step = int(step_text)
    top = 6 if names is _WEEKDAYS else high
    if span == "*":
        return range(low, top + 1, step)
    first_text, dash, last_text = span.partition("-")
    first = _value(first_text, text, name, low, high, names)
    if not dash:
        return range(first, (max(first, top) if slash else first) + 1, step)
    last = _value(last_text, text, name, low, high, names)
    if names is _WEEKDAYS and last == 0 and first > 0:
        last = 7
    if last < first:
        raise _bad(name, text, f"range {span!r}", "a range that goes up")
    return range(first, last + 1, step)


def _is_number(text: str) -> bool:
    """Python reads no number of thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def _value(value: str, text: str, name: str, low: int, high: int, names: dict[str, int]) -> int:
    got = names.get(value.lower())
    if got is None and _is_number(value):
        got = int(value)
    if got is None or not low <= got <= high:
        also = f" or {', '.join(names)}" if names else ""
        raise _bad(name, text, repr(value), f"{low} to {high}{also}")
    return got


def _bad(name: str, text: str, what: str, allowed: str) -> WindowError:
    return WindowError(f"cron, {name} {text!r}: {what}; allowed: {allowed}")
