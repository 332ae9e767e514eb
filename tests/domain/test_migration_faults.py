"""Whatever goes wrong in whichever step: the migration ends, within the times that are said, as the table says; its place is held for
nobody after that; and its pod is where it was, or its successor is free to go where there is capacity (DESIGN 5)."""

from collections.abc import Callable

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
    reservation,
    run,
    shape,
    then,
)
from domain.saga import (
    OWNER,
    advance,
    create,
    decider,
    failed,
    hold,
    move,
    owed,
    plan,
    session_answers,
    step,
    terminate,
    world,
)
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Taint
from restow.domain import config, session, snapshot
from restow.domain.effects import AbortEviction, CreateHold, DeleteReservation, Evict
from restow.domain.migration.deadlines import LAST_WORD
from restow.domain.migration.plan_order import STUCK
from restow.domain.records import FINAL, SlotPhase, Step
from restow.domain.state import ClusterState

CONF = config.MigrationConfig()
HOLD, EVICT, LAND, BACK = CONF.hold_deadline, CONF.evict_deadline, CONF.land_deadline, CONF.abort_deadline + LAST_WORD
M, VICTIM = "x-1", "p1"
HOLDS = ("hold-x-1", "hold-x-1-back")
Fault = Callable[[ClusterState], object]
STS = replica_of("db", "StatefulSet")

# -- the steps ---------------------------------------------------------------------------------------------------------


def planned() -> ClusterState:
    """It waits for its turn: another one of its node is under way."""
    state = world(plan("w", move("w-1", "p4")), plan("x", move(M, VICTIM)), per_node=1)
    advance(state)
    return state


def holding() -> ClusterState:
    state = world(plan("x", move(M, VICTIM)))
    advance(state)
    return state


def created() -> ClusterState:
    """Its Reservation is there, and holds nothing yet."""
    state = holding()
    create(state, M)
    return state


def held() -> ClusterState:
    """It has its place, and a sibling fell ill: it waits to be evicted."""
    state = world(plan("x", move(M, VICTIM)), max_unavailable=1)
    advance(state)
    then(state, changed("p4", node="a", phase="Running", ready=False))
    hold(state, M)
    return state


def evicting() -> ClusterState:
    state = holding()
    hold(state, M)
    return state


def aborting() -> ClusterState:
    state = evicting()
    report("Refused", "500")(state)
    return state


def evicted() -> ClusterState:
    state = evicting()
    terminate(state, VICTIM)
    advance(state)
    return state


def landing() -> ClusterState:
    """A successor has taken the place, and is not ready yet."""
    state = evicted()
    successor(state)
    return state


STEPS = {
    planned: Step.PLANNED, holding: Step.HOLDING, created: Step.HOLDING, held: Step.HELD, evicting: Step.EVICTING,
    aborting: Step.ABORTING, evicted: Step.EVICTED, landing: Step.EVICTED,
}  # fmt: skip

# -- what goes wrong -----------------------------------------------------------------------------------------------------


def silence(state: ClusterState) -> None:
    """Nobody ever answers: 429, 500, or nothing."""


def no_session(state: ClusterState) -> None:
    """The cache and the session do not answer either (`ends_after`)."""


def facts(*events: e.Event) -> Fault:
    return lambda state: then(state, *events)


def report(reason: str, message: str = "403 Forbidden", at: int = 0) -> Fault:
    return lambda state: run(state, decider, c.ReportEviction(NOW + at, M, reason, message))


def no_hold(state: ClusterState) -> None:
    run(state, decider, c.ReportHold(NOW, M, "403 Forbidden: the namespace is being terminated"))


def budget_never_allows(state: ClusterState) -> None:
    for after in range(0, EVICT, 10_000):
        report("Budget", "minAvailable", after)(state)


def successor(state: ClusterState, name: str = "n1", **more) -> None:
    then(state, pod(name, owner=OWNER, **more))
    session_answers(state)


def elsewhere(state: ClusterState) -> None:
    then(state, pod("n1", owner=OWNER), changed("n1", node="d", phase="Running", ready=True))


def never_schedulable(state: ClusterState) -> None:
    """It asks for more than its predecessor did, and than there is."""
    then(state, shape("huge", cpu=64_000), pod("n1", "huge", owner=OWNER))
    session_answers(state)


