"""Which Reservations are valid."""


from restow.contracts.events.base import Event
from restow.contracts.ids import (
    Millis,
    ReservationUid,
)


class ReservationAccepted(Event, tag="reservation.accepted"):
    """This generation is valid and may be held. `expires` is absolute, 0 for never (RULES G-2). `revision`: how often what the
    object asks for had changed within its generation, as labels and annotations do."""

    reservation: ReservationUid
    generation: int
    min_available: int
    expires: Millis = Millis(0)
    revision: int = 0


class ReservationRefused(Event, tag="reservation.refused"):
    """This generation can never be held: phase Failed. `reason` is one CamelCase word."""

    reservation: ReservationUid
    generation: int
    reason: str
    message: str
    revision: int = 0
