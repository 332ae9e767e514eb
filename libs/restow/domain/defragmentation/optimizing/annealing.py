"""Simulated annealing: pods go elsewhere one by one, or change places in twos, at first also where a little is lost by it, at the end only where something is gained.

What a node is worth by objective `value` changes a little with every pod. So there is a slope to follow that sets of pods, each of which has to gain by itself, do not see. All on
a copy in plain integers (`board`), with a generator of its own: the same state gives the same plan. Only pods take part that no rule about others concerns and that prefer nothing;
whether its end is better is asked of the world, and whether it can be reached when the moves are put in order.
"""

from collections.abc import Iterator

import numpy as np

from restow.domain.defragmentation.costs import MOVE
from restow.domain.defragmentation.optimizing.board import Board, Pod
from restow.domain.defragmentation.optimizing.improve import take_if_better, take_up
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Search

TRIES = 12
"""So many take the time of one step of search."""
EACH, EACH_MOVE = 1_000, 2_000
"""Tries for each pod that takes part, and for each move that is left, at most: with few of them there is less to be tried."""
HEAT_MOVE, HEAT_NODE = 3, 800
"""What may be lost at first: about so many tenths of what a move costs, or one in so many parts of what the dearest node is worth, whichever is more."""
HOME = 5
"""One try in so many of who is away leads home."""
_EVEN = 64
"""Tries that are as hot as each other."""
_BITS, _PARTS = 12, 16
_NUMBERS = 4_096


def anneal(search: Search, steps: int, fresh: bool) -> None:
    """The plan becomes what is found in so many steps, if that is better. `fresh`: it begins with everybody at home."""
    world, plan = search.world, dict(search.world.away)
    if fresh:
        take_up(world, {})
    board = Board(search)
    if steps > 0 and len(board.rows) > 1 and board.pods:
        tries = min(steps * TRIES, EACH * len(board.pods), EACH_MOVE * search.limits.moves)
        first = max(MOVE * search.limits.least * HEAT_MOVE // 10, world.value.most * THOUSANDTHS // HEAT_NODE)
        Tries(board, search.limits.moves).cool(first, tries)
        world.steps += tries // TRIES
        take_if_better(search, board.ends())
    if fresh:
        take_if_better(search, plan)


def numbers() -> Iterator[int]:
    """Below 2 to the 31st, and look like chance: of numbers that follow each other, their bits well mixed (SplitMix64)."""
    at = np.arange(1, _NUMBERS + 1, dtype=np.uint64)
    while True:
        mixed = at * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        yield from (mixed >> np.uint64(33)).tolist()
        at += np.uint64(_NUMBERS)


def _logarithm(n: int) -> int:
    """To the base 2 and by straight lines, of one divided by so many `_BITS`ths; in `_PARTS`ths."""
    halves = _BITS + 1 - n.bit_length()
    within = (n << halves) - (1 << _BITS)
    return ((halves << _BITS) - within) << _PARTS >> _BITS


LOSSES = [_logarithm(n + 1) for n in range(1 << _BITS)]
"""How many times its heat a try may lose, each with the same chance, in 2 to the `_PARTS`ths."""


class Tries:
    """On a board, with at most `limit` pods away."""

    def __init__(self, board: Board, limit: int) -> None:
        self._board, self._limit, self._number = board, limit, numbers().__next__

    def cool(self, first: int, tries: int) -> None:
        """So many tries, of heat `first` down to nothing."""
        for at in range(0, tries, _EVEN):
            self.even(min(_EVEN, tries - at), first * (tries - at) // tries)

    def even(self, tries: int, heat: int) -> None:
        """As hot as each other: the heat is what half of them may lose."""
        board, number = self._board, self._number
        pods, rows = board.pods, board.rows
        many, places = len(pods), len(rows)
        for _ in range(tries):
            pod, loss = pods[number() % many], heat * LOSSES[number() >> 31 - _BITS] >> _PARTS
            here, home = pod.row, pod.home
            left = pod.left
            if left is None:
                left = board.leave(pod)
            # Nobody's coming gains anything.
            if here == home and left * THOUSANDTHS + loss < pod.cost:
                continue
            row = home if here != home and not number() % HOME else rows[number() % places]
            if row == here or not (row == home or pod.mask[row]):
                continue
            come = board.come(pod, row)
            if come is None:
                self._exchange(pod, row, loss)
            else:
                self._judge([(pod, row)], come + left, loss)

    def _exchange(self, pod: Pod, row: int, loss: int) -> None:
        """The pod comes to the row, and one from there to its place."""
        board = self._board
        if not (there := board.on[row]):
            return
        other, here = there[self._number() % len(there)], pod.row
        if not (other.mask[here] or here == other.home):
            return
        moves = [(pod, row), (other, here)]
        if self._net(moves, board.leave(pod) + board.leave(other)) < -loss:
            return
        come = board.replace(other, pod)
        if come is None or self._net(moves, board.leave(pod) + come) < -loss:
            return
        back = board.replace(pod, other)
        if back is not None:
            self._judge(moves, come + back, loss)

    def _judge(self, moves: list[tuple[Pod, int]], gained: int, loss: int) -> None:
        """Made if no more is lost than that, and no more are away than may be."""
        if self._net(moves, gained) < -loss:
            return
        board = self._board
        away = sum([(row != pod.home) - (pod.row != pod.home) for pod, row in moves])
        if away <= 0 or board.away + away <= self._limit:
            board.move(moves)

    @staticmethod
    def _net(moves: list[tuple[Pod, int]], gained: int) -> int:
        more = gained * THOUSANDTHS
        for pod, row in moves:
            if pod.row != pod.home:
                more += pod.cost
            if row != pod.home:
                more -= pod.cost
        return more
