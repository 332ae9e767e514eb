"""How each event changes the state: one module a family, one function an event, all of them total."""

from restow.domain.evolve import cluster, common, gc, migration, objects, reservation, session
from restow.domain.evolve.rules import Rules

TABLE: Rules = {
    **common.RULES,
    **cluster.RULES,
    **objects.RULES,
    **session.RULES,
    **reservation.RULES,
    **migration.RULES,
    **gc.RULES,
}
"""Event type → rule. A test asserts that every event of the contract is here."""
