"""The bound by `value` where each node is filled in one way (`exact`): the program over what nodes hold."""

import numpy as np

from restow.domain.defragmentation.bound import exact
from restow.domain.defragmentation.bound.contents import Contents, sampled
from restow.domain.defragmentation.bound.problem import Problem
from restow.domain.defragmentation.bound.program import Leaf, Program
from restow.domain.defragmentation.bound.relaxed import NEVER, Totals, anything, dearest
from restow.domain.defragmentation.bound.tables import Prices, tables
from restow.domain.defragmentation.bound.traced import Filled, filled
from restow.domain.defragmentation.bound.volume import descent

CLOSE, CLOSE_OF_MANY = 0.001, 0.003
"""The program's value and the bound meet where they differ by less than this part."""
UNITS, FINER = ((2, 24), (3, 1_000), (8, 6_000), (32, 1 << 40)), 8
"""Of the other resource (`problem.REST`), for so many nodes at most: prices are found by coarse units, and say more in the end at finer ones. What the coarse ones round off is room that there is not: with 3 in place of 16
the bound of openb was 1 to 4 % lower at 500 nodes, with 8 in place of 32 it was 6 % lower at 5,000, in about two to three times the CPU time."""
FEW = 128
"""Of so few nodes whole totals may make much of a difference: so a problem is parted by them, and not left alone because it has begun above another. Beyond, parting took a third of the time and lowered the bound by 0.05 % (500 nodes)."""
MANY, SOME, GUESSES = 1_000, 100, 60
"""Of more than the first, all begin with the best prices of about so many of them, found in so many steps."""
DOWN, STAY = 30, 16
"""Steps down the slope before the program."""


class Whole(Program):
    """Rows: each class at least as often as there is one, the other resource by group, moves, each lump of nodes once, and of each total no more and no less than is known."""

    _trust, _less = 0.9, 0.0

    def __init__(self, of: Problem, limit: int, ceiling: int | None = None) -> None:
        self._unit = next(unit for unit, most in UNITS if len(of.nodes.many) <= most)
        self._contents, self._classes, groups = Contents(of, self._unit), len(of.size), len(of.admits)
        self._moves = self._classes + groups
        self._lumps = int(of.nodes.lump.max(initial=-1)) + 1
        totals = len(anything(of).least)
        super().__init__(of, limit, self._moves + 1 + self._lumps + totals, CLOSE if len(of.nodes.many) <= FEW else CLOSE_OF_MANY, ceiling if len(of.nodes.many) > FEW else None)
        self._fine: tuple[Prices, Contents, int] | None = None
        """The last prices at fine units, and the bound by them where nothing is known."""
        free, any_ = np.full(self._moves, self._infinite), np.full(totals, self._infinite)
        self._rows(np.concatenate([of.number, np.zeros(groups), np.full(self._width - self._moves, -self._infinite)]), np.concatenate([free, [limit], np.ones(self._lumps), any_]), self._moves)

    @property
    def may_branch(self) -> bool:
        return len(self._of.nodes.many) <= FEW

    def first(self) -> Leaf:
        """Down the slope of the bound by prices, which is quick to work out."""
        known, groups = anything(self._of), len(self._of.admits)
        # A move costs more than anybody's leaving brings: nobody does.
        bins, nodes, parts = self._of.bins, self._of.nodes, self._of.parts
        home = bins.kind >= 0
        stay = max(int((-bins.cost[home] * parts[bins.kind[home]]).max(initial=0)), int((-nodes.loose_cost).max(initial=0)))
        self.add(self.answer(Prices(np.zeros(self._classes, np.int64), np.zeros(groups, np.int64), stay + self._of.scale * STAY, known.least), known))
        prices = self._guessed(groups)
        answer = self.answer(prices, known)
        self.add(answer)
        return Leaf(answer.value, known, prices)

    def _guessed(self, groups: int) -> Prices:
        """Of many nodes the best ones for some of them; of few down the slope of the bound by prices, which is quick to work out."""
        of, many = self._of, len(self._of.nodes.many)
        if many > MANY:
            some = sampled(of, np.arange(0, many, -(-many // SOME)))
            part = Whole(some, max(self._limit * int(some.number.sum()) // max(int(of.number.sum()), 1), 1))
            return part.improved(part.first(), GUESSES, NEVER)[0].prices
        _, found = min(((answer.value, prices) for answer, prices in descent(of, self._limit, DOWN)), key=lambda one: one[0])
        return Prices(found.pods, found.rest[:, 0] if found.rest.shape[1] else np.zeros(groups, np.int64), found.move, found.totals)

    def between(self, one: Prices, other: Prices, trust: float) -> Prices:
        pods, rest, totals = (np.rint(trust * a + (1 - trust) * b).astype(np.int64) for a, b in ((one.pods, other.pods), (one.rest, other.rest), (one.totals, other.totals)))
        return Prices(pods, rest, round(trust * one.move + (1 - trust) * other.move), totals)

    def answer(self, prices: Prices, known: Totals) -> Filled:
        return filled(self._contents, prices, self._limit, known)

    def finished(self, leaf: Leaf) -> Leaf:
        if self._fine is None or self._fine[0] is not leaf.prices:
            fine = self._fine[1] if self._fine is not None else Contents(self._of, max(self._unit // FINER, 1))
            at = tables(fine, leaf.prices)
            self._fine = leaf.prices, fine, exact.value(fine, at, exact.alone(fine, at, exact.best(fine, at)), self._limit, anything(self._of))
        paid = leaf.known.pay(leaf.prices.totals) - anything(self._of).pay(leaf.prices.totals)
        return leaf._replace(value=min(leaf.value, self._fine[2] + paid), finished=True)

    def add(self, answer: Filled) -> int:
        matrix = np.zeros((self._lumps, self._width))
        matrix[:, : self._classes] = answer.inside
        matrix[:, self._classes : self._moves] = answer.spare
        matrix[:, self._moves] = answer.moves
        matrix[np.arange(self._lumps), self._moves + 1 + np.arange(self._lumps)] = 1
        matrix[:, self._totals :] = answer.totals
        return self._add_better(answer.worth / self._of.scale, matrix)

    def prices(self, duals: np.ndarray, known: Totals) -> Prices:
        whole, most = np.rint(duals * self._of.scale), dearest(self._of)
        paid = np.clip(-whole[: self._moves], 0, most).astype(np.int64)
        return Prices(paid[: self._classes], paid[self._classes :], int(np.clip(whole[self._moves], 0, most)), known.able(whole[self._totals :].astype(np.int64)))
