"""What nodes and pods use: what pods ask for, or what was measured, and until when that is not true any more."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from restow.contracts.ids import Millis, NodeName, PodUid
from restow.contracts.samples import BILLION
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.utilization.thresholds import METRIC, Amounts
from restow.domain.quantity import CPU
from restow.domain.records import FINAL, Step
from restow.domain.resources import MEMORY, PODS, canonical_resource
from restow.domain.state import ClusterState

BASIC = (CPU, MEMORY, PODS)
NOTHING = "nothing is evicted: "
"""What a plugin says that has nothing to go by, before why."""
NO_SOURCE = "the policy names no source of metrics; allowed: metricsProviders"


class Usage(msgspec.Struct, frozen=True):
    """By node and resource (`names`, as they are in facts: GPUs under one name). `of_pod`: what one pod uses, None where nobody knows;
    `countable`: whether what a pod uses can be known at all."""

    names: tuple[str, ...]
    nodes: dict[NodeName, Amounts]
    pods: dict[NodeName, list[PodUid]]
    of_pod: Callable[[PodUid], Amounts | None]
    countable: bool = True

    def capacity(self, handle: Handle, node: NodeName) -> Amounts:
        return handle.state.nodes[node].allocatable | {METRIC: 100}


def named(thresholds: Iterable[str]) -> tuple[str, ...]:
    """The resources that count: those with a threshold, and cpu, memory and pods."""
    return tuple(dict.fromkeys((*(canonical_resource(name) for name in thresholds), *BASIC)))


def requested(handle: Handle, names: tuple[str, ...]) -> Usage:
    """What the pods of each node ask for, terminating ones too."""
    state = handle.state
    by_shape: dict[str, Amounts] = {}

    def of_pod(uid: PodUid) -> Amounts:
        shape = state.pods[uid].fact.shape
        amounts = by_shape.get(shape)
        if amounts is None:
            asked = state.shapes[shape].requests
            amounts = by_shape[shape] = {name: 1 if name == PODS else asked.get(name, 0) for name in names}
        return amounts

    nodes: dict[NodeName, Amounts] = {}
    pods: dict[NodeName, list[PodUid]] = {}
    for node in handle.nodes:
        there = pods[node] = handle.pods(node)
        total = nodes[node] = dict.fromkeys(names, 0)
        for uid in there:
            for name, amount in of_pod(uid).items():
                total[name] += amount
    return Usage(names, nodes, pods, of_pod)


def measured(handle: Handle, names: tuple[str, ...]) -> Usage | str:
    """metrics.k8s.io's; or why there is nothing to go by. Of a pod all resources must be known, or it stays."""
    samples = handle.samples
    if samples is None:
        return NO_SOURCE
    if why := samples.missing(handle.now):
        return why
    nodes: dict[NodeName, Amounts] = {}
    pods: dict[NodeName, list[PodUid]] = {}
    for node in handle.nodes:
        there = pods[node] = handle.pods(node)
        seen = samples.nodes.get(node)
        if seen is None:
            return f"node {node} has no metrics"
        missing = next((name for name in names if name != PODS and name not in seen), "")
        if missing:
            return f"the metrics of node {node} lack {missing}"
        nodes[node] = {name: len(there) if name == PODS else seen[name] for name in names}

    return Usage(names, nodes, pods, of_samples(samples.pods, names))


def of_samples(pods: Mapping[PodUid, Amounts], names: Sequence[str]) -> Callable[[PodUid], Amounts | None]:
    """What a pod uses by what was measured of it; None where something is missing."""

    def of_pod(uid: PodUid) -> Amounts | None:
        used = pods.get(uid)
        if used is None or any(name != PODS and name not in used for name in names):
            return None
        return {name: 1 if name == PODS else used[name] for name in names}

    return of_pod


def queried(handle: Handle, query: str) -> Usage | str:
    """A Prometheus query's, in whole percent of a node; or why there is nothing to go by."""
    if handle.samples is None:
        return NO_SOURCE
    if why := handle.samples.missing_query(query, handle.now):
        return why
    answer = handle.samples.prometheus[query]
    nodes: dict[NodeName, Amounts] = {}
    for node in handle.nodes:
        ratio = answer.ratios.get(node)
        if ratio is None:
            return f"the query has no sample with instance={node}"
        if not 0 <= ratio <= BILLION:
            return f"the sample with instance={node} is {ratio / BILLION}; allowed: 0 to 1"
        nodes[node] = {METRIC: ratio * 100 // BILLION}
    pods = {node: handle.pods(node) for node in handle.nodes}
    return Usage((METRIC,), nodes, pods, lambda _: None, countable=False)


WINDOW = Millis(60_000)
"""What metrics.k8s.io averages over (15 to 60 seconds, as metrics-server is set up), and at least what a query does."""


def unsettled(state: ClusterState, since: Millis) -> frozenset[NodeName]:
    """Nodes that pods are planned to leave or to go to, or have left or gone to after `since`: what is measured is an average of some time
    before, and does not show yet what plans have moved since then. The same node would give away too much, or take too much."""
    found: set[str] = set()
    for migration in state.migrations.values():
        # Of what was rolled back nothing has moved.
        moved = migration.step is not Step.FAILED and migration.since > since
        if moved or migration.step not in FINAL:
            found.update((migration.move.source, migration.move.target))
    return frozenset(NodeName(name) for name in found if name)
