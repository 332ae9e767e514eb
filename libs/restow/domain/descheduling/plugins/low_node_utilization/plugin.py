"""LowNodeUtilization: pods leave nodes that are used a lot, where there are nodes that are used little and have room for them."""

from restow.contracts.ids import Millis, NodeName
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.plugins.low_node_utilization.args import Args
from restow.domain.descheduling.utilization.args import ONLY_THRESHOLDING
from restow.domain.descheduling.utilization.levels import Amounts, Bounds, around_mean, fixed, levels
from restow.domain.descheduling.utilization.moving import requests_any
from restow.domain.descheduling.utilization.settling import WINDOW, unsettled
from restow.domain.descheduling.utilization.spreading import Spread, spread
from restow.domain.descheduling.utilization.usage import NOTHING, Usage, measured, named, queried, requested
from restow.domain.resources import canonical_resource


def run(handle: Handle, args: Args) -> None:
    usage = _usage(handle, args)
    if isinstance(usage, str):
        handle.warn(f"{NOTHING}{usage}")
        return
    percent = {node: levels(usage.nodes[node], usage.capacity(handle, node)) for node in handle.nodes}
    low, high = _bounds(args, list(percent.values()))
    most = None if args.eviction_limits is None else args.eviction_limits.node
    may = requests_any(handle, tuple(args.thresholds)) if ONLY_THRESHOLDING in args.eviction_modes else None
    moving = _unsettled(handle, args)
    spread(handle, usage, Spread(percent, low, high, args.number_of_nodes, args.evictable_namespaces, most, may, unsettled=moving))


def _usage(handle: Handle, args: Args) -> Usage | str:
    if args.query:
        return queried(handle, args.query)
    names = named(args.thresholds)
    return measured(handle, names) if args.measured else requested(handle, names)


def _unsettled(handle: Handle, args: Args) -> frozenset[NodeName]:
    """Of what pods ask for nothing is out of date."""
    samples = handle.samples
    if samples is None or not (args.query or args.measured):
        return frozenset()
    taken = samples.prometheus[args.query].taken if args.query else samples.taken
    return unsettled(handle.state, Millis(taken - WINDOW))


def _bounds(args: Args, percent: list[Amounts]) -> tuple[Bounds, Bounds]:
    low = {canonical_resource(name): p for name, p in args.thresholds.items()}
    high = {canonical_resource(name): p for name, p in args.target_thresholds.items()}
    if args.use_deviation_thresholds:
        return around_mean(percent, low, -1), around_mean(percent, high, 1)
    return fixed(low), fixed(high)
