"""Pods leave some nodes as long as others have capacity, and as long as there is a reason for it."""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import Taint, Toleration
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.pods import NO_MORE, by_priority
from restow.domain.descheduling.utilization.thresholds import (
    SCALE,
    Amounts,
    Bounds,
    first_over,
    is_under,
    shown,
)
from restow.domain.descheduling.utilization.usage import Usage
from restow.domain.policy_args import Namespaces
from restow.domain.predicates import tolerates
from restow.domain.resources import PODS, canonical_resource, title

COOLDOWN = "Cooldown: a plan has touched its node within coolDownTime"
WORSE = "Capacity: wherever it could go more than the target would be used then, and no less than on its own node now"
SETTLING = "Settling: pods are moving from or to its node, or have moved since that was measured"


class Flow(msgspec.Struct, kw_only=True):
    """From `sources`, in order, to `targets`, up to the `ceilings` of these. Sources that have a ceiling give away what is above it, the others all.
    `reason` why pods of a source go. `namespaces`: whose pods go, `may`: which pods, `most`: how many a source; None for all. `order` is that of a source's pods,
    given them, its overutilized resources and the targets; None: by priority."""

    sources: list[NodeName]
    targets: list[NodeName]
    reason: Callable[[NodeName], str]
    ceilings: Mapping[NodeName, Amounts] = {}
    namespaces: Namespaces | None = None
    may: Callable[[PodUid], bool] | None = None
    most: int | None = None
    order: Callable[[list[PodUid], list[str], list[NodeName]], list[PodUid]] | None = None
    percent: Mapping[NodeName, Amounts] = {}
    """How much is used of the nodes that are looked at, in parts of a percent, where `bounds` say what is too much."""
    bounds: Bounds = {}
    """Of these resources a target must not use more than its ceiling by a pod that lands there, unless the pod's own node uses more still."""

    def ordered(self, handle: Handle, node: NodeName, pods: list[PodUid]) -> list[PodUid]:
        if self.order is None:
            return by_priority(handle.state, pods)
        scarce = [name for name, bound in self.bounds.items() if bound.is_below(self.percent[node].get(name, 0))]
        return self.order(pods, scarce, self.targets)

    def stop(self, node: NodeName, used: Amounts, remaining: Amounts) -> str:
        """Why no more pods leave a source that uses this now, where the targets have so much left."""
        top = self.ceilings[node] if self.bounds else None
        if top is not None and not any(amount > top[name] for name, amount in used.items()):
            return "Utilization: enough leaves its node, which is above no target any more"
        scarce = next((name for name, amount in remaining.items() if amount <= 0), "")
        return f"Capacity: the nodes that pods could go to have no {scarce} left" if scarce else ""


def spread(handle: Handle, usage: Usage, flow: Flow, low: Bounds, number_of_nodes: int, unsettled: frozenset[NodeName]) -> None:
    """From nodes that are overutilized (above `flow.bounds`) to nodes that are underutilized (not above `low`), unless these are no more than so many: the
    common part of LowNodeUtilization and LoadAware. `unsettled` nodes are left out until what is measured shows what was moved there."""
    percent, bounds = flow.percent, flow.bounds
    for node in percent:
        if not handle.state.nodes[node].unschedulable and is_under(percent[node], low):
            flow.targets.append(node)
        elif first_over(percent[node], bounds):
            flow.sources.append(node)
    why = too_few_underutilized(len(flow.targets), number_of_nodes, len(percent), "")
    why = why or ("" if flow.sources else "no node is overutilized") or rested(handle, usage, flow, unsettled)
    if why:
        handle.warn(why)
        return
    flow.sources.sort(key=lambda node: (-sum(usage.nodes[node].values()), node))
    flow.ceilings = {node: _ceiling(usage, usage.capacity(handle, node), bounds) for node in (*flow.sources, *flow.targets)}
    move(handle, usage, flow)


