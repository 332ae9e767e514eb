"""The garbage collector: given what is there, when it is collected, then what is due, and how far the log may go."""

import pytest
from domain.build import NOW, configured, given, node, pod, replica_of, reservation, run, shape, then, when
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Move, Packing
from restow.domain import config, gc, session
from restow.domain import reservation as reservations
from restow.domain.decider import Rejected
from restow.domain.effects import DeleteReservation, DropPrefix

HOUR = 3_600_000
DAY = 24 * HOUR
decider = gc.decider
NONE = Packing(0, 0, 0, 0, 0, 0)
PLAN = e.Planned("x", "Defragmentation", (Move("x-1", "p", "default", "p", "a", "b"),), NONE, NONE)


def collect(state, after=0):
    return run(state, decider, c.Collect(NOW + after))


def accepted(*facts):
    state = given(node("a"), node("b"), shape("s"), *facts)
    run(state, reservations.decider, c.Review(NOW))
    run(state, session.decider, c.Schedule(NOW))
    return state


# -- expiry ----------------------------------------------------------------------------------------------------------


def test_it_expires_at_its_time_not_before_and_once():
    state = accepted(reservation("r", ("t", 1, "s"), ttl=HOUR))
    assert decider.deadline(state) == NOW + HOUR
    assert decider.due(state, NOW + HOUR - 1) is None
    assert collect(state, HOUR - 1) == []
    assert decider.due(state, NOW + HOUR) == c.Collect(NOW + HOUR)
    assert collect(state, HOUR) == [e.Expired("r")]
    assert collect(state, HOUR) == []


def test_one_without_an_end_never_expires():
    state = accepted(reservation("r", ("t", 1, "s"), ttl=0))
    assert decider.deadline(state) is None
    assert collect(state, 1000 * DAY) == []


def test_an_expiry_is_a_request_that_the_session_answers():
    state = accepted(reservation("r", ("t", 1, "s"), ttl=HOUR))
    collect(state, HOUR)
    assert state.table.reserved.any()
    assert run(state, session.decider, c.Schedule(NOW)) == [e.HoldReleased("r", "t-0", "Expired")]
    assert not state.table.reserved.any()


def test_what_has_succeeded_or_was_refused_does_not_expire():
    state = accepted(reservation("r", ("t", 1, "s"), ttl=HOUR), reservation("bad", ("t", 0, "s"), ttl=HOUR))
    then(state, pod("mine", labels={"app": "owner"}))
    run(state, session.decider, c.Schedule(NOW))
    assert collect(state, HOUR) == []


def test_the_earliest_created_expire_first_however_they_are_stored():
    state = accepted(*[reservation(name, ("t", 1, "s"), ttl=HOUR) for name in ("z", "a", "m")])
    assert collect(state, HOUR) == [e.Expired("z"), e.Expired("a"), e.Expired("m")]


# -- retention -------------------------------------------------------------------------------------------------------


def test_a_finished_one_is_deleted_after_its_retention():
    state = accepted(configured("gc", config.GcConfig(retention=DAY)), reservation("r", ("t", 0, "s")))
    assert decider.deadline(state) == NOW + DAY
    assert collect(state, DAY - 1) == []
    assert collect(state, DAY) == [e.Collected("r", "Retention")]
    assert decider.pending(state, None) == [DeleteReservation("r")]
    assert collect(state, 2 * DAY) == []


def test_the_deletion_is_owed_until_the_object_terminates_or_is_gone():
    state = accepted(reservation("r", ("t", 0, "s")))
    collect(state, DAY)
    effect = DeleteReservation("r")
    assert decider.owed(state, effect)
    then(state, reservation("r", ("t", 0, "s"), deleting=NOW))
    assert not decider.owed(state, effect)
    then(state, e.ReservationGone("r"))
    assert not decider.owed(state, effect)


def test_one_that_is_terminating_already_is_left_alone():
    state = accepted(reservation("r", ("t", 1, "s"), ttl=HOUR, deleting=NOW))
    assert collect(state, 100 * DAY) == []
    assert decider.deadline(state) is None


# -- holds of migrations ---------------------------------------------------------------------------------------------


def migrating(*more):
    return given(
        node("a"), node("b"), shape("s"), pod("p", node="a", owner=replica_of("rs")), PLAN, e.Holding("x-1", NOW + 10), *more
    )


HOLD = reservation("hold", ("hold", 1, "s"), migration="x-1", node="b", match_policy="Owner", ttl=0)


