"""Which hold a waiting pod may take: release and allocate in one step (RULES G-4, G-5; DESIGN 5 for migrations)."""

from collections.abc import Iterator

import numpy as np

from restow.contracts.events import HandedOver, PodObserved
from restow.contracts.ids import ReservationUid, SlotName
from restow.contracts.values import DeviceShare, OwnerRule
from restow.domain.groups import Group, group_of
from restow.domain.predicates import repelled, static_mask
from restow.domain.records import Migration, Reservation, Slot, SlotPhase
from restow.domain.reservation.match import counts_match, owned
from restow.domain.state import ClusterState
from restow.domain.table import NO_DEVICE

Key = tuple[str, str, str]
"""Namespace of the Reservation (empty for all), and something that a pod must have to be its owner: a label and its value,
`uid` or `name` of itself or of what controls it, or nothing."""

_ANY = ("", "")
_UID, _NAME = "uid of", "name of"
"""No label's key has a blank."""


class Offers:
    """The holds that a session can hand over: by lineage for migrations; for the others by something that each of their
    owners has, so that a pod is compared only with Reservations that it may well own. Truthy where there are any.

    Within a session room only shrinks (but for hand-overs to smaller pods, which make another session due), so what did not
    admit a shape once is not asked again."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._index: dict[Key, list[ReservationUid]] = {}
        self._places: dict[ReservationUid, dict[str, list[SlotName]]] = {}
        self._refused: dict[ReservationUid, set[tuple]] = {}
        self._groups: dict[tuple[ReservationUid, Group], bool] = {}
        armed = [_since(state.migrations[id]) for ids in state.armed.values() for id in ids]
        self._armed_since = min(armed, default=None)
        for uid in state.available:
            self.add(uid)

    def __bool__(self) -> bool:
        return bool(self._index) or self._armed_since is not None

    def add(self, uid: ReservationUid) -> None:
        """It became available, or has more places now."""
        record = self._state.reservations[uid]
        self._places.pop(uid, None)
        self._refused.pop(uid, None)
        if record.spec is None or is_migration_hold(self._state, record):
            return
        for rule in record.spec.owners:
            uids = self._index.setdefault((record.fact.namespace, *_needed(rule)), [])
            if uid not in uids:
                uids.append(uid)

    def awaited(self, pod: PodObserved) -> bool:
        """Whether it may be the successor of a pod whose eviction is under way and whose end the log has not seen yet: a
        list shows objects in any order. It waits for that fact, or for the eviction to be given up (both are near)."""
        state = self._state
        if not state.expecting:
            return False
        expecting = state.expecting.get(state.lineage(pod), ())
        return any(state.order[pod.pod] > state.migrations[id].asked for id in expecting)

    def hand_over(self, pod: PodObserved) -> HandedOver | None:
        """The hand-over for this pod, or None where it goes the normal way: migration holds that its predecessor left
        first, then Reservations whose owners it matches; inside one, places in the order of their names."""
        state = self._state
        for uid in (*self._left(pod), *self._matching(pod)):
            record = state.reservations[uid]
            tried = (pod.shape, pod.pinned_node)
            if tried in self._refused.get(uid, ()) or not self._counts_match(record, pod):
                continue
            for name, slot in self._held(uid, record, pod):
                devices = _admit(state, pod, slot, record)
                if devices is not None:
                    return HandedOver(uid, name, pod.pod, slot.node, devices)
            self._refused.setdefault(uid, set()).add(tried)
        return None

    def _left(self, pod: PodObserved) -> list[ReservationUid]:
        """Holds that a pod of the same lineage leaves, or has left, to the first that the log sees later: the earliest
        first."""
        state = self._state
        if self._armed_since is None or state.order[pod.pod] <= self._armed_since:
            return []
        lineage = state.lineage(pod)
        armed = [state.migrations[id] for id in state.armed.get(lineage, ())] if lineage else []
        armed = [m for m in armed if state.order[pod.pod] > _since(m) and m.reservation in state.available]
        return [m.reservation for m in sorted(armed, key=lambda m: (m.armed, m.id))]

    def _matching(self, pod: PodObserved) -> list[ReservationUid]:
        """Those that this pod owns: of its own namespace first, the earliest created first."""
        if not self._index:
            return []
        state = self._state
        found: set[ReservationUid] = set()
        for key in _has(state, pod):
            for namespace in (pod.namespace, ""):
                found.update(self._index.get((namespace, *key), ()))
        records = [state.reservations[uid] for uid in found if uid in state.available]
        mine = [record for record in records if owned(state, record, pod)]
        mine.sort(key=lambda r: (not r.fact.namespace, r.fact.created, r.order))
        return [record.fact.reservation for record in mine]

    def _counts_match(self, record: Reservation, pod: PodObserved) -> bool:
        group = group_of(pod)
        if group is None or record.spec is None or record.spec.match_policy != "PodSpec":
            return True
        key = (record.fact.reservation, group)
        known = self._groups.get(key)
        if known is None:
            known = self._groups[key] = counts_match(self._state, record.spec, group)
        return known

    def _held(self, uid: ReservationUid, record: Reservation, pod: PodObserved) -> Iterator[tuple[SlotName, Slot]]:
        """Held places that this pod may have a look at: with PodSpec only those of an equal spec."""
        state = self._state
        slots = state.slots[uid]
        if uid not in self._places:
            by_digest = self._places[uid] = {}
            for name in sorted(slots, key=slot_order, reverse=True):
                if slots[name].phase is SlotPhase.HELD:
                    by_digest.setdefault(_digest(state, record, slots[name].shape), []).append(name)
        names = self._places[uid].get(_digest(state, record, pod.shape), [])
        while names and slots[names[-1]].phase is not SlotPhase.HELD:
            names.pop()
        for name in reversed(names):
            slot = slots[name]
            if slot.phase is SlotPhase.HELD and (uid, name) not in state.to_release:
                yield name, slot


def _since(migration: Migration) -> int:
    """Pods that the log saw later may be the successor."""
    return migration.asked or migration.armed


def _digest(state: ClusterState, record: Reservation, shape) -> str:
    """What must be equal between a place and a pod."""
    by_spec = record.spec is not None and record.spec.match_policy == "PodSpec"
    return state.shapes[shape].spec_digest if by_spec else ""


def _needed(rule: OwnerRule) -> tuple[str, str]:
    """One thing that every owner by this rule has, the most telling one."""
    for ref in (rule.controller, rule.object):
        if ref is not None and ref.uid:
            return _UID, ref.uid
    for ref in (rule.controller, rule.object):
        if ref is not None and ref.name:
            return _NAME, ref.name
    if rule.selector is not None and rule.selector.labels:
        return min(rule.selector.labels.items())
    return _ANY


def _has(state: ClusterState, pod: PodObserved) -> Iterator[tuple[str, str]]:
    """What `_needed` may ask for, of this pod."""
    yield _ANY
    yield from pod.labels.items()
    yield _UID, pod.pod
    yield _NAME, pod.name
    if pod.owner is not None:
        yield _UID, pod.owner.uid
        yield _NAME, pod.owner.name
        above = state.workloads.get(pod.owner.uid)
        if above is not None:
            yield _UID, above.owner.uid
            yield _NAME, above.owner.name


def is_migration_hold(state: ClusterState, record: Reservation) -> bool:
    """Our label counts only where the log knows the migration: anybody can write a label."""
    migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
    return migration is not None and migration.reservation == record.fact.reservation


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
    by_spec = record.spec is not None and record.spec.match_policy == "PodSpec"
    if by_spec:
        if not node.ready or repelled(state.shapes[pod.shape], node):
            return None
    elif not static_mask(state, pod.shape)[row]:
        return None
    return _room(state, row, pod, slot, by_spec)


def _room(state: ClusterState, row: int, pod: PodObserved, slot: Slot, by_spec: bool) -> tuple[DeviceShare, ...] | None:
    """Equal specs need no room but what admission has added to the pod's (a LimitRange's defaults are not compared): that
    must fit, or the hand-over would promise the same room twice."""
    table = state.table
    v, held = state.vectors[pod.shape], state.vectors[slot.shape]
    place = np.zeros(table.free.shape[1], np.int64)
    place[held.columns] = held.amounts
    short = table.free[row, v.columns] + place[v.columns] < v.amounts
    if by_spec:
        short &= v.amounts > place[v.columns]
    if short.any():
        return None
    if v.devices == held.devices:
        # A device that the node has lost meanwhile is nobody's; one that facts have over-committed fits nothing.
        least = NO_DEVICE // 2 if by_spec else 0
        shares = table.device_free[row]
        if all(d.index < len(shares) and shares[d.index] >= least for d in slot.devices):
            return slot.devices
    return table.choose_devices(row, v.devices, {d.index: d.milli for d in slot.devices})
