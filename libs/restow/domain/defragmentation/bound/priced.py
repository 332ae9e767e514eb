"""A bound where bins are packed in one resource and all others have a price (`relaxed`): the program over what bins may hold."""

import numpy as np

from restow.domain.defragmentation.bound.problem import REST, Problem
from restow.domain.defragmentation.bound.program import SHORT, Leaf, Program
from restow.domain.defragmentation.bound.relaxed import Answer, Prices, Totals, anything, dearest, relaxed
from restow.domain.defragmentation.bound.volume import descent

CLOSE, CLOSER = 0.003, 0.001
"""The program's value and the bound meet where they differ by less than this part; by `value`, where that costs little, the second."""
DOWN = 80
"""Steps down the slope before the program: without them it begins far off, at 5,000 nodes of openb with a hundred runs that bring nothing. By `value`, where the
first prices are near enough, they cost more than they bring."""
LARGEST = 1 << 57
"""What a node may be worth at such prices; all nodes sixteen times that."""


class Priced(Program):
    """Rows: each class at least as often as there is one, other resources by group, moves, and each lump of bins once. By `value` each group's other resources once, too, and of each demand
    no more than each of what it asks for allows, and of each total no more and no less than is known."""

    def __init__(self, of: Problem, limit: int) -> None:
        self._classes, (self._groups, self._others) = len(of.size), (len(of.admits), of.rest.shape[1])
        lumps = int(of.nodes.lump.max(initial=-1)) + 1
        self._moves = self._classes + self._groups * self._others
        self._kept = self._moves + 1 + lumps
        self._counted = self._kept + self._groups * self._others
        weights = of.wants.weights if of.wants is not None else np.zeros((self._groups, 0), np.int64)
        asks = of.wants.asks if of.wants is not None else np.zeros((0, 1 + self._others), bool)
        some = (weights > 0)[:, :, None] & asks[None]
        self._count = np.where(some, self._counted - 1 + np.cumsum(some).reshape(some.shape), -1)
        """The row of each demand of a group and of what it asks for, `(G, D, 1 + R)`; -1 for none."""
        super().__init__(of, limit, self._counted + int(some.sum()) + len(anything(of).least), CLOSE if of.wants is None else CLOSER)
        least = np.concatenate([of.number, np.zeros(self._groups * self._others), np.full(self._width - self._moves, -self._infinite)])
        nodes = np.repeat(np.bincount(of.nodes.group, of.nodes.many, self._groups), self._others)
        most = np.concatenate([np.full(self._moves, self._infinite), [limit], np.ones(lumps), nodes, np.zeros(self._totals - self._counted), np.full(self._width - self._totals, self._infinite)])
        self._rows(least, most, self._moves)
        self._add_sizeless()
        self._add_demands(weights)

    @property
    def may_branch(self) -> bool:
        """Whether there are totals, and integers are large enough for their prices."""
        of = self._of
        if of.wants is None:
            return False
        often = np.concatenate([of.wants.fit.max(axis=0), of.wants.levels.max(axis=0)]) * of.bins_on_one
        for _, counts in of.wants.steps:
            often[: counts.shape[1]] = np.maximum(often[: counts.shape[1]], counts.max(axis=0))
        most = float(of.scale + (-SHORT * (of.scale + self._worths) * often).sum())
        return most < LARGEST and most * int(of.nodes.many.sum()) < LARGEST * 16

    def first(self) -> Leaf:
        """By some prices that may do."""
        of, centre, best = self._of, None, 0
        for answer, prices in descent(of, self._limit, DOWN if of.wants is None else 0):
            self.add(answer)
            if centre is None or answer.value < best:
                centre, best = prices, answer.value
        assert centre is not None, "some prices are always tried"
        return Leaf(best, anything(of), centre)

    def between(self, one: Prices, other: Prices, trust: float) -> Prices:
        pods, rest, split, totals = (
            np.rint(trust * a + (1 - trust) * b).astype(np.int64) for a, b in ((one.pods, other.pods), (one.rest, other.rest), (one.split, other.split), (one.totals, other.totals))
        )
        split = split if self._of.wants is None else self._of.wants.split(split, totals)
        return Prices(pods, rest, round(trust * one.move + (1 - trust) * other.move), split, totals)

    def answer(self, prices: Prices, known: Totals) -> Answer:
        return relaxed(self._of, prices, self._limit, known)

    def _add_sizeless(self) -> None:
        """Whoever has no size after rounding may be in any bin that admits it."""
        of = self._of
        some = [(k, g) for k in np.flatnonzero(of.size == 0).tolist() for g in np.flatnonzero(of.admits[:, k]).tolist()]
        matrix = np.zeros((len(some), self._width))
        for i, (k, g) in enumerate(some):
            matrix[i, k] = 1
            at = self._classes + g * self._others
            matrix[i, at : at + self._others] = -of.rest[k] / REST
        self._columns(np.zeros(len(some)), matrix, np.array([float(of.number[k]) for k, _ in some]))

    def _add_demands(self, weights: np.ndarray) -> None:
        at, demand = np.nonzero(weights)
        matrix = np.zeros((len(at), self._width))
        for c in range(1 + self._others):
            rows = self._count[at, demand, c]
            matrix[np.flatnonzero(rows >= 0), rows[rows >= 0]] = 1
        matrix[np.arange(len(at)), self._totals + demand] = 1
        self._columns(weights[at, demand] / self._of.scale, matrix, np.full(len(at), self._infinite))

    def _steps(self, answer: Answer) -> np.ndarray:
        """What nodes keep of other resources, as columns."""
        wants = self._of.wants
        if wants is None:
            return np.zeros((0, self._width))
        matrix = np.zeros((self._groups * self._others, self._width))
        for g in range(self._groups):
            for r, (units, counts) in enumerate(wants.steps):
                one, step = matrix[g * self._others + r], answer.steps[g, r]
                rows = self._count[g, :, 1 + r]
                one[rows[rows >= 0]] = -counts[step][rows >= 0]
                one[self._classes + g * self._others + r] = -units[step] / REST
                one[self._kept + g * self._others + r] = 1
        return matrix

    def add(self, answer: Answer) -> int:
        """How many columns that are better than what the program has."""
        lumps = len(answer.worth)
        matrix = np.zeros((lumps, self._width))
        matrix[:, : self._classes] = answer.inside
        matrix[:, self._classes : self._moves] = answer.spare.reshape(lumps, self._groups * self._others)
        matrix[:, self._moves] = answer.moves
        matrix[np.arange(lumps), self._moves + 1 + np.arange(lumps)] = 1
        some = self._count[:, :, 0] >= 0
        matrix[:, self._count[:, :, 0][some]] = -answer.fits[:, some]
        matrix[:, self._width - answer.levels.shape[1] :] = answer.levels
        steps = self._steps(answer)
        return self._add_better(np.concatenate([answer.worth / self._of.scale, np.zeros(len(steps))]), np.concatenate([matrix, steps]))

    def prices(self, duals: np.ndarray, known: Totals) -> Prices:
        scale, most = self._of.scale, dearest(self._of)
        paid = np.clip(-duals[: self._moves] * scale, 0, most)
        split = np.where(self._count >= 0, np.clip(duals[self._count] * scale, -most, most), 0)
        totals = known.able(np.rint(duals[self._totals :] * scale).astype(np.int64))
        rest = paid[self._classes :].reshape(self._groups, self._others)
        return Prices(paid[: self._classes], rest, round(min(max(float(duals[self._moves]), 0) * scale, most)), split, totals)
