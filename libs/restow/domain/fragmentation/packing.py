"""How well the cluster is packed: idle GPU share that typical pods cannot use (FGD, USENIX ATC 2023).

For one typical pod and one node: where the pod cannot run, all idle GPU share is unusable by it; where it can, the
shares of those devices that are each too small for it; for a pod without GPU, all of it. A node's fragmentation is the
mean over the typical pods, weighted by popularity. As `NodeGpuShareFragAmountScore` of the paper's simulator, but over
all resources and node rules, not only cpu and GPU model.
"""

from collections import Counter

import msgspec
import numpy as np

from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.contracts.values import DeviceShare, Packing, PodShape
from restow.domain import predicates
from restow.domain.node_table import MAX_DEVICES, WHOLE, NodeTable, Vector
from restow.domain.state import ClusterState

COVERAGE = 95
"""Percent of the pods that the typical ones stand for."""
MAX_TYPICAL = 256
"""At most so many typical shapes, so that a cluster where no two pods are alike costs no more than this."""

_COUNTED = ("Pending", "Running")


class Typical(msgspec.Struct, frozen=True):
    """A typical pod: one of the shapes that ask for the same, and how many pods do."""

    shape: ShapeId
    pods: int


class FreeCapacity:
    """A copy of what the node table has free, for hypothetical moves: `free` `(nodes, resources) int64`, `device_free`
    `(nodes, devices) int64`."""

    __slots__ = ("device_free", "free")

    def __init__(self, table: NodeTable):
        self.free = table.free.copy()
        self.device_free = table.device_free.copy()

    def take(self, row: int, v: Vector, devices: tuple[DeviceShare, ...], sign: int = 1) -> None:
        """Charge a request, or (`sign` -1) give it back."""
        self.free[row, v.columns] -= v.amounts * sign
        shares = self.device_free[row]
        for d in devices:
            if d.index < len(shares):
                shares[d.index] -= d.milli * sign


def demand_of(shape: PodShape) -> tuple:
    """What two shapes must have in common to be the same to every node."""
    return (tuple(shape.requests.items()), shape.devices, rules_of(shape))


class Demands(dict[ShapeId, bytes]):
    """By shape what it asks for, as bytes that are equal for equal demands."""

    def key(self, state: ClusterState, shape: ShapeId) -> bytes:
        known = self.get(shape)
        if known is None:
            known = self[shape] = msgspec.json.encode(demand_of(state.shapes[shape]), order="deterministic")
        return known


def rules_of(shape: PodShape) -> tuple:
    """The part of a shape that rules about nodes read, capacity aside: shapes with equal ones have equal static masks."""
    return (
        tuple(shape.node_selector.items()),
        shape.node_affinity,
        shape.tolerations,
    )


class _Alike:
    """The first shape that was seen with equal rules, by shape and by rules."""

    def __init__(self) -> None:
        self.first: dict[ShapeId, ShapeId] = {}
        self.by_rules: dict[bytes, ShapeId] = {}


def alike(state: ClusterState, shape_id: ShapeId) -> ShapeId:
    """One shape for all with equal rules, to ask `predicates.static_mask` about: few masks, however many shapes."""
    known = state.memo.make(_Alike)
    like = known.first.get(shape_id)
    if like is None:
        key = msgspec.json.encode(rules_of(state.shapes[shape_id]), order="deterministic")
        like = known.first[shape_id] = known.by_rules.setdefault(key, shape_id)
    return like


def is_load(state: ClusterState, pod: PodUid) -> bool:
    """Whether a pod keeps its node from being free: DaemonSet and static pods do not."""
    observed = state.pods[pod].fact
    return not observed.static and (observed.owner is None or observed.owner.kind != "DaemonSet")


