"""HighNodeUtilization: nodes that are hardly used are emptied, for as long as the others have capacity."""

from restow.contracts.ids import NodeName
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.utilization.moving import (
    Flow,
    move,
    requests_any,
    rested,
    too_few_underutilized,
)
from restow.domain.descheduling.utilization.thresholds import (
    ONLY_THRESHOLDING,
    UtilizationArgs,
    fixed,
    is_under,
    levels,
    shown,
)
from restow.domain.descheduling.utilization.usage import named, requested
from restow.domain.resources import canonical_resource

NAME = "HighNodeUtilization"
POINTS = ("balance",)


class Args(UtilizationArgs, frozen=True):
    """A node is underutilized where no resource is above its threshold, which is a percentage of what the node has for pods."""


def run(handle: Handle, args: Args) -> None:
    usage = requested(handle, named(args.thresholds))
    bounds = fixed({canonical_resource(name): percent for name, percent in args.thresholds.items()})
    low: list[NodeName] = []
    others: list[NodeName] = []
    for node in handle.nodes:
        if is_under(levels(usage.nodes[node], usage.capacity(handle, node)), bounds):
            low.append(node)
        elif not handle.state.nodes[node].unschedulable:
            others.append(node)
    said = ", ".join(f"{name} {shown(percent)} %" for name, percent in args.thresholds.items())
    reason = f"its node uses no more than {said}, and others have capacity"
    may = requests_any(handle, tuple(args.thresholds)) if ONLY_THRESHOLDING in args.eviction_modes else None
    flow = Flow(sources=low, targets=others, reason=lambda node: reason, namespaces=args.evictable_namespaces, may=may)
    why = too_few_underutilized(len(low), args.number_of_nodes, len(handle.nodes), ": none is there to take pods")
    if why := why or ("" if others else "no other node lets pods in") or rested(handle, usage, flow):
        handle.warn(why)
        return
    whole = {node: usage.capacity(handle, node) for node in flow.targets}
    flow.ceilings = {node: {name: capacity.get(name, 0) for name in usage.names} for node, capacity in whole.items()}
    flow.sources.sort(key=lambda node: (sum(usage.nodes[node].values()), node))
    move(handle, usage, flow)
