"""What all events are, and the two that every family has: leadership and configuration."""

import msgspec

from restow.contracts.ids import Int


class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="type"):
    """Base of all events."""


class Led(Event):
    """A leader's first commit. Whoever folds a higher epoch in its own family stops deciding and acting."""

    epoch: Int
    holder: str


class Configured(Event):
    """Configuration or policy, in full, before it is used. `digest` is the SHA-256 of `text`, hex."""

    text: str
    digest: str


class ClusterLed(Led, tag="cluster.led"): ...
class SessionLed(Led, tag="session.led"): ...
class ReservationLed(Led, tag="reservation.led"): ...
class MigrationLed(Led, tag="migration.led"): ...
class GcLed(Led, tag="gc.led"): ...
class ClusterConfigured(Configured, tag="cluster.configured"): ...
class SessionConfigured(Configured, tag="session.configured"): ...
class ReservationConfigured(Configured, tag="reservation.configured"): ...
class MigrationConfigured(Configured, tag="migration.configured"): ...
class GcConfigured(Configured, tag="gc.configured"): ...


LED = {"cluster": ClusterLed, "session": SessionLed, "reservation": ReservationLed, "migration": MigrationLed, "gc": GcLed}
CONFIGURED = {
    "cluster": ClusterConfigured,
    "session": SessionConfigured,
    "reservation": ReservationConfigured,
    "migration": MigrationConfigured,
    "gc": GcConfigured,
}


class Unknown(msgspec.Struct, frozen=True):
    """An event of a type that this version does not know. Kept as it came, counted, skipped by every fold."""

    name: str
    raw: bytes
