"""LoadAware: nodes that are really too busy give pods to nodes that are really idle. Behaviour is Volcano's; nodes without metrics are left
out (there they count as idle), and means are of what is measured (there of what is asked for)."""

from fractions import Fraction

from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.plugins.load_aware.args import RESOURCES, Args
from restow.domain.descheduling.samples import BILLION
from restow.domain.descheduling.selection import parsed, selected_nodes
from restow.domain.descheduling.utilization.levels import Amounts, Bounds, around_mean, fixed, levels
from restow.domain.descheduling.utilization.settling import WINDOW, unsettled
from restow.domain.descheduling.utilization.spreading import Spread, spread
from restow.domain.descheduling.utilization.usage import NOTHING, Usage
from restow.domain.quantity import CPU
from restow.domain.resources import MEMORY, PODS

MEASURED = (CPU, MEMORY)
FULL = Fraction(100)


def run(handle: Handle, args: Args) -> None:
    usage = _usage(handle, args)
    if isinstance(usage, str):
        handle.warn(f"{NOTHING}{usage}")
        return
    percent = {node: levels(used, usage.capacity(handle, node)) for node, used in usage.nodes.items()}
    low, high = _bounds(args, list(percent.values()))
    order, moving = _Order(handle, args, usage), _unsettled(handle, args)
    spread(
        handle,
        usage,
        Spread(percent, low, high, args.number_of_nodes, args.evictable_namespaces, order=order, unsettled=moving),
    )


def _usage(handle: Handle, args: Args) -> Usage | str:
    """What the nodes that are looked at use; or why there is nothing to go by."""
    samples, source = handle.samples, args.source
    if samples is None:
        return "no metrics were read"
    if why := samples.missing_loads(source, handle.now) if source else samples.missing(handle.now):
        return why
    of_pods = samples.loads[source].pods if source else samples.pods
    nodes: dict[NodeName, Amounts] = {}
    pods: dict[NodeName, list[PodUid]] = {}
    missing: list[NodeName] = []
    for node in _looked_at(handle, args):
        used = _of_node(handle, source, node)
        if used is None:
            missing.append(node)
            continue
        pods[node] = handle.pods(node)
        nodes[node] = used | {PODS: len(pods[node])}
    if missing:
        more = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        handle.warn(f"node {missing[0]}{more} left out: there are no metrics of them")
    if not nodes:
        return "no node has metrics"

    def of(uid: PodUid) -> Amounts | None:
        used = of_pods.get(uid)
        if used is None or any(name not in used for name in MEASURED):
            return None
        return {name: 1 if name == PODS else used[name] for name in RESOURCES}

    return Usage(RESOURCES, nodes, pods, of)


def _unsettled(handle: Handle, args: Args) -> frozenset[NodeName]:
    samples = handle.samples
    assert samples is not None, "looked at before"
    source = args.source
    if not source:
        return unsettled(handle.state, Millis(samples.taken - WINDOW))
    return unsettled(handle.state, Millis(samples.loads[source].taken - max(args.duration, WINDOW)))


def _looked_at(handle: Handle, args: Args) -> list[NodeName]:
    if not args.node_selector:
        return handle.nodes
    chosen = set(selected_nodes(handle.state, parsed(args.node_selector)))
    found = [node for node in handle.nodes if node in chosen]
    if not found:
        handle.warn(f"nodeSelector: {args.node_selector!r} selects none of the nodes")
    return found


def _of_node(handle: Handle, source: str, node: NodeName) -> Amounts | None:
    samples = handle.samples
    assert samples is not None, "looked at before"
    if not source:
        used = samples.nodes.get(node, {})
        return {name: used[name] for name in MEASURED} if all(name in used for name in MEASURED) else None
    shares, allocatable = samples.loads[source].nodes.get(node, {}), handle.state.nodes[node].allocatable
    if any(name not in shares for name in MEASURED):
        return None
    return {name: -(-shares[name] * allocatable.get(name, 0) // BILLION) for name in MEASURED}


def _bounds(args: Args, percent: list[Amounts]) -> tuple[Bounds, Bounds]:
    """Resources without a threshold do not count: they may be used up to the whole."""
    low, high = dict(args.thresholds), dict(args.target_thresholds)
    if args.use_deviation_thresholds:
        low = {name: share for name, share in low.items() if share}
        high = {name: high[name] for name in low}
        bounds = around_mean(percent, low, -1), around_mean(percent, high, 1)
    else:
        bounds = fixed(low), fixed(high)
    rest = fixed({name: FULL for name in RESOURCES if name not in low})
    return bounds[0] | rest, bounds[1] | rest


class _Order:
    """Whoever uses most of what is scarce goes first: cpu where the node has too little of that, else memory. Who is not measured
    comes last (and stays)."""

    def __init__(self, handle: Handle, args: Args, usage: Usage):
        self._handle, self._fit, self._usage = handle, args.node_fit, usage

    def __call__(self, pods: list[PodUid], scarce: list[str], targets: list[NodeName]) -> list[PodUid]:
        key = CPU if CPU in scarce else MEMORY
        if self._fit:
            fitting = {uid: self._handle.fits_any(uid, targets) for uid in pods}
            for uid in [uid for uid, fits in fitting.items() if not fits]:
                self._handle.keep(uid, "NodeFit: no underutilized node would take it")
            pods = [uid for uid, fits in fitting.items() if fits]

        def used(uid: PodUid) -> int:
            amounts = self._usage.of(uid)
            return -1 if amounts is None else amounts[key]

        return sorted(pods, key=lambda uid: -used(uid))
