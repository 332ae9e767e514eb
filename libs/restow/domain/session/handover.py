"""Which hold a waiting pod may take: release and allocate in one step (RULES G-4, G-5; DESIGN 5 for migrations)."""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from msgspec.structs import replace

from restow.contracts.events import HandedOver, PodObserved
from restow.contracts.ids import PodUid, ReservationUid, SlotName
from restow.contracts.values import DeviceShare, OwnerRule, ReservationSpec
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

SPARE = 1_000
"""Reservations that are gone, and whose wording is kept until it is too many."""

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
        self._index: dict[Key, list[_Owned]] = {}
        self._kinds: dict[int, _Owned] = {}
        self._wordings = Wordings.of_state(state)
        self._kind_of: dict[ReservationUid, _Owned] = {}
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
        if record.spec is not None and uid not in self._kind_of and not is_migration_hold(self._state, record):
            self._classify(uid, record)
        self._reopen(uid)

    def _classify(self, uid: ReservationUid, record: Reservation) -> None:
        number, keys = self._wordings.of(uid, record)
        kind = self._kinds.get(number)
        if kind is None:
            kind = self._kinds[number] = _Owned(record)
            for key in keys:
                self._index.setdefault(key, []).append(kind)
        self._kind_of[uid] = kind

    def _reopen(self, uid: ReservationUid) -> None:
        """It may have places again that it had not, or for other pods."""
        self._places.pop(uid, None)
        self._refused.pop(uid, None)
        kind = self._kind_of.get(uid)
        if kind is not None:
            kind.refused.clear()
            if uid not in kind.open:
                kind.open[uid], kind.ordered = None, not kind.open

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
        self._reopen(handed.reservation)
        return slot

    def is_held(self, uid: ReservationUid, name: SlotName) -> bool:
        """Whether the place is held, and this session has not handed it over."""
        return self._slot(uid, name).phase is SlotPhase.HELD

    def lost(self, uid: ReservationUid, name: SlotName) -> None:
        """The session gives this hold up; `held_again` takes it back."""
        self._now[uid, name] = replace(self._slot(uid, name), phase=SlotPhase.PENDING)
        self._places.pop(uid, None)

    def held_again(self, uid: ReservationUid, name: SlotName) -> Slot:
        slot = self._now[uid, name] = replace(self._slot(uid, name), phase=SlotPhase.HELD)
        self._reopen(uid)
        return slot

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
        tried = (pod.shape, pod.pinned_node)
        for uid in self._left(pod):
            if (handed := self._from(uid, pod, tried)) is not None:
                return handed
        kinds = [kind for kind in self._matching(pod) if tried not in kind.refused]
        if not kinds:
            return None
        target = self.target(pod)
        for uid in self._in_turn(kinds):
            if target in (None, uid) and (handed := self._from(uid, pod, tried)) is not None:
                return handed
        for kind in kinds:
            if all(tried in self._refused.get(uid, ()) for uid in kind.open):
                kind.refused.add(tried)
        return None

    def _from(self, uid: ReservationUid, pod: PodObserved, tried: tuple) -> HandedOver | None:
        """A place of this Reservation. What refuses every pod of this shape is kept."""
        state = self._state
        record = state.reservations[uid]
        if tried in self._refused.get(uid, ()) or not self._counts_match(record, pod):
            return None
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

    def _matching(self, pod: PodObserved) -> list["_Owned"]:
        """Kinds of Reservations that this pod owns."""
        if not self._index:
            return []
        found: dict[int, _Owned] = {}
        for key in _has(self._state, pod):
            for namespace in (pod.namespace, ""):
                for kind in self._index.get((namespace, *key), ()):
                    if kind.open:
                        found[id(kind)] = kind
        return [kind for kind in found.values() if owned(self._state, kind.record, pod)]

    def _in_turn(self, kinds: list["_Owned"]) -> list[ReservationUid]:
        """Of the pod's own namespace first, the earliest created first."""
        reservations = self._state.reservations

        def turn(uid: ReservationUid) -> tuple[bool, int, int]:
            record = reservations[uid]
            return not record.fact.namespace, record.fact.created, record.order

        for kind in kinds:
            if not kind.ordered:
                kind.open, kind.ordered = dict.fromkeys(sorted(kind.open, key=turn)), True
        if len(kinds) == 1:
            return list(kinds[0].open)
        return sorted((uid for kind in kinds for uid in kind.open), key=turn)

    def _is_available(self, uid: ReservationUid) -> bool:
        return uid in self._state.available or uid in self._added

    def _counts_match(self, record: Reservation, pod: PodObserved) -> bool:
        group = group_of(pod)
        if group is None or record.spec is None or not by_spec(record):
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
        by_digest, digest = self._places[uid], _digest(state, record, pod.shape)
        names = by_digest.get(digest, [])
        while names and self._slot(uid, names[-1]).phase is not SlotPhase.HELD:
            names.pop()
        if not names:
            by_digest.pop(digest, None)
            if not by_digest and uid in self._kind_of:
                # Nothing is left of it, whoever asks.
                self._kind_of[uid].open.pop(uid, None)
        for name in reversed(names):
            slot = self._slot(uid, name)
            if slot.phase is SlotPhase.HELD and (uid, name) not in state.to_release:
                yield name, slot


class Wordings:
    """Numbers for what Reservations say of their owners, and the keys to look them up by; kept in `state.memo`, so that a
    session does not read all of them again."""

    def __init__(self) -> None:
        self._known: dict[ReservationUid, tuple[ReservationSpec, int, tuple[Key, ...]]] = {}
        self._numbers: dict[tuple[str, bytes], int] = {}

    @staticmethod
    def of_state(state: ClusterState) -> "Wordings":
        known: Wordings | None = state.memo.get("wordings")
        if known is None or len(known._known) > 2 * len(state.available) + SPARE:
            known = state.memo["wordings"] = Wordings()
        return known

    def of(self, uid: ReservationUid, record: Reservation) -> tuple[int, tuple[Key, ...]]:
        """Equal numbers, equal owners of one namespace."""
        spec, namespace = record.spec, record.fact.namespace
        assert spec is not None
        known = self._known.get(uid)
        if known is None or known[0] is not spec:
            said = namespace, msgspec.msgpack.encode(spec.owners)
            keys = tuple(dict.fromkeys((namespace, *_needed(rule)) for rule in spec.owners))
            known = self._known[uid] = spec, self._numbers.setdefault(said, len(self._numbers)), keys
        return known[1], known[2]


class _Owned:
    """Reservations with equal owners in one namespace: a pod owns all of them or none. `record` is any of them, `open` those
    that may have a place left, in their turn where `ordered`; `refused` what none of them takes."""

    __slots__ = ("open", "ordered", "record", "refused")

    def __init__(self, record: Reservation) -> None:
        self.record = record
        self.open: dict[ReservationUid, None] = {}
        self.ordered = True
        self.refused: set[tuple] = set()


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
