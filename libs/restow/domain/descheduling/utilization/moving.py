"""Pods leave some nodes as long as others have room, and as long as there is a reason for it."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import Taint, Toleration
from restow.domain.descheduling.args import Namespaces
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.order import by_priority
from restow.domain.descheduling.subjects import NO_MORE
from restow.domain.descheduling.utilization.levels import Amounts
from restow.domain.descheduling.utilization.usage import Usage
from restow.domain.predicates import tolerates
from restow.domain.resources import PODS, canonical_resource

COOLDOWN = "Cooldown: a plan has touched its node within coolDownTime"
WORSE = "Room: wherever it could go more than the target would be used then, and no less than on its own node now"
SETTLING = "Settling: pods are moving from or to its node, or have moved since that was measured"


class Flow(msgspec.Struct, frozen=True):
    """From `sources`, in order, to `targets`. `ceiling`: what each target may use. `enough`: given a source and what it uses now,
    why no more pods leave it, or empty. `reason` why pods of a source go. `most`: pods a source, None for any number. `order` is that
    of a source's pods, where it is not by priority."""

    sources: Sequence[NodeName]
    targets: Sequence[NodeName]
    ceiling: Callable[[NodeName], Amounts]
    enough: Callable[[NodeName, Amounts], str]
    reason: Callable[[NodeName], str]
    most: int | None = None
    order: Callable[[NodeName, list[PodUid]], list[PodUid]] | None = None
    bounded: tuple[str, ...] = ()
    """Resources of which a target must not use more than its ceiling by a pod that lands there, unless the pod's own node uses more still."""


def rested(
    handle: Handle, usage: Usage, sources: list[NodeName], targets: list[NodeName], unsettled: frozenset[NodeName] = frozenset()
) -> str:
    """Leaves out, in place, nodes that a plan has touched lately, so that packing and spreading never fight, and those of which what is
    measured is not true any more. Why nothing can be done, where that leaves nothing."""
    for nodes, why, what in (
        (handle.cooling, COOLDOWN, "were touched by a plan within coolDownTime"),
        (unsettled, SETTLING, "have moving pods, or had since they were measured"),
    ):
        if not nodes:
            continue
        for node in [node for node in sources if node in nodes]:
            sources.remove(node)
            for uid in usage.pods[node]:
                handle.keep(uid, why)
        targets[:] = [node for node in targets if node not in nodes]
        if not sources or not targets:
            return f"all nodes that {'pods could go to' if sources else 'pods would leave'} {what}"
    return ""


def requests_any(handle: Handle, names: Sequence[str]) -> Callable[[PodUid], bool]:
    """For the mode OnlyThresholdingResources: whether a pod asks for one of these."""
    wanted = tuple(canonical_resource(name) for name in names if name != PODS)
    state = handle.state
    return lambda uid: any(state.shapes[state.pods[uid].shape].requests.get(name) for name in wanted)


def move(handle: Handle, usage: Usage, flow: Flow, excluded: Namespaces | None, may: Callable[[PodUid], bool] | None) -> None:
    """The least important pods of a source go first. What they use comes off their node, and off what the targets have left;
    where that is not known one pod a node goes, or `most`."""
    leaving, coming = _under_way(handle, usage)
    left = _room(usage, flow)
    for node in flow.targets:
        left = _sum(left, coming.get(node, {}), -1)
    taints = _Welcome(handle, flow.targets)
    better = _Better(handle, usage, flow, coming) if handle.holds and flow.bounded else None
    for node in flow.sources:
        there = usage.pods[node]
        used = _sum(usage.nodes[node], leaving.get(node, {}), -1)
        stop = _stop(flow, node, used, left)
        candidates: list[PodUid] = []
        for uid in there:
            if may is not None and not may(uid):
                handle.keep(uid, "Mode: asks for no resource that has a threshold")
            elif not handle.evictable(uid):
                candidates.append(uid)
        gone = 0
        for uid in by_priority(handle.state, candidates) if flow.order is None else flow.order(node, candidates):
            stop = stop or (NO_MORE if handle.full(node) else "")
            if flow.most is not None and gone >= flow.most:
                stop = stop or f"Limit: evictionLimits.node is {flow.most}"
            if stop:
                handle.keep(uid, stop)
                continue
            pod = handle.state.pods[uid]
            if not taints.tolerated(handle.state.shapes[pod.shape].tolerations):
                handle.keep(uid, "Taints: it tolerates those of no node that has room")
                continue
            if excluded is not None and not excluded.has(pod.namespace):
                handle.keep(uid, f"Namespace: {pod.namespace} is excluded")
                continue
            takes = usage.of(uid)
            if takes is None and usage.countable:
                handle.keep(uid, "Metrics: none of this pod")
                continue
            to = flow.targets
            if takes is not None and better is not None and not (to := better.for_one(takes, node, used)):
                handle.keep(uid, WORSE)
                continue
            if not handle.evict(uid, flow.reason(node), to=to):
                continue
            gone += 1
            if takes is not None and better is not None:
                better.take(handle.lands_on(uid), takes)
            if takes is None:
                stop = "Metrics: what a pod uses is not known, so one goes at a time" if flow.most is None else ""
                continue
            for name, amount in takes.items():
                used[name] -= amount
                left[name] -= amount
            stop = _stop(flow, node, used, left)


class _Better:
    """On which targets a pod may land: there is used no more than the ceiling then, or less than where it is now. Who makes another node as full
    as his own would be sent back by the next run, and so on. What pods use is known here. `(names, targets)` floats: the same sums and
    quotients are compared both ways, so that nobody is ever sent back by the rounding."""

    def __init__(self, handle: Handle, usage: Usage, flow: Flow, coming: dict[NodeName, Amounts]):
        self._handle, self._usage, self._names = handle, usage, flow.bounded
        self._targets = flow.targets
        self._at = {node: i for i, node in enumerate(flow.targets)}
        self._used = self._table(lambda node: _sum(usage.nodes[node], coming.get(node, {}), 1))
        self._most = self._table(flow.ceiling)
        self._whole = np.maximum(self._table(lambda node: usage.capacity(handle, node)), 1)

    def _table(self, of: Callable[[NodeName], Amounts]) -> np.ndarray:
        rows = [of(node) for node in self._targets]
        return np.array([[row.get(name, 0) for row in rows] for name in self._names], np.float64)

    def for_one(self, takes: Amounts, source: NodeName, now: Amounts) -> Sequence[NodeName]:
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
        move, live = state.migrations[id].move, state.live.get(state.migrations[id].move.pod)
        takes = usage.of(move.pod) if live is not None and live.node == move.source else None
        if takes is None or state.migrations[id].reason:
            continue
        for node, of in ((move.source, leaving), (move.target, coming)):
            of[NodeName(node)] = _sum(of.get(NodeName(node), {}), takes, 1)
    return leaving, coming


def _sum(amounts: Amounts, more: Amounts, sign: int) -> Amounts:
    return {name: amounts.get(name, 0) + sign * more.get(name, 0) for name in {**amounts, **more}}


def _room(usage: Usage, flow: Flow) -> Amounts:
    """What all targets together have left."""
    left = dict.fromkeys(usage.names, 0)
    for node in flow.targets:
        ceiling, used = flow.ceiling(node), usage.nodes[node]
        for name in left:
            left[name] += ceiling[name] - used[name]
    return left


def _stop(flow: Flow, node: NodeName, used: Amounts, left: Amounts) -> str:
    scarce = next((name for name, amount in left.items() if amount <= 0), "")
    return flow.enough(node, used) or (f"Room: the nodes that pods could go to have no {scarce} left" if scarce else "")


class _Welcome:
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
