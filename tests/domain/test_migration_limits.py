"""How many at once and how fast; budgets that say no for a while; plans that are cancelled (issue 5, "Migration")."""

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
    owed,
    plan,
    session_answers,
    step,
    terminate,
    through,
    world,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import OwnerRef
from restow.domain import config, migration
from restow.domain.decider import Rejected
from restow.domain.disruption import Spare
from restow.domain.effects import AbortEviction, DeleteReservation, Evict
from restow.domain.records import Step

MINUTE = 60_000


def four(**conf):
    """Four pods of one controller, moved off one node."""
    return world(plan("x", *(move(f"x-{i}", f"p{i}") for i in range(1, 5))), **conf)


# -- per namespace and workload --------------------------------------------------------------------------------------


def test_so_many_of_a_namespace_are_moved_at_once():
    other = pod("q1", node="a", owner=OWNER, namespace="other")
    from msgspec.structs import replace

    state = world(other, plan("x", move("x-1", "p1"), move("x-2", "p2"), replace(move("x-3", "q1"), namespace="other")), per_namespace=1)
    assert begun(advance(state)) == ["x-1", "x-3"]
    assert begun(through(state, "x-1", "n1")) == ["x-2"]


def test_of_a_workload_no_more_are_away_than_may_be():
    state = four(max_unavailable=2)
    assert begun(advance(state)) == ["x-1", "x-2"]
    assert decider.due(state, NOW) is None
    assert begun(through(state, "x-1", "n1")) == ["x-3"]


def test_pods_of_all_replica_sets_of_a_deployment_are_one_workload():
    web = OwnerRef("Deployment", "web", "uid-web", "apps/v1")
    new = replica_of("new")
    state = world(
        e.WorkloadObserved("uid-rs", "ReplicaSet", "default", "rs", web),
        e.WorkloadObserved("uid-new", "ReplicaSet", "default", "new", web),
        pod("n1", node="b", owner=new, ready=False),
        plan("x", move("x-1", "p1"), move("x-2", "p2")),
        max_unavailable=2,
    )
    assert begun(advance(state)) == ["x-1"], "one of the other ReplicaSet is not ready"


def test_where_others_of_it_are_away_already_it_is_left_alone():
    """Nobody knows when they come back: the next plan finds it again."""
    state = world(pod("sick", node="b", owner=OWNER, ready=False), plan("x", move("x-1", "p1")), max_unavailable=1)
    assert failed(advance(state)) == {"x-1": "MaxUnavailable"}
    assert state.migrations["x-1"].message.startswith("1 other pods of its workload are not ready; allowed: 1")


def test_one_that_falls_ill_before_the_eviction_stops_it_until_it_is_well_or_time_is_up():
    state = four(max_unavailable=1)
    advance(state)
    create(state, "x-1")
    then(state, changed("p4", node="a", phase="Running", ready=False))
    session_answers(state)
    assert [type(event) for event in advance(state)] == [e.Held]
    assert owed(state) == []
    then(state, changed("p4", node="a", phase="Running", ready=True))
    assert evicts(advance(state)) == ["x-1"]
    ill = four(max_unavailable=1)
    advance(ill)
    create(ill, "x-1")
    then(ill, changed("p4", node="a", phase="Running", ready=False))
    session_answers(ill)
    advance(ill)
    assert failed(advance(ill, 30_000))["x-1"] == "MaxUnavailable"


def test_a_pod_that_finished_or_terminates_is_not_waited_for():
    state = world(
        pod("done", node="b", owner=OWNER, phase="Succeeded", ready=False),
        pod("going", node="b", owner=OWNER, ready=False, deleting=NOW),
        plan("x", move("x-1", "p1")),
        max_unavailable=1,
    )
    assert begun(advance(state)) == ["x-1"]


# -- gangs -----------------------------------------------------------------------------------------------------------


def gang(need: int, *ready: bool):
    members = [member(f"m{i}", "g", node="a", owner=OWNER, ready=ok) for i, ok in enumerate(ready, 1)]
    moves = [move(f"x-{i}", f"m{i}") for i, ok in enumerate(ready, 1) if ok]
    return world(pod_group("g", need=need), *members, plan("x", *moves))


