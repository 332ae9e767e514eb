"""`mode: observe`: plans are made and recorded, nothing is ever carried out, and it is looked later how well they have predicted."""

import pytest
from domain.build import NOW, changed, configured, given, node, pod, replica_of, run, shape, then
from domain.saga import BOLD, OWNER, advance, decider, move, owed, plan, step, world

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import MoveSeen
from restow.domain import config, migration, snapshot
from restow.domain.decider import Rejected
from restow.domain.migration import modes, pause
from restow.domain.planview import plan_view
from restow.domain.records import Score, Step

DEFRAGMENTATION = config.DefragmentationArgs(
    resourceType="cpu", lowThresholds={"cpu": 60}, defragmentThresholds={"cpu": 61}, protectionThresholds={"cpu": 100}
)
OBSERVED = {"mode": "observe", "defragmentation": DEFRAGMENTATION}
FIRST = modes.takes(config.MigrationConfig())
"""Milliseconds until the first look."""


def filled(**conf):
    """Node a half full (of four pods of one controller), b nearly: a is to be emptied."""
    return world(*(pod(f"q{i}", node="b", owner=OWNER) for i in range(1, 6)), **(OBSERVED | conf))


def observed(state, *moves, id="x"):
    return then(state, plan(id, *moves, mode="observe"))


def look(state, after, id="x"):
    due = decider.due(state, NOW + after)
    assert due == c.LookBack(NOW + after, id)
    (found,) = run(state, decider, due)
    return found


def test_a_plan_is_recorded_and_nothing_comes_of_it():
    state = filled()
    (planned,) = run(state, decider, c.Defragment(NOW, "api", "x"))
    assert planned.mode == "observe"
    assert planned.moves
    assert planned.worth is not None
    assert not state.migrations
    assert not state.backlog
    assert not state.promised
    assert not state.cooling
    assert not owed(state)
    assert advance(state) == []
    view = plan_view(state, "x")
    assert view.phase == "observed"
    assert view.over


def test_the_same_plan_is_made_again_at_its_next_time():
    state = filled(interval=60_000)
    first, again = (run(state, decider, decider.due(state, NOW + after)) for after in (60_000, 120_000))
    assert first[0].mode == again[0].mode == "observe"
    assert [m.pod for m in first[0].moves] == [m.pod for m in again[0].moves]


def test_pods_of_any_scheduler_count_without_being_named():
    theirs = [pod(f"t{i}", "t", node=at, owner=replica_of("t")) for i, at in enumerate("cdddddd")]
    state = given(configured("migration", config.MigrationConfig(**OBSERVED)), node("c"), node("d"), shape("t", scheduler="somebody-elses"), *theirs)
    (planned,) = run(state, decider, c.Defragment(NOW, "api", "x"))
    assert planned.moves, planned.kept
    then(state, configured("migration", config.MigrationConfig(defragmentation=DEFRAGMENTATION)))
    (planned,) = run(state, decider, c.Defragment(NOW, "api", "y"))
    assert not planned.moves
    assert "Scheduler" in planned.kept


@pytest.mark.parametrize("command", [c.MovePod(NOW, "y", "p1"), c.MoveGang(NOW, "y", "default/g")])
def test_a_pod_that_somebody_asks_for_is_not_moved_either(command):
    with pytest.raises(Rejected, match="the mode is observe"):
        decider.decide(filled(), command)


def test_a_dry_run_says_where_it_would_go():
    (planned,) = migration.of_dry_runs.decide(filled(), c.MovePod(NOW, "y", "p1"))
    assert planned.moves[0].pod == "p1"


def test_what_is_under_way_when_the_mode_is_set_is_stopped_where_nobody_was_evicted_yet():
    state = then(world(per_node=4), plan("x", *(move(f"x-{i}", f"p{i}") for i in (1, 2))))
    advance(state)
    assert step(state, "x-1") is Step.HOLDING
    then(state, configured("migration", config.MigrationConfig(**BOLD, mode="observe")))
    due = decider.due(state, NOW)
    assert isinstance(due, c.CancelPlan)
    assert [event.plan for event in run(state, decider, due)] == ["x"]
    advance(state)
    assert {step(state, id) for id in ("x-1", "x-2")} == {Step.FAILED}
    assert decider.due(state, NOW) is None


def test_the_first_look_is_when_the_moves_would_have_been_over():
    state = observed(filled(), move("x-1", "p1"))
    assert decider.deadline(state) == NOW + FIRST
    assert decider.due(state, NOW + FIRST - 1) is None
    assert look(state, FIRST) == e.LookedBack("x", 1, (MoveSeen("x-1", "there", "free"),))
    assert decider.deadline(state) == NOW + modes.SOON
    assert state.score == Score(plans=1, moves=1, free=1)


