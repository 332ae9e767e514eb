"""The migration saga: given facts and answers, when it is advanced, then the next step, and what is owed (DESIGN 5)."""

import msgspec
import pytest
from domain.build import (
    GIB,
    NOW,
    changed,
    configured,
    given,
    node,
    pod,
    replica_of,
    reservation,
    run,
    shape,
    then,
    when,
)
from domain.saga import BOLD

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import (
    CoreRequest,
    Expression,
    HostPort,
    LabelSelector,
    Move,
    NodeTerm,
    OwnerRef,
    Packing,
    PodTerm,
    Spread,
    Toleration,
)
from restow.domain import config, migration, session
from restow.domain import reservation as reservations
from restow.domain.config import DefragmentationArgs
from restow.domain.decider import Rejected
from restow.domain.effects import AbortEviction, CreateHold, DeleteReservation, Evict
from restow.domain.evolve import migration as rules
from restow.domain.migration.deadlines import LAST_WORD
from restow.domain.migration.decider import plan_id
from restow.domain.records import FINAL, SlotPhase, Step
from restow.domain.state import ClusterState
from restow.kube import wire
from restow.kube.reservation_manifest import hold_manifest
from restow.kube.reservations import reservation_fact

decider = migration.decider
CONF = config.MigrationConfig()
NONE = Packing(0, 0, 0, 0, 0, 0)
OWNER = replica_of("rs")
M = "x-1"


def move(pod: str = "p", source: str = "a", target: str = "b", id: str = M) -> Move:
    return Move(id, pod, "default", pod, source, target)


def plan(*moves: Move, id: str = "x") -> e.Planned:
    return e.Planned(id, "Defragmentation", moves, NONE, NONE)


def planned(*more: e.Event, conf: config.MigrationConfig = CONF) -> ClusterState:
    return given(
        configured("migration", conf), node("a"), node("b"), shape("s"), pod("p", node="a", owner=OWNER), *more, plan(move())
    )


def advance(state, after: int = 0) -> list[e.Event]:
    return run(state, decider, c.Advance(NOW + after))


def create_hold(state, uid: str = "hold", id: str = M, shape: str = "s", node: str = "b") -> None:
    then(state, reservation(uid, ("hold", 1, shape), migration=id, node=node, match_policy="Owner", ttl=0))


def hold(state, uid: str = "hold") -> None:
    """The reservation cache and the session answer."""
    run(state, reservations.decider, c.Review(NOW))
    run(state, session.decider, c.Schedule(NOW))


def holding() -> ClusterState:
    state = planned()
    advance(state)
    create_hold(state)
    return state


def evicting() -> ClusterState:
    state = holding()
    hold(state)
    advance(state)
    return state


def evicted() -> ClusterState:
    state = evicting()
    then(state, changed("p", node="a", phase="Running", deleting=NOW))
    advance(state)
    return state


def successor(state, name: str = "p2", **more) -> None:
    """The controller makes a new pod, and the session finds it a place."""
    then(state, pod(name, owner=more.pop("owner", OWNER)))
    run(state, session.decider, c.Schedule(NOW))


def step(state, id: str = M) -> Step:
    return state.migrations[id].step


def effects(state) -> list:
    return list(decider.pending(state, None))


# -- the straight way ------------------------------------------------------------------------------------------------


def test_first_the_hold_then_the_eviction_then_the_landing():
    state = planned()
    assert advance(state) == [e.Holding(M, NOW + CONF.hold_deadline)]
    assert effects(state) == [CreateHold(M)]
    create_hold(state)
    assert effects(state) == []
    assert advance(state) == []
    hold(state)
    assert advance(state) == [e.Held(M), e.Evicting(M, NOW + CONF.evict_deadline)]
    assert effects(state) == [Evict(M)]
    then(state, changed("p", node="a", phase="Running", deleting=NOW))
    assert advance(state) == [e.Evicted(M, NOW + CONF.land_deadline)]
    assert effects(state) == []
    successor(state)
    assert state.placed["p2"].node == "b"
    then(state, changed("p2", node="b", phase="Running"))
    assert advance(state) == []
    then(state, changed("p2", node="b", phase="Running", ready=True))
    assert advance(state) == [e.Landed(M, "p2", "b")]
    assert effects(state) == [DeleteReservation("hold")]
    then(state, e.ReservationGone("hold"))
    assert effects(state) == []
    assert state.held_on == {}