def two_successors(state: ClusterState) -> None:
    successor(state, "n1")
    successor(state, "n2")
    on = [uid for uid in ("n1", "n2") if state.placed[uid].hold is not None]
    assert len(on) == 1, "one of them has the place"
    then(state, changed(on[0], node="b", phase="Running", ready=True))


def hold_deleted(state: ClusterState) -> None:
    then(state, e.ReservationGone("hold-x-1"))
    session_answers(state)


def hold_recreated(state: ClusterState) -> None:
    """Somebody deletes it and makes one of the same name: it is none of ours."""
    hold_deleted(state)
    known = state.migrations[M].reservation
    another = reservation("another", ("hold", 1, "s"), migration=M, node="b", match_policy="Owner", ttl=0)
    then(state, replace(another, name="restow-x-1"))
    assert state.migrations[M].reservation == known


def hold_stolen(state: ClusterState) -> None:
    """A pod of the same controller takes it before the eviction."""
    then(state, pod("thief", owner=OWNER))
    (slot,) = state.slots["hold-x-1"]
    then(state, e.HandedOver("hold-x-1", slot, "thief", "b"))


def succeeded(state: ClusterState) -> None:
    then(state, changed(VICTIM, node="a", phase="Succeeded"))


def ready(uid: str = "n1", on: str = "b") -> Fault:
    return facts(changed(uid, node=on, phase="Running", ready=True))


LOST = e.NodeGone("b")
CORDONED = node("b", cpu=8_000, unschedulable=True)
UNREADY = node("b", cpu=8_000, ready=False)
TAINTED = node("b", cpu=8_000, taints=(Taint("down", "NoSchedule"),))
GONE = e.PodGone(VICTIM)
TERMINATING = changed(VICTIM, node="a", phase="Running", deleting=NOW)
ADOPTED = pod(VICTIM, node="a", owner=replica_of("adopter"))
FREED = pod(VICTIM, node="a")
F, N, L = Step.FAILED, Step.NOT_RECREATED, Step.LANDED