def typical_shapes(state: ClusterState, coverage: int = COVERAGE) -> tuple[Typical, ...]:
    """The most popular demands of pending and running pods, CPU-only ones included, that together make up `coverage`
    percent of them. DaemonSet and static pods are not counted: no scheduler chooses their place. Ties by shape id."""
    shapes: list[ShapeId] = []
    for pod in state.pods.values():
        owner = pod.fact.owner
        if pod.live.phase in _COUNTED and not pod.fact.static and (owner is None or owner.kind != "DaemonSet"):
            shapes.append(pod.fact.shape)
    counts = Counter(shapes)
    keys = state.memo.make(Demands)
    merged: dict[bytes, tuple[int, ShapeId]] = {}
    for shape, count in counts.items():
        key = keys.key(state, shape)
        before, first = merged.get(key, (0, shape))
        merged[key] = (before + count, min(first, shape))
    total, covered = counts.total(), 0
    chosen: list[Typical] = []
    for count, shape in sorted(merged.values(), key=lambda m: (-m[0], m[1])):
        if covered * 100 >= total * coverage or len(chosen) == MAX_TYPICAL:
            break
        chosen.append(Typical(shape, count))
        covered += count
    return tuple(chosen)


def packing(
    state: ClusterState,
    capacity: FreeCapacity | None = None,
    loads: dict[NodeName, int] | None = None,
    typical: tuple[Typical, ...] | None = None,
    only: np.ndarray | None = None,
) -> Packing:
    """The packing as it is, or as it would be: with this `capacity`, and with `loads` pods that count more (or fewer) on
    these nodes. `only`, `(nodes,) bool`: of these rows. Integers throughout; the weighted mean is rounded down once, at the end."""
    table = state.table
    free = table.free if capacity is None else capacity.free
    device_free = table.device_free if capacity is None else capacity.device_free
    nodes = list(state.nodes) if only is None else [name for name in state.nodes if only[table.rows[name]]]
    if only is not None:
        device_free = np.where(only[:, None], device_free, 0)
    devices = np.maximum(device_free, 0)
    idle = devices.sum(axis=1)
    return Packing(
        nodes=len(nodes),
        free_nodes=_free_nodes(state, nodes, loads or {}),
        total=sum(min(state.nodes[name].devices, MAX_DEVICES) for name in nodes) * WHOLE,
        idle=int(idle.sum()),
        fragmented=_fragmented(state, typical_shapes(state) if typical is None else typical, free, devices, idle),
        free_devices=int((device_free == WHOLE).sum()),
    )


def _fragmented(
    state: ClusterState, typical: tuple[Typical, ...], free: np.ndarray, devices: np.ndarray, idle: np.ndarray
) -> int:
    weights = sum(t.pods for t in typical)
    total_idle = int(idle.sum())
    if not weights or not total_idle:
        return 0
    rows = np.flatnonzero(idle)
    # One line of memory a resource: a question reads just its own.
    free, devices, idle = np.ascontiguousarray(free[rows].T), devices[rows], idle[rows]
    able_at: dict[int, np.ndarray] = {}
    usable_at: dict[int, np.ndarray] = {}
    rules: dict[ShapeId, np.ndarray] = {}
    weighted = 0
    for t in typical:
        v = state.vectors[t.shape]
        if v.devices is None:
            weighted += t.pods * total_idle
            continue
        milli = v.devices.milli
        if milli not in able_at:
            able = devices >= milli
            able_at[milli] = able.sum(axis=1)
            usable_at[milli] = np.where(able, devices, 0).sum(axis=1)
        like = alike(state, t.shape)
        if like not in rules:
            rules[like] = predicates.static_mask(state, like)[rows]
        runs = rules[like] & (able_at[milli] >= v.devices.count)
        for column, amount in zip(v.columns.tolist(), v.amounts.tolist(), strict=True):
            runs &= free[column] >= amount
        weighted += t.pods * (total_idle - int((usable_at[milli] * runs).sum()))
    return weighted // weights


def _free_nodes(state: ClusterState, nodes: list[NodeName], loads: dict[NodeName, int]) -> int:
    count = 0
    for node in nodes:
        if node in state.held_on:
            continue
        allowed = -loads.get(node, 0)
        for pod in state.on_node.get(node, ()):
            if is_load(state, pod):
                allowed -= 1
                if allowed < 0:
                    break
        count += allowed >= 0
    return count