def test_a_successor_that_comes_before_the_victim_is_gone_takes_the_hold():
    state = evicting()
    then(state, changed("p", node="a", phase="Running", deleting=NOW))
    successor(state)
    assert advance(state) == [e.Evicted(M, NOW + CONF.land_deadline)]
    then(state, changed("p2", node="b", phase="Running", ready=True))
    assert advance(state) == [e.Landed(M, "p2", "b")]


def test_a_move_that_waits_for_a_budget_keeps_nobody_of_its_workload_waiting():
    """A scale-out goes its way as long as the victim's end is no fact: the hold cannot be had before."""
    state = evicting()
    then(state, node("c", cpu=16_000), *(pod(f"new{i}", owner=OWNER) for i in range(20)))
    run(state, session.decider, c.Schedule(NOW))
    assert sorted(state.placed) == sorted(f"new{i}" for i in range(20))
    assert {placement.hold for placement in state.placed.values()} == {None}
    assert [slot.phase for slot in state.slots["hold"].values()] == [SlotPhase.HELD], "the place is still the successor's"
    then(state, e.PodGone("p"))
    successor(state, "last")
    assert state.placed["last"].hold == ("hold", "hold-0")


def test_one_that_found_no_capacity_before_its_predecessors_end_takes_the_hold_then():
    """A watcher that starts again lists pods in any order, and what is gone comes last (found by `restow demo --chaos`)."""
    state = evicting()
    then(state, node("a", cpu=8_000, unschedulable=True), shape("f", cpu=7_000), pod("f", "f", node="b"))
    successor(state)
    assert "p2" not in state.placed
    then(state, e.PodGone("p"))
    run(state, session.decider, c.Schedule(NOW))
    assert state.placed["p2"].node == "b"
    assert state.placed["p2"].hold == ("hold", "hold-0")
    assert advance(state) == [e.Evicted(M, NOW + CONF.land_deadline)]


def test_a_sibling_that_was_there_before_the_eviction_does_not_wait():
    state = holding()
    hold(state)
    then(state, pod("p2", owner=OWNER))
    advance(state)
    run(state, session.decider, c.Schedule(NOW))
    assert state.placed["p2"].hold is None


def test_one_that_found_no_capacity_takes_the_hold_when_the_api_says_that_the_victim_is_gone():
    state = evicting()
    then(state, node("a", cpu=8_000, unschedulable=True), shape("f", cpu=7_000), pod("f", "f", node="b"))
    successor(state)
    assert "p2" not in state.placed
    run(state, decider, c.ReportEviction(NOW, M, "Gone"))
    run(state, session.decider, c.Schedule(NOW))
    assert state.placed["p2"].hold == ("hold", "hold-0")


def test_while_a_pod_terminates_as_many_wait_as_it_leaves_holds_and_no_more():
    """Its successor may not be in its zone beside it: it waits. The others of a scale-out do not."""
    alone = PodTerm("zone", LabelSelector({"app": "web"}))
    nodes = [node(name, cpu=8_000, labels={"zone": zone}) for name, zone in ("a1", "b1", "c2", "d3")]
    web = {"owner": OWNER, "labels": {"app": "web"}}
    state = given(configured("migration", CONF), nodes, shape("s", pod_anti_affinity=(alone,)), pod("p", node="a", **web), plan(move()))
    advance(state)
    create_hold(state)
    hold(state)
    advance(state)
    then(state, changed("p", node="a", phase="Running", deleting=NOW))
    advance(state)
    then(state, *(pod(f"new{i}", **web) for i in range(3)))
    run(state, session.decider, c.Schedule(NOW))
    assert {uid: placement.node for uid, placement in state.placed.items()} == {"new1": "c", "new2": "d"}
    then(state, e.PodGone("p"))
    run(state, session.decider, c.Schedule(NOW))
    assert state.placed["new0"].hold == ("hold", "hold-0")


