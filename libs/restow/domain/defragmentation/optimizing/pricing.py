"""A plan by `value` from prices: what nodes could hold (`patterns`, `packing`) at a price for a pod of each class and for a move, at which about as many come as leave.

The prices go down the slope of what no plan made of these patterns exceeds (`slope`); each round adds patterns that are good at them. Then each node takes one (`descent`, `rounding`), so that nearly
as many come in all as leave, and pods are found for it. All in integers.
"""

from collections.abc import Sequence

import numpy as np

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.board import Board
from restow.domain.defragmentation.optimizing.descent import Descent, descend
from restow.domain.defragmentation.optimizing.packing import Packing
from restow.domain.defragmentation.optimizing.patterns import EVALUATED, Pattern, Patterns, Prices, Table
from restow.domain.defragmentation.optimizing.rounding import rounded
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Search
from restow.domain.defragmentation.optimizing.slope import LEAST, descended, total
from restow.domain.defragmentation.optimizing.usable import Usable
from restow.domain.defragmentation.simulation import Spot

BOTH, ROUNDS, LAST = 4, 12, 200
"""Times that patterns are added, at first of devices packed exactly and of those who come one after the other, then of one or the other in turn; and steps down the slope at last."""
PARTS, FOUND = 10, 7
"""Prices change by seven of ten parts of what is found each time."""
TAKEN_BACK = 10
"""Nodes, one after the other, that everybody stays on, where there is no place at all for somebody who was to leave: after so many nothing is found."""
OTHERS = (0, 1, 2, 4)
"""Eighths of what other resources would cost if they alone were paid for: in turn, at first."""
LARGEST = 1 << 61
"""What all nodes may be worth, in millionths of a thousandth: integers are large enough for prices beside it."""

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
    # Of those that have any: most nodes may have none.
    worth = packing.whole()
    some = np.sort(worth[worth > 0])
    device, limit = int(some[len(some) // 2]) if len(some) else 0, search.limits.moves
    table, found = _prices(patterns, packing, limit, search.limits.steps, device, most)
    chosen = rounded(table, found.prices, found.parts, limit, device // LEAST + 1)
    for _ in range(TAKEN_BACK):
        ends = _ends(search, patterns, [table.patterns[j] for j in chosen])
        if not isinstance(ends, int):
            return (ends, patterns.weighed // EVALUATED) if 0 < len(ends) <= limit else None
        chosen[ends] = int(table.first[ends])
    return None


def _prices(patterns: Patterns, packing: Packing, limit: int, steps: int, device: int, most: int) -> tuple[Table, Descent]:
    """All patterns, and prices for them. `device`: what one is worth, at most `most`."""
    board = patterns.board
    prices = centre = Prices(device * board.count[patterns.kind] * board.milli[patterns.kind] // 1_000, 0)
    for nth in range(ROUNDS):
        if nth < BOTH:
            other = int((prices.pods * patterns.number).sum()) // max(int((packing.useful * patterns.number).sum()), 1)
            patterns.grow(prices, bool(nth % 2))
            patterns.take_in(packing.starts(prices, other * OTHERS[nth] // 8))
        elif nth % 2:
            patterns.grow(prices, nth % 4 == 1)
        else:
            patterns.take_in(packing.starts(prices, 0))
        table = patterns.table()
        if nth + 1 == ROUNDS or patterns.weighed // EVALUATED > steps:
            break
        if total(table, prices, limit) <= total(table, centre, limit):
            centre = prices
        best = descended(table, centre, limit, device, most)
        prices = Prices(((PARTS - FOUND) * centre.pods + FOUND * best.pods) // PARTS, ((PARTS - FOUND) * centre.move + FOUND * best.move) // PARTS)
        patterns.forget(table, table.scores(centre))
    return table, descend(table, descended(table, centre, limit, device, most), limit, most, LAST)


def _ends(search: Search, patterns: Patterns, chosen: Sequence[Pattern]) -> dict[PodUid, Spot] | int:
    """Where they go: whoever leaves takes the place of one of its class, in the order of the patterns, for their devices follow from that; who has none goes home, or where least is lost. Where there is no place for
    somebody at all, the node that it is to leave."""
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
            return int(np.flatnonzero(patterns.rows == board.home[i])[0])
        world.land(uid, spot)
    found = dict(world.away)
    world.undo(mark)
    return found
