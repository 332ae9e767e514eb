"""The garbage collector: given what is there, when it is collected, then what is due, and how far the log may go."""

import pytest
from domain.build import NOW, configured, given, node, pod, replica_of, reservation, run, shape, then, when
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision, encode
from restow.contracts.envelope import Envelope
from restow.contracts.values import Move, Packing
from restow.domain import config, gc, session
from restow.domain import reservation as reservations
from restow.domain.decider import Rejected
from restow.domain.effects import DeleteReservation, DropPrefix
from restow.domain.fold import fold_record
from restow.domain.other_schedulers import LOG
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState

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


def test_the_hold_of_a_landed_migration_is_collected_although_nothing_happens_to_the_object_itself():
    state = migrating(HOLD)
    assert decider.deadline(state) is None
    then(state, e.Held("x-1"), e.Evicting("x-1", NOW + 10), e.Evicted("x-1", NOW + 10), e.Landed("x-1", "q", "b"))
    assert decider.due(state, NOW) == c.Collect(NOW)
    assert collect(state) == [e.Collected("hold", "Orphaned")]


def test_the_hold_that_a_move_gave_up_when_it_turned_back_is_collected_once_the_move_is_over():
    """The simulator's seed 321: it was noticed only when something else happened to it, and a decision made again was another."""
    state = migrating(HOLD)
    then(state, e.Held("x-1"), e.Evicting("x-1", NOW + 10), e.Evicted("x-1", NOW + 10), e.TurningBack("x-1", NOW + 10, "HoldLost", ""))
    assert collect(state) == [], "its migration is under way"
    then(state, e.MigrationFailed("x-1", "HoldLost"))
    again = load(dump(state))
    assert collect(state) == collect(again) == [e.Collected("hold", "Orphaned")]


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


def of_log(log: str, fact: e.ReservationObserved = HOLD) -> e.ReservationObserved:
    return replace(fact, labels={LOG: log})


def here(*more) -> ClusterState:
    """The fold of log `mine`, as every reader makes it."""
    state = ClusterState()
    envelope = Envelope(id="1", source="x", time="2023-11-14T22:13:20.000Z", read=0, logic="gc@2", log="mine")
    fold_record(state, 1, "gc", envelope, encode([Decision(c.Lead("x"), (e.GcLed(1, "x"),))]), "mine")
    assert state.log == "mine"
    return then(state, shape("s"), *more)


def test_our_object_that_the_log_has_forgotten_is_collected():
    state = here(of_log("mine"))
    assert collect(state) == [e.Collected("hold", "Orphaned")]


@pytest.mark.parametrize("fact", [of_log("theirs"), HOLD], ids=["another installation's", "an older release's"])
def test_what_another_installation_on_the_same_api_server_has_made_is_left_alone(fact):
    """Nor is what an older release has left behind, that did not say of which log it was: nobody can tell."""
    state = here(fact)
    run(state, reservations.decider, c.Review(NOW))
    run(state, session.decider, c.Schedule(NOW))
    assert collect(state, 1000 * DAY) == []
    assert decider.deadline(state) is None
    assert list(decider.pending(state, None)) == []
    other = here(replace(fact, spec=replace(fact.spec, ttl=HOUR)))
    run(other, reservations.decider, c.Review(NOW))
    assert collect(other, HOUR) == ([] if fact.labels else [e.Expired("hold")]), "unlabelled ones live by the rules for users'"


def test_nothing_is_held_and_no_status_is_written_for_another_installations_hold():
    state = here(node("b"), of_log("theirs"))
    assert run(state, reservations.decider, c.Review(NOW)) == []
    assert run(state, session.decider, c.Schedule(NOW)) == []
    assert list(reservations.decider.pending(state, None)) == []
    assert state.held_on == {}


def test_another_installations_object_of_the_same_name_is_not_our_migrations_hold():
    state = then(here(), node("a"), node("b"), pod("p", node="a", owner=replica_of("rs")), PLAN, e.Holding("x-1", NOW + 10))
    then(state, of_log("theirs"))
    assert state.migrations["x-1"].reservation == ""
    then(state, replace(of_log("mine"), reservation="ours"))
    assert state.migrations["x-1"].reservation == "ours"
    then(state, e.MigrationFailed("x-1", "HoldTimeout"))
    assert collect(state) == [e.Collected("ours", "Orphaned")]


def test_the_hold_of_a_known_migration_that_an_older_release_has_made_is_collected_with_it():
    state = then(here(), node("a"), node("b"), pod("p", node="a", owner=replica_of("rs")), PLAN, e.Holding("x-1", NOW + 10), HOLD)
    assert state.migrations["x-1"].reservation == "hold"
    then(state, e.MigrationFailed("x-1", "HoldTimeout"))
    assert collect(state) == [e.Collected("hold", "Orphaned")]


