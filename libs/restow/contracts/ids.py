"""Names and identities that appear in the log. Plain strings on the wire, distinct types in the code."""

from typing import Annotated, Literal, NewType

import msgspec

LEAST, MOST = -(2**63), 2**63 - 1
Int = Annotated[int, msgspec.Meta(ge=LEAST, le=MOST)]
"""Every whole number in the log. A snapshot, Parquet and other languages' readers hold no larger ones: a record that says one is not ours,
else it would be in the state for ever and no snapshot could be written again."""

PodUid = NewType("PodUid", str)
NodeName = NewType("NodeName", str)
ShapeId = NewType("ShapeId", str)
"""Content address of a `PodShape`: `sha256` of its canonical JSON, the first 16 hex digits."""
ReservationUid = NewType("ReservationUid", str)
SlotName = NewType("SlotName", str)
"""One slot of a Reservation: `<task>-<index>`, as the pod of that task would be called."""
PlanId = NewType("PlanId", str)
MigrationId = NewType("MigrationId", str)
"""`<plan>-<number>`; also the suffix of the Reservation that holds the landing slot."""

Family = Literal["cluster", "session", "reservation", "migration", "gc"]
FAMILIES: tuple[Family, ...] = ("cluster", "session", "reservation", "migration", "gc")
WRITERS: dict[str, str] = {
    "cluster": "cluster_watcher",
    "session": "scheduler_session",
    "reservation": "reservation_cache",
    "migration": "descheduler",
    "gc": "garbage_collector",
}
"""The one service that writes a family."""
SERVICES = tuple(WRITERS.values())

EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: what RFC 3339 can write."""
Millis = NewType("Millis", Annotated[int, msgspec.Meta(ge=EARLIEST, le=LATEST)])
"""Milliseconds since the epoch, UTC. Every time in the log is one of these; 0 means "not"."""