@pytest.mark.parametrize("lost", [node("b", cpu=8_000, ready=False), node("b", cpu=8_000, unschedulable=True)])
def test_nobody_waits_for_a_hold_on_a_node_that_was_lost(lost):
    """Although the victim terminates for long, and other nodes are free."""
    state = evicted()
    then(state, node("c", cpu=8_000), lost)
    successor(state)
    assert state.placed["p2"].node == "c"


def test_a_stateful_sets_successor_has_the_same_name():
    sts = replica_of("db", "StatefulSet")
    state = given(node("a"), node("b"), shape("s"), pod("db-0", node="a", owner=sts), plan(move("db-0")))
    advance(state)
    create_hold(state)
    hold(state)
    advance(state)
    then(state, e.PodGone("db-0"))
    advance(state)
    then(state, pod("db-1", owner=sts), pod("db-0", uid="new", owner=sts))
    run(state, session.decider, c.Schedule(NOW))
    assert state.migrations[M].successor == "new"


def test_restarts_ask_for_the_same_effects_again():
    for state, owed in ((holding(), []), (evicting(), [Evict(M)]), (evicted(), [])):
        assert effects(state) == owed
        assert all(decider.owed(state, effect) for effect in owed)
        assert decider.pending(state, state.touched) == owed
    assert not decider.owed(evicted(), Evict(M))
    assert not decider.owed(evicted(), CreateHold("unknown"))


# -- how many at once ------------------------------------------------------------------------------------------------


def many(count: int, conf: config.MigrationConfig) -> ClusterState:
    pods = [pod(f"p{i}", node="ab"[i % 2], owner=OWNER) for i in range(count)]
    moves = [move(f"p{i}", "ab"[i % 2], "c", f"x-{i + 1}") for i in range(count)]
    nodes = [node(n, cpu=100_000, memory=400 * GIB) for n in "abc"]
    return given(configured("migration", conf), *nodes, shape("s"), *pods, plan(*moves))


def test_migrations_begin_in_the_plans_order_up_to_concurrent():
    state = many(12, config.MigrationConfig(**BOLD, concurrent=11))
    assert [event.migration for event in advance(state)] == [f"x-{i}" for i in range(1, 12)]
    assert when(state, decider, c.Advance(NOW)) == []
    assert decider.due(state, NOW) is None


def test_and_per_source():
    state = many(6, config.MigrationConfig(**BOLD, per_node=2))
    assert [event.migration for event in advance(state)] == ["x-1", "x-2", "x-3", "x-4"]
    assert decider.due(state, NOW) is None


def test_the_next_begins_when_one_is_over():
    state = many(3, config.MigrationConfig(**BOLD, concurrent=1))
    advance(state)
    run(state, decider, c.ReportHold(NOW, "x-1", "forbidden"))
    assert decider.due(state, NOW) == c.Advance(NOW)
    assert advance(state) == [e.Holding("x-2", NOW + CONF.hold_deadline)]
    assert advance(state, CONF.hold_deadline) == [
        e.MigrationFailed("x-2", "HoldTimeout", "node c was not held in time"),
        e.Holding("x-3", NOW + 2 * CONF.hold_deadline),
    ]


# -- before the eviction ---------------------------------------------------------------------------------------------


def failed(events: list[e.Event]) -> str:
    (event,) = events
    assert isinstance(event, e.MigrationFailed)
    return event.reason


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        (e.PodGone("p"), "PodGone"),
        (changed("p", node="a", phase="Running", deleting=NOW), "PodGone"),
        (changed("p", node="a", phase="Failed"), "PodGone"),
        (changed("p", node="a", phase="Succeeded"), "PodFinished"),
        (changed("p", node="c", phase="Running"), "PodMoved"),
    ],
)
def test_a_victim_that_is_no_more_ends_it_before_and_during_the_hold(fact, reason):
    for state in (planned(), holding()):
        then(state, fact)
        assert failed(advance(state)) == reason


@pytest.mark.parametrize("fact", [e.NodeGone("b"), node("b", ready=False), node("b", unschedulable=True)])
def test_a_target_that_was_lost_is_not_tried(fact):
    state = planned()
    then(state, fact)
    assert failed(advance(state)) == "TargetLost"


def test_a_target_that_has_filled_up_is_not_tried():
    state = planned(shape("big", cpu=7_500), pod("q"))
    then(state, pod("r", "big", "b"))
    assert failed(advance(state)) == "NoCapacity"


