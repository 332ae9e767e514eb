"""Rooms for pods that wait (demand): held before the plan's moves begin, and given up where they are of no use any more."""

from restow.contracts.ids import Millis, PlanId
from restow.domain.migration.holds import Reason
from restow.domain.migration.plan_order import BROKEN
from restow.domain.records import (
    Migration,
    Plan,
    PlanRoom,
    ReservationPhase,
    Slot,
    SlotPhase,
)
from restow.domain.state import OVER, ClusterState


def ready(state: ClusterState, migration: Migration) -> bool:
    """Whether every room of its plan is held, or waits for what the moves leave."""
    if not state.plan_rooms:
        return True
    return all(_is_placed(state, room) for room in state.plan_rooms.values() if room.plan == migration.plan)


def over(state: ClusterState, now: Millis) -> dict[PlanId, Reason]:
    """Plans that are to be cancelled: nothing is held, and nobody is moved, for a pod that has found its place otherwise."""
    found: dict[PlanId, Reason] = {}
    for room in state.plan_rooms.values():
        if room.plan not in state.cancelled and room.plan not in found and (why := _useless(state, room, now)) is not None:
            found[room.plan] = why
    return found


def deadline(state: ClusterState) -> Millis | None:
    """By when rooms must have been placed."""
    times = [
        _until(state, room)
        for room in state.plan_rooms.values()
        if room.plan not in state.cancelled and not _is_placed(state, room) and not is_used(state, room)
    ]
    return min(times, default=None)


def is_used(state: ClusterState, room: PlanRoom) -> bool:
    """Whether the pod has drawn from it: it has done its work."""
    drawn = state.draws.get(room.room.pod)
    if drawn is not None and drawn.reservation == room.reservation:
        return bool(room.reservation)
    slot = _slot(state, room)
    return slot is not None and slot.phase is SlotPhase.USED


def wanted(state: ClusterState, room: PlanRoom) -> bool:
    """Whether its Reservation is to be made."""
    return not room.reservation and not room.gone and room.plan not in state.cancelled and room.room.pod in state.pods


def unwanted(state: ClusterState, room: PlanRoom) -> bool:
    """Whether its Reservation is to be deleted."""
    record = state.reservations.get(room.reservation)
    if record is None or record.gone or record.fact.deleting or room.plan not in state.cancelled:
        return False
    return not is_used(state, room)


def _useless(state: ClusterState, room: PlanRoom, now: Millis) -> Reason | None:
    pod = room.room.pod
    if is_used(state, room):
        return None
    live = state.live.get(pod)
    if live is None or live.deleting or live.phase in OVER:
        return "PodGone", f"pod {pod} does not wait any more"
    if live.node is not None or pod in state.placed:
        return "PodPlaced", f"pod {pod} has found a place on {state.node_of(pod)}"
    record = state.reservations.get(room.reservation)
    if room.gone or (room.reservation and (record is None or record.fact.deleting or record.collected)):
        return "RoomFailed", f"Reservation {room.room.name} was deleted"
    phase = state.phases.get(room.reservation)
    if phase is not None and phase.phase is ReservationPhase.FAILED:
        return "RoomFailed", f"Reservation {room.room.name} failed: {phase.reason} {phase.message}".rstrip()
    if not _is_placed(state, room) and now >= _until(state, room):
        return "RoomTimeout", f"Reservation {room.room.name} got no place on {room.room.node} in time"
    plan = state.plans.get(room.plan)
    return _move_failed(state, plan) if plan is not None else None


def _move_failed(state: ClusterState, plan: Plan) -> Reason | None:
    """Each of its moves is needed for the room."""
    for move in plan.planned.moves:
        migration = state.migrations.get(move.migration)
        if migration is not None and migration.step in BROKEN:
            return "MoveFailed", f"migration {migration.id} ended as {migration.step}: {migration.reason}".rstrip(": ")
    return None


def _until(state: ClusterState, room: PlanRoom) -> Millis:
    return Millis(room.at + state.migration_config.hold_deadline)


def _slot(state: ClusterState, room: PlanRoom) -> Slot | None:
    return next(iter(state.slots.get(room.reservation, {}).values()), None)


def _is_placed(state: ClusterState, room: PlanRoom) -> bool:
    slot = _slot(state, room)
    if slot is None or slot.phase not in (SlotPhase.HELD, SlotPhase.WAITING, SlotPhase.USED):
        return False
    return slot.node == room.room.node
