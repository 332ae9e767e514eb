"""Windows and blackouts: when pods may move by the clock."""

from datetime import UTC, datetime, timedelta

import pytest
from domain.build import NOW, configured, node, run, then
from domain.saga import decider, move, plan, world
from domain.test_pause import begun, only_who_was_evicted_lands, told
from domain.test_propose import approve
from hypothesis import given, settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.times import of, rfc3339
from restow.domain import config, migration, windows
from restow.domain.config import MigrationConfig, Period
from restow.domain.decider import Rejected
from restow.domain.migration import open_hours
from restow.domain.migration.warnings import warnings

MINUTE, HOUR = 60_000, 3_600_000
DEFRAGMENTATION = {"defragmentation": config.DefragmentationArgs()}
ASKED = [c.Defragment(NOW, "api", "y"), c.Deschedule(NOW, "api", "y"), c.MovePod(NOW, "y", "p1"), c.MoveGang(NOW, "y", "default/g")]


def at(text):
    return of(datetime.fromisoformat(text))


def lasting(start, end, reason=""):
    """From so many milliseconds after NOW until so many."""
    return Period(start=rfc3339(NOW + start), end=rfc3339(NOW + end), reason=reason)


FREEZE = {"blackouts": (lasting(-HOUR, HOUR, "change freeze"),)}
UNTIL_SOON = {"windows": (lasting(-HOUR, MINUTE),)}


# -- of an instant -------------------------------------------------------------------------------------------------------


NIGHTS = MigrationConfig(windows=(Period("0 22 * * 1-5", 8 * HOUR),))


@pytest.mark.parametrize(
    ("time", "is_open"),
    [
        ("2026-11-23T21:59:59Z", False),  # a Monday
        ("2026-11-23T22:00:00Z", True),
        ("2026-11-24T05:59:59.999Z", True),
        ("2026-11-24T06:00:00Z", False),
        ("2026-11-28T03:00:00Z", True),  # Friday's
        ("2026-11-28T23:00:00Z", False),  # there is none on Saturdays
    ],
)
def test_a_window_is_open_from_its_firing_until_before_its_end(time, is_open):
    assert open_hours.is_open(NIGHTS, at(time)) is is_open


def test_a_blackout_counts_more_than_a_window_and_without_windows_everything_is_one():
    freeze = Period(start="2026-11-24T00:00:00Z", end="2026-11-25T00:00:00Z", reason="freeze")
    conf = MigrationConfig(windows=NIGHTS.windows, blackouts=(freeze,))
    assert open_hours.is_open(conf, at("2026-11-23T23:00:00Z"))
    assert open_hours.closes_at(conf, at("2026-11-23T23:00:00Z")) == at("2026-11-24T00:00:00Z")
    assert open_hours.opens_at(conf, at("2026-11-24T00:00:00Z")) == at("2026-11-25T00:00:00Z")  # Tuesday's is still open
    assert open_hours.said(conf, at("2026-11-24T00:00:00Z")) == "a blackout of the policy lasts, until 2026-11-25T00:00:00.000Z: freeze"
    only = MigrationConfig(blackouts=(freeze,))
    assert open_hours.is_open(only, at("2026-11-23T12:00:00Z"))
    assert open_hours.closes_at(only, at("2026-11-26T00:00:00Z")) is None
    assert open_hours.closes_at(MigrationConfig(), NOW) is None
    assert open_hours.opens_at(MigrationConfig(), NOW) == NOW


def test_a_window_begins_by_the_wall_clock_and_lasts_by_a_stopwatch():
    """Berlin puts its clocks back at 01:00 UTC on 25 October 2026: the window that opened at 22:00 there ends an hour earlier by the wall."""
    conf = MigrationConfig(windows=(Period("0 22 * * *", 8 * HOUR),), time_zone="Europe/Berlin")
    assert open_hours.opens_at(conf, at("2026-10-24T12:00:00Z")) == at("2026-10-24T20:00:00Z")
    assert open_hours.closes_at(conf, at("2026-10-24T21:00:00Z")) == at("2026-10-25T04:00:00Z")
    assert open_hours.opens_at(conf, at("2026-10-25T12:00:00Z")) == at("2026-10-25T21:00:00Z")


def test_one_that_never_opens_again_is_said():
    conf = MigrationConfig(windows=(Period(start="2026-01-01T00:00:00Z", end="2026-01-02T00:00:00Z"),))
    assert open_hours.opens_at(conf, at("2026-11-24T00:00:00Z")) is None
    assert open_hours.said(conf, at("2026-11-24T00:00:00Z")) == "no window of the policy is open, and no window opens again"
    always = MigrationConfig(windows=NIGHTS.windows, blackouts=(Period("0 0 * * *", 24 * HOUR),))
    assert open_hours.opens_at(always, at("2026-11-24T00:00:00Z")) is None


