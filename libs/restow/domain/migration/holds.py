"""What a migration's hold is doing, as far as the log says."""

from msgspec.structs import replace

from restow.contracts.ids import NodeName, ShapeId, SlotName
from restow.domain.autoscalers import cordoned_for, is_going
from restow.domain.beside import REFUSED, STOLEN, guard_of, is_beside
from restow.domain.predicates import switches, why_not
from restow.domain.records import Migration, ReservationPhase, Slot, SlotPhase
from restow.domain.state import ClusterState

Reason = tuple[str, str]
"""One CamelCase word, and a sentence."""


def slots_of(state: ClusterState, migration: Migration) -> list[tuple[SlotName, Slot]]:
    return list(state.slots.get(migration.reservation, {}).items())


def _has(state: ClusterState, migration: Migration, *phases: SlotPhase) -> bool:
    for name, slot in state.slots.get(migration.reservation, {}).items():  # a loop: it is asked of each migration after every fold
        if slot.phase in phases and slot.node == migration.move.target and (migration.reservation, name) not in state.to_release:
            return True
    return False


def held(state: ClusterState, migration: Migration) -> bool:
    """The session holds the promised slot and has not been asked to release it."""
    return _has(state, migration, SlotPhase.HELD)


def placed(state: ClusterState, migration: Migration) -> bool:
    """The promised slot is chosen: it is held, or waits for capacity on its node."""
    return _has(state, migration, SlotPhase.HELD, SlotPhase.WAITING)


def is_open(state: ClusterState, migration: Migration) -> bool:
    """A successor can still take the hold, now or when the session has held it anew."""
    coming = (SlotPhase.PENDING, SlotPhase.WAITING)
    return held(state, migration) or any(s.phase in coming for _, s in slots_of(state, migration))


def is_new(state: ClusterState, migration: Migration) -> bool:
    """Its Reservation is there, and nobody has said yet whether it is valid: it has no slot so far."""
    record, phase = state.reservations.get(migration.reservation), state.phases.get(migration.reservation)
    if record is None or record.gone or record.fact.deleting or record.collected or slots_of(state, migration):
        return False
    return phase is None or phase.phase is not ReservationPhase.FAILED


def failure(state: ClusterState, migration: Migration) -> Reason | None:
    """Why the hold will never come, None where it may. `HoldUnfit` is final here: the plan's promise is broken, and
    waiting would only block others."""
    if why := lost(state, migration):
        return why
    if not migration.reservation:
        return None
    record = state.reservations.get(migration.reservation)
    if record is None or record.gone or record.fact.deleting or record.collected:
        return "HoldFailed", "its Reservation was deleted"
    phase = state.phases.get(migration.reservation)
    if why := disembodied(state, migration):
        return why
    if phase is not None and phase.phase is ReservationPhase.FAILED:
        return "HoldFailed", f"its Reservation failed: {phase.reason} {phase.message}".rstrip()
    for name, slot in slots_of(state, migration):
        if why := _of_slot(state, migration, name, slot):
            return why
    return None


def disembodied(state: ClusterState, migration: Migration) -> Reason | None:
    """Why its slot is lost, where that is for a placeholder: of a pod of another scheduler."""
    for name, slot in slots_of(state, migration):
        reason = state.to_release.get((migration.reservation, name), slot.reason)
        if STOLEN in (reason, slot.reason):
            return STOLEN, f"its placeholder on {migration.move.target} was preempted, rejected or deleted"
        if reason.startswith(REFUSED):
            return "HoldFailed", reason
    return None


def _of_slot(state: ClusterState, migration: Migration, name: SlotName, slot: Slot) -> Reason | None:
    target, wanted = migration.move.target, state.shapes[migration.shape]
    if slot.phase is SlotPhase.USED:
        return "HoldTaken", f"pod {slot.pod} took the hold before the eviction"
    if slot.phase is SlotPhase.PENDING and slot.reasons:
        return "NoCapacity", f"the session found no capacity on {target}: " + ", ".join(sorted(slot.reasons))
    if slot.phase in (SlotPhase.HELD, SlotPhase.WAITING) and slot.node != target:
        return "HoldFailed", f"node {slot.node} is held, not {target}"
    if (migration.reservation, name) in state.to_release:
        return "HoldLost", f"the hold on {target} is being released"
    shape = state.shapes[slot.shape]
    if (shape.requests, shape.devices) != (wanted.requests, wanted.devices):
        return "HoldFailed", "its Reservation does not ask for what the pod does"
    return None