def overutilized(percent: Mapping[NodeName, Amounts], bounds: Bounds) -> Callable[[NodeName], str]:
    """Why pods leave a node that uses so much."""

    def reason(node: NodeName) -> str:
        name = first_over(percent[node], bounds)
        used = percent[node][name] // (SCALE // 10)
        return f"{title(name)} of its node is used to {used // 10}.{used % 10} %, more than {shown(bounds[name].percent)} %"

    return reason


def _ceiling(usage: Usage, capacity: Amounts, bounds: Bounds) -> Amounts:
    """Up to its target for resources that have one, and all of the others."""
    return {
        name: bounds[name].share(capacity.get(name, 0)) if name in bounds else capacity.get(name, 0) for name in usage.names
    }


def too_few_underutilized(low: int, more_than: int, nodes: int, so: str) -> str:
    """Why nothing is done where so many of the `nodes` are underutilized."""
    if not low:
        return "no node is underutilized"
    if low <= more_than:
        return f"{low} nodes are underutilized; numberOfNodes asks for more than {more_than}"
    return f"all nodes are underutilized{so}" if low == nodes else ""


def rested(handle: Handle, usage: Usage, flow: Flow, unsettled: frozenset[NodeName] = frozenset()) -> str:
    """Leaves out nodes that a plan has touched lately, so that packing and spreading never fight, and those of which what is measured is not
    true any more. Why nothing can be done, where that leaves nothing."""
    for nodes, why, what in (
        (handle.cooling, COOLDOWN, "were touched by a plan within coolDownTime"),
        (unsettled, SETTLING, "have moving pods, or had since they were measured"),
    ):
        if not nodes:
            continue
        for uid in (uid for node in flow.sources if node in nodes for uid in usage.pods[node]):
            handle.keep(uid, why)
        flow.sources = [node for node in flow.sources if node not in nodes]
        flow.targets = [node for node in flow.targets if node not in nodes]
        if not flow.sources or not flow.targets:
            return f"all nodes that {'pods could go to' if flow.sources else 'pods would leave'} {what}"
    return ""


def requests_any(handle: Handle, names: Sequence[str]) -> Callable[[PodUid], bool]:
    """For the mode OnlyThresholdingResources: whether a pod asks for one of these."""
    wanted = tuple(canonical_resource(name) for name in names if name != PODS)
    state = handle.state
    return lambda uid: any(state.shapes[state.pods[uid].fact.shape].requests.get(name) for name in wanted)


def move(handle: Handle, usage: Usage, flow: Flow) -> None:
    """The least important pods of a source go first. What they use comes off their node, and off what the targets have left;
    where that is not known one pod a node goes, or `most`."""
    leaving, coming = _under_way(handle, usage)
    left = dict.fromkeys(usage.names, 0)
    for node in flow.targets:
        left = _sum(_sum(_sum(left, flow.ceilings[node], 1), usage.nodes[node], -1), coming.get(node, {}), -1)
    taints = _Taints(handle, flow.targets)
    better = _Better(handle, usage, flow, coming) if handle.holds and flow.bounds else None
    for node in flow.sources:
        used = _sum(usage.nodes[node], leaving.get(node, {}), -1)
        stop = flow.stop(node, used, left)
        candidates: list[PodUid] = []
        for uid in usage.pods[node]:
            if flow.may is not None and not flow.may(uid):
                handle.keep(uid, "Mode: asks for no resource that has a threshold")
            elif not handle.evictable(uid):
                candidates.append(uid)
        gone = 0
        for uid in flow.ordered(handle, node, candidates):
            stop = stop or (NO_MORE if handle.full(node) else "")
            if flow.most is not None and gone >= flow.most:
                stop = stop or f"Limit: evictionLimits.node is {flow.most}"
            takes, to = usage.of_pod(uid), flow.targets
            why = stop or _stays(handle, flow, taints, uid) or ("Metrics: none of this pod" if takes is None and usage.countable else "")
            if not why and takes is not None and better is not None and not (to := better.for_one(takes, node, used)):
                why = WORSE
            if why:
                handle.keep(uid, why)
                continue
            if not handle.evict(uid, flow.reason(node), to=to):
                continue
            gone += 1
            if takes is None:
                stop = "Metrics: what a pod uses is not known, so one goes at a time" if flow.most is None else ""
                continue
            if better is not None:
                better.take(handle.lands_on(uid), takes)
            for name, amount in takes.items():
                used[name] -= amount
                left[name] -= amount
            stop = flow.stop(node, used, left)


