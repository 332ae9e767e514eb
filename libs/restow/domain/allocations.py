"""What pods take of holds, and what comes back when they are gone (RULES 003-1, 004-1)."""

from collections.abc import Iterable

from msgspec.structs import replace

from restow.contracts.ids import PodUid, ShapeId, SlotName
from restow.contracts.values import DeviceShare
from restow.domain.held_capacity import GIVEN_BACK, MIGRATION_OVER, UNAVAILABLE, HeldCapacity
from restow.domain.host_ports import host_ports, meet
from restow.domain.node_table import fewer, less
from restow.domain.records import (
    FINAL,
    NO_CAPACITY,
    Allocation,
    Capacity,
    Items,
    Reservation,
    Slot,
    SlotPhase,
)
from restow.domain.slots import SlotKey


class Allocations(HeldCapacity):
    """Who has taken what of which slot."""

    __slots__ = ()

    def allocate(self, pod: PodUid, allocation: Allocation) -> None:
        """A pod has taken this of a hold."""
        self.put(self.allocations, pod, allocation)
        self.put_in(self.slot_users, (allocation.reservation, allocation.slot), pod)

    def owes(self, pod: PodUid) -> bool:
        """Whether what the pod uses, or some of it, is a hold's again when it ends."""
        allocation = self.allocations.get(pod)
        return allocation is not None and (allocation.reservation, allocation.slot) in self.held_on.get(allocation.node, ())

    def deallocate(self, pod: PodUid) -> None:
        """The pod uses nothing of its hold any more: what it drew comes back, or the whole hold if it was never bound there."""
        allocation = self.drop(self.allocations, pod)
        if allocation is None:
            return
        key = (allocation.reservation, allocation.slot)
        self.drop_in(self.slot_users, key, pod)
        self.unsettled[allocation.reservation] = None
        slot = self.slots.get(allocation.reservation, {}).get(allocation.slot)
        if slot is None or slot.node != allocation.node:
            return
        if key in self.held_on.get(slot.node, ()):
            self._has_back(key, slot)
        elif slot.phase is SlotPhase.USED and slot.pod == pod and not allocation.bound:
            self._hold_again(key, slot)

    def allocate_less(self, pod: PodUid, asks: Items) -> None:
        """A pod that runs asks for no more than this by now (it was resized in place): what it leaves of a hold is the hold's again."""
        allocation, most = self.allocations[pod], dict(asks)
        items = tuple([(column, least) for column, amount in allocation.items if (least := min(amount, most.get(column, 0)))])
        if items == allocation.items:
            return
        self.put(self.allocations, pod, replace(allocation, items=items))
        self.unsettled[allocation.reservation] = None
        key = (allocation.reservation, allocation.slot)
        if key in self.held_on.get(allocation.node, ()):
            self._has_back(key, self.slots[key[0]][key[1]])

    def _has_back(self, key: SlotKey, slot: Slot) -> None:
        """What nobody takes of the slot any more."""
        full = self.nobodys_cores(key, slot.node, slot.cores)
        wanted, devices, cores = self.unallocated(key, self.vectors[slot.shape].items, slot.devices, full)
        capacity = replace(slot.capacity, wanted=wanted, devices=devices, cores=cores)
        self.change_capacity(key, capacity, len(full) < len(slot.cores), cores=full)
        self.capacity_epoch += 1

    def unallocated(
        self, key: SlotKey, wanted: Items, devices: tuple[DeviceShare, ...], cores: tuple[int, ...]
    ) -> tuple[Items, tuple[DeviceShare, ...], tuple[int, ...]]:
        """What is left of this where the pods that take from the slot have theirs, which may be more than that by now."""
        gone: set[int] = set()
        for pod in self.slot_users.get(key, ()):
            allocation = self.allocations[pod]
            wanted, devices = tuple(less(wanted, allocation.items)), fewer(devices, allocation.devices)
            gone.update(allocation.cores)
        return wanted, devices, tuple(core for core in cores if core not in gone)

    def cut_off(self, key: SlotKey) -> None:
        """What pods have taken of an earlier hold of this slot is none of the next one's: it stays theirs."""
        for pod in list(self.slot_users.get(key, ())):
            self.drop(self.allocations, pod)
            self.drop_in(self.slot_users, key, pod)

    def _hold_again(self, key: SlotKey, slot: Slot) -> None:
        """Its only owner was never bound there."""
        record = self.reservations[key[0]]
        migration = self.migrations.get(record.fact.migration)
        # It was handed over at the moment at which its move ended: nobody waits for it.
        is_over = migration is not None and migration.step in FINAL
        if not record.alive or is_over:
            self.put_slot(key, replace(slot, phase=SlotPhase.FAILED, reason=MIGRATION_OVER if record.alive else record.end, pod=PodUid(""), owner="", capacity=NO_CAPACITY))
            return
        if not self._await_another(record, slot.pod):
            return
        asked = self._asked(record, key[1])
        if asked is None:
            # A later generation has been accepted meanwhile, and does not ask for it: it stays as it is.
            return
        # CPUs that the owner left were nobody's: others may have them now, and the slot is to get other ones (`releases`).
        cores = self.nobodys_cores(key, slot.node, slot.cores)
        capacity = Capacity(self.vectors[slot.shape].items, devices=slot.devices, cores=cores)
        again = replace(
            slot, phase=SlotPhase.WAITING, pod=PodUid(""), owner="", reason=GIVEN_BACK, capacity=capacity, cores=cores, reasons={},
            nodes=0, message="", asked=asked if asked != slot.shape else ShapeId(""),
            body=self.stand_ins.get(key, PodUid("")),
        )
        self.put_slot(key, again)
        self.occupy(key, again)
        if slot.node in self.table.rows:
            self.change_capacity(key, capacity)
            if again.asked:
                self.put(self.resizes, key, None)
            if self._port_taken(key, slot):
                # Its owner kept none of its host ports, so another hold may have them by now: it is to go elsewhere.
                self.put(self.to_release, key, UNAVAILABLE)

    def _port_taken(self, key: SlotKey, slot: Slot) -> bool:
        """Whether another slot or pod on its node has one of the host ports that it asks for."""
        wanted = host_ports(self.shapes[slot.shape])
        if not wanted:
            return False
        others = [self.slots[other[0]][other[1]].shape for other in self.held_on.get(slot.node, ()) if other != key]
        others += [self.pods[pod].fact.shape for pod in self.on_node.get(slot.node, ()) if pod != slot.pod and pod in self.charges]
        return any(meet(mine, port) for shape in others for port in host_ports(self.shapes[shape]) for mine in wanted)

    @staticmethod
    def _asked(record: Reservation, name: SlotName) -> ShapeId | None:
        """The shape that the accepted generation asks for this slot in, None where it does not ask for it."""
        task, _, index = name.rpartition("-")
        tasks = record.spec.tasks if record.spec is not None else ()
        return next((t.shape for t in tasks if t.name == task and int(index) < t.replicas), None)

    def _await_another(self, record: Reservation, pod: PodUid) -> bool:
        """Whether the hold is of use to another pod. A migration's may be taken by the next of the lineage where its successor
        was not bound and is gone, or by that itself; one that somebody has bound elsewhere, or that has finished, has come."""
        migration = self.migrations.get(record.fact.migration)
        if migration is None or migration.successor != pod:
            return True
        if migration.arrived:
            return False
        live = self.live_of(pod)
        if live is not None and (live.node is not None or live.phase == "Succeeded"):
            return False
        self.drop(self.successors, pod)
        self.put(self.migrations, migration.id, replace(migration, successor=PodUid("")))
        self.put_in(self.armed, migration.lineage, migration.id)
        return True


