"""Plugin `fragmentation`: a pod goes where the least GPU share becomes useless for typical pods.

The score is 0 to 100 in hundredths (SCALE): how little the node's fragmentation grows, and then how well the pod fills it.

Fragmentation gradient descent (FGD, USENIX ATC 2023): a node's fragmentation is the GPU share that is idle there and that
typical pods cannot use, weighted by their popularity (`domain/fragmentation`); a pod goes where it grows least. As in the
paper's simulator the growth goes through a sigmoid: growth of one whole GPU is far from none, of eight not far from seven.
Here the sigmoid is a table of integers, and fine, not of a hundred steps; in the paper's all that is less than a step apart is
equal, and what decides is then the node's name. Instead PACKING of the SCALE is for packing: it decides where growth is
about equal, and only there (`Packed`).
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple

import msgspec
import numpy as np

from restow.contracts.ids import ShapeId
from restow.contracts.values import DeviceRequest, DeviceShare
from restow.domain.fragmentation.model import MOST_SHARE, Model
from restow.domain.fragmentation.typical import Typical, typical
from restow.domain.node_table import WHOLE
from restow.domain.quantity import CPU
from restow.domain.session.args import Arguments, weights_wrong
from restow.domain.session.scoring import SCALE, share, shares
from restow.domain.session.session import Session
from restow.domain.state import ClusterState

PACKING = 250
"""Of SCALE. About 100 thousandths of a GPU in growth are worth as much as the whole of it."""

CURVE = (
    0, 622, 1225, 1792, 2311, 2773, 3176, 3520, 3808, 4047, 4241, 4399, 4526, 4627, 4707, 4770, 4820, 4859, 4890, 4914, 4933,
    4948, 4959, 4968, 4975, 4981, 4985, 4988, 4991, 4993, 4994, 4996, 4997,
)  # fmt: skip
"""`SCALE / (1 + e^-x) - SCALE / 2` for x = 0, 1/4, 2/4, ... 8, in whole GPUs; straight lines between them."""
STEP = 250
FINE = 4
"""Growth is counted in quarters of a thousandth of a GPU."""

Row = tuple[list[int], list[int]]
OneOfClass = Callable[[list[int], list[int], list[int], int], int]
ManyOfClass = Callable[[np.ndarray | slice], np.ndarray]


class Args(Arguments, frozen=True):
    """`fragmentation.weight`: how many times its score counts."""

    weight: int = msgspec.field(name="fragmentation.weight", default=1)

    def check(self) -> str:
        return weights_wrong({"fragmentation.weight": self.weight})


def open(session: Session, args: Args) -> None:
    if not args.weight:
        return
    state = session.state
    scorer = Gradient(args.weight, typical(state), packed(state))
    session.extensions.score("nodeOrder", scorer)

    def choose(shape: ShapeId, row: int) -> tuple[DeviceShare, ...]:
        return scorer.devices(state, shape, row)

    session.extensions.devices = choose


def gradient(growth: int) -> int:
    """Growth in FINE parts → 0 to SCALE; none is the middle, less (fragmentation shrinks) is above."""
    at = min(abs(growth), (len(CURVE) - 1) * STEP * FINE - 1)
    i, rest = divmod(at, STEP * FINE)
    height = CURVE[i] + (CURVE[i + 1] - CURVE[i]) * rest // (STEP * FINE)
    return SCALE // 2 - height if growth > 0 else SCALE // 2 + height


def gradients(growth: np.ndarray) -> np.ndarray:
    """`gradient` for an array."""
    at = np.minimum(np.abs(growth), (len(CURVE) - 1) * STEP * FINE - 1)
    i, rest = at // (STEP * FINE), at % (STEP * FINE)
    low, high = _CURVE[i], _CURVE[i + 1]
    height = low + (high - low) * rest // (STEP * FINE)
    return np.where(growth > 0, SCALE // 2 - height, SCALE // 2 + height)


_CURVE = np.array(CURVE, np.int64)


class Packed(msgspec.Struct, frozen=True):
    """How much would stay idle, 0 (nothing) to SCALE. GPU share and cpu are measured against the node that has most of them.
    For a pod that shares a GPU, GPU share counts three times as much as cpu: what it does not fill, few can. For all others
    it counts two thirds: what strands whole GPUs is a lack of cpu."""

    devices: int
    cpu: int

    def idle(self, shared: bool, gpu: int, cpu: int) -> int:
        a, b = share(max(gpu, 0), self.devices), share(max(cpu, 0), self.cpu)
        return (3 * a + b) // 4 if shared else (2 * a + 3 * b) // 5

    def idles(self, shared: bool, gpu: np.ndarray, cpu: np.ndarray) -> np.ndarray:
        whole = np.ones(len(gpu), np.int64)
        a, b = shares(np.maximum(gpu, 0), whole * self.devices), shares(np.maximum(cpu, 0), whole * self.cpu)
        return (3 * a + b) // 4 if shared else (2 * a + 3 * b) // 5


class Gradient(msgspec.Struct, frozen=True):
    """The scorer. Its forms also read the node's *class* (`node_classes`): which typical pods the rules admit there."""

    weight: int
    typical: Typical
    packed: Packed

    def node_classes(self, state: ClusterState) -> np.ndarray:
        """`(nodes,) int64`: equal for nodes that are equal to the typical pods' rules."""
        return Model.of(state, self.typical).node_classes(state)

    def one(self, state: ClusterState, shape: ShapeId) -> OneOfClass:
        v, weight, packed = state.vectors[shape], self.weight, self.packed
        model, request = Model.of(state, self.typical), v.devices
        asked, weights = model.asked(v.items), max(self.typical.weights, 1)
        cpu_at = state.table.columns.get(CPU)
        cpu_asked = dict(v.items).get(cpu_at, 0) if cpu_at is not None else 0
        gpu_asked = request.count * request.milli if request is not None else 0
        shared = is_shared(request)

        def score(free: list[int], allocatable: list[int], devices: list[int], node_class: int) -> int:
            there = [min(d, WHOLE) for d in devices if d > 0]
            before, after = model.open(asked, free, node_class)
            unusable = before.unusable(there)
            grown = after.placed(there, request)[0] - unusable
            cpu = free[cpu_at] - cpu_asked if cpu_at is not None else 0
            idle = packed.idle(shared, sum(there) - gpu_asked, cpu)
            best = gradient(grown * FINE // weights) * (SCALE - PACKING) + (SCALE - idle) * PACKING
            return best // SCALE * weight

        return score

    def many(self, state: ClusterState, shape: ShapeId) -> ManyOfClass:
        v, table, packed = state.vectors[shape], state.table, self.packed
        model, request = Model.of(state, self.typical), v.devices
        asked, weights = model.asked(v.items), max(self.typical.weights, 1)
        cpu_at = table.columns.get(CPU)
        cpu_asked = dict(v.items).get(cpu_at, 0) if cpu_at is not None else 0
        gpu_asked = request.count * request.milli if request is not None else 0

        def score(at: np.ndarray | slice) -> np.ndarray:
            free, there = table.free[at], np.clip(table.device_free[at], 0, WHOLE)
            if not len(free):
                return np.zeros(0, np.int64)
            before, after = model.open_many(asked, free, model.node_classes(state)[at])
            grown = after.placed(there, request) - before.unusable(there)
            cpu = free[:, cpu_at] - cpu_asked if cpu_at is not None else np.zeros(len(free), np.int64)
            idle = packed.idles(is_shared(request), there.sum(axis=1) - gpu_asked, cpu)
            best = gradients(grown * FINE // weights) * (SCALE - PACKING) + (SCALE - idle) * PACKING
            return best // SCALE * self.weight

        return score

    def devices(self, state: ClusterState, shape: ShapeId, row: int) -> tuple[DeviceShare, ...]:
        """Those on which fragmentation grows least, then the fullest, then the first."""
        v, table = state.vectors[shape], state.table
        request = v.devices
        if request is None:
            return ()
        if request.count > 1:
            return table.choose_devices(row, request) or ()
        model = Model.of(state, self.typical)
        shares_left = table.device_free[row].tolist()
        there = [min(d, WHOLE) for d in shares_left if d > 0]
        _, after = model.open(model.asked(v.items), table.free[row].tolist(), int(model.node_classes(state)[row]))
        found, chosen = after.placed(there, request)
        if found >= MOST_SHARE:
            return ()
        return (DeviceShare(next(i for i, d in enumerate(shares_left) if min(d, WHOLE) == chosen), request.milli),)


def is_shared(request: DeviceRequest | None) -> bool:
    return request is not None and request.milli < WHOLE


class _Measured(NamedTuple):
    key: tuple[Hashable, ...]
    packed: Packed


def packed(state: ClusterState) -> Packed:
    """Measured by the nodes as they are; kept while they are."""
    table = state.table
    key = (table.structure, state.changed_rows.position)
    kept = state.memo.find(_Measured)
    if kept is None or kept.key != key:
        column = table.columns.get(CPU)
        devices = table.device_counts * WHOLE
        cpu = table.allocatable[:, column] if column is not None else devices[:0]
        kept = state.memo.keep(_Measured(key, Packed(max(int(devices.max(initial=0)), 1), max(int(cpu.max(initial=0)), 1))))
    return kept.packed
