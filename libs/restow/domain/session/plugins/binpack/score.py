"""The score: per resource that the pod asks for, what would be used of what the node has, then the weighted mean."""

import msgspec
import numpy as np

from restow.contracts.ids import ShapeId
from restow.domain.session.scoring import SCALE, Many, One, share, shares
from restow.domain.state import ClusterState


class Binpack(msgspec.Struct, frozen=True):
    """`weights` by resource (in the node table's names). Resources that the pod does not ask for do not count."""

    weight: int
    weights: tuple[tuple[str, int], ...]

    def _asked(self, state: ClusterState, shape: ShapeId) -> list[tuple[int, int, int]]:
        """(column, amount, weight)."""
        amounts = dict(state.vectors[shape].items)
        columns = state.table.columns
        asked = [(columns[r], amounts.get(columns[r], 0), w) for r, w in self.weights if r in columns and w]
        return [(column, amount, weight) for column, amount, weight in asked if amount]

    def one(self, state: ClusterState, shape: ShapeId) -> One:
        asked, times = self._asked(state, shape), self.weight
        weights = sum(weight for _, _, weight in asked) or 1

        def score(free: list[int], allocatable: list[int], devices: list[int]) -> int:
            total = 0
            for column, amount, weight in asked:
                whole = allocatable[column]
                if whole > 0:
                    total += (SCALE - share(max(free[column] - amount, 0), whole)) * weight
            return total // weights * times

        return score

    def many(self, state: ClusterState, shape: ShapeId) -> Many:
        asked, times, table = self._asked(state, shape), self.weight, state.table
        weights = sum(weight for _, _, weight in asked) or 1

        def score(at: np.ndarray | slice) -> np.ndarray:
            total = np.zeros(len(table.free[at]), np.int64)
            for column, amount, weight in asked:
                whole = table.allocatable[at, column]
                left = np.maximum(table.free[at, column] - amount, 0)
                total += np.where(whole > 0, (SCALE - shares(left, whole)) * weight, 0)
            return total // weights * times

        return score
