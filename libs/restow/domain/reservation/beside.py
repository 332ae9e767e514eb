"""Reservations for pods that another scheduler places (`other_schedulers.held_for`): which of them can be held, whose pods the API gates for them,
and which gated pods may get a slot.

Their slots are held by placeholders, and handed over, as those of migrations are (`restow.domain.beside`). Who comes for them is not made by a controller that
is known before: the API gates pods by their labels. An entry is a lease (`landing_gate.LEASE`), which the session renews while the Reservation holds anything.
"""

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid, ReservationUid
from restow.contracts.values import OwnerRule, ReservationSpec
from restow.domain.landing_gate import LEASE, LEFT_OUT
from restow.domain.node_table import WHOLE
from restow.domain.other_schedulers import held_for
from restow.domain.records import ON_NODE, Reservation
from restow.domain.reservation.owner_matching import owned
from restow.domain.state import ClusterState


def problem(state: ClusterState, scheduler: str, namespace: str, spec: ReservationSpec, before: ReservationSpec | None) -> str:
    """Path, value and what is allowed where placeholders cannot hold it; empty where they can."""
    whose = f"for pods of scheduler {scheduler}"
    if namespace == LEFT_OUT:
        return f"metadata.namespace: {namespace}; allowed {whose}: any other (new pods are never gated there)"
    if not spec.allocate_once:
        return f"spec.allocateOnce: false; allowed {whose}: true (a placeholder is handed over as a whole)"
    if spec.pre_allocation:
        return f"spec.preAllocation: true; allowed {whose}: false (others get what becomes free)"
    for i, owner in enumerate(spec.owners):
        if not _is_gated_by_labels(owner):
            return f"spec.owners[{i}]: allowed {whose}: a labelSelector with matchLabels alone (the API gates pods by these)"
    for task in spec.tasks:
        known = state.shapes[task.shape]
        if (known.devices is not None and known.devices.milli != WHOLE) or known.cores is not None or known.resource_claims:
            return f"template of task {task.name}: asks for a share of a GPU, for CPUs of its own, or has resource claims; allowed {whose}: whole devices and amounts"
    if before is not None and [(t.name, t.shape) for t in before.tasks] != [(t.name, t.shape) for t in spec.tasks]:
        return f"its templates have changed; allowed {whose}: as they were accepted (make another Reservation)"
    return ""


def _is_gated_by_labels(owner: OwnerRule) -> bool:
    return owner.selector is not None and bool(owner.selector.labels) and not owner.selector.expressions and owner.object is None and owner.controller is None


def labels_of(record: Reservation) -> list[dict[str, str]]:
    """Whoever has all of one of these is gated."""
    spec = record.spec
    return [owner.selector.labels for owner in spec.owners if owner.selector is not None] if spec is not None else []


def is_holding(state: ClusterState, uid: ReservationUid) -> bool:
    """One that a move has had is for no owners, also when the move has another one by now."""
    record = state.reservations.get(uid)
    return record is not None and record.fact.migration not in state.migrations and record.alive and bool(held_for(state, record)) and any(slot.phase in ON_NODE for slot in state.slots[uid].values())


def owns(state: ClusterState, uid: PodUid) -> bool:
    """Whether a gated pod is an owner of such a Reservation, and nobody has said that it gets nothing of it."""
    if uid in state.passed or uid not in state.gated or not state.pods[uid].fact.landing:
        return False
    pod = state.pods[uid].fact
    if state.ours(pod):
        return False
    return any(until and is_holding(state, one) and owned(state, state.reservations[one], pod) for one, until in state.owner_gates.items())


def gates(state: ClusterState, now: Millis) -> list[e.OwnersGated]:
    """Entries to be made, or taken away. That one is renewed is no news."""
    if not state.owner_gates and not (state.stand_ins and state.migration_config.beside):
        return []
    found = []
    for uid in dict.fromkeys((*state.owner_gates, *(key[0] for key in state.stand_ins))):
        until = state.owner_gates.get(uid, Millis(0))
        if is_holding(state, uid):
            if not until:
                found.append(e.OwnersGated(uid, Millis(now + LEASE)))
        elif until:
            found.append(e.OwnersGated(uid, Millis(0)))
    return found
