"""Until when is waited for what a move leaves behind: a deadline starts when its wait can end (RULES G-14)."""

from restow.contracts.ids import Millis
from restow.domain.migration import waves
from restow.domain.records import Migration
from restow.domain.state import ClusterState


def lands_until(state: ClusterState, migration: Migration) -> Millis:
    """Until when a pod that was evicted may land. Most controllers make the next one when this one has gone, and it may need what this
    one uses: `landDeadline` counts from then. Who has taken the place has as long to become ready."""
    patience, vacated = state.migration_config.land_deadline, migration.vacated
    at = max(migration.deadline, waves.going_until(state, migration.move.pod), Millis(vacated + patience if vacated else 0))
    placed = state.placed.get(migration.successor) if migration.successor else None
    return max(at, Millis(placed.at + patience)) if placed is not None else at
