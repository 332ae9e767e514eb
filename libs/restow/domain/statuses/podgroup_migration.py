"""A PodGroup's `spec.migrationInfo` and `status.migrationState` (seed 003): pods and Reservations by identity alone (RULES
003-2)."""

from typing import Any

from restow.contracts.times import rfc3339
from restow.domain.evolve.group_moves import OVER, PENDING, RUNNING
from restow.domain.records import GroupMoves, hold_names

Object = dict[str, Any]


def infos(moves: GroupMoves, namespace: str) -> list[Object]:
    """As the object has them."""
    return [
        {
            "pod": _named("v1", "Pod", m.name, namespace, m.pod),
            "sourceNode": m.source,
            "targetNode": m.target,
            "reservation": _named("batch.volcano.sh/v1alpha1", "Reservation", hold_names(m.migration)[0], namespace, m.reservation),
        }
        for m in moves.moves
    ]


def _named(api_version: str, kind: str, name: str, namespace: str, uid: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace, "uid": uid}}


def states(moves: GroupMoves, before: str) -> list[Object]:
    """What the status is to say, one after the other, where its phase was `before`: moves that have begun anew are Pending first,
    and those that are over were Running before, also where they have got further by the time of writing (RULES 003-2)."""
    phases = [moves.phase]
    if before != moves.phase:
        if moves.phase in OVER and moves.ran and before != RUNNING:
            phases.insert(0, RUNNING)
        if moves.phase != PENDING and before in ("", *OVER):
            phases.insert(0, PENDING)
    return [{"phase": phase, "lastTransitionTime": rfc3339(moves.since)} for phase in phases]
