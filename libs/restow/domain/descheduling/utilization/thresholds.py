"""Thresholds in percent by resource, and percentages of nodes held against them, exactly: everything is an integer, in parts of `SCALE` of a percent.

A usage is rounded up to the next part, so it is above a threshold exactly where it really is (thresholds have fewer decimals).
"""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from msgspec import field

from restow.domain.policy_args import Args, Namespaces, Percent, Uint, first_refusal

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
        wrong = (f"evictionModes[{i}]: {mode!r}; allowed: {', '.join(MODES)}" for i, mode in enumerate(self.eviction_modes) if mode not in MODES)
        return first_refusal((super().check(), thresholds_wrong("thresholds", self.thresholds), *wrong))


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


SCALE = 10**12

Amounts = dict[str, int]
"""By resource, in canonical units."""


class Bound(NamedTuple):
    """A threshold: `parts / of` parts of a percent."""

    parts: int
    of: int = 1

    def is_below(self, level: int) -> bool:
        """Whether the threshold is below the level."""
        return self.parts < level * self.of

    def share(self, capacity: int) -> int:
        """So much of it, rounded down."""
        return self.parts * capacity // (self.of * 100 * SCALE)

    @property
    def percent(self) -> Fraction:
        return Fraction(self.parts, self.of * SCALE)


Bounds = dict[str, Bound]


def levels(usage: Mapping[str, int], capacity: Mapping[str, int]) -> Amounts:
    """Parts by resource. Resources that the node does not have are left out; of one that it has 0 of, 0 is used."""
    found: Amounts = {}
    for name, used in usage.items():
        of = capacity.get(name)
        if of is not None:
            found[name] = -(-used * 100 * SCALE // of) if of > 0 else 0
    return found


def fixed(thresholds: Mapping[str, Fraction]) -> Bounds:
    """Bounds that are percentages of each node."""
    return {name: Bound(p.numerator * SCALE, p.denominator) for name, p in thresholds.items()}


def around_mean(nodes: list[Amounts], deviations: Mapping[str, Fraction], sign: int) -> Bounds:
    """Bounds that are so far (`sign` 1 or -1) from the mean of all nodes, and from 0 to 100. Resources that no node has have
    none."""
    total: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for node in nodes:
        for name in deviations:
            if name in node:
                total[name] += node[name]
                count[name] += 1
    bounds: Bounds = {}
    for name, deviation in deviations.items():
        if count[name]:
            of = count[name] * deviation.denominator
            parts = total[name] * deviation.denominator + sign * deviation.numerator * SCALE * count[name]
            bounds[name] = Bound(min(max(parts, 0), 100 * SCALE * of), of)
    return bounds


def is_under(node: Mapping[str, int], bounds: Bounds) -> bool:
    """No resource is above its bound."""
    return not any(bound.is_below(node.get(name, 0)) for name, bound in bounds.items())


def first_over(node: Mapping[str, int], bounds: Bounds) -> str:
    """The first resource that is above its bound; empty where none is."""
    return next((name for name, bound in bounds.items() if bound.is_below(node.get(name, 0))), "")
