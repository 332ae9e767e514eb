"""The scores of `nodeorder` by what a node has left: least requested, most requested, balanced; and by facts about the node:
preferred node affinity, taints that repel softly.

kube-scheduler's, in integers of 0 to SCALE. Resources: cpu and memory, and GPUs for pods that ask for them; a resource that
the node does not have does not count.
"""

from collections.abc import Iterator

import msgspec
import numpy as np

from restow.contracts.ids import ShapeId
from restow.domain.predicates import term_matches, tolerates
from restow.domain.quantity import CPU
from restow.domain.resources import GPU_MILLI, MEMORY
from restow.domain.session.scoring import SCALE, Many, One, share, shares
from restow.domain.state import ClusterState


class Resources(msgspec.Struct, frozen=True):
    """Weights of the three scores. With `used` the share of a resource that would be in use (0 to SCALE): *least* is the mean
    of `SCALE - used`, *most* the mean of `used`, *balanced* is SCALE less half the distance between the fullest and the
    emptiest resource (for two resources that is kube-scheduler's standard deviation)."""

    least: int
    most: int
    balanced: int

    def _asked(self, state: ClusterState, shape: ShapeId) -> Iterator[tuple[int, int]]:
        """(column, amount)."""
        v = state.vectors[shape]
        amounts = dict(v.items)
        for resource in (CPU, MEMORY, GPU_MILLI):
            column = state.table.columns.get(resource)
            if column is not None and (resource != GPU_MILLI or v.devices is not None):
                yield column, amounts.get(column, 0)

    def one(self, state: ClusterState, shape: ShapeId) -> One:
        asked = tuple(self._asked(state, shape))
        least, most, balanced = self.least, self.most, self.balanced

        def score(free: list[int], allocatable: list[int], devices: list[int]) -> int:
            total = count = low = 0
            high = SCALE
            for column, amount in asked:
                whole = allocatable[column]
                if whole > 0:
                    left = free[column] - amount
                    part = share(left, whole) if left > 0 else 0
                    total += part
                    count += 1
                    low = max(low, part)
                    high = min(high, part)
            if not count:
                return 0
            mean = total // count
            return mean * least + (SCALE - mean) * most + (SCALE - (low - high) // 2) * balanced

        return score

    def many(self, state: ClusterState, shape: ShapeId) -> Many:
        asked, table = tuple(self._asked(state, shape)), state.table

        def score(at: np.ndarray | slice) -> np.ndarray:
            size = len(table.free[at])
            total, count = np.zeros(size, np.int64), np.zeros(size, np.int64)
            emptiest, fullest = np.zeros(size, np.int64), np.full(size, SCALE, np.int64)
            for column, amount in asked:
                whole = table.allocatable[at, column]
                there = whole > 0
                part = shares(np.maximum(table.free[at, column] - amount, 0), whole)
                total += part
                count += there
                emptiest = np.where(there, np.maximum(emptiest, part), emptiest)
                fullest = np.where(there, np.minimum(fullest, part), fullest)
            mean = total // np.maximum(count, 1)
            apart = SCALE - (emptiest - fullest) // 2
            scores = mean * self.least + (SCALE - mean) * self.most + apart * self.balanced
            return np.where(count > 0, scores, 0)

        return score


class NodeAffinity(msgspec.Struct, frozen=True):
    """Preferred node affinity: the weights of the terms that match, of all weights."""

    weight: int

    def static(self, state: ClusterState, shape: ShapeId, rows: np.ndarray) -> np.ndarray | None:
        terms = [t for t in state.shapes[shape].node_preferences if t.weight > 0]
        if not terms:
            return None
        whole = sum(t.weight for t in terms)
        scores = np.zeros(len(rows), np.int64)
        for i, row in enumerate(rows.tolist()):
            node = state.nodes.get(state.table.names[row])  # type: ignore[call-overload]
            if node is not None:
                liked = sum(t.weight for t in terms if term_matches(t.term, node))
                scores[i] = liked * SCALE // whole * self.weight
        return scores


class TaintToleration(msgspec.Struct, frozen=True):
    """Taints of effect PreferNoSchedule that the pod does not tolerate: SCALE with none, half of it with one, a third with
    two, and so on."""

    weight: int

    def static(self, state: ClusterState, shape: ShapeId, rows: np.ndarray) -> np.ndarray | None:
        tolerations = state.shapes[shape].tolerations
        scores = np.full(len(rows), SCALE * self.weight, np.int64)
        for i, row in enumerate(rows.tolist()):
            node = state.nodes.get(state.table.names[row])  # type: ignore[call-overload]
            if node is not None and node.taints:
                bad = sum(t.effect == "PreferNoSchedule" and not tolerates(tolerations, t) for t in node.taints)
                scores[i] = SCALE // (1 + bad) * self.weight
        return scores
