"""The places of Reservations, and what is counted over them, so that no event costs more the more places there are.

Places change only through `put_place` and `drop_place`; they keep the queue of places to be held and the tally right.
"""

from restow.contracts.ids import ReservationUid, SlotName
from restow.domain.records import Slot, SlotPhase, Tally
from restow.domain.state import ClusterState

NO_PLACES = Tally()


def tally_of(state: ClusterState, uid: ReservationUid) -> Tally:
    return state.tallies.get(uid, NO_PLACES)


def put_place(state: ClusterState, uid: ReservationUid, name: SlotName, slot: Slot) -> None:
    """Set a place, new or known."""
    old = state.slots[uid].get(name)
    state.put(state.slots[uid], name, slot)
    _index(state, uid, name, old, slot)


def drop_place(state: ClusterState, uid: ReservationUid, name: SlotName) -> None:
    old = state.drop(state.slots[uid], name)
    _index(state, uid, name, old, None)


def index_places(state: ClusterState, uid: ReservationUid) -> None:
    """All of a Reservation's places at once, as a snapshot has them."""
    for name, slot in state.slots[uid].items():
        _index(state, uid, name, None, slot)


def _index(state: ClusterState, uid: ReservationUid, name: SlotName, old: Slot | None, new: Slot | None) -> None:
    was, now = (None if slot is None else slot.phase for slot in (old, new))
    if was is not now:
        state.put(state.tallies, uid, tally_of(state, uid).moved(was, now))
        if now is SlotPhase.PENDING:
            state.put(state.slot_queue, (uid, name), None)
        elif was is SlotPhase.PENDING:
            state.drop(state.slot_queue, (uid, name))
    if new is not None and now is SlotPhase.PENDING and (new.reasons or new.message):
        state.put_in(state.unfit_slots, uid, name)
    else:
        state.drop_in(state.unfit_slots, uid, name)
