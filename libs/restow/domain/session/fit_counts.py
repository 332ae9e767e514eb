"""How many pods of each waiting shape fit, over all nodes, each shape and each row taken alone: kept up with the rows that
change, so that what a pod leaves behind costs one comparison with all that waits, however much that is (RULES G-17).

A row's part of a shape's count is what the row has free divided by the request. Of a row that has changed the old part is
taken away and the new one added, for all shapes at once. A test holds the counts equal to the plain way (`plain`).
"""

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from restow.contracts.ids import ShapeId
from restow.domain.node_table import Vector
from restow.domain.predicates import node_rules, static_mask
from restow.domain.session.node_snapshot import NodeSnapshot
from restow.domain.state import ClusterState

ANYTHING, NEVER = -(1 << 62), 1 << 62
"""In place of an amount: it is not asked for, or nobody asks for anything here."""
MOST = 1 << 31
"""A row counts for at most so many, so that sums fit into int64."""
LOOKS = 32
"""Questions about single shapes after which rows that a session has charged are counted for all shapes at once: until then each
question costs as many steps as there are such rows."""


def times(v: Vector, free: np.ndarray, devices: np.ndarray) -> np.ndarray:
    """`(rows,) int64`: how often a request fits on rows; of devices only whether there are enough for one."""
    counts = np.full(len(free), MOST, np.int64)
    for column, amount in v.items:
        np.minimum(counts, free[:, column] // amount, out=counts)
    if v.devices is not None:
        counts[(devices >= v.devices.milli).sum(axis=1) < v.devices.count] = 0
    return np.maximum(counts, 0)


def _times_of(v: Vector, free: list[int], devices: list[int]) -> int:
    """The same for one row in plain integers."""
    least = MOST
    for column, amount in v.items:
        if (fits := free[column] // amount) < least:
            least = fits
    if least <= 0 or (v.devices is not None and sum(share >= v.devices.milli for share in devices) < v.devices.count):
        return 0
    return least


def plain(state: ClusterState, shape: ShapeId) -> int:
    """The same for one, with nothing kept."""
    counts = times(state.vectors[shape], state.table.free, state.table.device_free)
    counts[~(static_mask(state, shape) & state.table.alive)] = 0
    return int(counts.sum())


class Fits:
    """`total[slot]` of each shape that is asked for. Who asks calls `need` and `release`, and `refresh` before it reads."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._slots: dict[ShapeId, int] = {}
        self._shapes: dict[int, ShapeId] = {}
        self._uses: dict[ShapeId, int] = {}
        self._vacant: list[int] = []
        self._new: dict[ShapeId, None] = {}
        self._groups: dict[Hashable, int] = {}
        self.total = np.zeros(64, np.int64)
        self._group = np.zeros(64, np.int64)
        self._milli, self._count = np.zeros(64, np.int64), np.zeros(64, np.int64)
        table = state.table
        self._asked = np.full((len(table.columns), 64), NEVER, np.int64)
        self._free = table.free.copy()
        self._devices = table.device_free.copy()
        self._masks = np.zeros((4, len(table.names)), bool)
        self._seen, self._nodes_seen = table.dirty.position, state.changed_rows.position
        self._snapshot: NodeSnapshot | None = None
        self._told = self._looked = self._looks = 0
        self.counted = 0
        """How often rows were counted for all shapes."""
        self._ahead: dict[int, tuple[list[int], list[int]]] = {}
        """Rows that the session has charged since they were counted: what they had then, by column and by device."""
        self._structure, self._config = table.structure, state.session_config

    def of(self, wanted: ShapeId) -> int:
        """As of the last `look` or `refresh`."""
        slot = self._slots.get(wanted)
        if slot is None:
            return 0
        total = int(self.total[slot])
        if self._ahead and self._snapshot is not None:
            v, mask = self._state.vectors[wanted], self._masks[self._group[slot]]
            for row, was in self._ahead.items():
                if mask[row]:
                    total += _times_of(v, *self._snapshot.row(row)) - _times_of(v, *was)
        return total

    @property
    def behind(self) -> bool:
        """Whether rows were charged that are not in `total` yet."""
        return bool(self._ahead)

    def look(self, snapshot: NodeSnapshot) -> None:
        """Up to what a session has charged, for a question about single shapes (`of`). Cheap: it is asked between placements."""
        if snapshot is not self._snapshot:
            return self.refresh(snapshot)
        changes = snapshot.changes
        if self._looked < len(changes):
            for row in changes[self._looked :]:
                if row not in self._ahead:
                    self._ahead[row] = self._free[row].tolist(), self._devices[row].tolist()
            self._looked, self._looks = len(changes), 0
        elif self._ahead:
            self._looks += 1
            if self._looks >= LOOKS:
                self.refresh(snapshot)
        return None

    def fitting(self) -> list[ShapeId]:
        """Those that fit somewhere."""
        return [self._shapes[slot] for slot in np.flatnonzero(self.total > 0).tolist()]

    def need(self, wanted: ShapeId) -> int:
        """The slot; counted from the next `refresh` on."""
        uses = self._uses.get(wanted, 0)
        self._uses[wanted] = uses + 1
        if uses:
            return self._slots[wanted]
        slot = self._slots[wanted] = self._vacant.pop() if self._vacant else len(self._slots)
        if slot >= len(self.total):
            self._grow()
        self._shapes[slot] = wanted
        self.total[slot] = 0
        self._new[wanted] = None
        return slot

    def release(self, wanted: ShapeId) -> None:
        self._uses[wanted] -= 1
        if self._uses[wanted]:
            return
        slot = self._slots.pop(wanted)
        del self._shapes[slot]
        del self._uses[wanted]
        self._new.pop(wanted, None)
        self._vacant.append(slot)
        self._asked[:, slot], self._count[slot], self.total[slot] = NEVER, 0, 0

    def _grow(self) -> None:
        size = len(self.total)
        for name in ("total", "_group", "_milli", "_count"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(size, np.int64)]))
        self._asked = np.concatenate([self._asked, np.full((len(self._asked), size), NEVER, np.int64)], axis=1)

    # -- following the table -----------------------------------------------------------------------------------------

    def stale(self) -> bool:
        """Whether it has to be made anew: rules about nodes have changed, or what happened is forgotten."""
        state = self._state
        forgotten = state.changed_rows.since(self._nodes_seen) is None or state.table.dirty.since(self._seen) is None
        return forgotten or state.session_config is not self._config or len(self._groups) > 2 * len(self._slots) + 256

    def refresh(self, snapshot: NodeSnapshot | None = None) -> None:
        """Up to the rows that have changed, those that a session has charged included."""
        state, table = self._state, self._state.table
        nodes, dirty = state.changed_rows.since(self._nodes_seen) or (), table.dirty.since(self._seen) or ()
        charged: Sequence[int] = ()
        if snapshot is not None:
            if snapshot is not self._snapshot:
                self._snapshot, self._told = snapshot, 0
            charged = snapshot.changes[self._told :]
            self._told = self._looked = len(snapshot.changes)
        self._ahead.clear()
        self._looks = 0
        self.counted += 1
        self._nodes_seen, self._seen = state.changed_rows.position, table.dirty.position
        if table.structure != self._structure:
            self._widen()
        rows = sorted({*nodes, *dirty, *charged})
        if rows:
            self._move(np.array(rows, np.int64), bool(nodes))
        if self._new:
            self._count_new()

    def _widen(self) -> None:
        """Rows, columns and devices that came."""
        table = self._state.table
        self._structure = table.structure
        self._free = _padded(self._free, table.free.shape, 0)
        self._devices = _padded(self._devices, table.device_free.shape, int(ANYTHING))
        self._masks = _padded(self._masks, (len(self._masks), len(table.names)), False)
        self._asked = _padded(self._asked, (len(table.columns), self._asked.shape[1]), ANYTHING)

    def _move(self, rows: np.ndarray, nodes: bool) -> None:
        table = self._state.table
        if self._devices.shape != table.device_free.shape:
            self._devices = _padded(self._devices, table.device_free.shape, int(ANYTHING))
        before_masks = self._masks[:, rows].copy() if nodes else None
        if nodes:
            # Of a shape that is new the slot says nothing yet, or what it said of another one.
            known = {int(self._group[slot]): shape for shape, slot in self._slots.items() if shape not in self._new}
            for number, shape in known.items():
                self._masks[number, rows] = static_mask(self._state, shape)[rows]
        free, devices = table.free[rows], table.device_free[rows]
        same = (free == self._free[rows]).all(axis=1) & (devices == self._devices[rows]).all(axis=1)
        if before_masks is not None:
            same &= (before_masks == self._masks[:, rows]).all(axis=0)
        changed = np.flatnonzero(~same)
        at, masks = rows[changed], self._masks[:, rows[changed]]
        before = masks if before_masks is None else before_masks[:, changed]
        if len(changed) > len(self._slots):
            self._recount(at, before, -1)
            self._free[rows], self._devices[rows] = free, devices
            self._recount(at, masks, 1)
            return
        for i, row in enumerate(at.tolist()):
            self._part(self._free[row], self._devices[row], before[:, i], -1)
            self._part(free[changed[i]], devices[changed[i]], masks[:, i], 1)
        self._free[rows], self._devices[rows] = free, devices

    def _recount(self, rows: np.ndarray, masks: np.ndarray, sign: int) -> None:
        """These rows' part of every count, shape by shape: where they are more than there are shapes."""
        free, devices = self._free[rows], self._devices[rows]
        for shape, slot in self._slots.items():
            if shape not in self._new:
                counts = times(self._state.vectors[shape], free, devices)
                self.total[slot] += int(counts[masks[self._group[slot]]].sum()) * sign

    def _part(self, free: np.ndarray, devices: np.ndarray, mask: np.ndarray, sign: int) -> None:
        """A row's part of every count."""
        asked = self._asked
        able = np.ones(len(self.total), bool)
        for column, amount in enumerate(free.tolist()):
            able &= asked[column] <= amount
        slots = np.flatnonzero(able)
        slots = slots[mask[self._group[slots]]]
        if len(slots):
            self.total[slots] += self._times(slots, free, devices) * sign

    def _times(self, slots: np.ndarray, free: np.ndarray, devices: np.ndarray) -> np.ndarray:
        counts = np.full(len(slots), MOST, np.int64)
        for column, amount in enumerate(free.tolist()):
            wanted = self._asked[column, slots]
            np.minimum(counts, np.where(wanted > 0, amount // np.maximum(wanted, 1), MOST), out=counts)
        if (self._count[slots] > 0).any():
            able = (devices[None, :] >= self._milli[slots, None]).sum(axis=1)
            counts[able < self._count[slots]] = 0
        return counts

    # -- what is asked for since -------------------------------------------------------------------------------------

    def _count_new(self) -> None:
        state, table = self._state, self._state.table
        live = np.flatnonzero(table.alive)
        for wanted in self._new:
            slot, v = self._slots[wanted], state.vectors[wanted]
            self._asked[:, slot] = ANYTHING
            for column, amount in v.items:
                self._asked[column, slot] = amount
            self._milli[slot], self._count[slot] = (v.devices.milli, v.devices.count) if v.devices is not None else (0, 0)
            self._group[slot] = self._number(wanted)
        for rows, wanted in self._by_capacity(live):
            slot, v = self._slots[wanted], state.vectors[wanted]
            rows = rows[self._masks[self._group[slot], rows]]
            self.total[slot] = int(times(v, self._free[rows], self._devices[rows]).sum()) if len(rows) else 0
        self._new.clear()

    def _by_capacity(self, live: np.ndarray) -> Iterable[tuple[np.ndarray, ShapeId]]:
        """Each with the rows that it may fit on: in a full cluster they are few for all of them together."""
        slots = np.array([self._slots[wanted] for wanted in self._new], np.int64)
        least = self._asked[:, slots].min(axis=1)
        rows = live
        for column, amount in enumerate(least.tolist()):
            if amount > ANYTHING:
                rows = rows[self._free[rows, column] >= amount]
        return [(rows, wanted) for wanted in self._new]

    def _number(self, shape: ShapeId) -> int:
        """Of what a shape says about nodes."""
        rules = node_rules(self._state.shapes[shape])
        known = self._groups.get(rules)
        if known is None:
            known = self._groups[rules] = len(self._groups)
            if known >= len(self._masks):
                self._masks = np.concatenate([self._masks, np.zeros_like(self._masks)])
        # Made anew also where nobody has asked with these rules for a while.
        self._masks[known] = static_mask(self._state, shape)
        return known


def _padded(old: np.ndarray, size: tuple[int, ...], fill: int) -> np.ndarray:
    new = np.full(size, fill, old.dtype)
    rows, columns = min(old.shape[0], size[0]), min(old.shape[1], size[1])
    new[:rows, :columns] = old[:rows, :columns]
    return new
