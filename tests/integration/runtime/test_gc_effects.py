"""The collector leaves the hold of a migration that is over to the descheduler for a moment, and deletes what that has missed."""

from domain.build import NOW, given, node, pod, replica_of, reservation, shape, then

from restow.contracts import events as e
from restow.contracts.values import Move, Packing
from restow.garbage_collector.effects import OWN_TURN, own_turn

NONE = Packing(0, 0, 0, 0, 0, 0)
PLAN = e.Planned("x", "Defragmentation", (Move("x-1", "p", "default", "p", "a", "b"),), NONE, NONE)


def over(*more):
    hold = reservation("hold", ("hold", 1, "s"), migration="x-1", node="b", match_policy="Owner", ttl=0)
    state = given(node("a"), node("b"), shape("s"), pod("p", node="a", owner=replica_of("rs")), PLAN, e.Holding("x-1", NOW + 10), hold)
    then(state, *more)
    return state, state.reservations["hold"]


def test_a_hold_whose_migration_has_just_ended_is_its_deschedulers_to_delete():
    state, hold = over(e.MigrationFailed("x-1", "HoldTimeout"))
    since = state.migrations["x-1"].since
    assert own_turn(state, hold, since) == OWN_TURN
    assert own_turn(state, hold, since + 500) == OWN_TURN - 500


def test_what_it_has_missed_is_deleted_however_clocks_differ():
    state, hold = over(e.MigrationFailed("x-1", "HoldTimeout"))
    since = state.migrations["x-1"].since
    assert own_turn(state, hold, since + OWN_TURN) == own_turn(state, hold, since + 3_600_000) == 0
    assert own_turn(state, hold, since - 3_600_000) == OWN_TURN


def test_a_hold_of_a_migration_that_nobody_knows_is_nobody_elses():
    state, hold = over(e.MigrationFailed("x-1", "HoldTimeout"))
    state.drop(state.migrations, "x-1")
    assert own_turn(state, hold, state.time) == 0
