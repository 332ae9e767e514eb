"""Cron by wall clock and intervals (RULES 001-5)."""

from datetime import UTC, datetime, timedelta

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from restow.domain.windows import WindowError, last_firing, next_firing, next_interval, parse, zone

NEW_YORK = "America/New_York"


def after(cron: str, when: str, tz: str = "UTC") -> str:
    millis = int(datetime.fromisoformat(when).timestamp() * 1000)
    return datetime.fromtimestamp(next_firing(cron, tz, millis) / 1000, zone(tz)).isoformat()


def test_a_firing_is_strictly_after_the_given_time():
    assert after("0 3 * * *", "2025-01-01T03:00:00+00:00") == "2025-01-02T03:00:00+00:00"
    assert after("0 3 * * *", "2025-01-01T02:59:59.999+00:00") == "2025-01-01T03:00:00+00:00"


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 59), st.sampled_from(["*", "2", "*/5", "0,23"]), st.sampled_from(["*", "31", "1-3"]), st.sampled_from(["*", "0", "1-5"]), st.sampled_from(["UTC", NEW_YORK]), st.integers(0, 500_000))
def test_the_last_firing_is_the_one_after_which_the_next_is_later(minute, hour, day, weekday, tz, start):
    cron, now = f"{minute} {hour} {day} * {weekday}", 1_700_000_000_000 + start * 60_000
    last = last_firing(cron, tz, now)
    assert last <= now < next_firing(cron, tz, last)


def test_blanks_around_dash_and_comma_are_accepted():
    assert parse("0 3 - 4 * * *") == parse("0 3-4 * * *")
    assert parse("0 , 30 3 * * mon ,fri") == parse("0,30 3 * * mon,fri")


def test_lists_ranges_steps_and_names():
    assert parse("*/20 1-10/4,23 * jan-mar,DEC *").minutes == {0, 20, 40}
    assert parse("*/20 1-10/4,23 * jan-mar,DEC *").hours == {1, 5, 9, 23}
    assert parse("*/20 1-10/4,23 * jan-mar,DEC *").months == {1, 2, 3, 12}
    assert parse("50/4 * * * *").minutes == {50, 54, 58}


def test_weekday_0_and_7_are_sunday():
    assert parse("0 0 * * 0").weekdays == parse("0 0 * * 7").weekdays == parse("0 0 * * sun").weekdays == {0}
    assert parse("0 0 * * fri-sun").weekdays == parse("0 0 * * 5-7").weekdays == {5, 6, 0}
    assert after("0 0 * * 7", "2025-06-14T12:00:00+00:00") == "2025-06-15T00:00:00+00:00"


def test_with_both_day_fields_either_one_suffices():
    assert after("0 0 13 * 5", "2025-06-10T00:00:00+00:00") == "2025-06-13T00:00:00+00:00"
    assert after("0 0 14 * 5", "2025-06-13T00:00:00+00:00") == "2025-06-14T00:00:00+00:00"
    assert after("0 0 * * 5", "2025-06-13T00:00:00+00:00") == "2025-06-20T00:00:00+00:00"


def test_the_wall_clock_of_the_time_zone_counts():
    assert after("0 3 * * *", "2025-07-01T00:00:00+00:00", "Europe/Berlin") == "2025-07-01T03:00:00+02:00"
    assert after("0 3 * * *", "2025-12-01T00:00:00+00:00", "Europe/Berlin") == "2025-12-01T03:00:00+01:00"


def test_a_named_time_that_the_clock_skips_fires_as_much_later():
    assert after("30 2 * * *", "2025-03-09T00:00:00-05:00", NEW_YORK) == "2025-03-09T03:30:00-04:00"
    assert after("30 2 * * *", "2025-03-09T03:30:00-04:00", NEW_YORK) == "2025-03-10T02:30:00-04:00"


def test_a_named_time_that_comes_twice_fires_once():
    assert after("30 1 * * *", "2025-11-02T00:00:00-04:00", NEW_YORK) == "2025-11-02T01:30:00-04:00"
    assert after("30 1 * * *", "2025-11-02T01:30:00-04:00", NEW_YORK) == "2025-11-03T01:30:00-05:00"


def test_with_open_hours_every_real_hour_counts():
    assert after("30 * * * *", "2025-11-02T01:30:00-04:00", NEW_YORK) == "2025-11-02T01:30:00-05:00"
    assert after("30 * * * *", "2025-03-09T01:30:00-05:00", NEW_YORK) == "2025-03-09T03:30:00-04:00"


def test_29_february_is_found_across_a_century():
    assert after("0 0 29 2 *", "2096-03-01T00:00:00+00:00") == "2104-02-29T00:00:00+00:00"


@pytest.mark.parametrize(
    ("cron", "field", "value", "allowed"),
    [
        ("* * * *", "4 fields", "'* * * *'", "5 (minute"),
        ("60 * * * *", "minute", "'60'", "0 to 59"),
        ("* 24 * * *", "hour", "'24'", "0 to 23"),
        ("* * 0 * *", "day of month", "'0'", "1 to 31"),
        ("* * * foo *", "month", "'foo'", "1 to 12 or jan"),
        ("* * * * 8", "day of week", "'8'", "0 to 7 or sun"),
        ("*/0 * * * *", "minute", "step '0'", "1 or more"),
        ("5-1 * * * *", "minute", "'5-1'", "goes up"),
        ("1,,2 * * * *", "minute", "''", "0 to 59"),
        ("0 0 31 2,4 *", "never fires", "31 2,4", "a day of month"),
        ("@daily", "1 fields", "@daily", "5 (minute"),
        pytest.param(f"{'9' * 5000} * * * *", "minute", "'9999", "0 to 59", id="5000 digits"),
        pytest.param(f"*/{'9' * 5000} * * * *", "minute", "step '9999", "1 or more", id="a step of 5000 digits"),
    ],
)
def test_what_cannot_be_read_is_refused_with_field_value_and_what_is_allowed(cron, field, value, allowed):
    with pytest.raises(WindowError) as refused:
        parse(cron)
    said = str(refused.value)
    assert field in said
    assert value in said
    assert f"allowed: {allowed}" in said or allowed in said.partition("allowed: ")[2]


def test_an_unknown_time_zone_is_refused():
    with pytest.raises(WindowError, match=r"timeZone: 'Mars/Base' is unknown; allowed: an IANA name"):
        zone("Mars/Base")


def test_an_interval_counts_from_the_last_time_and_0_or_less_is_never():
    assert next_interval(60_000, 5) == 60_005
    assert next_interval(0, 5) is None
    assert next_interval(-60_000, 5) is None


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 59),
    st.integers(0, 23),
    st.one_of(st.none(), st.integers(1, 28)),
    st.one_of(st.none(), st.integers(0, 6)),
    st.datetimes(datetime(2024, 1, 1), datetime(2026, 1, 1)),
)
def test_it_is_the_first_minute_that_matches(minute, hour, day, weekday, start):
    cron = f"{minute} {hour} {'*' if day is None else day} * {'*' if weekday is None else weekday}"
    start = start.replace(tzinfo=UTC)

    def on(t: datetime) -> bool:
        days = []
        if day is not None:
            days.append(t.day == day)
        if weekday is not None:
            days.append(t.isoweekday() % 7 == weekday)
        return (t.hour, t.minute) == (hour, minute) and (any(days) if days else True)

    expected = start.replace(second=0, microsecond=0, hour=hour, minute=minute) - timedelta(days=1)
    while expected <= start or not on(expected):
        expected += timedelta(days=1)
    assert after(cron, start.isoformat()) == expected.isoformat()