# (step, what goes wrong, when it has ended (ms), how, why). Where the pod has gone, `evicted` goes on: see its rows.
TABLE = [
    # Its turn does not come before the first has ended, and that one's hold never comes.
    (planned, silence, 2 * HOLD, F, "HoldTimeout"),
    (planned, facts(GONE), HOLD, F, "PodGone"),
    (planned, facts(TERMINATING), HOLD, F, "PodGone"),
    (planned, facts(LOST), HOLD, F, "TargetLost"),
    (planned, facts(CORDONED), HOLD, F, "TargetLost"),
    (planned, facts(ADOPTED), HOLD, F, "OwnerChanged"),
    (planned, facts(FREED), HOLD, F, "NotMovable"),
    (planned, succeeded, HOLD, F, "PodFinished"),
    (planned, facts(e.NodeGone("a"), GONE), HOLD, F, "PodGone"),
    # The Reservation cannot be created, or is not seen.
    (holding, silence, HOLD, F, "HoldTimeout"),
    (holding, no_hold, 0, F, "HoldFailed"),
    (holding, facts(GONE), 0, F, "PodGone"),
    (holding, facts(LOST), 0, F, "TargetLost"),
    (holding, facts(e.NodeGone("a")), HOLD, F, "HoldTimeout"),
    (holding, facts(ADOPTED), 0, F, "OwnerChanged"),
    (holding, facts(FREED), 0, F, "NotMovable"),
    # It is there, and nobody holds it.
    (created, no_session, HOLD, F, "HoldTimeout"),
    (created, hold_deleted, 0, F, "HoldFailed"),
    (created, hold_recreated, 0, F, "HoldFailed"),
    (created, facts(TERMINATING), 0, F, "PodGone"),
    (created, facts(CORDONED), 0, F, "TargetLost"),
    # It is held, and the eviction has to wait.
    (held, silence, HOLD, F, "MaxUnavailable"),
    (held, hold_deleted, 0, F, "HoldFailed"),
    (held, hold_recreated, 0, F, "HoldFailed"),
    (held, hold_stolen, 0, F, "HoldTaken"),
    (held, facts(LOST), 0, F, "TargetLost"),
    (held, facts(TAINTED), 0, F, "TargetLost"),
    (held, facts(GONE), 0, F, "PodGone"),
    (held, facts(ADOPTED), 0, F, "OwnerChanged"),
    (held, succeeded, 0, F, "PodFinished"),
    # The eviction is on its way: back only by the mark, and that is never taken here.
    (evicting, silence, EVICT + BACK, F, "NotMarked"),
    (evicting, report("Refused"), BACK, F, "NotMarked"),
    (evicting, budget_never_allows, BACK, F, "NotMarked"),
    (evicting, hold_deleted, BACK, F, "NotMarked"),
    (evicting, hold_recreated, BACK, F, "NotMarked"),
    (evicting, hold_stolen, BACK, F, "NotMarked"),
    (evicting, facts(LOST), BACK, F, "NotMarked"),
    (evicting, facts(CORDONED), BACK, F, "NotMarked"),
    (evicting, facts(UNREADY), BACK, F, "NotMarked"),
    (evicting, facts(TAINTED), BACK, F, "NotMarked"),
    (evicting, facts(ADOPTED), BACK, F, "NotMarked"),
    (evicting, facts(FREED), BACK, F, "NotMarked"),
    (evicting, succeeded, BACK, F, "NotMarked"),
    (evicting, facts(e.NodeGone("a")), EVICT + BACK, F, "NotMarked"),
    (evicting, facts(GONE), LAND, N, ""),
    (evicting, facts(TERMINATING), STUCK, N, ""),
    (evicting, report("Gone"), LAND, N, ""),
    # The way back.
    (aborting, silence, BACK, F, "NotMarked"),
    (aborting, report("Aborted"), 0, F, "Refused"),
    (aborting, report("NotMarked", at=CONF.abort_deadline), 0, F, "NotMarked"),
    (aborting, report("NotMarked"), BACK, F, "NotMarked"),
    (aborting, report("Gone"), LAND, N, ""),
    (aborting, facts(GONE), LAND, N, ""),
    (aborting, facts(TERMINATING), STUCK, N, ""),
    (aborting, facts(LOST), BACK, F, "NotMarked"),
    (aborting, facts(e.NodeGone("a")), BACK, F, "NotMarked"),
    (aborting, hold_deleted, BACK, F, "NotMarked"),
    (aborting, hold_stolen, BACK, F, "NotMarked"),
    (aborting, facts(ADOPTED), BACK, F, "NotMarked"),
    (aborting, succeeded, BACK, F, "NotMarked"),
    # It has gone; the victim may terminate for ever (a finalizer, a node that is gone): that is not waited for for ever.
    (evicted, silence, STUCK, N, ""),
    (evicted, facts(GONE), LAND, N, ""),
    # Capacity at its old node is asked for, and nobody makes it here.
    (evicted, facts(LOST), HOLD, F, "TargetLost"),
    (evicted, facts(CORDONED), HOLD, F, "TargetLost"),
    (evicted, facts(LOST, e.NodeGone("a")), 0, F, "TargetLost"),
    (evicted, hold_deleted, HOLD, F, "HoldLost"),
    (evicted, hold_recreated, HOLD, F, "HoldLost"),
    (evicted, elsewhere, STUCK, F, "Elsewhere"),
    (evicted, never_schedulable, STUCK, N, ""),
    (evicted, two_successors, 0, L, ""),
    (evicted, facts(e.NodeGone("a")), STUCK, N, ""),
    # A successor has the place. What it needs of the victim (a volume) may be missing as long as that is there.
    (landing, silence, STUCK, F, "NotReady"),
    (landing, facts(GONE), LAND, F, "NotReady"),
    # Not bound yet: the place is open again.
    (landing, facts(e.PodGone("n1")), STUCK, N, ""),
    (landing, facts(changed("n1", node="b", phase="Running", deleting=NOW)), 0, F, "SuccessorGone"),
    (landing, facts(changed("n1", node="d", phase="Running", ready=True)), 0, F, "Elsewhere"),
    (landing, facts(changed("n1", node="b", phase="Succeeded")), 0, F, "SuccessorFinished"),
    (landing, facts(changed("n1", node="b", phase="Failed")), STUCK, N, ""),
    (landing, facts(changed("n1", node="b", phase="Running"), LOST, GONE), LAND, F, "NotReady"),
    (landing, ready(), 0, L, ""),
]  # fmt: skip


