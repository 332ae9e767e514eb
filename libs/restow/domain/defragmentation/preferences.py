"""What pods prefer of the nodes that they may run on, and where they would have less of it than where they are: soft topology spread, preferred
affinity (to nodes, to pods, and away from them), and how near they are to the others of their gang, where that is to be kept together (`networkTopology`).

The scheduler weighs these when it places a pod, and a plan that packs pods would undo them for nothing: so a target that suits a pod less costs
something (`costs`), and of targets that are as good otherwise the planner takes one that does not. Only what the pod itself, or its PodGroup, says counts.
"""

import numpy as np

from restow.contracts.ids import PodUid, ShapeId
from restow.domain.defragmentation.simulation import Simulation
from restow.domain.session.plugins.nodeorder.resource_scores import NodeAffinity
from restow.domain.topology.terms import wants


class Preferences:
    """`price` for each of the three kinds."""

    def __init__(self, simulation: Simulation, price: int) -> None:
        self._simulation, self._state, self._price = simulation, simulation.state, price
        self._says: dict[ShapeId, bool] = {}
        self._liked: dict[ShapeId, np.ndarray | None] = {}

    def worse(self, uid: PodUid, home: int) -> np.ndarray | None:
        """`(nodes,) int64`: in how many of the three kinds each row suits the pod, which is in the air, less than its home; None where it makes no difference."""
        if not self.matter(uid):
            return None
        shape = self._state.pods[uid].fact.shape
        found: np.ndarray | None = None
        for scores in (self._affinity(uid, shape), self._spread(uid), self._near(uid, home)):
            if scores is not None and (less := scores < scores[home]).any():
                found = less.astype(np.int64) if found is None else found + less
        return found

    def matter(self, uid: PodUid) -> bool:
        """Whether it prefers anything, and that counts."""
        if not self._price:
            return False
        pod, blocks = self._state.pods[uid].fact, self._simulation.session.extensions.blocks
        return self._asks(pod.shape) or (blocks is not None and blocks.concerns(pod))

    def cost(self, uid: PodUid, home: int, row: int) -> int:
        """Of landing on the row, for a pod in the air."""
        worse = self.worse(uid, home)
        return self._price * int(worse[row]) if worse is not None else 0

    def _asks(self, id: ShapeId) -> bool:
        known = self._says.get(id)
        if known is None:
            shape = self._state.shapes[id]
            says = wants(shape)
            known = self._says[id] = bool(shape.node_preferences or says.preferred or says.soft)
        return known

    def _affinity(self, uid: PodUid, shape: ShapeId) -> np.ndarray | None:
        """To nodes and to pods together, each as far as the scheduler would rate it."""
        if shape not in self._liked:
            rows = np.arange(len(self._state.table.names))
            self._liked[shape] = NodeAffinity(1).static(self._state, shape, rows)
        found, others = self._liked[shape], self._simulation.session.other_pods
        if others is not None and wants(self._state.shapes[shape]).preferred:
            near = others.topology.affinity_score(others.subject(self._simulation.twin(uid)), self._state.table.alive)
            if near is not None:
                found = near if found is None else found + near
        return found

    def _spread(self, uid: PodUid) -> np.ndarray | None:
        others = self._simulation.session.other_pods
        return None if others is None else others.topology.spread_score(others.subject(self._simulation.twin(uid)), self._state.table.alive)

    def _near(self, uid: PodUid, home: int) -> np.ndarray | None:
        blocks, twin = self._simulation.session.extensions.blocks, self._simulation.twin(uid)
        found = None if blocks is None else blocks.near(twin)
        if blocks is None or found is None:
            return None
        # At home as it is now: where the others go first, nobody is near to them there any more.
        before = blocks.near(twin, now=True)
        found[home] = 0 if before is None else before[home]
        return np.asarray(found)