def test_a_freeze_is_looked_through_however_many_windows_would_have_opened_in_it():
    """After a thousand of them it said that none opens again."""
    freeze = Period(start="2026-12-18T00:00:00Z", end="2027-01-04T00:00:00Z")
    conf = MigrationConfig(windows=(Period("*/10 * * * *", 5 * MINUTE),), blackouts=(freeze, Period("0 0 4 1 *", HOUR)))
    assert open_hours.opens_at(conf, at("2026-12-18T01:00:00Z")) == at("2027-01-04T01:00:00Z")
    always = MigrationConfig(windows=(Period("0 * * * *", HOUR),), blackouts=(freeze,))
    assert open_hours.closes_at(always, at("2026-11-24T00:00:00Z")) == at("2026-12-18T00:00:00Z")


MONDAY = datetime(2026, 11, 23, tzinfo=UTC)
MINUTES = 3 * 24 * 60
CRONS = st.builds("{} {} * * {}".format, st.integers(0, 59), st.one_of(st.just("*"), st.just("*/5"), st.integers(0, 23)), st.sampled_from(["*", "1-5", "2", "0,6"]))
PERIODS = st.one_of(
    st.builds(lambda cron, minutes: Period(cron, minutes * MINUTE), CRONS, st.integers(1, 1_600)),
    st.builds(lambda a, b: Period(start=rfc3339(of(MONDAY) + a * MINUTE), end=rfc3339(of(MONDAY) + (a + b) * MINUTE)), st.integers(-900, MINUTES), st.integers(1, 3_000)),
)


def _fires(period, moment):
    """The five fields, by themselves."""
    minute, hour, _, _, weekday = period.cron.split()
    days = {"*": range(7), "1-5": range(1, 6), "2": (2,), "0,6": (0, 6)}[weekday]
    hours = range(0, 24, int(hour.partition("/")[2] or 1)) if hour.startswith("*") else (int(hour),)
    return moment.minute == int(minute) and moment.hour in hours and moment.isoweekday() % 7 in days


