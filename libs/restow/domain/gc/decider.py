"""What is due: expired, orphaned, past retention; and how far the log may be truncated.

Everything here is a request: what an expiry releases is the session's decision (DESIGN 1).
"""

from collections.abc import Sequence

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Family, Millis
from restow.domain.decider import Rejected
from restow.domain.effects import DeleteReservation, DropPrefix, Effect
from restow.domain.gc.agenda import Agenda
from restow.domain.state import ClusterState, Touched

AT_ONCE = 1_000
"""Events of one collection: what one commit can still carry."""


class GcDecider:
    family: Family = "gc"
    logic = "gc@2"

    def decide(self, state: ClusterState, command: c.Command) -> Sequence[e.Event]:
        match command:
            case c.Collect(time=now):
                return Agenda.of(state).due(state, now, AT_ONCE)
            case c.ReportSnapshot(seq=seq, fold=fold, size=size):
                return (e.SnapshotTaken(seq, fold, size),) if seq > state.snapshot_seq else ()
            case c.ReportArchive(first=first, last=last, file=file, digest=digest, log_first=log_first):
                known = (state.archive_first, state.archived)
                if first == known[0] and last <= known[1]:
                    return ()
                archived = e.Archived(first, last, file, digest)
                # In a full store what is covered goes before that can be put on record. An archive that begins with the log leaves nothing between.
                gone = log_first - 1 if first <= log_first else 0
                return (e.Truncated(gone), archived) if gone > state.truncated else (archived,)
            case c.Truncate(upto=upto):
                most = covered(state)
                if upto > most:
                    raise Rejected(
                        f"truncate up to {upto}: snapshot (up to {state.snapshot_seq}) and archive ({state.archive_first} to "
                        f"{state.archived}) must both cover it; allowed: at most {most}"
                    )
                return (e.Truncated(upto),) if upto > state.truncated else ()
            case c.RepairLog(lost=lost, person=person, reason=reason, repairs=repairs):
                if not state.broken and not lost:
                    raise Rejected("the log shows no break, and nothing is said to be lost: there is nothing to repair")
                return (e.LogRepaired(state.broken, lost, person, reason, repairs if repairs > state.repairs else 0),)
        raise TypeError(f"{self.family} does not decide {type(command).__name__}")

    def due(self, state: ClusterState, now: Millis) -> c.Command | None:
        first = Agenda.of(state).first()
        if first is not None and first <= now:
            return c.Collect(now)
        upto = truncatable(state)
        return c.Truncate(now, upto) if upto > state.truncated else None

    def deadline(self, state: ClusterState) -> Millis | None:
        return Agenda.of(state).first()

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


def covered(state: ClusterState) -> int:
    """The sequence up to which a snapshot and the archive hold what the log holds. An archive that begins later than the log holds
    nothing that may go: what is between would be in neither."""
    return min(state.snapshot_seq, state.archived) if state.archive_first <= state.truncated + 1 else 0


def truncatable(state: ClusterState) -> int:
    """The sequence up to which the prefix may go now: covered by snapshot and archive, `keep` left behind, in steps of
    half of `keep` so that truncation is rare. 0 for nothing."""
    upto = min(covered(state), state.seq - state.gc_config.keep)
    return upto if upto - state.truncated >= max(state.gc_config.keep // 2, 1) else 0
