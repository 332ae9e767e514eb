"""Who may take which hold, without asking all of them: holds by what their owners have in common, and in the order in which a
pod of a shape should take them. Kept in `state.memo`, refreshed by what has changed: what a pod costs does not depend on the
number of Reservations that are not its own.
"""

from bisect import bisect_left, insort
from collections.abc import Container

import msgspec

from restow.contracts.events import PodObserved
from restow.contracts.ids import ReservationUid, ShapeId, SlotName
from restow.domain import resources as r
from restow.domain.other_schedulers import held_for
from restow.domain.records import ON_NODE, Reservation, Slot, SlotPhase
from restow.domain.reservation.owner_keys import ByOwner
from restow.domain.reservation.owner_matching import is_migration_hold, owned
from restow.domain.reservation.reservation_affinity import order_of
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState

Rank = tuple
"""The smaller, the sooner a hold is taken."""

SHAPES = 64
"""Shapes of owners whose orders are kept for Reservations of one class."""
LAST = 1 << 64
"""The order of those that have no number."""
FULL = 10_000


class Ladder:
    """The slots of one class in the order in which pods of one shape take them."""

    __slots__ = ("entries", "ranks")

    def __init__(self) -> None:
        self.entries: list[tuple[Rank, SlotKey]] = []
        self.ranks: dict[SlotKey, Rank] = {}

    def put(self, key: SlotKey, rank: Rank | None) -> None:
        """None: it is not to be taken."""
        old = self.ranks.get(key)
        if old == rank:
            return
        if old is not None:
            del self.entries[bisect_left(self.entries, (old, key))]
            del self.ranks[key]
        if rank is not None:
            insort(self.entries, (rank, key))
            self.ranks[key] = rank


class ReservationClass:
    """Reservations with equal owners in one namespace: a pod owns all of them or none. `record` is any of them, `open` their
    slots that can be taken, `all` all of theirs that are on a node."""

    __slots__ = ("all", "ladders", "members", "number", "open", "record", "said")

    def __init__(self, number: int, record: Reservation, said: tuple[str, bytes]) -> None:
        self.number = number
        self.record = record
        self.said = said
        self.members: dict[ReservationUid, None] = {}
        self.open: dict[SlotKey, None] = {}
        self.all: dict[SlotKey, None] = {}
        self.ladders: dict[ShapeId, Ladder] = {}


class _Known:
    """What the index has seen of a Reservation."""

    __slots__ = ("available", "fixed", "labels", "reservation_class", "slots", "spec")

    def __init__(self, reservation_class: ReservationClass) -> None:
        self.reservation_class = reservation_class
        self.fixed: dict[SlotName, tuple[tuple, tuple]] = {}
        """By slot, the first and the last parts of its rank, which follow from the Reservation alone."""
        self.spec: object = None
        self.labels: object = None
        self.available = False
        self.slots: dict[SlotKey, None] = {}