def _minutes(periods):
    """Which of the minutes from MONDAY on any of them covers, by walking through all of them."""
    covered, before = [False] * MINUTES, 2_000
    for period in periods:
        until = 0
        for i in range(-before, MINUTES):
            moment = MONDAY + timedelta(minutes=i)
            if period.cron:
                until = max(until, i + period.duration // MINUTE) if _fires(period, moment) else until
                now = i < until
            else:
                now = datetime.fromisoformat(period.start) <= moment < datetime.fromisoformat(period.end)
            if i >= 0 and now:
                covered[i] = True
    return covered


@settings(max_examples=25, deadline=None)
@given(st.lists(PERIODS, max_size=2), st.lists(PERIODS, max_size=2), st.integers(0, MINUTES - 1))
def test_by_walking_through_every_minute_it_is_the_same(opened, closed, start):
    conf = MigrationConfig(windows=tuple(opened), blackouts=tuple(closed))
    inside, outside = _minutes(opened), _minutes(closed)
    truth = [(not opened or inside[i]) and not outside[i] for i in range(MINUTES)]
    begin = of(MONDAY)
    for i in range(start, min(start + 200, MINUTES)):
        assert open_hours.is_open(conf, begin + i * MINUTE) is truth[i], i
    for wanted, ask in ((True, open_hours.opens_at), (False, open_hours.closes_at)):
        first = next((i for i in range(start, MINUTES) if truth[i] is wanted), None)
        found = ask(conf, begin + start * MINUTE)
        if first is not None:
            assert found == begin + first * MINUTE
        else:
            assert found is None or found >= begin + MINUTES * MINUTE


@pytest.mark.parametrize("cron", ["* * * * *", "0 0 * * *"])
def test_a_window_that_never_closes_costs_nothing_after_every_fold(cron, monkeypatch):
    conf, asked = MigrationConfig(windows=(Period(cron, 25 * HOUR),)), []
    firing = windows.next_firing
    monkeypatch.setattr(windows, "next_firing", lambda *said: asked.append(said) or firing(*said))
    for i in range(2_000):
        assert open_hours.closes_at(conf, NOW + i * 1_000) is None
    assert len(asked) <= 5 * open_hours.LOOKS


@settings(max_examples=20, deadline=None)
@given(st.lists(PERIODS, min_size=1, max_size=2), st.lists(PERIODS, max_size=1), st.lists(st.integers(0, MINUTES * MINUTE), min_size=2, max_size=12))
def test_in_whatever_order_it_is_asked_it_says_the_same(opened, closed, times):
    conf, begin = MigrationConfig(windows=tuple(opened), blackouts=tuple(closed)), of(MONDAY)
    for ask in (open_hours.opens_at, open_hours.closes_at):
        once = [ask(conf, begin + time) for time in times]
        open_hours._seen.cache_clear()
        assert [ask(conf, begin + time) for time in reversed(times)] == once[::-1]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"windows": (Period(),)}, r"windows\[0\].cron: allowed: either"),
        ({"windows": (Period(start="2026-01-01T00:00:00Z"),)}, r"windows\[0\].end: ''; allowed: a time in RFC 3339"),
        ({"windows": (Period("0 22 * * *"),)}, r"windows\[0\].duration: 0; allowed: 60000 to"),
        ({"blackouts": (Period("0 25 * * *", HOUR),)}, r"blackouts\[0\].cron, hour '25'"),
        ({"windows": (Period("0 22 30 2 *", HOUR),)}, r"windows\[0\].cron: .* never fires"),
        ({"windows": (Period("0 22 * * *", HOUR, start="2026-01-01T00:00:00Z"),)}, "either cron and duration, or start and end"),
        ({"windows": (Period(start="2026-01-02T00:00:00Z", end="2026-01-01T00:00:00Z"),)}, "allowed: a time after start"),
        ({"windows": (Period(start="2026-01-02T00:00:00", end="2026-01-03T00:00:00Z"),)}, "with its zone"),
        ({"windows": (Period(start="2026-01-02T00:00:00Z", end="2026-01-03T00:00:00Z", duration=1),)}, "with cron only"),
        ({"windows": (Period("0 22 * * *", HOUR),) * 51}, "allowed: up to 50"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_is_allowed(wrong, said):
    with pytest.raises(ValueError, match=said):
        migration.check(MigrationConfig(**wrong))


# -- of a cluster --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ASKED, ids=lambda one: type(one).__name__)
def test_outside_no_plan_is_made_by_hand_and_a_dry_run_still_says_what_it_would_be(command):
    state = world(**DEFRAGMENTATION, **FREEZE)
    with pytest.raises(Rejected, match=r"a blackout of the policy lasts, until .*: change freeze; allowed: then, a dry run"):
        decider.decide(state, command)
    assert "blackout" not in told(state, command)


def test_a_timed_plan_waits_until_they_open():
    state = world(**DEFRAGMENTATION, interval=60_000, **FREEZE)
    assert decider.deadline(state) == NOW + HOUR
    assert decider.due(state, NOW + HOUR - 1) is None
    assert decider.due(state, NOW + HOUR) == c.Defragment(NOW + HOUR, "interval", migration.decider.due(state, NOW + HOUR).plan)


def test_a_time_that_came_while_nobody_was_there_comes_again_after_them():
    """The interval was over before the blackout; who decides is back within it, and decides nothing."""
    state = world(**DEFRAGMENTATION, interval=60_000, blackouts=(lasting(2 * MINUTE, HOUR),))
    assert decider.deadline(state) == NOW + MINUTE
    late = decider.due(state, NOW + 5 * MINUTE)
    assert isinstance(late, c.Defragment)
    assert list(decider.decide(state, late)) == []
    then(state, node("late"), time=NOW + 5 * MINUTE)
    assert decider.deadline(state) == NOW + HOUR


def test_a_plan_under_way_ends_when_they_close_and_who_was_evicted_still_lands():
    state = begun(**UNTIL_SOON)
    assert decider.deadline(state) <= NOW + MINUTE
    command = decider.due(state, NOW + MINUTE)
    assert (command.plan, command.reason) == ("x", "Closed: no window of the policy is open, and no window opens again")
    assert run(state, decider, command) == [e.PlanCancelled("x", command.reason)]
    only_who_was_evicted_lands(state)


def test_who_was_away_while_they_were_closed_does_not_go_on_with_the_plan_of_before():
    state = then(world(windows=(lasting(-HOUR, MINUTE), lasting(HOUR, 2 * HOUR))), plan("x", move("x-1", "p1")))
    command = decider.due(state, NOW + HOUR + 1)
    assert (command.plan, command.reason) == ("x", f"Closed: no pod was to move at {rfc3339(NOW + MINUTE)}")


def test_a_plan_that_waits_for_a_person_can_be_approved_while_they_are_open():
    state = then(world(mode="propose", **FREEZE), plan("x", move("x-1", "p1"), mode="propose"))
    with pytest.raises(Rejected, match="change freeze"):
        approve(state)
    assert decider.due(state, NOW) is None
    then(state, configured("migration", MigrationConfig(mode="propose")))
    assert approve(state) == [e.PlanApproved("x", "ada")]


def test_everybody_is_told():
    assert warnings(world(**FREEZE)) == [f"a blackout of the policy lasts, until {rfc3339(NOW + HOUR)}: change freeze"]
    assert warnings(world(**UNTIL_SOON)) == []