Taken = tuple[Items, tuple[DeviceShare, ...], tuple[int, ...]]
"""Amounts by column, shares of devices, CPUs."""


def taken_of(
    capacity: Capacity, wanted: Items, devices: Iterable[DeviceShare], cores: Iterable[int], gpus: int | None
) -> Taken:
    """What a pod takes of a hold: of every amount as much as is held and it asks for, of its devices and CPUs those that the
    hold has. Of all devices together (`gpus` is their column) as much as of each."""
    held = dict(capacity.held)
    taken: tuple[DeviceShare, ...] = ()
    if capacity.held_devices:
        shares = {d.index: d.milli for d in capacity.held_devices}
        taken = tuple(DeviceShare(d.index, take) for d in devices if (take := min(d.milli, shares.get(d.index, 0))))
    if gpus in held:
        held[gpus] = min(held[gpus], sum(d.milli for d in taken))
    items = tuple([(c, take) for c, amount in wanted if (take := min(amount, held.get(c, 0)))])
    mine = set(cores) if capacity.cores else ()
    return items, taken, tuple(c for c in capacity.cores if c in mine)


def after(capacity: Capacity, items: Items, devices: Iterable[DeviceShare], cores: Iterable[int]) -> Capacity:
    """The capacity without what was allocated, of what is wanted and of what is held."""
    gone, taken = set(cores), tuple(devices)
    wanted = tuple(less(capacity.wanted, items))
    return Capacity(
        wanted,
        wanted if capacity.held == capacity.wanted else tuple(less(capacity.held, items)),
        fewer(capacity.devices, taken),
        fewer(capacity.held_devices, taken),
        tuple(c for c in capacity.cores if c not in gone),
    )
