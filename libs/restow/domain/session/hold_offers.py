"""Which hold a waiting pod may take: release and allocate in one step (RULES G-4, G-5, 004-3; DESIGN 5 for migrations)."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Container, Hashable
from typing import Protocol

from msgspec.structs import replace

from restow.contracts.events import HandedOver, PodObserved
from restow.contracts.ids import PodUid, ReservationUid
from restow.domain.allocations import Taken, after, taken_of
from restow.domain.groups import Group, group_of
from restow.domain.records import ON_NODE, Migration, Reservation, Slot, SlotPhase
from restow.domain.reservation.allocate_once import is_once
from restow.domain.reservation.hold_index import HoldIndex, Rank, ReservationClass
from restow.domain.reservation.owner_matching import by_spec, counts_match, is_migration_hold
from restow.domain.reservation.reservation_affinity import Wish, closed, ignores, wish_of
from restow.domain.resources import GPU_MILLI
from restow.domain.session.hold_allocation import may_run, share_of
from restow.domain.session.journal import Journal
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState
from restow.domain.successors import may_follow

Tried = tuple
"""What pods have in common that no slot refuses one of and admits the other: shape, pinned node, what they say of Reservations."""


SKIPPED = 256
"""Slots that were passed over in vain after which a line is made anew without them."""


class Host(Protocol):
    """What the session is asked: whether rules that depend on what runs let the pod run on a row in place of the hold, with
    which CPUs; None where they do not. `equal`: specs are equal, and most rules are skipped."""

    def admits(self, pod: PodObserved, row: int, hold: SlotKey, slot: Slot, equal: bool) -> tuple[int, ...] | None: ...

    def alike(self, pod: PodObserved) -> Hashable:
        """Equal for pods of which it says the same."""
        ...

    @property
    def moves(self) -> int:
        """Grows when it may say something else than before."""
        ...


class _Line:
    """Slots of the classes that a pod owns, for pods that are alike in what is `Tried`, in the order in which they take them:
    those of `base` from `start` on that this session has not changed and that are not `refused`, and between them `changed`
    ones as they are now, with their `ranks`. `seen`: how many changes of each class are known to it. `base` is the index's;
    `skipped`: how many of it were passed over in vain. `vain`: who got none of it for something of its own, by what it has in common with
    those of whom the same would be said, and at which of the session's moves."""

    __slots__ = ("base", "changed", "classes", "ranks", "refused", "seen", "skipped", "start", "vain")

    def __init__(self, classes: list[ReservationClass], base: list[tuple[Rank, SlotKey]]) -> None:
        self.classes = classes
        self.base = base
        self.start = 0
        self.refused: set[SlotKey] = set()
        self.changed: list[tuple[Rank, SlotKey]] = []
        self.ranks: dict[SlotKey, Rank] = {}
        self.seen = [0] * len(classes)
        self.skipped = 0
        self.vain: dict[Hashable, int] = {}

    def put(self, key: SlotKey, rank: Rank | None) -> None:
        """A slot that the session has changed has this rank now; None where it cannot be had."""
        old = self.ranks.pop(key, None)
        if old is not None:
            del self.changed[bisect_left(self.changed, (old, key))]
        if rank is not None:
            insort(self.changed, (rank, key))
            self.ranks[key] = rank

    def compact(self, now: Container[SlotKey]) -> None:
        """`now`: what the session has changed."""
        left = self.base[self.start :]
        self.base = [entry for entry in left if entry[1] not in now and entry[1] not in self.refused]
        self.start = self.skipped = 0
        self.refused.clear()