def name_of(row) -> str:
    at, fault, *_, reason = row
    return f"{at.__name__}-{fault.__qualname__.partition('.')[0]}-{reason}"


@pytest.mark.parametrize("row", TABLE, ids=name_of)
def test_it_ends(row):
    build, fault, by, how, why = row
    state = build()
    assert step(state, M) is STEPS[build], "the row is about this step"
    fault(state)
    after = ends_after(state, fault is no_session)
    found = state.migrations[M]
    assert (found.step, found.reason) == (how, why)
    assert after <= by
    nothing_is_left(state)


def ends_after(state: ClusterState, alone: bool = False) -> int:
    """Only the clock goes on, from one deadline to the next; the session does what it does, unless the saga is alone."""
    after = 0
    for _ in range(20):
        advance(state, after)
        if not alone:
            session_answers(state, after)
            advance(state, after)
        if step(state, M) in FINAL:
            return after
        at = decider.deadline(state)
        assert at is not None, f"{step(state, M)} has no end"
        assert at > NOW + after, "a deadline is in the future, or something was due"
        after = at - NOW
    raise AssertionError(f"still {step(state, M)}")


def nothing_is_left(state: ClusterState) -> None:
    session_answers(state, 10**6)
    mine = [effect for effect in owed(state) if M in (getattr(effect, "migration", ""),)]
    assert [one for one in mine if isinstance(one, CreateHold | Evict | AbortEviction)] == []
    assert all(uid not in HOLDS for held_here in state.held_on.values() for uid, _ in held_here)
    assert M not in {*state.active, *state.backlog, *state.victims.values(), *state.successors.values()}
    assert not any(M in ids for ids in state.armed.values())
    live = state.live_of(VICTIM)
    if state.migrations[M].step is F and not state.migrations[M].armed and live is not None:
        assert state.node_of(VICTIM) == "a", "it stays where it is"
    objects = {uid for uid, record in state.reservations.items() if uid in HOLDS and not record.gone}
    assert {effect.reservation for effect in owed(state) if isinstance(effect, DeleteReservation)} == objects


def test_every_step_that_is_not_final_is_in_the_table():
    assert set(STEPS.values()) == {one for one in Step if one not in FINAL}
    assert {row[0] for row in TABLE} == set(STEPS)


@pytest.mark.parametrize("fact", [LOST, CORDONED, UNREADY, TAINTED])
def test_nobody_is_evicted_towards_a_node_that_was_lost_or_cordoned_meanwhile(fact):
    """Not even by what was decided before: an effect that is tried again for a budget asks first (DESIGN 5)."""
    state = evicting()
    assert Evict(M) in owed(state)
    then(state, fact)
    assert Evict(M) not in owed(state)
    assert not decider.owed(state, Evict(M))
    (event,) = advance(state)
    assert (type(event), event.reason) == (e.Aborting, "TargetLost")
    assert owed(state) == [AbortEviction(M)]
    run(state, decider, c.ReportEviction(NOW, M, "Aborted"))
    assert step(state, M) is F
    nothing_is_left(state)


def test_where_a_foreign_pod_takes_capacity_from_holds_that_of_a_move_is_the_last_to_lose_any_although_it_is_the_latest():
    state = world(shape("larger", cpu=4_000), shape("most", cpu=5_000), reservation("r", ("t", 1, "larger"), match_policy="Owner", node="b"))
    session_answers(state)
    then(state, plan("x", move(M, VICTIM)))
    advance(state)
    hold(state, M)
    then(state, pod("foreign", "most", node="b"))
    assert [state.slots[name][task].phase for name, task in (("r", "t-0"), ("hold-x-1", "hold-0"))] == [SlotPhase.WAITING, SlotPhase.HELD]


def edited(state: ClusterState) -> None:
    """Somebody makes the hold smaller: what is held then is not what its successor asks for."""
    fact = state.reservations["hold-x-1"].fact
    small = replace(fact, generation=2, spec=replace(fact.spec, tasks=(replace(fact.spec.tasks[0], shape="small"),)))
    then(state, shape("small", cpu=1), small)
    session_answers(state)
    assert state.slots["hold-x-1"]["hold-0"].shape == "small"


