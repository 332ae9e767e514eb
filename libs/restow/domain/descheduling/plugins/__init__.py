"""The registry: one line a plugin, in the order of their names."""

from typing import Any

from restow.domain.descheduling import default_evictor
from restow.domain.descheduling.plugins import (
    defragmentation,
    high_node_utilization,
    load_aware,
    low_node_utilization,
    pod_life_time,
    remove_duplicates,
    remove_failed_pods,
    remove_pods_having_too_many_restarts,
    remove_pods_violating_inter_pod_anti_affinity,
    remove_pods_violating_node_affinity,
    remove_pods_violating_node_taints,
    remove_pods_violating_topology_spread_constraint,
)

PLUGINS: dict[str, Any] = {
    module.NAME: module
    for module in (
        default_evictor,
        defragmentation,
        high_node_utilization,
        load_aware,
        low_node_utilization,
        pod_life_time,
        remove_duplicates,
        remove_failed_pods,
        remove_pods_having_too_many_restarts,
        remove_pods_violating_inter_pod_anti_affinity,
        remove_pods_violating_node_affinity,
        remove_pods_violating_node_taints,
        remove_pods_violating_topology_spread_constraint,
    )
}
"""By upstream's name; each is a `framework.Plugin` or a `framework.FilterPlugin`, with its arguments beside it."""
