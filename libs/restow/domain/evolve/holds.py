"""Holds of slots, and pods that take them. An intent about something that facts have overtaken is void."""

from typing import Any

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import MigrationId, NodeName, PodUid, ReservationUid, ShapeId
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.allocations import after, taken_of
from restow.domain.beside import PLACEHOLDER, is_embodied, needs_placeholder
from restow.domain.evolve.placing import choose_anew, settled
from restow.domain.evolve.reservation_slots import SUPERSEDED, ask, forget_if_over, rephase, slots_of
from restow.domain.evolve.rules import Rules, void
from restow.domain.held_capacity import OVERCOMMITTED, PRE_ALLOCATION, UNAVAILABLE
from restow.domain.node_table import lowered, shares_up_to
from restow.domain.records import (
    FINAL,
    NO_CAPACITY,
    ON_NODE,
    Allocation,
    Capacity,
    Placement,
    Slot,
    SlotPhase,
)
from restow.domain.reservation.allocate_once import is_once
from restow.domain.resources import GPU_MILLI
from restow.domain.slots import SlotKey
from restow.domain.state import NODE_LOST, ClusterState
from restow.domain.unsaid_devices import of_hold

PREEMPTED = "Preempted"
"""Why a hold is released that had no owner yet when somebody of a higher priority needed its capacity (RULES G-7)."""


def _overtaken(state: ClusterState, event: e.HandedOver | e.HoldResized) -> None:
    """It is void, and its slot keeps what another hold on the node may have been given in the same commit: such are void, too, for what
    is no amount, a host port or who may run beside whom, nobody could tell from the table."""
    slot = state.slots.get(event.reservation, {}).get(event.slot)
    if slot is not None and (event.reservation, event.slot) in state.held_on.get(slot.node, ()):
        state.overtaken.add(slot.node)
    void(state, event)


def _counted_on_void(state: ClusterState, event: e.HoldPlaced | e.HoldResized, node: NodeName) -> bool:
    """Whether it is void with an earlier one of its commit. It is asked for still, and tried again at once."""
    if node not in state.overtaken:
        return False
    state.capacity_epoch += 1
    void(state, event)
    return True


def _slot_of(state: ClusterState, event: Any, *phases: SlotPhase, lost: bool = False) -> tuple[SlotKey, Slot] | None:
    """The slot that an event is about, None where it is not in one of these phases (any more), or, unless `lost` ones count,
    was lost with its node: it holds nothing there, even if there is another node of that name by now."""
    key = (event.reservation, event.slot)
    slot = state.slots.get(event.reservation, {}).get(event.slot)
    if slot is None or slot.phase not in phases or (not lost and state.to_release.get(key) == NODE_LOST):
        return None
    return key, slot


def _queue_of(state: ClusterState, uid: ReservationUid) -> str:
    """The queue that a hold is accounted to; migration holds are neutral (DESIGN 5)."""
    record = state.reservations[uid]
    migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
    if migration is not None and migration.reservation == uid:
        return ""
    return (record.spec.queue if record.spec is not None else "") or DEFAULT_QUEUE


def hold_placed(state: ClusterState, event: e.HoldPlaced) -> None:
    found = _slot_of(state, event, SlotPhase.PENDING)
    if found is None or (event.shape and event.shape != found[1].shape):
        # It may have ended, with what waited of it (`cancel`), or a later generation may ask for something else by now.
        return void(state, event)
    if _counted_on_void(state, event, event.node):
        return None
    key, slot = found
    wanted = state.vectors[slot.shape].items
    state.cut_off(key)
    # Who had left them to it may have them still, for facts have overtaken that: it waits, and is to get other ones (`releases`).
    cores = state.nobodys_cores(key, event.node, event.cores)
    if event.waiting:
        capacity = Capacity(wanted, devices=event.devices, cores=cores)
    else:
        capacity = Capacity.full(wanted, event.devices, cores)
    short = len(cores) < len(event.cores)
    empty = not event.waiting and needs_placeholder(state, key, slot)
    held = Slot(
        slot.shape,
        slot.task,
        SlotPhase.WAITING if event.waiting or empty or short else SlotPhase.HELD,
        event.node,
        event.devices,
        reason=PRE_ALLOCATION if event.waiting else PLACEHOLDER if empty else OVERCOMMITTED if short else "",
        queue=_queue_of(state, event.reservation),
        cores=cores,
        capacity=capacity,
    )
    state.put_slot(key, held)
    state.occupy(key, held)
    state.squeeze(event.node)
    state.top_up(event.node)
    state.capacity_epoch += 1  # pods that wait may be its owners


def hold_ready(state: ClusterState, event: e.HoldReady) -> None:
    found = _slot_of(state, event, SlotPhase.WAITING)
    if found is None or not found[1].capacity.complete or state.lacks_cores(found[1]) or found[0] in state.to_release or not is_embodied(state, *found):
        return void(state, event)
    key, slot = found
    state.drop_in(state.waiting_on, slot.node, key)
    state.drop(state.whole, key)
    state.put_slot(key, replace(slot, phase=SlotPhase.HELD, reason="", message=""))
    state.moved.append(key)
    state.capacity_epoch += 1


def hold_borrowed(state: ClusterState, event: e.HoldBorrowed) -> None:
    """The pod is placed next; what it leaves is the hold's again."""
    found = _slot_of(state, event, SlotPhase.HELD, SlotPhase.WAITING)
    if found is None or not state.awaits_placement(event.pod) or found[1].node not in state.table.rows:
        return void(state, event)
    key, slot = found
    state.borrow_from(key, slot, event.pod)