def test_a_hold_that_the_session_cannot_place_ends_it():
    state = holding()
    then(state, shape("big", cpu=7_500), pod("r", "big", "b"))
    hold(state)
    assert failed(advance(state)) == "NoCapacity"
    assert effects(state) == [DeleteReservation("hold")]


def test_a_hold_that_cannot_be_created_ends_it():
    state = planned()
    advance(state)
    report = c.ReportHold(NOW, M, "forbidden")
    assert run(state, decider, report) == [e.MigrationFailed(M, "HoldFailed", "forbidden")]
    assert run(state, decider, report) == []
    assert effects(state) == []


def test_a_reservation_that_is_seen_outweighs_a_report_that_it_could_not_be_created():
    assert when(holding(), decider, c.ReportHold(NOW, M, "timeout")) == []


def test_a_hold_that_does_not_come_ends_at_the_deadline():
    state = holding()
    assert decider.deadline(state) == NOW + CONF.hold_deadline
    assert advance(state, CONF.hold_deadline - 1) == []
    assert failed(advance(state, CONF.hold_deadline)) == "HoldTimeout"


def test_a_reservation_that_is_deleted_or_refused_or_wrong_ends_it():
    deleted = holding()
    then(deleted, e.ReservationGone("hold"))
    assert failed(advance(deleted)) == "HoldFailed"
    refused = holding()
    then(refused, e.ReservationRefused("hold", 1, "InvalidSpec", "spec.tasks: is empty"))
    assert failed(advance(refused)) == "HoldFailed"
    smaller = planned(shape("less", cpu=500))
    advance(smaller)
    create_hold(smaller, shape="less")
    hold(smaller)
    assert failed(advance(smaller)) == "HoldFailed"


def test_the_hold_is_released_when_the_migration_fails():
    state = holding()
    hold(state)
    assert state.held_on
    then(state, e.PodGone("p"))
    advance(state)
    run(state, session.decider, c.Schedule(NOW))
    assert state.held_on == {}
    assert not state.armed


def test_a_late_reservation_of_a_migration_that_is_over_is_deleted():
    state = planned()
    advance(state)
    advance(state, CONF.hold_deadline)
    create_hold(state)
    assert effects(state) == [DeleteReservation("hold")]


def test_a_victim_that_ends_while_the_hold_is_taken_counts_as_evicted():
    state = holding()
    hold(state)
    then(state, e.PodGone("p"))
    successor(state)
    assert advance(state) == [e.Evicted(M, NOW + CONF.land_deadline)]


# -- the eviction ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["Budget", "Changed", "Refused"])
def test_a_refused_eviction_is_rolled_back_only_after_the_pod_was_marked(reason):
    state = evicting()
    report = c.ReportEviction(NOW, M, reason, "why")
    assert run(state, decider, report) == [e.Aborting(M, reason, "why")]
    assert effects(state) == [AbortEviction(M)]
    assert not decider.owed(state, Evict(M))
    assert advance(state, CONF.abort_deadline) == []
    assert run(state, decider, c.ReportEviction(NOW, M, "Aborted")) == [e.MigrationFailed(M, reason, "why")]
    assert effects(state) == [DeleteReservation("hold")]


def test_a_mark_that_the_api_never_takes_ends_as_not_marked_and_the_hold_goes():
    state = evicting()
    run(state, decider, c.ReportEviction(NOW, M, "Budget", "minAvailable"))
    late = NOW + CONF.abort_deadline
    assert run(state, decider, c.ReportEviction(late - 1, M, "NotMarked", "403 Forbidden")) == [], "there is time yet"
    (event,) = run(state, decider, c.ReportEviction(late, M, "NotMarked", "403 Forbidden"))
    assert (type(event), event.reason) == (e.MigrationFailed, "NotMarked")
    assert event.message.startswith("Budget: minAvailable; the pod could not be marked")
    assert event.message.endswith("403 Forbidden")
    assert effects(state) == [DeleteReservation("hold")]
    assert state.pods["p"].live.node == "a"


