"""What both plugins take: thresholds in percent by resource."""

from fractions import Fraction

from msgspec import field

from restow.domain.descheduling.args import Args, Namespaces, Percent, Uint, below, first

ONLY_THRESHOLDING = "OnlyThresholdingResources"
MODES = (ONLY_THRESHOLDING,)
METRIC = "MetricResource"
"""What a Prometheus query measures; 100 of it is a whole node."""

Thresholds = dict[str, Percent]


class UtilizationArgs(Args, frozen=True):
    """`evictionModes`: with OnlyThresholdingResources only pods go that ask for a resource that has a threshold. Pods of other
    namespaces than the `evictableNamespaces` count, but stay (upstream's plugin has `include`, which its policy refuses). With
    `numberOfNodes` nothing is done unless more nodes than that are underutilized."""

    thresholds: Thresholds = field(default_factory=dict)
    number_of_nodes: Uint = 0
    eviction_modes: tuple[str, ...] = ()
    evictable_namespaces: Namespaces | None = None

    def check(self) -> str:
        return first((self._namespaces(), thresholds_wrong("thresholds", self.thresholds), self._modes()))

    def _namespaces(self) -> str:
        return below("evictableNamespaces", self.evictable_namespaces.check() if self.evictable_namespaces else "")

    def _modes(self) -> str:
        wrong = ((i, mode) for i, mode in enumerate(self.eviction_modes) if mode not in MODES)
        return next((f"evictionModes[{i}]: {mode!r}; allowed: {', '.join(MODES)}" for i, mode in wrong), "")


def thresholds_wrong(path: str, thresholds: Thresholds) -> str:
    if not thresholds:
        return f"{path}: none; allowed: percentages by resource, such as cpu: 20"
    for name, percent in thresholds.items():
        if not 0 <= percent <= 100:
            return f"{path}.{name}: {shown(percent)}; allowed: 0 to 100"
    return ""


def pairs_wrong(low: Thresholds, high: Thresholds, deviating: bool) -> str:
    """Of `thresholds` and `targetThresholds`; those that are `deviating` from a mean are not on the same side of it."""
    if low.keys() != high.keys():
        said = f"{', '.join(sorted(high))} beside thresholds of {', '.join(sorted(low))}"
        return f"targetThresholds: {said}; allowed: the same resources"
    if deviating:
        return ""
    above = next((name for name in low if low[name] > high[name]), "")
    return above and f"thresholds.{above}: {shown(low[above])}; allowed: up to targetThresholds.{above}, {shown(high[above])}"


def shown(percent: Fraction) -> str:
    """With at most three decimals."""
    return f"{float(percent):.3f}".rstrip("0").rstrip(".")
