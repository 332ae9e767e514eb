"""What several families do to a Reservation in the fold: its phase follows from its places (RULES 000-1)."""

from msgspec.structs import replace

from restow.contracts.ids import ReservationUid, SlotName
from restow.contracts.values import ReservationSpec
from restow.domain.evolve.places import put_place, tally_of
from restow.domain.records import PhaseSince, Reservation, ReservationPhase, Slot, SlotPhase
from restow.domain.state import ClusterState

SUPERSEDED = "Superseded"
"""Why a hold is released that a later generation does not ask for, or asks for in another shape."""


def places(spec: ReservationSpec) -> dict[SlotName, Slot]:
    """Every place that a Reservation asks for, not yet held."""
    return {SlotName(f"{task.name}-{i}"): Slot(task.shape, task.name) for task in spec.tasks for i in range(task.replicas)}


def ask(state: ClusterState, uid: ReservationUid, name: SlotName, slot: Slot) -> None:
    """Ask the session to hold this place."""
    put_place(state, uid, name, slot)
    state.capacity_epoch += 1


def phase_of(state: ClusterState, record: Reservation) -> tuple[ReservationPhase, str, str]:
    """Phase, reason and message of a Reservation (RULES 000-1, G-1). Refused and expired ones have failed; with every
    place handed over it has succeeded; with at least `min_available` held or used it is available; with fewer after a loss
    it waits; a Reservation that has lost everything on its nodes has expired with them."""
    uid = record.fact.reservation
    tally = tally_of(state, uid)
    held, used, total = tally.held, tally.used, tally.total
    if record.refused >= record.fact.generation and record.refused > record.accepted:
        return ReservationPhase.FAILED, record.reason, record.message
    if total and used == total:
        return ReservationPhase.SUCCEEDED, "AllHandedOver", f"all {used} places were handed over to their owners"
    if record.expired:
        return ReservationPhase.FAILED, "Expired", f"its time ended with {used} of {total} places handed over"
    if record.accepted and held and held + used >= record.min_available:
        return ReservationPhase.AVAILABLE, "Held", f"{held} of {total} places are held, {used} handed over"
    if tally.failed:
        if held:
            return ReservationPhase.WAITING, "HoldLost", f"{held} of {record.min_available} needed places are held"
        if used:
            return ReservationPhase.SUCCEEDED, "HandedOver", f"{used} places were handed over, nothing is held any more"
        reasons = {s.reason for s in state.slots[uid].values() if s.phase is SlotPhase.FAILED}
        reason = "Expired" if reasons & {"NodeLost", "Expired"} else min(reasons)
        return ReservationPhase.FAILED, reason, "nothing is held any more: " + ", ".join(sorted(reasons))
    waits = state.unfit_slots.get(uid)
    if waits:
        first = state.slots[uid][min(waits)]
        if first.message:
            return ReservationPhase.PENDING, first.reason, first.message
        return ReservationPhase.PENDING, "Unschedulable", fit_message(first.nodes, first.reasons)
    return ReservationPhase.PENDING, "", ""


def fit_message(nodes: int, reasons: dict[str, int]) -> str:
    """The sentence that users of kubectl know: `0/5 nodes are available: 3 Insufficient cpu, 2 …`."""
    parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{nodes} nodes are available: {', '.join(parts)}." if parts else f"0/{nodes} nodes are available."


def rephase(state: ClusterState, uid: ReservationUid) -> None:
    """Record the phase where it changed, and that somebody should write the status."""
    record = state.reservations.get(uid)
    if record is None:
        return
    state.touched.reservations[uid] = None
    state.reviewed.append(uid)
    if record.fact.migration:
        state.touched.migrations[record.fact.migration] = None  # type: ignore[index]
    phase, reason, message = phase_of(state, record)
    before = state.phases.get(uid)
    if before is not None and (before.phase, before.reason, before.message) == (phase, reason, message):
        return
    moved = before is None or before.phase is not phase
    if phase is not ReservationPhase.AVAILABLE:
        state.drop(state.available, uid)
    elif moved:
        state.put(state.available, uid, None)
    history = before.history if before is not None else ()
    if moved:
        history = (*(h for h in history if h[0] is not phase), (phase, state.time))
    since = state.time if before is None or moved else before.since
    state.put(state.phases, uid, PhaseSince(phase, reason, message, since, history))


def cancel(state: ClusterState, uid: ReservationUid, reason: str) -> None:
    """End what waits and ask the session to release what is held. The session's answer is the truth."""
    state.capacity_epoch += 1  # jobs that name it wait for another reason now
    slots = state.slots.get(uid, {})
    for name, slot in list(slots.items()):
        if slot.phase is SlotPhase.PENDING:
            put_place(state, uid, name, replace(slot, phase=SlotPhase.FAILED, reason=reason))
        elif slot.phase is SlotPhase.HELD and (uid, name) not in state.to_release:
            state.put(state.to_release, (uid, name), reason)
    rephase(state, uid)


def alive(record: Reservation | None) -> bool:
    """Whether places of this Reservation may be held and handed over."""
    return record is not None and not over(record) and record.accepted > 0


def over(record: Reservation) -> bool:
    """Whether it has ended for good, whatever its later generations say."""
    return bool(record.gone or record.expired or record.fact.deleting or record.collected)


def needs_review(record: Reservation) -> bool:
    """Whether its present generation is still to be accepted or refused."""
    return not over(record) and max(record.accepted, record.refused) < record.fact.generation


def forget_if_over(state: ClusterState, uid: ReservationUid) -> None:
    """A Reservation that is gone and holds nothing is dropped from the state."""
    record = state.reservations.get(uid)
    if record is None or not record.gone or tally_of(state, uid).held:
        return
    for name in state.slots.get(uid, {}):
        state.drop(state.slot_queue, (uid, name))
    kept: tuple[dict, ...] = (
        state.reservations, state.slots, state.tallies, state.unfit_slots, state.phases, state.unreviewed, state.available,
    )  # fmt: skip
    for mapping in kept:
        state.drop(mapping, uid)
    state.touched.reservations[uid] = None
    state.reviewed.append(uid)
