"""The windows of a cron expression (RULES 001-5)."""

from datetime import UTC, datetime, timedelta

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from restow.domain.session.plugins.reserve import windows
from restow.domain.session.plugins.reserve.windows import MAX_DAYS, active, next_change, shape_wrong, upcoming
from restow.domain.windows import next_firing, parse, zone

HOUR = 3_600_000
BERLIN = "Europe/Berlin"


def at(when: str, tz: str = "UTC") -> int:
    moment = datetime.fromisoformat(when)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=zone(tz))).timestamp()) * 1000


def shown(window, tz: str = "UTC") -> tuple[str, ...]:
    def one(millis: int) -> str:
        return datetime.fromtimestamp(millis / 1000, UTC).astimezone(zone(tz)).strftime("%d %H:%M")

    return tuple(one(moment) for moment in (window.opens, window.start, window.end))


@pytest.mark.parametrize(
    ("cron", "lead", "now", "expected"),
    [
        ("0 3 - 4 * * *", 2, "2025-06-10T00:59:59", []),
        ("0 3 - 4 * * *", 2, "2025-06-10T01:00:00", [("10 01:00", "10 03:00", "10 04:00")]),
        ("0 3 - 4 * * *", 2, "2025-06-10T03:59:59", [("10 01:00", "10 03:00", "10 04:00")]),
        ("0 3 - 4 * * *", 2, "2025-06-10T04:00:00", []),
        ("0,30 3-4 * * *", 0, "2025-06-10T04:29:00", [("10 03:00", "10 03:00", "10 04:30")]),
        ("*/5 3 * * *", 0, "2025-06-10T03:54:00", [("10 03:00", "10 03:00", "10 03:55")]),
        ("0 22-23,0-2 * * *", 0, "2025-06-10T00:30:00", [("09 22:00", "09 22:00", "10 02:00")]),
        ("0 22-23,0-2 * * *", 1, "2025-06-10T21:30:00", [("10 21:00", "10 22:00", "11 02:00")]),
        ("30 23,0 * * *", 0, "2025-06-10T00:00:00", [("09 23:30", "09 23:30", "10 00:30")]),
        ("0 1-2,5-6 * * *", 0, "2025-06-10T05:00:00", [("10 05:00", "10 05:00", "10 06:00")]),
        ("0 1-2,5-6 * * *", 4, "2025-06-10T01:30:00", [("09 21:00", "10 01:00", "10 02:00"), ("10 01:00", "10 05:00", "10 06:00")]),
        ("0 * * * 1-5", 0, "2025-06-12T12:00:00", [("09 00:00", "09 00:00", "13 23:00")]),
        ("0 * * 1 *", 0, "2025-01-31T22:59:00", [("01 00:00", "01 00:00", "31 23:00")]),
        ("0 3-4 * * 0", 0, "2025-06-15T03:30:00", [("15 03:00", "15 03:00", "15 04:00")]),
        ("0 3-4 * * 0", 24, "2025-06-14T03:30:00", [("14 03:00", "15 03:00", "15 04:00")]),
        ("0 3-4 29 2 *", 0, "2024-02-29T03:00:00", [("29 03:00", "29 03:00", "29 04:00")]),
        ("0 3-4 29 2 *", 0, "2025-02-28T03:00:00", []),
    ],
)
def test_what_is_kept_free_at_an_instant(cron, lead, now, expected):
    assert [shown(window) for window in active(cron, "UTC", lead * HOUR, at(now))] == expected


@pytest.mark.parametrize("days", range(8))
@pytest.mark.parametrize("lead", [0, 1, 7])
def test_the_longest_window_is_known_whole_days_before_it_opens(days, lead):
    now = datetime(2025, 1, 1, tzinfo=UTC) - timedelta(days=days + lead, minutes=1)
    assert shown(upcoming("0 * * 1 *", "UTC", lead * 24 * HOUR, round(now.timestamp()) * 1000))[1:] == ("01 00:00", "31 23:00")


@pytest.mark.parametrize(
    ("cron", "day", "expected", "hours"),
    [
        # 30 March 2025: the clock goes from 2 to 3; 26 October: from 3 back to 2.
        ("0 1-3 * * *", "2025-03-30", ("01:00", "03:00"), 1),
        ("0 1-3 * * *", "2025-10-26", ("01:00", "03:00"), 3),
        ("0 3-4 * * *", "2025-03-30", ("03:00", "04:00"), 1),
        ("0 0-1,3-4 * * *", "2025-03-30", ("00:00", "01:00"), 1),
        ("0 2-3 * * *", "2025-10-26", ("02:00", "03:00"), 2),
        ("0 2-4 * * *", "2025-03-30", ("03:00", "04:00"), 1),
        ("*/30 2-3 * * *", "2025-03-30", ("03:00", "03:30"), 0.5),
        ("0 * * * 0", "2025-03-30", ("00:00", "23:00"), 22),
        ("0 * * * 0", "2025-10-26", ("00:00", "23:00"), 24),
    ],
)
def test_windows_go_by_wall_clock_when_the_clock_changes(cron, day, expected, hours):
    first = upcoming(cron, BERLIN, 0, at(day, BERLIN) - 1)
    _, start, end = shown(first, BERLIN)
    assert (start[3:], end[3:]) == expected
    assert start.startswith(day[-2:])
    assert first.end - first.start == hours * HOUR


def test_a_window_that_the_clock_skips_does_not_come_that_day():
    now = at("2025-03-29T12:00", BERLIN)
    assert shown(upcoming("0 2-3 * * *", BERLIN, 0, now), BERLIN)[1] == "31 02:00"
    assert not active("0 2-3 * * *", BERLIN, 0, at("2025-03-30T03:00", BERLIN))


