"""Plans that wait for a person (`mode: propose`), what that has said, and the mode itself."""

from collections.abc import Iterable

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis
from restow.contracts.times import bounded
from restow.contracts.values import Move
from restow.domain.evolve.refusals import leave_alone
from restow.domain.evolve.rules import Rules
from restow.domain.records import Mode, Plan
from restow.domain.state import ClusterState

REJECTED = "Rejected"
"""Why a pod is left alone whose move a person has not let be made."""


def planned(state: ClusterState, event: e.Planned) -> None:
    """Nothing is promised yet, and nobody is on the move."""
    if event.moves or event.slots:
        state.put(state.proposals, event.plan, bounded(state.time + state.migration_config.approve_deadline))


def answered(state: ClusterState, event: e.PlanApproved | e.PlanRejected, answer: str, chosen: tuple[MigrationId, ...] = ()) -> Plan | None:
    """The plan, which waits no more; None where it did not."""
    known = state.plans.get(event.plan)
    if state.drop(state.proposals, event.plan) is None or known is None:
        state.void[f"migration.plan_{answer}"] += 1
        return None
    state.put(state.plans, event.plan, replace(known, answer=answer, by=event.by, answered=Millis(state.time), why=event.reason, chosen=chosen))
    return known


def rejected(state: ClusterState, event: e.PlanRejected) -> None:
    """The next one is due as if this one had been carried out now."""
    known = answered(state, event, "rejected")
    if known is not None:
        decline(state, known.planned.moves)
        state.timed_from = state.time


def decline(state: ClusterState, moves: Iterable[Move]) -> None:
    """Nobody is asked the same again at once."""
    for move in moves:
        leave_alone(state, move.pod, REJECTED)


def mode_set(state: ClusterState, event: e.ModeSet) -> None:
    state.mode = Mode(event.mode, Millis(state.time), event.by, event.reason)


RULES: Rules = {e.PlanRejected: rejected, e.ModeSet: mode_set}
