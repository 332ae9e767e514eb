"""What moves beside another scheduler have left in the API: what no move of this log needs goes, and of other logs only what has ended by its own word."""

import pytest
from domain.build import NOW, configured, given, reservation, shape, then
from domain.saga import OWNER
from domain.test_beside import evicted, holding, opened, stands, world

from restow.contracts import events as e
from restow.domain import config
from restow.domain.gated import LONGEST
from restow.domain.leftovers import GRACE, LONG, Leftover, Remove, removable

HOUR = 3_600_000


def log_of(state, log: str = "ours"):
    state.log = log
    return state


def left(kind="Pod", log="ours", created=NOW, **more) -> Leftover:
    return Leftover(kind, more.pop("name", "x"), more.pop("uid", "u"), log, created, **more)


def goes(state, *found: Leftover, after: int = 0) -> list[Remove]:
    return removable(state, found, NOW + after)


def test_a_placeholder_that_a_slot_has_is_the_sessions_however_old_it_is():
    state = holding(log_of(world()))
    stands(state)
    assert goes(state, left(uid="h"), after=LONG) == []


@pytest.mark.parametrize("canary", [True, False])
def test_a_pod_of_ours_that_is_no_slots_goes_when_who_made_it_has_had_his_turn(canary):
    state, pod = log_of(world()), left(canary=canary)
    assert goes(state, pod, after=GRACE - 1) == []
    assert goes(state, pod, after=GRACE) == [Remove(pod)]


def test_a_placeholder_of_another_log_goes_when_its_own_time_is_over():
    """A living installation counts one that its kubelet has ended as stolen."""
    state, pod = log_of(world()), left(log="another", until=NOW + HOUR)
    assert goes(state, pod, after=HOUR + GRACE - 1) == []
    assert goes(state, pod, after=HOUR + GRACE) == [Remove(pod)]
    timeless = left(log="another")
    assert goes(state, timeless, after=LONG) == []
    assert goes(state, timeless, after=LONG + GRACE) == [Remove(timeless)]


def test_a_placeholder_of_a_lost_log_for_a_reservation_that_never_ends_goes_when_that_is_deleted():
    """It lives for 68 years by its own word."""
    state, pod = log_of(given(shape("s"), reservation("r", ("t", 1, "s"), ttl=0))), left(log="another", reservation="r", until=NOW + 68 * 365 * LONG)
    then(state, e.Synced("pods", "1"))
    assert goes(state, pod, after=10 * LONG) == []
    then(state, e.ReservationGone("r"))
    assert goes(state, pod, after=GRACE - 1) == []
    assert goes(state, pod, after=GRACE) == [Remove(pod)]


def test_nobody_says_that_a_reservation_is_gone_before_reservations_were_listed():
    pod = left(log="another", reservation="r", until=NOW + LONG)
    assert goes(log_of(given()), pod, after=GRACE) == []


def test_entries_that_no_move_needs_are_taken_off_our_landing():
    """The process died between the entry and its report."""
    state = evicted(log_of(world()))
    landing = left("Landing", name="ours", entries={OWNER.uid: NOW + HOUR, "nobody": NOW + HOUR})
    assert goes(state, landing) == [Remove(landing, ("nobody",))]


def test_an_entry_that_a_move_is_about_to_have_stays():
    state = holding(log_of(world()))
    landing = left("Landing", name="ours", entries={OWNER.uid: NOW + HOUR})
    assert goes(state, landing) == []
    opened(state)
    assert goes(state, landing) == []


def test_another_logs_landing_goes_a_day_after_its_last_entry():
    state, landing = log_of(world()), left("Landing", log="another", entries={"u": NOW + HOUR})
    assert goes(state, landing, after=HOUR + LONG - 1) == []
    assert goes(state, landing, after=HOUR + LONG) == [Remove(landing)]


def test_entries_of_another_log_that_are_longer_than_any_installation_makes_them_go_at_once():
    """Whoever has stolen an account may gate controllers for ever, under any name."""
    state = log_of(world())
    landing = left("Landing", log="another", entries={"u": NOW + HOUR, "long": NOW + LONGEST + 1}, owners={"r": NOW + HOUR, "forever": NOW + LONGEST + 1})
    assert goes(state, landing) == [Remove(landing, ("long",), ("forever",))]
    assert goes(state, left("Landing", log="another", entries={"u": NOW + LONGEST}, owners={"r": NOW + LONGEST})) == []


def test_owners_of_reservations_are_listed_for_as_long_as_the_session_says():
    state = log_of(world())
    landing = left("Landing", name="ours", owners={"r": NOW + HOUR, "nobody": NOW + HOUR})
    assert goes(state, landing) == [Remove(landing, (), ("r", "nobody"))]
    state.owner_gates["r"] = NOW + HOUR
    assert goes(state, landing) == [Remove(landing, (), ("nobody",))]
    theirs = left("Landing", log="another", owners={"r": NOW + HOUR})
    assert goes(state, theirs, after=HOUR + LONG - 1) == []
    assert goes(state, theirs, after=HOUR + LONG) == [Remove(theirs)]


def test_a_class_stays_while_moves_may_want_it_or_a_pod_has_it():
    state, its = log_of(world()), left("PriorityClass", name="restow-hold-7")
    assert goes(state, its, after=LONG) == []
    then(state, configured("migration", config.MigrationConfig()))
    assert goes(state, its, left(log="another", class_name="restow-hold-7", until=NOW + LONG), after=GRACE) == []
    assert goes(state, its, after=GRACE) == [Remove(its)]


def test_another_logs_class_goes_after_a_day_for_it_is_made_again():
    state, its = log_of(world()), left("PriorityClass", log="another", name="restow-hold-7")
    assert goes(state, its, after=LONG - 1) == []
    assert goes(state, its, after=LONG) == [Remove(its)]


def test_where_nobody_is_beside_any_more_our_empty_landing_goes():
    state, landing = log_of(world()), left("Landing", name="ours")
    assert goes(state, landing, after=LONG) == []
    then(state, configured("migration", config.MigrationConfig()))
    assert goes(state, landing) == [Remove(landing)]
