"""Who holds and uses capacity. An intent about something that facts have overtaken is void."""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import ReservationUid
from restow.domain.evolve.places import drop_place, put_place, tally_of
from restow.domain.evolve.reservations import SUPERSEDED, alive, ask, forget_if_over, places, rephase
from restow.domain.evolve.rules import Rules
from restow.domain.records import FINAL, Placement, ReservationPhase, SlotPhase, Waiting
from restow.domain.state import ClusterState


def _void(state: ClusterState, event: e.Event) -> None:
    state.void[str(event.__struct_config__.tag)] += 1


def pod_placed(state: ClusterState, event: e.PodPlaced) -> None:
    if not state.awaits_placement(event.pod):
        return _void(state, event)
    state.put(state.placed, event.pod, Placement(event.node, event.devices))
    _settled(state, event.pod)


def _settled(state: ClusterState, pod) -> None:
    state.settle(pod)
    state.requeue(pod)
    state.touched.pods[pod] = None


def pod_released(state: ClusterState, event: e.PodReleased) -> None:
    if state.drop(state.placed, event.pod) is None:
        return _void(state, event)
    _settled(state, event.pod)


def hold_placed(state: ClusterState, event: e.HoldPlaced) -> None:
    slots = state.slots.get(event.reservation, {})
    slot = slots.get(event.slot)
    if slot is None or slot.phase is not SlotPhase.PENDING or not alive(state.reservations.get(event.reservation)):
        return _void(state, event)
    held = replace(slot, phase=SlotPhase.HELD, node=event.node, devices=event.devices, nodes=0, reasons={})
    put_place(state, event.reservation, event.slot, held)
    state.hold(event.reservation, event.slot, event.node, slot.shape, event.devices)
    state.capacity_epoch += 1  # pods that wait may be its owners
    rephase(state, event.reservation)


def handed_over(state: ClusterState, event: e.HandedOver) -> None:
    slots = state.slots.get(event.reservation, {})
    slot = slots.get(event.slot)
    if slot is None or slot.phase is not SlotPhase.HELD or not state.awaits_placement(event.pod):
        return _void(state, event)
    state.unhold(event.reservation, event.slot, slot)
    put_place(state, event.reservation, event.slot, replace(slot, phase=SlotPhase.USED, pod=event.pod))
    state.put(state.placed, event.pod, Placement(event.node, event.devices, (event.reservation, event.slot)))
    _settled(state, event.pod)
    record = state.reservations[event.reservation]
    migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
    if migration is not None and migration.reservation == event.reservation and migration.step not in FINAL:
        state.put(state.migrations, migration.id, replace(migration, successor=event.pod))
        state.put(state.successors, event.pod, migration.id)
        state.drop_in(state.armed, migration.lineage, migration.id)
    rephase(state, event.reservation)


def hold_released(state: ClusterState, event: e.HoldReleased) -> None:
    slots = state.slots.get(event.reservation, {})
    slot = slots.get(event.slot)
    if slot is None or slot.phase is not SlotPhase.HELD:
        return _void(state, event)
    uid = event.reservation
    state.unhold(uid, event.slot, slot)
    record = state.reservations[uid]
    if event.reason == SUPERSEDED and alive(record) and record.spec is not None:
        # Nothing was lost: the accepted generation asks for it in another shape, or not at all.
        drop_place(state, uid, event.slot)
        asked = places(record.spec).get(event.slot)
        if asked is not None:
            ask(state, uid, event.slot, asked)
    else:
        put_place(state, uid, event.slot, replace(slot, phase=SlotPhase.FAILED, reason=event.reason))
    rephase(state, uid)
    _give_up_the_rest(state, uid)
    forget_if_over(state, uid)


def _give_up_the_rest(state: ClusterState, uid: ReservationUid) -> None:
    """Failed is final: a Reservation that has lost all that it held waits for nothing more."""
    phase = state.phases.get(uid)
    if phase is None or phase.phase is not ReservationPhase.FAILED or not tally_of(state, uid).pending:
        return
    for name, slot in list(state.slots[uid].items()):
        if slot.phase is SlotPhase.PENDING:
            put_place(state, uid, name, replace(slot, phase=SlotPhase.FAILED, reason=phase.reason))


def unfit(state: ClusterState, event: e.Unfit) -> None:
    if event.shape not in state.shapes:
        return _void(state, event)
    state.put(state.waiting, event.shape, Waiting(event.nodes, event.reasons, state.time, state.capacity_epoch))
    for pod in event.pods:
        if pod in state.queue:
            state.park(pod)
            state.touched.pods[pod] = None
    state.touched.shapes[event.shape] = None


def hold_unfit(state: ClusterState, event: e.HoldUnfit) -> None:
    slots = state.slots.get(event.reservation, {})
    slot = slots.get(event.slot)
    if slot is None or slot.phase is not SlotPhase.PENDING:
        return _void(state, event)
    put_place(state, event.reservation, event.slot, replace(slot, nodes=event.nodes, reasons=event.reasons))
    rephase(state, event.reservation)


RULES: Rules = {
    e.PodPlaced: pod_placed,
    e.PodReleased: pod_released,
    e.HoldPlaced: hold_placed,
    e.HandedOver: handed_over,
    e.HoldReleased: hold_released,
    e.Unfit: unfit,
    e.HoldUnfit: hold_unfit,
}
