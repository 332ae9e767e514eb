"""`mode: propose`: plans wait for a person, who approves them, in part if need be, or rejects them; and who sets the mode is in the log."""

import pytest
from domain.build import NOW, configured, pod, run, then
from domain.saga import BOLD, OWNER, advance, begun, decider, move, owed, plan, step, through, world
from domain.test_observe import DEFRAGMENTATION

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import SlotFor
from restow.domain import config, snapshot
from restow.domain.decider import Rejected
from restow.domain.migration import modes
from restow.domain.migration.warnings import warnings
from restow.domain.planview import migrations_of, plan_view
from restow.domain.records import Mode, Step

HOUR = 3_600_000
PROPOSE = {"mode": "propose", "defragmentation": DEFRAGMENTATION}


def filled(**conf):
    """Node a half full (of four pods of one controller), b nearly: a is to be emptied."""
    return world(*(pod(f"q{i}", node="b", owner=OWNER) for i in range(1, 6)), **(PROPOSE | conf))


def proposed(*moves, **more):
    """Plan x waits for a person."""
    state = world(mode="propose")
    return then(state, plan("x", *(moves or (move("x-1", "p1"), move("x-2", "p2", target="c"))), mode="propose", **more))


def approve(state, *moves, by="ada", reason="", after=0):
    return run(state, decider, c.Approve(NOW + after, "x", by, reason, moves))


def reject(state, by="ada", reason="not before the release"):
    return run(state, decider, c.Reject(NOW, "x", by, reason))


def refused(state, command) -> str:
    with pytest.raises(Rejected) as error:
        decider.decide(state, command)
    return str(error.value)


def test_a_plan_waits_and_promises_nothing():
    state = filled()
    (planned,) = run(state, decider, c.Defragment(NOW, "interval", "x"))
    assert planned.mode == "propose"
    assert not state.migrations
    assert not state.backlog
    assert not state.promised
    assert not state.cooling
    assert not owed(state)
    assert advance(state) == []
    view = plan_view(state, "x")
    assert (view.phase, view.over, view.until) == ("proposed", False, "")
    assert {one.step for one in migrations_of(state, "x")} == {"proposed"}


def test_an_approved_plan_is_carried_out_as_any_other():
    state = proposed()
    assert approve(state, reason="go") == [e.PlanApproved("x", "ada", "go")]
    assert begun(advance(state)) == ["x-1", "x-2"]
    through(state, "x-1", "new")
    assert step(state, "x-1") is Step.LANDED
    view = plan_view(state, "x")
    assert (view.phase, view.answer, view.by, view.why) == ("moving", "approved", "ada", "go")


def test_some_moves_are_approved_and_the_others_never_begin():
    state = proposed()
    assert approve(state, "x-2") == [e.PlanApproved("x", "ada", "", ("x-2",))]
    assert begun(advance(state)) == ["x-2"]
    assert {one.id: one.step for one in migrations_of(state, "x")} == {"x-1": "declined", "x-2": "holding"}
    assert state.refused["p1"].reason == "Rejected"


def test_all_moves_by_name_are_the_whole_plan():
    assert approve(proposed(), "x-2", "x-1") == [e.PlanApproved("x", "ada", "")]


def test_a_move_is_checked_again_when_it_begins():
    """p1 has gone since the plan was made, and p2's target is full."""
    state = proposed()
    then(state, e.PodGone("p1"), *(pod(f"n{i}", node="c") for i in range(8)))
    approve(state)
    events = advance(state)
    assert "x-1" not in state.migrations
    assert [event.reason for event in events if isinstance(event, e.MigrationFailed)] == ["NoCapacity"]
    assert not begun(events)


@pytest.mark.parametrize(
    ("moves", "chosen", "said"),
    [
        ((move("x-1", "p1"), move("x-2", "p2", after=("x-1",))), "x-2", "x-2 needs x-1, which makes its slot free"),
        ((move("x-1", "p1"), move("x-2", "", "b", "c", follows="x-1")), "x-2", "x-2 needs x-1, which brings its pod half of the way"),
        ((move("x-1", "p1"), move("x-2", "", "b", "c", follows="x-1")), "x-1", "x-1 needs x-2, which brings its pod the rest of the way"),
        ((move("x-1", "p1", gang="default/g"), move("x-2", "p2", gang="default/g")), "x-1", "x-1 needs x-2, for gang default/g moves as one"),
        ((move("x-1", "p1"), move("x-2", "p2")), "x-3", "plan x has no move 'x-3'; allowed: some of x-1, x-2"),
    ],
)
def test_what_belongs_together_is_approved_together(moves, chosen, said):
    assert said in refused(proposed(*moves), c.Approve(NOW, "x", "ada", moves=(chosen,)))


