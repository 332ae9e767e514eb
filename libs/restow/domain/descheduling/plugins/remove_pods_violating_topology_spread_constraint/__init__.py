"""Plugin RemovePodsViolatingTopologySpreadConstraint."""

from restow.domain.descheduling.plugins.remove_pods_violating_topology_spread_constraint.args import (
    Args as Args,
)
from restow.domain.descheduling.plugins.remove_pods_violating_topology_spread_constraint.plugin import (
    run as run,
)

NAME = "RemovePodsViolatingTopologySpreadConstraint"
POINTS = ("balance",)
