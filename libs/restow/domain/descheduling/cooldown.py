"""Nodes that a plan has touched lately (`coolDownTime` of Defragmentation; 0, or no Defragmentation: none)."""

from restow.contracts.ids import Millis, NodeName
from restow.domain.state import ClusterState


def cooling(state: ClusterState, now: Millis) -> frozenset[NodeName]:
    """A state that is made of a cluster alone, with no plan in it, has none."""
    args = state.migration_config.defragmentation
    if args is None or args.coolDownTime <= 0:
        return frozenset()
    return frozenset(node for node, at in state.cooling.items() if now < at + args.coolDownTime * 1000)