def test_a_gang_keeps_its_minimum_ready():
    state = gang(2, True, True, True)
    assert begun(advance(state)) == ["x-1"]
    assert begun(through(state, "x-1", "n1")) == ["x-2"]
    assert begun(through(state, "x-2", "n2")) == ["x-3"]


def test_of_a_gang_without_a_spare_member_nobody_is_moved():
    state = gang(3, True, True, True)
    assert failed(advance(state)) == {"x-1": "GangMinimum", "x-2": "GangMinimum", "x-3": "GangMinimum"}
    assert state.migrations["x-1"].message == "2 other members of PodGroup default/g are ready; its minMember is 3"


def test_members_that_are_not_ready_do_not_count():
    assert set(failed(advance(gang(2, True, True, False))).values()) == {"GangMinimum"}


def test_a_member_that_is_lost_before_the_eviction_stops_it():
    state = gang(2, True, True, True)
    advance(state)
    create(state, "x-1")
    then(state, e.PodGone("m2"))
    session_answers(state)
    events = advance(state)
    assert evicts(events) == []
    assert step(state, "x-1") is Step.HELD
    assert failed(advance(state, 30_000))["x-1"] == "GangMinimum"


# -- pods that are only evicted ----------------------------------------------------------------------------------------


def failed_pod(name: str, owner=OWNER):
    return pod(name, node="a", owner=owner, phase="Failed", ready=False)


def removal(id: str, uid: str):
    return move(id, uid, target="")


def test_pods_that_are_only_evicted_count_for_their_workload_as_those_that_move_do():
    state = world(failed_pod("f1"), failed_pod("f2"), plan("x", removal("x-1", "f1"), removal("x-2", "f2"), move("x-3", "p1")), max_unavailable=2)
    advance(state)
    assert [step(state, id) for id in ("x-1", "x-2", "x-3")] == [Step.EVICTING, Step.EVICTING, Step.PLANNED]
    assert decider.due(state, NOW) is None
    then(state, e.PodGone("f1"))
    assert begun(advance(state)) == ["x-3"]


def test_and_they_wait_for_those_that_move():
    state = world(failed_pod("f1"), plan("x", move("x-1", "p1"), removal("x-2", "f1")), max_unavailable=1)
    advance(state)
    assert step(state, "x-2") is Step.PLANNED
    through(state, "x-1", "n1")
    assert step(state, "x-2") is Step.EVICTING


def test_of_another_workload_they_do_not():
    """Pods that are only evicted are not one workload together."""
    state = world(
        failed_pod("f1", replica_of("one")), failed_pod("f2", replica_of("two")), pod("bare", node="a"),
        plan("x", removal("x-1", "f1"), removal("x-2", "f2"), removal("x-3", "bare")), max_unavailable=1,
    )  # fmt: skip
    assert evicts(advance(state)) == ["x-1", "x-2", "x-3"]


def test_where_others_of_its_workload_are_not_ready_nothing_is_evicted_and_nothing_waits():
    state = world(failed_pod("f1"), pod("sick", node="b", owner=OWNER, ready=False), plan("x", removal("x-1", "f1")), max_unavailable=1)
    assert failed(advance(state)) == {"x-1": "MaxUnavailable"}
    assert not state.backlog, "the next plan finds it again"


def test_a_gang_keeps_its_minimum_also_from_evictions_alone():
    """A bare pod that runs may be evicted by an annotation."""
    members = [member(f"m{i}", "g", node="a") for i in (1, 2, 3)]
    state = world(pod_group("g", need=2), *members, plan("x", removal("x-1", "m1"), removal("x-2", "m2")))
    assert evicts(advance(state)) == ["x-1"]
    assert step(state, "x-2") is Step.PLANNED
    then(state, e.PodGone("m1"))
    assert failed(advance(state)) == {"x-2": "GangMinimum"}


def test_a_member_that_has_ended_takes_nothing_from_its_gang():
    members = [member("m1", "g", node="a"), member("m2", "g", node="a", phase="Failed", ready=False)]
    state = world(pod_group("g", need=2), *members, plan("x", removal("x-1", "m2")))
    assert evicts(advance(state)) == ["x-1"]


