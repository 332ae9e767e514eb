"""What several families do to a Reservation in the fold: its phase follows from its slots (RULES 000-1)."""

from msgspec.structs import replace

from restow.contracts.ids import Millis, ReservationUid, SlotName
from restow.contracts.values import ReservationSpec
from restow.domain import promised_slots
from restow.domain.evolve.phases import Said, phase_of
from restow.domain.evolve.phases import fit_message as fit_message
from restow.domain.other_schedulers import OTHER_SCHEDULER, other_scheduler
from restow.domain.records import ON_NODE, PhaseSince, Reservation, ReservationPhase, Slot, SlotPhase
from restow.domain.state import ClusterState

SUPERSEDED = "Superseded"
"""Why a hold is released that a later generation does not ask for, or asks for in another shape."""


def slots_of(spec: ReservationSpec) -> dict[SlotName, Slot]:
    """Every slot that a Reservation asks for, not yet held."""
    return {SlotName(f"{task.name}-{i}"): Slot(task.shape, task.name) for task in spec.tasks for i in range(task.replicas)}


def ask(state: ClusterState, uid: ReservationUid, name: SlotName, slot: Slot) -> None:
    """Ask the session to hold this slot."""
    state.put_slot((uid, name), slot)
    state.capacity_epoch += 1


def settle_phases(state: ClusterState) -> None:
    """At the end of an event: the phases of those whose slots it has changed, and whether what stands in these slots is charged by itself."""
    while state.unsettled:
        uid = next(iter(state.unsettled))
        del state.unsettled[uid]
        for pod in [pod for key, pod in state.stand_ins.items() if key[0] == uid]:
            state.settle(pod)
        rephase(state, uid)
        forget_if_over(state, uid)


def rephase(state: ClusterState, uid: ReservationUid, anew: bool = False) -> None:
    """Record the phase where it changed, and that somebody should write the status. `anew`: a generation was just accepted."""
    record = state.reservations.get(uid)
    if record is None:
        return
    state.touched.reservations[uid] = None
    state.reviewed.append(uid)
    if record.fact.migration:
        state.touched.migrations[record.fact.migration] = None  # type: ignore[index]
        promised_slots.settle(state, record.fact.migration)  # type: ignore[arg-type]
    before = state.phases.get(uid)
    now = phase_of(state, record, before, anew)
    # One that is over hands nothing over, even before the session has released what it holds.
    usable = now[0] is ReservationPhase.AVAILABLE and not record.over
    if not usable:
        state.drop(state.available, uid)
    elif uid not in state.available:
        state.put(state.available, uid, None)
    if before is None or (before.phase, before.reason, before.message) != now:
        state.put(state.phases, uid, _since(before, now, state.time))
    if now[0] is ReservationPhase.FAILED and state.tally_of(uid).pending:
        _give_up(state, uid, now[1])


def _give_up(state: ClusterState, uid: ReservationUid, reason: str) -> None:
    """Failed is final: it waits for nothing more."""
    for name, slot in list(state.slots[uid].items()):
        if slot.phase is SlotPhase.PENDING:
            state.put_slot((uid, name), replace(slot, phase=SlotPhase.FAILED, reason=reason))


def _since(before: PhaseSince | None, now: Said, time: Millis) -> PhaseSince:
    """The record of a phase that is another one, or has another reason, since this time."""
    phase = now[0]
    if before is not None and before.phase is phase:
        return PhaseSince(*now, before.since, before.history, time, before.scheduled, before.ready)
    was = before or PhaseSince(ReservationPhase.PENDING)
    history = (*(h for h in was.history if h[0] is not phase), (phase, time))
    turned = ReservationPhase.AVAILABLE in (was.phase, phase)
    scheduled = was.scheduled
    if phase is ReservationPhase.PENDING:
        scheduled = Millis(0)
    elif phase is not ReservationPhase.FAILED:
        scheduled = was.scheduled or time
    return PhaseSince(*now, time, history, time, scheduled, time if turned else was.ready)


def cancel(state: ClusterState, uid: ReservationUid, reason: str) -> None:
    """End what waits and ask the session to release what is held. The session's answer is the truth."""
    state.capacity_epoch += 1  # jobs that name it wait for another reason now
    slots = state.slots.get(uid, {})
    for name, slot in list(slots.items()):
        if slot.phase is SlotPhase.PENDING:
            state.put_slot((uid, name), replace(slot, phase=SlotPhase.FAILED, reason=reason))
        elif slot.phase in ON_NODE and (uid, name) not in state.to_release:
            state.put(state.to_release, (uid, name), reason)
            state.drop(state.resizes, (uid, name))
            state.moved.append((uid, name))
    rephase(state, uid)


def needs_review(state: ClusterState, record: Reservation) -> bool:
    """Whether its present generation is still to be accepted or refused. Of one that is for another scheduler, whether what was
    accepted of it is still to be taken back."""
    if record.over:
        return False
    if other_scheduler(state, record):
        return record.alive
    latest = max(record.accepted, record.refused) >= record.fact.generation and record.reviewed >= record.revision
    return not latest or (record.rejected and record.reason == OTHER_SCHEDULER)


def note_review(state: ClusterState, uid: ReservationUid) -> None:
    """Keep the list of those that are to be reviewed right, when its record, or whose it is, has changed."""
    if needs_review(state, state.reservations[uid]):
        state.put(state.unreviewed, uid, None)
    else:
        state.drop(state.unreviewed, uid)


def forget_if_over(state: ClusterState, uid: ReservationUid) -> None:
    """A Reservation that is gone and holds nothing is dropped from the state."""
    record = state.reservations.get(uid)
    tally = state.tally_of(uid)
    if record is None or not record.gone or tally.held or tally.waiting:
        return
    for name in state.slots.get(uid, {}):
        state.drop(state.slot_queue, (uid, name))
    kept: tuple[dict, ...] = (
        state.reservations, state.slots, state.tallies, state.unfit_slots, state.phases, state.unreviewed, state.available,
    )  # fmt: skip
    for mapping in kept:
        state.drop(mapping, uid)
    if record.fact.migration:
        promised_slots.settle(state, record.fact.migration)  # type: ignore[arg-type]
    state.touched.reservations[uid] = None
    state.reviewed.append(uid)
