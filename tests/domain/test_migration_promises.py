"""A plan promises what the saga will do (RULES G-13): what would be refused later, and is in the state, is not planned."""

import pytest
from domain.build import (
    NOW,
    changed,
    configured,
    given,
    member,
    node,
    pod,
    pod_group,
    replica_of,
    run,
    shape,
    then,
    when,
)
from domain.saga import (
    BOLD,
    OWNER,
    advance,
    begun,
    decider,
    evicts,
    failed,
    hold,
    land,
    move,
    plan,
    session_answers,
    step,
    world,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector
from restow.domain import config, defragmentation, migration
from restow.domain.decider import Rejected
from restow.domain.promised_slots import promised
from restow.domain.records import Step
from restow.domain.snapshot import dump, load

OPTIMIZING = config.DefragmentationArgs(resourceType="cpu", planner="optimizing", objective="nodes", protectionThresholds={})
GREEDY = config.DefragmentationArgs("cpu", {"cpu": 90}, {"cpu": 12}, {"cpu": 20})
BOTH = pytest.mark.parametrize("args", [OPTIMIZING, GREEDY], ids=["optimizing", "greedy"])
MINUTE = 60_000


def budget(allowed: int, app: str = "x", name: str = "pdb") -> e.BudgetObserved:
    return e.BudgetObserved("default", name, f"uid-{name}", LabelSelector({"app": app}), allowed)


def thin(*more, args=OPTIMIZING, **conf):
    """Pod p is alone on a; b has capacity for it."""
    return given(
        configured("migration", config.MigrationConfig(defragmentation=args, interval=MINUTE, **conf)), node("a"), node("b"), shape("s"),
        pod("p", node="a", owner=OWNER, labels={"app": "x"}), *[pod(f"q{i}", node="b", owner=replica_of(f"q{i}")) for i in range(2)], *more,
    )  # fmt: skip


def verdict(state, args, uid="p") -> str:
    return next((one.verdict for one in defragmentation.explain(state, args, NOW) if one.pod == uid), "")


def moved(state, args) -> list[str]:
    return [m.pod for m in defragmentation.plan(state, args, NOW, "x").moves]


@BOTH
def test_who_may_go_is_planned(args):
    assert "p" in moved(thin(budget(1), args=args), args)


@BOTH
@pytest.mark.parametrize("budgets", [(budget(0),), (budget(3), budget(3, name="second"))], ids=["at zero", "two of them"])
def test_a_pod_whose_disruption_budgets_let_nobody_go_is_not_planned(args, budgets):
    state = thin(*budgets, args=args)
    assert "p" not in moved(state, args)
    assert verdict(state, args) == "Budget"
    with pytest.raises(Rejected, match="disruption budget"):
        when(state, decider, c.MovePod(NOW, "m", "p"))


def test_a_budget_that_is_waited_for_is_no_obstacle():
    assert moved(thin(budget(0), budget_patience=MINUTE), OPTIMIZING) == ["p"]


@BOTH
def test_a_gang_at_its_minimum_is_not_planned(args):
    state = thin(pod_group("g", need=2), member("p", "g", node="a", owner=OWNER), member("p2", "g", node="b", owner=OWNER), args=args)
    assert "p" not in moved(state, args)
    assert verdict(state, args) == "GangMinimum"


@BOTH
def test_a_workload_that_lacks_pods_is_not_planned(args):
    state = thin(pod("sick", node="b", owner=OWNER, ready=False), args=args)
    assert "p" not in moved(state, args)
    assert verdict(state, args) == "MaxUnavailable"


def test_a_node_that_cannot_be_emptied_is_left_alone_as_a_whole():
    args = config.DefragmentationArgs(resourceType="cpu", planner="optimizing", objective="nodes", protectionThresholds={}, wholeNodes=True)
    state = thin(pod_group("g", need=2), member("m0", "g", node="a", owner=OWNER), member("m1", "g", node="b", owner=OWNER), args=args)
    assert moved(state, args) == []


def test_of_the_pods_that_one_budget_is_about_no_more_go_at_once_than_it_allows():
    labels = {"labels": {"app": "x"}}
    state = world(budget(1), *[pod(f"w{i}", node="a", owner=replica_of(f"w{i}"), **labels) for i in range(2)],
                  plan("x", move("x-1", "w0"), move("x-2", "w1")))  # fmt: skip
    assert begun(advance(state)) == ["x-1"]
    assert evicts(hold(state, "x-1")) == ["x-1"]
    land(state, "x-1", "w0b")
    assert begun(advance(state)) == [] or state.migrations["x-2"].step == "holding"
    assert evicts(hold(state, "x-2")) == ["x-2"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_budget_that_one_of_ours_has_used_up_is_waited_for_until_the_api_has_counted_it_anew(gone):
    """Its controller does that a moment after the successor is ready; a budget that says nothing in 15 s is taken at its word."""
    labels = {"labels": {"app": "x"}}

    def landed():
        state = world(budget(1), *[pod(f"w{i}", node="a", owner=replica_of(f"w{i}"), **labels) for i in range(2)],
                      plan("x", move("x-1", "w0"), move("x-2", "w1")))  # fmt: skip
        advance(state)
        hold(state, "x-1")
        then(state, changed("w0", node="a", phase="Running", deleting=NOW), budget(0))
        assert failed(advance(state, 20_000)) == {}
        then(state, pod("w0b", shape="s", owner=replica_of("w0"), **labels), time=NOW + 20_000)
        assert failed(land(state, "x-1", "w0b", 20_000, gone=gone)) == {}
        assert step(state, "x-1") == "landed"
        assert failed(advance(state, 34_999)) == {}
        return state

    state = landed()
    then(state, budget(1), time=NOW + 34_999)
    assert begun(advance(state, 34_999)) == ["x-2"]
    state = landed()
    assert migration.overdue(state) == NOW + 35_000
    assert failed(advance(state, 35_000)) == {"x-2": "Budget"}


def two_of_one_budget(allowed=1, **conf):
    labels = {"labels": {"app": "x"}}
    return world(budget(allowed), *[pod(f"w{i}", node="a", owner=replica_of(f"w{i}"), **labels) for i in range(2)],
                 plan("x", move("x-1", "w0"), move("x-2", "w1")), **conf)  # fmt: skip


def uses_up(state, id="x-1"):
    """Its pod is evicted, and the API has counted that."""
    hold(state, id)
    then(state, changed(state.migrations[id].move.pod, node="a", phase="Running", deleting=NOW), budget(0))
    return failed(advance(state))


def test_a_budget_that_one_of_ours_has_used_up_is_waited_for_also_while_nobody_has_followed_its_pod():
    """Two workloads have the budget in common: the labels of a pod that has gone are known no more."""
    state = two_of_one_budget()
    advance(state)
    uses_up(state)
    then(state, e.PodGone("w0"))
    assert failed(advance(state, 100_000)) == {}


def test_who_holds_its_slot_waits_for_a_budget_that_one_of_ours_has_used_up_for_longer_than_the_deadline():
    """The budget allowed two when they began. Somebody else has had one of these."""
    state = two_of_one_budget(2)
    assert begun(advance(state)) == ["x-1", "x-2"]
    uses_up(state)
    assert evicts(hold(state, "x-2")) == []
    assert failed(advance(state, 100_000)) == {}
    then(state, pod("w0b", shape="s", owner=replica_of("w0"), labels={"app": "x"}), time=NOW + 100_000)
    assert failed(land(state, "x-1", "w0b", 100_000)) == {}
    assert failed(advance(state, 114_000)) == {}
    assert failed(advance(state, 115_000)) == {"x-2": "Budget"}


def test_a_budget_that_is_waited_for_is_not_tried_while_one_of_ours_uses_it_up():
    """A patience shorter than a landing would be over before that."""
    state = two_of_one_budget(budget_patience=10_000)
    assert begun(advance(state)) == ["x-1"]
    uses_up(state)
    assert begun(advance(state, 20_000)) == []
    then(state, pod("w0b", shape="s", owner=replica_of("w0"), labels={"app": "x"}), time=NOW + 20_000)
    land(state, "x-1", "w0b", 20_000)
    assert begun(advance(state, 34_000)) == []
    assert begun(advance(state, 35_000)) == ["x-2"], "what is used up now was by somebody else"


def test_moves_whose_budget_somebody_else_has_used_up_are_patient_together():
    """One after the other: of a plan of 20 the last one was given up after 20 times the patience."""
    state = two_of_one_budget(0, budget_patience=10_000)
    assert begun(advance(state)) == ["x-1", "x-2"]


def test_what_the_api_says_of_a_budget_that_one_of_ours_has_just_used_up_is_no_refusal():
    """Its eviction was decided before that was known."""
    state = two_of_one_budget(2)
    advance(state)
    hold(state, "x-1")
    hold(state, "x-2")
    then(state, changed("w0", node="a", phase="Running", deleting=NOW))
    advance(state)
    assert when(state, decider, c.ReportEviction(NOW + 1_000, "x-2", "Budget", "at zero")) == []


def test_a_budget_that_is_at_zero_when_it_is_its_turn_ends_the_move_before_anything_is_held():
    state = world(budget(1), pod("w", node="a", owner=replica_of("w"), labels={"app": "x"}), plan("x", move("x-1", "w")))
    then(state, budget(0))
    assert failed(advance(state)) == {"x-1": "Budget"}
    assert begun(advance(state)) == []


def refuse(state, id: str, after: int) -> None:
    advance(state, after)
    hold(state, id, after=after)
    run(state, decider, c.ReportEviction(NOW + after, id, "Refused", "a webhook says no"))
    run(state, decider, c.ReportEviction(NOW + after, id, "Aborted"))
    assert state.migrations[id].reason == "Refused"


def test_a_pod_whose_eviction_was_refused_is_left_alone_for_a_while_and_longer_each_time():
    state = thin()
    at = 0
    for times, wait in enumerate((10, 20, 40), 1):
        planned = run(state, decider, c.Defragment(NOW + at, "interval", f"k{times}"))[0]
        assert [m.pod for m in planned.moves] == ["p"]
        refuse(state, f"k{times}-1", at)
        then(state, e.Synced("pods", "1"), time=NOW + at + wait * MINUTE - 1)
        assert "p" not in moved(state, OPTIMIZING)
        assert verdict(state, OPTIMIZING) == "Refused"
        assert load(dump(state)).refused == state.refused
        at += wait * MINUTE + times - 1  # to the millisecond, and later
        then(state, e.Synced("pods", "2"), time=NOW + at)
    assert state.refused["p"].times == 3
    then(state, e.PodGone("p"))
    assert not state.refused


def test_who_asks_for_a_pod_by_name_may_try_again_at_once():
    state = thin()
    run(state, decider, c.Defragment(NOW, "interval", "k"))
    refuse(state, "k-1", 0)
    assert [m.pod for m in run(state, decider, c.MovePod(NOW, "m", "p"))[0].moves] == ["p"]


def test_a_cancelled_move_is_no_refusal():
    state = world(plan("x", move("x-1", "p1")), **BOLD)
    advance(state)
    run(state, decider, c.CancelPlan(NOW, "x"))
    advance(state)
    assert state.migrations["x-1"].reason == "Cancelled"
    assert not state.refused


def test_a_place_that_a_plan_promised_is_nobody_elses_although_a_move_before_it_has_lost_its_target():
    state = given(
        configured("migration", config.MigrationConfig(defragmentation=OPTIMIZING)), node("a"), node("b", cpu=1_000), node("z"), shape("s"),
        *[pod(name, node="a", owner=replica_of(name)) for name in ("p1", "p2", "p3")],
        plan("x", move("x-1", "p1", "a", "z"), move("x-2", "p2", "a", "b")), e.NodeGone("z"),
    )  # fmt: skip
    with pytest.raises(Rejected, match="0 of 2 nodes"):
        when(state, decider, c.MovePod(NOW, "m", "p3"))


def test_a_place_that_is_held_already_is_not_kept_free_once_more():
    state = given(
        configured("migration", config.MigrationConfig(defragmentation=OPTIMIZING)), node("a"), node("b", cpu=2_000), shape("s"),
        *[pod(name, node="a", owner=replica_of(name)) for name in ("p1", "p2")], plan("x", move("x-1", "p1", "a", "b")),
    )  # fmt: skip
    advance(state)
    hold(state, "x-1")
    (event,) = when(state, decider, c.MovePod(NOW, "m", "p2"))
    assert [m.target for m in event.moves] == ["b"]


def test_a_move_that_is_on_its_way_back_without_its_hold_keeps_no_place():
    state = given(
        configured("migration", config.MigrationConfig(defragmentation=OPTIMIZING)), node("a"), node("b", cpu=1_000), shape("s"),
        *[pod(name, node="a", owner=replica_of(name)) for name in ("p1", "p2")], plan("x", move("x-1", "p1", "a", "b")),
    )  # fmt: skip
    advance(state)
    assert evicts(hold(state, "x-1")) == ["x-1"]
    then(state, e.ReservationGone(state.migrations["x-1"].reservation))
    session_answers(state)
    advance(state)
    assert (step(state, "x-1"), state.migrations["x-1"].reason) == (Step.ABORTING, "HoldLost")
    (event,) = when(state, decider, c.MovePod(NOW, "m", "p2"))
    assert [m.target for m in event.moves] == ["b"]


def test_a_slot_is_promised_as_the_move_has_recorded_it_also_when_its_pod_is_resized_in_place():
    """Its successor is made by the template. When it is its turn the move ends, and nothing is promised any more."""
    state = world(shape("more", cpu=3_000), plan("x", move("x-1", "p1")))
    then(state, pod("p1", "more", node="a", owner=OWNER))
    assert [promise.vector for promise in promised(state)] == [state.vectors["s"]]
    assert list(failed(advance(state))) == ["x-1"]
    assert list(promised(state)) == []
