"""LoadAware: nodes that are really too busy give pods to nodes that are really idle. Behaviour is Volcano's; nodes without metrics are left
out (there they count as idle), and means are of what is measured (there of what is asked for)."""

from fractions import Fraction

from msgspec import field
from msgspec.structs import fields

from restow.contracts.ids import Millis, NodeName, PodUid
from restow.contracts.samples import BILLION
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.selection import parsed, selected_nodes, selector_wrong
from restow.domain.descheduling.sources import url_wrong
from restow.domain.descheduling.utilization.moving import Flow, overutilized, spread
from restow.domain.descheduling.utilization.thresholds import (
    Amounts,
    Bounds,
    Thresholds,
    around_mean,
    fixed,
    levels,
    pairs_wrong,
    thresholds_wrong,
)
from restow.domain.descheduling.utilization.usage import NOTHING, WINDOW, Usage, of_samples, unsettled
from restow.domain.policy_args import Args as Base
from restow.domain.policy_args import (
    Duration,
    LabelSelector,
    Namespaces,
    PriorityThreshold,
    Uint,
    first_refusal,
)
from restow.domain.quantity import CPU
from restow.domain.resources import MEMORY, PODS

NAME = "LoadAware"
POINTS = ("balance",)

PROMETHEUS, ADAPTOR, SERVER = "prometheus", "prometheus_adaptor", "metrics_server"
TYPES = (PROMETHEUS, ADAPTOR, SERVER)
RESOURCES = (CPU, MEMORY, PODS)
MEASURED = (CPU, MEMORY)
FULL = Fraction(100)
LONGEST = 24 * 3600_000
"""Milliseconds that may be averaged over."""
OF_THE_EVICTOR = (
    "evict_local_storage_pods", "evict_system_critical_pods", "ignore_pvc_pods", "evict_failed_bare_pods", "label_selector", "priority_threshold",
)  # fmt: skip
"""Volcano's type has these, and nothing reads them: who may go is DefaultEvictor's business."""


class Metrics(Base, frozen=True):
    """Where the load is measured. `prometheus` at `address` (where none is said: the policy's metricsProvider, with its token) and
    `prometheus_adaptor` (custom.metrics.k8s.io) are Volcano's; `metrics_server` (metrics.k8s.io) is what is asked where none is
    said."""

    type: str = ""
    address: str = ""

    def check(self) -> str:
        if self.type and self.type not in TYPES:
            return f"type: {self.type!r}; allowed: {', '.join(TYPES)}"
        if self.address and self.type != PROMETHEUS:
            return f"address: {self.address!r}; allowed: only with type {PROMETHEUS}"
        return url_wrong("address", self.address, "http://prometheus.monitoring:9090") if self.address else ""


class Args(Base, frozen=True):
    """A node is underutilized where no resource is above `thresholds`, and overutilized where one is above `targetThresholds`, in percent;
    of cpu and memory what counts is what is measured, over the last `duration`. With `useDeviationThresholds` both say how far from the
    mean of all nodes that is, and a resource with a threshold of 0 does not count. `nodeSelector` says which nodes are looked
    at; with `nodeFit` only pods go that an underutilized node would take."""

    use_deviation_thresholds: bool = False
    thresholds: Thresholds = field(default_factory=dict)
    target_thresholds: Thresholds = field(default_factory=dict)
    number_of_nodes: Uint = 0
    node_selector: str = ""
    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    evict_failed_bare_pods: bool = False
    label_selector: LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool = False
    evictable_namespaces: Namespaces | None = None
    metrics: Metrics = Metrics()
    duration: Duration = Duration(120_000)

    @property
    def source(self) -> str:
        """What its loads are called in samples; empty where metrics.k8s.io is read."""
        if self.metrics.type == PROMETHEUS:
            return " ".join(filter(None, (PROMETHEUS, self.metrics.address, f"over {self.seconds} s")))
        return ADAPTOR if self.metrics.type == ADAPTOR else ""

    @property
    def seconds(self) -> int:
        return -(-self.duration // 1000)

    def check(self) -> str:
        return first_refusal(
            (
                thresholds_wrong("thresholds", self.thresholds),
                thresholds_wrong("targetThresholds", self.target_thresholds),
                self._resources(),
                pairs_wrong(self.thresholds, self.target_thresholds, self.use_deviation_thresholds),
                super().check(),
                self._duration(),
                selector_wrong("nodeSelector", self.node_selector),
                self._evictor(),
            )
        )

    def _resources(self) -> str:
        wrong = next((name for name in self.thresholds if name not in RESOURCES), "")
        return wrong and f"thresholds.{wrong}: nobody measures it; allowed: {', '.join(RESOURCES)}"

    def _duration(self) -> str:
        if 1000 <= self.duration <= LONGEST:
            return ""
        return f"duration: {self.duration / 1000:g} s; allowed: 1s to 24h"

    def _evictor(self) -> str:
        said = next((f.encode_name for f in fields(self) if f.name in OF_THE_EVICTOR and getattr(self, f.name)), "")
        return said and f"{said}: set; allowed: in the arguments of DefaultEvictor, where it counts"


def run(handle: Handle, args: Args) -> None:
    usage = _usage(handle, args)
    if isinstance(usage, str):
        handle.warn(f"{NOTHING}{usage}")
        return
    percent = {node: levels(used, usage.capacity(handle, node)) for node, used in usage.nodes.items()}
    low, high = _bounds(args, list(percent.values()))
    flow = Flow(
        sources=[], targets=[], reason=overutilized(percent, high), percent=percent, bounds=high, namespaces=args.evictable_namespaces,
        order=_Order(handle, args, usage),
    )  # fmt: skip
    spread(handle, usage, flow, low, args.number_of_nodes, _unsettled(handle, args))


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
    return Usage(RESOURCES, nodes, pods, of_samples(of_pods, RESOURCES))


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
            amounts = self._usage.of_pod(uid)
            return -1 if amounts is None else amounts[key]

        return sorted(pods, key=lambda uid: -used(uid))
