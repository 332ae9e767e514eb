"""The arguments, by the names and with the defaults of Volcano's descheduler (its README, and pkg/framework/plugins/loadaware)."""

from msgspec import field

from restow.domain.descheduling.args import Args as Base
from restow.domain.descheduling.args import (
    Duration,
    LabelSelector,
    Namespaces,
    PriorityThreshold,
    Uint,
    below,
    first,
)
from restow.domain.descheduling.selection import selector_wrong
from restow.domain.descheduling.sources import url_wrong
from restow.domain.descheduling.utilization.args import Thresholds, pairs_wrong, thresholds_wrong
from restow.domain.quantity import CPU
from restow.domain.resources import MEMORY, PODS

PROMETHEUS, ADAPTOR, SERVER = "prometheus", "prometheus_adaptor", "metrics_server"
TYPES = (PROMETHEUS, ADAPTOR, SERVER)
RESOURCES = (CPU, MEMORY, PODS)
LONGEST = 24 * 3600_000
"""Milliseconds that may be averaged over."""
OF_THE_EVICTOR = {
    "evict_local_storage_pods": "evictLocalStoragePods",
    "evict_system_critical_pods": "evictSystemCriticalPods",
    "ignore_pvc_pods": "ignorePvcPods",
    "evict_failed_bare_pods": "evictFailedBarePods",
    "label_selector": "labelSelector",
    "priority_threshold": "priorityThreshold",
}
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
        return first(
            (
                thresholds_wrong("thresholds", self.thresholds),
                thresholds_wrong("targetThresholds", self.target_thresholds),
                self._resources(),
                pairs_wrong(self.thresholds, self.target_thresholds, self.use_deviation_thresholds),
                below("evictableNamespaces", self.evictable_namespaces.check() if self.evictable_namespaces else ""),
                below("metrics", self.metrics.check()),
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
        said = next((name for name in OF_THE_EVICTOR if getattr(self, name)), "")
        return said and f"{OF_THE_EVICTOR[said]}: set; allowed: in the arguments of DefaultEvictor, where it counts"
