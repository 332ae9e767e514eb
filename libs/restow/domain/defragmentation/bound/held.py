"""What nodes hold when each is filled in one way: who is inside, and what has left for it; and the program of which that is a column."""

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from restow.domain.defragmentation.bound import relaxed
from restow.domain.defragmentation.bound.contents import sampled
from restow.domain.defragmentation.bound.problem import Nodes, Problem
from restow.domain.defragmentation.bound.program import Leaf, Program
from restow.domain.defragmentation.bound.relaxed import NEVER, Totals, anything
from restow.domain.defragmentation.bound.volume import descent

MANY, GUESSES = 1_000, 60
"""Of more nodes than the first, all begin with the best prices of some of them, found in so many steps."""
DOWN, STAY = 30, 16
"""Steps down the slope before the program; and nobody leaves where a move costs so many times what a node is worth."""


class Filled(NamedTuple):
    """`value`: no plan gains more beyond its cost, in millionths. Of lumps (P) what they hold at these prices: `worth` less the cost of who has left, in millionths `(P,)`; `inside` `(P, K)`; `moves` `(P,)`; `spare` `(P, R)`, what is left of other resources that have rows, in parts of the largest node; `totals` `(P, D + L)`, as `relaxed.Totals`."""

    value: int
    worth: np.ndarray
    inside: np.ndarray
    moves: np.ndarray
    spare: np.ndarray
    totals: np.ndarray


class ByNode(Program):
    """Rows: each class at least as often as there is one, `others` for other resources, moves, each lump of nodes once, and of each total no more and no less than is known. `SOME`: of `MANY`, about so many say where prices begin."""

    SOME = 100

    def __init__(self, of: Problem, limit: int, others: int, close: float, ceiling: int | None = None) -> None:
        self._classes, self._moves, self._lumps = len(of.size), len(of.size) + others, int(of.nodes.lump.max(initial=-1)) + 1
        super().__init__(of, limit, self._moves + 1 + self._lumps + len(anything(of).least), close, ceiling)
        free, any_ = np.full(self._moves, self._infinite), np.full(self._width - self._totals, self._infinite)
        self._rows(np.concatenate([of.number, np.zeros(others), np.full(self._width - self._moves, -self._infinite)]), np.concatenate([free, [limit], np.ones(self._lumps), any_]), self._moves)

    @abstractmethod
    def same(self, of: Problem, limit: int) -> "ByNode":
        """The same program of another problem."""

    @abstractmethod
    def nobody_leaves(self) -> Any:
        """Prices at which that is best."""

    @abstractmethod
    def of_relaxed(self, prices: relaxed.Prices) -> Any:
        """Those of the bound by prices as prices here."""

    @abstractmethod
    def answer(self, prices: Any, known: Totals) -> Filled: ...

    def first(self) -> Leaf:
        known = anything(self._of)
        self.add(self.answer(self.nobody_leaves(), known))
        prices = self._guessed()
        answer = self.answer(prices, known)
        self.add(answer)
        return Leaf(answer.value, known, prices)

    def _guessed(self) -> Any:
        """Of many nodes the best ones for some of them; of few down the slope of the bound by prices, which is quick to work out."""
        of, many = self._of, len(self._of.nodes.many)
        if many > MANY:
            some = sampled(of, np.arange(0, many, -(-many // self.SOME)))
            part = self.same(some, max(self._limit * int(some.number.sum()) // max(int(of.number.sum()), 1), 1))
            return part.improved(part.first(), GUESSES, NEVER)[0].prices
        return self.of_relaxed(min(((answer.value, prices) for answer, prices in descent(of, self._limit, DOWN)), key=lambda one: one[0])[1])

    def add(self, answer: Filled) -> int:
        matrix = np.zeros((self._lumps, self._width))
        matrix[:, : self._classes] = answer.inside
        matrix[:, self._classes : self._moves] = answer.spare
        matrix[:, self._moves] = answer.moves
        matrix[np.arange(self._lumps), self._moves + 1 + np.arange(self._lumps)] = 1
        matrix[:, self._totals :] = answer.totals
        return self._add_better(answer.worth / self._of.scale, matrix)


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
