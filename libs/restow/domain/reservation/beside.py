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

MAX_LABELS, MAX_LISTED = 16_384, 524_288
"""Bytes of the entry that one Reservation may have in the Landing, and of those that all may have. It is one object, which moves use, too, and etcd takes 1.5 MiB
(`--max-request-bytes`): the other two thirds are left to the entries of moves, and to managedFields."""
ENTRY = 256
"""Bytes of an entry beside its labels: uid, namespace (at most 63) and end."""


def size(spec: ReservationSpec) -> int:
    """Bytes that its entry has at most: JSON may write a character in six, or in twice six outside Unicode's first plane."""
    sets = [owner.selector.labels for owner in spec.owners if owner.selector is not None]
    return ENTRY + sum(2 + sum(6 + _written(key) + _written(value) for key, value in labels.items()) for labels in sets)


def _written(text: str) -> int:
    plain = sum(c.isascii() and (c.isalnum() or c in "-_./") for c in text)
    return plain + 12 * (len(text) - plain)


class Listed:
    """How much stands in the Landing once all that has been accepted is there: counted when it is asked for, and with what the same command has accepted since."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._sizes: dict[ReservationUid, int] | None = None

    def problem(self, scheduler: str, uid: ReservationUid, spec: ReservationSpec) -> str:
        """What is refused, as `problem` says it; empty where there is space for it, which it has from now on."""
        mine, whose = size(spec), f"for pods of scheduler {scheduler}"
        if mine > MAX_LABELS:
            return f"spec.owners: {mine} bytes of labels; allowed {whose}: at most {MAX_LABELS}"
        if self._sizes is None:
            self._sizes = {one: size(record.spec) for one, record in self._state.reservations.items() if record.alive and record.spec is not None and held_for(self._state, record)}
        others = sum(self._sizes.values()) - self._sizes.get(uid, 0)
        if others + mine > MAX_LISTED:
            return f"spec.owners: {mine} bytes of labels, beside {others} of other Reservations; allowed {whose}: at most {MAX_LISTED} in all (make it again when others have ended)"
        self._sizes[uid] = mine
        return ""


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
