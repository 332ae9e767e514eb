"""HighNodeUtilization: nodes that are hardly used are emptied, for as long as the others have room."""

from restow.contracts.ids import NodeName
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.plugins.high_node_utilization.args import Args
from restow.domain.descheduling.utilization.args import ONLY_THRESHOLDING, shown
from restow.domain.descheduling.utilization.levels import Amounts, fixed, levels, under
from restow.domain.descheduling.utilization.moving import Flow, move, requests_any, rested
from restow.domain.descheduling.utilization.usage import named, requested
from restow.domain.resources import canonical_resource


def run(handle: Handle, args: Args) -> None:
    usage = requested(handle, named(args.thresholds))
    bounds = fixed({canonical_resource(name): percent for name, percent in args.thresholds.items()})
    state = handle.state
    low: list[NodeName] = []
    others: list[NodeName] = []
    for node in handle.nodes:
        if under(levels(usage.nodes[node], usage.capacity(handle, node)), bounds):
            low.append(node)
        elif not state.nodes[node].unschedulable:
            others.append(node)
    if why := _nothing(handle, args, low, others) or rested(handle, usage, low, others):
        handle.warn(why)
        return

    def ceiling(node: NodeName) -> Amounts:
        capacity = usage.capacity(handle, node)
        return {name: capacity.get(name, 0) for name in usage.names}

    low.sort(key=lambda node: (sum(usage.nodes[node].values()), node))
    said = ", ".join(f"{name} {shown(percent)} %" for name, percent in args.thresholds.items())
    reason = f"its node uses no more than {said}, and others have room"
    flow = Flow(low, others, ceiling, enough=lambda node, used: "", reason=lambda node: reason)
    may = requests_any(handle, tuple(args.thresholds)) if ONLY_THRESHOLDING in args.eviction_modes else None
    move(handle, usage, flow, args.evictable_namespaces, may)


def _nothing(handle: Handle, args: Args, low: list[NodeName], others: list[NodeName]) -> str:
    if not low:
        return "no node is underutilized"
    if len(low) <= args.number_of_nodes:
        return f"{len(low)} nodes are underutilized; numberOfNodes asks for more than {args.number_of_nodes}"
    if len(low) == len(handle.nodes):
        return "all nodes are underutilized: none is there to take pods"
    return "" if others else "no other node lets pods in"
