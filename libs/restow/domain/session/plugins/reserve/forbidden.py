"""The arithmetic of the reserve plugin, without the cluster's state (RULES 001-2, 001-3)."""

from collections.abc import Mapping, Sequence

import numpy as np

from restow.domain.session.scoring import MAX_SCALED, SCALE, SHIFT


def worth(idle: np.ndarray, wanted: Sequence[int]) -> list[int]:
    """Per node, how much of a reservation it could take: the shares of its resources, in ten-thousandths, added up. `idle`
    `(nodes, resources) int64` has the resources of `wanted`, in its order; beyond MAX_SCALED nothing counts."""
    total = [0] * len(idle)
    for i, amount in enumerate(wanted):
        shift = SHIFT if amount > MAX_SCALED else 0
        have = np.minimum(np.maximum(idle[:, i], 0) >> shift, MAX_SCALED)
        # Added up as plain integers: where little is wanted, one share may be close to int64's end.
        total = [t + more for t, more in zip(total, (have * SCALE // (amount >> shift)).tolist(), strict=True)]
    return total


def forbidden(allocatable: np.ndarray, idle: np.ndarray, wanted: Sequence[int], rank: np.ndarray) -> np.ndarray:
    """`(nodes,) bool`: the nodes that are kept for reserve tasks (RULES 001-2). `allocatable` and `idle` are
    `(nodes, resources) int64` over the resources of `wanted`; idle includes what is released before the window starts. By
    descending idle, ties by `rank`, nodes are added while what those before them have allocatable is short of any resource:
    few big nodes rather than many small ones, and the node that crosses the total is in."""
    chosen = np.zeros(len(idle), bool)
    have = [0] * len(wanted)
    value, order = worth(idle, wanted), rank.tolist()
    for row in sorted(range(len(order)), key=lambda row: (-value[row], order[row])):
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
