"""When something is kept free: the windows of a cron expression (RULES 001-5).

Firings at most one hour apart form one window, across midnight too: `0 3-4 * * *` is from three to four. All by wall clock,
so that a change to or from daylight saving neither cuts a window in two nor joins two of them: from one to three by the clock
is one hour in spring and three in autumn, and a window that the clock skips altogether does not come that day."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

import msgspec

from restow.contracts.ids import Millis
from restow.domain.windows import MAX_YEARS, Cron, WindowError, next_firing, parse, zone

DAY = 24 * 3600 * 1000
MAX_LEAD = 7 * DAY
"""Milliseconds that a reservation may begin before its window."""
MAX_DAYS = 31
"""Days that one window may last."""
_MINUTES = 24 * 60
_SCAN_FROM = date(2000, 1, 1)
_TRIES = 100
"""Windows in a row that a change of clocks may swallow whole; one a year at most does."""


class Window(msgspec.Struct, frozen=True, order=True):
    """One window, in milliseconds since the epoch: kept free from `opens` (the lead start) to before `end`; it starts at
    `start`, the first of its firings, and ends at the last of them."""

    opens: Millis
    start: Millis
    end: Millis


def active(cron: str, tz: str, lead: int, now: Millis) -> tuple[Window, ...]:
    """The windows that are kept free now, in order. With a long lead the next one may begin before one has ended."""
    return tuple(window for window in _near(cron, tz, lead, _day(tz, now)) if window.opens <= now < window.end)


def upcoming(cron: str, tz: str, lead: int, now: Millis) -> Window | None:
    """The first window that opens after now; None where none ever does again."""
    at = now
    for _ in range(_TRIES):
        later = [window for window in _near(cron, tz, lead, _day(tz, at)) if window.opens > now]
        if later:
            return min(later)
        try:
            # All that start up to the lead's end of that day are known: look where the next one is.
            at = Millis(next_firing(cron, tz, Millis(at + lead + 2 * DAY)) - lead)
        except WindowError:
            return None
    return None


def next_change(cron: str, tz: str, lead: int, now: Millis) -> Millis | None:
    """The first instant after now at which a window opens, starts or ends. None where none ever does again."""
    near = _near(cron, tz, lead, _day(tz, now))
    later = [at for window in near if window.opens <= now for at in (window.start, window.end) if at > now]
    if (following := upcoming(cron, tz, lead, now)) is not None:
        later.append(following.opens)
    return min(later, default=None)


def shape_wrong(cron: str, tz: str = "UTC") -> str:
    """Why the expression makes no windows, with what is allowed; empty where it does. A lone firing has no end, and a window
    must not last for more than MAX_DAYS. Judged by wall clock: what a change of clocks does to one day is no mistake."""
    try:
        read = parse(cron)
        next_firing(cron, tz, Millis(0))
    except WindowError as error:
        return str(error)
    runs = list(_wall_runs(read))
    first, last = runs[0], runs[-1]
    if any(len(run) == 1 for run in runs[1:-1]):
        return _lone(cron)
    joins = first[0] + _MINUTES - last[-1] <= 60
    lone_first, lone_last = len(first) == 1, len(last) == 1
    if (lone_first or lone_last) and not joins:
        return _lone(cron)
    if not joins or (len(runs) > 1 and not lone_first and not lone_last):
        return ""
    return _across_midnight(read, cron, lone_first, lone_last, whole=len(runs) == 1)


def _across_midnight(read: Cron, cron: str, lone_first: bool, lone_last: bool, whole: bool) -> str:
    """Where a day's last firings join the next day's first: whether the days that this needs are there, and how many days
    follow one another if the whole of each is one run."""
    length = 0
    before = read.on(_SCAN_FROM - timedelta(days=1))
    for offset in range(MAX_YEARS * 366):
        day = _SCAN_FROM + timedelta(days=offset)
        on, after = read.on(day), read.on(day + timedelta(days=1))
        alone_early = lone_first and not before and not (whole and after)
        alone_late = lone_last and not after and not (whole and before)
        if on and (alone_early or alone_late):
            return _lone(cron)
        length = length + 1 if on else 0
        if whole and length > MAX_DAYS:
            return f"cron: {cron!r} makes a window of more than {MAX_DAYS} days; allowed: firings with an end, such as 0 3-4 * * *"
        before = on
    return ""


def _lone(cron: str) -> str:
    return f"cron: {cron!r} has a firing with no other within an hour; allowed: two at least a window, such as 0 3-4 * * * (from 3 to 4)"


def _wall_runs(read: Cron) -> Iterator[list[int]]:
    """The minutes of the day at which it fires, in runs of firings at most an hour apart."""
    times = sorted(hour * 60 + minute for hour in read.hours for minute in read.minutes)
    run = [times[0]]
    for at in times[1:]:
        if at - run[-1] > 60:
            yield run
            run = []
        run.append(at)
    yield run


def _day(tz: str, now: Millis) -> date:
    return datetime.fromtimestamp(now / 1000, UTC).astimezone(zone(tz)).date()


@lru_cache(maxsize=1024)
def _near(cron: str, tz: str, lead: int, day: date) -> tuple[Window, ...]:
    """Every window that is kept free at some time of this day, and those that open in the days after."""
    read = parse(cron)
    runs = list(_wall_runs(read))
    joins = runs[0][0] + _MINUTES - runs[-1][-1] <= 60
    spans: list[tuple[date, list[int], date, list[int]]] = []
    horizon = lead // DAY + 3
    # One that begins on the last day of all may last for as long as a window can.
    for offset in range(-MAX_DAYS - 2, horizon + MAX_DAYS):
        today = day + timedelta(days=offset)
        if not read.on(today):
            continue
        for run in runs:
            if spans and joins and run is runs[0] and spans[-1][2] == today - timedelta(days=1):
                spans[-1] = (*spans[-1][:2], today, run)
            elif offset <= horizon:
                spans.append((today, run, today, run))
    found = []
    for first_day, first, last_day, last in spans:
        start = min(_instants(read, tz, first_day, first))
        end = max(_instants(read, tz, last_day, last))
        if start < end:
            found.append(Window(Millis(start - lead), Millis(start), Millis(end)))
    return tuple(found)


def _instants(read: Cron, tz: str, day: date, run: list[int]) -> list[Millis]:
    """When these minutes of the day come: a skipped one later, one that comes twice the first time (domain/windows.py)."""
    where, midnight = zone(tz), datetime(day.year, day.month, day.day)
    walls = [(midnight + timedelta(minutes=minute)).replace(tzinfo=where) for minute in run]
    if read.any_hour:
        walls += [wall.replace(fold=1) for wall in walls]
    return [Millis(round(wall.astimezone(UTC).timestamp()) * 1000) for wall in walls]