def resized(state: ClusterState) -> None:
    """In place, on its node."""
    then(state, shape("larger", cpu=3_000), pod(VICTIM, "larger", node="a", owner=OWNER))


@pytest.mark.parametrize(("fault", "reason"), [(edited, "HoldFailed"), (resized, "PodChanged")])
def test_nobody_is_evicted_whose_hold_is_not_what_is_asked_for_by_then(fault, reason):
    """What was decided before is asked again before each attempt, and taken back."""
    state = evicting()
    fault(state)
    assert not decider.owed(state, Evict(M))
    (event,) = advance(state)
    assert (type(event), event.reason) == (e.Aborting, reason)
    run(state, decider, c.ReportEviction(NOW, M, "Aborted"))
    nothing_is_left(state)


def test_a_hold_that_somebody_would_have_larger_and_that_cannot_grow_is_still_what_was_asked_for():
    state = evicting()
    fact = state.reservations["hold-x-1"].fact
    large = replace(fact, generation=2, spec=replace(fact.spec, tasks=(replace(fact.spec.tasks[0], shape="large"),)))
    then(state, shape("large", cpu=64_000), large)
    session_answers(state)
    assert state.slots["hold-x-1"]["hold-0"].reasons, "it would grow, and has no room"
    assert Evict(M) in owed(state)
    assert advance(state) == []


# -- the way back ------------------------------------------------------------------------------------------------------


def tight(*more: e.Event, owner=OWNER, grace: int = 600_000) -> ClusterState:
    """Two nodes, and somebody who waits for capacity: nothing is free but what the move leaves. Its pod is evicted, and terminates."""
    state = given(
        configured("migration", CONF), node("a", cpu=4_000), node("b", cpu=4_000), shape("s", cpu=3_000),
        pod("p1", node="a", owner=owner), *more, plan("x", move(M, "p1")),
    )  # fmt: skip
    advance(state)
    hold(state, M)
    then(state, changed("p1", node="a", phase="Running", deleting=NOW + grace))
    advance(state)
    then(state, pod("greedy", owner=replica_of("greedy")))
    session_answers(state)
    assert step(state, M) is Step.EVICTED
    assert "greedy" not in state.placed
    return state


def turned(state: ClusterState, *facts: e.Event) -> None:
    """The target is lost, and capacity at the old node is asked for."""
    then(state, *facts)
    session_answers(state)
    (event,) = [event for event in advance(state) if isinstance(event, e.TurningBack)]
    assert event.reason in ("HoldLost", "TargetLost")
    assert CreateHold(M, back=True) in owed(state)
    create(state, M)
    session_answers(state)


def test_a_reservation_for_the_way_back_that_nobody_has_looked_at_yet_is_no_lost_capacity():
    """The watcher's fact is folded before reservation_cache has accepted it: the descheduler is asked in between."""
    state = tight()
    then(state, pod("p2", owner=OWNER), CORDONED)
    session_answers(state)
    advance(state)
    create(state, M)
    assert decider.due(state, NOW) is None
    session_answers(state)
    then(state, e.PodGone("p1"))
    session_answers(state)
    assert (state.placed["p2"].node, "greedy" in state.placed) == ("a", False)


@pytest.mark.parametrize("fact", [LOST, CORDONED, UNREADY])
@pytest.mark.parametrize("owner", [OWNER, STS])
def test_where_the_target_is_lost_after_the_eviction_the_pod_gets_its_old_place_again(fact, owner):
    """It is held for its successor before it is free, so that nobody else takes it: not even who waits for longer."""
    name, uid = ("p1", "again") if owner is STS else ("p2", "p2")
    state = tight(owner=owner)
    if owner is OWNER:
        then(state, pod(name, owner=owner))
    turned(state, fact)
    (slot,) = state.slots["hold-x-1-back"].values()
    assert (slot.node, slot.phase) == ("a", SlotPhase.WAITING)
    then(state, e.PodGone("p1"))
    session_answers(state)
    if owner is STS:
        then(state, pod(name, uid=uid, owner=owner))
    session_answers(state)
    assert state.placed[uid].node == "a"
    assert "greedy" not in state.placed
    ready(uid, "a")(state)
    (event,) = advance(state)
    assert event.message.endswith("its successor is back on a")
    assert set(owed(state)) == {DeleteReservation("hold-x-1"), DeleteReservation("hold-x-1-back")} - (
        {DeleteReservation("hold-x-1")} if "hold-x-1" not in state.reservations else set()
    )
    session_answers(state)
    assert state.held_on == {}


