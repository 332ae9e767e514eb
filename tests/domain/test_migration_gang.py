"""A gang is moved as one or not at all, where whoever made it starts it again: all places are held before anybody leaves (RULES G-11)."""

import pytest
from domain.build import (
    NOW,
    changed,
    configured,
    given,
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
    advance,
    create,
    decider,
    evicts,
    failed,
    move,
    plan,
    session_answers,
    step,
    terminate,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector, OwnerRef
from restow.domain import config, hooks, session
from restow.domain.decider import Rejected
from restow.domain.migration.eviction import may_be_tried
from restow.domain.records import Step
from restow.domain.snapshot import dump, load

IN_GROUP = {"scheduling.k8s.io/group-name": "g"}
AGAIN = {"restow.dev/movable": "gang"}
OWNER = OwnerRef("Trainer", "t", "uid-t", "ml.example/v1")
"""Of whom nobody knows what it does when a pod of it is evicted."""
MOVES = ["x-1", "x-2", "x-3"]


def gang(*more: e.Event, annotations=AGAIN, group=None, owner=OWNER, **conf):
    """Pods g1 to g3 of a gang that needs all three: two on a, one on b. Free beside them are c, d and what is left of a and b."""
    members = [pod(f"g{i}", node=on, owner=owner, labels={"app": "g"}, annotations=IN_GROUP | annotations) for i, on in ((1, "a"), (2, "a"), (3, "b"))]
    return given(
        configured("migration", config.MigrationConfig(**(BOLD | conf))), e.Synced("podgroups.scheduling.volcano.sh", "1"),
        *[node(name, cpu=2_000) for name in "abcd"], shape("s"), pod_group("g", need=3, annotations=group or {}), *members, *more,
    )  # fmt: skip


def budget(allowed: int) -> e.BudgetObserved:
    return e.BudgetObserved("default", "w", "uid-w", LabelSelector({"app": "g"}), allowed)


def moves(state) -> e.Planned:
    (planned,) = run(state, decider, c.MoveGang(NOW, "x", "default/g"))
    return planned


def held(state, *ids: str) -> list[e.Event]:
    create(state, *ids)
    session_answers(state)
    return advance(state)


def test_a_plan_moves_all_of_a_gang_each_to_a_node_beside_what_the_gang_has():
    planned = moves(gang())
    assert planned.gang == "default/g"
    assert [(m.pod, m.source) for m in planned.moves] == [("g1", "a"), ("g2", "a"), ("g3", "b")]
    assert all(m.target != m.source for m in planned.moves)


@pytest.mark.parametrize("how", [{"annotations": {}, "group": AGAIN}, {"annotations": AGAIN}])
def test_it_is_said_on_the_group_or_on_its_pods(how):
    assert len(moves(gang(**how)).moves) == 3


@pytest.mark.parametrize("said", [{}, {"restow.dev/movable": "true"}])
def test_where_nobody_says_that_it_starts_again_it_stays(said):
    with pytest.raises(Rejected, match=r'pod g1: .*allowed: .*restow.dev/movable: "(gang|true)"'):
        moves(gang(annotations=said))


def test_a_gang_that_starts_again_is_no_reason_to_move_one_of_its_pods():
    with pytest.raises(Rejected, match="nobody knows"):
        when(gang(), decider, c.MovePod(NOW, "m", "g1"))
    with pytest.raises(Rejected, match="minMember"):
        when(gang(owner=replica_of("rs")), decider, c.MovePod(NOW, "m", "g1"))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ([pod("g4", owner=OWNER, annotations=IN_GROUP | AGAIN)], "1 of its 4 pods do not run"),
        ([pod("g3", node="b", owner=OWNER, annotations=IN_GROUP | AGAIN | {"karpenter.sh/do-not-disrupt": "true"})], "pod g3: its annotation karpenter.sh/do-not-disrupt"),
        ([pod("g3", node="b", owner=OWNER, annotations=IN_GROUP | {"restow.dev/movable": "false"})], "pod g3: restow.dev/movable: false"),
        ([pod("g3", node="b", annotations=IN_GROUP | AGAIN)], "pod g3: no controller would create it again"),
        ([e.WorkloadObserved("uid-t", "Job", "default", "t", busy="suspended")], "Job t is suspended"),
        ([budget(2)], "the disruption budget default/w allows 2 evictions now, and 3 pods of the gang would need one"),
        ([node("c", cpu=500), node("d", cpu=500)], "none of the"),
    ],
)
def test_one_pod_that_stays_keeps_all_of_them(more, why):
    with pytest.raises(Rejected, match=why):
        moves(gang(*more))


