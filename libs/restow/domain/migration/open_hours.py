"""When pods may move: within the policy's `windows` (always, where it has none) and in none of its `blackouts`.

It is a pause by the clock (`pause.py`): outside no plan is made, whatever its trigger, a plan that is under way when they close is cancelled, and who was evicted
before still lands. A timed plan whose time comes outside is made when they open.

All that is asked follows from the configuration and an instant. `state.time` is one before `now`: whoever was away while they were closed has missed that, too.
"""

from collections.abc import Callable
from functools import lru_cache

from restow.contracts import commands as c
from restow.contracts.ids import LATEST, Millis, PlanId
from restow.contracts.times import rfc3339, stamped
from restow.domain import windows
from restow.domain.config import LONGEST, MigrationConfig, Period
from restow.domain.decider import Rejected
from restow.domain.duration import format_milliseconds
from restow.domain.state import ClusterState

MOST = 50
"""Windows, and blackouts."""
SHORTEST = 60_000
LOOKS = 1_000
"""Periods that are looked at, one after the other."""


def check(config: MigrationConfig) -> None:
    """Raises ValueError with path, value and what is allowed."""
    for name, periods in (("windows", config.windows), ("blackouts", config.blackouts)):
        if len(periods) > MOST:
            raise ValueError(f"{name}: {len(periods)} of them; allowed: up to {MOST}")
        for i, period in enumerate(periods):
            try:
                _check(period, config.time_zone)
            except ValueError as error:
                raise ValueError(f"{name}[{i}].{error}") from None


def _check(period: Period, zone: str) -> None:
    if bool(period.cron) == bool(period.start or period.end):
        raise ValueError("cron: allowed: either cron and duration, or start and end")
    if period.cron:
        windows.next_firing(period.cron, zone, Millis(0))
        if not SHORTEST <= period.duration <= LONGEST:
            raise ValueError(f"duration: {period.duration}; allowed: {SHORTEST} to {LONGEST} (milliseconds; 1m to {format_milliseconds(LONGEST)})")
        return
    if period.duration:
        raise ValueError("duration: set; allowed: with cron only")
    times = []
    for name, text in (("start", period.start), ("end", period.end)):
        try:
            times.append(stamped(text))
        except ValueError:
            raise ValueError(f"{name}: {text!r}; allowed: a time in RFC 3339 with its zone, such as 2026-12-20T00:00:00Z") from None
    if times[0] >= times[1]:
        raise ValueError(f"end: {period.end!r}; allowed: a time after start")


# -- of an instant -------------------------------------------------------------------------------------------------------


def is_open(config: MigrationConfig, now: Millis) -> bool:
    """Whether pods may move at this instant."""
    if not config.windows and not config.blackouts:
        return True
    return _is_open(config.windows, config.blackouts, config.time_zone, now)


def opens_at(config: MigrationConfig, now: Millis) -> Millis | None:
    """The first instant from `now` on at which they are open; None for never, as far as can be seen."""
    if not config.windows and not config.blackouts:
        return now
    return _first(config.windows, config.blackouts, config.time_zone, now, True)


def closes_at(config: MigrationConfig, now: Millis) -> Millis | None:
    """The first instant from `now` on at which they are closed; None for never, as far as can be seen."""
    if not config.windows and not config.blackouts:
        return None
    return _first(config.windows, config.blackouts, config.time_zone, now, False)


Periods = tuple[Period, ...]


class _Seen:
    """What was found last, which holds for every instant between: this is asked after every fold, and each look costs some firings of cron."""

    __slots__ = ("found", "since", "until")

    def __init__(self) -> None:
        self.since, self.until, self.found = Millis(1), Millis(0), None  # type: tuple[Millis, Millis, Millis | None]


@lru_cache(maxsize=64)
def _seen(_opened: Periods, _closed: Periods, _zone: str, _wanted: bool) -> _Seen:
    return _Seen()


def _first(opened: Periods, closed: Periods, zone: str, now: Millis, wanted: bool) -> Millis | None:
    seen = _seen(opened, closed, zone, wanted)
    if not seen.since <= now <= seen.until:
        seen.since = now
        seen.until, seen.found = _looked(opened, closed, zone, now, wanted)
    return seen.found


