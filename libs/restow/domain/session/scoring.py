"""What makes a node better than another: by what it has left (in two forms, held equal by tests), by facts about it, or by what runs there.

Scores are integers in `[0, SCALE]`, times the scorer's integer weight, so that every machine and NumPy build chooses the same
node. A scorer is a value: equal scorers give equal scores, and rankings are kept as long as the scorers are the same.
"""

from collections.abc import Callable, Hashable
from typing import Protocol

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import ShapeId
from restow.contracts.values import PodShape
from restow.domain.state import ClusterState

SCALE = 10_000
MAX_SCALED, SHIFT = (1 << 49) - 1, 12
"""What can be multiplied by SCALE in int64; of more the last bits do not count."""

One = Callable[..., int]
"""(free, allocatable, free share of each device) of one node, before the pod is placed → weighted score. Of a scorer that has
`node_classes` a fourth argument is the node's class."""
Many = Callable[[np.ndarray | slice], np.ndarray]
"""Rows → `(rows,) int64` weighted scores."""


class ContentScorer(Protocol):
    """Scores by what a node has left. `one` and `many` are equal; only rows with capacity are ever looked at. One that also reads
    facts about a node has `node_classes(state)`, `(nodes,) int64`: equal for nodes that are equal to it, for as long as the scorer."""

    def one(self, state: ClusterState, shape: ShapeId) -> One: ...
    def many(self, state: ClusterState, shape: ShapeId) -> Many: ...


class StaticScorer(Protocol):
    """Scores by facts about the node, whatever runs there. `reads` is all that it reads of a shape: scores are made once for
    shapes that have it in common."""

    def reads(self, shape: PodShape) -> Hashable: ...

    def static(self, state: ClusterState, shape: ShapeId, rows: np.ndarray) -> np.ndarray | None:
        """`(rows,) int64` weighted scores, None where this shape has no preference."""
        ...


class DynamicScorer(Protocol):
    """Scores by what runs now. `active`: False where it can concern no pod as long as the session lasts."""

    active: bool

    def concerns(self, pod: PodObserved) -> bool: ...

    def scores(self, pod: PodObserved, among: np.ndarray) -> np.ndarray | None:
        """`(nodes,) int64` weighted scores, over the rows in `among` `(nodes,) bool`; None where there is no preference."""
        ...


def share(amount: int, whole: int) -> int:
    """`amount * SCALE // whole` in the way that both forms do it."""
    if whole > MAX_SCALED:
        whole, amount = whole >> SHIFT, amount >> SHIFT
    return amount * SCALE // whole


def shares(amounts: np.ndarray, wholes: np.ndarray, bounds: tuple[int, int] | None = None) -> np.ndarray:
    """`share` for arrays; 0 where there is nothing to share. May write to `amounts`. `bounds`: what no whole is below, or above, where that
    is known."""
    least, most = bounds or ((int(wholes.min()), int(wholes.max())) if len(wholes) else (1, 0))
    alike = least == most
    if most > MAX_SCALED:
        vast = wholes > MAX_SCALED
        wholes, amounts = (np.where(vast, a >> SHIFT, a) for a in (wholes, amounts))
        least, most = (bound >> SHIFT if bound > MAX_SCALED else bound for bound in (least, most))
    amounts *= SCALE
    if least > 0:
        # NumPy divides by one number several times faster than by an array of equal ones.
        amounts //= most if alike else wholes
        return amounts
    return np.where(wholes > 0, amounts // np.maximum(wholes, 1), 0)
