"""Nodes that are left alone because a plan has touched them lately."""

from restow.contracts.ids import Millis, NodeName
from restow.domain.config import DefragmentationArgs
from restow.domain.state import ClusterState


def rests(args: DefragmentationArgs, touched: int, now: Millis) -> bool:
    """Whether a node that a plan touched then is still left alone (`coolDownTime` of Defragmentation; 0 for never)."""
    return args.coolDownTime > 0 and now < touched + args.coolDownTime * 1000


def cooling(state: ClusterState, now: Millis) -> frozenset[NodeName]:
    """Nodes that a plan has touched lately. A state that is made of a cluster alone, with no plan in it, has none."""
    args = state.migration_config.defragmentation
    if args is None:
        return frozenset()
    return frozenset(node for node, at in state.cooling.items() if rests(args, at, now))
