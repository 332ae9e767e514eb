"""The scores of `nodeorder` by what a node has left: least requested, most requested, balanced; and by facts about the node:
preferred node affinity, taints that repel softly.

kube-scheduler's, in integers of 0 to SCALE. Resources: cpu and memory, and GPUs for pods that ask for them; a resource that
the node does not have does not count.
"""

from collections.abc import Hashable, Iterator

import msgspec
import numpy as np

from restow.contracts.ids import MOST, NodeName, ShapeId
from restow.contracts.values import PodShape
from restow.domain.node_labels import as_mask, node_labels
from restow.domain.predicates import tolerance
from restow.domain.quantity import CPU
from restow.domain.resources import GPU_MILLI, MEMORY
from restow.domain.session.scoring import SCALE, Many, One, share, shares
from restow.domain.session.sums import totals
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
        asked, table, known = tuple(self._asked(state, shape)), state.table, totals(state)

        def score(at: np.ndarray | slice) -> np.ndarray:
            parts: list[np.ndarray] = []
            for column, amount in asked:
                whole, bounds = table.allocatable[at, column], (known.smallest[column], known.largest[column])
                left = table.free[at, column] - amount
                if not amount:
                    # Facts may over-commit a node; of who asks for any of it, it is left out for want of capacity.
                    np.maximum(left, 0, out=left)
                parts.append(shares(left, whole, bounds))
            if not parts:
                return np.zeros(len(table.free[at]), np.int64)
            if all(known.smallest[column] > 0 for column, _ in asked):
                return self._of_all(parts)
            return self._of_some(parts, [table.allocatable[at, column] > 0 for column, _ in asked])

        return score

    def _of_all(self, parts: list[np.ndarray]) -> np.ndarray:
        """Every node has every resource."""
        if len(parts) == 2 and self.least - self.most == self.balanced and _highest(fuller := np.minimum(*parts)) <= SCALE:
            # Of two integers the mean less half their distance, both rounded down, is the smaller one: half of the passes over all nodes.
            if self.balanced != 1:
                fuller *= self.balanced
            fuller += SCALE * (self.most + self.balanced)
            return fuller
        total = emptiest = fullest = parts[0]
        for part in parts[1:]:
            total, emptiest, fullest = total + part, np.maximum(emptiest, part), np.minimum(fullest, part)
        mean = total >> 1 if len(parts) == 2 else total // len(parts)
        return self._weighed(mean, emptiest, np.minimum(fullest, SCALE))

    def _of_some(self, parts: list[np.ndarray], there: list[np.ndarray]) -> np.ndarray:
        count = np.add.reduce(there, dtype=np.int64)
        emptiest = np.maximum.reduce([np.where(have, part, 0) for part, have in zip(parts, there, strict=True)])
        fullest = np.minimum.reduce([np.where(have, part, SCALE) for part, have in zip(parts, there, strict=True)])
        total = np.add.reduce(parts)
        return np.where(count > 0, self._weighed(total // np.maximum(count, 1), emptiest, fullest), 0)

    def _weighed(self, mean: np.ndarray, emptiest: np.ndarray, fullest: np.ndarray) -> np.ndarray:
        """`mean * least + (SCALE - mean) * most + (SCALE - (emptiest - fullest) // 2) * balanced`. Writes to all three."""
        if self.least - self.most != 1:
            mean *= self.least - self.most
        mean += SCALE * (self.most + self.balanced)
        if self.balanced:
            emptiest -= fullest
            emptiest >>= 1
            if self.balanced != 1:
                emptiest *= self.balanced
            mean -= emptiest
        return mean


def _highest(amounts: np.ndarray) -> int:
    """0 where there are none. NumPy finds where it is in half the time that it takes to say what it is."""
    return int(amounts[amounts.argmax()]) if len(amounts) else 0


class NodeAffinity(msgspec.Struct, frozen=True):
    """Preferred node affinity: the weights of the terms that match, of all weights."""

    weight: int

    def reads(self, shape: PodShape) -> Hashable:
        return shape.node_preferences

    def static(self, state: ClusterState, shape: ShapeId, rows: np.ndarray) -> np.ndarray | None:
        terms = [t for t in state.shapes[shape].node_preferences if t.weight > 0]
        if not terms:
            return None
        whole = sum(t.weight for t in terms)
        labels, size = node_labels(state), len(state.table.names)
        # Kubernetes allows weights of 1 to 100; a log may say anything.
        liked = np.zeros(size, np.int64 if whole * SCALE <= MOST else object)
        for t in terms:
            if matching := labels.of_term(t.term):
                liked[as_mask(matching, size)] += t.weight
        return (liked[rows] * SCALE // whole * self.weight).astype(np.int64)


class TaintToleration(msgspec.Struct, frozen=True):
    """Taints of effect PreferNoSchedule that the pod does not tolerate: SCALE with none, half of it with one, a third with
    two, and so on."""

    weight: int

    def reads(self, shape: PodShape) -> Hashable:
        return shape.tolerations

    def static(self, state: ClusterState, shape: ShapeId, rows: np.ndarray) -> np.ndarray | None:
        tolerate = tolerance(state.shapes[shape].tolerations)
        scores = np.full(len(rows), SCALE * self.weight, np.int64)
        for i, row in enumerate(rows.tolist()):
            node = state.nodes.get(NodeName(state.table.names[row]))
            if node is not None and node.taints:
                bad = sum(t.effect == "PreferNoSchedule" and not tolerate(t) for t in node.taints)
                scores[i] = SCALE // (1 + bad) * self.weight
        return scores