def test_a_place_that_somebody_else_has_is_taken_and_says_by_which_rule():
    state = observed(filled(), move("x-1", "p1", target="c"), move("x-2", "p2", target="d"))
    then(state, *(pod(f"n{i}", node="c") for i in range(8)), node("d", cpu=8_000, unschedulable=True))
    seen = look(state, FIRST).moves
    assert [(one.pod, one.slot) for one in seen] == [("there", "taken"), ("there", "taken")]
    assert "Insufficient cpu" in seen[0].why
    assert "unschedulable" in seen[1].why
    assert state.score == Score(plans=1, moves=2, free=0)


def test_each_place_is_free_once():
    """Three of c's cores are free: not for four pods."""
    state = observed(filled(), *(move(f"x-{i}", f"p{i}", target="c") for i in range(1, 5)))
    then(state, *(pod(f"n{i}", node="c") for i in range(5)))
    assert [one.slot for one in look(state, FIRST).moves] == ["free", "free", "free", "taken"]


def test_who_leaves_makes_place_for_who_comes():
    state = observed(filled(), move("x-1", "p1", "a", "c"), move("x-2", "q1", "b", "a"))
    then(state, *(pod(f"n{i}", node="a") for i in range(4)))
    assert [one.slot for one in look(state, FIRST).moves] == ["free", "free"]


def test_a_node_that_is_gone_is_no_place():
    state = observed(filled(), move("x-1", "p1", target="d"))
    then(state, e.NodeGone("d"))
    assert look(state, FIRST).moves == (MoveSeen("x-1", "there", "gone"),)


def test_pods_that_have_ended_would_have_been_moved_for_nothing():
    state = observed(filled(), *(move(f"x-{i}", f"p{i}", target="c") for i in range(1, 5)))
    then(state, e.PodGone("p1"))
    assert [one.pod for one in look(state, FIRST).moves] == ["ended", "there", "there", "there"]
    then(state, changed("p2", node="a", phase="Succeeded"), changed("p3", node="a", phase="Running", deleting=NOW))
    assert look(state, modes.SOON).moves == tuple(MoveSeen(f"x-{i}", pod) for i, pod in enumerate(("ended", "ended", "ended", "there"), 1))
    assert state.score == Score(plans=1, moves=3, free=3, early=1, aged=4, ended=3)
    assert decider.deadline(state) is None


def test_who_goes_nowhere_has_no_slot_to_be_free_and_makes_place_for_others():
    """Pods that are only evicted, such as failed ones that a plugin tidies up, say nothing of how well slots are predicted, nor whether moves are worth it."""
    state = observed(filled(), move("x-1", "p1", target=""), move("x-2", "q1", "b", "a"), move("x-3", "p2", target=""))
    then(state, *(pod(f"n{i}", node="a") for i in range(4)), changed("p2", node="a", phase="Failed"), *(pod(f"m{i}", node="a") for i in range(1)))
    assert look(state, FIRST).moves == (MoveSeen("x-2", "there", "free"),)
    assert look(state, modes.SOON).moves == (MoveSeen("x-2", "there"),)
    assert state.score == Score(plans=1, moves=1, free=1, aged=1)


def test_a_look_for_which_nobody_was_there_in_time_says_nothing():
    """As of `restow watch` that is started again the next day: what is taken by then says nothing of minutes after the plan."""
    state = observed(filled(), move("x-1", "p1"))
    assert look(state, FIRST + modes.LATE + 1) == e.LookedBack("x", 1)
    assert state.score == Score()
    assert look(state, modes.SOON + modes.LATE + 1) == e.LookedBack("x", 2)
    assert state.score == Score()
    assert decider.deadline(state) is None


def test_a_look_that_comes_twice_counts_once():
    state = observed(filled(), move("x-1", "p1"))
    seen = look(state, FIRST)
    then(state, seen)
    assert state.score.plans == 1
    assert state.void["migration.looked_back"] == 1


def test_a_pod_that_goes_by_way_of_another_node_is_looked_for_where_it_would_have_ended():
    state = observed(filled(), move("x-1", "p1", target="c"), e_follow("x-2", "x-1", "c", "d"))
    then(state, e.NodeGone("c"))
    assert look(state, FIRST).moves == (MoveSeen("x-1", "there", "free"),)


def e_follow(id, follows, source, target):
    return move(id, "", source, target, follows=follows, after=(follows,))


def test_a_snapshot_keeps_the_score_and_what_is_looked_at():
    state = observed(filled(), move("x-1", "p1"))
    look(state, FIRST)
    again = snapshot.load(snapshot.dump(state))
    assert (again.observed, again.score) == (state.observed, state.score) == ({"x": 1}, Score(plans=1, moves=1, free=1))


def test_looking_leaves_the_state_as_it_was():
    state = observed(filled(), move("x-1", "p1", target="c"))
    before = snapshot.dump(state)
    decider.decide(state, c.LookBack(NOW + FIRST, "x"))
    assert snapshot.dump(state) == before


def test_nothing_is_paused_by_itself_where_nothing_moves():
    state = filled()
    assert migration_stuck(state) is None
    then(state, configured("migration", config.MigrationConfig()))
    assert migration_stuck(state) is not None


def migration_stuck(state):
    return pause.stuck(state, NOW + 10_000_000, ("p1", NOW))
