"""Plans as people look at them: in waves, with what became of each move, and by groups of nodes. Reads the state, decides
nothing."""

from restow.domain.planview.groups import NodeGroup, carried_out, node_groups
from restow.domain.planview.plans import (
    OVER_PHASES,
    DemandSlotView,
    MigrationView,
    PlanView,
    demand_slots_of,
    migration_view,
    migrations_of,
    plan_view,
)
from restow.domain.planview.waves import numbers, waves

__all__ = [
    "OVER_PHASES",
    "DemandSlotView",
    "MigrationView",
    "NodeGroup",
    "PlanView",
    "carried_out",
    "demand_slots_of",
    "migration_view",
    "migrations_of",
    "node_groups",
    "numbers",
    "plan_view",
    "waves",
]