def test_the_hold_of_a_migration_under_way_stays_and_has_no_deadline():
    state = migrating(HOLD)
    run(state, reservations.decider, c.Review(NOW))
    assert state.reservations["hold"].expires == 0
    assert collect(state, 1000 * DAY) == []
    assert decider.deadline(state) is None


def test_the_hold_of_a_finished_migration_is_collected():
    state = migrating(HOLD, e.MigrationFailed("x-1", "HoldTimeout"))
    assert collect(state) == [e.Collected("hold", "Orphaned")]


def test_a_hold_that_appears_after_its_migration_has_failed_is_never_held():
    state = migrating(e.MigrationFailed("x-1", "HoldTimeout"), HOLD)
    assert run(state, reservations.decider, c.Review(NOW)) == [
        e.ReservationRefused("hold", 1, "MigrationOver", "migration x-1 is failed")
    ]
    assert run(state, session.decider, c.Schedule(NOW)) == []


def test_a_hold_that_was_accepted_while_its_migration_failed_is_never_held():
    state = migrating(HOLD, e.MigrationFailed("x-1", "HoldTimeout"), e.ReservationAccepted("hold", 1, 1))
    assert state.slot_queue
    assert run(state, session.decider, c.Schedule(NOW)) == []
    collect(state)
    assert not state.slot_queue


def test_our_object_of_a_log_that_is_gone_is_collected():
    state = given(shape("s"), HOLD)
    assert collect(state) == [e.Collected("hold", "Orphaned")]


def test_a_strangers_object_with_our_label_is_not_ours_to_delete():
    """Anybody can write a label; the name must follow from it, too."""
    state = accepted(replace(HOLD, name="mine"))
    assert collect(state) == []
    assert decider.deadline(state) is None  # its ttl is 0
    state = accepted(replace(reservation("hold", ("hold", 1, "s"), migration="x-1", ttl=HOUR), name="mine"))
    assert collect(state, HOUR) == [e.Expired("hold")]


def test_an_object_with_our_name_in_another_namespace_is_a_strangers():
    state = migrating(HOLD, replace(HOLD, reservation="else", namespace="other"))
    run(state, reservations.decider, c.Review(NOW))
    assert collect(state) == []
    then(state, e.MigrationFailed("x-1", "HoldTimeout"))
    assert collect(state) == [e.Collected("hold", "Orphaned")]


# -- snapshots, archive, truncation ----------------------------------------------------------------------------------


def covered(snapshot, archive, seq=1_000, keep=100):
    state = given(configured("gc", config.GcConfig(keep=keep)), e.SnapshotTaken(snapshot, 1, 1), e.Archived(1, archive, "f", "d"))
    state.seq = seq
    return state


@pytest.mark.parametrize(("snapshot", "archive"), [(500, 400), (400, 500)])
def test_truncation_needs_snapshot_and_archive(snapshot, archive):
    state = covered(snapshot, archive)
    assert when(state, decider, c.Truncate(NOW, 400)) == [e.Truncated(400)]
    with pytest.raises(Rejected, match="must both cover it; allowed: at most 400"):
        when(state, decider, c.Truncate(NOW, 401))


def test_a_part_of_the_log_always_stays_and_truncation_is_rare():
    assert decider.due(covered(1_000, 1_000), NOW) == c.Truncate(NOW, 900)
    state = then(covered(1_049, 1_049), e.Truncated(900))
    state.seq = 1_049
    assert decider.due(state, NOW) is None
    state = then(covered(1_050, 1_050), e.Truncated(900))
    state.seq = 1_050
    assert decider.due(state, NOW) == c.Truncate(NOW, 950)


def test_truncation_never_goes_back():
    state = then(covered(1_000, 1_000), e.Truncated(500))
    assert when(state, decider, c.Truncate(NOW, 500)) == []
    assert when(state, decider, c.Truncate(NOW, 300)) == []
    assert decider.pending(state, None) == [DropPrefix(500)]
    assert not decider.owed(state, DropPrefix(300))


def test_older_snapshots_and_archives_say_nothing_new():
    state = covered(500, 400)
    assert when(state, decider, c.ReportSnapshot(NOW, 500, 1, 9)) == []
    assert when(state, decider, c.ReportSnapshot(NOW, 501, 1, 9)) == [e.SnapshotTaken(501, 1, 9)]
    assert when(state, decider, c.ReportArchive(NOW, 1, 400, "f", "d")) == []
    assert when(state, decider, c.ReportArchive(NOW, 401, 600, "g", "d")) == [e.Archived(401, 600, "g", "d")]
