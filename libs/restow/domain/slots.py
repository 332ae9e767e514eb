"""The slots of Reservations, and what is counted over them, so that no event costs more the more slots there are.

Slots change only through `put_slot` and `drop_slot`; they keep the queue of slots to be held and the tally right, and note
whose phase may be another one now (`unsettled`): it is worked out once an event, when all of it is folded.
"""

from restow.contracts.ids import ReservationUid, SlotName
from restow.domain.records import Slot, SlotPhase, Tally
from restow.domain.state_maps import Maps

NO_SLOTS = Tally()

SlotKey = tuple[ReservationUid, SlotName]


class Slots(Maps):
    """Of all Reservations."""

    __slots__ = ()

    def tally_of(self, uid: ReservationUid) -> Tally:
        return self.tallies.get(uid, NO_SLOTS)

    def put_slot(self, key: SlotKey, slot: Slot) -> None:
        """Set a slot, new or known. What it is charged is the caller's (`HeldCapacity.occupy`, `HeldCapacity.vacate`)."""
        uid, name = key
        old = self.slots[uid].get(name)
        self.put(self.slots[uid], name, slot)
        self._index(key, old, slot)

    def drop_slot(self, key: SlotKey) -> None:
        uid, name = key
        old = self.drop(self.slots[uid], name)
        self._index(key, old, None)

    def _index(self, key: SlotKey, old: Slot | None, new: Slot | None) -> None:
        uid, name = key
        was, now = (None if slot is None else slot.phase for slot in (old, new))
        if was is not now:
            self.put(self.tallies, uid, self.tally_of(uid).moved(was, now))
            if now is SlotPhase.PENDING:
                self.put(self.slot_queue, key, None)
            elif was is SlotPhase.PENDING:
                self.drop(self.slot_queue, key)
            self.unsettled[uid] = None
        if new is not None and now is SlotPhase.PENDING and (new.reasons or new.message):
            self.put_in(self.unfit_slots, uid, name)
        else:
            self.drop_in(self.unfit_slots, uid, name)