# -- evictions a minute ----------------------------------------------------------------------------------------------


def test_so_many_pods_are_evicted_a_minute():
    state = four(evictions_per_minute=2)
    assert begun(advance(state)) == ["x-1", "x-2"]
    for id in ("x-1", "x-2"):
        through(state, id, f"n{id}")
    assert begun(advance(state)) == []
    assert decider.deadline(state) == NOW + MINUTE
    assert decider.due(state, NOW + MINUTE - 1) is None
    assert begun(advance(state, MINUTE)) == ["x-3", "x-4"]


def test_a_clock_that_is_put_back_by_an_hour_stops_no_evictions_for_an_hour():
    state = four(evictions_per_minute=2)
    later = 3_600_000
    advance(state, later)
    assert evicts(hold(state, "x-1", "x-2", "x-3", "x-4", after=later)) == ["x-1", "x-2"]
    assert decider.due(state, NOW + later + 30_000) is None, "the clock is right"
    assert evicts(advance(state)) == ["x-3", "x-4"]


def test_a_restart_forgets_none_of_them():
    from restow.domain import snapshot

    state = four(evictions_per_minute=2)
    advance(state)
    for id in ("x-1", "x-2"):
        through(state, id, f"n{id}")
    loaded = snapshot.load(snapshot.dump(state))
    assert loaded.evictions == {"x-1": NOW, "x-2": NOW}
    assert decider.due(loaded, NOW + MINUTE - 1) is None
    assert decider.due(loaded, NOW + MINUTE) == c.Advance(NOW + MINUTE)


def test_a_stricter_limit_holds_for_what_is_under_way():
    from domain.build import configured

    state = four(evictions_per_minute=4)
    advance(state)
    through(state, "x-1", "n1")
    then(state, configured("migration", config.MigrationConfig(evictions_per_minute=1)))
    assert evicts(hold(state, "x-2")) == []
    assert step(state, "x-2") is Step.HELD
    assert failed(advance(state, 30_000))["x-2"] == "RateLimit"


# -- budgets ---------------------------------------------------------------------------------------------------------


def evicting(**conf):
    state = world(plan("x", move("x-1", "p1")), **conf)
    advance(state)
    hold(state, "x-1")
    return state


def test_a_budget_that_refuses_is_asked_again_for_a_while():
    state = evicting(budget_patience=90_000)
    refused = c.ReportEviction(NOW + 89_999, "x-1", "Budget", "minAvailable")
    assert run(state, decider, refused) == []
    assert owed(state) == [Evict("x-1")]
    assert advance(state, 89_999) == []
    refused = c.ReportEviction(NOW + 90_000, "x-1", "Budget", "minAvailable")
    assert run(state, decider, refused) == [e.Aborting("x-1", "Budget", "minAvailable")]
    assert owed(state) == [AbortEviction("x-1")]


def test_the_deadline_of_the_eviction_leaves_the_budget_its_time():
    assert evicting(budget_patience=90_000).migrations["x-1"].deadline == NOW + 90_000
    assert evicting(budget_patience=10_000).migrations["x-1"].deadline == NOW + 60_000


def test_an_eviction_that_is_refused_for_ever_is_rolled_back():
    state = evicting(budget_patience=90_000)
    assert run(state, decider, c.ReportEviction(NOW, "x-1", "Refused", "403 Forbidden")) == [e.Aborting("x-1", "Refused", "403 Forbidden")]
    assert run(state, decider, c.ReportEviction(NOW, "x-1", "Aborted")) == [e.MigrationFailed("x-1", "Refused", "403 Forbidden")]
    assert owed(state) == [DeleteReservation("hold-x-1")]


# -- cancelling ------------------------------------------------------------------------------------------------------


