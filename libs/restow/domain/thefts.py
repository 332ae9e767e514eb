"""Holds that were stolen. Where that happens again and again, somebody of higher priority wants what moves beside another scheduler hold: they rest
for a while, so that nobody is evicted into that."""

from restow.contracts.ids import MigrationId, Millis
from restow.domain.state_maps import Maps

MOST = 3
"""With so many within `WINDOW` no move beside another scheduler begins, and none goes on to the eviction."""
WINDOW = 600_000
"""Milliseconds for which a theft counts."""


def note(state: Maps, migration: MigrationId) -> None:
    """A part of the fold: it has ended because its hold was stolen. Of older ones nobody asks any more."""
    for id in [id for id, at in state.thefts.items() if at <= state.time - WINDOW]:
        state.drop(state.thefts, id)
    state.put(state.thefts, migration, Millis(state.time))


def rests_until(state: Maps) -> Millis:
    """Until when moves beside another scheduler rest; 0 where they do not. Thefts of a time that is still to come were noted before the clock was put back."""
    times = sorted(at for at in state.thefts.values() if at <= state.time + WINDOW)
    until = Millis(times[-MOST] + WINDOW) if len(times) >= MOST else Millis(0)
    return until if state.time < until else Millis(0)