def _stays(handle: Handle, flow: Flow, taints: "_Taints", uid: PodUid) -> str:
    pod = handle.state.pods[uid].fact
    if not taints.tolerated(handle.state.shapes[pod.shape].tolerations):
        return "Taints: it tolerates those of no node that has capacity"
    if flow.namespaces is not None and not flow.namespaces.has(pod.namespace):
        return f"Namespace: {pod.namespace} is excluded"
    return ""


class _Better:
    """On which targets a pod may land: there is used no more than the ceiling then, or less than where it is now. Who makes another node as full
    as his own would be sent back by the next run, and so on. What pods use is known here. `(names, targets)` floats: the same sums and
    quotients are compared both ways, so that nobody is ever sent back by the rounding."""

    def __init__(self, handle: Handle, usage: Usage, flow: Flow, coming: dict[NodeName, Amounts]):
        self._handle, self._usage, self._names = handle, usage, tuple(flow.bounds)
        self._targets = flow.targets
        self._at = {node: i for i, node in enumerate(flow.targets)}
        self._used = self._table(lambda node: _sum(usage.nodes[node], coming.get(node, {}), 1))
        self._most = self._table(lambda node: flow.ceilings[node])
        self._whole = np.maximum(self._table(lambda node: usage.capacity(handle, node)), 1)

    def _table(self, of: Callable[[NodeName], Amounts]) -> np.ndarray:
        rows = [of(node) for node in self._targets]
        return np.array([[row.get(name, 0) for row in rows] for name in self._names], np.float64)

    def for_one(self, takes: Amounts, source: NodeName, now: Amounts) -> list[NodeName]:
        own, good = self._usage.capacity(self._handle, source), np.ones(len(self._targets), bool)
        for i, name in enumerate(self._names):
            then = self._used[i] + takes.get(name, 0)
            good &= (then <= self._most[i]) | (then / self._whole[i] < now.get(name, 0) / max(own.get(name, 0), 1))
        return self._targets if good.all() else [self._targets[i] for i in np.flatnonzero(good).tolist()]

    def take(self, target: NodeName | None, takes: Amounts) -> None:
        if target is not None:
            self._used[:, self._at[target]] += [takes.get(name, 0) for name in self._names]


def _under_way(handle: Handle, usage: Usage) -> tuple[dict[NodeName, Amounts], dict[NodeName, Amounts]]:
    """What pods that earlier plans move use, by the node that they leave and by the one that they come to: where they are is no more true."""
    leaving: dict[NodeName, Amounts] = {}
    coming: dict[NodeName, Amounts] = {}
    state = handle.state
    for id in (*state.backlog, *state.active):
        move, live = state.migrations[id].move, state.live_of(state.migrations[id].move.pod)
        takes = usage.of_pod(move.pod) if live is not None and live.node == move.source else None
        if takes is None or state.migrations[id].reason:
            continue
        for node, of in ((move.source, leaving), (move.target, coming)):
            of[NodeName(node)] = _sum(of.get(NodeName(node), {}), takes, 1)
    return leaving, coming


def _sum(amounts: Amounts, more: Amounts, sign: int) -> Amounts:
    return {name: amounts.get(name, 0) + sign * more.get(name, 0) for name in {**amounts, **more}}


class _Taints:
    """Whether some target lets pods with these tolerations in. Here preferences count, too: who moves can as well go where it is
    wanted."""

    def __init__(self, handle: Handle, targets: Sequence[NodeName]):
        nodes = handle.state.nodes
        self._taints: set[tuple[Taint, ...]] = {nodes[name].taints for name in targets}
        self._known: dict[tuple[Toleration, ...], bool] = {}

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> bool:
        known = self._known.get(tolerations)
        if known is None:
            known = self._known[tolerations] = any(all(tolerates(tolerations, t) for t in taints) for taints in self._taints)
        return known
