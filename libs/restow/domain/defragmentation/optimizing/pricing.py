"""A plan by `value` from prices: what nodes could hold (`patterns`, `packing`) at a price for a pod of each class and for a move, at which about as many come as leave.

The prices go down the slope of what no plan made of these patterns exceeds (`slope`); each round adds patterns that are good at them. Then each node takes one (`descent`, `rounding`), so that nearly
as many come in all as leave, and pods are found for it. All in integers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.board import Board
from restow.domain.defragmentation.optimizing.descent import Descent, descend
from restow.domain.defragmentation.optimizing.filling import Filling
from restow.domain.defragmentation.optimizing.packing import Packing
from restow.domain.defragmentation.optimizing.patterns import (
    EVALUATED,
    Pattern,
    Patterns,
    Prices,
    Table,
    rows_of,
)
from restow.domain.defragmentation.optimizing.rounding import TRIES, rounded
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Search
from restow.domain.defragmentation.optimizing.slope import LEAST, descended, total
from restow.domain.defragmentation.optimizing.slope import STEPS as DOWN
from restow.domain.defragmentation.optimizing.usable import Usable
from restow.domain.defragmentation.simulation import Spot
from restow.domain.node_table import NO_DEVICE

LAST = 200
"""Steps down the slope at last."""
OFTEN = 8
"""So often others come one after the other in all rounds: where the first time takes more than its part of the steps (nearly each pod asks for something else), nothing is looked for."""
NOTHING = 1
"""Where all that patterns promise after twice as many rounds as those from nothing is less than one part in so many of what a device is worth, everybody stays: what plans leave is mostly less, and nobody can have it."""
STEPS = 100
"""Steps of annealing in each round but the last one."""
MOST_COPIES, TOGETHER = 24, 1_200
"""On few nodes more copies of each are annealed at once, at most so many: about so many in all."""
HEAT, NEAR = 25, 20
"""Of what a device is worth one part in so many may be lost at first; and by so little less than the best one of its node a pattern is kept."""
PARTS, FOUND = 10, 7
"""Prices change by seven of ten parts of what is found each time."""
TAKEN_BACK = 10
"""Nodes, one after the other, that everybody stays on, where there is no place at all for somebody who was to leave: after so many nothing is found."""
FEW = 100
FEW_PARTS = (LEAST, LEAST // 4, LEAST // 8)
"""On so few nodes one pod without a place may cost more than all else that is rounded: whoever leaves for whom nobody comes costs one of these parts of a device more than its price, and the best one is taken."""
MANY = 1_500
"""On more nodes prices are found on a sample of them, and fewer contents are weighed."""
SAMPLE = 300
"""About so many nodes."""
FIRST = 5
"""There a move costs one in so many parts of what a device is worth at first: its price grows by half each time, and where few of many pods may move it decides."""
LARGEST = 1 << 61
"""What all nodes may be worth, in millionths of a thousandth: integers are large enough for prices beside it."""


class Course(NamedTuple):
    """`grown`: times that patterns are added from nothing, of devices packed exactly and of those who come one after the other; then in all other `rounds` by annealing each node alone, at once so many `copies` of it,
    in so many steps the `last` time. `slope`: steps down the slope each time; `tries`: of rounding. `gaining`: only nodes of which a pattern is worth something at the prices are annealed."""

    grown: int
    rounds: int
    copies: int
    last: int
    slope: int
    tries: int
    gaining: bool = False


ALL_OF_FEW, OF_SAMPLE, THEN = Course(2, 11, 4, 300, DOWN, TRIES), Course(2, 8, 4, STEPS, DOWN, 0), Course(1, 3, 1, STEPS, 100, 100, gaining=True)
ALL = ALL_OF_FEW._replace(last=100)
"""Of all nodes; or of a sample, and then of all: its prices are nearly the best ones, and what is missing are the patterns of each node that others leave places for. Of more than `FEW` nodes a third of the
last round's steps finds as much (eleven worlds of 200 and 500 nodes: 0.04 % more value)."""

NEAR_BOUND = 10
"""A plan is near to what its patterns promise that misses no more than one in so many parts of it."""


class Start(NamedTuple):
    """Where pods go, the steps that it took to find that, and whether it is near to all that was promised."""

    ends: dict[PodUid, Spot]
    steps: int
    near: bool = False


