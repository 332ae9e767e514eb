"""Which Reservations are valid, and what they ask for."""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import ReservationUid, SlotName
from restow.domain.evolve.places import drop_place
from restow.domain.evolve.reservations import SUPERSEDED, ask, cancel, over, places, rephase
from restow.domain.evolve.rules import Rules
from restow.domain.records import SlotPhase
from restow.domain.state import NODE_LOST, ClusterState


def accepted(state: ClusterState, event: e.ReservationAccepted) -> None:
    record = state.reservations.get(event.reservation)
    uid = event.reservation
    if record is None or over(record) or record.fact.spec is None or record.fact.generation != event.generation:
        state.void["reservation.accepted"] += 1
        return
    state.put(
        state.reservations,
        uid,
        replace(
            record, accepted=event.generation, spec=record.fact.spec, min_available=event.min_available, expires=event.expires
        ),
    )
    state.drop(state.unreviewed, uid)
    wanted = places(record.fact.spec)
    slots = state.slots[uid]
    for name, slot in list(slots.items()):
        asked = wanted.get(name)
        same = asked is not None and asked.shape == slot.shape
        if slot.phase is SlotPhase.HELD:
            state.moved.append((uid, name))  # its labels may be others
            _keep_or_supersede(state, uid, name, same)
        elif slot.phase is not SlotPhase.USED and not (same and slot.phase is SlotPhase.PENDING):
            drop_place(state, uid, name)
    for name, slot in wanted.items():
        if name not in slots:
            ask(state, uid, name, slot)
    state.capacity_epoch += 1  # it may have other owners now, and they may be waiting
    rephase(state, uid)


def _keep_or_supersede(state: ClusterState, uid: ReservationUid, name: SlotName, same: bool) -> None:
    """What an earlier generation held stays where this one asks for the same, even if a refused one in between has had it
    asked back; what is lost with its node stays lost."""
    reason = state.to_release.get((uid, name))
    if reason == NODE_LOST:
        return
    if same:
        state.drop(state.to_release, (uid, name))
    else:
        state.put(state.to_release, (uid, name), SUPERSEDED)


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