@pytest.mark.parametrize("fact", [LOST, CORDONED, UNREADY])
@pytest.mark.parametrize("owner", [OWNER, STS])
@pytest.mark.parametrize("goes", ["terminates", "vanishes"])
def test_a_successor_that_goes_with_its_node_before_it_was_ready_leaves_its_next_one_the_way_back(fact, owner, goes):
    """A pod is kept safe until it has landed: who has been bound to the lost node waits for nothing, but the next one does."""
    stateful = owner is STS
    name = "p1" if stateful else "n1"
    state = tight(owner=owner, grace=0)
    then(state, e.PodGone("p1")) if stateful else None
    then(state, pod(name, uid="n1", owner=owner))
    session_answers(state)
    assert state.placed["n1"].node == "b"
    then(state, changed("n1", node="b", phase="Pending"), fact)
    assert step(state, M) is Step.EVICTED
    then(state, e.PodGone("n1") if goes == "vanishes" else changed("n1", node="b", phase="Pending", deleting=NOW))
    if not stateful:
        turned(state)
    advance(state)
    then(state, *([] if goes == "vanishes" else [e.PodGone("n1")]), pod(name if stateful else "n2", uid="n2", owner=owner))
    if stateful:
        # Its place is asked for when somebody is there to hold it for, unless its capacity has gone to others by then.
        turned(state)
        return
    session_answers(state)
    then(state, e.PodGone("p1"))
    session_answers(state)
    assert state.placed["n2"].node == "a", "and not greedy's"
    then(state, changed("n2", node="a", phase="Running", ready=True))
    advance(state)
    assert (step(state, M), state.migrations[M].successor) == (F, "n2")
    nothing_is_left(state)


def test_a_successor_that_somebody_deletes_where_it_was_to_land_has_no_way_back():
    state = tight()
    then(state, pod("n1", owner=OWNER))
    session_answers(state)
    then(state, changed("n1", node="b", phase="Running", deleting=NOW))
    assert failed(advance(state)) == {M: "SuccessorGone"}


def test_a_successor_that_fits_elsewhere_goes_there_and_its_old_place_is_free():
    state = tight()
    then(state, pod("p2", owner=OWNER))
    turned(state, LOST)
    then(state, node("c", cpu=4_000), e.PodGone("greedy"))
    session_answers(state)
    assert state.placed["p2"].node == "c"
    assert state.migrations[M].step is Step.EVICTED
    (event,) = advance(state)
    assert (event.reason, event.message.endswith("found a node, or is gone")) == ("TargetLost", True)
    then(state, pod("greedy", owner=replica_of("greedy")), e.PodGone("p1"))
    session_answers(state)
    assert state.placed["greedy"].node == "a"
    nothing_is_left(state)


@pytest.mark.parametrize("fact", [e.NodeGone("a"), node("a", cpu=4_000, unschedulable=True), node("a", cpu=4_000, ready=False)])
def test_where_its_old_node_takes_nobody_either_it_is_free_to_go_anywhere(fact):
    state = tight()
    then(state, pod("p2", owner=OWNER), fact, LOST)
    session_answers(state)
    (event,) = advance(state)
    assert (type(event), event.reason) == (e.MigrationFailed, "TargetLost")
    then(state, e.PodGone("greedy"), node("c", cpu=4_000))
    session_answers(state)
    assert state.placed["p2"].node == "c"
    nothing_is_left(state)