def _looked(opened: Periods, closed: Periods, zone: str, now: Millis, wanted: bool) -> tuple[Millis, Millis | None]:
    """Until when it was looked, and what was found. Whatever begins or ends within a period that decides alone is passed over: months may be closed in which
    thousands of windows would have opened."""
    at = now
    for _ in range(LOOKS):
        if _is_open(opened, closed, zone, at) is wanted:
            return at, at
        if wanted:
            later = max((_end(one, zone, at) for one in _covering(closed, zone, at)), default=None) or _next(opened, zone, at)
        else:
            ends = max((_end(one, zone, at) for one in _covering(opened, zone, at)), default=None)
            later = min((one for one in (_next(closed, zone, at), ends) if one is not None), default=None)
        if later is None or later >= LATEST:
            return Millis(LATEST), None
        at = later
    return at, None


def _is_open(opened: Periods, closed: Periods, zone: str, now: Millis) -> bool:
    return not _covering(closed, zone, now) and (not opened or bool(_covering(opened, zone, now)))


def _covering(periods: Periods, zone: str, now: Millis) -> list[Period]:
    return [one for one in periods if _covers(one, zone, now)]


def _covers(period: Period, zone: str, now: Millis) -> bool:
    """From its beginning on, and at its end no more."""
    if not period.cron:
        start, end = _fixed(period)
        return start <= now < end
    return windows.next_firing(period.cron, zone, Millis(now - period.duration)) <= now


def _end(period: Period, zone: str, now: Millis) -> Millis:
    """When one that covers `now` ends, if it does not fire again before."""
    if not period.cron:
        return _fixed(period)[1]
    return Millis(windows.last_firing(period.cron, zone, now) + period.duration)


def _next(periods: Periods, zone: str, now: Millis) -> Millis | None:
    """The first instant after `now` at which one of these begins."""
    begins = (windows.next_firing(one.cron, zone, now) if one.cron else _fixed(one)[0] for one in periods)
    return min((at for at in begins if at > now), default=None)


@lru_cache(maxsize=256)
def _fixed(period: Period) -> tuple[Millis, Millis]:
    return stamped(period.start), stamped(period.end)


# -- of a cluster --------------------------------------------------------------------------------------------------------


def said(config: MigrationConfig, now: Millis) -> str:
    """That no pod moves by the clock, why and until when: for people. Empty while they are open."""
    if is_open(config, now):
        return ""
    until = opens_at(config, now)
    then = f"until {rfc3339(until)}" if until is not None else "and no window opens again"
    covering = _covering(config.blackouts, config.time_zone, now)
    if not covering:
        return f"no window of the policy is open, {then}"
    reason = next((one.reason for one in covering if one.reason), "")
    return f"a blackout of the policy lasts, {then}{f': {reason}' * bool(reason)}"


def heed(state: ClusterState, now: Millis) -> None:
    """Raises Rejected outside."""
    if told := said(state.migration_config, now):
        raise Rejected(f"{told}; allowed: then, a dry run, or with other windows and blackouts in the policy")


def not_before(state: ClusterState, at: Millis) -> Millis | None:
    """When something that is due `at` may be done; None for never."""
    config = state.migration_config
    return opens_at(config, max(at, state.time)) if config.windows or config.blackouts else at


def stops(state: ClusterState, now: Millis, under_way: Callable[[ClusterState], list[PlanId]]) -> c.CancelPlan | None:
    """The first plan that is under way although they are closed, or were meanwhile."""
    at = deadline(state, under_way)
    if at is None or at > now:
        return None
    told = said(state.migration_config, now) or f"no pod was to move at {rfc3339(at)}"
    return c.CancelPlan(now, under_way(state)[0], f"Closed: {told}")


def deadline(state: ClusterState, under_way: Callable[[ClusterState], list[PlanId]]) -> Millis | None:
    """When something that is under way must end by the clock; None for never."""
    config = state.migration_config
    if not (config.windows or config.blackouts) or not (state.backlog or state.active or state.demand_slots) or not under_way(state):
        return None
    return closes_at(config, state.time)
