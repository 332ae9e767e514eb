"""LowNodeUtilization: pods leave nodes that are used a lot, where there are nodes that are used little and have room for them."""

from restow.contracts.ids import NodeName
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.plugins.low_node_utilization.args import Args
from restow.domain.descheduling.utilization.args import ONLY_THRESHOLDING, shown
from restow.domain.descheduling.utilization.levels import (
    SCALE,
    Amounts,
    Bounds,
    around_mean,
    fixed,
    levels,
    over,
    under,
)
from restow.domain.descheduling.utilization.moving import Flow, move, requests_any, rested
from restow.domain.descheduling.utilization.usage import Usage, measured, named, queried, requested
from restow.domain.resources import canonical_resource, title


def run(handle: Handle, args: Args) -> None:
    usage = _usage(handle, args)
    if isinstance(usage, str):
        handle.warn(f"nothing is evicted: {usage}")
        return
    percent = {node: levels(usage.nodes[node], usage.capacity(handle, node)) for node in handle.nodes}
    low_bounds, high_bounds = _bounds(args, list(percent.values()))
    low: list[NodeName] = []
    high: list[NodeName] = []
    for node in handle.nodes:
        if not handle.state.nodes[node].unschedulable and under(percent[node], low_bounds):
            low.append(node)
        elif over(percent[node], high_bounds):
            high.append(node)
    if why := _nothing(handle, args, low, high) or rested(handle, usage, high, low):
        handle.warn(why)
        return

    ceilings: dict[NodeName, Amounts] = {}

    def ceiling(node: NodeName) -> Amounts:
        found = ceilings.get(node)
        if found is None:
            found = ceilings[node] = _ceiling(usage, usage.capacity(handle, node), high_bounds)
        return found

    def enough(node: NodeName, used: Amounts) -> str:
        top = ceiling(node)
        if any(amount > top[name] for name, amount in used.items()):
            return ""
        return "Utilization: enough leaves its node, which is above no target any more"

    def reason(node: NodeName) -> str:
        name = over(percent[node], high_bounds)
        used = percent[node][name] // (SCALE // 10)
        return f"{title(name)} of its node is used to {used // 10}.{used % 10} %, more than {shown(high_bounds[name].percent)} %"

    high.sort(key=lambda node: (-sum(usage.nodes[node].values()), node))
    flow = Flow(high, low, ceiling, enough, reason, None if args.eviction_limits is None else args.eviction_limits.node)
    may = requests_any(handle, tuple(args.thresholds)) if ONLY_THRESHOLDING in args.eviction_modes else None
    move(handle, usage, flow, args.evictable_namespaces, may)


def _usage(handle: Handle, args: Args) -> Usage | str:
    if args.query:
        return queried(handle, args.query)
    names = named(args.thresholds)
    return measured(handle, names) if args.measured else requested(handle, names)


def _bounds(args: Args, percent: list[Amounts]) -> tuple[Bounds, Bounds]:
    low = {canonical_resource(name): p for name, p in args.thresholds.items()}
    high = {canonical_resource(name): p for name, p in args.target_thresholds.items()}
    if args.use_deviation_thresholds:
        return around_mean(percent, low, -1), around_mean(percent, high, 1)
    return fixed(low), fixed(high)


def _ceiling(usage: Usage, capacity: Amounts, bounds: Bounds) -> Amounts:
    """Up to its target for resources that have one, and all of the others."""
    return {
        name: bounds[name].share(capacity.get(name, 0)) if name in bounds else capacity.get(name, 0) for name in usage.names
    }


def _nothing(handle: Handle, args: Args, low: list[NodeName], high: list[NodeName]) -> str:
    if not low:
        return "no node is underutilized"
    if len(low) <= args.number_of_nodes:
        return f"{len(low)} nodes are underutilized; numberOfNodes asks for more than {args.number_of_nodes}"
    if len(low) == len(handle.nodes):
        return "all nodes are underutilized"
    return "" if high else "no node is overutilized"