def test_its_old_capacity_is_asked_for_as_soon_as_there_is_somebody_to_hold_it_for():
    """The pod has gone before the Reservation could be made, and its controller is slow."""
    state = tight(owner=STS)
    then(state, LOST)
    session_answers(state)
    advance(state)
    assert step(state, M) is Step.EVICTED
    then(state, e.PodGone("greedy"), e.PodGone("p1"))
    assert not decider.owed(state, CreateHold(M, back=True))
    state.touched.migrations.clear()
    then(state, pod("p1", uid="again", owner=STS))
    assert CreateHold(M, back=True) in decider.pending(state, state.touched)


def test_so_it_is_for_the_next_revisions_pod_that_was_told_before_its_replica_set():
    """Whose pod it is nobody knew when it came, and nothing else may come to be told."""
    above, replicas = replica_of("web", "Deployment"), replica_of("web-2")
    state = tight(e.WorkloadObserved(OWNER.uid, "ReplicaSet", "default", "web-1", owner=above))
    then(state, LOST)
    session_answers(state)
    advance(state)
    then(state, e.PodGone("greedy"), e.PodGone("p1"), pod("p2", owner=replicas))
    assert not decider.owed(state, CreateHold(M, back=True))
    state.touched.migrations.clear()
    then(state, e.WorkloadObserved(replicas.uid, "ReplicaSet", "default", "web-2", owner=above))
    assert CreateHold(M, back=True) in decider.pending(state, state.touched)


@pytest.mark.parametrize("far", range(4))
def test_on_the_way_back_it_ends_whatever_is_never_answered(far):
    state = tight()
    if far > 0:
        then(state, pod("p2", owner=OWNER))
    then(state, LOST)
    if far > 1:
        session_answers(state)
        advance(state)
        create(state, M)
    if far > 2:
        session_answers(state)
        then(state, e.PodGone("p1"))
    assert ends_after(state) <= 600_000 + STUCK
    nothing_is_left(state)
    assert state.held_on == {}


def test_a_restart_on_the_way_back_forgets_nothing():
    state = tight(pod("other", owner=replica_of("other"), node="b", phase="Succeeded"))
    then(state, LOST)
    session_answers(state)
    advance(state)
    for _ in range(2):
        loaded = snapshot.load(snapshot.dump(state))
        assert (loaded.migrations, decider.deadline(loaded)) == (state.migrations, decider.deadline(state))
        assert set(decider.pending(loaded, None)) == set(decider.pending(state, None))
        if "hold-x-1-back" not in state.reservations:
            create(state, M)


# -- pods that are only evicted ----------------------------------------------------------------------------------------


def removing() -> ClusterState:
    state = world(pod("f", node="a", owner=OWNER, phase="Failed", ready=False), plan("x", move(M, "f", target="")))
    advance(state)
    assert step(state, M) is Step.EVICTING
    return state


@pytest.mark.parametrize(
    ("fault", "by", "how", "why"),
    [
        (silence, EVICT + BACK, F, "NotMarked"),
        (report("Refused"), BACK, F, "NotMarked"),
        (report("Gone"), 0, Step.REMOVED, ""),
        (facts(e.PodGone("f")), 0, Step.REMOVED, ""),
        # A finalizer keeps it: the API has taken the eviction.
        (facts(changed("f", node="a", phase="Failed", deleting=NOW)), 0, Step.REMOVED, ""),
        (facts(changed("f", node="a", phase="Running", ready=True)), BACK, F, "NotMarked"),
    ],
)  # fmt: skip
def test_so_does_an_eviction_alone(fault, by, how, why):
    state = removing()
    fault(state)
    assert ends_after(state) <= by
    assert (step(state, M), state.migrations[M].reason) == (how, why)


# -- a pod whose successor has its name ----------------------------------------------------------------------------------


def leaving(grace: int = 600_000, **more) -> ClusterState:
    """A StatefulSet's pod is evicted, and has so long to end."""
    state = world(pod("db-0", node="a", owner=STS), plan("x", move(M, "db-0")), **more)
    advance(state)
    hold(state, M)
    then(state, changed("db-0", node="a", phase="Running", deleting=NOW + grace))
    advance(state)
    assert step(state, M) is Step.EVICTED
    return state


