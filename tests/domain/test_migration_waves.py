"""Moves of one plan in their order: waves, next legs; and two plans that want the same (DESIGN 5)."""

import pytest
from domain.build import GIB, NOW, changed, configured, given, node, pod, replica_of, run, shape, then
from domain.saga import (
    BOLD,
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
from restow.domain import config, session, snapshot
from restow.domain.effects import CreateHold
from restow.domain.migration.plan_order import STUCK
from restow.domain.records import Step

LAND = config.MigrationConfig().land_deadline

# -- waves -----------------------------------------------------------------------------------------------------------


def test_a_move_begins_only_when_all_before_it_have_landed():
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2"), move("x-3", "p3", target="c", after=("x-1", "x-2"))))
    assert begun(advance(state)) == ["x-1", "x-2"]
    assert begun(through(state, "x-1", "n1")) == []
    assert begun(through(state, "x-2", "n2")) == ["x-3"]
    through(state, "x-3", "n3")
    assert not state.active
    assert not state.backlog


def test_it_waits_until_the_pod_that_was_to_leave_has_left_its_node():
    """Landed says that the successor is ready, not that the old pod has gone."""
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2", after=("x-1",))))
    advance(state)
    assert begun(through(state, "x-1", "n1", gone=False)) == []
    assert step(state, "x-1") is Step.LANDED
    then(state, e.PodGone("p1"))
    assert begun(advance(state)) == ["x-2"]


def test_a_pod_that_terminates_for_ever_is_not_waited_for_for_ever():
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2", after=("x-1",))))
    advance(state)
    through(state, "x-1", "n1", gone=False)
    assert decider.deadline(state) == NOW + STUCK
    assert begun(advance(state, STUCK - 1)) == []
    assert begun(advance(state, STUCK)) == ["x-2"]


def test_what_was_to_come_after_a_move_that_did_not_land_fails_with_it_and_so_on():
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2", after=("x-1",)), move("x-3", "p3", after=("x-2",)), move("x-4", "p4")))
    advance(state)
    run(state, decider, c.ReportHold(NOW, "x-1", "forbidden"))
    events = advance(state)
    assert failed(events) == {"x-2": "After", "x-3": "After"}
    assert "x-1, which was to land first, ended as failed: HoldFailed" in state.migrations["x-2"].message
    assert step(state, "x-4") is Step.HOLDING


def test_moves_that_wait_for_each_other_end():
    state = world(plan("x", move("x-1", "p1", after=("x-2",)), move("x-2", "p2", after=("x-1",)), move("x-3", "p3")))
    assert begun(advance(state)) == ["x-3"]
    through(state, "x-3", "n3")
    assert {id: m.reason for id, m in state.migrations.items()} == {"x-1": "After", "x-2": "After", "x-3": ""}
    assert not state.backlog


def test_a_move_after_one_that_nobody_knows_fails():
    state = world(plan("x", move("x-1", "p1", after=("w-7",))))
    assert failed(advance(state)) == {"x-1": "After"}


# -- the next leg ----------------------------------------------------------------------------------------------------


def two_legs():
    return world(plan("x", move("x-1", "p1", "a", "b"), move("x-2", "", "b", "c", follows="x-1")))


def test_the_next_leg_moves_the_successor_on():
    state = two_legs()
    assert begun(advance(state)) == ["x-1"]
    assert state.migrations["x-2"].shape == "s"
    assert begun(through(state, "x-1", "n1")) == ["x-2"]
    assert (state.migrations["x-2"].move.pod, state.migrations["x-2"].move.name) == ("n1", "n1")
    assert state.victims == {"n1": "x-2"}
    through(state, "x-2", "n2")
    assert step(state, "x-2") is Step.LANDED
    assert state.node_of("n2") == "c"
    assert state.victims == state.followers == {}


def test_there_is_no_next_leg_where_the_first_did_not_land():
    state = two_legs()
    advance(state)
    then(state, e.PodGone("p1"))
    assert failed(advance(state)) == {"x-1": "PodGone", "x-2": "After"}
    assert state.followers == {}


def test_a_snapshot_knows_the_next_leg_and_who_came_first():
    state = two_legs()
    then(state, plan("y", move("y-1", "p1", target="d")))
    loaded = snapshot.load(snapshot.dump(state))
    for name in ("victims", "followers", "migrations", "backlog", "owned", "demand_slots", "group_moves", "left", "evictions"):
        assert getattr(loaded, name) == getattr(state, name), name


OTHER = replica_of("other")


def test_two_of_an_older_log_that_were_to_change_places_both_stay():
    """Until migration@5 their holds waited for each other's capacity. Who has not left does not leave, and nothing stays held."""
    state = given(
        configured("migration", config.MigrationConfig()), node("a", cpu=4_000), node("b", cpu=4_000), shape("p", cpu=4_000),
        pod("p1", "p", node="a", owner=OWNER), pod("q1", "p", node="b", owner=OTHER),
        plan("x", move("x-1", "p1", "a", "b", swap=True), move("x-2", "q1", "b", "a", swap=True)), e.Holding("x-1", NOW + 30_000), e.Holding("x-2", NOW + 30_000),
    )  # fmt: skip
    assert failed(hold(state, "x-1", "x-2")) == {"x-1": "NoCapacity", "x-2": "NoCapacity"}
    assert state.active == {}


# -- several plans ---------------------------------------------------------------------------------------------------


def test_of_two_plans_that_want_the_same_pod_the_first_has_it():
    state = world(plan("x", move("x-1", "p1")), plan("y", move("y-1", "p1", target="c"), move("y-2", "p2", target="c")))
    events = advance(state)
    assert begun(events) == ["x-1", "y-2"]
    assert failed(events) == {"y-1": "Taken"}
    assert state.migrations["y-1"].message == "the pod is part of migration x-1, which was planned first"
    assert state.victims == {"p1": "x-1", "p2": "y-2"}
    assert CreateHold("y-1") not in owed(state)
    through(state, "x-1", "n1")
    assert step(state, "x-1") is Step.LANDED


def test_a_pod_that_is_on_its_way_already_is_nobody_elses():
    state = world(plan("x", move("x-1", "p1")))
    advance(state)
    hold(state, "x-1")
    terminate(state, "p1")
    advance(state)
    then(state, pod("n1", owner=OWNER))
    run(state, session.decider, c.Schedule(NOW))
    then(state, plan("y", move("y-1", "n1", "b", "c")))
    assert failed(advance(state)) == {"y-1": "Taken"}
    assert state.victims == {"p1": "x-1"}


def big_moves():
    """A target with capacity for one."""
    return given(
        configured("migration", config.MigrationConfig(**BOLD)), node("a"), node("b", cpu=5_000), shape("s", cpu=4_000),
        pod("p1", node="a", owner=OWNER), pod("p2", node="a", owner=OWNER),
    )  # fmt: skip


def test_of_two_plans_that_want_the_same_capacity_the_first_has_it_before_any_effect():
    state = big_moves()
    then(state, plan("x", move("x-1", "p1")), time=NOW)
    then(state, plan("y", move("y-1", "p2")), time=NOW + 1)
    events = advance(state)
    assert begun(events) == ["x-1"]
    assert failed(events) == {"y-1": "NoCapacity"}


def test_also_where_the_first_has_to_wait_for_its_wave():
    """What leaves the target frees capacity for the earlier plan, and not for the later one."""
    state = given(
        configured("migration", config.MigrationConfig(**BOLD)), node("a"), node("b", cpu=5_000), node("c"), shape("s", cpu=4_000),
        shape("small", cpu=1_000), pod("p1", node="a", owner=OWNER), pod("b1", node="b", owner=OWNER),
        pod("q", "small", node="a", owner=OWNER), pod("r", "small", node="a", owner=OWNER),
    )  # fmt: skip
    then(state, plan("x", move("x-1", "b1", "b", "c"), move("x-2", "p1", "a", "b", after=("x-1",))))
    then(state, plan("y", move("y-1", "q", "a", "b"), move("y-2", "r", "a", "b")), time=NOW + 1)
    events = advance(state)
    assert begun(events) == ["x-1", "y-1"]
    assert failed(events) == {"y-2": "NoCapacity"}
    hold(state, "y-1")
    through(state, "x-1", "n1")
    assert step(state, "x-2") is Step.HOLDING


# -- what is not moved, whoever asks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [{}, {"owner": replica_of("ds", "DaemonSet")}, {"static": True, "owner": OWNER}], ids=["bare", "DaemonSet", "static"]
)
def test_what_nobody_would_make_again_is_never_moved(more):
    state = world(pod("q", node="a", **more), plan("x", move("x-1", "q")))
    assert failed(advance(state)) == {"x-1": "NotMovable"}


