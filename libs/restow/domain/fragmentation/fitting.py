"""What could be run besides: how many pods of each size would fit, each size taken alone.

That is what people ask of a plan: how many 8-GPU jobs can start now. Sizes are device requests that pods have, and the whole machine; without GPUs
the demands that together ask for the most. The rest of the request (cores, memory, rules about nodes) is that of most pods of the size.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from restow.contracts.ids import ShapeId
from restow.contracts.values import DeviceRequest, Fitting, GangFitting
from restow.domain.device_choice import copies, copies_many
from restow.domain.fragmentation.free_capacity import FreeCapacity
from restow.domain.network.reach import blocks, levels
from restow.domain.node_table import WHOLE, Vector
from restow.domain.predicates import static_mask
from restow.domain.resources import GPU_MILLI, PODS
from restow.domain.state import ClusterState

MOST = 6
"""Sizes that are told."""
MANY = 1 << 31
"""In place of how often a request fits that asks for nothing."""


class Size(msgspec.Struct, frozen=True):
    """`shape` is the most frequent one of the size, None for whole machines that nobody asks for; `running` pods ask for so many devices, or for the same
    where there are none."""

    request: DeviceRequest | None
    shape: ShapeId | None
    running: int


def sizes(state: ClusterState, counts: Counter[ShapeId]) -> tuple[Size, ...]:
    """Of pods with these shapes (`demands.heads`), the largest first. By devices where any node has some, otherwise by shape; of more than `MOST` those that ask for the most in all."""
    most = max((node.devices for node in state.nodes.values()), default=0)
    return _by_devices(state, counts, most) if most else _by_shape(state, counts)


def _by_devices(state: ClusterState, counts: Counter[ShapeId], most: int) -> tuple[Size, ...]:
    shapes: dict[tuple[int, int], Counter[ShapeId]] = {}
    for shape, count in counts.items():
        if (request := state.shapes[shape].devices) is not None:
            shapes.setdefault((request.count, request.milli), Counter())[shape] += count
    asked = {size: size[0] * size[1] * some.total() for size, some in shapes.items()}
    machine = most, WHOLE
    chosen = sorted(asked, key=lambda size: (size != machine, -asked[size], size))[:MOST]
    if machine not in asked:
        chosen = [machine, *chosen[: MOST - 1]]
    ordered = sorted(chosen, key=lambda size: (-size[0] * size[1], -size[0]))
    return tuple(_size(DeviceRequest(*size), shapes.get(size, Counter())) for size in ordered)


def _size(request: DeviceRequest, shapes: Counter[ShapeId]) -> Size:
    frequent = min(shapes, key=lambda shape: (-shapes[shape], shape), default=None)
    return Size(request, frequent, shapes.total())


def _by_shape(state: ClusterState, counts: Counter[ShapeId]) -> tuple[Size, ...]:
    largest = [max(int(amount), 1) for amount in state.table.allocatable.max(axis=0, initial=1)]

    def part(shape: ShapeId) -> int:
        """Millionths of the largest node."""
        return max((amount * 1_000_000 // largest[column] for column, amount in state.vectors[shape].items), default=0)

    chosen = sorted(counts, key=lambda shape: (-part(shape) * counts[shape], shape))[:MOST]
    return tuple(Size(None, shape, counts[shape]) for shape in sorted(chosen, key=lambda shape: (-part(shape), shape)))


def usable(state: ClusterState) -> np.ndarray:
    """`(nodes,) bool`: rows that are ready and schedulable."""
    return state.table.mask(name for name, node in state.nodes.items() if node.ready and not node.unschedulable)


def fits(state: ClusterState, wanted: Sequence[Size], open: np.ndarray, capacity: FreeCapacity | None = None, only: np.ndarray | None = None) -> tuple[Fitting, ...]:
    """On `open` nodes (`usable`), as they are, or with this `capacity`; `only`, `(nodes,) bool`: of these rows."""
    open = open if only is None else open & only
    found = []
    for size in wanted:
        pods = int(_on_rows(state, size, open, capacity).sum())
        requests = {} if size.shape is None else state.shapes[size.shape].requests
        rest = {name: amount for name, amount in requests.items() if name not in (PODS, GPU_MILLI)}
        devices, milli = (0, 0) if size.request is None else (size.request.count, size.request.milli)
        found.append(Fitting(devices, milli, rest, size.running, pods))
    return tuple(found)


GANG = 4
"""Pods of the gangs that are told."""


def gangs_fit(state: ClusterState, wanted: Sequence[Size], open: np.ndarray, capacity: FreeCapacity | None = None, only: np.ndarray | None = None) -> tuple[GangFitting, ...]:
    """The same of gangs of the largest size, each in one block; nothing where the session's configuration has no blocks of nodes that are near to each other."""
    if not wanted or levels(state) is None:
        return ()
    size, found = wanted[0], blocks(state)
    rows = _on_rows(state, size, open if only is None else open & only, capacity)
    devices, milli = (0, 0) if size.request is None else (size.request.count, size.request.milli)
    tiers = [(i, tier) for i, tier in enumerate(found.tiers) if tier.number]
    return tuple(GangFitting(tier.number, tier.name, GANG, devices, milli, int((found.sums(i, rows) // GANG).sum())) for i, tier in tiers)


def _on_rows(state: ClusterState, size: Size, open: np.ndarray, capacity: FreeCapacity | None) -> np.ndarray:
    """`(nodes,) int64`: how often it fits on each row, on its own."""
    table = state.table
    free = table.free if capacity is None else capacity.free
    shares = table.device_free if capacity is None else capacity.device_free
    v = table.vector({}, size.request) if size.shape is None else state.vectors[size.shape]
    open = open & table.alive
    rows = np.flatnonzero(open if size.shape is None else open & static_mask(state, size.shape))
    found = np.zeros(len(open), np.int64)
    if len(rows):
        found[rows] = times(v, free[rows], shares[rows], table.columns.get(GPU_MILLI, -1))
    return found


def times(v: Vector, free: np.ndarray, shares: np.ndarray, gpu: int = -1) -> np.ndarray:
    """`(rows,) int64`: how often a request fits beside itself; `free` `(rows, resources)`, `shares` `(rows, devices)`. `gpu` is the column of GPU share, of
    which devices say enough (-1 for none)."""
    found = np.full(len(free), MANY, np.int64)
    for column, amount in needs(v, gpu):
        np.minimum(found, free[:, column] // amount, out=found)
    if v.devices is not None:
        np.minimum(found, copies_many(shares, v.devices), out=found)
    return np.maximum(found, 0)


def needs(v: Vector, gpu: int) -> list[tuple[int, int]]:
    """By column what a request asks for; without GPU share (`gpu`) where devices say enough."""
    return [(column, amount) for column, amount in v.items if column != gpu or v.devices is None]


def times_one(needs: Sequence[tuple[int, int]], devices: DeviceRequest | None, free: Sequence[int], shares: list[int]) -> int:
    """`times` of one row, in plain integers."""
    most = min([free[column] // amount for column, amount in needs], default=MANY)
    if most > 0 and devices is not None:
        most = min(most, copies(shares, devices))
    return max(most, 0)
