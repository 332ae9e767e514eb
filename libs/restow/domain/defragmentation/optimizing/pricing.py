"""A plan by `value` from prices: what nodes could hold (`patterns`, `packing`) at a price for a pod of each class and for a move, at which about as many come as leave.

The prices go down the slope of what no plan made of these patterns exceeds; each round adds patterns that are good at them. Then each node takes one, where what comes and leaves in all is to be
the same more and more strictly, and pods are found for it. All in integers.
"""

from collections.abc import Sequence

import numpy as np

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.board import Board
from restow.domain.defragmentation.optimizing.packing import Packing
from restow.domain.defragmentation.optimizing.patterns import EVALUATED, Pattern, Patterns, Prices, Table
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Search
from restow.domain.defragmentation.optimizing.slope import descended, total
from restow.domain.defragmentation.optimizing.usable import Usable
from restow.domain.defragmentation.simulation import Spot

ROUNDS = 8
"""Times that patterns are added."""
FOUND, PARTS = 7, 10
"""Prices change by so many of so many parts of what is found each time."""
PASSES = 8
"""Times that each node chooses anew, each time with a larger part of its price for a pod that comes and for whom none leaves, or the other way round."""
OTHERS = (0, 1, 2, 4)
"""Eighths of what other resources would cost if they alone were paid for: in turn."""
LARGEST = 1 << 61
"""What all nodes may be worth, in millionths of a thousandth: integers are large enough for prices beside it."""
OVER = 5_000_000_000
"""What a move beyond the limit costs, in the same unit: five GPU-hours. A plan that has more moves than it may all the same is not taken."""

Start = tuple[dict[PodUid, Spot], int]
"""Where pods go, and the steps that it took to find that."""


def priced(search: Search) -> Start | None:
    """What is found from where everybody is at home; None where that is nothing or takes more moves than are allowed, where nodes have no devices (nothing is packed here then), or where integers are too small for
    what nodes are worth."""
    world = search.world
    assert isinstance(world.value, Usable), "patterns are weighed by objective value alone"
    assert not world.away, "who has moved already does not move again here"
    board, most = Board(search), world.value.most * THOUSANDTHS
    if not board.uids or len(board.rows) < 2 or most * (len(world.worth) + len(board.uids)) > LARGEST:
        return None
    patterns = Patterns(board)
    packing = Packing(patterns, world.value.of)
    if not packing.able:
        return None
    prices, table = _prices(patterns, packing, search.limits.moves, search.limits.steps, most)
    chosen = _balanced(patterns, table, prices, search.limits.moves)
    ends = _ends(search, patterns, [table.patterns[j] for j in chosen.tolist()])
    return (ends, patterns.weighed // EVALUATED) if 0 < len(ends) <= search.limits.moves else None


def _prices(patterns: Patterns, packing: Packing, limit: int, steps: int, most: int) -> tuple[Prices, Table]:
    """The last ones, and all patterns."""
    board = patterns.board
    # Of those that have any: most nodes may have none.
    worth = packing.whole()
    some = np.sort(worth[worth > 0])
    device = int(some[len(some) // 2]) if len(some) else 0
    prices = centre = Prices(device * board.count[patterns.kind] * board.milli[patterns.kind] // 1_000, 0)
    best: Prices = prices
    for nth in range(ROUNDS):
        other = int((prices.pods * patterns.number).sum()) // max(int((packing.useful * patterns.number).sum()), 1)
        patterns.grow(prices, packing.starts(prices, other * OTHERS[nth % len(OTHERS)] // 8), bool(nth % 2))
        table = patterns.table()
        if total(table, prices, limit) <= total(table, centre, limit):
            centre = prices
        best = descended(table, centre, limit, device, most)
        prices = Prices(((PARTS - FOUND) * centre.pods + FOUND * best.pods) // PARTS, ((PARTS - FOUND) * centre.move + FOUND * best.move) // PARTS)
        if nth + 1 == ROUNDS or patterns.weighed // EVALUATED > steps:
            break
        patterns.forget(table, table.scores(centre))
    return best, table


def _balanced(patterns: Patterns, table: Table, prices: Prices, limit: int) -> np.ndarray:
    """`(nodes,)`: a pattern for each, so that nearly as many come of each class as leave."""
    scores = table.scores(prices)
    chosen = table.best(scores)
    changes = np.zeros((len(table.patterns), patterns.classes), np.int32)
    changes[table.at, table.kind] = table.more
    sums, moves = changes[chosen].sum(axis=0, dtype=np.int64), int(table.moves[chosen].sum())
    ends = np.append(table.first[1:], len(table.patterns))
    for nth in range(1, PASSES + 1):
        prices_now = prices.pods * nth // PASSES
        for node, (first, end) in enumerate(zip(table.first.tolist(), ends.tolist(), strict=True)):
            if end - first == 1:
                continue
            old = int(chosen[node])
            others, moved = sums - changes[old], moves - int(table.moves[old])
            over = np.maximum(moved + table.moves[first:end] - limit, 0)
            found = scores[first:end] - (np.abs(others + changes[first:end]) * prices_now).sum(axis=1) - over * OVER
            new = first + int(found.argmax())
            chosen[node], sums, moves = new, others + changes[new], moved + int(table.moves[new])
    return chosen


def _ends(search: Search, patterns: Patterns, chosen: Sequence[Pattern]) -> dict[PodUid, Spot]:
    """Where they go: whoever leaves takes the place of one of its class, in the order of the patterns, for their devices follow from that; who has none goes home, or where least is lost."""
    world, board = search.world, patterns.board
    leaving: list[list[tuple[int, int]]] = [[] for _ in range(patterns.classes)]
    slots: list[list[tuple[int, int]]] = [[] for _ in range(patterns.classes)]
    for one in chosen:
        for i in one.start.gone:
            leaving[int(patterns.of[i])].append((one.start.node, i))
        for nth, k in enumerate(one.start.came):
            slots[k].append((one.start.node, nth))
    moves: list[tuple[int, int, int]] = []
    for pods, places in zip(leaving, slots, strict=True):
        places = places[: len(pods)]
        for at, (node, _) in enumerate(pods[: len(places)]):
            if places[at][0] == node:
                for other in range(len(places)):
                    if places[other][0] != node and pods[other][0] != node:
                        places[at], places[other] = places[other], places[at]
                        break
        moves += [(*place, i) for (node, i), place in zip(pods, places, strict=False) if place[0] != node]
    mark, rest = world.mark(), [i for pods in leaving for _, i in pods]
    for i in rest:
        world.lift(board.uids[i])
    landed = set[int]()
    for node, _, i in sorted(moves):
        if (spot := world.placement.fits_at(board.uids[i], int(patterns.rows[node]))) is not None:
            world.land(board.uids[i], spot)
            landed.add(i)
    for i in sorted(set(rest) - landed, key=lambda i: (-int(board.size[board.kind[i]]), i)):
        uid: PodUid = board.uids[i]
        spot = world.home(uid) if world.home_fits(uid) else world.placement.find(uid, (int(board.home[i]),))
        if spot is None:
            world.undo(mark)
            return {}
        world.land(uid, spot)
    found = dict(world.away)
    world.undo(mark)
    return found
