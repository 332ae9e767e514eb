"""Pauses of all moves: by hand, and by themselves where evicted pods miss their slots."""

import pytest
from domain.build import NOW, configured, pod, run, then
from domain.saga import (
    BOLD,
    advance,
    create,
    decider,
    evicts,
    failed,
    hold,
    land,
    move,
    owed,
    plan,
    step,
    terminate,
    world,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import config, migration, snapshot
from restow.domain.decider import Rejected
from restow.domain.effects import DeleteReservation, Evict
from restow.domain.migration.warnings import warnings
from restow.domain.records import Step

TIMED = {"interval": 60_000, "defragmentation": config.DefragmentationArgs()}


def told(state, command) -> str:
    """What a dry run says: a plan's reason, or why it is refused."""
    try:
        return migration.of_dry_runs.decide(state, command)[0].reason
    except Rejected as error:
        return str(error)


WHEN_ASKED = [c.Defragment(NOW, "api", "y"), c.Deschedule(NOW, "api", "y"), c.MovePod(NOW, "y", "p1"), c.MoveGang(NOW, "y", "default/g")]


def pause(state, reason="maintenance", by="ada"):
    return run(state, decider, c.Pause(NOW, by, reason))


def begun(**conf):
    """Of three moves of plan x one has evicted its pod, and one asks for its slot."""
    state = then(world(per_node=4, **conf), plan("x", *(move(f"x-{i}", f"p{i}") for i in (1, 2, 3))))
    advance(state)
    hold(state, "x-1")
    advance(state)
    terminate(state, "p1")
    advance(state)
    assert (step(state, "x-1"), step(state, "x-2")) == (Step.EVICTED, Step.HOLDING)
    return state


def only_who_was_evicted_lands(state):
    assert set(failed(advance(state))) == {"x-2", "x-3"}
    assert not [one for one in owed(state) if isinstance(one, Evict)]
    land(state, "x-1", "new")
    advance(state)
    assert step(state, "x-1") is Step.LANDED


def test_moves_that_have_not_evicted_their_pod_are_rolled_back_and_one_that_has_still_lands():
    state = begun()
    assert pause(state) == [e.MovesPaused("ada", "maintenance"), e.PlanCancelled("x", "Paused: maintenance")]
    only_who_was_evicted_lands(state)


@pytest.mark.parametrize("command", WHEN_ASKED, ids=lambda one: type(one).__name__)
def test_while_it_lasts_no_plan_is_made_and_a_dry_run_still_says_what_it_would_be(command):
    state = world(**TIMED)
    pause(state)
    with pytest.raises(Rejected, match=r"moves are paused since .* by ada: maintenance; allowed: after `restow resume`, or a dry run"):
        decider.decide(state, command)
    assert "paused" not in told(state, command)


def test_no_time_and_no_waiting_job_brings_a_plan_on_while_it_lasts_and_what_has_passed_is_not_made_up_for():
    state = world(**TIMED)
    assert decider.deadline(state) is not None
    pause(state)
    assert (decider.deadline(state), decider.due(state, NOW + 10**9)) == (None, None)
    run(state, decider, c.Resume(NOW, "bob", "done"))
    assert decider.due(state, NOW + 59_999) is None
    assert isinstance(decider.due(state, NOW + 60_000), c.Defragment)


def test_a_restart_does_not_forget_it_and_everybody_istold():
    state = world()
    assert warnings(state) == []
    pause(state)
    again = snapshot.load(snapshot.dump(state))
    assert again.pause == state.pause
    assert any("moves are paused since" in said and "restow resume" in said for said in warnings(again))


def test_twice_makes_no_sense():
    state = world()
    with pytest.raises(Rejected, match="not paused"):
        run(state, decider, c.Resume(NOW, "ada"))
    pause(state)
    with pytest.raises(Rejected, match="by ada: maintenance"):
        pause(state, by="bob")
    run(state, decider, c.Resume(NOW, "ada"))
    assert pause(state, by="bob")[0] == e.MovesPaused("bob", "maintenance")


def missed(state, *ids: str) -> None:
    """Evicted, and no successor comes."""
    for id in ids:
        then(state, e.Holding(id, NOW), e.Held(id), e.Evicting(id, NOW), e.Evicted(id, NOW + 1), e.NotRecreated(id))


def several(**conf):
    return then(world(per_node=9, **conf), plan("x", *(move(f"x-{i}", f"p{i}") for i in (1, 2, 3, 4))))


def test_so_many_evicted_pods_that_miss_their_slots_pause_by_themselves_and_count_once():
    state = several(auto_pause=config.AutoPause(missed=2))
    missed(state, "x-1")
    assert not isinstance(decider.due(state, NOW), c.Pause)
    missed(state, "x-2")
    due = decider.due(state, NOW)
    assert due == c.Pause(NOW, "", "2 evicted pods missed their slots within 10m0s (autoPause.missed: 2)")
    events = run(state, decider, due)
    assert events[0] == e.MovesPaused("", due.reason)
    assert isinstance(events[1], e.PlanCancelled)
    advance(state)
    assert "by Restow itself: 2 evicted pods" in warnings(state)[0]
    run(state, decider, c.Resume(NOW, "ada"))
    assert decider.due(state, NOW) is None, "what was missed before the pause brings on none after it"


def test_old_misses_do_not_count_and_nothing_counts_where_the_policy_says_so():
    state = several(auto_pause=config.AutoPause(missed=2))
    missed(state, "x-1", "x-2")
    assert not isinstance(decider.due(state, NOW + 600_000), c.Pause)
    state = several(auto_pause=config.AutoPause(missed=0))
    missed(state, "x-1", "x-2", "x-3", "x-4")
    assert not isinstance(decider.due(state, NOW), c.Pause)


def test_a_pod_that_stays_has_missed_nothing_nor_has_one_whose_controller_wants_fewer():
    state = several(auto_pause=config.AutoPause(missed=1))
    then(state, e.Holding("x-1", NOW), e.Held("x-1"), e.MigrationFailed("x-1", "Budget"))
    assert not isinstance(decider.due(state, NOW), c.Pause)
    then(state, e.WorkloadObserved("uid-rs", "ReplicaSet", "default", "rs", busy="scaling_down"))
    missed(state, "x-2")
    assert not isinstance(decider.due(state, NOW), c.Pause)


def test_a_pod_that_somebody_else_deleted_before_its_eviction_was_decided_has_missed_nothing():
    state = several(auto_pause=config.AutoPause(missed=1))
    then(state, e.Holding("x-1", NOW), e.PodChanged("p1", phase="Running", ready=True, deleting=NOW))
    assert state.migrations["x-1"].armed
    then(state, e.MigrationFailed("x-1", "PodGone"), e.PodGone("p1"))
    assert not isinstance(decider.due(state, NOW), c.Pause)


def test_one_that_came_back_to_its_source_has_missed_its_slot():
    state = several(auto_pause=config.AutoPause(missed=1))
    then(state, e.Holding("x-1", NOW), e.Held("x-1"), e.Evicting("x-1", NOW), e.Evicted("x-1", NOW + 1), e.TurningBack("x-1", NOW + 9, "TargetLost"))
    then(state, e.Landed("x-1", "new", "a"))
    assert isinstance(decider.due(state, NOW), c.Pause)


def test_a_pod_that_nothing_keeps_from_running_and_nobody_decides_on_pauses_once_it_has_waited_for_so_long():
    state = then(world(auto_pause=config.AutoPause(pending=60_000)), pod("waits", "s"))
    assert migration.pause.stuck(state, NOW + 59_999, ("waits", NOW)) is None
    due = migration.pause.stuck(state, NOW + 61_500, ("waits", NOW))
    assert due == c.Pause(NOW + 61_500, "", "nobody has decided on pod default/waits for 1m1s, and nothing keeps it from running (autoPause.pending: 1m0s)")
    assert run(state, decider, due)[0] == e.MovesPaused("", due.reason)
    assert migration.pause.stuck(state, NOW + 90_000, ("waits", NOW)) is None, "they are paused already"


def test_where_no_pod_waits_so_or_the_policy_says_never_nothing_pauses():
    state = then(world(auto_pause=config.AutoPause(pending=0)), pod("waits", "s"))
    assert migration.pause.stuck(state, NOW + 10**9, ("waits", NOW)) is None
    assert migration.pause.stuck(world(), NOW + 10**9, None) is None


@pytest.mark.parametrize(
    "wrong", [config.AutoPause(missed=-1), config.AutoPause(within=0), config.AutoPause(pending=-1), config.AutoPause(every=1), config.AutoPause(queries=("",)), config.AutoPause(queries=("x",) * 21)]
)
def test_what_is_out_of_range_is_refused_with_what_is_allowed(wrong):
    with pytest.raises(ValueError, match=r"autoPause\.\w+: .*allowed: "):
        migration.check(config.MigrationConfig(auto_pause=wrong))


def test_holds_of_moves_that_never_began_to_evict_are_given_up():
    state = then(world(), plan("x", move("x-1", "p1")))
    advance(state)
    create(state, "x-1")
    pause(state)
    assert evicts(advance(state)) == []
    assert [type(one) for one in owed(state)] == [DeleteReservation]


def test_another_configuration_does_not_end_it():
    state = world()
    pause(state)
    then(state, configured("migration", config.MigrationConfig(**BOLD, interval=1_000)))
    assert state.pause.by == "ada"
    assert decider.due(state, NOW + 10**9) is None
