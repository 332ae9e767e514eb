"""With `wholeNodes` a node is emptied wholly or not at all, also by the saga: what cannot be finished is not begun (RULES G-13)."""

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
)
from domain.saga import (
    OWNER,
    advance,
    begun,
    create,
    decider,
    evicts,
    failed,
    hold,
    land,
    move,
    plan,
    session_answers,
    step,
    terminate,
    world,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector
from restow.domain import config, migration
from restow.domain.snapshot import dump, load

MINUTE = 60_000
ALL = ("x-1", "x-2", "x-3")


def whole(count: int = 3, *more: e.Event, **conf):
    """Pods p1 to p3 are all that is on a, and a plan empties it."""
    return world(*more, plan("x", *(move(f"x-{i}", f"p{i}") for i in range(1, count + 1)), whole=True), **conf)


def budget(allowed: int, app: str = "x") -> e.BudgetObserved:
    return e.BudgetObserved("default", "pdb", "uid-pdb", LabelSelector({"app": app}), allowed)


def refused(state, id: str, reason: str = "Refused", after: int = 0) -> None:
    run(state, decider, c.ReportEviction(NOW + after, id, reason, "a webhook says no"))


def test_nobody_of_a_node_is_evicted_before_all_of_its_places_are_held():
    state = whole()
    assert begun(advance(state)) == [*ALL]
    assert evicts(hold(state, "x-1")) == []
    assert evicts(hold(state, "x-2")) == []
    assert step(state, "x-1") == step(state, "x-2") == "held"
    assert evicts(hold(state, "x-3")) == ["x-1"]


def test_one_after_the_other_is_evicted_the_next_when_the_api_has_let_the_one_before_go():
    """Of many on their way at once a refusal would come too late for the others."""
    state = whole()
    advance(state)
    assert evicts(hold(state, *ALL)) == ["x-1"]
    assert evicts(advance(state, 59_000)) == []
    for i in (1, 2):
        then(state, changed(f"p{i}", node="a", phase="Running", deleting=NOW))
        assert evicts(advance(state, 59_000)) == [f"x-{i + 1}"], "nobody waits for a landing"
    refused(state, "x-3")
    refused(state, "x-3", "Aborted")
    assert step(state, "x-3") == "failed"


def test_other_nodes_and_plans_are_evicted_from_meanwhile():
    state = world(pod("o", node="c", owner=replica_of("o")), plan("x", move("x-1", "p1"), move("x-2", "p2"), move("x-3", "o", "c", "b"), whole=True),
                  plan("y", move("y-1", "p3", target="d")))  # fmt: skip
    advance(state)
    assert evicts(hold(state, "x-1", "x-2", "x-3", "y-1")) == ["y-1", "x-1", "x-3"]


def test_first_goes_who_is_refused_most_easily():
    """Those that a budget is about, the tightest first: what a refusal costs grows with each pod that has left."""
    owned = [pod(f"w{i}", node="a", owner=replica_of(f"r{i}"), labels={"app": app}) for i, app in enumerate(("", "x", "y"))]
    other = e.BudgetObserved("default", "other", "uid-other", LabelSelector({"app": "y"}), 1)
    state = world(budget(2), other, *owned, plan("x", *(move(f"x-{i}", f"w{i}") for i in range(3)), whole=True))
    advance(state)
    assert evicts(hold(state, "x-0", "x-1", "x-2")) == ["x-2"]
    terminate(state, "w2")
    assert evicts(advance(state)) == ["x-1"]
    refused(state, "x-1", "Budget")
    assert failed(advance(state)) == {"x-0": "Whole"}


def test_a_plan_without_whole_nodes_evicts_whoever_has_his_place():
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2")))
    advance(state)
    assert evicts(hold(state, "x-1")) == ["x-1"]


def test_a_hold_that_cannot_be_had_costs_no_eviction():
    state = whole()
    advance(state)
    hold(state, "x-1", "x-2")
    run(state, decider, c.ReportHold(NOW, "x-3", "forbidden"))
    said = advance(state)
    assert failed(said) == {"x-1": "Whole", "x-2": "Whole"}
    assert evicts(said) == []
    assert "another pod of its node stays: migration x-3 was given up (HoldFailed)" in state.migrations["x-1"].message
    assert not state.active


def test_a_place_that_is_not_held_in_time_keeps_the_whole_node():
    state = whole()
    advance(state)
    hold(state, "x-1", "x-2")
    assert failed(advance(state, 30_000)) == {"x-3": "HoldTimeout", "x-1": "Whole", "x-2": "Whole"}


def test_what_else_goes_on_in_the_plan_gives_a_hold_no_more_time():
    moves = move("x-1", "p1"), move("x-2", "p2"), move("x-3", "q", "c", "d")
    state = world(pod("q", node="c", owner=replica_of("q")), plan("x", *moves, whole=True))
    advance(state)
    hold(state, "x-1", "x-3")
    land(state, "x-3", "n3", 20_000)
    then(state, e.Synced("pods", "1"), time=NOW + 25_000)
    assert failed(advance(state, 30_000)) == {"x-2": "HoldTimeout", "x-1": "Whole"}


def test_who_can_never_begin_keeps_the_whole_node_before_anything_is_evicted():
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2", target="d"), whole=True))
    then(state, e.NodeGone("d"))
    assert failed(advance(state)) == {"x-2": "TargetLost", "x-1": "Whole"}


def test_when_one_is_refused_those_that_were_not_evicted_yet_stay_and_who_has_left_lands():
    state = whole(max_unavailable=1)
    advance(state)
    assert evicts(hold(state, *ALL)) == ["x-1"]
    assert evicts(land(state, "x-1", "n1")) == ["x-2"]
    refused(state, "x-2")
    assert failed(advance(state)) == {"x-3": "Whole"}
    refused(state, "x-2", "Aborted")
    advance(state)
    assert [step(state, id) for id in ALL] == ["landed", "failed", "failed"]
    assert state.migrations["x-2"].reason == "Refused"
    assert list(state.refused) == ["p2"], "who stays for another's sake was not refused"


def test_nobody_is_evicted_in_the_decision_that_gives_up_another_of_the_node():
    state = whole(2)
    advance(state)
    create(state, "x-1", "x-2")
    session_answers(state)
    run(state, decider, c.Advance(NOW))
    assert step(state, "x-1") == step(state, "x-2") == "held"
    then(state, pod("p2", node="a", owner=replica_of("somebody else")))
    said = advance(state)
    assert evicts(said) == []
    assert failed(said) == {"x-2": "OwnerChanged", "x-1": "Whole"}


def test_evictions_that_were_not_accepted_yet_are_taken_back():
    """In a log of an older release several may be on their way."""
    state = whole()
    advance(state)
    hold(state, *ALL)
    then(state, [e.Evicting(id, NOW + MINUTE) for id in ("x-2", "x-3")])
    then(state, changed("p1", node="a", phase="Running", deleting=NOW))
    refused(state, "x-2")
    said = advance(state)
    assert [event.reason for event in said if isinstance(event, e.Aborting)] == ["Whole"]
    assert [step(state, id) for id in ALL] == ["evicted", "aborting", "aborting"]
    refused(state, "x-3", "Aborted")
    assert state.migrations["x-3"].reason == "Whole"


def test_a_node_is_emptied_pod_by_pod_by_whatever_bound_and_no_place_is_lost_meanwhile():
    bounds = ({"max_unavailable": 1}, {"concurrent": 1}, {"per_node": 1}, {"per_namespace": 1}, {"evictions_per_minute": 1})
    for conf, each in zip(bounds, (59_000, 59_000, 59_000, 59_000, 61_000), strict=True):
        state = whole(**conf)
        assert begun(advance(state)) == [*ALL], conf
        assert evicts(hold(state, *ALL)) == ["x-1"], conf
        after = 0
        for i, id in enumerate(ALL, 1):
            land(state, id, f"n{i}", after, gone=True)
            after += each
            advance(state, after)
        assert [step(state, id) for id in ALL] == ["landed"] * 3, conf


def test_a_budget_that_lets_one_go_at_a_time_is_waited_for_while_one_of_the_node_is_under_way():
    owners = [replica_of(f"r{i}") for i in range(2)]
    pods = [pod(f"w{i}", node="a", owner=owner, labels={"app": "x"}) for i, owner in enumerate(owners)]
    state = world(budget(1), *pods, plan("x", move("x-1", "w0"), move("x-2", "w1"), whole=True))
    advance(state)
    assert evicts(hold(state, "x-1", "x-2")) == ["x-1"]
    then(state, changed("w0", node="a", phase="Running", deleting=NOW), budget(0))
    assert failed(advance(state, 100_000)) == {}
    land(state, "x-1", "n1", 100_000)
    assert step(state, "x-2") == "held", "the budget is counted anew only now"
    then(state, budget(1))
    assert evicts(advance(state, 101_000)) == ["x-2"]


def test_a_budget_that_stays_at_zero_ends_it_when_time_is_up_that_counts_from_the_last_landing():
    state = whole(2, max_unavailable=1)
    advance(state)
    hold(state, "x-1", "x-2")
    then(state, budget(0, "app"), time=NOW + 100_000)
    then(state, pod("p2", node="a", owner=OWNER, labels={"app": "app"}), time=NOW + 100_000)
    land(state, "x-1", "n1", 100_000)
    assert step(state, "x-2") == "held"
    assert failed(advance(state, 129_999)) == {}
    assert migration.overdue(state) == NOW + 130_000
    assert failed(advance(state, 130_000)) == {"x-2": "Budget"}


def test_nobody_leaves_where_another_of_the_node_must_not_go_by_then():
    state = world(
        pod_group("g", need=1), member("m1", "g", node="a", owner=replica_of("m")), member("m2", "g", node="b", owner=replica_of("m")),
        plan("x", move("x-1", "p1"), move("x-2", "m1"), whole=True),
    )  # fmt: skip
    advance(state)
    then(state, changed("m2", node="b", phase="Running", ready=False))
    assert evicts(hold(state, "x-1", "x-2")) == []
    assert failed(advance(state, 30_000)) == {"x-2": "GangMinimum", "x-1": "Whole"}


def test_who_has_left_by_himself_keeps_nobody():
    state = whole()
    advance(state)
    create(state, *ALL)
    then(state, e.PodGone("p2"), changed("p3", node="a", phase="Succeeded"))
    session_answers(state)
    said = advance(state)
    assert failed(said) == {"x-2": "PodGone", "x-3": "PodFinished"}
    assert evicts(said) == ["x-1"]


def test_when_one_is_back_on_the_node_since_its_target_was_lost_the_others_stay():
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2", target="d"), whole=True), max_unavailable=1)
    advance(state)
    assert evicts(hold(state, "x-1", "x-2")) == ["x-1"]
    then(state, changed("p1", node="a", phase="Running", deleting=NOW))
    advance(state)
    then(state, node("b", cpu=8_000, unschedulable=True))
    advance(state)
    assert state.migrations["x-1"].back
    create(state, "x-1")
    then(state, e.PodGone("p1"), pod("n1", owner=OWNER))
    session_answers(state)
    assert state.placed["n1"].node == "a"
    then(state, changed("n1", node="a", phase="Running", ready=True))
    assert failed(advance(state)) == {"x-1": "TargetLost", "x-2": "Whole"}


def test_who_has_left_and_did_not_come_up_keeps_nobody():
    state = whole(max_unavailable=1)
    advance(state)
    hold(state, *ALL)
    then(state, e.PodGone("p1"))
    advance(state)
    assert failed(advance(state, 300_000)) == {}
    assert step(state, "x-1") == "not_recreated"
    assert step(state, "x-2") == "evicting"


def test_who_waits_for_others_holds_when_all_others_do():
    """x-3 takes what y leaves: it could not hold first."""
    state = world(
        pod("y", node="b", owner=replica_of("y")),
        plan("x", move("x-0", "y", "b", "c"), move("x-1", "p1"), move("x-2", "p2", target="d"), move("x-3", "p3", after=("x-0",)), whole=True),
    )  # fmt: skip
    assert begun(advance(state)) == ["x-0", "x-1", "x-2"]
    assert evicts(hold(state, "x-0")) == ["x-0"]
    land(state, "x-0", "y1")
    assert step(state, "x-3") == "planned"
    assert evicts(hold(state, "x-1", "x-2")) == ["x-1"]
    assert step(state, "x-3") == "holding"


def test_who_waits_for_others_stays_when_one_of_the_node_does():
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2"), move("x-3", "p3", after=("x-1",)), whole=True), max_unavailable=1)
    advance(state)
    assert evicts(hold(state, "x-1", "x-2")) == ["x-1"]
    assert evicts(land(state, "x-1", "n1")) == ["x-2"]
    refused(state, "x-2")
    assert failed(advance(state)) == {"x-3": "Whole"}


def test_a_node_begins_when_all_of_it_may_be_under_way_and_what_is_planned_later_does_not_overtake_it():
    state = world(
        *(pod(f"q{i}", node="c", owner=replica_of(f"q{i}")) for i in range(2)),
        plan("v", move("v-1", "q0", "c", "d")),
        plan("x", move("x-1", "p1"), move("x-2", "p2"), whole=True), plan("y", move("y-1", "q1", "c", "d")), concurrent=2,
    )  # fmt: skip
    assert begun(advance(state)) == ["v-1"]
    hold(state, "v-1")
    assert begun(land(state, "v-1", "n0")) == ["x-1", "x-2"]


def test_other_nodes_of_the_plan_go_on():
    state = world(
        pod("q", node="c", owner=replica_of("q")), plan("x", move("x-1", "p1"), move("x-2", "p2"), move("x-3", "q", "c", "d"), whole=True)
    )  # fmt: skip
    advance(state)
    hold(state, "x-1", "x-3")
    run(state, decider, c.ReportHold(NOW, "x-2", "forbidden"))
    assert failed(advance(state)) == {"x-1": "Whole"}
    assert step(state, "x-3") == "evicting"


@pytest.mark.parametrize("said", [False, True])
def test_the_plan_says_that_it_was_made_with_whole_nodes(said):
    args = config.DefragmentationArgs(
        resourceType="cpu", planner="optimizing", objective="nodes", protectionThresholds={}, wholeNodes=said
    )  # fmt: skip
    state = given(
        configured("migration", config.MigrationConfig(defragmentation=args)), node("a"), node("b"), shape("s"), pod("p", node="a", owner=OWNER),
        *[pod(f"q{i}", node="b", owner=replica_of(f"q{i}")) for i in range(2)],
    )  # fmt: skip
    (planned,) = run(state, decider, c.Defragment(NOW, "interval", "k"))
    assert planned.moves
    assert planned.whole is said
    assert load(dump(state)).plans["k"].planned.whole is said
