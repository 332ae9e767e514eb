"""The arguments: when a node is under- and overutilized, and by what that is measured."""

from msgspec import field

from restow.domain.descheduling.args import Args as Base
from restow.domain.descheduling.args import Uint, first
from restow.domain.descheduling.utilization.args import (
    METRIC,
    Thresholds,
    UtilizationArgs,
    pairs_wrong,
    thresholds_wrong,
)

KUBERNETES, PROMETHEUS = "KubernetesMetrics", "Prometheus"


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
            return f"metricsUtilization.source: {self.source!r}; allowed: {KUBERNETES}, {PROMETHEUS}"
        if not self.source and not self.metrics_server:
            return f"metricsUtilization.source: nothing; allowed: {KUBERNETES}, {PROMETHEUS}"
        if self.metrics_server and self.source:
            return f"metricsUtilization.metricsServer: true beside source {self.source}; allowed: one of them"
        if self.measures and self.prometheus is not None:
            return f"metricsUtilization.prometheus: set; allowed: only with source {PROMETHEUS}"
        if self.source == PROMETHEUS and (self.prometheus is None or not self.prometheus.query):
            return "metricsUtilization.prometheus.query: nothing; allowed: a query with a sample from 0 to 1 for each instance"
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
        return first(
            (
                super().check(),
                thresholds_wrong("targetThresholds", self.target_thresholds),
                pairs_wrong(self.thresholds, self.target_thresholds, self.use_deviation_thresholds),
                "" if self.metrics_utilization is None else self.metrics_utilization.check(),
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
