"""Metrics as integers, with their time: what a command carries, so that a decision can be made again."""

import msgspec

from restow.contracts.ids import Int, Millis, NodeName, PodUid

BILLION = 1_000_000_000
STALE = 300_000
"""Milliseconds after which metrics say nothing of now any more: nothing is evicted on them."""


class NodeRatios(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one Prometheus query: a sample 0..1 a node (label `instance`), in billionths. `error` where there are none."""

    taken: Millis
    ratios: dict[NodeName, Int] = {}
    error: str = ""


class Loads(msgspec.Struct, frozen=True, omit_defaults=True):
    """What LoadAware's source has measured: of nodes by resource the share that is used, in billionths; of pods by resource what they
    use in canonical units (cpu thousandths of a core, memory bytes). `error` where there is nothing."""

    taken: Millis
    nodes: dict[NodeName, dict[str, Int]] = {}
    pods: dict[PodUid, dict[str, Int]] = {}
    error: str = ""


class Samples(msgspec.Struct, frozen=True, omit_defaults=True):
    """`nodes` and `pods` are metrics.k8s.io's usage by resource in canonical units (cpu thousandths of a core, memory bytes),
    taken at `taken`; `error` says why there are none. `prometheus` is by query, `loads` by source (LoadAware's)."""

    taken: Millis = Millis(0)
    nodes: dict[NodeName, dict[str, Int]] = {}
    pods: dict[PodUid, dict[str, Int]] = {}
    error: str = ""
    prometheus: dict[str, NodeRatios] = {}
    loads: dict[str, Loads] = {}

    def missing(self, now: Millis) -> str:
        """Why usage of nodes and pods cannot be relied on; "" where it can."""
        return self.error or _stale("metrics.k8s.io", self.taken, now)

    def missing_query(self, query: str, now: Millis) -> str:
        """The same of what a Prometheus query has answered."""
        found = self.prometheus.get(query)
        if found is None:
            return f"Prometheus was not asked {query!r}: the policy names no metricsProvider Prometheus"
        return found.error or _stale("Prometheus", found.taken, now)

    def missing_loads(self, source: str, now: Millis) -> str:
        """The same of one of LoadAware's sources."""
        found = self.loads.get(source)
        if found is None:
            return f"nobody has asked {source}"
        return found.error or _stale(source, found.taken, now)


def _stale(source: str, taken: Millis, now: Millis) -> str:
    age = now - taken
    if age <= STALE:
        return ""
    return f"{source}: its metrics are {age // 1000} s old; allowed: up to {STALE // 1000} s"
