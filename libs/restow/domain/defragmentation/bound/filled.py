"""The bound by `value` where each node is filled in one way (`exact`): the program over what nodes hold."""

import numpy as np

from restow.domain.defragmentation.bound import exact, relaxed
from restow.domain.defragmentation.bound.contents import Contents
from restow.domain.defragmentation.bound.held import STAY, ByNode, Filled
from restow.domain.defragmentation.bound.problem import Problem
from restow.domain.defragmentation.bound.program import Leaf
from restow.domain.defragmentation.bound.relaxed import Totals, anything, dearest
from restow.domain.defragmentation.bound.tables import Prices, tables
from restow.domain.defragmentation.bound.traced import filled

CLOSE, CLOSE_OF_MANY = 0.001, 0.003
"""The program's value and the bound meet where they differ by less than this part."""
UNITS, FINER = ((2, 64), (3, 1_000), (8, 6_000), (32, 1 << 40)), 8
"""Of the other resource (`problem.REST`), for so many nodes at most: prices are found by coarse units, and say more in the end at finer ones. What the coarse ones round off is room that there is not: with 3 in place of 16
the bound of openb was 1 to 4 % lower at 500 nodes, with 8 in place of 32 it was 6 % lower at 5,000, in about two to three times the CPU time; with 2 in place of 3 up to 1.3 % lower at 50."""
FEW = 128
"""Of so few nodes whole totals may make much of a difference: so a problem is parted by them. Beyond, parting took a third of the time and lowered the bound by 0.05 % (500 nodes)."""


class Whole(ByNode):
    """With a row for the other resource of each group."""

    _trust, _less = 0.9, 0.0

    def __init__(self, of: Problem, limit: int, ceiling: int | None = None) -> None:
        many = len(of.nodes.many)
        self._unit = next(unit for unit, most in UNITS if many <= most)
        self._contents = Contents(of, self._unit)
        super().__init__(of, limit, len(of.admits), CLOSE if many <= FEW else CLOSE_OF_MANY, ceiling)
        self._fine: tuple[Prices, Contents, int] | None = None
        """The last prices at fine units, and the bound by them where nothing is known."""

    @property
    def may_branch(self) -> bool:
        return len(self._of.nodes.many) <= FEW

    def same(self, of: Problem, limit: int) -> "Whole":
        return Whole(of, limit)

    def nobody_leaves(self) -> Prices:
        """A move costs more than anybody's leaving brings."""
        of, bins, nodes = self._of, self._of.bins, self._of.nodes
        home = bins.kind >= 0
        stay = max(int((-bins.cost[home] * of.parts[bins.kind[home]]).max(initial=0)), int((-nodes.loose_cost).max(initial=0)))
        return Prices(np.zeros(self._classes, np.int64), np.zeros(len(of.admits), np.int64), stay + of.scale * STAY, anything(of).least)

    def of_relaxed(self, prices: relaxed.Prices) -> Prices:
        return Prices(prices.pods, prices.rest[:, 0] if prices.rest.shape[1] else np.zeros(len(self._of.admits), np.int64), prices.move, prices.totals)

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

    def prices(self, duals: np.ndarray, known: Totals) -> Prices:
        whole, most = np.rint(duals * self._of.scale), dearest(self._of)
        paid = np.clip(-whole[: self._moves], 0, most).astype(np.int64)
        return Prices(paid[: self._classes], paid[self._classes :], int(np.clip(whole[self._moves], 0, most)), known.able(whole[self._totals :].astype(np.int64)))
