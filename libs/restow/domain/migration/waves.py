"""What moves of one plan are to each other: waves (`after`), the next leg of a pod (`follows`), and pods that change places."""

from restow.contracts.ids import MigrationId, Millis, PodUid
from restow.contracts.values import Move
from restow.domain.migration.holds import Reason
from restow.domain.records import Migration, Step
from restow.domain.state import ClusterState

AFTER = "After"
BROKEN = (Step.FAILED, Step.NOT_RECREATED)
STUCK = 3_600_000
"""Milliseconds after the end of its grace period for which a pod that does not go is waited for: a finalizer, or a node that does not
answer, may keep it for ever."""


def before(move: Move) -> tuple[MigrationId, ...]:
    """What must have landed first."""
    return (*move.after, move.follows) if move.follows and move.follows not in move.after else move.after


def broken(state: ClusterState, migration: Migration) -> Reason | None:
    """Why it will never be its turn: one that was to land first has ended otherwise."""
    for id in before(migration.move):
        first = state.migrations.get(id)
        if first is None:
            return AFTER, f"migration {id}, which was to land first, is not known (any more)"
        if first.step in BROKEN:
            return AFTER, f"migration {id}, which was to land first, ended as {first.step}: {first.reason}".rstrip(": ")
    return None


def is_turn(state: ClusterState, migration: Migration, now: Millis) -> bool:
    """Whether all have landed that come before it, and their pods have left what it takes. A pod that terminates for ever is not waited
    for for ever."""
    for id in before(migration.move):
        first = state.migrations[id]
        if first.step is not Step.LANDED or (_is_there(state, first) and now < _patience(state, first)):
            return False
    return True


def turns_at(state: ClusterState, migration: Migration) -> Millis | None:
    """When `is_turn` is true although nothing happens; None where that is not so."""
    if not migration.move.after and not migration.move.follows:
        return None
    firsts = [state.migrations.get(id) for id in before(migration.move)]
    if any(first is None or first.step is not Step.LANDED for first in firsts):
        return None
    return max((_patience(state, first) for first in firsts if first is not None and _is_there(state, first)), default=None)


def _is_there(state: ClusterState, migration: Migration) -> bool:
    """Whether the pod that was moved still uses its old node."""
    charge = state.charges.get(migration.move.pod)
    return charge is not None and charge.node == migration.move.source


def _patience(state: ClusterState, migration: Migration) -> Millis:
    return max(Millis(migration.since + state.migration_config.land_deadline), going_until(state, migration.move.pod))


def going_until(state: ClusterState, pod: PodUid) -> Millis:
    """Until when a pod that terminates is waited for, 0 where it does not. Its deletionTimestamp is the end of its grace period."""
    live = state.live.get(pod)
    return Millis(live.deleting + STUCK) if live is not None and live.deleting else Millis(0)


def partner(state: ClusterState, migration: Migration) -> Migration | None:
    """The pod that changes places with this one, where it still may."""
    found = counterpart(state, migration)
    if found is None or found.step in BROKEN or found.step is Step.ABORTING or found.back:
        return None
    return found


def counterpart(state: ClusterState, migration: Migration) -> Migration | None:
    """The other one of a swap, whatever became of it: of the plan's swaps between the two nodes the first one way goes with the first
    the other way, and so on. (A longer cycle is no swap.)"""
    plan = state.plans.get(migration.plan)  # type: ignore[call-overload]
    if plan is None:
        return None
    mine: list[MigrationId] = []
    move = next((one for one in plan.planned.moves if one.migration == migration.id), migration.move)
    theirs: list[MigrationId] = []
    for other in plan.planned.moves:
        if other.swap and (other.source, other.target) == (move.source, move.target):
            mine.append(other.migration)
        elif other.swap and (other.source, other.target) == (move.target, move.source):
            theirs.append(other.migration)
    at = mine.index(migration.id) if migration.id in mine else len(theirs)
    return state.migrations.get(theirs[at]) if at < len(theirs) else None