def test_a_pod_that_changes_its_owner_is_left_where_it_is():
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2")))
    then(state, pod("p1", node="a", owner=replica_of("adopter")))
    assert failed(advance(state)) == {"x-1": "OwnerChanged"}
    hold(state, "x-2")
    then(state, pod("p2", node="a"))
    (event,) = advance(state)
    assert (type(event), event.reason) == (e.Aborting, "NotMovable")
    run(state, decider, c.ReportEviction(NOW, "x-2", "Aborted"))
    assert step(state, "x-2") is Step.FAILED


def test_a_target_may_vanish_at_every_step():
    lost = e.NodeGone("b")
    waiting = world(plan("x", move("x-1", "p1")))
    then(waiting, lost)
    assert failed(advance(waiting)) == {"x-1": "TargetLost"}
    holding = world(plan("x", move("x-1", "p1")))
    advance(holding)
    create(holding, "x-1")
    then(holding, lost)
    assert failed(advance(holding)) == {"x-1": "TargetLost"}
    evicting = world(plan("x", move("x-1", "p1")))
    advance(evicting)
    hold(evicting, "x-1")
    then(evicting, lost)
    assert [type(event) for event in advance(evicting)] == [e.Aborting]
    evicted = world(plan("x", move("x-1", "p1")))
    advance(evicted)
    hold(evicted, "x-1")
    terminate(evicted, "p1")
    advance(evicted)
    then(evicted, lost)
    session_answers(evicted)
    assert [type(event) for event in advance(evicted)] == [e.TurningBack], "room at its old node is asked for"
    assert failed(advance(evicted, config.MigrationConfig().hold_deadline)) == {"x-1": "TargetLost"}
    landing = world(plan("x", move("x-1", "p1")))
    advance(landing)
    hold(landing, "x-1")
    terminate(landing, "p1")
    advance(landing)
    then(landing, pod("n1", owner=OWNER))
    session_answers(landing)
    then(landing, e.PodGone("p1"), changed("n1", node="b", phase="Running"), lost)
    assert failed(advance(landing, LAND)) == {"x-1": "NotReady"}
    for state in (waiting, holding, evicted, landing):
        session_answers(state)
        assert state.held_on == {}


