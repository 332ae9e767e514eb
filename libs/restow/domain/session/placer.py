"""The best node for a shape, exactly, and again after every placement at the cost of the rows that changed.

All that fits is ranked by one integer: the score first, then the lexicographically first name. Scores are integers in
`[0, 10_000]` a weighted mean per resource, so that every machine and NumPy build chooses the same node.
"""

import numpy as np

from restow.contracts.ids import ShapeId
from restow.domain.predicates import static_mask
from restow.domain.resources import GPU_MILLI
from restow.domain.state import ClusterState
from restow.domain.table import Vector

SCALE = 10_000


class _Ranking:
    __slots__ = ("keys", "seen")

    def __init__(self, keys: np.ndarray, seen: int):
        self.keys = keys
        self.seen = seen


class Placer:
    """For one session: nodes do not change meanwhile, rows do (`changed`)."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._rankings: dict[ShapeId, _Ranking] = {}
        self._log: list[int] = []

    def changed(self, row: int) -> None:
        """Something was charged to this row, or taken back."""
        self._log.append(row)

    def best(self, shape: ShapeId) -> int | None:
        """The row of the best node, or None where nothing fits."""
        ranking = self._rankings.get(shape)
        if ranking is None:
            ranking = self._rankings[shape] = _Ranking(self._keys(shape, None), len(self._log))
        elif ranking.seen < len(self._log):
            rows = np.unique(np.array(self._log[ranking.seen :], np.int64))
            ranking.keys[rows] = self._keys(shape, rows)
            ranking.seen = len(self._log)
        if not len(ranking.keys):
            return None
        row = int(ranking.keys.argmax())
        return row if ranking.keys[row] >= 0 else None

    def fits(self, shape: ShapeId, row: int) -> bool:
        return bool(static_mask(self._state, shape)[row]) and self._state.table.fits_row(row, self._state.vectors[shape])

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
    asked = dict(zip(v.columns.tolist(), v.amounts.tolist(), strict=True))
    total = np.zeros(len(table.names[: len(table.allocatable)]) if isinstance(at, slice) else len(at), np.int64)
    weights = np.zeros_like(total)
    for resource, weight in sorted(config.weights.items()):
        column = table.columns.get(resource)
        if column is None or (resource == GPU_MILLI and v.devices is None):
            continue
        allocatable = table.allocatable[at, column]
        left = np.maximum(table.free[at, column] - asked.get(column, 0), 0)
        present = allocatable > 0
        share = left * SCALE // np.where(present, allocatable, 1)
        if config.score == "binpack":
            share = SCALE - share
        total += np.where(present, share * weight, 0)
        weights += np.where(present, weight, 0)
    return total // np.maximum(weights, 1)
