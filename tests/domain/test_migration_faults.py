"""Whatever goes wrong in whichever step: the migration ends, within the times that are said, as the table says; its place is held for
nobody after that; and its pod is where it was, or its successor is free to go where there is room (DESIGN 5)."""

from collections.abc import Callable

import pytest
from domain.build import NOW, changed, member, node, pod, pod_group, replica_of, reservation, run, shape, then
from domain.saga import (
    OWNER,
    advance,
    create,
    decider,
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
from restow.domain import config, session
from restow.domain.effects import AbortEviction, CreateHold, DeleteReservation, Evict
from restow.domain.migration.steps import LAST_WORD
from restow.domain.records import FINAL, Step
from restow.domain.state import ClusterState

CONF = config.MigrationConfig()
HOLD, EVICT, LAND, BACK = CONF.hold_deadline, CONF.evict_deadline, CONF.land_deadline, CONF.abort_deadline + LAST_WORD
M, VICTIM = "x-1", "p1"
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
    (evicting, facts(ADOPTED), BACK, F, "NotMarked"),
    (evicting, facts(FREED), BACK, F, "NotMarked"),
    (evicting, succeeded, BACK, F, "NotMarked"),
    (evicting, facts(e.NodeGone("a")), EVICT + BACK, F, "NotMarked"),
    (evicting, facts(GONE), LAND, N, ""),
    (evicting, facts(TERMINATING), LAND, N, ""),
    (evicting, report("Gone"), LAND, N, ""),
    # The way back.
    (aborting, silence, BACK, F, "NotMarked"),
    (aborting, report("Aborted"), 0, F, "Refused"),
    (aborting, report("NotMarked", at=CONF.abort_deadline), 0, F, "NotMarked"),
    (aborting, report("NotMarked"), BACK, F, "NotMarked"),
    (aborting, report("Gone"), LAND, N, ""),
    (aborting, facts(GONE), LAND, N, ""),
    (aborting, facts(TERMINATING), LAND, N, ""),
    (aborting, facts(LOST), BACK, F, "NotMarked"),
    (aborting, facts(e.NodeGone("a")), BACK, F, "NotMarked"),
    (aborting, hold_deleted, BACK, F, "NotMarked"),
    (aborting, hold_stolen, BACK, F, "NotMarked"),
    (aborting, facts(ADOPTED), BACK, F, "NotMarked"),
    (aborting, succeeded, BACK, F, "NotMarked"),
    # It has gone; the victim may terminate for ever (a finalizer, a node that is gone): that is not waited for.
    (evicted, silence, LAND, N, ""),
    (evicted, facts(GONE), LAND, N, ""),
    (evicted, facts(LOST), LAND, F, "HoldLost"),
    (evicted, hold_deleted, 0, F, "HoldLost"),
    (evicted, hold_recreated, 0, F, "HoldLost"),
    (evicted, elsewhere, LAND, N, ""),
    (evicted, never_schedulable, LAND, N, ""),
    (evicted, two_successors, 0, L, ""),
    (evicted, facts(e.NodeGone("a")), LAND, N, ""),
    # A successor has the place.
    (landing, silence, LAND, F, "NotReady"),
    # Not bound yet: the place is open again.
    (landing, facts(e.PodGone("n1")), LAND, N, ""),
    (landing, facts(changed("n1", node="b", phase="Running", deleting=NOW)), 0, F, "SuccessorGone"),
    (landing, facts(changed("n1", node="d", phase="Running", ready=True)), 0, F, "Elsewhere"),
    (landing, facts(changed("n1", node="b", phase="Succeeded")), 0, F, "SuccessorFinished"),
    (landing, facts(changed("n1", node="b", phase="Failed")), LAND, N, ""),
    (landing, facts(changed("n1", node="b", phase="Running"), LOST), LAND, F, "NotReady"),
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
    assert all(uid != "hold-x-1" for held_here in state.held_on.values() for uid, _ in held_here)
    assert M not in {*state.active, *state.backlog, *state.victims.values(), *state.successors.values()}
    assert not any(M in ids for ids in (*state.armed.values(), *state.expecting.values()))
    live = state.live.get(VICTIM)
    if state.migrations[M].step is F and not state.migrations[M].armed and live is not None:
        assert state.node_of(VICTIM) == "a", "it stays where it is"
    objects = [uid for uid, record in state.reservations.items() if uid == "hold-x-1" and not record.gone]
    assert [effect.reservation for effect in owed(state) if isinstance(effect, DeleteReservation)] == objects


def test_every_step_that_is_not_final_is_in_the_table():
    assert set(STEPS.values()) == {one for one in Step if one not in FINAL}
    assert {row[0] for row in TABLE} == set(STEPS)


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


def test_a_stateful_sets_pod_that_never_goes_has_no_successor_and_that_is_the_end():
    """Nobody makes it again before it is really gone: a finalizer, or a node that does not answer."""
    state = world(pod("db-0", node="a", owner=STS), plan("x", move(M, "db-0")))
    advance(state)
    hold(state, M)
    terminate(state, "db-0")
    assert ends_after(state) == LAND
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
    then(state, e.PodReleased("n1", "BindRefused"))
    run(state, session.decider, c.Schedule(NOW))
    assert ends_after(state) <= LAND
    nothing_is_left(state)
