"""Names and identities that appear in the log. Plain strings on the wire, distinct types in the code."""

from typing import Literal, NewType

PodUid = NewType("PodUid", str)
NodeName = NewType("NodeName", str)
ShapeId = NewType("ShapeId", str)
"""Content address of a `PodShape`: `sha256` of its canonical JSON, the first 16 hex digits."""
ReservationUid = NewType("ReservationUid", str)
SlotName = NewType("SlotName", str)
"""One place inside a Reservation: `<task>-<index>`, as the pod of that task would be called."""
PlanId = NewType("PlanId", str)
MigrationId = NewType("MigrationId", str)
"""`<plan>-<number>`; also the suffix of the Reservation that holds the landing place."""

Family = Literal["cluster", "session", "reservation", "migration", "gc"]
FAMILIES: tuple[Family, ...] = ("cluster", "session", "reservation", "migration", "gc")

Millis = NewType("Millis", int)
"""Milliseconds since the epoch, UTC. Every time in the log is one of these; 0 means "not"."""
