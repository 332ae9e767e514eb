"""Which Reservations are valid."""


from restow.contracts.events.base import Event
from restow.contracts.ids import (
    Int,
    Millis,
    ReservationUid,
)


class ReservationAccepted(Event, tag="reservation.accepted"):
    """This generation is valid and may be held. `expires` is absolute, 0 for never. `revision` counts the changes of what
    the object requests within its generation, for example by labels and annotations."""

    reservation: ReservationUid
    generation: Int
    min_available: Int
    expires: Millis = Millis(0)
    revision: Int = 0


class ReservationRefused(Event, tag="reservation.refused"):
    """This generation can never be held: phase Failed. `reason` is one CamelCase word."""

    reservation: ReservationUid
    generation: Int
    reason: str
    message: str
    revision: Int = 0
