"""What pods take of holds, and what comes back when they are gone (RULES 003-1, 004-1)."""

from collections.abc import Iterable

from msgspec.structs import replace

from restow.contracts.ids import PodUid, ShapeId, SlotName
from restow.contracts.values import DeviceShare
from restow.domain.places import Place
from restow.domain.records import FINAL, NO_ROOM, Draw, Items, Reservation, Room, Slot, SlotPhase
from restow.domain.rooms import GIVEN_BACK, Rooms
from restow.domain.table import fewer, less


class Draws(Rooms):
    """Who has drawn what of which place."""

    __slots__ = ()

    def draw(self, pod: PodUid, drawn: Draw) -> None:
        """A pod has taken this of a hold."""
        self.put(self.draws, pod, drawn)
        self.put_in(self.drawers, (drawn.reservation, drawn.slot), pod)

    def owes(self, pod: PodUid) -> bool:
        """Whether what the pod uses, or some of it, is a hold's again when it ends."""
        drawn = self.draws.get(pod)
        return drawn is not None and (drawn.reservation, drawn.slot) in self.held_on.get(drawn.node, ())

    def undraw(self, pod: PodUid) -> None:
        """The pod uses nothing of its hold any more: what it drew comes back, or the whole hold if it was never bound there."""
        drawn = self.drop(self.draws, pod)
        if drawn is None:
            return
        key = (drawn.reservation, drawn.slot)
        self.drop_in(self.drawers, key, pod)
        self.unsettled[drawn.reservation] = None
        slot = self.slots.get(drawn.reservation, {}).get(drawn.slot)
        if slot is None or slot.node != drawn.node:
            return
        if key in self.held_on.get(slot.node, ()):
            self._has_back(key, slot)
        elif slot.phase is SlotPhase.USED and slot.pod == pod and not drawn.bound:
            self._hold_again(key, slot)

    def draw_less(self, pod: PodUid, asks: Items) -> None:
        """A pod that runs asks for no more than this by now (it was resized in place): what it leaves of a hold is the hold's again."""
        drawn, most = self.draws[pod], dict(asks)
        items = tuple([(column, least) for column, amount in drawn.items if (least := min(amount, most.get(column, 0)))])
        if items == drawn.items:
            return
        self.put(self.draws, pod, replace(drawn, items=items))
        self.unsettled[drawn.reservation] = None
        key = (drawn.reservation, drawn.slot)
        if key in self.held_on.get(drawn.node, ()):
            self._has_back(key, self.slots[key[0]][key[1]])

    def _has_back(self, key: Place, slot: Slot) -> None:
        """What nobody draws of the place any more."""
        wanted, devices, cores = self.undrawn(key, self.vectors[slot.shape].items, slot.devices, slot.cores)
        self.change_room(key, replace(slot.room, wanted=wanted, devices=devices, cores=cores))
        self.capacity_epoch += 1

    def undrawn(
        self, key: Place, wanted: Items, devices: tuple[DeviceShare, ...], cores: tuple[int, ...]
    ) -> tuple[Items, tuple[DeviceShare, ...], tuple[int, ...]]:
        """What is left of this where the pods that draw from the place have theirs, which may be more than that by now."""
        gone: set[int] = set()
        for pod in self.drawers.get(key, ()):
            drawn = self.draws[pod]
            wanted, devices = tuple(less(wanted, drawn.items)), fewer(devices, drawn.devices)
            gone.update(drawn.cores)
        return wanted, devices, tuple(core for core in cores if core not in gone)

    def cut_off(self, key: Place) -> None:
        """What pods have drawn of an earlier hold of this place is none of the next one's: it stays theirs."""
        for pod in list(self.drawers.get(key, ())):
            self.drop(self.draws, pod)
            self.drop_in(self.drawers, key, pod)

    def _hold_again(self, key: Place, slot: Slot) -> None:
        """Its only owner was never bound there."""
        record = self.reservations[key[0]]
        if not record.alive:
            self.put_place(key, replace(slot, phase=SlotPhase.FAILED, reason=record.end, pod=PodUid(""), owner="", room=NO_ROOM))
            return
        if not self._await_another(record, slot.pod):
            return
        asked = self._asked(record, key[1])
        if asked is None:
            # A later generation has been accepted meanwhile, and does not ask for it: it stays as it is.
            return
        # CPUs that the owner left were nobody's: others may have them now, and the place is to get other ones (`releases`).
        cores = tuple(core for core in slot.cores if core not in self._cores_in_use(slot.node)) if slot.cores else ()
        room = Room(self.vectors[slot.shape].items, devices=slot.devices, cores=cores)
        again = replace(
            slot, phase=SlotPhase.WAITING, pod=PodUid(""), owner="", reason=GIVEN_BACK, room=room, cores=cores, reasons={},
            nodes=0, message="", asked=asked if asked != slot.shape else ShapeId(""),
        )
        self.put_place(key, again)
        self.occupy(key, again)
        if slot.node in self.table.rows:
            self.change_room(key, room)
            if again.asked:
                self.put(self.resizes, key, None)

    @staticmethod
    def _asked(record: Reservation, name: SlotName) -> ShapeId | None:
        """The shape that the accepted generation asks for this place in, None where it does not ask for it."""
        task, _, index = name.rpartition("-")
        tasks = record.spec.tasks if record.spec is not None else ()
        return next((t.shape for t in tasks if t.name == task and int(index) < t.replicas), None)

    def _await_another(self, record: Reservation, pod: PodUid) -> bool:
        """Whether the hold is of use to another pod. A migration's may be taken by the next of the lineage where its successor
        was not bound and is gone, or by that itself; one that somebody has bound elsewhere, or that has finished, has come."""
        migration = self.migrations.get(record.fact.migration)
        if migration is None or migration.successor != pod or migration.step in FINAL:
            return True
        if migration.arrived:
            return False
        live = self.live.get(pod)
        if live is not None and (live.node is not None or live.phase == "Succeeded"):
            return False
        self.drop(self.successors, pod)
        self.put(self.migrations, migration.id, replace(migration, successor=PodUid("")))
        self.put_in(self.armed, migration.lineage, migration.id)
        return True