def test_a_plan_that_empties_nodes_wholly_is_approved_node_by_node():
    state = proposed(move("x-1", "p1"), move("x-2", "p2"), move("x-3", "q", source="b", target="c"), whole=True)
    assert "the plan empties a wholly or not at all" in refused(state, c.Approve(NOW, "x", "ada", moves=("x-1",)))
    assert approve(state, "x-1", "x-2")[0].moves == ("x-1", "x-2")


def test_a_plan_for_a_job_that_waits_is_approved_as_one():
    slot = SlotFor("slot-1", "w", "default", "b")
    state = proposed(move("x-1", "p1"), move("x-2", "p2"), slots=(slot,), demand="w", trigger="demand")
    assert not state.demand_slots
    assert "needs all of its moves" in refused(state, c.Approve(NOW, "x", "ada", moves=("x-1",)))
    approve(state)
    assert [one.spec for one in state.demand_slots.values()] == [slot]


def test_a_rejected_plan_is_over_and_its_pods_are_left_alone_for_a_while():
    state = filled(interval=60_000)
    (planned,) = run(state, decider, c.Defragment(NOW, "interval", "x"))
    assert reject(state) == [e.PlanRejected("x", "ada", "not before the release")]
    assert plan_view(state, "x").phase == "rejected"
    assert {one.step for one in migrations_of(state, "x")} == {"declined"}
    again = decider.due(state, NOW + 60_000)
    assert isinstance(again, c.Defragment)
    (next_one,) = run(state, decider, again)
    first = {one.pod for one in planned.moves}
    assert first == {"p1", "p2"}
    assert {one.pod for one in next_one.moves} == {"p3", "p4"}
    assert next_one.kept == {"Refused": 2}
    then(state, e.PlanRejected(next_one.plan, "ada", "no"), time=NOW + 700_000)
    later = decider.due(state, NOW + 760_000)
    assert {one.pod for one in run(state, decider, later)[0].moves} == first


def test_who_is_rejected_again_is_left_alone_for_longer():
    state = proposed()
    reject(state)
    then(state, plan("y", move("y-1", "p1"), mode="propose"), e.PlanRejected("y", "ada", "still not"))
    assert (state.refused["p1"].times, state.refused["p2"].times) == (2, 1)
    assert state.refused["p1"].until - state.refused["p2"].until == 600_000


def test_a_person_who_names_the_pod_moves_it_all_the_same():
    state = filled()
    then(state, plan("x", move("x-1", "p1"), mode="propose"), e.PlanRejected("x", "ada", "no"))
    (planned,) = run(state, decider, c.MovePod(NOW, "y", "p1"))
    assert planned.mode == ""
    assert begun(advance(state)) == ["y-1"]


def test_a_plan_that_nobody_answers_ends():
    state = proposed()
    assert decider.deadline(state) == NOW + HOUR
    assert decider.due(state, NOW + HOUR - 1) is None
    due = decider.due(state, NOW + HOUR)
    assert run(state, decider, due) == [e.PlanCancelled("x", "NotApproved: nobody has approved it within 1h0m0s")]
    assert plan_view(state, "x").phase == "cancelled"
    assert "does not wait for a person (NotApproved" in refused(state, c.Approve(NOW, "x", "ada"))


def test_nobody_approves_a_plan_whose_time_is_over_though_nobody_has_cancelled_it_yet():
    """Say while no descheduler led."""
    state = proposed()
    assert "plan x has waited until 2023-11-14T23:13:20" in refused(state, c.Approve(NOW + HOUR, "x", "ada"))
    assert approve(state, after=HOUR - 1)


def test_while_one_waits_no_other_is_made():
    state = filled(interval=60_000, approve_deadline=120_000)
    run(state, decider, c.Defragment(NOW, "interval", "x"))
    assert decider.due(state, NOW + 60_000) is None
    run(state, decider, decider.due(state, NOW + 120_000))
    assert isinstance(decider.due(state, NOW + 120_000), c.Defragment)


@pytest.mark.parametrize("answer", [c.Approve(NOW, "x", "bob"), c.Reject(NOW, "x", "bob", "no")])
def test_the_first_answer_counts(answer):
    state = proposed()
    approve(state)
    assert "plan x does not wait for a person (it was approved by ada); allowed: none, for no plan waits for a person" in refused(state, answer)
    assert "there is no plan 'z'" in refused(state, c.Approve(NOW, "z", "bob"))