def test_a_pod_that_fits_where_it_goes_only_without_itself_goes_there():
    """Its own anti-affinity, zone by zone: the old pod is in the same zone as its new place."""
    from restow.contracts.values import LabelSelector, PodTerm

    apart = PodTerm("zone", LabelSelector({"app": "web"}))
    state = given(
        configured("migration", config.MigrationConfig()),
        node("a", labels={"zone": "one"}), node("b", labels={"zone": "one"}), node("c", labels={"zone": "two"}),
        shape("s", memory=GIB, pod_anti_affinity=(apart,)), pod("p1", node="a", owner=OWNER, labels={"app": "web"}),
        plan("x", move("x-1", "p1")),
    )  # fmt: skip
    advance(state)
    assert evicts(hold(state, "x-1")) == ["x-1"]
    terminate(state, "p1")
    advance(state)
    then(state, pod("n1", owner=OWNER, labels={"app": "web"}))
    session_answers(state)
    assert "n1" in state.queue, "while the old pod terminates there are two of it in the zone: it waits, and goes nowhere else"
    then(state, e.PodGone("p1"))
    session_answers(state)
    assert state.placed["n1"].node == "b"


def test_others_see_the_place_as_the_pod():
    from restow.contracts.values import LabelSelector, PodTerm

    apart = PodTerm("kubernetes.io/hostname", LabelSelector({"app": "web"}))
    state = given(
        configured("migration", config.MigrationConfig()),
        *(node(name, labels={"kubernetes.io/hostname": name}) for name in "abc"),
        shape("s", pod_anti_affinity=(apart,)), pod("p1", node="a", owner=OWNER, labels={"app": "web"}),
        plan("x", move("x-1", "p1")),
    )  # fmt: skip
    advance(state)
    hold(state, "x-1")
    then(state, pod("q", owner=OTHER, labels={"app": "web"}))
    session_answers(state)
    assert state.placed["q"].node == "c"


def test_the_end_of_a_landing_keeps_the_order_of_events():
    state = world(plan("x", move("x-1", "p1")))
    advance(state)
    hold(state, "x-1")
    assert [type(event) for event in land(state, "x-1", "n1")] == [e.Landed]