def hold_resized(state: ClusterState, event: e.HoldResized) -> None:
    found = _slot_of(state, event, SlotPhase.HELD, SlotPhase.WAITING)
    if found is None or found[1].asked != event.shape or found[1].node not in state.table.rows:
        return _overtaken(state, event)
    if _counted_on_void(state, event, found[1].node):
        return None
    key, slot = found
    state.drop(state.resizes, key)
    full = state.nobodys_cores(key, slot.node, event.cores)
    wanted, devices, cores = state.unallocated(key, state.vectors[event.shape].items, event.devices, full)
    held_devices = shares_up_to(devices, {d.index: d.milli for d in slot.capacity.held_devices})
    capacity = Capacity(wanted, lowered(slot.capacity.held, wanted), devices, held_devices, cores)
    state.change_capacity(
        key, capacity, len(full) < len(event.cores), shape=event.shape, devices=event.devices, cores=full, asked=ShapeId(""), reasons={}, nodes=0,
        message="",
    )  # fmt: skip
    state.top_up(slot.node)
    state.capacity_epoch += 1


def handed_over(state: ClusterState, event: e.HandedOver) -> None:
    found = _slot_of(state, event, SlotPhase.HELD)
    if found is None or found[1].node != event.node or not state.awaits_placement(event.pod):
        return _overtaken(state, event)
    key, slot = found
    record, pod = state.reservations[event.reservation], state.pods[event.pod].fact
    wanted = state.vectors[pod.shape].items
    takes = event.devices or of_hold(state.shapes[pod.shape].devices, slot.capacity.held_devices)
    items, devices, cores = taken_of(slot.capacity, wanted, takes, event.cores, state.table.columns.get(GPU_MILLI))
    if is_once(record):
        state.vacate(key, slot)
        # What was allocated is remembered longer than the pod is there (RULES 004-1).
        capacity = Capacity(items, devices=devices, cores=cores)
        used = replace(slot, phase=SlotPhase.USED, pod=event.pod, owner=f"{pod.namespace}/{pod.name}", capacity=capacity)
        state.put_slot(key, used)
    else:
        state.change_capacity(key, after(slot.capacity, items, devices, cores))
    state.allocate(event.pod, Allocation(*key, slot.node, items, devices, cores))
    nomination = state.nominations.get(event.pod)
    state.denominate(event.pod, placing=True)
    placement = Placement(event.node, event.devices, key, state.time, event.volumes, event.cores)
    state.put(state.placed, event.pod, placement)
    choose_anew(state, event.volumes)
    settled(state, event.pod)
    state.top_up(slot.node)
    if nomination is not None and nomination.node != slot.node:
        state.top_up(nomination.node)
    migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
    if migration is not None and migration.reservation == event.reservation and migration.step not in FINAL:
        _leave_behind(state, event.pod, migration.id)
        state.put(state.migrations, migration.id, replace(migration, successor=event.pod))
        state.put(state.successors, event.pod, migration.id)
        state.drop_in(state.armed, migration.lineage, migration.id)
    state.unsettled[event.reservation] = None


def _leave_behind(state: ClusterState, pod: PodUid, taken: MigrationId) -> None:
    """One pod is the successor in one migration. Where it had taken another hold, and lost that (its Reservation and its node went),
    that migration waits for the next one."""
    id = state.successors.get(pod)
    before = state.migrations.get(id) if id is not None else None
    if before is None or id == taken:
        return
    state.put(state.migrations, before.id, replace(before, successor=PodUid("")))
    state.put_in(state.armed, before.lineage, before.id)


def hold_released(state: ClusterState, event: e.HoldReleased) -> None:
    found = _slot_of(state, event, SlotPhase.HELD, SlotPhase.WAITING, lost=True)
    if found is None:
        return void(state, event)
    key, slot = found
    uid, name = key
    record = state.reservations[uid]
    state.vacate(key, slot)
    if event.reason in (PREEMPTED, UNAVAILABLE) and record.alive:
        # Its slot waits again, in its turn.
        ask(state, uid, name, Slot(slot.asked or slot.shape, slot.task))
    elif event.reason == SUPERSEDED and record.alive and record.spec is not None:
        # Nothing was lost: the accepted generation asks for it in another shape, or not at all.
        state.drop_slot(key)
        asked = slots_of(record.spec).get(name)
        if asked is not None:
            ask(state, uid, name, asked)
    else:
        state.put_slot(key, replace(slot, phase=SlotPhase.FAILED, reason=event.reason, capacity=NO_CAPACITY))
    state.top_up(slot.node)
    rephase(state, uid)
    forget_if_over(state, uid)


def hold_unfit(state: ClusterState, event: e.HoldUnfit) -> None:
    found = _slot_of(state, event, SlotPhase.PENDING, *ON_NODE)
    if found is None or (found[1].phase in ON_NODE and not found[1].asked):
        return void(state, event)
    key, slot = found
    state.put_slot(key, _waiting(slot, event))
    rephase(state, event.reservation)


def _waiting(slot: Slot, event: e.HoldUnfit) -> Slot:
    reason = event.reason if slot.phase is SlotPhase.PENDING else slot.reason
    return replace(slot, nodes=event.nodes, reasons=event.reasons, reason=reason, message=event.message)


RULES: Rules = {
    e.HoldPlaced: hold_placed,
    e.HoldReady: hold_ready,
    e.HoldBorrowed: hold_borrowed,
    e.HoldResized: hold_resized,
    e.HandedOver: handed_over,
    e.HoldReleased: hold_released,
    e.HoldUnfit: hold_unfit,
}