def test_so_it_does_where_nobody_ever_answers():
    state = evicting()
    run(state, decider, c.ReportEviction(NOW, M, "Budget", "minAvailable"))
    at = CONF.abort_deadline + LAST_WORD
    assert decider.deadline(state) == NOW + at
    assert advance(state, at - 1) == []
    assert failed(advance(state, at)) == "NotMarked"
    assert effects(state) == [DeleteReservation("hold")]


def test_an_eviction_past_its_deadline_is_aborted():
    state = evicting()
    assert decider.deadline(state) == NOW + CONF.evict_deadline
    (event,) = advance(state, CONF.evict_deadline)
    assert (type(event), event.reason) == (e.Aborting, "EvictTimeout")


def test_a_hold_that_is_lost_before_the_eviction_aborts_it():
    state = evicting()
    then(state, e.NodeGone("b"))
    (event,) = advance(state)
    assert (type(event), event.reason) == (e.Aborting, "TargetLost")


def test_a_pod_that_finishes_before_the_eviction_aborts_it():
    state = evicting()
    then(state, changed("p", node="a", phase="Succeeded"))
    (event,) = advance(state)
    assert (type(event), event.reason) == (e.Aborting, "PodFinished")


@pytest.mark.parametrize("fact", [e.PodGone("p"), changed("p", node="a", phase="Running", deleting=NOW), changed("p", node="a", phase="Failed")])
def test_a_victim_that_ends_while_evicting_or_aborting_counts_as_evicted(fact):
    state = evicting()
    then(state, fact)
    assert advance(state) == [e.Evicted(M, NOW + CONF.land_deadline)]
    state = evicting()
    run(state, decider, c.ReportEviction(NOW, M, "Budget"))
    then(state, fact)
    assert when(state, decider, c.ReportEviction(NOW, M, "Aborted")) == [e.Evicted(M, NOW + CONF.land_deadline)]
    assert advance(state) == [e.Evicted(M, NOW + CONF.land_deadline)]
    assert state.migrations[M].reason == ""


def test_a_victim_that_the_api_does_not_know_any_more_is_evicted_and_arms_the_hold():
    state = evicting()
    assert run(state, decider, c.ReportEviction(NOW, M, "Gone")) == [e.Evicted(M, NOW + CONF.land_deadline)]
    then(state, e.PodGone("p"))
    successor(state)
    assert state.migrations[M].successor == "p2"


def test_reports_about_other_steps_change_nothing():
    for reason in ("Budget", "Gone", "Aborted"):
        assert when(holding(), decider, c.ReportEviction(NOW, M, reason)) == []
        assert when(evicted(), decider, c.ReportEviction(NOW, M, reason)) == []
        assert when(evicted(), decider, c.ReportEviction(NOW, "unknown", reason)) == []


# -- the landing -----------------------------------------------------------------------------------------------------


def test_no_successor_in_time_is_not_recreated_and_frees_the_hold():
    state = evicted()
    then(state, e.PodGone("p"))
    assert advance(state, CONF.land_deadline - 1) == []
    assert advance(state, CONF.land_deadline) == [e.NotRecreated(M)]
    run(state, session.decider, c.Schedule(NOW))
    assert state.held_on == {}


def test_a_successor_that_does_not_become_ready_fails_it_and_keeps_its_place():
    state = evicted()
    successor(state)
    then(state, e.PodGone("p"), changed("p2", node="b", phase="Running"))
    assert failed(advance(state, CONF.land_deadline)) == "NotReady"
    assert state.charges["p2"].node == "b"


def test_a_rejected_successor_arms_the_hold_for_the_next_one():
    state = evicted()
    successor(state)
    then(state, changed("p2", node="b", phase="Failed", reason="OutOfcpu"))
    assert advance(state) == []
    run(state, session.decider, c.Schedule(NOW))
    successor(state, "p3")
    then(state, changed("p3", node="b", phase="Running", ready=True))
    assert advance(state) == [e.Landed(M, "p3", "b")]


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        (changed("p2", node="b", phase="Running", ready=True, deleting=NOW), "SuccessorGone"),
        (changed("p2", node="b", phase="Failed", deleting=NOW), "SuccessorGone"),
        (changed("p2", node="b", phase="Succeeded"), "SuccessorFinished"),
        (changed("p2", node="c", phase="Running", ready=True), "Elsewhere"),
    ],
)
def test_a_successor_that_is_not_ready_on_the_target_is_no_landing(fact, reason):
    state = evicted()
    successor(state)
    then(state, fact)
    assert failed(advance(state)) == reason