class Offers:
    """The holds that a session can hand over: by lineage for migrations; for the others what the index (`HoldIndex`) has, with
    what this session has changed laid over it. Truthy where there are any.

    Within a session capacity only shrinks (but for hand-overs to smaller pods, which make another session due), so what did not
    admit a shape once is not asked again. `target`, where a plugin sets it, says which Reservation alone a pod may take (an
    empty uid: none that there is), or None where any that it owns will do."""

    def __init__(self, state: ClusterState, host: Host, journal: Journal | None = None) -> None:
        self._state = state
        self._host = host
        self.target: Callable[[PodObserved], ReservationUid | None] = lambda pod: None
        self._journal = journal or Journal()
        self._index = HoldIndex.of(state)
        self.owned = self._index.any
        """Whether any pod may own anything that is held."""
        self.changes = 0
        """How often a slot has changed."""
        self._now: dict[SlotKey, Slot] = {}
        """Slots that this session has held, handed over or given up, as they are now."""
        self._added: dict[ReservationUid, None] = {}
        """Reservations that have become available, or have more slots, in this session."""
        self._reopened: dict[int, list[SlotKey]] = {}
        """By the number of their class, slots that may be had again, or by other pods."""
        self._lines: dict[tuple, _Line] = {}
        self._classes_of: dict[PodUid, list[ReservationClass]] = {}
        self._groups: dict[tuple[ReservationUid, Group], bool] = {}
        self._awaiting: dict[PodUid, None] | None = None
        """Pods that wait for a hold that is coming; None until somebody asks."""
        armed = [state.migrations[id].came_before for ids in state.armed.values() for id in ids]
        self._armed_since = min(armed, default=None)

    def __bool__(self) -> bool:
        return bool(self._index.open or self._added) or self._armed_since is not None

    # -- what the session has changed --------------------------------------------------------------------------------

    def change(self, key: SlotKey, now: Slot, was: Slot | None = None) -> None:
        """The slot is this from now on, and may be had again, or by other pods. (`was`: what it is where that is taken back.)"""
        self._journal.note(self.change, key, was or self.slot(key))
        self.changes += 1
        self._now[key] = now
        self._reopen(key)

    def add(self, uid: ReservationUid) -> None:
        """It became available, or has more slots now."""
        self.changes += 1
        self._added[uid] = None
        for name in self._state.slots[uid]:
            self._reopen((uid, name))

    def take(self, handed: HandedOver) -> tuple[Slot, Taken | None]:
        """The pod has it; returns what was held, and what was allocated of it, None for all of it."""
        key, pod = (handed.reservation, handed.slot), self._state.pods[handed.pod].fact
        slot = self.slot(key)
        if self.is_once(key):
            self.change(key, replace(slot, phase=SlotPhase.USED, pod=handed.pod))
            return slot, None
        taken = self.taken(slot, pod, handed)
        # What was allocated from, if only to try, is looked at again in the next session (`is_untouched`).
        self.change(key, replace(slot, capacity=after(slot.capacity, *taken)), replace(slot))
        return slot, taken

    def give_up(self, key: SlotKey) -> Slot:
        """The session gives this hold up. Returns it as it was."""
        slot = self.slot(key)
        self.change(key, replace(slot, phase=SlotPhase.PENDING))
        return slot

    def taken(self, slot: Slot, pod: PodObserved, handed: HandedOver) -> Taken:
        """What the pod takes of a hold that is this."""
        table = self._state.table
        wanted = self._state.vectors[pod.shape].items
        return taken_of(slot.capacity, wanted, handed.devices, handed.cores, table.columns.get(GPU_MILLI))

    def is_once(self, key: SlotKey) -> bool:
        """Whether the first pod that takes of it ends it, however little that is."""
        return is_once(self._state.reservations[key[0]])

    def is_held(self, key: SlotKey) -> bool:
        """Whether the slot is held, and this session has not handed it over."""
        return self.slot(key).phase is SlotPhase.HELD

    def is_untouched(self, key: SlotKey) -> bool:
        """Whether this session has neither held, handed over, taken from nor given up the slot."""
        return key not in self._now or self._now[key] is self._state.slots[key[0]][key[1]]

    def touched(self) -> list[SlotKey]:
        """Those of which that is not so."""
        return [key for key in self._now if not self.is_untouched(key)]

    def _reopen(self, key: SlotKey) -> None:
        """It may be had again, or by other pods. Nobody may have been asked about Reservations of its class before."""
        reservation_class = self._index.class_of(key[0])
        if reservation_class is None:
            return
        if reservation_class.number not in self._reopened and not reservation_class.all:
            self._classes_of.clear()
        self._reopened.setdefault(reservation_class.number, []).append(key)

    def slot(self, key: SlotKey) -> Slot:
        """A slot as it is now."""
        return self._now.get(key) or self._state.slots[key[0]][key[1]]

    # -- questions ---------------------------------------------------------------------------------------------------

    def must_wait(self, pod: PodObserved) -> bool:
        """Whether it waits for what its predecessor has left, and can take nothing before."""
        return self.awaited(pod) and self.hand_over(pod) is None

    def awaited(self, pod: PodObserved) -> bool:
        """Whether a hold that was left to a pod like this one is soon to be had, and this one is the first who may take it. As many wait
        as there are such holds: whoever else its controller makes meanwhile goes its way, and so does everybody before the victim's end
        is a fact."""
        if self._armed_since is None:
            return False
        if self._awaiting is None:
            self._awaiting = self._first_in_line()
        return pod.pod in self._awaiting

    def _first_in_line(self) -> dict[PodUid, None]:
        """Of the pods that wait, one for each hold that is coming: in the order in which the victims ended, and the pods came."""
        state = self._state
        coming: dict[str, list[Migration]] = {}
        for lineage, ids in state.armed.items():
            if left := [state.migrations[id] for id in ids if self._is_coming(state.migrations[id])]:
                coming[lineage] = sorted(left, key=lambda m: (m.armed, m.id))
        if not coming:
            return {}
        after = min(m.came_before for left in coming.values() for m in left)
        candidates = [(order, uid) for uid in (*state.queue, *state.parked) if (order := state.pods[uid].order) > after]
        found: dict[PodUid, None] = {}
        for _, uid in sorted(candidates):
            pod = state.pods[uid].fact
            left = coming.get(state.lineage(pod), [])
            its = next((m for m in left if may_follow(state, pod, m) and self._takes(pod, m)), None)
            if its is not None:
                left.remove(its)
                found[uid] = None
        return found

    def _is_coming(self, migration: Migration) -> bool:
        """Whether the hold that a pod has left is soon to be had: of two that change slots one waits for the other to leave, and
        a rule may count the pod that terminates as one beside its successor."""
        state, slots = self._state, self._state.slots.get(migration.reservation, {})
        if migration.move.swap and any(slot.phase is SlotPhase.WAITING for slot in slots.values()):
            return True
        return migration.move.pod in state.charges and self._is_available(migration.reservation)

    def _takes(self, pod: PodObserved, migration: Migration) -> bool:
        """Whether its node still lets the pod run: nobody waits for a hold on a node that was lost or cordoned."""
        slots = self._state.slots.get(migration.reservation, {})
        return any(slot.phase in ON_NODE and may_run(self._state, pod, slot, False) for slot in slots.values())

    def own(self, pod: PodObserved) -> list[ReservationClass]:
        """The classes of Reservations that a pod owns; none for one that ignores Reservations."""
        if not self.owned or ignores(pod):
            return []
        known = self._classes_of.get(pod.pod)
        if known is None:
            known = self._classes_of[pod.pod] = self._index.classes(pod, self._reopened)
        return known

    def hand_over(self, pod: PodObserved) -> HandedOver | None:
        """The hand-over for this pod, or None where it goes the normal way: migration holds that its predecessor left
        first, then what it owns, in the order of the index."""
        for uid in self.holds_left(pod):
            for name in sorted(self._state.slots[uid]):
                if (handed := self._from((uid, name), pod, None)[0]) is not None:
                    return handed
        classes = self.own(pod)
        if not classes:
            return None
        wish, target = wish_of(pod), self.target(pod)
        if wish is not None and wish.wrong:
            return None
        line = self._line(pod, classes, target)
        if not line.vain:
            return self._first(line, pod, wish)
        # Many may own a hold that a rule keeps from all of them: one of those that are alike is asked about.
        alike = self._host.alike(pod), group_of(pod)
        return None if line.vain.get(alike) == self._host.moves else self._first(line, pod, wish)

    def _first(self, line: _Line, pod: PodObserved, wish: Wish | None) -> HandedOver | None:
        now = self._now
        if line.skipped > SKIPPED:
            line.compact(now)
        base, changed, refused = line.base, line.changed, line.refused
        at, next_at, passed = line.start, 0, False
        while True:
            while at < len(base) and (base[at][1] in now or base[at][1] in refused):
                at += 1
                line.skipped += passed
            if not passed:
                line.start = at
            own = next_at < len(changed) and (at == len(base) or changed[next_at] < base[at])
            if not own and at == len(base):
                if passed or next_at:
                    line.vain[self._host.alike(pod), group_of(pod)] = self._host.moves
                return None
            key = changed[next_at][1] if own else base[at][1]
            handed, personal = self._from(key, pod, wish)
            if handed is not None:
                return handed
            if personal:
                # Labels, claims and groups are a pod's own: the next one may have it.
                if own:
                    next_at += 1
                else:
                    at, passed = at + 1, True
            elif own:
                line.put(key, None)
            elif passed:
                refused.add(key)
            else:
                at = line.start = at + 1

    def _line(self, pod: PodObserved, classes: list[ReservationClass], target: ReservationUid | None) -> _Line:
        """What is left for pods like this one. `target`: of this Reservation alone."""
        said = tuple(sorted(pod.annotations.items())) if wish_of(pod) is not None else ()
        key = (pod.shape, pod.pinned_node, said, target, *[reservation_class.number for reservation_class in classes])
        line = self._lines.get(key)
        if line is None:
            entries = self._index.ladder(classes[0], pod.shape).entries
            if len(classes) > 1:
                entries = sorted(entry for reservation_class in classes for entry in self._index.ladder(reservation_class, pod.shape).entries)
            if target is not None:
                entries = [entry for entry in entries if entry[1][0] == target]
            line = self._lines[key] = _Line(classes, entries)
        if self._reopened:
            self._catch_up(line, pod, target)
        return line

    def _catch_up(self, line: _Line, pod: PodObserved, target: ReservationUid | None) -> None:
        for i, reservation_class in enumerate(line.classes):
            again, seen = self._reopened.get(reservation_class.number), line.seen[i]
            if again is None or seen == len(again):
                continue
            line.seen[i] = len(again)
            for key in dict.fromkeys(again[seen:]):
                if target is None or target == key[0]:
                    slot = self.slot(key)
                    line.put(key, self._index.rank(key, slot, pod.shape) if slot.phase is SlotPhase.HELD else None)

    def _from(self, key: SlotKey, pod: PodObserved, wish: Wish | None) -> tuple[HandedOver | None, bool]:
        """This slot, or whether the pod alone is refused, and not all that are like it."""
        state = self._state
        record, slot = state.reservations[key[0]], self.slot(key)
        if slot.phase is not SlotPhase.HELD or key in state.to_release:
            return None, False
        equal = by_spec(record)
        if not is_migration_hold(state, record) and closed(state, wish, pod, record, state.nodes.get(slot.node), slot.shape):
            return None, False
        if not self._counts_match(record, pod):
            return None, True
        if not may_run(state, pod, slot, equal):
            return None, False
        devices = share_of(state, pod, slot, record)
        if devices is None:
            return None, False
        cores = self._host.admits(pod, state.table.rows[slot.node], key, slot, equal)
        if cores is None:
            return None, True
        return HandedOver(*key, pod.pod, slot.node, devices, (), cores), False

    def why_none(self, pod: PodObserved) -> str:
        """Of a pod that has to use a Reservation, and can use none: how many there are that it owns, and what is against each."""
        wish, state = wish_of(pod), self._state
        if wish is not None and wish.wrong:
            return wish.wrong
        against: Counter[str] = Counter()
        for reservation_class in self.own(pod):
            for key in sorted(reservation_class.all):
                record, slot = state.reservations[key[0]], self.slot(key)
                why = closed(state, wish, pod, record, state.nodes.get(slot.node), slot.shape)
                if not why:
                    waits = slot.phase is not SlotPhase.HELD
                    why = "is not available" if waits else "has no capacity that the pod can take"
                against[why] += 1
        if not against:
            return "it asks for a Reservation by affinity, and is an owner of none that holds anything"
        parts = [f"{count} {why}" for why, count in sorted(against.items())]
        again = "slot" if against.total() == 1 else "slots"
        return f"of {against.total()} {again} of Reservations that it owns: {', '.join(parts)}"

    @property
    def left_behind(self) -> bool:
        """Whether any pod that was moved leaves a hold to its successor."""
        return self._armed_since is not None

    def left_to(self, pod: PodObserved) -> bool:
        """Whether a pod of its lineage that was moved has left it a hold."""
        return bool(self.holds_left(pod))

    def holds_left(self, pod: PodObserved) -> list[ReservationUid]:
        """Holds that a pod of the same lineage leaves, or has left, to the first like it that the log sees later: the earliest
        first."""
        state = self._state
        if self._armed_since is None or state.pods[pod.pod].order <= self._armed_since:
            return []
        lineage = state.lineage(pod)
        armed = [state.migrations[id] for id in state.armed.get(lineage, ())] if lineage else []
        armed = [m for m in armed if may_follow(state, pod, m) and self._is_available(m.reservation)]
        return [m.reservation for m in sorted(armed, key=lambda m: (m.armed, m.id))]

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


def slot_order(name: str) -> tuple[str, int]:
    task, _, index = name.rpartition("-")
    return task, int(index)
