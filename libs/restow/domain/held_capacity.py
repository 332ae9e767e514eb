"""Capacity that is kept for somebody: held slots of Reservations and nominations (RULES 004-6).

All of it is charged as reserved and waits in the same way. What is free on a node goes to nominations first, then to slots
that wait for capacity, each in their order. Of the GPUs' column nobody holds more than what it lacks of its own devices leaves of what
it wants: whose device is still in use keeps nobody from another one. Where facts over-commit a node, capacity is given up in the same fold: so used and
reserved together are never more than there is because of a hold. What owners have taken of a hold comes back to it when they
are gone, before anybody else gets it.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain.beside import is_embodied, stands
from restow.domain.node_table import (
    NO_DEVICE,
    ChargedAs,
    Vector,
    available,
    fewer,
    less,
    lowered,
    milli,
    plus,
    shares_up_to,
    vector_of,
)
from restow.domain.records import PATIENCE, Capacity, Items, Nomination, Slot, SlotPhase
from restow.domain.resources import GPU_MILLI
from restow.domain.slots import SlotKey, Slots
from restow.domain.state_maps import NODE_LOST

OVERCOMMITTED = "Overcommitted"
"""Why a slot waits: others, or a smaller node, have taken of its capacity; it has it back as soon as it is free."""
PRE_ALLOCATION = "PreAllocation"
"""Why a slot waits: its capacity is still in use, as was allowed."""
BORROWED = "Borrowed"
"""Why a slot waits: a pod that ignores Reservations has its capacity."""
GIVEN_BACK = "GivenBack"
"""Why a slot waits: its owner was never bound there. The session looks at it once more."""
UNAVAILABLE = "Unavailable"
"""Why a hold is released whose node can never have so much any more, or where others have got its CPUs or host ports."""
MIGRATION_OVER = "MigrationOver"
"""Why a slot has ended: the move that it was for has."""

NOTHING = vector_of(())
SHORT = tuple[dict[int, int], dict[int, int]]
"""What a node is over-committed by: amounts by column, thousandths by device."""


class HeldCapacity(Slots):
    """Keeps the table, the accounts and their indexes what slots and nominations hold."""

    __slots__ = ()

    # -- slots ------------------------------------------------------------------------------------------------------

    def occupy(self, key: SlotKey, slot: Slot) -> None:
        """A slot is on its node now (`put_slot` has set it): charge what it holds. Where the node has vanished since the
        decision it is lost at once."""
        self.moved.append(key)
        if slot.node not in self.table.rows:
            self.put(self.to_release, key, NODE_LOST)
            return
        self.put_in(self.held_on, slot.node, key)
        self.charge_slot(slot, 1)
        self.note_waiting(key, slot)

    def vacate(self, key: SlotKey, slot: Slot) -> None:
        """Take the charge of a slot back. The caller sets what it is now, and tops others up when what follows is charged."""
        self.moved.append(key)
        for mapping in (self.to_release, self.whole, self.resizes):
            self.drop(mapping, key)
        self.drop_in(self.waiting_on, slot.node, key)
        self.moved.extend(self.slot_users.get(key, ()))  # what they use is the node's from now on
        if key in self.held_on.get(slot.node, ()):
            self.charge_slot(slot, -1)
            self.drop_in(self.held_on, slot.node, key)
            self.capacity_epoch += 1

    def change_capacity(self, key: SlotKey, capacity: Capacity, short: bool = False, **changes: object) -> None:
        """A slot on its node holds this now, as much as is free of what it is short of. It waits where that is not all, or it is `short` of
        CPUs, and until the session says that it is ready again."""
        slot = self.slots[key[0]][key[1]]
        capacity = _in_step(capacity, self._gpus)
        self._hold_instead(slot, capacity)
        now = replace(slot, capacity=capacity, **changes)
        capacity = self._filled(now.node, capacity, now.queue)
        if now.phase is SlotPhase.HELD and (short or not capacity.complete):
            now = replace(now, phase=SlotPhase.WAITING, reason=OVERCOMMITTED)
        now = replace(now, capacity=capacity)
        self.put_slot(key, now)
        self.moved.append(key)
        self.unsettled[key[0]] = None
        self.note_waiting(key, now)

    def borrow_from(self, key: SlotKey, slot: Slot, pod: PodUid) -> None:
        """All that the slot holds is free for a pod that comes next. What that leaves is the slot's again (`top_up`)."""
        self.charge_slot(slot, -1)
        now = replace(slot, phase=SlotPhase.WAITING, reason=BORROWED, capacity=replace(slot.capacity, held=(), held_devices=()))
        self.put_slot(key, now)
        self.moved.append(key)
        self.touched.reservations[key[0]] = None
        self.note_waiting(key, now)

    def note_waiting(self, key: SlotKey, slot: Slot) -> None:
        """Whether it waits, and whether the session is to say that it is ready."""
        if slot.phase is SlotPhase.WAITING:
            self.put_in(self.waiting_on, slot.node, key)
            if slot.capacity.complete and is_embodied(self, key, slot):
                self.put(self.whole, key, None)
                self.capacity_epoch += 1
            else:
                self.drop(self.whole, key)
        else:
            self.drop_in(self.waiting_on, slot.node, key)
            self.drop(self.whole, key)

    def charge_slot(self, slot: Slot, sign: int) -> None:
        """What it holds, in the table and the accounts."""
        held = slot.capacity
        if not held.held and not held.held_devices:
            return
        # What is held is held by name, or not at all.
        v = self._vector(held.held, self.vectors[slot.shape]) if held.held_devices else vector_of(held.held)
        self._charge(self.table.rows[slot.node], v, held.held_devices, sign, ChargedAs.HELD)
        self.account(slot.queue, v, sign)

    def _hold_instead(self, slot: Slot, capacity: Capacity) -> None:
        """Charge what `capacity` holds in place of what the slot does."""
        row, was = self.table.rows[slot.node], slot.capacity
        if was.held_devices != capacity.held_devices:
            self._charge(row, NOTHING, was.held_devices, -1, ChargedAs.HELD)
            self._charge(row, NOTHING, capacity.held_devices, 1, ChargedAs.HELD)
        if was.held != capacity.held:
            more = dict(capacity.held)
            for column, amount in was.held:
                more[column] = more.get(column, 0) - amount
            v = vector_of(item for item in more.items() if item[1])
            self._charge(row, v, (), 1, ChargedAs.HELD)
            self.account(slot.queue, v, 1)

    @property
    def _gpus(self) -> int | None:
        """The column of all devices, where any node or pod has one."""
        return self.table.columns.get(GPU_MILLI)

    @staticmethod
    def _vector(items: Items, usual: Vector) -> Vector:
        return usual if items == usual.items else vector_of(items)

    def _filled(self, node: NodeName, capacity: Capacity, queue: str = "") -> Capacity:
        """With what is free on the node of what the capacity is short of, of a device its free part; that is charged. So nobody takes
        what comes in several steps between two of them."""
        if capacity.complete:
            return capacity
        row = self.table.rows[node]
        lacking = fewer(capacity.devices, capacity.held_devices)
        free, shares = self.table.free[row].tolist(), self.table.named_free(row) if lacking else ()
        more, devices = available(less(capacity.wanted, capacity.held), lacking, free, shares, self._gpus)
        if not more and not devices:
            return capacity
        v = vector_of(more)
        self._charge(row, v, devices, 1, ChargedAs.HELD)
        self.account(queue, v, 1)
        held_devices = fewer(capacity.devices, fewer(lacking, devices))
        return replace(capacity, held=plus(capacity.held, more), held_devices=held_devices)

    def yield_cores(self, node: NodeName, cores: tuple[int, ...]) -> None:
        """These CPUs are a pod's now: a hold that has any of them waits, and is to get other ones (`releases`)."""
        for key in list(self.held_on.get(node, ())) if cores else ():
            slot = self.slots[key[0]][key[1]]
            if set(cores).isdisjoint(slot.capacity.cores):
                continue
            capacity = replace(slot.capacity, cores=tuple(core for core in slot.capacity.cores if core not in cores))
            self._lowered(key, replace(slot, capacity=capacity, cores=tuple(core for core in slot.cores if core not in cores)))
            self.capacity_epoch += 1

    def nobodys_cores(self, key: SlotKey, node: NodeName, cores: tuple[int, ...]) -> tuple[int, ...]:
        """Of these CPUs those that the slot may have: no pod has them that has not drawn them of it, no other slot, and they are not kept for
        a nomination."""
        if not cores:
            return ()
        taken = {core for pod in self.on_node.get(node, ()) for core in self.charges[pod].cores if not self._has_allocated(pod, key, core)}
        taken |= self.held_cores(node, key)
        taken.update(core for pod in self.nominated_on.get(node, ()) for core in self.nominations[pod].capacity.cores)
        return tuple(core for core in cores if core not in taken)

    def held_cores(self, node: NodeName, but: SlotKey | None = None) -> set[int]:
        """CPUs that slots on the node keep, `but` this one."""
        return {core for key in self.held_on.get(node, ()) if key != but for core in self.slots[key[0]][key[1]].capacity.cores}

    def lacks_cores(self, slot: Slot) -> bool:
        """Whether others have some of its CPUs: only the session can give it other ones (`releases`)."""
        request = self.shapes[slot.shape].cores
        return request is not None and len(slot.cores) < request.count

    def _has_allocated(self, pod: PodUid, key: SlotKey, core: int) -> bool:
        allocation = self.allocations.get(pod)
        return allocation is not None and (allocation.reservation, allocation.slot) == key and core in allocation.cores

    # -- nominations -------------------------------------------------------------------------------------------------

    def nominate(self, pod: PodUid, nomination: Nomination) -> None:
        """Hold what is free on the node now; the rest as it is freed. Another nomination of the pod ends."""
        self.denominate(pod)
        if nomination.node not in self.table.rows:
            return
        self.put(self.nominations, pod, nomination)
        self.put_in(self.nominated_on, nomination.node, pod)
        self.top_up(nomination.node)
        if (now := self.nominations[pod]).deadline != nomination.deadline:
            # What was free already is no progress.
            self.put(self.nominations, pod, replace(now, deadline=nomination.deadline))

    def denominate(self, pod: PodUid, placing: bool = False) -> None:
        """Nothing is held for it any more. `placing`: the pod is charged next, and the caller tops up after that."""
        nomination = self.drop(self.nominations, pod)
        if nomination is None:
            return
        self.drop_in(self.nominated_on, nomination.node, pod)
        for victim in nomination.victims:
            # Who has not been told to go yet stays: nobody needs its capacity any more.
            chosen = self.victims_of.get(victim)
            if chosen is not None and chosen.by == pod:
                self.drop(self.victims_of, victim)
                self.touched.pods[victim] = None
        row, capacity = self.table.rows.get(nomination.node), nomination.capacity
        if row is not None and (capacity.held or capacity.held_devices):
            self._charge(row, vector_of(capacity.held), capacity.held_devices, -1, ChargedAs.HELD)
        self.capacity_epoch += 1
        if not placing:
            self.top_up(nomination.node)

    # -- what is free, and what is too much --------------------------------------------------------------------------

    def top_up(self, node: NodeName) -> None:
        """What is free on a node goes to its nominations, then to the slots that wait there, each in their order."""
        nominated, waiting = self.nominated_on.get(node), self.waiting_on.get(node)
        if (not nominated and not waiting) or node not in self.table.rows:
            return
        for pod in list(nominated or ()):
            nomination = self.nominations[pod]
            capacity = self._filled(node, nomination.capacity)
            if capacity is not nomination.capacity:
                # The wait for the rest begins with what has come (RULES G-14).
                deadline = max(nomination.deadline, Millis(self.time + PATIENCE))
                self.put(self.nominations, pod, replace(nomination, capacity=capacity, deadline=deadline))
        for key in list(waiting or ()):
            slot = self.slots[key[0]][key[1]]
            if not slot.capacity.complete:
                capacity = self._filled(node, slot.capacity, slot.queue)
                if capacity is not slot.capacity:
                    now = replace(slot, capacity=capacity)
                    self.put_slot(key, now)
                    self.moved.append(key)
                    self.note_waiting(key, now)

    def squeeze(self, node: NodeName) -> None:
        """Where more is used and reserved than there is, capacity is given up: of slots that wait, of nominations, of holds, the
        latest first, those of migrations last, and after them those whose placeholder stands. What that frees besides is others' at once."""
        if node not in self.held_on and node not in self.nominated_on:
            return
        row = self.table.rows.get(node)
        if row is None:
            return
        short = self._short(row)
        if short is None:
            return
        gave = False
        for key in self._to_squeeze(node):
            if isinstance(key, tuple):
                slot = self.slots[key[0]][key[1]]
                if (left := _given_up(slot.capacity, short, self._gpus)) is not slot.capacity:
                    gave = True
                    self._hold_instead(slot, left)
                    self._lowered(key, replace(slot, capacity=left))
            else:
                nomination = self.nominations[key]
                if (left := _given_up(nomination.capacity, short, self._gpus)) is not nomination.capacity:
                    gave = True
                    lost = vector_of(less(nomination.capacity.held, left.held))
                    devices = fewer(nomination.capacity.held_devices, left.held_devices)
                    self._charge(row, lost, devices, -1, ChargedAs.HELD)
                    self.put(self.nominations, key, replace(nomination, capacity=left))
            if not any(short[0].values()) and not any(short[1].values()):
                break
        if gave:
            self.top_up(node)

    def _lowered(self, key: SlotKey, now: Slot) -> None:
        """Others have some of what the slot held: it waits, and keeps its reason where it waited already."""
        if now.phase is SlotPhase.HELD:
            now = replace(now, phase=SlotPhase.WAITING, reason=OVERCOMMITTED)
        self.put_slot(key, now)
        self.moved.append(key)
        self.touched.reservations[key[0]] = None
        self.note_waiting(key, now)

    def _short(self, row: int) -> SHORT | None:
        free, shares = self.table.free[row].tolist(), self.table.device_free[row].tolist()
        amounts = {c: -amount for c, amount in enumerate(free) if amount < 0}
        # A device that the node does not have (any more) lacks all that is charged to it.
        devices = {i: -share if share > NO_DEVICE // 2 else NO_DEVICE - share for i, share in enumerate(shares) if share < 0 and share != NO_DEVICE}
        return (amounts, devices) if amounts or devices else None

    def _to_squeeze(self, node: NodeName) -> Iterator[SlotKey | PodUid]:
        """A slot whose placeholder stands there comes last of all: its kubelet and every scheduler count that, whatever the slot gives up."""
        standing = {key for key in self.held_on.get(node, ()) if (pod := self.stand_ins.get(key)) and stands(self.live_of(pod), self.slots[key[0]][key[1]])}
        keys = list(self._in_order(node))
        yield from (key for key in keys if key not in standing)
        yield from (key for key in keys if key in standing)

    def _in_order(self, node: NodeName) -> Iterator[SlotKey | PodUid]:
        waiting = self.waiting_on.get(node, {})
        yield from reversed(list(waiting))
        yield from reversed(list(self.nominated_on.get(node, ())))
        held = [key for key in self.held_on.get(node, ()) if key not in waiting]
        moved = [key for key in held if self._moves(key)]
        yield from (key for key in reversed(held) if key not in moved)
        yield from reversed(moved)

    def _moves(self, key: SlotKey) -> bool:
        migration = self.migrations.get(self.reservations[key[0]].fact.migration)
        return migration is not None and migration.reservation == key[0]


def _in_step(capacity: Capacity, gpus: int | None) -> Capacity:
    """The capacity with no more of the GPUs' column than it may hold, for what it lacks of its devices."""
    missing = milli(capacity.devices) - milli(capacity.held_devices)
    if missing <= 0 or gpus is None:
        return capacity
    held = [(c, min(amount, dict(capacity.wanted).get(c, 0) - missing) if c == gpus else amount) for c, amount in capacity.held]
    return replace(capacity, held=tuple((c, amount) for c, amount in held if amount > 0))


def _given_up(capacity: Capacity, short: SHORT, gpus: int | None) -> Capacity:
    """The capacity without what is short; that is less short then."""
    amounts, devices = short
    gone = shares_up_to(capacity.held_devices, devices)
    held = lowered(capacity.held, ((c, amount - amounts.get(c, 0)) for c, amount in capacity.held))
    left = _in_step(replace(capacity, held=held, held_devices=fewer(capacity.held_devices, gone)), gpus)
    lost = less(capacity.held, left.held)
    if not lost and not gone:
        return capacity
    for column, give in lost:
        amounts[column] = max(amounts.get(column, 0) - give, 0)
    for d in gone:
        devices[d.index] -= d.milli
    return left
