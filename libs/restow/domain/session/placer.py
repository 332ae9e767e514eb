"""The best node for a shape, exactly, and again after every placement at the cost of the rows that changed.

All that fits is ranked by one integer: the score first, then the lexicographically first name. Scores are integers in
`[0, 10_000]` a weighted mean per resource, so that every machine and NumPy build chooses the same node.

A ranking is made in one vectorised pass over all rows. The few rows that change after that are ranked one by one in plain
integers, by the same formula: below MANY rows that is faster than NumPy's calls. A test holds the two equal.
"""

from collections.abc import Iterator

import numpy as np

from restow.contracts.ids import ShapeId
from restow.domain.predicates import static_mask
from restow.domain.resources import GPU_MILLI
from restow.domain.state import ClusterState
from restow.domain.table import Vector

SCALE = 10_000
MAX_SCALED, SHIFT = (1 << 49) - 1, 12
"""What can be multiplied by SCALE in int64; of more the last bits do not count."""

MANY = 24
"""Rows from which on the vectorised form is the faster one."""


class _Ranking:
    """`keys` `(nodes,) int64` as of the first `seen` changes; the rest is the request, for ranking single rows:
    `wanted` (column, amount), `scored` (column, weight, amount)."""

    __slots__ = ("keys", "mask", "scored", "seen", "wanted")

    def __init__(self, keys: np.ndarray, seen: int, state: ClusterState, shape: ShapeId):
        v = state.vectors[shape]
        self.keys = keys
        self.seen = seen
        self.mask = static_mask(state, shape)
        self.wanted = tuple(zip(v.columns.tolist(), v.amounts.tolist(), strict=True))
        self.scored = tuple(_scored(state, v))


class Placer:
    """For one session: nodes do not change meanwhile, rows do (`changed`)."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._rankings: dict[ShapeId, _Ranking] = {}
        self._log: list[int] = []
        self._rows: dict[int, tuple[list[int], list[int], list[int]]] = {}

    def changed(self, row: int) -> None:
        """Something was charged to this row, or taken back."""
        self._log.append(row)
        self._rows.pop(row, None)

    @property
    def changes(self) -> int:
        """How often that was."""
        return len(self._log)

    def best(self, shape: ShapeId) -> int | None:
        """The row of the best node, or None where nothing fits."""
        ranking = self._rankings.get(shape)
        if ranking is None:
            keys = self._keys(shape, None)
            ranking = self._rankings[shape] = _Ranking(keys, len(self._log), self._state, shape)
        elif ranking.seen < len(self._log):
            self._refresh(shape, ranking)
        if not len(ranking.keys):
            return None
        row = int(ranking.keys.argmax())
        return row if ranking.keys[row] >= 0 else None

    def fits(self, shape: ShapeId, row: int) -> bool:
        return bool(static_mask(self._state, shape)[row]) and self._state.table.fits_row(row, self._state.vectors[shape])

    def _refresh(self, shape: ShapeId, ranking: _Ranking) -> None:
        rows = set(self._log[ranking.seen :])
        ranking.seen = len(self._log)
        if len(rows) >= MANY:
            at = np.array(sorted(rows), np.int64)
            ranking.keys[at] = self._keys(shape, at)
            return
        for row in rows:
            ranking.keys[row] = self._key(shape, ranking, row)

    def _key(self, shape: ShapeId, ranking: _Ranking, row: int) -> int:
        """`_keys` for one row."""
        state, table = self._state, self._state.table
        if not ranking.mask[row] or not table.alive[row]:
            return -1
        known = self._rows.get(row)
        if known is None:
            known = table.free[row].tolist(), table.allocatable[row].tolist(), table.device_free[row].tolist()
            self._rows[row] = known
        free, allocatable, shares = known
        for column, amount in ranking.wanted:
            if free[column] < amount:
                return -1
        devices = state.vectors[shape].devices
        if devices is not None:
            able, milli = 0, devices.milli
            for share in shares:
                able += share >= milli
            if able < devices.count:
                return -1
        total = weights = 0
        for column, weight, amount in ranking.scored:
            whole = allocatable[column]
            if whole > 0:
                left = free[column] - amount
                if whole > MAX_SCALED:
                    whole, left = whole >> SHIFT, left >> SHIFT
                total += (left * SCALE // whole if left > 0 else 0) * weight
                weights += weight
        if state.session_config.score == "binpack":
            total = weights * SCALE - total
        n = len(table.names)
        return total // (weights or 1) * (n + 1) + n - int(table.rank[row])

    def _keys(self, shape: ShapeId, rows: np.ndarray | None) -> np.ndarray:
        """`(rows,) int64`: rank of each row, -1 where the shape does not fit."""
        state, table = self._state, self._state.table
        at = slice(None) if rows is None else rows
        v = state.vectors[shape]
        free = table.free[at]
        room = static_mask(state, shape)[at] & table.alive[at]
        for column, amount in zip(v.columns, v.amounts, strict=True):
            room &= free[:, column] >= amount
        if v.devices is not None:
            room &= (table.device_free[at] >= v.devices.milli).sum(axis=1) >= v.devices.count
        n = len(table.names)
        keys = score(state, v, at) * (n + 1) + (n - table.rank[at])
        return np.where(room, keys, -1)


def score(state: ClusterState, v: Vector, at: np.ndarray | slice) -> np.ndarray:
    """`(rows,) int64` in 0..SCALE: how good each row is for the request. `leastAllocated` prefers the most room left
    after it, `binpack` the least; per resource `value * SCALE // allocatable`, then the weighted mean. Resources that a node
    does not have do not count; GPUs count only for pods that ask for them."""
    config, table = state.session_config, state.table
    total = np.zeros(len(table.names[: len(table.allocatable)]) if isinstance(at, slice) else len(at), np.int64)
    weights = np.zeros_like(total)
    for column, weight, amount in _scored(state, v):
        allocatable = table.allocatable[at, column]
        left = np.maximum(table.free[at, column] - amount, 0)
        if (vast := allocatable > MAX_SCALED).any():
            allocatable, left = (np.where(vast, amounts >> SHIFT, amounts) for amounts in (allocatable, left))
        present = allocatable > 0
        share = left * SCALE // np.where(present, allocatable, 1)
        if config.score == "binpack":
            share = SCALE - share
        total += np.where(present, share * weight, 0)
        weights += np.where(present, weight, 0)
    return total // np.maximum(weights, 1)


def _scored(state: ClusterState, v: Vector) -> Iterator[tuple[int, int, int]]:
    """(column, weight, amount asked for) of each resource that counts for this request."""
    asked = dict(zip(v.columns.tolist(), v.amounts.tolist(), strict=True))
    for resource, weight in sorted(state.session_config.weights.items()):
        column = state.table.columns.get(resource)
        if column is not None and (resource != GPU_MILLI or v.devices is not None):
            yield column, weight, asked.get(column, 0)