def priced(search: Search, board: Board) -> Start | None:
    """What is found from where everybody is at home, as on the board: nobody moves where that promises next to `NOTHING`; None where nothing is found, or it takes more moves than are allowed, where nodes have no devices (nothing is packed here then),
    or where integers are too small for what nodes are worth."""
    world = search.world
    assert isinstance(world.value, Usable), "patterns are weighed by objective value alone"
    assert not world.away, "who has moved already does not move again here"
    most = world.value.most * THOUSANDTHS
    if not board.uids or len(board.rows) < 2 or most * (len(world.worth) + len(board.uids)) > LARGEST:
        return None
    many = len(rows_of(board)) > MANY
    patterns = Patterns(board, sparing=many)
    packing = Packing(patterns, world.value.of)
    if not packing.able:
        return None
    limit, steps, weighed = search.limits.moves, search.limits.steps, 0
    if many:
        some = sampled(board)
        sample = Patterns(board, some, sparing=True)
        own = Packing(sample, world.value.of)
        first, device = _first(sample, own, FIRST)
        guessed = _prices(sample, own, first, device, max(limit * len(some) // len(patterns.rows), 1), steps, OF_SAMPLE, most)
        if guessed is None:
            return None
        first, weighed = guessed[1].prices, sample.weighed
    else:
        first, device = _first(patterns, packing)
    course = THEN if many else ALL_OF_FEW if len(patterns.rows) <= FEW else ALL
    priced_at = _prices(patterns, packing, first, device, limit, steps, course, most)
    if priced_at is None:
        return None
    table, found = priced_at
    if found.bound * NOTHING < device:
        return Start({}, (weighed + patterns.weighed) // EVALUATED, near=True)
    best = best_in_place(search, patterns, table, found, [device // part + 1 for part in (FEW_PARTS if len(patterns.rows) <= FEW else (LEAST,))], course.tries)
    if best is None:
        return None
    missed = found.bound - (best.net - search.net())
    return Start(best.ends, (weighed + patterns.weighed) // EVALUATED, missed * NEAR_BOUND <= found.bound)


def sampled(board: Board) -> np.ndarray:
    """`(rows,)`: every so many-th row, so that there are about `SAMPLE` of them, in the order of how many devices they have, of what they have free, and of what that is worth."""
    rows = rows_of(board)
    # Columns have their own units.
    free = (board.free[rows] * 1_000 // np.maximum(board.largest, 1)).sum(axis=1)
    devices = (board.shares[rows] > NO_DEVICE // 2).sum(axis=1)
    order, every = np.lexsort((board.rank[rows], board.worth[rows], free, devices)), max(len(rows) // SAMPLE, 1)
    return rows[order[every // 2 :: every]]


def _first(patterns: Patterns, packing: Packing, part: int = 0) -> tuple[Prices, int]:
    """Prices by what a device is worth, and that; of a move one in so many parts of it, or nothing."""
    board = patterns.board
    # Of those that have any: most nodes may have none.
    worth = packing.whole()
    some = np.sort(worth[worth > 0])
    device = int(some[len(some) // 2]) if len(some) else 0
    return Prices(device * board.count[patterns.kind] * board.milli[patterns.kind] // 1_000, device // part if part else 0), device


def _prices(patterns: Patterns, packing: Packing, first: Prices, device: int, limit: int, steps: int, course: Course, most: int) -> tuple[Table, Descent] | None:
    """All patterns, and prices for them, from these first ones on. `device`: what one is worth, at most `most`. None where one round shows that all take more steps than there are."""
    prices = centre = first
    filling, rounds = Filling(patterns), course.rounds
    for nth in range(rounds):
        if nth < course.grown:
            if not patterns.grow(prices, bool(nth % 2), None if nth else steps * EVALUATED // min(OFTEN, rounds)):
                return None
            if not nth:
                patterns.take_in(packing.starts(prices))
        else:
            _fill(patterns, filling, prices, device, course, nth)
        table = patterns.table()
        if nth + 1 == rounds or patterns.weighed // EVALUATED > steps:
            break
        if total(table, prices, limit) <= total(table, centre, limit):
            centre = prices
        best = descended(table, centre, limit, device, most, course.slope)
        if nth + 1 >= 2 * course.grown and total(table, best, limit) * NOTHING < device:
            break
        prices = nearer(centre, best)
        patterns.forget(table, table.scores(centre))
    return table, descend(table, descended(table, centre, limit, device, most, course.slope), limit, most, LAST)


def _fill(patterns: Patterns, filling: Filling, prices: Prices, device: int, course: Course, nth: int) -> None:
    """Others by annealing, from the best of each node, or, with several copies, in turn from how it is."""
    table = patterns.table()
    scores = table.scores(prices)
    best = table.best(scores)
    copies, steps = max(course.copies, min(TOGETHER // len(best), MOST_COPIES)), course.last if nth + 1 == course.rounds else STEPS
    anew = nth % 2 and course.copies > 1
    some = best[scores[best] > 0] if course.gaining else table.first if anew else best
    begin = [table.patterns[j].start for j in np.repeat(some, copies).tolist()]
    found = filling.starts(prices, begin, steps, device // HEAT)
    least = scores[best] - device // NEAR
    patterns.take_in(list(dict.fromkeys(one for one, reached in found if reached > least[one.node])))


def nearer(centre: Prices, found: Prices) -> Prices:
    """Between the best prices so far and those that were found for the patterns that there are: those alone jump about."""
    return Prices(((PARTS - FOUND) * centre.pods + FOUND * found.pods) // PARTS, ((PARTS - FOUND) * centre.move + FOUND * found.move) // PARTS)


class Landed(NamedTuple):
    """Where pods go, and what the plan is worth then (`Search.net`)."""

    ends: dict[PodUid, Spot]
    net: int


def best_in_place(search: Search, patterns: Patterns, table: Table, found: Descent, short: Sequence[int], tries: int = TRIES) -> Landed | None:
    """The best of as many ways to round, in each of which whoever leaves for whom nobody comes costs so much more than its price; None where nobody moves, or more would than may."""
    limit = search.limits.moves
    best: Landed | None = None
    for more in short:
        landed = in_place(search, patterns, table, rounded(table, found.prices, found.parts, limit, more, tries))
        if landed is not None and 0 < len(landed.ends) <= limit and (best is None or landed.net > best.net):
            best = landed
    return best


def in_place(search: Search, patterns: Patterns, table: Table, chosen: list[int]) -> Landed | None:
    """With these patterns, where everybody has a place at last."""
    for _ in range(TAKEN_BACK):
        landed = _ends(search, patterns, [table.patterns[j] for j in chosen])
        if not isinstance(landed, int):
            return landed
        chosen[landed] = int(table.first[landed])
    return None


def _ends(search: Search, patterns: Patterns, chosen: Sequence[Pattern]) -> Landed | int:
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
    reached = Landed(dict(world.away), search.net())
    world.undo(mark)
    return reached
