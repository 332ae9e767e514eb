"""The arithmetic of the reserve plugin, without the cluster's state (RULES 001-2, 001-3)."""

from collections.abc import Mapping, Sequence

import numpy as np

from restow.domain.session.scoring import MAX_SCALED, SHIFT, shares

_MOST_SHARE = 10**15
"""More of a reservation than any node has; so that the sum over resources stays within int64."""


def worth(idle: np.ndarray, wanted: Sequence[int]) -> np.ndarray:
    """`(nodes,) int64`: how much of a reservation each node could take, the shares of its resources added up. `idle`
    `(nodes, resources) int64` has the resources of `wanted`, in its order."""
    total = np.zeros(len(idle), np.int64)
    for i, amount in enumerate(wanted):
        shift = SHIFT if amount > MAX_SCALED else 0
        have = np.maximum(idle[:, i], 0) >> shift
        total += np.minimum(shares(np.minimum(have, MAX_SCALED), np.full(len(have), amount >> shift)), _MOST_SHARE)
    return total


def forbidden(allocatable: np.ndarray, idle: np.ndarray, wanted: Sequence[int], rank: np.ndarray) -> np.ndarray:
    """`(nodes,) bool`: the nodes that are kept for reserve tasks (RULES 001-2). `allocatable` and `idle` are
    `(nodes, resources) int64` over the resources of `wanted`; idle includes what is released before the window starts. By
    descending idle, ties by `rank`, nodes are added while what those before them have allocatable is short of any resource:
    few big nodes rather than many small ones, and the node that crosses the total is in."""
    chosen = np.zeros(len(idle), bool)
    have = [0] * len(wanted)
    for row in np.lexsort((rank, -worth(idle, wanted))).tolist():
        if all(h >= w for h, w in zip(have, wanted, strict=True)):
            break
        chosen[row] = True
        have = [h + a for h, a in zip(have, allocatable[row].tolist(), strict=True)]
    return chosen


def enough(
    idle: Sequence[int], request: Mapping[int, int], tasks: Mapping[int, int], configured: Mapping[int, int]
) -> bool:
    """The last rule of RULES 001-3: whether the total idle, by column, without this request still covers what reserve tasks
    have and wait for (`tasks`), and at least what is configured."""
    for column in tasks.keys() | configured.keys():
        need = max(tasks.get(column, 0), configured.get(column, 0))
        if need > 0 and idle[column] - request.get(column, 0) < need:
            return False
    return True