def five_steps():
    """One plan: evicted, evicting, held before its eviction, holding, and not begun."""
    state = world(pod("p5", node="a", owner=OWNER), plan("x", *(move(f"x-{i}", f"p{i}") for i in range(1, 6))), concurrent=4)
    advance(state)
    hold(state, "x-1", "x-2")
    terminate(state, "p1")
    advance(state)
    create(state, "x-3")
    assert [step(state, f"x-{i}") for i in range(1, 6)] == [Step.EVICTED, Step.EVICTING, Step.HOLDING, Step.HOLDING, Step.PLANNED]
    return state


def test_what_is_not_evicted_yet_of_a_cancelled_plan_stays_and_the_rest_goes_on():
    state = five_steps()
    assert run(state, decider, c.CancelPlan(NOW, "x", "not today")) == [e.PlanCancelled("x", "not today")]
    assert decider.due(state, NOW) == c.Advance(NOW)
    events = advance(state)
    assert failed(events) == {"x-3": "Cancelled", "x-4": "Cancelled", "x-5": "Cancelled"}
    assert e.Aborting("x-2", "Cancelled", "not today") in events
    assert set(owed(state)) == {AbortEviction("x-2"), DeleteReservation("hold-x-3")}
    run(state, decider, c.ReportEviction(NOW, "x-2", "Aborted"))
    assert (step(state, "x-2"), state.migrations["x-2"].reason) == (Step.FAILED, "Cancelled")
    land(state, "x-1", "n1")
    assert step(state, "x-1") is Step.LANDED
    session_answers(state)
    assert state.held_on == {}


def test_a_late_eviction_of_a_cancelled_move_counts():
    state = five_steps()
    run(state, decider, c.CancelPlan(NOW, "x"))
    advance(state)
    terminate(state, "p2")
    assert [type(event) for event in advance(state)] == [e.Evicted]
    land(state, "x-1", "n1")
    land(state, "x-2", "n2")
    assert step(state, "x-2") is Step.LANDED


def test_all_plans_are_cancelled_where_none_is_named():
    state = world(plan("x", move("x-1", "p1")), plan("y", move("y-1", "p2")), plan("z"))
    assert run(state, decider, c.CancelPlan(NOW)) == [e.PlanCancelled("x", "cancelled by hand"), e.PlanCancelled("y", "cancelled by hand")]
    assert set(failed(advance(state)).values()) == {"Cancelled"}
    with pytest.raises(Rejected, match="no plan is under way"):
        run(state, decider, c.CancelPlan(NOW))


@pytest.mark.parametrize(
    ("which", "said"),
    [("w", "there is no plan 'w'; allowed: one of x"), ("z", "plan 'z' is over; allowed: one of x"), ("x", "plan 'x' is cancelled already: why")],
)
def test_there_must_be_something_to_cancel(which, said):
    state = world(plan("x", move("x-1", "p1")), plan("z"))
    if which == "x":
        then(state, e.PlanCancelled("x", "why"))
    with pytest.raises(Rejected, match=said):
        run(state, decider, c.CancelPlan(NOW, which))


@pytest.mark.parametrize("name", ["per_namespace", "evictions_per_minute", "budget_patience"])
def test_limits_below_nothing_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}: -1; allowed: 0"):
        migration.check(config.MigrationConfig(**{name: -1}))


def test_a_node_that_comes_back_is_no_reason_to_begin_twice():
    state = four(concurrent=1)
    advance(state)
    then(state, node("b"))
    assert advance(state) == []


# -- gentle by default (RULES G-15) --------------------------------------------------------------------------------------


GENTLE = {name: getattr(config.MigrationConfig(), name) for name in ("max_unavailable", "evictions_per_minute")}


def test_by_default_one_pod_of_a_small_workload_moves_at_a_time():
    state = four(**GENTLE)
    assert begun(advance(state)) == ["x-1"]
    assert evicts(hold(state, "x-1")) == ["x-1"]
    for done, (id, then_next) in enumerate(zip(["x-1", "x-2", "x-3"], ["x-2", "x-3", "x-4"], strict=True)):
        events = land(state, id, f"n{done}")
        assert begun(events) == [then_next]
        assert evicts(hold(state, then_next)) == [then_next]


