"""Metrics as integers, with their time: what a command carries, so that a decision can be made again (DESIGN 2)."""

import msgspec

from restow.contracts.ids import Millis, NodeName, PodUid

BILLION = 1_000_000_000


class NodeRatios(msgspec.Struct, frozen=True):
    """Of one Prometheus query: a sample 0..1 a node (label `instance`), in billionths. `error` where there are none."""

    taken: Millis
    ratios: dict[NodeName, int] = {}
    error: str = ""


class Samples(msgspec.Struct, frozen=True):
    """`nodes` and `pods` are metrics.k8s.io's usage by resource in canonical units (cpu thousandths of a core, memory bytes),
    taken at `taken`; `error` says why there are none. `prometheus` is by query."""

    taken: Millis = Millis(0)
    nodes: dict[NodeName, dict[str, int]] = {}
    pods: dict[PodUid, dict[str, int]] = {}
    error: str = ""
    prometheus: dict[str, NodeRatios] = {}
