"""Which hold a waiting pod may take: release and allocate in one step (RULES G-4, G-5; DESIGN 5 for migrations)."""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec.structs import replace

from restow.contracts.events import HandedOver, PodObserved
from restow.contracts.ids import PodUid, ReservationUid, SlotName
from restow.contracts.values import DeviceShare, OwnerRule
from restow.domain.groups import Group, group_of
from restow.domain.predicates import repelled, static_mask, switches
from restow.domain.records import Migration, Reservation, Slot, SlotPhase
from restow.domain.reservation.match import counts_match, owned
from restow.domain.state import ClusterState
from restow.domain.table import NO_DEVICE

Admits = Callable[[PodObserved, int, tuple[ReservationUid, SlotName], bool], bool]
"""Whether rules that depend on what runs let a pod run on a row, the hold itself not counted; the last says that specs are
equal, and most rules are skipped."""

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
    admit a shape once is not asked again. `target`, where a plugin sets it, says which Reservation alone a pod may take (an
    empty uid: none that there is), or None where any that it owns will do."""

    def __init__(self, state: ClusterState, admits: Admits = lambda pod, row, hold, equal: True) -> None:
        self._state = state
        self._admits = admits
        self._now: dict[tuple[ReservationUid, SlotName], Slot] = {}
        """Places that this session has held or handed over, as they are now."""
        self._added: set[ReservationUid] = set()
        self._index: dict[Key, list[ReservationUid]] = {}
        self._places: dict[ReservationUid, dict[str, list[SlotName]]] = {}
        self._refused: dict[ReservationUid, set[tuple]] = {}
        self._groups: dict[tuple[ReservationUid, Group], bool] = {}
        self.target: Callable[[PodObserved], ReservationUid | None] = lambda pod: None
        armed = [_since(state.migrations[id]) for ids in state.armed.values() for id in ids]
        self._armed_since = min(armed, default=None)
        for uid in state.available:
            self.add(uid)

    def __bool__(self) -> bool:
        return bool(self._index) or self._armed_since is not None

    def add(self, uid: ReservationUid) -> None:
        """It became available, or has more places now."""
        record = self._state.reservations[uid]
        self._added.add(uid)
        self._places.pop(uid, None)
        self._refused.pop(uid, None)
        if record.spec is None or is_migration_hold(self._state, record):
            return
        for rule in record.spec.owners:
            uids = self._index.setdefault((record.fact.namespace, *_needed(rule)), [])
            if uid not in uids:
                uids.append(uid)

    def placed(self, uid: ReservationUid, name: SlotName, slot: Slot) -> None:
        """The session holds this place now; `add` says that the Reservation has become available."""
        self._now[uid, name] = slot

    def take(self, handed: HandedOver) -> Slot:
        """The place is used now; returns what was held."""
        key = handed.reservation, handed.slot
        slot = self._slot(*key)
        self._now[key] = replace(slot, phase=SlotPhase.USED, pod=handed.pod)
        return slot

    def give_back(self, handed: HandedOver) -> Slot:
        """Undo `take`; returns what is held again."""
        key = handed.reservation, handed.slot
        slot = self._now[key] = replace(self._now[key], phase=SlotPhase.HELD, pod=PodUid(""))
        self._places.pop(handed.reservation, None)
        # Whoever found nothing left finds this again.
        self._refused.pop(handed.reservation, None)
        return slot

    def is_held(self, uid: ReservationUid, name: SlotName) -> bool:
        """Whether the place is held, and this session has not handed it over."""
        return self._slot(uid, name).phase is SlotPhase.HELD

    def lost(self, uid: ReservationUid, name: SlotName) -> None:
        """The session gives this hold up; `held_again` takes it back."""
        self._now[uid, name] = replace(self._slot(uid, name), phase=SlotPhase.PENDING)
        self._places.pop(uid, None)

    def held_again(self, uid: ReservationUid, name: SlotName) -> None:
        self._now[uid, name] = replace(self._slot(uid, name), phase=SlotPhase.HELD)
        self._places.pop(uid, None)
        self._refused.pop(uid, None)

    def _slot(self, uid: ReservationUid, name: SlotName) -> Slot:
        return self._now.get((uid, name)) or self._state.slots[uid][name]

    def must_wait(self, pod: PodObserved) -> bool:
        """Whether it waits for its predecessor's end and can take nothing before."""
        return self.awaited(pod) and self.hand_over(pod) is None

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
            personal = False
            for name, slot in self._held(uid, record, pod):
                devices = _admit(state, pod, slot, record)
                if devices is None:
                    continue
                if self._admits(pod, state.table.rows[slot.node], (uid, name), by_spec(record)):
                    return HandedOver(uid, name, pod.pod, slot.node, devices)
                # Labels, claims and the like are a pod's own: another one of its shape may be admitted.
                personal = True
            if not personal:
                self._refused.setdefault(uid, set()).add(tried)
        return None

    def left_to(self, pod: PodObserved) -> bool:
        """Whether a pod of its lineage that was moved has left it a hold."""
        return bool(self._left(pod))

    def _left(self, pod: PodObserved) -> list[ReservationUid]:
        """Holds that a pod of the same lineage leaves, or has left, to the first that the log sees later: the earliest
        first."""
        state = self._state
        if self._armed_since is None or state.order[pod.pod] <= self._armed_since:
            return []
        lineage = state.lineage(pod)
        armed = [state.migrations[id] for id in state.armed.get(lineage, ())] if lineage else []
        armed = [m for m in armed if state.order[pod.pod] > _since(m) and self._is_available(m.reservation)]
        return [m.reservation for m in sorted(armed, key=lambda m: (m.armed, m.id))]

    def _matching(self, pod: PodObserved) -> list[ReservationUid]:
        """Those that this pod owns: of its own namespace first, the earliest created first; the one that it names, where it
        names one."""
        if not self._index:
            return []
        state = self._state
        target = self.target(pod)
        found: set[ReservationUid] = set()
        for key in _has(state, pod):
            for namespace in (pod.namespace, ""):
                found.update(self._index.get((namespace, *key), ()))
        records = [state.reservations[uid] for uid in found if target in (None, uid) and self._is_available(uid)]
        mine = [record for record in records if owned(state, record, pod)]
        mine.sort(key=lambda r: (not r.fact.namespace, r.fact.created, r.order))
        return [record.fact.reservation for record in mine]

    def _is_available(self, uid: ReservationUid) -> bool:
        return uid in self._state.available or uid in self._added

    def _counts_match(self, record: Reservation, pod: PodObserved) -> bool:
        group = group_of(pod)
        if group is None or not by_spec(record):
            return True
        key = (record.fact.reservation, group)
        known = self._groups.get(key)
        if known is None:
            known = self._groups[key] = counts_match(self._state, record.spec, group)
        return known

    def _held(self, uid: ReservationUid, record: Reservation, pod: PodObserved) -> Iterator[tuple[SlotName, Slot]]:
        """Held places that this pod may have a look at: with PodSpec only those of an equal spec."""
        state = self._state
        if uid not in self._places:
            by_digest = self._places[uid] = {}
            for name in sorted(state.slots[uid], key=slot_order, reverse=True):
                slot = self._slot(uid, name)
                if slot.phase is SlotPhase.HELD:
                    by_digest.setdefault(_digest(state, record, slot.shape), []).append(name)
        names = self._places[uid].get(_digest(state, record, pod.shape), [])
        while names and self._slot(uid, names[-1]).phase is not SlotPhase.HELD:
            names.pop()
        for name in reversed(names):
            slot = self._slot(uid, name)
            if slot.phase is SlotPhase.HELD and (uid, name) not in state.to_release:
                yield name, slot


