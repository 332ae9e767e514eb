"""How each event changes the state: one module or two a family, one function an event, all of them total."""

from typing import Any

from restow.contracts.events import Unknown
from restow.domain.evolve import cluster, common, gc, holds, migration, objects, reservation_review, session
from restow.domain.evolve.reservation_slots import settle_phases
from restow.domain.evolve.rules import Rules
from restow.domain.state import ClusterState

TABLE: Rules = {
    **common.RULES,
    **cluster.RULES,
    **objects.RULES,
    **session.RULES,
    **holds.RULES,
    **reservation_review.RULES,
    **migration.RULES,
    **gc.RULES,
}
"""Event type → rule. A test asserts that every event of the contract is here."""


def evolve_one(state: ClusterState, event: Any) -> None:
    """Fold one event."""
    state.events += 1
    rule = TABLE.get(type(event))
    if rule is None:
        if isinstance(event, Unknown):
            state.unknown[event.name] += 1
            return
        raise TypeError(f"no rule folds {type(event).__name__}; add it to restow.domain.evolve")
    rule(state, event)
    if state.unsettled:
        settle_phases(state)