def test_an_object_that_came_late_for_a_migration_that_had_another_is_collected():
    """A paused leader creates it once more after a user has deleted it."""
    state = then(here(), node("a"), node("b"), pod("p", node="a", owner=replica_of("rs")), PLAN, e.Holding("x-1", NOW + 10))
    then(state, of_log("mine"), e.ReservationGone(of_log("mine").reservation), e.MigrationFailed("x-1", "HoldLost"))
    then(state, replace(of_log("mine"), reservation="late"))
    assert collect(state) == [e.Collected("late", "Orphaned")]


def test_a_snapshot_knows_its_log():
    state = here(of_log("mine"))
    assert load(dump(state)).log == "mine"
    assert collect(load(dump(state))) == collect(state)


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


# -- the period ------------------------------------------------------------------------------------------------------

HOURLY = configured("gc", config.GcConfig(retention=DAY, period=HOUR))
FULL_HOUR = NOW - NOW % HOUR + HOUR


def test_objects_are_deleted_at_the_next_full_period_after_their_retention():
    state = accepted(HOURLY, reservation("r", ("t", 0, "s")))
    due = FULL_HOUR + DAY
    assert decider.deadline(state) == due
    assert decider.due(state, due - 1) is None
    assert collect(state, due - 1 - NOW) == []
    assert collect(state, due - NOW) == [e.Collected("r", "Retention")]


def test_what_ends_in_one_period_is_deleted_at_once():
    state = accepted(HOURLY, *[reservation(name, ("t", 0, "s")) for name in "ab"])
    then(state, reservation("c", ("t", 0, "s")), e.ReservationRefused("c", 1, "InvalidSpec", "no"), time=FULL_HOUR - 1)
    assert collect(state, FULL_HOUR + DAY - NOW) == [e.Collected(name, "Retention") for name in "abc"]


def test_one_whose_retention_ends_with_a_period_does_not_wait_for_another():
    state = given(shape("s"), HOURLY, reservation("r", ("t", 0, "s")), time=FULL_HOUR)
    then(state, e.ReservationRefused("r", 1, "InvalidSpec", "no"), time=FULL_HOUR)
    assert decider.deadline(state) == FULL_HOUR + DAY


def test_an_expiry_is_exact_whatever_the_period():
    state = accepted(HOURLY, reservation("r", ("t", 1, "s"), ttl=90_001))
    assert decider.deadline(state) == NOW + 90_001
    assert collect(state, 90_000) == []
    assert collect(state, 90_001) == [e.Expired("r")]
    run(state, session.decider, c.Schedule(NOW + 90_002))
    assert not state.table.reserved.any()


def test_orphans_wait_for_the_period_too_and_hold_nothing_meanwhile():
    state = migrating(HOURLY, HOLD, e.MigrationFailed("x-1", "HoldTimeout"))
    assert decider.deadline(state) == FULL_HOUR
    assert collect(state, FULL_HOUR - NOW - 1) == []
    assert not state.table.reserved.any()
    assert collect(state, FULL_HOUR - NOW) == [e.Collected("hold", "Orphaned")]


def test_another_retention_or_period_counts_from_the_moment_that_it_is_in_the_log():
    state = accepted(reservation("r", ("t", 0, "s")))
    assert decider.deadline(state) == NOW + DAY
    then(state, configured("gc", config.GcConfig(retention=60_000)))
    assert decider.deadline(state) == NOW + 60_000
    then(state, configured("gc", config.GcConfig(retention=60_000, period=HOUR)))
    assert decider.deadline(state) == FULL_HOUR


# -- what is due follows what changes --------------------------------------------------------------------------------


def test_an_update_of_the_ttl_moves_the_expiry():
    state = accepted(reservation("r", ("t", 1, "s"), ttl=HOUR))
    assert decider.deadline(state) == NOW + HOUR
    for generation, ttl in enumerate((3 * HOUR, HOUR // 2, 0, 2 * HOUR), 2):
        then(state, reservation("r", ("t", 1, "s"), ttl=ttl, generation=generation))
        run(state, reservations.decider, c.Review(NOW))
        assert decider.deadline(state) == (NOW + ttl if ttl else None)
    assert collect(state, 2 * HOUR) == [e.Expired("r")]


def test_at_most_a_thousand_are_decided_at_once_and_the_rest_is_due_at_once():
    facts = [reservation(f"r{i}", ("t", 1, "s")) for i in range(1_001)]
    refusals = [e.ReservationRefused(f"r{i}", 1, "InvalidSpec", "no") for i in range(1_001)]
    state = given(shape("s"), facts, refusals)
    assert len(collect(state, DAY)) == 1_000
    assert decider.due(state, NOW + DAY) == c.Collect(NOW + DAY)
    assert collect(state, DAY) == [e.Collected("r1000", "Retention")]
    assert decider.due(state, NOW + DAY) is None
