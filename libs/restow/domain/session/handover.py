"""Which hold a waiting pod may take: release and allocate in one step (RULES G-4, G-5; DESIGN 5 for migrations)."""

from collections.abc import Iterator

from restow.contracts.events import HandedOver, PodObserved
from restow.contracts.ids import ReservationUid, SlotName
from restow.contracts.values import DeviceShare
from restow.domain.predicates import UNSCHEDULABLE, static_mask, tolerates
from restow.domain.records import Reservation, Slot, SlotPhase
from restow.domain.reservation.match import owned
from restow.domain.state import ClusterState

Candidate = tuple[ReservationUid, SlotName, Slot, Reservation]


class Offers:
    """The holds that a session can hand over, found once: by lineage for migrations, by namespace for the others (an
    empty namespace serves all), earliest created first."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.refresh()

    def refresh(self) -> None:
        """After holds were placed or released."""
        state = self._state
        self.by_namespace: dict[str, list[ReservationUid]] = {}
        for uid in sorted(state.available, key=lambda u: state.reservations[u].order):
            record = state.reservations[uid]
            if not is_migration_hold(state, record):
                self.by_namespace.setdefault(record.fact.namespace, []).append(uid)

    def concern(self, pod: PodObserved) -> bool:
        """Whether it is worth asking for this pod at all."""
        if pod.namespace in self.by_namespace or "" in self.by_namespace:
            return True
        return bool(self._state.armed) and self._state.lineage(pod) in self._state.armed

    def awaited(self, pod: PodObserved) -> bool:
        """Whether it may be the successor of a pod whose eviction is under way and whose end the log has not seen yet: a
        list shows objects in any order. It waits for that fact, or for the eviction to be given up (both are near)."""
        state = self._state
        if not state.expecting:
            return False
        expecting = state.expecting.get(state.lineage(pod), ())
        return any(state.order[pod.pod] > state.migrations[id].asked for id in expecting)

    def hand_over(self, pod: PodObserved) -> HandedOver | None:
        """The hand-over for this pod, or None where it goes the normal way."""
        for uid, name, slot, record in self._candidates(pod):
            devices = _admit(self._state, pod, slot, record)
            if devices is not None:
                return HandedOver(uid, name, pod.pod, slot.node, devices)
        return None

    def _candidates(self, pod: PodObserved) -> Iterator[Candidate]:
        """Migration holds that this pod's predecessor left first, then Reservations whose owners it matches; inside one,
        places in the order of their names."""
        state = self._state
        armed = state.armed.get(state.lineage(pod), ())
        for id in sorted(armed, key=lambda m: (state.migrations[m].armed, m)):
            migration = state.migrations[id]
            if state.order[pod.pod] > (migration.asked or migration.armed) and migration.reservation in state.available:
                yield from _held(state, migration.reservation, pod)
        for namespace in (pod.namespace, ""):
            for uid in self.by_namespace.get(namespace, ()):
                record = state.reservations[uid]
                if uid in state.available and owned(state, record, pod):
                    yield from _held(state, uid, pod)


def is_migration_hold(state: ClusterState, record: Reservation) -> bool:
    """Our label counts only where the log knows the migration: anybody can write a label."""
    migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
    return migration is not None and migration.reservation == record.fact.reservation


def _held(state: ClusterState, uid: ReservationUid, pod: PodObserved) -> Iterator[Candidate]:
    record = state.reservations[uid]
    spec = record.fact.spec
    digest = state.shapes[pod.shape].spec_digest
    by_spec = spec is not None and spec.match_policy == "PodSpec"
    for name, slot in sorted(state.slots[uid].items(), key=lambda item: slot_order(item[0])):
        if slot.phase is SlotPhase.HELD and (not by_spec or state.shapes[slot.shape].spec_digest == digest):
            yield uid, name, slot, record


def slot_order(name: str) -> tuple[str, int]:
    task, _, index = name.rpartition("-")
    return task, int(index)


def _admit(state: ClusterState, pod: PodObserved, slot: Slot, record: Reservation) -> tuple[DeviceShare, ...] | None:
    """The devices that the pod gets on the hold's node, or None where it may not run there. With PodSpec filter and score
    are skipped, except that the node exists, is ready, schedulable and tolerated; with Owner every predicate runs, with
    the hold's resources restored to the node."""
    row = state.table.rows.get(slot.node)
    node = state.nodes.get(slot.node)
    if row is None or node is None or (pod.pinned_node and pod.pinned_node != slot.node):
        return None
    spec = record.fact.spec
    shape = state.shapes[pod.shape]
    if spec is not None and spec.match_policy == "PodSpec":
        if not node.ready or (node.unschedulable and not tolerates(shape.tolerations, UNSCHEDULABLE)):
            return None
        if any(t.effect in ("NoSchedule", "NoExecute") and not tolerates(shape.tolerations, t) for t in node.taints):
            return None
        return slot.devices
    if not static_mask(state, pod.shape)[row]:
        return None
    v, held = state.vectors[pod.shape], state.vectors[slot.shape]
    free = state.table.free[row].copy()
    free[held.columns] += held.amounts
    if (free[v.columns] < v.amounts).any():
        return None
    if v.devices == held.devices:
        return slot.devices
    return state.table.choose_devices(row, v.devices, {d.index: d.milli for d in slot.devices})
