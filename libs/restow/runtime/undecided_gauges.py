"""Gauges of pods that wait although nothing keeps them. The session has them, and so has the descheduler: where the session is away, or ends again and again, somebody is to say so."""

from collections.abc import Iterable

from restow.contracts.ids import Millis
from restow.domain.undecided import Undecided
from restow.runtime.telemetry import Labelled


def undecided_gauges(undecided: Undecided, now: Millis) -> Iterable[Labelled]:
    """How many there are, and for how long the first of them waits (0 where none does), by a look at this moment."""
    oldest = undecided.look(now)
    seconds = 0.0 if oldest is None else max(now - oldest[1], 0) / 1000
    yield Labelled.one("undecided", "Pods that nothing keeps from running, and that nobody has decided on yet", len(undecided))
    yield Labelled.one("undecided_oldest_seconds", "For how long the first of them waits", seconds)
