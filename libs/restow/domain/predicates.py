"""Which nodes a shape may run on, as kube-scheduler decides it, and why not on the others.

Rules that depend only on node and shape (everything but capacity) are evaluated once a shape and node and kept as a mask in
`state.memo`; when a node changes, only its row is evaluated again.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from restow.contracts.events import NodeObserved
from restow.contracts.ids import NodeName, ShapeId
from restow.contracts.values import Expression, NodeTerm, PodShape, Taint, Toleration
from restow.domain.config import SessionConfig
from restow.domain.node_labels import NAME_FIELD, Chosen, integer
from restow.domain.node_table import Vector
from restow.domain.resources import GPU_MILLI
from restow.domain.selectors import holds
from restow.domain.state import ClusterState

NO_NODE = NodeName("")
UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
UNREADY = Taint("node.kubernetes.io/not-ready", "NoSchedule")
"""What Kubernetes puts on a node that is not ready; whoever tolerates it (a CNI's DaemonSet, say) may run there."""
NOT_READY = "node(s) were not ready"
CORDONED = "node(s) were unschedulable"
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
PINNED = "node(s) didn't match the requested node name"
TOO_MANY_PODS = "Too many pods"


class Switches(NamedTuple):
    """Which rules about nodes the session's plugin `predicates` has on; whoever predicts what it will do asks with these."""

    affinity: bool = True
    taints: bool = True


ALL = Switches()


class _Switched(NamedTuple):
    config: SessionConfig
    on: Switches


def switches(state: ClusterState) -> Switches:
    """Those of the configuration as it is now; all are on where it has no such plugin. The one place that reads them."""
    config = state.session_config
    kept = state.memo.find(_Switched)
    if kept is None or kept.config is not config:
        plugin = next((one for tier in config.tiers for one in tier if one.name == "predicates"), None)
        read = ALL
        if plugin is not None:
            on, said = plugin.on("enablePredicate"), plugin.arguments
            read = Switches(
                on and said.get("predicate.NodeAffinityEnable", True), on and said.get("predicate.TaintTolerationEnable", True)
            )
        kept = state.memo.keep(_Switched(config, read))
    return kept.on


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """core/v1 Toleration.ToleratesTaint. `Gt` and `Lt` (KEP-5471) compare the taint's value with the toleration's as integers."""
    for t in tolerations:
        if t.effect and t.effect != taint.effect:
            continue
        if t.key and t.key != taint.key:
            continue
        if t.operator == "Exists" or (t.operator in ("", "Equal") and t.key and t.value == taint.value):
            return True
        if t.operator in ("Gt", "Lt") and t.key and _compares(t.operator, taint.value, t.value):
            return True
    return False


def _compares(operator: str, left: str, right: str) -> bool:
    """Whether `left` is greater (`Gt`) or less (`Lt`) than `right`. What is no integer is neither."""
    one, other = integer(left), integer(right)
    if one is None or other is None:
        return False
    return one > other if operator == "Gt" else one < other


def matches(expression: Expression, labels: Mapping[str, str]) -> bool:
    """One node selector requirement over labels. Gt and Lt compare integers; anything else there does not match."""
    if expression.operator not in ("Gt", "Lt"):
        return holds(expression, labels)
    have = labels.get(expression.key)
    return have is not None and len(expression.values) == 1 and _compares(expression.operator, have, expression.values[0])


def term_holds(term: NodeTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Of whatever has a name and labels. A term without requirements matches nothing, as in Kubernetes."""
    if not term.labels and not term.fields:
        return False
    fields = {NAME_FIELD: name}
    return all(matches(e, labels) for e in term.labels) and all(matches(e, fields) for e in term.fields)


def term_matches(term: NodeTerm, node: NodeObserved) -> bool:
    return term_holds(term, node.name, node.labels)


Tolerate = Callable[[Taint], bool]


def tolerance(tolerations: tuple[Toleration, ...]) -> Tolerate:
    """`tolerates`, for many nodes: taints are few, and what a pod says of them may be long."""
    known: dict[Taint, bool] = {}

    def tolerate(taint: Taint) -> bool:
        answer = known.get(taint)
        if answer is None:
            answer = known[taint] = tolerates(tolerations, taint)
        return answer

    return tolerate


def repelled(shape: PodShape, node: NodeObserved, on: Switches = ALL, tolerate: Tolerate | None = None) -> str:
    """The cordon or taint that the shape does not tolerate; empty where there is none. A cordon always counts."""
    tolerate = tolerate or partial(tolerates, shape.tolerations)
    if node.unschedulable and not tolerate(UNSCHEDULABLE):
        return CORDONED
    for taint in node.taints if on.taints else ():
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerate(taint):
            if taint.key == UNSCHEDULABLE.key:
                return CORDONED
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    return ""


def repels(node: NodeObserved, tolerate: Tolerate) -> bool:
    """Whether one of its taints that keep pods off is not tolerated; a cordon counts by the taint that comes with it."""
    return any(t.effect in ("NoSchedule", "NoExecute") and not tolerate(t) for t in node.taints)


def selected(shape: PodShape, node: NodeObserved) -> bool:
    """Whether the shape's node selector and required node affinity are about this node."""
    labels = node.labels
    if shape.node_selector and any(labels.get(k) != v for k, v in shape.node_selector.items()):
        return False
    return shape.node_affinity is None or any(term_matches(t, node) for t in shape.node_affinity)


def why_not(
    shape: PodShape, node: NodeObserved, on: Switches = ALL, tolerate: Tolerate | None = None, chosen: Callable[[], bool] | None = None
) -> str:
    """The first rule about the node that keeps a supported shape off it, capacity aside; empty where none does. `tolerate` and `chosen`: what is
    known already of the shape's tolerations, and of its selector and affinity for this node."""
    tolerate = tolerate or partial(tolerates, shape.tolerations)
    if not node.ready and not tolerate(UNREADY):
        return NOT_READY
    if reason := repelled(shape, node, on, tolerate):
        return reason
    return "" if not on.affinity or (chosen() if chosen is not None else selected(shape, node)) else AFFINITY


class _Static:
    __slots__ = ("mask", "reasons", "seen")

    def __init__(self) -> None:
        self.mask = np.zeros(0, bool)
        self.reasons: list[str] = []
        self.seen = 0


def node_rules(shape: PodShape) -> Hashable:
    """All that `why_not` reads of a shape."""
    return tuple(sorted(shape.node_selector.items())) if shape.node_selector else (), shape.node_affinity, shape.tolerations


class Masks(NamedTuple):
    """What is known by shape and by what shapes say of nodes, with the switches that it was made with."""

    of_shape: dict[ShapeId, _Static]
    of_rules: dict[Hashable, _Static]
    on: Switches


def _masks(state: ClusterState) -> Masks:
    on = switches(state)
    kept = state.memo.find(Masks)
    return kept if kept is not None and kept.on == on else state.memo.keep(Masks({}, {}, on))


def _static(state: ClusterState, shape_id: ShapeId) -> _Static:
    cache, alike, on = _masks(state)
    kept = cache.get(shape_id)
    shape = state.shapes[shape_id]
    if kept is None:
        # One for all shapes with equal rules about nodes: they are few, even where every pod has its own shape.
        kept = cache[shape_id] = alike.setdefault(node_rules(shape), _Static())
    if kept.seen == state.changed_rows.position:
        return kept
    grown = range(len(kept.mask), len(state.table.names))
    # What changed before its rows existed here is in `grown`; the whole history need not be walked.
    changed = state.changed_rows.since(kept.seen) if len(kept.mask) else ()
    rows = sorted({*grown, *(range(len(kept.mask)) if changed is None else changed)})
    kept.mask = np.concatenate([kept.mask, np.zeros(len(grown), bool)])
    kept.reasons.extend([""] * len(grown))
    kept.seen = state.changed_rows.position
    tolerate, chosen = tolerance(shape.tolerations), Chosen(state, shape)
    for row in rows:
        node = state.nodes.get(state.table.names[row])  # type: ignore[call-overload]
        kept.reasons[row] = reason = "" if node is None else why_not(shape, node, on, tolerate, partial(chosen, row))
        kept.mask[row] = node is not None and not reason
    return kept


def static_mask(state: ClusterState, shape_id: ShapeId) -> np.ndarray:
    """`(nodes,) bool`: rows whose node the shape may run on, capacity aside. Must not be written to."""
    return _static(state, shape_id).mask


def static_reasons(state: ClusterState, shape_id: ShapeId) -> list[str]:
    """Per row, the first rule about the node that keeps the shape off it; empty where none does. Must not be written to."""
    return _static(state, shape_id).reasons


def only(state: ClusterState, name: NodeName) -> np.ndarray:
    """`(nodes,) bool`: the row of this node, none where it does not exist."""
    mask = np.zeros(len(state.table.names), bool)
    row = state.table.rows.get(name)
    if row is not None:
        mask[row] = True
    return mask


def capacity_reasons(state: ClusterState, v: Vector) -> list[tuple[str, np.ndarray]]:
    """Per resource that is short somewhere: the reason's text and the `(nodes,) bool` rows where it is."""
    short: list[tuple[str, np.ndarray]] = []
    whole: np.ndarray | None = None
    for column, amount in zip(v.columns.tolist(), v.amounts.tolist(), strict=True):
        lacking = state.table.free[:, column] < amount
        name = state.table.resources[column]
        if name == GPU_MILLI:
            whole = lacking
            continue
        short.append((TOO_MANY_PODS if name == "pods" else f"Insufficient {name}", lacking))
    if v.devices is not None:
        # Of all GPUs, too: a bound pod whose devices nobody knows is charged there only.
        able = (state.table.device_free >= v.devices.milli).sum(axis=1) >= v.devices.count
        lacking_in_all = np.zeros(len(able), bool) if whole is None else whole
        short.append(("Insufficient gpu", ~able | lacking_in_all))
    return short


AND = "\n"
"""Between reasons that a node fails by at once, each of which counts it."""

Found = Sequence[tuple[bool, Sequence[tuple[str, np.ndarray]]]]
"""(whether it is asked before resources, as kube-scheduler does; its (reason, rows that fail)) of rules that depend on what runs, in the
order in which they are asked."""


def reasons(
    state: ClusterState, shape_id: ShapeId, pinned: NodeName = NO_NODE, found: Found = ()
) -> tuple[int, dict[str, int]]:
    """How many nodes there are, and how many each rule removes; of a pinned pod only its node is looked at. A node counts
    for the first rule that removes it: rules about the node, then `found`, with capacity in its place; a node that lacks capacity
    counts for every resource that it lacks, as kube-scheduler does."""
    kept = _static(state, shape_id)
    counts: Counter[str] = Counter()
    alive = state.table.alive
    looked_at = alive if not pinned else alive & only(state, pinned)
    if elsewhere := int((alive & ~looked_at).sum()):
        counts[PINNED] = elsewhere
    for row in np.flatnonzero(looked_at & ~kept.mask):
        counts[kept.reasons[row]] += 1
    left = looked_at & kept.mask
    for before_capacity, failing in found:
        if before_capacity:
            left = _count(counts, left, failing)
    short = capacity_reasons(state, state.vectors[shape_id])
    lacking = np.zeros(len(left), bool)
    for reason, rows in short:
        counts[reason] += int((left & rows).sum())
        lacking |= rows
    left = left & ~lacking
    for before_capacity, failing in found:
        if not before_capacity:
            left = _count(counts, left, failing)
    return int(alive.sum()), {reason: counts[reason] for reason in sorted(counts) if counts[reason]}


def _count(counts: Counter[str], left: np.ndarray, failing: Sequence[tuple[str, np.ndarray]]) -> np.ndarray:
    """The rows that pass, with those that do not counted for the first that fails."""
    for reason, rows in failing:
        if count := int((left & rows).sum()):
            for one in reason.split(AND):
                counts[one] += count
            left = left & ~rows
    return left