@pytest.mark.parametrize(
    "end",
    [
        [changed("p2", node="b", phase="Running", ready=True, deleting=NOW)],
        [changed("p2", node="b", phase="Failed", deleting=NOW)],
        [changed("p2", node="b", phase="Failed", reason="Error")],
        [changed("p2", node="b", phase="Running", deleting=NOW), e.PodGone("p2")],
        [e.PodGone("p2")],
    ],
)
def test_a_successor_that_was_ready_has_landed_and_whoever_deletes_it_then_does_not_get_the_hold_back(end):
    """The descheduler looks later: what it says does not depend on how late (found by the simulator, seed 17)."""
    state = evicted()
    successor(state)
    then(state, changed("p2", node="b", phase="Running", ready=True), *end)
    assert not state.armed
    assert advance(state) == [e.Landed(M, "p2", "b")]
    assert advance(state) == []
    run(state, session.decider, c.Schedule(NOW))
    assert state.held_on == {}


def test_a_successor_that_is_gone_before_it_was_bound_leaves_the_hold_to_the_next():
    state = evicted()
    successor(state)
    then(state, e.PodGone("p2"))
    assert advance(state) == []
    run(state, session.decider, c.Schedule(NOW))
    successor(state, "p3")
    then(state, changed("p3", node="b", phase="Running", ready=True))
    assert advance(state) == [e.Landed(M, "p3", "b")]


def test_a_hold_that_is_lost_after_the_eviction_turns_it_back_to_its_old_node_unless_that_is_gone_too():
    state = evicted()
    then(state, e.NodeGone("b"))
    run(state, session.decider, c.Schedule(NOW))
    (event,) = advance(state)
    assert (type(event), event.reason) == (e.TurningBack, "TargetLost")
    assert state.migrations[M].move.target == "a"
    state = evicted()
    then(state, e.NodeGone("b"), e.NodeGone("a"))
    run(state, session.decider, c.Schedule(NOW))
    assert failed(advance(state)) == "TargetLost"


# -- plans and triggers ----------------------------------------------------------------------------------------------


def sparse(conf: config.MigrationConfig) -> ClusterState:
    return given(
        configured("migration", conf), node("a", cpu=10_000), node("b", cpu=10_000), shape("s"), shape("f", cpu=7_500),
        pod("p", node="a", owner=OWNER), pod("f", "f", "b"),
    )  # fmt: skip


ARGS = DefragmentationArgs("cpu", {"cpu": 90}, {"cpu": 70}, {"cpu": 40})


def test_a_plan_is_made_when_asked_for_and_begins_at_once():
    state = sparse(config.MigrationConfig(defragmentation=ARGS))
    assert decider.due(state, NOW) is None
    (event,) = run(state, decider, c.Defragment(NOW, "api", "now"))
    assert [(m.migration, m.pod, m.target) for m in event.moves] == [("now-1", "p", "b")]
    assert state.plans["now"].planned == event
    assert decider.due(state, NOW) == c.Advance(NOW)


def test_a_plan_without_moves_is_logged_with_the_reasons():
    state = sparse(config.MigrationConfig(defragmentation=ARGS))
    then(state, pod("p", node="a"))
    (event,) = run(state, decider, c.Defragment(NOW, "api", "now"))
    assert (event.moves, event.kept) == ((), {"Bare": 1})


def test_without_the_plugin_or_with_a_known_plan_or_bad_arguments_it_is_rejected():
    with pytest.raises(Rejected, match="does not enable Defragmentation"):
        when(sparse(config.MigrationConfig()), decider, c.Defragment(NOW, "api", "now"))
    state = sparse(config.MigrationConfig(defragmentation=ARGS))
    run(state, decider, c.Defragment(NOW, "api", "now"))
    with pytest.raises(Rejected, match="a fresh id"):
        when(state, decider, c.Defragment(NOW, "api", "now"))
    bad = sparse(config.MigrationConfig(defragmentation=msgspec.structs.replace(ARGS, numberOfNodes=-1)))
    with pytest.raises(Rejected, match="numberOfNodes: -1"):
        when(bad, decider, c.Defragment(NOW, "api", "now"))