def test_an_answer_that_is_in_the_log_twice_is_void():
    state = proposed()
    then(state, e.PlanRejected("x", "ada", "no"), e.PlanApproved("x", "bob"), e.PlanRejected("x", "bob", "no"))
    assert not state.migrations
    assert (state.void["migration.plan_approved"], state.void["migration.plan_rejected"]) == (1, 1)
    assert state.plans["x"].by == "ada"


def test_while_moves_are_paused_nothing_is_approved_and_a_plan_goes_on_waiting():
    state = proposed()
    run(state, decider, c.Pause(NOW, "ada", "maintenance"))
    assert "moves are paused" in refused(state, c.Approve(NOW, "x", "bob"))
    run(state, decider, c.Resume(NOW, "ada"))
    approve(state)
    assert begun(advance(state)) == ["x-1", "x-2"]


def test_a_proposal_can_be_cancelled():
    state = proposed()
    assert run(state, decider, c.CancelPlan(NOW, "x", "no")) == [e.PlanCancelled("x", "no")]
    assert not state.proposals


# -- the mode ----------------------------------------------------------------------------------------------------------


def test_a_person_sets_the_mode_and_a_restart_with_the_same_policy_does_not_undo_it():
    state = world()
    assert run(state, decider, c.SetMode(NOW, "propose", "ada", "we want to look first")) == [e.ModeSet("propose", "ada", "we want to look first")]
    assert state.mode == Mode("propose", NOW, "ada", "we want to look first")
    then(state, configured("migration", config.MigrationConfig(**BOLD)))
    assert state.mode.name == "propose"
    assert snapshot.load(snapshot.dump(state)).mode == state.mode
    assert "the mode is propose (set by ada): plans wait for `restow approve`" in warnings(state)


def test_a_policy_whose_mode_changes_counts_from_then_on():
    state = world()
    run(state, decider, c.SetMode(NOW, "observe", "ada"))
    then(state, configured("migration", config.MigrationConfig(**BOLD, mode="propose")))
    assert state.mode == Mode("propose", NOW)
    then(state, configured("migration", config.MigrationConfig(**BOLD)))
    assert state.mode.name == "automatic"


def test_a_mode_that_is_none_or_set_already_is_refused():
    assert "allowed: observe, propose, automatic" in refused(world(), c.SetMode(NOW, "auto", "ada"))
    assert "it is automatic already" in refused(world(), c.SetMode(NOW, "automatic", "ada"))


def test_what_nobody_has_approved_is_stopped_when_plans_are_to_be_proposed():
    state = then(world(per_node=4), plan("x", move("x-1", "p1")), plan("y", move("y-1", "p2"), trigger="move"))
    advance(state)
    run(state, decider, c.SetMode(NOW, "propose", "ada"))
    due = decider.due(state, NOW)
    assert (due.plan, due.reason) == ("x", "ModeChanged: the mode is propose (set by ada)")
    run(state, decider, due)
    advance(state)
    assert (step(state, "x-1"), step(state, "y-1")) == (Step.FAILED, Step.HOLDING)
    assert decider.due(state, NOW) is None


def test_what_a_person_has_approved_goes_on():
    state = proposed()
    approve(state)
    advance(state)
    assert decider.due(state, NOW) is None
    assert {step(state, id) for id in ("x-1", "x-2")} == {Step.HOLDING}


@pytest.mark.parametrize("mode", ["observe", "automatic"])
def test_what_waits_for_a_person_does_not_outlive_the_mode(mode):
    state = proposed()
    run(state, decider, c.SetMode(NOW, mode, "ada"))
    assert run(state, decider, decider.due(state, NOW)) == [e.PlanCancelled("x", f"ModeChanged: the mode is {mode} (set by ada)")]
    assert decider.due(state, NOW) is None
    assert modes.said(state) == ("" if mode == "automatic" else "the mode is observe (set by ada): plans are recorded and nothing is moved")


@pytest.mark.parametrize("mode", ["observe", "automatic"])
def test_nobody_approves_what_the_mode_is_about_to_end(mode):
    state = proposed()
    run(state, decider, c.SetMode(NOW, mode, "ada"))
    assert f"plan x does not wait for a person any more (the mode is {mode})" in refused(state, c.Approve(NOW, "x", "bob"))


def test_a_snapshot_keeps_what_waits_and_what_was_said():
    state = proposed()
    again = snapshot.load(snapshot.dump(state))
    assert again.proposals == state.proposals == {"x": NOW + HOUR}
    reject(state)
    assert snapshot.load(snapshot.dump(state)).plans["x"] == state.plans["x"]