def test_a_place_is_kept_as_long_as_the_pod_that_left_it_terminates():
    """The next one of a StatefulSet is made when this one has gone: its landing has `landDeadline` from then on (RULES G-14)."""
    state = leaving()
    for after in (LAND, 2 * LAND, 600_000):
        assert advance(state, after) == []
        session_answers(state, after)
    then(state, pod("stranger", owner=replica_of("other"), shape="s"))
    then(state, e.PodGone("db-0"), time=NOW + 610_000)
    assert decider.deadline(state) == NOW + 610_000 + LAND
    then(state, node("a", cpu=1_000, unschedulable=True), pod("db-0", uid="again", owner=STS), time=NOW + 900_000)
    session_answers(state, 900_000)
    assert state.placed["again"].hold == ("hold-x-1", "hold-0")
    ready("again")(state)
    assert advance(state, 900_000) == [e.Landed(M, "again", "b")]


def test_who_takes_the_place_late_has_as_long_to_become_ready():
    state = leaving()
    then(state, e.PodGone("db-0"), time=NOW + 600_000)
    late = 600_000 + LAND - 1
    then(state, pod("db-0", uid="again", owner=STS), time=NOW + late)
    session_answers(state, late)
    assert state.migrations[M].successor == "again"
    then(state, changed("again", node="b", phase="Running"), time=NOW + late)
    assert advance(state, late + LAND - 1) == []
    assert [event.reason for event in advance(state, late + LAND)] == ["NotReady"]


def test_where_nobody_comes_after_it_has_gone_the_place_is_free_again():
    state = leaving()
    then(state, e.PodGone("db-0"), time=NOW + 600_000)
    assert advance(state, 600_000 + LAND - 1) == []
    assert advance(state, 600_000 + LAND) == [e.NotRecreated(M)]
    nothing_is_left(state)


def test_a_restart_while_it_terminates_forgets_nothing():
    state = leaving()
    for fact in (e.PodGone("db-0"), None):
        loaded = snapshot.load(snapshot.dump(state))
        assert (loaded.migrations, decider.deadline(loaded)) == (state.migrations, decider.deadline(state))
        if fact is not None:
            then(state, fact, time=NOW + 600_000)


def test_a_stateful_sets_pod_that_never_goes_has_no_successor_and_that_is_the_end():
    """Nobody makes it again before it is really gone: a finalizer, or a node that does not answer. It is waited for an hour longer than
    its grace period."""
    state = leaving()
    assert ends_after(state) == 600_000 + STUCK
    assert step(state, M) is N
    nothing_is_left(state)


def test_one_that_returns_with_its_name_before_the_eviction_was_answered_has_the_place():
    state = world(pod("db-0", node="a", owner=STS), plan("x", move(M, "db-0")))
    advance(state)
    hold(state, M)
    then(state, e.PodGone("db-0"), pod("db-0", uid="again", owner=STS))
    session_answers(state)
    assert state.placed["again"].node == "b"
    assert run(state, decider, c.ReportEviction(NOW, M, "Refused", "another uid")) != []
    assert step(state, M) is Step.EVICTED
    ready("again")(state)
    advance(state)
    assert step(state, M) is L


def test_a_gang_that_goes_with_its_members_ends_their_moves():
    members = [member(f"m{i}", "g", node="a", owner=OWNER) for i in (1, 2)]
    state = world(pod_group("g", need=1), *members, plan("x", move(M, "m1")))
    advance(state)
    hold(state, M)
    then(state, e.PodGone("m1"), e.PodGone("m2"), e.PodGroupGone("default", "g"))
    assert ends_after(state) == LAND
    assert step(state, M) is N


def test_a_successor_that_is_handed_its_place_and_never_bound_leaves_it():
    """The bind is refused: the session places it anew, or the deadline ends it."""
    state = landing()
    then(state, GONE, e.PodReleased("n1", "BindRefused"))
    run(state, session.decider, c.Schedule(NOW))
    assert ends_after(state) <= LAND
    nothing_is_left(state)


@pytest.mark.parametrize("come", [changed("n1", node="c", phase="Running"), changed("n1", phase="Succeeded")], ids=["elsewhere", "finished"])
def test_for_a_successor_that_was_handed_its_place_and_has_come_in_another_way_nothing_is_held_there_again(come):
    state = then(landing(), GONE, come)
    assert state.slots["hold-x-1"]["hold-0"].phase is SlotPhase.USED
    assert state.armed == {}
