"""A PodGroup's `spec.migrationInfo` and `status.migrationState` (seed 003): pods and Reservations by identity alone (RULES
003-2)."""

import msgspec

from restow.contracts.times import rfc3339
from restow.domain.evolve.group_moves import OVER, PENDING, RUNNING
from restow.domain.migration.manifest import API_VERSION, KIND
from restow.domain.migration.template import Json
from restow.domain.records import GroupMoves, hold_names


class Identity(Json, frozen=True):
    name: str
    namespace: str
    uid: str


class Named(Json, frozen=True):
    api_version: str
    kind: str
    metadata: Identity


class MigrationInfo(Json, frozen=True):
    pod: Named
    source_node: str
    target_node: str
    reservation: Named


class MigrationState(Json, frozen=True):
    phase: str
    last_transition_time: str


def infos(moves: GroupMoves, namespace: str) -> list[dict]:
    """As the object has them."""
    return msgspec.to_builtins(
        [
            MigrationInfo(
                Named("v1", "Pod", Identity(m.name, namespace, m.pod)),
                m.source,
                m.target,
                Named(API_VERSION, KIND, Identity(hold_names(m.migration)[0], namespace, m.reservation)),
            )
            for m in moves.moves
        ]
    )


def states(moves: GroupMoves, before: str) -> list[dict]:
    """What the status is to say, one after the other, where its phase was `before`: moves that have begun anew are Pending first,
    and those that are over were Running before, also where they have got further by the time of writing (RULES 003-2)."""
    phases = [moves.phase]
    if before != moves.phase:
        if moves.phase in OVER and moves.ran and before != RUNNING:
            phases.insert(0, RUNNING)
        if moves.phase != PENDING and before in ("", *OVER):
            phases.insert(0, PENDING)
    return [msgspec.to_builtins(MigrationState(phase, rfc3339(moves.since))) for phase in phases]
