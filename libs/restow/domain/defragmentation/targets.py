"""The target nodes of one plan: a snapshot that every planned move is charged to at once (seed 000, 2.3.3)."""

from collections.abc import Hashable, Iterator

import numpy as np

from restow.contracts.ids import Millis, NodeName, PodUid, ShapeId
from restow.contracts.values import DeviceRequest, DeviceShare
from restow.domain.defragmentation.classify import Nodes, exact, in_use, scaled
from restow.domain.defragmentation.simulation import Simulation, Spot
from restow.domain.fragmentation import Room, alike
from restow.domain.predicates import static_mask
from restow.domain.resources import GPU_MILLI
from restow.domain.session.plugins.predicates.filters import InterPodAffinity
from restow.domain.session.plugins.reserve.closed import closed
from restow.domain.state import ClusterState
from restow.domain.table import WHOLE, Vector

NODE_RULES = "node selector, affinity or taints"
PROTECTION = "protectionThresholds"
DEVICES = "Insufficient gpu"
NO_TARGETS = "no target nodes"


class Targets:
    """Arrays over the targets, resources first, so that a question about one resource reads one line of memory. Rules that depend on
    what runs are asked of the simulation besides. Room only shrinks here, so a kind of pod that once fitted nowhere never fits again,
    unless one of its rules may be loosened by what is promised to others."""

    def __init__(self, simulation: Simulation, nodes: Nodes, room: Room, time: Millis) -> None:
        self._simulation = simulation
        self.state = state = simulation.state
        self._table = state.table
        self._rows = nodes.targets[~(reserved(state) | closed(state, time))[nodes.targets]]
        self._column = nodes.column
        self._free = np.ascontiguousarray(room.free[self._rows].T)
        self._devices = room.device_free[self._rows]
        self._widest = np.ascontiguousarray(-np.sort(-self._devices, axis=1).T)
        self._usage = nodes.usage[self._rows]
        self._cap = nodes.cap[self._rows]
        self._rank = len(self._table.names) - self._table.rank[self._rows]
        self._total = nodes.total[self._rows]
        self._share = nodes.share
        self._keys = self._key_of(slice(None))
        self._static: dict[ShapeId, np.ndarray] = {}
        self._names = {column: resource for resource, column in self._table.columns.items()}
        self._closed: dict[Hashable, str] = {}
        """Kinds of pods that fit nowhere, and why."""

    def __len__(self) -> int:
        return len(self._rows)

    def _key_of(self, at: slice) -> np.ndarray:
        """Order among targets: the highest utilisation first, then the first name; positive."""
        parts = scaled(exact(self._usage[at]), exact(self._total[at]))
        return parts * (len(self._table.names) + 1) + self._rank[at]

    def best(self, uid: PodUid) -> int | str:
        """The index of the best target that the pod fits on, or why there is none."""
        shape = self.state.pods[uid].shape
        rules = self._simulation.rules(uid)
        kind: Hashable = self._simulation.session.kind(self._simulation.twin(uid), list(rules)) if rules else shape
        if kind in self._closed:
            return self._closed[kind]
        fits = self._static_of(shape)
        for _, room in self._room(self.state.vectors[shape]):
            fits = fits & room
        if rules and fits.any():
            for _, failing in self._simulation.failing(uid):
                fits = fits & ~failing[self._rows]
        if fits.any():
            return int(np.where(fits, self._keys, -1).argmax())
        counts = self.removed(uid)
        why = max(sorted(counts), key=lambda rule: counts[rule]) if counts else NO_TARGETS
        # Whose anti-affinity is about others does not move (`is_foreseen`): what it closes stays closed.
        if all(rule.shrinks or isinstance(rule, InterPodAffinity) for rule in rules):
            self._closed[kind] = why
        return why

    def removed(self, uid: PodUid) -> dict[str, int]:
        """How many targets each rule removes; the first that applies counts."""
        shape = self.state.pods[uid].shape
        left = np.ones(len(self._rows), bool)
        counts: dict[str, int] = {}
        company = ((rule, ~failing[self._rows]) for rule, failing in self._simulation.failing(uid))
        for rule, fits in ((NODE_RULES, self._static_of(shape)), *self._room(self.state.vectors[shape]), *company):
            gone = int((left & ~fits).sum())
            if gone:
                counts[rule] = counts.get(rule, 0) + gone
            left &= fits
        return counts

    def rows_removed_by_node_rules(self, shape: ShapeId) -> list[int]:
        return self._rows[~self._static_of(shape)].tolist()

    def _static_of(self, shape: ShapeId) -> np.ndarray:
        like = alike(self.state, shape)
        mask = self._static.get(like)
        if mask is None:
            mask = self._static[like] = static_mask(self.state, like)[self._rows]
        return mask

    def _room(self, v: Vector) -> Iterator[tuple[str, np.ndarray]]:
        """Per rule about room: its name and where it is kept."""
        for column, amount in zip(v.columns.tolist(), v.amounts.tolist(), strict=True):
            if column == self._column and self._share < 0:
                yield PROTECTION, self._cap - self._usage >= amount
            if v.devices is None or self._names[column] != GPU_MILLI:
                yield f"Insufficient {self._names[column]}", self._free[column] >= amount
        if v.devices is not None:
            if v.devices.count > len(self._widest):
                yield DEVICES, np.zeros(len(self._rows), bool)
            else:
                widest = self._widest[v.devices.count - 1]
                yield DEVICES, widest >= v.devices.milli
                if self._share >= 0 and v.devices.milli < WHOLE:
                    yield PROTECTION, widest - (WHOLE - self._share) >= v.devices.milli

    def name(self, at: int) -> NodeName:
        return NodeName(self._table.names[self._rows[at]])

    def row(self, at: int) -> int:
        return int(self._rows[at])

    def take(self, at: int, uid: PodUid) -> tuple[DeviceShare, ...]:
        """Promise the pod's request to this target: its devices, chosen as the session would."""
        v = self.state.vectors[self.state.pods[uid].shape]
        kept = WHOLE - self._share if self._share >= 0 and v.devices is not None and v.devices.milli < WHOLE else 0
        shares = _choose(self._devices[at].tolist(), v.devices, kept)
        for share in shares:
            self._devices[at, share.index] -= share.milli
        if shares:
            self._widest[:, at] = -np.sort(-self._devices[at])
        self._free[v.columns, at] -= v.amounts
        asked = v.amounts[v.columns == self._column]
        if asked.size:
            if self._share < 0:
                self._usage[at] += asked[0]
            else:
                self._usage[at : at + 1], self._total[at : at + 1] = in_use(self._devices[at : at + 1])
            self._keys[at] = self._key_of(slice(at, at + 1))[0]
        if self._simulation.heard:
            self._simulation.session.board.take(self.row(at), v, shares)
            self._simulation.enter(uid, Spot(self.row(at), shares))
        return shares


def reserved(state: ClusterState) -> np.ndarray:
    """`(nodes,) bool`: rows that tasks of starving jobs wait for: no hold would be placed there (RULES G-8)."""
    return state.table.mask(state.reserved_on)


def _choose(free: list[int], request: DeviceRequest | None, kept: int) -> tuple[DeviceShare, ...]:
    """As `NodeTable.choose_devices`: the least free share that suffices beside what is `kept` of it, ties by index."""
    if request is None:
        return ()
    able = sorted((share, i) for i, share in enumerate(free) if share - kept >= request.milli)
    return tuple(DeviceShare(i, request.milli) for i in sorted(i for _, i in able[: request.count]))
