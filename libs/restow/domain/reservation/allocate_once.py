"""`allocateOnce`: whether the first pod that takes of a Reservation's slot ends it, however little that is, or many pods share it (RULES 004-1).
The slot is used up in `evolve.holds`, when it is handed over; the phase that follows is `evolve.phases`."""

from restow.domain.records import Reservation


def is_once(record: Reservation) -> bool:
    """Whether one pod ends a slot. So it is where nothing is said (Volcano's, and every migration's)."""
    return record.spec is None or record.spec.allocate_once


def is_shared(record: Reservation) -> bool:
    """Whether many pods use one slot of it."""
    return not is_once(record)
