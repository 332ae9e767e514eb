"""Slots for pods that wait (demand): held before the plan's moves begin, and given up where they are of no use any more."""

from restow.contracts.ids import Millis, PlanId
from restow.domain.migration.holds import Reason
from restow.domain.migration.plan_order import BROKEN
from restow.domain.records import (
    DemandSlot,
    Migration,
    Plan,
    ReservationPhase,
    Slot,
    SlotPhase,
)
from restow.domain.state import OVER, ClusterState


def ready(state: ClusterState, migration: Migration) -> bool:
    """Whether every capacity of its plan is held, or waits for what the moves leave."""
    if not state.demand_slots:
        return True
    return all(_is_placed(state, demand_slot) for demand_slot in state.demand_slots.values() if demand_slot.plan == migration.plan)


def over(state: ClusterState, now: Millis) -> dict[PlanId, Reason]:
    """Plans that are to be cancelled: nothing is held, and nobody is moved, for a pod that has found a node otherwise."""
    found: dict[PlanId, Reason] = {}
    for demand_slot in state.demand_slots.values():
        if demand_slot.plan not in state.cancelled and demand_slot.plan not in found and (why := _useless(state, demand_slot, now)) is not None:
            found[demand_slot.plan] = why
    return found


def deadline(state: ClusterState) -> Millis | None:
    """By when slots must have been placed."""
    times = [
        _until(state, demand_slot)
        for demand_slot in state.demand_slots.values()
        if demand_slot.plan not in state.cancelled and not _is_placed(state, demand_slot) and not is_used(state, demand_slot)
    ]
    return min(times, default=None)


def is_used(state: ClusterState, demand_slot: DemandSlot) -> bool:
    """Whether the pod has taken from it: it has done its work."""
    allocation = state.allocations.get(demand_slot.spec.pod)
    if allocation is not None and allocation.reservation == demand_slot.reservation:
        return bool(demand_slot.reservation)
    slot = _slot(state, demand_slot)
    return slot is not None and slot.phase is SlotPhase.USED


def wanted(state: ClusterState, demand_slot: DemandSlot) -> bool:
    """Whether its Reservation is to be made."""
    return not demand_slot.reservation and not demand_slot.gone and demand_slot.plan not in state.cancelled and demand_slot.spec.pod in state.pods


def unwanted(state: ClusterState, demand_slot: DemandSlot) -> bool:
    """Whether its Reservation is to be deleted."""
    record = state.reservations.get(demand_slot.reservation)
    if record is None or record.gone or record.fact.deleting or demand_slot.plan not in state.cancelled:
        return False
    return not is_used(state, demand_slot)


def _useless(state: ClusterState, demand_slot: DemandSlot, now: Millis) -> Reason | None:
    pod = demand_slot.spec.pod
    if is_used(state, demand_slot):
        return None
    live = state.live_of(pod)
    if live is None or live.deleting or live.phase in OVER:
        return "PodGone", f"pod {pod} does not wait any more"
    if live.node is not None or pod in state.placed:
        return "PodPlaced", f"pod {pod} has found a node: {state.node_of(pod)}"
    record = state.reservations.get(demand_slot.reservation)
    if demand_slot.gone or (demand_slot.reservation and (record is None or record.fact.deleting or record.collected)):
        return "SlotFailed", f"Reservation {demand_slot.spec.name} was deleted"
    phase = state.phases.get(demand_slot.reservation)
    if phase is not None and phase.phase is ReservationPhase.FAILED:
        return "SlotFailed", f"Reservation {demand_slot.spec.name} failed: {phase.reason} {phase.message}".rstrip()
    if not _is_placed(state, demand_slot) and now >= _until(state, demand_slot):
        return "SlotTimeout", f"Reservation {demand_slot.spec.name} got no slot on {demand_slot.spec.node} in time"
    plan = state.plans.get(demand_slot.plan)
    return _move_failed(state, plan) if plan is not None else None


def _move_failed(state: ClusterState, plan: Plan) -> Reason | None:
    """Each of its moves is needed for the capacity."""
    for move in plan.planned.moves:
        migration = state.migrations.get(move.migration)
        if migration is not None and migration.step in BROKEN:
            return "MoveFailed", f"migration {migration.id} ended as {migration.step}: {migration.reason}".rstrip(": ")
    return None


def _until(state: ClusterState, demand_slot: DemandSlot) -> Millis:
    return Millis(demand_slot.at + state.migration_config.hold_deadline)


def _slot(state: ClusterState, demand_slot: DemandSlot) -> Slot | None:
    return next(iter(state.slots.get(demand_slot.reservation, {}).values()), None)


def _is_placed(state: ClusterState, demand_slot: DemandSlot) -> bool:
    slot = _slot(state, demand_slot)
    if slot is None or slot.phase not in (SlotPhase.HELD, SlotPhase.WAITING, SlotPhase.USED):
        return False
    return slot.node == demand_slot.spec.node
