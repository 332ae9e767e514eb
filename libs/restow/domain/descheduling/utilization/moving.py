"""Pods leave some nodes as long as others have room, and as long as there is a reason for it."""

from collections.abc import Callable, Sequence

import msgspec

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
    left = _room(usage, flow)
    taints = _Welcome(handle, flow.targets)
    for node in flow.sources:
        there = usage.pods[node]
        used = dict(usage.nodes[node])
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
            if not handle.evict(uid, flow.reason(node), to=flow.targets):
                continue
            gone += 1
            if takes is None:
                stop = "Metrics: what a pod uses is not known, so one goes at a time" if flow.most is None else ""
                continue
            for name, amount in takes.items():
                used[name] -= amount
                left[name] -= amount
            stop = _stop(flow, node, used, left)


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
