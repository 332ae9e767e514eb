"""What nodes hold when each is filled in one way, as columns of the program need it: who is inside, and what has left for it."""

import numpy as np

from restow.domain.defragmentation.bound.problem import Nodes, Problem


class Held:
    """Of each node (N), at first with nobody on it: `inside` `(N, K)`, `moves` and `cost` `(N,)`, `fits` `(N, D)`, `levels` `(N, L)`."""

    def __init__(self, of: Problem) -> None:
        self._of, self._nodes = of, of.nodes
        assert of.wants is not None
        many, nodes, there = len(of.nodes.many), of.nodes, of.bins.kind >= 0
        self.inside, self.fits, self.levels = np.zeros((many, len(of.size))), np.zeros((many, len(of.wants.parts))), np.zeros((many, of.wants.levels.shape[1]))
        self.moves, self.cost = np.zeros(many), np.zeros(many)
        moves = (there / of.parts[of.bins.kind]).sum(axis=1) if len(of.size) else np.zeros(len(of.bins.many))
        np.add.at(self.moves, nodes.of, moves[nodes.bin] * nodes.often)
        np.add.at(self.cost, nodes.of, np.where(there, of.bins.cost, 0).sum(axis=1)[nodes.bin] * nodes.often.astype(float))
        np.add.at(self.moves, nodes.loose_of, nodes.loose_often)
        np.add.at(self.cost, nodes.loose_of, (nodes.loose_cost * nodes.loose_often).astype(float))
        self._all_moves, self._all_cost = self.moves.copy(), self.cost.copy()

    def stay(self, node: np.ndarray, kind: np.ndarray, cost: np.ndarray, parts: np.ndarray | int) -> None:
        """`cost`: of all these parts."""
        np.add.at(self.inside, (node, kind), parts)
        np.add.at(self.moves, node, -parts / self._of.parts[kind])
        np.add.at(self.cost, node, -cost.astype(float))

    def empty(self, which: np.ndarray) -> None:
        """Of nodes with nobody on them nothing else counts."""
        for some in (self.inside, self.fits, self.levels):
            some[which] = 0
        self.moves[which], self.cost[which] = self._all_moves[which], self._all_cost[which]

    def worth(self, empty: np.ndarray) -> np.ndarray:
        """`(N,)`: what each is worth less the cost of who has left; `empty`: which have nobody on them."""
        assert self._of.wants is not None
        weights = np.where(self._of.wants.weights > 0, self._of.wants.weights, 0)[self._nodes.group]
        return (self.fits * weights).sum(axis=1) - self.cost + np.where(empty, self._nodes.empty, self._nodes.base)

    def totals(self) -> np.ndarray:
        """`(N, D + L)`."""
        return np.concatenate([self.fits, self.levels], axis=1)


def lumped(nodes: Nodes, amounts: np.ndarray) -> np.ndarray:
    """Added up by lump, of nodes."""
    found = np.zeros((int(nodes.lump.max(initial=-1)) + 1, *amounts.shape[1:]))
    np.add.at(found, nodes.lump, amounts * nodes.many.reshape(-1, *[1] * (amounts.ndim - 1)))
    return found
