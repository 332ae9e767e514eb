"""Which rules keep a pod off which nodes, and which of them alone."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from restow.contracts.events import NodeObserved, PodObserved
from restow.contracts.values import DeviceRequest
from restow.domain import predicates as p
from restow.domain.node_labels import Chosen
from restow.domain.quantity import format_resource
from restow.domain.session.session import Session
from restow.domain.session.verdict.values import Relief

_LIFECYCLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints that go with a node's readiness."""


class Masks:
    """All that keeps a pod off nodes now, each rule for itself: `capacity` and `rules` are (reason, `(nodes,) bool` that fail);
    `failing` `(nodes,) int64` counts those, `static` are rows that rules about the node itself leave. Of a pinned pod only
    its node is looked at."""

    def __init__(self, session: Session, pod: PodObserved) -> None:
        state = session.state
        self.shape = state.shapes[pod.shape]
        self.looked_at = state.table.alive.copy()
        if pod.pinned_node:
            self.looked_at &= p.only(state, pod.pinned_node)
        self.static = p.static_mask(state, pod.shape)
        self.capacity = p.capacity_reasons(state, state.vectors[pod.shape])
        self.rules = [found for rule in session.concerned(pod) for found in rule.failing(pod)]
        self.failing = np.zeros(len(self.looked_at), np.int64)
        for _, rows in (*self.capacity, *self.rules):
            self.failing += rows
        self.fits = int((self.looked_at & self.static & (self.failing == 0)).sum())


def reliefs(session: Session, pod: PodObserved, masks: Masks) -> Iterator[Relief]:
    """Rules that, lifted alone, would let it fit; then the greatest request that would, per resource that is short, with the nodes
    where just that would fit."""
    state = session.state
    lifted: dict[str, int] = {}
    tolerate, chosen = p.tolerance(masks.shape.tolerations), Chosen(state, masks.shape)
    for row in np.flatnonzero(masks.looked_at & ~masks.static & (masks.failing == 0)).tolist():
        found = every_rule(state.nodes[session.name(row)], p.switches(state), tolerate, partial(chosen, row))
        if len(found) == 1:
            lifted[found[0]] = lifted.get(found[0], 0) + 1
    alone = masks.looked_at & masks.static & (masks.failing == 1)
    for reason, rows in masks.rules:
        if count := int((rows & alone).sum()):
            lifted[reason] = lifted.get(reason, 0) + count
    for reason, count in sorted(lifted.items()):
        yield Relief("a node that becomes ready" if reason == p.NOT_READY else f"without the rule: {reason}", count)
    for reason, lacking in masks.capacity:
        rows = np.flatnonzero(lacking & alone)
        if len(rows):
            yield from _less(session, pod, reason, rows)


def _less(session: Session, pod: PodObserved, reason: str, rows: np.ndarray) -> Iterator[Relief]:
    table = session.state.table
    if reason == p.TOO_MANY_PODS:
        yield Relief("one pod fewer on a node", len(rows))
    elif reason == "Insufficient gpu":
        yield from _less_gpu(table.device_free[rows], session.state.vectors[pod.shape].devices)
    else:
        resource = reason.removeprefix("Insufficient ")
        free = table.free[rows, table.columns[resource]]
        if (best := int(free.max())) > 0:
            yield Relief(f"a {resource} request of at most {format_resource(resource, best)}", int((free >= best).sum()))


def _less_gpu(free: np.ndarray, asked: DeviceRequest | None) -> Iterator[Relief]:
    """`free` `(nodes, devices) int64`. Nothing where nothing at all is left. Nodes that have less than the most are not counted:
    a request of that size would not fit there."""
    if asked is not None and asked.count > 1:
        left, change = (free >= asked.milli).sum(axis=1), "a request of at most {} GPU{}"
    else:
        left, change = free.max(axis=1), "a GPU share of at most {} thousandth{} of one device"
    if (most := int(left.max())) > 0:
        yield Relief(change.format(most, "s" * (most != 1)), int((left >= most).sum()))


def every_rule(node: NodeObserved, on: p.Switches, tolerate: p.Tolerate, chosen: Callable[[], bool]) -> list[str]:
    """All rules about the node that keep a shape off it, where `why_not` names the first."""
    found: dict[str, None] = {}
    if not node.ready and not tolerate(p.UNREADY):
        found[p.NOT_READY] = None
    if node.unschedulable and not tolerate(p.UNSCHEDULABLE):
        found[p.CORDONED] = None
    for taint in node.taints if on.taints else ():
        if taint.effect not in ("NoSchedule", "NoExecute") or tolerate(taint):
            continue
        if taint.key == p.UNSCHEDULABLE.key:
            found[p.CORDONED] = None
        elif node.ready or taint.key not in _LIFECYCLE:
            found[f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"] = None
    if on.affinity and not chosen():
        found[p.AFFINITY] = None
    return list(found)
