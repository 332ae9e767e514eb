"""What is scarce while a plan is made: prices for the capacity that others who come could use, and for the moves that are allowed.

Each set of pods that may leave a row (an offer) gains something, and uses up what the pods take wherever they land, what could have landed on
their row before and may not any more, and moves. Of all offers as many are thought to be taken at once as pay for what they use, in fractions. The
prices are about those at which what they use is what there is (the Lagrangian dual of that knapsack, by subgradient steps; the mean of
all rounds, for what is nearly scarce is a hindrance, too). They say in which order offers are tried, and nothing else. All in
integers: every machine finds the same ones.
"""

from collections.abc import Sequence

import numpy as np

from restow.domain.defragmentation.optimizing.choices import Pods, free_without
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.node_table import WHOLE

PARTS = 1 << 16
"""All that there is of one resource."""
MOST_PARTS = 1 << 18
"""An offer that uses more counts as this."""
MOST_NET = 1 << 26
"""Gains are scaled so that the largest is about this."""
ROUNDS = 240
SHORTER = 32
"""Each step is shorter than the one before by one part in so many."""


class Scarcity:
    """`total` is what there is: by column, and moves last."""

    def __init__(self, world: World, moves: int) -> None:
        self.world, self._moves = world, max(moves, 0)
        self._gpu = world.value.gpu
        self.total: list[int] = []
        self._shift, self._times = 0, 1
        self.prices: list[int] = []

    def find(self, offers: Sequence[tuple[int, list[int]]]) -> None:
        """The prices, for offers that gain this, more than 0, and use that."""
        if not offers:
            return
        free, shares, loads = self.world.state.table.free.tolist(), self.world.state.table.device_free.tolist(), self.world.loads.tolist()
        there = [self._absorbs(free[row], shares[row], loads[row]) for row in np.flatnonzero(self.world.open).tolist()]
        # Where no row is open there is nothing of anything.
        self.total = [*map(sum, zip([0] * len(free[0]), *there, strict=True)), self._moves]
        most = max(net for net, _ in offers)
        self._shift = max(most.bit_length() - MOST_NET.bit_length(), 0)
        self._times = MOST_NET // (most >> self._shift)
        nets, uses = [self._scaled(net) for net, _ in offers], [self._parts(use) for _, use in offers]
        self.prices = _dual(np.array(nets, np.int64), np.array(uses, np.int64))

    def surplus(self, net: int, use: list[int]) -> int:
        """What an offer gains beyond what it uses of what is scarce; the more the better, and comparable only with others of this plan."""
        if not self.prices:
            return self._scaled(net)
        return self._scaled(net) - sum(price * part for price, part in zip(self.prices, self._parts(use), strict=True) if price)

    def uses(self, row: int, pods: Pods) -> list[int]:
        """What the leaving of these uses, by column, and how many moves it takes."""
        world, loads = self.world, int(self.world.loads[row])
        before, after = self._absorbs(*world.free(row), loads), self._absorbs(*free_without(world, row, pods), loads - len(pods))
        taken = [one - other for one, other in zip(before, after, strict=True)]
        for uid in pods:
            for c, a in world.vector(uid).items:
                taken[c] += a
        return [*(max(n, 0) for n in taken), sum(uid not in world.away for uid in pods)]

    def _absorbs(self, free: list[int], shares: list[int], loads: int) -> list[int]:
        """What others may take on a row, by column, without making it worth less for certain."""
        objective = self.world.value.objective
        if objective == "nodes" and not loads:
            return [0] * len(free)
        found = [n if n > 0 else 0 for n in free]
        if objective == "devices" and self._gpu >= 0:
            found[self._gpu] = sum([share for share in shares if 0 < share < WHOLE])
        return found

    def _scaled(self, net: int) -> int:
        return (net >> self._shift) * self._times

    def _parts(self, use: list[int]) -> list[int]:
        return [min(n * PARTS // max(total, 1), MOST_PARTS) for n, total in zip(use, self.total, strict=True)]


def _dual(nets: np.ndarray, uses: np.ndarray) -> list[int]:
    """Prices `(resources,)` per part at which the offers that gain more than they pay, `nets` `(offers,)` and `uses` `(offers, resources)`, use about PARTS
    of each resource that is scarce: near the least `PARTS * sum(prices) + sum(max(0, nets - uses @ prices))`."""
    prices = np.zeros(uses.shape[1], np.int64)
    sums, length = prices.copy(), int(np.maximum(nets, 0).sum()) // PARTS
    for _ in range(ROUNDS):
        over = uses[nets > (uses * prices).sum(axis=1)].sum(axis=0) - PARTS
        prices = np.maximum(prices + length * over // PARTS, 0)
        length -= -(-length // SHORTER)
        sums += prices
    return [int(n) // ROUNDS for n in sums]