@pytest.mark.parametrize(("pods", "at_once"), [(4, 1), (10, 1), (19, 1), (20, 2), (39, 3)])
def test_by_default_a_tenth_of_a_workload_moves_at_a_time_rounded_down(pods, at_once):
    nodes = [node(name, cpu=64_000) for name in "abcd"]
    state = given(
        configured("migration", config.MigrationConfig()), *nodes, shape("s"), *[pod(f"p{i}", node="a", owner=OWNER) for i in range(pods)],
        plan("x", *[move(f"x-{i}", f"p{i}") for i in range(6)][:pods]),
    )  # fmt: skip
    assert len(begun(advance(state))) == at_once


def test_by_default_no_more_than_sixty_pods_are_evicted_a_minute():
    nodes = [node(name, cpu=640_000, memory=1 << 50, pods=1_000) for name in "abcd"]
    owners = [replica_of(f"o{i}") for i in range(80)]
    state = given(
        configured("migration", config.MigrationConfig(concurrent=100, per_node=100)), *nodes, shape("s"),
        *[pod(f"p{i}", node="a", owner=o) for i, o in enumerate(owners)], plan("x", *[move(f"x-{i}", f"p{i}") for i in range(80)]),
    )  # fmt: skip
    began = begun(advance(state))
    assert len(evicts(hold(state, *began))) == 60 == len(began)


def test_a_workload_that_lacks_a_pod_is_left_alone_by_default():
    state = world(pod("sick", node="b", owner=OWNER, ready=False), plan("x", move("x-1", "p1")), **GENTLE)
    assert failed(advance(state)) == {"x-1": "MaxUnavailable"}


@pytest.mark.parametrize("said", ["10", "0%", "101%", "-1%", "x%", "%", "1.5%", -1, "٣%"])
def test_max_unavailable_is_a_number_or_a_share(said):
    with pytest.raises(ValueError, match=r"max_unavailable: .*; allowed: a number of pods, 0 \(for no bound\), or a share"):
        migration.check(config.MigrationConfig(max_unavailable=said))
    for good in (0, 3, "1%", "100%"):
        migration.check(config.MigrationConfig(max_unavailable=good))


# -- StatefulSets that make their pods in order ------------------------------------------------------------------------------

DB = OwnerRef("StatefulSet", "db", "uid-db", "apps/v1")
PARALLEL = e.WorkloadObserved("uid-db", "StatefulSet", "default", "db", parallel=True)


def ordered(*more: e.Event, **conf):
    return world(*[pod(f"db-{i}", node="a", owner=DB) for i in range(3)], *more, **conf)


@pytest.mark.parametrize("most", [0, "100%"])
def test_a_pod_of_a_set_made_in_order_stays_while_another_one_is_not_ready(most):
    """Its controller makes none while one before it is not ready: it would be evicted, and not made again."""
    state = ordered(changed("db-0", node="a", phase="Running", ready=False), plan("x", move("x-1", "db-2")), max_unavailable=most)
    assert Spare.planning(state).why_not("db-2").startswith("MaxUnavailable: 1 other pods of its workload are not ready; allowed: 1 in all, with those that move: its StatefulSet")
    assert failed(advance(state)) == {"x-1": "MaxUnavailable"}


def test_pods_of_a_set_made_in_order_are_moved_one_at_a_time():
    state = ordered(plan("x", *[move(f"x-{i}", f"db-{i}") for i in range(3)]))
    assert begun(advance(state)) == ["x-0"]
    hold(state, "x-0")
    then(state, changed("db-0", node="a", phase="Running", deleting=NOW))
    advance(state)
    then(state, e.PodGone("db-0"), pod("db-0", uid="again", owner=DB))
    session_answers(state)
    assert begun(advance(state)) == []
    then(state, changed("again", node="b", phase="Running", ready=True))
    assert begun(advance(state)) == ["x-1"]


def test_pods_of_a_set_that_makes_them_at_once_are_moved_by_the_policys_word():
    state = ordered(PARALLEL, changed("db-0", node="a", phase="Running", ready=False), plan("x", move("x-1", "db-1"), move("x-2", "db-2")))
    assert begun(advance(state)) == ["x-1", "x-2"]
