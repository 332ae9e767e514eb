"""How well the cluster is packed: idle GPU share that typical pods cannot use (FGD, USENIX ATC 2023).

For one typical pod and one node: where the pod cannot run, all idle GPU share is unusable by it; where it can, the
shares of those devices that are each too small for it; for a pod without GPU, all of it. A node's fragmentation is the
mean over the typical pods, weighted by popularity. As `NodeGpuShareFragAmountScore` of the paper's simulator, but over
all resources and node rules, not only cpu and GPU model.
"""

import msgspec
import numpy as np

from restow.contracts.ids import NodeName, ShapeId
from restow.contracts.values import Packing
from restow.domain import predicates
from restow.domain.fragmentation.demands import Typical, alike, heads, is_load, typical_shapes
from restow.domain.fragmentation.fitting import Size, fits, gangs_fit, sizes, usable
from restow.domain.fragmentation.free_capacity import FreeCapacity
from restow.domain.node_table import MAX_DEVICES, WHOLE
from restow.domain.state import ClusterState


class Asked(msgspec.Struct, frozen=True):
    """What a packing is measured by; before and after a plan it is the same. `usable` `(nodes,) bool`: where pods may be placed at all."""

    typical: tuple[Typical, ...]
    sizes: tuple[Size, ...]
    usable: np.ndarray


def asked_for(state: ClusterState) -> Asked:
    """As pods and nodes are now. O(pods)."""
    counts = heads(state)
    return Asked(typical_shapes(state, counts=counts), sizes(state, counts), usable(state))


def packing(
    state: ClusterState,
    capacity: FreeCapacity | None = None,
    loads: dict[NodeName, int] | None = None,
    asked: Asked | None = None,
    only: np.ndarray | None = None,
) -> Packing:
    """The packing as it is, or as it would be: with this `capacity`, and with `loads` pods that count more (or fewer) on
    these nodes. `only`, `(nodes,) bool`: of these rows. Integers throughout; the weighted mean is rounded down once, at the end."""
    table = state.table
    asked = asked_for(state) if asked is None else asked
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
        fragmented=_fragmented(state, asked.typical, free, devices, idle),
        free_devices=int((device_free == WHOLE).sum()),
        fits=fits(state, asked.sizes, asked.usable, capacity, only),
        gangs=gangs_fit(state, asked.sizes, asked.usable, capacity, only),
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