def test_there_is_nothing_to_move_of_a_group_without_pods():
    with pytest.raises(Rejected, match="PodGroup default/nobody has no pods"):
        run(gang(), decider, c.MoveGang(NOW, "x", "default/nobody"))


def test_nobody_leaves_before_all_hold_and_then_all_leave_in_one_decision():
    state = gang()
    moves(state)
    assert sorted(one.migration for one in advance(state) if isinstance(one, e.Holding)) == MOVES
    for some in (["x-1"], ["x-2"]):
        assert evicts(held(state, *some)) == []
    assert evicts(held(state, "x-3")) == MOVES
    assert all(may_be_tried(state, state.migrations[id]) for id in MOVES)


@pytest.mark.parametrize("left", [(), (e.PodGone("g3"),)], ids=["one more", "instead of g3"])
@pytest.mark.parametrize("on", ["c", None], ids=["runs", "waits"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_pod_that_the_gang_has_got_since_the_plan_was_made_keeps_all_of_them(left, on, begun):
    """Nobody holds a slot for it: a plan may have waited for a person for an hour."""
    state = gang()
    moves(state)
    if begun:
        advance(state)
        held(state, "x-1")
    then(state, *left, pod("g4", node=on, owner=OWNER, labels={"app": "g"}, annotations=IN_GROUP | AGAIN))
    events = [*advance(state), *advance(state)]
    assert not evicts(events)
    assert {one.reason for one in events if isinstance(one, e.MigrationFailed)} <= {"Whole", "PodGone"}
    assert "its gang has a pod now that the plan does not move: g4" in {one.message for one in events if isinstance(one, e.MigrationFailed)}
    assert not state.active
    assert not state.backlog


def test_a_pod_that_comes_when_the_gang_leaves_is_no_reason_to_stop():
    state = gang()
    moves(state)
    advance(state)
    assert evicts(held(state, *MOVES)) == MOVES
    then(state, pod("g4", owner=OWNER, labels={"app": "g"}, annotations=IN_GROUP | AGAIN))
    assert not failed(advance(state))


def test_a_hold_that_is_lost_before_the_first_eviction_rolls_all_of_them_back():
    state = gang()
    moves(state)
    advance(state)
    assert evicts(held(state, "x-1", "x-2")) == []
    then(state, node("c", unschedulable=True), node("d", unschedulable=True))
    assert set(failed(advance(state))) == set(MOVES)
    assert not [id for id in MOVES if step(state, id) is not Step.FAILED]


def test_a_budget_that_no_longer_lets_all_of_them_go_keeps_all_of_them():
    state = gang(budget(3))
    moves(state)
    advance(state)
    then(state, budget(2))
    assert evicts(held(state, *MOVES)) == []
    then(state, budget(3))
    assert evicts(advance(state)) == MOVES


def test_a_budget_that_others_of_ours_use_up_is_waited_for_as_long_as_these_take():
    state = gang(budget(3), pod("w", node="c", owner=replica_of("w"), labels={"app": "g"}), plan("y", move("y-1", "w", "c", "d")))
    advance(state)
    create(state, "y-1")
    moves(state)
    assert failed(advance(state)) == {}
    assert evicts(held(state, *MOVES)) == ["y-1"]
    then(state, changed("w", node="c", phase="Running", deleting=NOW), budget(2))
    assert failed(advance(state, 100_000)) == {}
    then(state, pod("v", owner=replica_of("w"), labels={"app": "g"}))
    session_answers(state, 100_000)
    then(state, e.PodGone("w"), changed("v", node="d", phase="Running", ready=True), time=NOW + 100_000)
    advance(state, 100_000)
    assert step(state, "y-1") is Step.LANDED
    assert failed(advance(state, 114_000)) == {}
    then(state, budget(3), time=NOW + 114_000)
    assert evicts(advance(state, 114_000)) == MOVES


def test_a_budget_that_stays_tight_rolls_all_of_them_back():
    state = gang(budget(3))
    moves(state)
    advance(state)
    then(state, budget(0))
    assert evicts(held(state, *MOVES)) == []
    assert failed(advance(state, after=60_000)) == dict.fromkeys(MOVES, "Budget")
    assert {step(state, id) for id in MOVES} == {Step.FAILED}


def test_a_gang_of_more_pods_than_may_leave_a_minute_waits_for_a_minute_without_any():
    state = gang(pod("p", node="c", owner=replica_of("rs")), max_unavailable=0, evictions_per_minute=2)
    moves(state)
    advance(state)
    assert evicts(held(state, *MOVES)) == MOVES


def test_limits_of_single_pods_are_none_of_a_gang():
    state = gang(per_node=1, per_namespace=1, concurrent=2, max_unavailable=1)
    moves(state)
    advance(state)
    assert evicts(held(state, *MOVES)) == MOVES


def test_all_successors_land_on_what_was_held_for_them_at_once():
    state = gang(owner=replica_of("rs"))
    planned = moves(state)
    advance(state)
    held(state, *MOVES)
    terminate(state, "g1", "g2", "g3")
    advance(state)
    for i in (1, 2):
        then(state, pod(f"n{i}", owner=replica_of("rs"), labels={"app": "g"}, annotations=IN_GROUP | AGAIN))
        session_answers(state)
        assert not state.placed, "a gang that is not complete does not start"
    then(state, pod("n3", owner=replica_of("rs"), labels={"app": "g"}, annotations=IN_GROUP | AGAIN))
    run(state, session.decider, c.Schedule(NOW))
    assert sorted(state.placed[f"n{i}"].node for i in (1, 2, 3)) == sorted(m.target for m in planned.moves)
    then(state, *[e.PodGone(f"g{i}") for i in (1, 2, 3)])
    then(state, *[changed(f"n{i}", node=state.placed[f"n{i}"].node, phase="Running", ready=True) for i in (1, 2, 3)])
    advance(state)
    assert {step(state, id) for id in MOVES} == {Step.LANDED}


def test_an_eviction_that_is_refused_after_others_were_accepted_leaves_what_is_left_and_lands_the_others():
    state = gang(owner=replica_of("rs"))
    moves(state)
    advance(state)
    held(state, *MOVES)
    terminate(state, "g1")
    advance(state)
    run(state, decider, c.ReportEviction(NOW, "x-2", "Refused", "a webhook says no"))
    advance(state)
    assert {id: step(state, id) for id in MOVES} == {"x-1": Step.EVICTED, "x-2": Step.ABORTING, "x-3": Step.ABORTING}


def test_a_gang_that_its_owner_starts_again_at_the_first_eviction_goes_on():
    job = e.WorkloadObserved("uid-v", "Job", "default", "v", evicted="fatal", group="batch.volcano.sh")
    owner = OwnerRef("Job", "v", "uid-v", "batch.volcano.sh/v1alpha1")
    state = gang(job, owner=owner)
    moves(state)
    advance(state)
    assert evicts(held(state, *MOVES)) == MOVES
    terminate(state, "g1")
    then(state, e.WorkloadObserved("uid-v", "Job", "default", "v", evicted="fatal", busy="over", group="batch.volcano.sh"))
    advance(state)
    assert {step(state, id) for id in ("x-2", "x-3")} == {Step.EVICTING}
    terminate(state, "g2", "g3")
    advance(state)
    assert {step(state, id) for id in MOVES} == {Step.EVICTED}


def test_a_snapshot_in_the_middle_of_it_changes_nothing():
    state = gang()
    moves(state)
    advance(state)
    held(state, "x-1", "x-2")
    other = load(dump(state))
    assert evicts(held(other, "x-3")) == evicts(held(state, "x-3")) == MOVES


def asked_gang():
    """Each of its pods is to be asked; all places are held."""
    state = gang(annotations=AGAIN | {hooks.BEFORE: "annotation"})
    moves(state)
    advance(state)
    return state, held(state, *MOVES)


def says(state, number: int, after: int = 0, **answer: str) -> list[e.Event]:
    fact = state.fact_of(f"g{number}")
    then(state, pod(fact.name, node=state.node_of(fact.pod), owner=OWNER, labels=fact.labels, annotations={**fact.annotations, **answer}))
    return advance(state, after)


def test_all_workloads_of_a_gang_are_asked_together_and_it_leaves_when_the_last_has_agreed():
    state, events = asked_gang()
    assert [event.migration for event in events if isinstance(event, e.ConsentAsked)] == MOVES
    assert evicts([*says(state, 1, **{hooks.ACKNOWLEDGED: "x-1"}), *says(state, 2, **{hooks.ACKNOWLEDGED: "x-2"})]) == []
    assert evicts(says(state, 3, 60_000, **{hooks.ACKNOWLEDGED: "x-3"})) == MOVES


def test_one_workload_that_refuses_keeps_its_whole_gang():
    state, _ = asked_gang()
    says(state, 1, **{hooks.ACKNOWLEDGED: "x-1"})
    assert failed(says(state, 2, **{hooks.REFUSED: "x-2 no"})) == {"x-2": "WorkloadRefused", "x-1": "Whole", "x-3": "Whole"}
