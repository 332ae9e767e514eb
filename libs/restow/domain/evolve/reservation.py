"""Which Reservations are valid, and what they ask for."""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import SlotName
from restow.domain.evolve.reservations import cancel, rephase
from restow.domain.evolve.rules import Rules
from restow.domain.records import Slot, SlotPhase
from restow.domain.state import ClusterState


def accepted(state: ClusterState, event: e.ReservationAccepted) -> None:
    record = state.reservations.get(event.reservation)
    if record is None or record.gone or record.fact.spec is None or record.fact.generation != event.generation:
        state.void["reservation.accepted"] += 1
        return
    uid = event.reservation
    state.put(
        state.reservations,
        uid,
        replace(record, accepted=event.generation, min_available=event.min_available, expires=event.expires),
    )
    state.drop(state.unreviewed, uid)
    wanted = {
        SlotName(f"{task.name}-{i}"): Slot(task.shape, task.name) for task in record.fact.spec.tasks for i in range(task.replicas)
    }
    slots = state.slots[uid]
    for name, slot in list(slots.items()):
        asked = wanted.get(name)
        if slot.phase is SlotPhase.USED or (asked is not None and asked.shape == slot.shape and slot.phase is not SlotPhase.FAILED):
            continue
        if slot.phase is SlotPhase.HELD:
            state.put(state.to_release, (uid, name), "Superseded")
        else:
            state.drop(slots, name)
            state.drop(state.slot_queue, (uid, name))
    for name, slot in wanted.items():
        if name not in slots:
            state.put(slots, name, slot)
            state.put(state.slot_queue, (uid, name), None)
            state.capacity_epoch += 1
    rephase(state, uid)


def refused(state: ClusterState, event: e.ReservationRefused) -> None:
    record = state.reservations.get(event.reservation)
    if record is None or record.fact.generation != event.generation:
        state.void["reservation.refused"] += 1
        return
    state.put(
        state.reservations,
        event.reservation,
        replace(record, refused=event.generation, reason=event.reason, message=event.message),
    )
    state.drop(state.unreviewed, event.reservation)
    cancel(state, event.reservation, event.reason)


RULES: Rules = {e.ReservationAccepted: accepted, e.ReservationRefused: refused}
