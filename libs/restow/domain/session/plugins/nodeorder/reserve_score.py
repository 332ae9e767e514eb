"""How well a node's idle resources suit what a task asks for: seed 002's score for the action `reserve` (RULES 002-1).

Per resource with `req > 0`: `100 - 100 * req / idle` where `req <= idle`, otherwise `100 * idle / req - 100`; every division is
of integers, toward minus infinity. A resource that the task does not ask for scores 0. A node scores
`((cpu + memory) / 2 + 2 * scalar) / 3`, where `scalar` is the mean of all others that the task asks for (the seed says nothing
of several); a place for a pod is none of them. So 0 and more where it fits now, and the less the more must be freed first.
"""

import numpy as np

from restow.domain.node_table import NodeTable, Vector
from restow.domain.quantity import CPU
from restow.domain.resources import MEMORY, PODS

_FITS = 1 << 56
"""Amounts below can be multiplied by 100 in int64."""


def resource_scores(table: NodeTable, v: Vector) -> np.ndarray:
    """`(nodes,) int64`, by what each row has free now."""
    size = len(table.names)
    known = {table.columns.get(name): name for name in (CPU, MEMORY, PODS)}
    base, scalar, scalars = np.zeros(size, np.int64), np.zeros(size, np.int64), 0
    for column, amount in v.items:
        match known.get(column):
            case "pods":
                continue
            case None:
                scalar += _score(table.free[:, column], amount)
                scalars += 1
            case _:
                base += _score(table.free[:, column], amount)
    return (base // 2 + 2 * (scalar // max(scalars, 1))) // 3


def _score(idle: np.ndarray, asked: int) -> np.ndarray:
    """Of one resource: -100 to 100. Facts may over-commit a node: then nothing is idle."""
    idle = np.maximum(idle, 0)
    if asked >= _FITS or (idle.size and int(idle.max()) >= _FITS):
        idle = idle.astype(object)
    fits = 100 - 100 * asked // np.maximum(idle, 1)
    return np.where(idle >= asked, fits, 100 * idle // asked - 100).astype(np.int64)
