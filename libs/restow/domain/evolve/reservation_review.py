"""Which Reservations are valid, and what they ask for."""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import ShapeId
from restow.domain.evolve import demand_slots
from restow.domain.evolve.reservation_slots import SUPERSEDED, ask, cancel, note_review, rephase, slots_of
from restow.domain.evolve.rules import Rules, void
from restow.domain.records import ON_NODE, Reservation, Slot, SlotPhase
from restow.domain.slots import SlotKey
from restow.domain.state import NODE_LOST, ClusterState


def _is_about(event: e.ReservationAccepted | e.ReservationRefused, record: Reservation) -> bool:
    """Whether what was reviewed is what the object asks for now."""
    return (event.generation, event.revision) == (record.fact.generation, record.revision)


def accepted(state: ClusterState, event: e.ReservationAccepted) -> None:
    record = state.reservations.get(event.reservation)
    uid = event.reservation
    if record is None or record.over or record.fact.spec is None or not _is_about(event, record):
        void(state, event)
        return
    again = record.accepted == event.generation
    demand_slot = demand_slots.of(state, record)
    state.put(
        state.reservations,
        uid,
        replace(
            record,
            accepted=event.generation,
            spec=record.fact.spec,
            min_available=event.min_available,
            expires=event.expires if demand_slot is None else max(event.expires, demand_slot.until),
            reviewed=event.revision,
        ),
    )
    note_review(state, uid)
    wanted = slots_of(record.fact.spec)
    slots = state.slots[uid]
    for name, slot in list(slots.items()):
        asked = wanted.get(name)
        if slot.phase in ON_NODE:
            state.moved.append((uid, name))  # its labels may be others
            _keep_or_supersede(state, (uid, name), slot, asked)
        elif again and slot.phase is SlotPhase.FAILED:
            continue  # only another generation gives it another life
        elif slot.phase is not SlotPhase.USED and not (asked and asked.shape == slot.shape and slot.phase is SlotPhase.PENDING):
            state.drop_slot((uid, name))
    for name, slot in wanted.items():
        if name not in slots:
            ask(state, uid, name, slot)
    state.capacity_epoch += 1  # it may have other owners now, and they may be waiting
    rephase(state, uid, anew=True)


def _keep_or_supersede(state: ClusterState, key: SlotKey, slot: Slot, asked: Slot | None) -> None:
    """What an earlier generation held stays where this one asks for it, even if a refused one in between has had it asked back;
    what is lost with its node stays lost. In another size, it is the session's to say whether its node has that."""
    if state.to_release.get(key) == NODE_LOST:
        return
    if asked is None:
        state.put(state.to_release, key, SUPERSEDED)
        state.drop(state.resizes, key)
        return
    state.drop(state.to_release, key)
    other = ShapeId("") if asked.shape == slot.shape else asked.shape
    if other != slot.asked:
        state.put_slot(key, replace(slot, asked=other, reasons={}, nodes=0, message=""))
    if other:
        state.put(state.resizes, key, None)
    else:
        state.drop(state.resizes, key)


def refused(state: ClusterState, event: e.ReservationRefused) -> None:
    record = state.reservations.get(event.reservation)
    if record is None or not _is_about(event, record):
        void(state, event)
        return
    state.put(
        state.reservations,
        event.reservation,
        replace(
            record,
            # What had been accepted of this very generation is so no more.
            accepted=min(record.accepted, event.generation - 1),
            refused=event.generation,
            reason=event.reason,
            message=event.message,
            reviewed=event.revision,
        ),
    )
    note_review(state, event.reservation)
    cancel(state, event.reservation, event.reason)


RULES: Rules = {e.ReservationAccepted: accepted, e.ReservationRefused: refused}
