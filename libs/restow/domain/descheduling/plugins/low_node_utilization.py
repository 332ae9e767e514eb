"""LowNodeUtilization: pods leave nodes that are used a lot, where there are nodes that are used little and have capacity for them."""

from msgspec import field

from restow.contracts.ids import Millis, NodeName
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.sources import KUBERNETES, PROMETHEUS
from restow.domain.descheduling.utilization.moving import Flow, overutilized, requests_any, spread
from restow.domain.descheduling.utilization.thresholds import (
    METRIC,
    ONLY_THRESHOLDING,
    Amounts,
    Bounds,
    Thresholds,
    UtilizationArgs,
    around_mean,
    fixed,
    levels,
    pairs_wrong,
    thresholds_wrong,
)
from restow.domain.descheduling.utilization.usage import (
    NOTHING,
    WINDOW,
    Usage,
    measured,
    named,
    queried,
    requested,
    unsettled,
)
from restow.domain.policy_args import Args as Base
from restow.domain.policy_args import Uint, first_refusal
from restow.domain.resources import canonical_resource

NAME = "LowNodeUtilization"
POINTS = ("balance",)


class Prometheus(Base, frozen=True):
    """A query with a sample from 0 to 1 for each node (label `instance`)."""

    query: str = ""


class MetricsUtilization(Base, frozen=True):
    """`metricsServer` is deprecated: the same as source KubernetesMetrics."""

    metrics_server: bool = False
    source: str = ""
    prometheus: Prometheus | None = None

    @property
    def measures(self) -> bool:
        return self.metrics_server or self.source == KUBERNETES

    def check(self) -> str:
        if self.source not in ("", KUBERNETES, PROMETHEUS):
            return f"source: {self.source!r}; allowed: {KUBERNETES}, {PROMETHEUS}"
        if not self.source and not self.metrics_server:
            return f"source: nothing; allowed: {KUBERNETES}, {PROMETHEUS}"
        if self.metrics_server and self.source:
            return f"metricsServer: true beside source {self.source}; allowed: one of them"
        if self.measures and self.prometheus is not None:
            return f"prometheus: set; allowed: only with source {PROMETHEUS}"
        if self.source == PROMETHEUS and (self.prometheus is None or not self.prometheus.query):
            return "prometheus.query: nothing; allowed: a query with a sample from 0 to 1 for each instance"
        return ""


class EvictionLimits(Base, frozen=True):
    """Of this plugin, in one run."""

    node: Uint | None = None


class Args(UtilizationArgs, frozen=True):
    """A node is underutilized where no resource is above `thresholds`, and overutilized where one is above `targetThresholds`. With
    `useDeviationThresholds` both say how far from the mean of all nodes that is."""

    use_deviation_thresholds: bool = False
    target_thresholds: Thresholds = field(default_factory=dict)
    metrics_utilization: MetricsUtilization | None = None
    eviction_limits: EvictionLimits | None = None

    @property
    def query(self) -> str:
        """Of Prometheus; empty where it is not asked."""
        metrics = self.metrics_utilization
        asked = metrics is not None and not metrics.measures and metrics.prometheus is not None
        return metrics.prometheus.query if asked else ""  # type: ignore[union-attr]

    @property
    def measured(self) -> bool:
        return self.metrics_utilization is not None and self.metrics_utilization.measures

    def check(self) -> str:
        return first_refusal(
            (
                super().check(),
                thresholds_wrong("targetThresholds", self.target_thresholds),
                pairs_wrong(self.thresholds, self.target_thresholds, self.use_deviation_thresholds),
                self._metric(),
            )
        )

    def _metric(self) -> str:
        if self.query:
            if set(self.thresholds) != {METRIC}:
                return f"thresholds: {', '.join(self.thresholds)}; allowed: only {METRIC} with source {PROMETHEUS}"
        elif METRIC in self.thresholds:
            return f"thresholds.{METRIC}: set; allowed: only with source {PROMETHEUS}"
        return ""


def run(handle: Handle, args: Args) -> None:
    usage = _usage(handle, args)
    if isinstance(usage, str):
        handle.warn(f"{NOTHING}{usage}")
        return
    percent = {node: levels(usage.nodes[node], usage.capacity(handle, node)) for node in handle.nodes}
    low, high = _bounds(args, list(percent.values()))
    flow = Flow(
        sources=[], targets=[], reason=overutilized(percent, high), percent=percent, bounds=high, namespaces=args.evictable_namespaces,
        may=requests_any(handle, tuple(args.thresholds)) if ONLY_THRESHOLDING in args.eviction_modes else None,
        most=None if args.eviction_limits is None else args.eviction_limits.node,
    )  # fmt: skip
    spread(handle, usage, flow, low, args.number_of_nodes, _unsettled(handle, args))


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
