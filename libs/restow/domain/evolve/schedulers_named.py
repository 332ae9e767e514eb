"""The policy names other schedulers than before (`beside`): whose pods may be moved, and for whose pods a Reservation is held, has another answer."""

from msgspec.structs import replace

from restow.contracts.ids import ReservationUid
from restow.domain.beside import PLACEHOLDER, is_embodied
from restow.domain.evolve.reservation_slots import note_review
from restow.domain.other_schedulers import held_for
from restow.domain.records import SlotPhase
from restow.domain.state import ClusterState

Whose = dict[ReservationUid, str]


def whose(state: ClusterState) -> Whose:
    """For which other scheduler each Reservation is held."""
    return {uid: held_for(state, record) for uid, record in state.reservations.items()}


def changed(state: ClusterState, before: Whose) -> None:
    for uid, was in before.items():
        record = state.reservations[uid]
        if held_for(state, record) != was:
            # What was accepted of it by other rules is looked at again.
            state.put(state.reservations, uid, replace(record, reviewed=record.revision - 1))
        note_review(state, uid)
        state.reviewed.append(uid)
        state.touched.reservations[uid] = None
        _await_placeholders(state, uid)
    state.touched.migrations |= dict.fromkeys(state.active)
    state.touched.pods |= dict.fromkeys((*state.placeholders, *state.gated))
    state.capacity_epoch += 1


def _await_placeholders(state: ClusterState, uid: ReservationUid) -> None:
    """What it holds is held for nobody that other schedulers can see, or was, and is nobody's to show them any more."""
    for name, slot in list(state.slots.get(uid, {}).items()):
        key = uid, name
        if slot.phase is SlotPhase.HELD and not is_embodied(state, key, slot):
            slot = replace(slot, phase=SlotPhase.WAITING, reason=PLACEHOLDER)
            state.put_slot(key, slot)
            state.moved.append(key)
            state.unsettled[uid] = None
        if slot.phase is SlotPhase.WAITING and key in state.held_on.get(slot.node, ()):
            state.note_waiting(key, slot)