def lost(state: ClusterState, migration: Migration) -> Reason | None:
    """Whether its landing slot is of no use to its successor any more, whatever is held there: asked before the hold, in the step
    that evicts, and before each attempt to."""
    return target_lost(state, migration.move.target, migration.shape)


def cause(state: ClusterState, migration: Migration) -> Reason | None:
    """What the hold's being lost comes from: what comes first is the cause of what follows, whichever was heard first, and however much of it the session has answered to."""
    return lost(state, migration) or disembodied(state, migration)


def void(state: ClusterState, migration: Migration) -> Reason | None:
    """Why no successor can land on the target any more."""
    if why := cause(state, migration):
        return why
    if not is_open(state, migration):
        return "HoldLost", f"the hold on {migration.move.target} was lost before a successor took it"
    if is_beside(state, migration.shape) and not held(state, migration):
        # Who is gated waits for this slot alone, and may have the place on the old node.
        if _is_too_small(state, migration.move.target, migration.shape) or any(slot.phase is SlotPhase.PENDING and slot.reasons for _, slot in slots_of(state, migration)):
            return "HoldLost", f"node {migration.move.target} has not enough for it any more"
        if _is_taken(state, migration):
            # Its kubelet has rejected a successor, and nothing held the place until the next placeholder.
            return "HoldLost", f"somebody else had the capacity on {migration.move.target} before the next placeholder"
    return None


def _is_taken(state: ClusterState, migration: Migration) -> bool:
    """Whether a slot waits for what it had: its node has less for it than is to be held, or more is taken and held there than there is."""
    row = state.table.rows.get(migration.move.target)
    return row is not None and any(
        slot.phase is SlotPhase.WAITING and (not slot.capacity.complete or bool((state.table.free[row] < 0).any())) for _, slot in slots_of(state, migration)
    )


def source_given_up(state: ClusterState, migration: Migration) -> str:
    """Why nobody is to wait for the old node any more to which a pod of another scheduler turns back, once that has gone: empty where it may be had. The next one is
    gated, and would wait for nothing. Where its kubelet has rejected a successor it would reject the next one, too, and there is no guard any more."""
    if not migration.vacated or not is_beside(state, migration.shape):
        return ""
    if guard_of(migration.id) not in state.stand_ins:
        return f"nothing keeps its capacity on {migration.move.source} any more"
    if _is_too_small(state, migration.move.source, migration.shape):
        return f"node {migration.move.source} has not enough for it any more"
    taken = any(slot.phase is SlotPhase.WAITING and not slot.capacity.complete for _, slot in slots_of(state, migration))
    return f"others have its capacity on {migration.move.source}" if taken else ""


def _is_too_small(state: ClusterState, node: NodeName, shape: ShapeId) -> bool:
    """Whether a node has less than such a pod asks for, if it was empty, as where a device of it fails: the session makes no slot there. What it has said of that counts
    for nothing here, for it may have said it while the pod was still there."""
    row = state.table.rows.get(node)
    return row is not None and any(state.table.allocatable[row, column] < amount for column, amount in state.vectors[shape].items)


def source_lost(state: ClusterState, migration: Migration) -> Reason | None:
    """The same of its old node, to which it may turn back: our own cordon ends with that."""
    node = state.nodes.get(migration.move.source)
    return target_lost(state, migration.move.source, migration.shape, ours=node is not None and bool(cordoned_for(node, state.log)))


def target_lost(state: ClusterState, target: NodeName, shape: ShapeId = ShapeId(""), ours: bool = False) -> Reason | None:
    """Whether nothing may land on the node, or, by the node's own rules (taints, labels), nothing of this shape. `ours`: it is cordoned by us, and
    will not be."""
    node = state.nodes.get(target)
    if node is not None and ours:
        node = replace(node, unschedulable=False)
    if node is None or target not in state.table.rows or not node.ready or node.unschedulable:
        return "TargetLost", f"node {target} is gone, not ready or unschedulable"
    if is_going(node):
        return "TargetLost", f"node {target} is being taken away by an autoscaler"
    wanted = state.shapes.get(shape)
    if wanted is not None and (why := why_not(wanted, node, switches(state))):
        return "TargetLost", f"node {target} does not take the pod any more: {why}"
    return None
