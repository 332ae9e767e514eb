"""What is due."""


from restow.contracts.events.base import Event
from restow.contracts.ids import (
    Int,
    ReservationUid,
)


class Expired(Event, tag="gc.expired"):
    """A Reservation has expired. The session answers with `hold_released` for what no pod uses."""

    reservation: ReservationUid


class Collected(Event, tag="gc.collected"):
    """Intent: delete the Reservation object. `reason`: Retention (finished long enough ago) or Orphaned (its migration is
    over or unknown)."""

    reservation: ReservationUid
    reason: str


class SnapshotTaken(Event, tag="gc.snapshot_taken"):
    """The state as of sequence `seq` is stored."""

    seq: Int
    fold: Int
    size: Int


class Archived(Event, tag="gc.archived"):
    """Sequences first to last are in an archive segment with this digest."""

    first: Int
    last: Int
    file: str
    digest: str


class Truncated(Event, tag="gc.truncated"):
    """Intent: drop every message up to and including `upto`; snapshot and archive cover them."""

    upto: Int


class LogRepaired(Event, tag="gc.log_repaired"):
    """The log goes on as it is here: records from `first` on that are missing, or follow from another history, are void for good. `first` is 0
    where the log itself shows no break. `lost` is the last sequence that somebody knows to be lost, 0 where none is. The facts are listed anew.
    `person` has decided that, for `reason`. `repairs` is how often the log had been repaired by then where somebody knows of more than it still shows,
    because repairs were lost, too; else 0."""

    first: Int
    lost: Int = 0
    person: str = ""
    reason: str = ""
    repairs: Int = 0