def test_an_interval_counts_from_the_configuration_then_from_the_last_plan():
    state = sparse(config.MigrationConfig(defragmentation=ARGS, interval=60_000))
    then(state, pod("p", node="a"))
    assert decider.deadline(state) == NOW + 60_000
    assert decider.due(state, NOW + 59_999) is None
    due = decider.due(state, NOW + 60_000)
    assert isinstance(due, c.Defragment)
    assert due.trigger == "interval"
    run(state, decider, due)
    assert decider.due(state, NOW + 60_000) is None, "an empty plan is remembered, too"
    assert decider.deadline(state) == NOW + 120_000


def test_cron_fires_by_the_wall_clock_of_its_zone():
    conf = config.MigrationConfig(defragmentation=ARGS, cron="0 3 * * *", time_zone="Europe/Berlin")
    state = sparse(conf)  # NOW is 2023-11-14 22:13:20 UTC
    three = 1_700_013_600_000
    assert decider.deadline(state) == three
    assert decider.due(state, three - 1) is None
    due = decider.due(state, three)
    assert due == c.Defragment(three, "cron", plan_id(three))
    assert decider.due(state, three) == due, "the same state and time ask for the same plan"


def test_no_timed_plan_while_one_is_under_way():
    state = sparse(config.MigrationConfig(defragmentation=ARGS, interval=60_000))
    run(state, decider, c.Defragment(NOW, "api", "now"))
    advance(state)
    assert decider.deadline(state) == NOW + CONF.hold_deadline
    assert decider.due(state, NOW + 1) is None
    run(state, decider, c.ReportHold(NOW, "now-1", "no"))
    assert decider.deadline(state) == NOW + 60_000


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"cron": "61 * * * *"}, "minute"),
        ({"time_zone": "Nowhere"}, "timeZone: 'Nowhere'"),
        ({"interval": -1}, "interval: -1"),
        ({"concurrent": 0}, "concurrent: 0; allowed: 1 or more"),
        ({"defragmentation": msgspec.structs.replace(ARGS, coolDownTime=-1)}, "coolDownTime: -1"),
    ],
)
def test_bad_configuration_is_refused_with_what_is_allowed(more, said):
    with pytest.raises(ValueError, match=said):
        migration.check(config.MigrationConfig(**more))
    migration.check(CONF)


# -- the object that holds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "of",
    [
        shape("s", cpu=1_250, memory=123_456_789),
        shape("s", memory=3 * GIB, gpu=(1, 250)),
        shape("s", gpu=(2, 1000), priority=7, priority_class="high"),
        shape("s", gpu=(3, 125), node_selector={"m": "A"}, tolerations=(Toleration("k", "Equal", "v", "NoSchedule", 30), Toleration("", "Exists"))),
        shape("s", cpu=0, memory=0, requests={"hugepages-2Mi": 4 << 20, "ephemeral-storage": 10**9 + 1, "example.com/x": 3_000}),
        shape("s", preemption="Never", scheduler="volcano"),
        shape("s", cpu=4_000, cores=CoreRequest(4, "SpreadByPCPUs", True)),
        shape("s", cpu=4_000, cores=CoreRequest(4, "FullPCPUs", exclusive="PCPULevel"), priority=5_500),
    ],
    ids=["odd bytes", "share", "whole", "rules", "others", "never", "required CPUs", "CPUs apart"],
)  # fmt: skip
def test_the_hold_asks_for_exactly_what_the_pod_does(of):
    deployment = OwnerRef("Deployment", "web", "uid-web", "apps/v1")
    state = given(
        e.WorkloadObserved("uid-rs", "ReplicaSet", "default", "rs", deployment),
        node("a"), node("b"), of, pod("p", node="a", owner=OWNER), plan(move()),
    )  # fmt: skip
    manifest = hold_manifest(state, state.migrations[M])
    decoded = msgspec.json.decode(msgspec.json.encode(manifest), type=wire.Reservation)
    shapes, fact = reservation_fact(decoded, "volcano")
    assert fact.invalid == ""
    assert (fact.namespace, fact.name, fact.migration) == ("default", "restow-x-1", M)
    assert (fact.spec.ttl, fact.spec.match_policy, fact.spec.scheduler) == (0, "Owner", of.spec.scheduler)
    assert [rule.controller.kind for rule in fact.spec.owners] == ["ReplicaSet", "Deployment"]
    (task,) = fact.spec.tasks
    assert (task.node, task.replicas) == ("b", 1)
    read = shapes[task.shape]
    for field in ("devices", "cores", "node_selector", "tolerations", "priority", "priority_class", "preemption", "scheduler"):
        assert getattr(read, field) == getattr(of.spec, field)
    assert read.requests == {k: v for k, v in of.spec.requests.items() if v}


