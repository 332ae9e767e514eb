"""Of what a device has free, how much could be of use: as much as shares fill that pods ask for.

Where pods have halves and quarters of a device, a fifth that is free is of use to nobody. So who lands where three tenths are left of a half wastes that half,
and who takes all of a gap wastes nothing. Sizes that few ask for fill nothing: there are not enough of them.
"""

from collections import Counter

import numpy as np

from restow.domain.node_table import WHOLE
from restow.domain.state import ClusterState

PIECES = 10_000
"""A whole free device is worth so many, so that a part of one is a whole number."""
RARE, LEFT = 20, 8
"""Of a size, all pods together have at least one part in so many of all shares, or it is not counted on."""


def fillable(state: ClusterState) -> np.ndarray:
    """`(WHOLE + 1,) int64`: of so many thousandths of a device that are free, how many shares like those of the running pods can fill."""
    shares = Counter[int]()
    for shape, many in Counter(state.pods[uid].fact.shape for uid in state.charges if uid in state.pods).items():
        request = state.vectors[shape].devices
        if request is not None and request.milli < WHOLE:
            shares[request.milli] += request.milli * request.count * many
    total = sum(shares.values())
    able = np.zeros(WHOLE + 1, bool)
    able[0] = True
    for size in sorted(size for size, all_of in shares.items() if size > 0 and all_of * RARE >= total):
        for begin in range(size, WHOLE + 1, size):
            # As far as one more of them comes.
            able[begin : begin + size] |= able[begin - size : begin][: len(able[begin : begin + size])]
    return np.maximum.accumulate(np.where(able, np.arange(WHOLE + 1), 0))


def wasted(fill: np.ndarray, gaps: np.ndarray, milli: int) -> np.ndarray:
    """`(gaps,) int64`, 0 to `WHOLE`: where a share of so many thousandths takes a part of these `gaps`, which are no smaller, how much less can be filled beside it, and by a small
    part how much is left at all: of gaps that waste as much the smallest is taken."""
    gaps = np.clip(gaps, milli, WHOLE)
    return (np.maximum(fill[gaps] - fill[gaps - milli] - milli, 0) * (LEFT - 1) + gaps - milli) // LEFT


def wasted_one(fill: list[int], gap: int, milli: int) -> int:
    """The same of one gap."""
    gap = min(gap, WHOLE)
    return (max(fill[gap] - fill[gap - milli] - milli, 0) * (LEFT - 1) + gap - milli) // LEFT


class Filled:
    """What rows are worth where gaps count for what can be filled of them: a whole free device `PIECES`, and a gap of which all could be filled `part`.

    By objective `devices` itself a pod's going elsewhere changes nothing most of the time, so that there is no slope towards gaps in which other pods fit."""

    def __init__(self, fill: np.ndarray, part: int, counted: np.ndarray) -> None:
        self._table, self._counted = fill * part // WHOLE, counted
        self._table[WHOLE] = PIECES

    def many(self, rows: np.ndarray, free: np.ndarray, shares: np.ndarray, loads: np.ndarray) -> np.ndarray:
        """`(rows,) int64`; only `shares` matter."""
        return self._table[np.clip(shares, 0, WHOLE)].sum(axis=1) * self._counted[rows]


class Vacant:
    """The same by objective `nodes`: a free node `PIECES`, and another one so much of `part` as it has free of what it has least of; of devices what can be filled.

    So pods gather on nodes that become full, of all resources alike, and other nodes come near to being free, also where none is freed yet."""

    def __init__(self, fill: np.ndarray, part: int, counted: np.ndarray, allocatable: np.ndarray, devices: np.ndarray, gpu: int) -> None:
        """`allocatable` `(nodes, resources)`, of which the `gpu` column (-1 for none) is read as `devices` `(nodes,)`, how many there are."""
        self._fill, self._part, self._counted, self._devices = fill, part, counted, devices
        self._columns = [(c, np.maximum(allocatable[:, c], 1)) for c in range(allocatable.shape[1]) if c != gpu and allocatable[:, c].any()]

    def many(self, rows: np.ndarray, free: np.ndarray, shares: np.ndarray, loads: np.ndarray) -> np.ndarray:
        """`(rows,) int64`."""
        devices = self._devices[rows]
        left = np.where(devices > 0, self._fill[np.clip(shares, 0, WHOLE)].sum(axis=1) // np.maximum(devices, 1), WHOLE)
        for c, total in self._columns:
            left = np.minimum(left, np.clip(free[:, c], 0, total[rows]) * WHOLE // total[rows])
        return np.where(loads == 0, PIECES, left * self._part // WHOLE) * self._counted[rows]
