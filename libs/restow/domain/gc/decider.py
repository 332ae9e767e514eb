"""What is due: expired, orphaned, past retention; and how far the log may be truncated.

Everything here is a request: what an expiry releases is the session's decision (DESIGN 1).
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Family, Millis
from restow.domain.decider import Rejected
from restow.domain.effects import DeleteReservation, DropPrefix, Effect
from restow.domain.records import FINAL, Reservation, ReservationPhase
from restow.domain.state import ClusterState, Touched

AT_ONCE = 1_000
"""Events of one collection: what one commit can still carry."""

FINISHED = (ReservationPhase.SUCCEEDED, ReservationPhase.FAILED)


class GcDecider:
    family: Family = "gc"
    logic = "gc@1"

    def decide(self, state: ClusterState, command: c.Command) -> Sequence[e.Event]:
        match command:
            case c.Collect(time=now):
                return list(islice(_due(state, now), AT_ONCE))
            case c.ReportSnapshot(seq=seq, fold=fold, size=size):
                return (e.SnapshotTaken(seq, fold, size),) if seq > state.snapshot_seq else ()
            case c.ReportArchive(first=first, last=last, file=file, digest=digest):
                return (e.Archived(first, last, file, digest),) if last > state.archived else ()
            case c.Truncate(upto=upto):
                covered = min(state.snapshot_seq, state.archived)
                if upto > covered:
                    raise Rejected(
                        f"truncate up to {upto}: snapshot (up to {state.snapshot_seq}) and archive (up to {state.archived}) "
                        f"must both cover it; allowed: at most {covered}"
                    )
                return (e.Truncated(upto),) if upto > state.truncated else ()
        raise TypeError(f"{self.family} does not decide {type(command).__name__}")

    def due(self, state: ClusterState, now: Millis) -> c.Command | None:
        if any(_judged(state, record, now) is not None for record in state.reservations.values()):
            return c.Collect(now)
        upto = truncatable(state)
        return c.Truncate(now, upto) if upto > state.truncated else None

    def deadline(self, state: ClusterState) -> Millis | None:
        times = [t for record in state.reservations.values() if (t := _next(state, record))]
        return min(times, default=None)

    def pending(self, state: ClusterState, touched: Touched | None) -> list[Effect]:
        uids = list(state.reservations) if touched is None else list(touched.reservations)
        effects: list[Effect] = [DeleteReservation(uid) for uid in uids if self.owed(state, DeleteReservation(uid))]
        if state.truncated:
            effects.append(DropPrefix(state.truncated))
        return effects

    def owed(self, state: ClusterState, effect: Effect) -> bool:
        match effect:
            case DeleteReservation(reservation=uid):
                record = state.reservations.get(uid)
                return record is not None and bool(record.collected) and not record.gone and not record.fact.deleting
            case DropPrefix(upto=upto):
                return upto == state.truncated
        return False


def truncatable(state: ClusterState) -> int:
    """The sequence up to which the prefix may go now: covered by snapshot and archive, `keep` left behind, in steps of
    half of `keep` so that truncation is rare. 0 for nothing."""
    upto = min(state.snapshot_seq, state.archived, state.seq - state.gc_config.keep)
    return upto if upto - state.truncated >= max(state.gc_config.keep // 2, 1) else 0


def _due(state: ClusterState, now: Millis) -> Iterator[e.Event]:
    for record in sorted(state.reservations.values(), key=lambda record: record.order):
        event = _judged(state, record, now)
        if event is not None:
            yield event


def _judged(state: ClusterState, record: Reservation, now: Millis) -> e.Event | None:
    if record.gone or record.fact.deleting or record.collected:
        return None
    reason = _collectable(state, record, now)
    if reason:
        return e.Collected(record.fact.reservation, reason)
    if not record.expired and record.expires and record.expires <= now and not _finished(state, record):
        return e.Expired(record.fact.reservation)
    return None


def _finished(state: ClusterState, record: Reservation) -> bool:
    phase = state.phases.get(record.fact.reservation)
    return phase is not None and phase.phase in FINISHED


def _collectable(state: ClusterState, record: Reservation, now: Millis) -> str:
    if made_by_us(state, record):
        migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
        return "Orphaned" if migration is None or migration.step in FINAL else ""
    phase = state.phases.get(record.fact.reservation)
    if phase is not None and phase.phase in FINISHED and now - phase.since >= state.gc_config.retention:
        return "Retention"
    return ""


def made_by_us(state: ClusterState, record: Reservation) -> bool:
    """Whether it is the object that Restow creates for a migration. The label alone proves nothing, anybody can write it:
    the name must be the one that follows from it, and where the log knows the migration, the object must be its hold.
    One that it does not know is of a log that is gone, or was forgotten long after it ended: the plan precedes the object
    in the log, so it cannot merely be unfolded. Everything else is a user's, and lives by the rules for those."""
    id = record.fact.migration
    if not id or record.fact.name != f"restow-{id}":
        return False
    migration = state.migrations.get(id)
    return migration is None or migration.reservation == record.fact.reservation


def _next(state: ClusterState, record: Reservation) -> Millis:
    if record.gone or record.fact.deleting or record.collected or made_by_us(state, record):
        return Millis(0)
    phase = state.phases.get(record.fact.reservation)
    if phase is not None and phase.phase in FINISHED:
        return Millis(phase.since + state.gc_config.retention)
    return Millis(0) if record.expired else record.expires