ZONE = PodTerm("zone", LabelSelector({"app": "web"}, (Expression("tier", "In", ("a", "b")),)), ("other",), None, ("rev",), ("gen",))
ANYWHERE = PodTerm("zone", LabelSelector({"app": "db"}), (), LabelSelector())
SPREAD = Spread(2, "zone", "DoNotSchedule", LabelSelector({"app": "web"}), 3, "Ignore", "Honor", ("rev",))


def test_rules_about_others_see_the_hold_as_the_pod():
    """Its labels, claims and ports, and what must be met of nodes and other pods; what is only preferred has been weighed."""
    models = (NodeTerm((Expression("gpu", "In", ("A", "B")), Expression("n", "Gt", ("3",)))), NodeTerm((), (Expression("metadata.name", "In", ("a", "b")),)))
    of = shape(
        "s", pod_affinity=(ANYWHERE, msgspec.structs.replace(ZONE, weight=5)), pod_anti_affinity=(ZONE,),
        spread=(SPREAD, msgspec.structs.replace(SPREAD, when_unsatisfiable="ScheduleAnyway")), node_affinity=models,
        host_ports=(HostPort(53, "UDP", "10.0.0.1"), HostPort(80)), volumes=("ephemeral", "persistentVolumeClaim"),
    )  # fmt: skip
    labels = {"app": "web", "rev": "7", "koordinator.sh/qosClass": "LSR"}
    state = given(node("a"), node("b"), of, pod("p", node="a", owner=OWNER, labels=labels, claims=("data", "p-scratch")), plan(move()))
    manifest = hold_manifest(state, state.migrations[M])
    decoded = msgspec.json.decode(msgspec.json.encode(manifest), type=wire.Reservation)
    shapes, fact = reservation_fact(decoded, "volcano")
    assert (fact.invalid, fact.unknown) == ("", ())
    (task,) = fact.spec.tasks
    read = shapes[task.shape]
    assert task.labels == {"app": "web", "rev": "7"}, "CPUs of its own are asked for by those alone that get some"
    assert task.claims == ("data",), "what was made for this pod alone goes with it"
    assert (read.pod_affinity, read.pod_anti_affinity, read.spread) == ((ANYWHERE,), (ZONE,), (SPREAD,))
    assert sorted(map(str, read.node_affinity)) == sorted(map(str, models))
    assert (read.host_ports, read.cores) == (of.spec.host_ports, None)


def test_there_is_no_hold_for_a_victim_that_is_gone():
    state = planned()
    then(state, e.PodGone("p"))
    assert hold_manifest(state, state.migrations[M]) is None


# -- memory ----------------------------------------------------------------------------------------------------------


def test_only_the_newest_finished_migrations_and_plans_are_kept(monkeypatch):
    monkeypatch.setattr(rules, "KEEP_MIGRATIONS", 20)
    monkeypatch.setattr(rules, "KEEP_PLANS", 10)
    state = planned()
    for i in range(40):
        then(state, plan(id=f"y{i:02}"), time=NOW + i)
    then(state, e.MigrationFailed(M, "PodGone"), time=NOW)
    for i in range(40):
        then(state, plan(move(id=f"z{i:02}-1"), id=f"z{i:02}"), e.MigrationFailed(f"z{i:02}-1", "PodGone"), time=NOW + 100 + i)
    assert len(state.migrations) <= 22
    assert len(state.plans) <= 11
    assert M not in state.migrations
    assert "z39-1" in state.migrations
    assert "z39" in state.plans
    assert all(m.step in FINAL for m in state.migrations.values())


