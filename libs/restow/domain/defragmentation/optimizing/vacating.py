"""A plan by `nodes` from prices (as `pricing` by value): which nodes all leave, and who comes to which others instead, at a price for a pod of each class and for a move at which about as many
come as leave. Each round adds patterns that are good at these prices; at last each node takes one. All in integers.
"""

import numpy as np

from restow.domain.defragmentation.optimizing.board import Board
from restow.domain.defragmentation.optimizing.descent import descend
from restow.domain.defragmentation.optimizing.patterns import EVALUATED, Patterns, Prices
from restow.domain.defragmentation.optimizing.pricing import LAST, Start, best_in_place, nearer
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Search
from restow.domain.defragmentation.optimizing.slope import LEAST, descended, total

ROUNDS = 14
"""Times that patterns are added, and prices found for them."""
FIRST, DEAREST = 2, 2
"""A pod as large as a node costs half of one at first, and two at most."""
STEP = 8
"""About so many pods fill a node: no price is taken to be much smaller than one part in so many when it changes."""
NOTHING, TRIED = 10, 2
"""Where all that patterns promise after so many rounds is less than one part in so many of a node, nothing is found."""
PARTS = (LEAST, LEAST // 8)
"""Whoever leaves for whom nobody comes costs one of these parts of a step more than its price, and the best one is taken: all of a node leave, or nothing is gained."""


class _Vacant:
    """What rows are worth by objective `nodes`."""

    def __init__(self, counted: np.ndarray) -> None:
        self._counted = counted

    def many(self, rows: np.ndarray, free: np.ndarray, shares: np.ndarray, loads: np.ndarray) -> np.ndarray:
        """`(rows,) int64`; only `loads` matter."""
        return ((loads == 0) & self._counted[rows]).astype(np.int64)


def vacated(search: Search) -> Start | None:
    """What is found from where everybody is at home, and the steps that it took; None where that is nothing."""
    world, limit = search.world, search.limits.moves
    assert not world.away, "who has moved already does not move again here"
    board = Board(search, _Vacant(world.counted), lazy=True)
    if not board.uids or len(board.rows) < 2:
        return None
    patterns, node = Patterns(board), THOUSANDTHS
    step, most = node // STEP, node * DEAREST
    # Sizes are parts of 10,000 of the largest node.
    prices = centre = Prices(np.minimum(node * board.size[patterns.kind] // (10_000 * FIRST), most), 0)
    for nth in range(ROUNDS):
        if not patterns.grow(prices, bool(nth % 2), None if nth else search.limits.steps * EVALUATED // ROUNDS):
            return None
        table = patterns.table()
        if nth + 1 == ROUNDS or patterns.weighed // EVALUATED > search.limits.steps:
            break
        if total(table, prices, limit) <= total(table, centre, limit):
            centre = prices
        best = descended(table, centre, limit, step, most)
        if nth >= TRIED and total(table, best, limit) * NOTHING < node:
            return None
        prices = nearer(centre, best)
        patterns.forget(table, table.scores(centre))
    found = descend(table, descended(table, centre, limit, step, most), limit, most, LAST)
    landed = best_in_place(search, patterns, table, found, [step // part + 1 for part in PARTS])
    return Start(landed.ends, patterns.weighed // EVALUATED) if landed is not None and landed.net > search.net() else None
