"""What is due."""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.domain.evolve.reservation_slots import cancel
from restow.domain.evolve.rules import Rules, void
from restow.domain.state import ClusterState


def expired(state: ClusterState, event: e.Expired) -> None:
    record = state.reservations.get(event.reservation)
    if record is None or record.expired:
        void(state, event)
        return
    state.put(state.reservations, event.reservation, replace(record, expired=True))
    state.drop(state.unreviewed, event.reservation)
    cancel(state, event.reservation, "Expired")


def collected(state: ClusterState, event: e.Collected) -> None:
    record = state.reservations.get(event.reservation)
    if record is None:
        void(state, event)
        return
    state.put(state.reservations, event.reservation, replace(record, collected=event.reason))
    state.drop(state.unreviewed, event.reservation)
    cancel(state, event.reservation, "Deleted")


def snapshot_taken(state: ClusterState, event: e.SnapshotTaken) -> None:
    state.snapshot_seq = max(state.snapshot_seq, event.seq)


def archived(state: ClusterState, event: e.Archived) -> None:
    """What is said last counts: an archive that was lost begins again, at the log's first record, and may end before the old one did."""
    state.archive_first, state.archived = event.first, event.last


def truncated(state: ClusterState, event: e.Truncated) -> None:
    state.truncated = max(state.truncated, event.upto)


def log_repaired(state: ClusterState, event: e.LogRepaired) -> None:
    """What was void stays so. What was reported of snapshots and archives may have been of records that are lost: both begin anew.
    Whoever knows of repairs that are lost is behind this one, too."""
    state.broken, state.repairs = 0, max(state.repairs, event.repairs) + 1


RULES: Rules = {
    e.Expired: expired,
    e.Collected: collected,
    e.SnapshotTaken: snapshot_taken,
    e.Archived: archived,
    e.Truncated: truncated,
    e.LogRepaired: log_repaired,
}