Drawn = tuple[Items, tuple[DeviceShare, ...], tuple[int, ...]]
"""Amounts by column, shares of devices, CPUs."""


def drawn_of(
    room: Room, wanted: Items, devices: Iterable[DeviceShare], cores: Iterable[int], gpus: int | None
) -> Drawn:
    """What a pod takes of a hold: of every amount as much as is held and it asks for, of its devices and CPUs those that the
    hold has. Of all devices together (`gpus` is their column) as much as of each."""
    held = dict(room.held)
    taken: tuple[DeviceShare, ...] = ()
    if room.held_devices:
        shares = {d.index: d.milli for d in room.held_devices}
        taken = tuple(DeviceShare(d.index, take) for d in devices if (take := min(d.milli, shares.get(d.index, 0))))
    if gpus in held:
        held[gpus] = min(held[gpus], sum(d.milli for d in taken))
    items = tuple([(c, take) for c, amount in wanted if (take := min(amount, held.get(c, 0)))])
    mine = set(cores) if room.cores else ()
    return items, taken, tuple(c for c in room.cores if c in mine)


def after(room: Room, items: Items, devices: Iterable[DeviceShare], cores: Iterable[int]) -> Room:
    """The room without what was drawn, of what is wanted and of what is held."""
    gone, taken = set(cores), tuple(devices)
    wanted = tuple(less(room.wanted, items))
    return Room(
        wanted,
        wanted if room.held == room.wanted else tuple(less(room.held, items)),
        fewer(room.devices, taken),
        fewer(room.held_devices, taken),
        tuple(c for c in room.cores if c not in gone),
    )
