"""Which Reservations are valid and what they ask for. Phases and counts are a fold, their status an effect."""

from collections.abc import Sequence

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Family, Millis, ReservationUid
from restow.domain.effects import Effect, WriteReservationStatus
from restow.domain.other_schedulers import OTHER_SCHEDULER, held_for, other_log, other_scheduler
from restow.domain.records import FINAL, Reservation
from restow.domain.reservation import beside
from restow.domain.reservation.validate import expiry, problem
from restow.domain.state import ClusterState, Touched

AT_ONCE = 200
"""Reservations reviewed in one command: what one commit can still carry."""


class ReservationDecider:
    family: Family = "reservation"
    logic = "reservation@4"

    def decide(self, state: ClusterState, command: c.Command) -> Sequence[e.Event]:
        match command:
            case c.Review():
                due = sorted(state.unreviewed, key=lambda uid: state.reservations[uid].order)
                listed = beside.Listed(state)
                return [_review(state, uid, listed) for uid in due[:AT_ONCE]]
        raise TypeError(f"{self.family} does not decide {type(command).__name__}")

    def due(self, state: ClusterState, now: Millis) -> c.Command | None:
        return c.Review(now) if state.unreviewed else None

    def deadline(self, state: ClusterState) -> Millis | None:
        return None

    def pending(self, state: ClusterState, touched: Touched | None) -> list[Effect]:
        uids = list(state.phases) if touched is None else list(touched.reservations)
        return [WriteReservationStatus(uid, state.seq) for uid in uids if self._has_status(state, uid)]

    def owed(self, state: ClusterState, effect: Effect) -> bool:
        return isinstance(effect, WriteReservationStatus) and self._has_status(state, effect.reservation)

    @staticmethod
    def _has_status(state: ClusterState, uid: ReservationUid) -> bool:
        record = state.reservations.get(uid)
        return record is not None and not record.gone and (record.accepted > 0 or record.refused > 0 or record.expired)


def told_by_us(state: ClusterState, uid: ReservationUid) -> bool:
    """Whether its status is ours to write. That of another scheduler's Reservation is not, also where it was ours before."""
    record = state.reservations.get(uid)
    return record is not None and not other_scheduler(state, record)


def _review(state: ClusterState, uid: ReservationUid, listed: beside.Listed) -> e.Event:
    record = state.reservations[uid]
    fact = record.fact
    if taken_back := _foreign(state, record):
        return e.ReservationRefused(uid, fact.generation, *taken_back, record.revision)
    if fact.spec is None:
        return e.ReservationRefused(uid, fact.generation, "InvalidSpec", fact.invalid, record.revision)
    wrong = problem(state, fact.spec, record.spec)
    if wrong is not None:
        return e.ReservationRefused(uid, fact.generation, *wrong, record.revision)
    scheduler = held_for(state, record)
    before = record.spec if record.alive else None
    if scheduler and (said := beside.problem(state, scheduler, fact.namespace, fact.spec, before) or listed.problem(scheduler, uid, fact.spec)):
        return e.ReservationRefused(uid, fact.generation, "InvalidSpec", said, record.revision)
    migration = state.migrations.get(fact.migration) if fact.migration else None  # type: ignore[call-overload]
    slots = sum(task.replicas for task in fact.spec.tasks)
    known = migration is not None and migration.reservation == uid
    if known and migration is not None and migration.step in FINAL:
        # It came, or is looked at, too late: nothing must be held for it.
        said = f"migration {migration.id} is {migration.step}"
        return e.ReservationRefused(uid, fact.generation, "MigrationOver", said, record.revision)
    return e.ReservationAccepted(
        uid,
        fact.generation,
        fact.spec.min_available or slots,
        expiry(state, fact.spec, fact.created, known),
        record.revision,
    )


def _foreign(state: ClusterState, record: Reservation) -> tuple[str, str] | None:
    """Why one that was ours is taken back, None where it is ours."""
    other = other_scheduler(state, record)
    if not other:
        return None
    if log := other_log(state, record.fact):
        return OTHER_SCHEDULER, f"it was made for log {log}; this is log {state.log}"
    served = ", ".join(state.session_config.scheduler_names)
    return OTHER_SCHEDULER, f"its templates name scheduler {other}, which is not served here (schedulerNames: {served})"
