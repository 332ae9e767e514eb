"""Nodes that a plan has touched lately (`coolDownTime` of Defragmentation; 0, or no Defragmentation: none)."""

from restow.contracts.ids import Millis, NodeName
from restow.domain.config import DefragmentationArgs
from restow.domain.state import ClusterState


def rests(args: DefragmentationArgs, touched: int, now: Millis) -> bool:
    """Whether a node that a plan touched then is still left alone."""
    return args.coolDownTime > 0 and now < touched + args.coolDownTime * 1000


def cooling(state: ClusterState, now: Millis) -> frozenset[NodeName]:
    """A state that is made of a cluster alone, with no plan in it, has none."""
    args = state.migration_config.defragmentation
    if args is None:
        return frozenset()
    return frozenset(node for node, at in state.cooling.items() if rests(args, at, now))