class HoldIndex:
    """Of all Reservations that are not migrations'."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._by_owner: ByOwner[ReservationClass] = ByOwner()
        self._classes: dict[tuple[str, bytes], ReservationClass] = {}
        self.classes_made = 0
        """How many classes there have been."""
        self.open = 0
        """How many slots can be taken."""
        self._known: dict[ReservationUid, _Known] = {}
        self._ranks: dict[tuple, tuple[int, int]] = {}
        self._reviewed, self._moved = state.reviewed.position, state.moved.position
        for uid in state.slots:
            self._look(uid)

    @staticmethod
    def of(state: ClusterState) -> "HoldIndex":
        """The index of this state, up to date."""
        known = state.memo.find(HoldIndex)
        return known if known is not None and known._refresh() else state.memo.keep(HoldIndex(state))

    @property
    def any(self) -> bool:
        """Whether any slot of a Reservation may be on a node."""
        return bool(self._known)

    # -- questions ---------------------------------------------------------------------------------------------------

    def may_own(self, pod: PodObserved) -> bool:
        """Whether this pod may own any of these Reservations, whatever is held of them. What is True for it stays so until it
        changes itself; what is False until there are owners of a new class, or its controller's own is seen."""
        return bool(self._by_owner.find(self._state, pod))

    def classes(self, pod: PodObserved, besides: Container[int] = ()) -> list[ReservationClass]:
        """Classes of Reservations that this pod owns, of those that have a slot on a node, or these numbers."""
        found = self._by_owner.find(self._state, pod)
        if not found:
            return []
        classes = {reservation_class.number: reservation_class for reservation_class in found if reservation_class.all or reservation_class.number in besides}
        return [reservation_class for reservation_class in classes.values() if owned(self._state, reservation_class.record, pod)]

    def class_of(self, uid: ReservationUid) -> ReservationClass | None:
        """None for a migration's."""
        known = self._known.get(uid)
        return None if known is None else known.reservation_class

    def ladder(self, reservation_class: ReservationClass, shape: ShapeId) -> Ladder:
        """In which order pods of this shape take slots of this class."""
        known = reservation_class.ladders.get(shape)
        if known is None:
            if len(reservation_class.ladders) >= SHAPES:
                del reservation_class.ladders[next(iter(reservation_class.ladders))]
            known = reservation_class.ladders[shape] = Ladder()
            known.ranks = {key: rank for key in reservation_class.open if (rank := self.rank(key, self._slot(key), shape)) is not None}
            known.entries = sorted((rank, key) for key, rank in known.ranks.items())
        return known

    def rank(self, key: SlotKey, slot: Slot, shape: ShapeId) -> Rank | None:
        """When a pod of this shape should take the slot (RULES 004-3): those with a `reservation-order` first, by that; then
        those that keep its host ports, and no others; then the more of its request the hold covers; then the fuller the hold would be (most allocated); then the earliest
        created. None where the slot is for pods of another spec."""
        state, record = self._state, self._state.reservations[key[0]]
        spec = record.spec
        if spec is None:
            return None
        if spec.match_policy == "PodSpec" and state.shapes[slot.shape].spec_digest != state.shapes[shape].spec_digest:
            return None
        if state.migration_config.beside and held_for(state, record) != self._elsewhere(shape):
            return None
        known = self._known.get(key[0])
        fixed = None if known is None else known.fixed.get(key[1])
        if fixed is None:
            task, _, index = key[1].rpartition("-")
            fixed = (order_of(record.fact) or LAST,), (record.fact.created, record.order, task, int(index))
            if known is not None:
                known.fixed[key[1]] = fixed
        covers, full = self._suits(slot, shape)
        return *fixed[0], *self._ports(slot, shape, spec.allocate_once), -covers, -full, *fixed[1]

    def _elsewhere(self, shape: ShapeId) -> str:
        """The scheduler of such pods, where that is another one."""
        scheduler = self._state.shapes[shape].scheduler
        return "" if scheduler in self._state.session_config.scheduler_names else scheduler

    def _ports(self, slot: Slot, shape: ShapeId, once: bool) -> tuple[int, int]:
        """How many of the host ports that the pod asks for the hold does not keep for it, and how many that it does not ask for
        would be anybody's if it ended the hold."""
        shapes = self._state.shapes
        kept = shapes[slot.shape].host_ports
        if not kept and not shapes[shape].host_ports:
            return 0, 0
        asked = {(port.port, port.protocol) for port in shapes[shape].host_ports}
        held = {(port.port, port.protocol) for port in kept}
        return len(asked - held), len(held - asked) if once else 0

    def _suits(self, slot: Slot, shape: ShapeId) -> tuple[int, int]:
        """How much of the pod's request the hold covers, and of what it was made for would be taken then, of 10 000 each: the
        means over resources; an amount beyond the hold's counts as nothing taken (Koordinator's `ScoreReservation`)."""
        key = slot.shape, shape, slot.capacity.held, slot.capacity.held_devices
        known = self._ranks.get(key)
        if known is not None:
            return known
        state = self._state
        pods = state.table.columns.get(r.PODS, -1)
        wanted = {c: a for c, a in state.vectors[shape].items if c != pods}
        made = {c: a for c, a in state.vectors[slot.shape].items if c != pods}
        held = dict(slot.capacity.held)
        covers = [min(amount, held.get(c, 0)) * FULL // amount for c, amount in wanted.items()]
        taken = {c: amount - held.get(c, 0) + wanted.get(c, 0) for c, amount in made.items()}
        full = [taken[c] * FULL // amount if taken[c] <= amount else 0 for c, amount in made.items()]
        request = state.shapes[shape].devices
        if request is not None:
            able = sum(d.milli >= request.milli for d in slot.capacity.held_devices)
            covers.append(min(able, request.count) * FULL // request.count)
        found = (sum(covers) // len(covers) if covers else 0), (sum(full) // len(full) if full else 0)
        if len(self._ranks) > 1 << 16:
            self._ranks.clear()
        self._ranks[key] = found
        return found

    def _slot(self, key: SlotKey) -> Slot:
        return self._state.slots[key[0]][key[1]]

    # -- keeping up --------------------------------------------------------------------------------------------------

    def _refresh(self) -> bool:
        state = self._state
        reviewed, moved = state.reviewed.since(self._reviewed), state.moved.since(self._moved)
        if reviewed is None or moved is None:
            return False
        self._reviewed, self._moved = state.reviewed.position, state.moved.position
        for uid in dict.fromkeys(reviewed):
            self._look(uid)
        for who in dict.fromkeys(moved) if self._known else ():
            if isinstance(who, tuple) and (known := self._known.get(who[0])) is not None:
                self._update(known, who)
        return True

    def _look(self, uid: ReservationUid) -> None:
        """A Reservation may be another one now, or available, or not any more."""
        state = self._state
        record, known = state.reservations.get(uid), self._known.get(uid)
        if record is None or record.spec is None or is_migration_hold(state, record):
            if known is not None:
                self._forget(uid, known)
            return
        same = known is None or (known.spec is record.spec and known.reservation_class.said[0] == record.fact.namespace)
        if known is not None and not same and known.reservation_class.said != _said(record):
            self._forget(uid, known)
            known = None
        available = uid in state.available
        if known is None:
            known = self._known[uid] = _Known(self._class_for(record))
        elif known.spec is record.spec and known.labels == record.fact.labels and known.available == available:
            return
        known.spec, known.labels, known.available = record.spec, record.fact.labels, available
        known.fixed.clear()
        known.reservation_class.record = record
        known.reservation_class.members[uid] = None
        for name in [*state.slots[uid], *(name for _, name in known.slots)]:
            self._update(known, (uid, name))

    def _update(self, known: _Known, key: SlotKey) -> None:
        slot = self._state.slots.get(key[0], {}).get(key[1])
        reservation_class = known.reservation_class
        if slot is not None and slot.phase in ON_NODE:
            reservation_class.all[key] = known.slots[key] = None
        else:
            reservation_class.all.pop(key, None)
            known.slots.pop(key, None)
        free = slot is not None and known.available and slot.phase is SlotPhase.HELD and key not in self._state.to_release
        was = len(reservation_class.open)
        if free:
            reservation_class.open[key] = None
        else:
            reservation_class.open.pop(key, None)
        self.open += len(reservation_class.open) - was
        for shape, ladder in reservation_class.ladders.items():
            ladder.put(key, self.rank(key, slot, shape) if free and slot is not None else None)

    def _forget(self, uid: ReservationUid, known: _Known) -> None:
        known.available = False
        for key in list(known.slots):
            known.reservation_class.all.pop(key, None)
            self.open -= key in known.reservation_class.open
            known.reservation_class.open.pop(key, None)
            for ladder in known.reservation_class.ladders.values():
                ladder.put(key, None)
        del self._known[uid]
        reservation_class = known.reservation_class
        reservation_class.members.pop(uid, None)
        if not reservation_class.members:
            del self._classes[reservation_class.said]
            self._by_owner.remove(reservation_class.record, reservation_class)

    def _class_for(self, record: Reservation) -> ReservationClass:
        said = _said(record)
        reservation_class = self._classes.get(said)
        if reservation_class is None:
            self.classes_made += 1
            reservation_class = self._classes[said] = ReservationClass(self.classes_made, record, said)
            self._by_owner.add(record, reservation_class)
        return reservation_class


def _said(record: Reservation) -> tuple[str, bytes]:
    """Equal for equal owners in one namespace."""
    assert record.spec is not None, "an accepted Reservation"
    return record.fact.namespace, msgspec.msgpack.encode(record.spec.owners)