def _since(migration: Migration) -> int:
    """Pods that the log saw later may be the successor."""
    return migration.asked or migration.armed


def _digest(state: ClusterState, record: Reservation, shape) -> str:
    """What must be equal between a place and a pod."""
    return state.shapes[shape].spec_digest if by_spec(record) else ""


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


def by_spec(record: Reservation) -> bool:
    """Whether owners match by an equal pod spec (RULES G-4)."""
    return record.spec is not None and record.spec.match_policy == "PodSpec"


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
    equal = by_spec(record)
    if equal:
        if not node.ready or repelled(state.shapes[pod.shape], node, switches(state)):
            return None
    elif not static_mask(state, pod.shape)[row]:
        return None
    return _room(state, row, pod, slot, equal)


def _room(state: ClusterState, row: int, pod: PodObserved, slot: Slot, equal: bool) -> tuple[DeviceShare, ...] | None:
    """Equal specs need no room but what admission has added to the pod's (a LimitRange's defaults are not compared): that
    must fit, or the hand-over would promise the same room twice."""
    table = state.table
    v, held = state.vectors[pod.shape], state.vectors[slot.shape]
    place = np.zeros(table.free.shape[1], np.int64)
    place[held.columns] = held.amounts
    short = table.free[row, v.columns] + place[v.columns] < v.amounts
    if equal:
        short &= v.amounts > place[v.columns]
    if short.any():
        return None
    if v.devices == held.devices:
        # A device that the node has lost meanwhile is nobody's; one that facts have over-committed fits nothing.
        least = NO_DEVICE // 2 if equal else 0
        shares = table.device_free[row]
        if all(d.index < len(shares) and shares[d.index] >= least for d in slot.devices):
            return slot.devices
    return table.choose_devices(row, v.devices, {d.index: d.milli for d in slot.devices})
