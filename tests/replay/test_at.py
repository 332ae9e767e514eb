"""The state at a point of the log."""

import pytest
from replay.handmade import Handmade, migration, node, placements, pod, shape, time_at

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.times import millis, rfc3339
from restow.domain.fold import evolve_one
from restow.replay.diff import diff
from restow.replay.state_at import ReplayError, state_at
from restow.replay.times import Point, PointError, parse_point


def test_the_state_at_a_sequence_knows_nothing_later():
    state = state_at(placements().source(), seq=4)
    assert state.seq == 4
    assert state.placed["uid-web-3"].node == "b"
    assert "uid-web-4" not in state.pods
    assert state_at(placements().source(), seq=0).seq == 0


def test_the_state_at_a_time_ends_before_the_first_later_commit():
    log = placements()
    assert state_at(log.source(), time=time_at(4)).seq == 4
    assert state_at(log.source(), time=time_at(5) - 1).seq == 4
    assert state_at(log.source(), time=time_at(99)).seq == 7
    assert state_at(log.source()).seq == 7


def test_points_outside_the_log_are_refused():
    with pytest.raises(ReplayError, match="1 to 7; 8 is not"):
        state_at(placements().source(), seq=8)
    with pytest.raises(ReplayError, match="is before that"):
        state_at(placements().source(), time=time_at(0))


def test_a_hand_over_is_folded():
    state = state_at(migration().source())
    assert state.migrations["p1-1"].step == "landed"
    assert state.node_of("uid-web-new") == "b"


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("now", Point()),
        ("42", Point(seq=42)),
        ("-5m", Point(time=time_at(0) - 300_000)),
        ("2026-01-01T00:00:01Z", Point(time=time_at(1))),
        ("2026-01-01T01:00:01.000+01:00", Point(time=time_at(1))),
        ("2026-01-01T00:00:01", Point(time=time_at(1))),
    ],
)
def test_points_are_written_as_people_write_them(text, point):
    assert parse_point(text, time_at(0)) == point


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "5m", "-", "12:00", "²"])
def test_what_is_no_point_is_refused_with_what_is_allowed(text):
    with pytest.raises(PointError, match="allowed: a sequence"):
        parse_point(text, time_at(0))


def test_times_survive_a_round_trip():
    assert millis(rfc3339(time_at(7) + 123)) == time_at(7) + 123
    assert rfc3339(0) == ""


def test_equal_states_do_not_differ():
    assert diff(state_at(migration().source()), state_at(migration().source())) == []


def test_the_order_of_rows_columns_and_maps_does_not_count():
    first, second = Handmade(), Handmade()
    first.facts(node("a"), node("b"), shape(), pod("x"), pod("y"))
    second.facts(node("b"), node("a"), shape(), pod("x"), pod("y"))
    one, other = state_at(first.source()), state_at(second.source())
    other.history = one.history  # of the order that is meant here, the log's is none
    assert diff(one, other) == []


def test_single_and_vectorised_folds_are_compared_by_it():
    log = Handmade()
    log.facts(node("a", 90_000), shape(), *(pod(f"p{i}") for i in range(40)))
    events = [e.PodPlaced(f"uid-p{i}", "a") for i in range(40)]
    log.decide("session", c.Schedule(1), *events)
    vectorised = state_at(log.source())
    single = state_at(log.source(), seq=1)
    single.seq, single.time, single.last["session"], single.history = 2, time_at(2), 2, vectorised.history
    for event in events:
        evolve_one(single, event)
    assert diff(vectorised, single) == []


def test_a_draft_leaves_no_difference():
    a, b = state_at(placements().source()), state_at(placements().source())
    with a.draft():
        evolve_one(a, e.PodPlaced("uid-web-4", "b"))
        assert diff(a, b)
    assert diff(a, b) == []


def test_a_difference_names_its_place():
    a, b = state_at(placements().source()), state_at(placements().source())
    evolve_one(b, e.PodPlaced("uid-web-4", "b"))
    found = diff(a, b)
    assert "charges[uid-web-4]: Charge(node='b', shape='5ba9e0000000cafe', devices=(), releasing=False, queue='default', cores=()) in the second only" in found
    assert "table[b][used][cpu]: 2000 != 3000" in found
    assert diff(a, b, limit=2)[-1].startswith("… and")
