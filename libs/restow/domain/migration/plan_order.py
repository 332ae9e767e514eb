"""What moves of one plan are to each other: waves (`after`) and the next leg of a pod (`follows`)."""

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
    live = state.live_of(pod)
    return Millis(live.deleting + STUCK) if live is not None and live.deleting else Millis(0)