def test_the_seeds_example_starts_two_hours_ago():
    window = upcoming("0 3 - 4 * * *", "UTC", 2 * HOUR, at("2025-06-10T00:00:00"))
    assert shown(window) == ("10 01:00", "10 03:00", "10 04:00")
    now, changes = at("2025-06-10T00:00:00"), []
    for _ in range(4):
        now = next_change("0 3 - 4 * * *", "UTC", 2 * HOUR, now)
        changes.append(now)
    assert changes == [at(f"2025-06-{day}T{hour}:00:00") for day, hour in (("10", "01"), ("10", "03"), ("10", "04"), ("11", "01"))]


def test_the_next_change_may_be_years_away():
    assert next_change("0 3-4 29 2 *", "UTC", HOUR, at("2025-01-01T00:00:00")) == at("2028-02-29T02:00:00")
    window = upcoming("0 * 1-20 * *", "UTC", 0, at("2025-06-05T00:00:00"))
    assert shown(window) == ("01 00:00", "01 00:00", "20 23:00")


@pytest.mark.parametrize("cron", ["0 3-4 * * *", "0 0,23 * * *", "0 * * * 1-5", "0 * * 1 *", "0,30 0 * * *", "59 23 * * *"])
def test_the_shape_of_windows(cron):
    assert (shape_wrong(cron) == "") == (cron != "59 23 * * *")


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("0 3 * * *", "no other within an hour"),
        ("0 3,5 * * *", "no other within an hour"),
        ("0 0,2-3 * * *", "no other within an hour"),
        ("0 0,23 * * 1-5", "no other within an hour"),
        ("0 23 * * *", "no other within an hour"),
        ("0 0,1,23 * * 1", "no other within an hour"),
        ("0 0,22,23 * * 1", "no other within an hour"),
        ("0 * * * *", "more than 31 days"),
        ("*/20 * * * *", "more than 31 days"),
        ("0 * * 1-2 *", "more than 31 days"),
        ("0 3-4 30 2 *", "never fires"),
        ("", "0 fields"),
        ("@daily", "1 fields"),
        ("0 3-4 * * * *", "6 fields"),
        ("60 3-4 * * *", "allowed: 0 to 59"),
        ("0 3-4 0 * *", "allowed: 1 to 31"),
        ("0 3-4 * 13 *", "allowed: 1 to 12"),
        ("0 3-4 * * 8", "allowed: 0 to 7"),
        ("0 4-3 * * *", "a range that goes up"),
        ("0 3-4/0 * * *", "a step of 1 or more"),
        ("0 -4 * * *", "4 fields"),
        ("x y z a b", "allowed: 0 to 59"),
    ],
)
def test_what_makes_no_window_is_refused(cron, why):
    assert why in shape_wrong(cron)


CRONS = st.builds(
    lambda minutes, hours, days: f"{','.join(map(str, sorted(minutes)))} {','.join(map(str, sorted(hours)))} * * {days}",
    st.sets(st.sampled_from([0, 15, 30, 45, 59]), min_size=1),
    st.sets(st.integers(0, 23), min_size=1, max_size=23),
    st.sampled_from(["*", "1-5", "0", "6,0", "3"]),
)


def slow_windows(cron: str, first: int, last: int) -> list[tuple[int, int]] | None:
    """Firing after firing; None where one stands alone or a window is too long. Only for zones without changes of clock."""
    runs, now = [], first
    while (now := next_firing(cron, "UTC", now)) <= last:
        if runs and now - runs[-1][-1] <= HOUR:
            runs[-1].append(now)
        else:
            runs.append([now])
    inner = runs[1:-1]
    if any(len(run) == 1 for run in inner) or any(run[-1] - run[0] > MAX_DAYS * 24 * HOUR for run in runs):
        return None
    return [(run[0], run[-1]) for run in inner]


@settings(max_examples=examples(150))
@given(CRONS, st.integers(0, 72))
def test_windows_are_runs_of_firings(cron, lead_hours):
    """RULES 001-5: against going from firing to firing, for three weeks."""
    first, lead = at("2025-06-02T00:00:00"), lead_hours * HOUR
    slow = slow_windows(cron, first, first + 40 * 24 * HOUR)
    assert (slow is not None) == (shape_wrong(cron) == "")
    if slow is None:
        return
    first += 9 * 24 * HOUR
    for now in range(first, first + 8 * 24 * HOUR, 13 * HOUR // 7):
        expected = [(start, end) for start, end in slow if start - lead <= now < end]
        got = active(cron, "UTC", lead, now)
        assert [(window.start, window.end) for window in got] == expected
        assert all(window.opens == window.start - lead for window in got)
        edges = [edge for start, end in slow for edge in (start - lead, start, end) if edge > now]
        assert next_change(cron, "UTC", lead, now) == min(edges)


@settings(max_examples=examples(60))
@given(CRONS, st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Pacific/Apia"]), st.integers(0, 364))
def test_at_every_instant_of_a_window_the_wall_clock_is_between_its_ends(cron, tz, day):
    if shape_wrong(cron):
        return
    where = zone(tz)
    now = at("2025-01-01T00:00:00") + day * 24 * HOUR
    for minute in range(0, 48 * 60, 17):
        for window in active(cron, tz, 0, now + minute * 60_000):
            wall, start, end = (
                datetime.fromtimestamp(moment / 1000, UTC).astimezone(where).replace(tzinfo=None)
                for moment in (now + minute * 60_000, window.start, window.end)
            )
            slack = timedelta(hours=1)
            assert start - slack <= wall <= end + slack
            assert parse(cron).on(start.date()) or parse(cron).on((start - timedelta(days=1)).date())
    assert windows._near.cache_info().currsize <= 1024
