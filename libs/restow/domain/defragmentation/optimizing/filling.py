"""What nodes could hold, by simulated annealing of each alone at the prices of pods: for plans by `value` (`pricing`).

Several copies of all nodes at once, each with its own contents: some of those who are there leave, or who has left comes back, and others come. At first also where the node and what is paid for them lose a little by it,
at last only where they gain. What was best on the way is a pattern's beginning. All in integers, by numbers that look like chance.
"""

from collections.abc import Sequence

import numpy as np

from restow.domain.defragmentation.optimizing.annealing import losses, numbers
from restow.domain.defragmentation.optimizing.board import Contents, every
from restow.domain.defragmentation.optimizing.patterns import Patterns, Prices, Start
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS

COMING = 24
"""Pods that come to a node, at most."""
CHANGES = np.array([[0, 1], [0, 1], [0, 1], [1, 0], [1, 1], [1, 1], [1, 1], [1, 1], [1, 1], [1, 2], [2, 0], [2, 1], [2, 1], [2, 1], [2, 2], [3, 1]])
"""What is tried, each as often: so many leave or come back, and then so many come."""
HALVED = 4
"""Times that heat is halved."""
OUT = 3
"""Most of those."""
CELLS = 1 << 22
"""Numbers that are kept of copies that are annealed together: those of a large cluster with many pods on each node are annealed one part after the other."""
_BITS, _PICKED, _CLASS = 12, 14, 24
"""Bits of a number that say what may be lost; of those that pick a pod on the node, and a class."""


class Filling:
    """Of these patterns."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns, board = patterns, patterns.board
        at_home, nobody = patterns.at_home, len(board.uids)
        self._home = np.full((len(at_home), max(map(len, at_home), default=0)), nobody)
        for node, some in enumerate(at_home):
            self._home[node, : len(some)] = some
        self._many = np.array([len(some) for some in at_home], np.int64)
        self._has = np.hstack((board.need[np.append(board.kind, len(board.need) - 1)], board.home_used))
        """What pods have at home, resources and then devices; nobody's last."""
        self._admits = board.masks[patterns.may][:, patterns.rows].T & patterns.open[patterns.rows][:, None]
        self._turn = 0

    def starts(self, prices: Prices, begin: Sequence[Start], steps: int, heat: int) -> list[tuple[Start, int]]:
        """From each of these on, so many steps: the best on the way, and what it is worth at these prices. About `heat` may be lost at first."""
        each = max(CELLS // (_places(self._home.shape[1]) * self._has.shape[1]), 1)
        return [one for at in range(0, len(begin), each) for one in _Copies(self, prices, begin[at : at + each]).cooled(steps, heat)]


def _places(most: int) -> int:
    """Of a copy, where so many pods are at home on a node at most."""
    return most + COMING + 1


class _Copies:
    """Each has places: of those at home, then of those who have come, and at last nobody's. Whoever has a place and is there leaves by a change, and whoever has left comes back: what that adds to what there is, and what is
    paid for it, is kept for each place (`_swing`, `_pay`), and turned about when it is done."""

    def __init__(self, filling: Filling, prices: Prices, begin: Sequence[Start]) -> None:
        self._filling, self._patterns, self._begin = filling, filling._patterns, begin
        patterns, board = self._patterns, self._patterns.board
        self._node = np.array([one.node for one in begin], np.int64)
        self._rows, self._home, self._many = patterns.rows[self._node], filling._home[self._node], filling._many[self._node]
        self._nobody, self._width = len(board.uids), self._home.shape[1]
        leaving = np.append(patterns.cost[:-1] + prices.move + prices.pods[patterns.of], 0)
        self._pays, self._kneed = prices.pods, board.need[patterns.kind]
        able = filling._admits & (prices.pods > 0)
        self._able = able.sum(axis=1)[self._node]
        self._classes = np.argsort(~able, axis=1, kind="stable")[self._node]
        copies = len(begin)
        # What there is, and who: of those at home who has left, and who has come.
        free, shares, self._loads = board.contents(self._rows)
        self._has, self._columns = np.hstack((free, shares)), free.shape[1]
        self._low = np.minimum(self._has, 0)
        self._gone = np.zeros(self._home.shape, bool)
        self._came, self._number = np.full((copies, COMING), -1), np.zeros(copies, np.int64)
        places = _places(self._width)
        self._swing, self._pay = np.zeros((copies, places, self._has.shape[1]), np.int64), np.zeros((copies, places), np.int64)
        self._swing[:, : self._width], self._pay[:, : self._width] = filling._has.take(self._home, axis=0), -leaving[self._home]
        self._begins, self._homes = np.arange(copies) * places, np.arange(copies) * self._width
        self._seat()
        self._worth = self._weighed(np.arange(copies), self._has, self._loads)
        paid = np.append(self._pays, 0)[self._came].sum(axis=1) - np.where(self._gone, leaving[self._home], 0).sum(axis=1)
        self._score = self._worth - board.worth[self._rows] * THOUSANDTHS + paid
        self._best, self._best_gone, self._best_came = self._score.copy(), self._gone.copy(), self._came.copy()

    def _seat(self) -> None:
        copies = range(len(self._begin))
        flags = {(node, gone): np.isin(self._filling._home[node], gone) for node, gone in dict.fromkeys((one.node, one.gone) for one in self._begin) if gone}
        for copy, one in enumerate(self._begin):
            if one.gone:
                gone = list(one.gone)
                self._gone[copy] = flags[one.node, one.gone]
                self._has[copy] += self._filling._has[gone].sum(axis=0)
                self._loads[copy] -= len(gone)
        left = np.nonzero(self._gone)
        self._swing[left], self._pay[left] = -self._swing[left], -self._pay[left]
        for nth in range(max((len(one.came) for one in self._begin), default=0)):
            which = np.array([copy for copy in copies if len(self._begin[copy].came) > nth and nth < COMING], np.int64)
            classes = np.array([self._begin[copy].came[nth] for copy in which.tolist()], np.int64)
            some, has, loads = self._fitting(which, self._has[which], self._loads[which], classes)
            self._let_in(which[some], classes[some], self._has[which[some]] - has)
            self._has[which[some]], self._loads[which[some]] = has, loads

    def _contents(self, has: np.ndarray, loads: np.ndarray) -> Contents:
        return Contents(has[:, : self._columns], has[:, self._columns :], loads)

    def _fitting(self, copies: np.ndarray, has: np.ndarray, loads: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which of these copies one of a class comes to, and what there is then."""
        some, after = self._patterns.board.fitting(self._rows[copies], self._contents(has, loads), self._patterns.kind[classes], np.full(len(copies), self._nobody))
        return some, np.hstack((after.free, after.shares)), after.loads

    def _let_in(self, copies: np.ndarray, classes: np.ndarray, taken: np.ndarray) -> None:
        at = self._number[copies]
        self._came[copies, at] = classes
        self._swing[copies, self._width + at], self._pay[copies, self._width + at] = taken, -self._pays[classes]
        self._number[copies] = at + 1

    def _weighed(self, copies: np.ndarray, has: np.ndarray, loads: np.ndarray) -> np.ndarray:
        self._patterns.weighed += len(copies)
        return self._patterns.board.weighed(self._rows[copies], self._contents(has, loads)) * THOUSANDTHS

    def cooled(self, steps: int, first: int) -> list[tuple[Start, int]]:
        copies = len(self._begin)
        for step in range(steps):
            some = numbers(self._filling._turn, 2 * copies)
            self._filling._turn += 2 * copies
            # Half as hot as often as `HALVED`, and by straight lines between.
            halved, part = divmod(step * HALVED, steps)
            self._step(some[:copies], some[copies:], (first >> halved) * (2 * steps - part) // (2 * steps))
        size, found = self._patterns.board.size[self._patterns.kind], list[tuple[Start, int]]()
        for copy, one in enumerate(self._begin):
            came = sorted([k for k in self._best_came[copy].tolist() if k >= 0], key=lambda k: (-int(size[k]), k))
            found.append((Start(one.node, tuple(sorted(self._home[copy][self._best_gone[copy]].tolist())), tuple(came)), int(self._best[copy])))
        return found

    def _picked(self, randoms: np.ndarray, many: np.ndarray) -> list[np.ndarray]:
        """Of each copy so `many` places at most, nobody twice, those who have come from last to first, so that each can be taken out by itself; nobody's where there are fewer."""
        picks, picked = (randoms >> np.uint64(_BITS)).astype(np.int64), list[np.ndarray]()
        anybody = self._many > 0
        for nth in range(OUT):
            # As often one of those who have come as one of those who were there: these are many more at first.
            bits = picks >> nth * _PICKED & (1 << _PICKED) - 1
            come = (bits & 1 > 0) & (self._number > 0)
            at = (bits >> 1) * np.where(come, self._number, self._many) >> _PICKED - 1
            picked.append(np.where((many > nth) & (come | anybody), at + np.where(come, self._width, 0), -1))
        for one, other in ((0, 1), (1, 2), (0, 1)):
            picked[one], picked[other] = np.maximum(picked[one], picked[other]), np.minimum(picked[one], picked[other])
        none = [picked[0] < 0, *((picked[nth] < 0) | (picked[nth] == picked[nth - 1]) for nth in range(1, OUT))]
        return [np.where(no, self._width + COMING, at) for no, at in zip(none, picked, strict=True)]

    def _step(self, randoms: np.ndarray, others: np.ndarray, heat: int) -> None:
        """One change of each copy is tried."""
        copies, width = len(self._begin), self._width
        loss = losses(heat, (randoms & np.uint64((1 << _BITS) - 1)).astype(np.int64))
        tries = CHANGES.take((others & np.uint64(15)).astype(np.int64), axis=0)
        picked = self._picked(randoms, tries[:, 0])
        swings, pays = self._swing.reshape(-1, self._swing.shape[2]), self._pay.ravel()
        has, loads, paid, back = self._has.copy(), self._loads.copy(), np.zeros(copies, np.int64), np.zeros(copies, bool)
        for at in picked:
            index = self._begins + at
            has += swings.take(index, axis=0)
            paid += pays.take(index)
            home = at < width
            away = home & self._gone.ravel().take(np.where(home, self._homes + at, 0)) if width else home
            loads += 2 * away - (at < width + COMING)
            back |= away
        able = np.ones(copies, bool)
        returned = np.flatnonzero(back)
        able[returned] = every(has.take(returned, axis=0) >= self._low.take(returned, axis=0))
        # Beside whoever comes back there is hardly ever a place left.
        adds = np.where(back | (self._able == 0) | (self._number > COMING - 2), 0, tries[:, 1])
        added = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
        for nth in range(2):
            some = np.flatnonzero(able & (adds > nth))
            if not len(some):
                break
            at = ((others[some] >> np.uint64(4 + nth * _CLASS)).astype(np.int64) & (1 << _CLASS) - 1) * self._able[some] >> _CLASS
            classes = self._classes[some, at]
            before = has.take(some, axis=0)
            fits, after, after_loads = self._fitting(some, before, loads[some], classes)
            if not nth:
                able[some] = False
                able[some[fits]] = True
            adds[some] = nth
            some, classes = some[fits], classes[fits]
            adds[some] = tries[some, 1]
            added.append((some, classes, before.take(fits, axis=0) - after))
            has[some], loads[some] = after, after_loads
            paid[some] += self._pays[classes]
        left = np.flatnonzero(able)
        worth = self._weighed(left, has.take(left, axis=0), loads[left])
        gained = worth - self._worth[left] + paid[left]
        good = gained >= -loss[left]
        left, worth, gained = left[good], worth[good], gained[good]
        if not len(left):
            return
        accepted = np.zeros(copies, bool)
        accepted[left] = True
        self._has[left], self._loads[left], self._worth[left] = has.take(left, axis=0), loads[left], worth
        self._score[left] += gained
        for at in picked:
            some = np.flatnonzero(accepted & (at < width))
            self._turn_about(some, at[some])
            some = np.flatnonzero(accepted & (at >= width) & (at < width + COMING))
            self._take_out(some, at[some] - width)
        for some, classes, taken in added:
            which = np.flatnonzero(accepted[some])
            self._let_in(some[which], classes[which], taken.take(which, axis=0))
        better = np.flatnonzero(accepted & (self._score > self._best))
        self._best[better], self._best_gone[better], self._best_came[better] = self._score[better], self._gone[better], self._came[better]

    def _turn_about(self, copies: np.ndarray, at: np.ndarray) -> None:
        """Of those at home who was there has left, and who had left is there."""
        self._gone[copies, at] ^= True
        self._swing[copies, at], self._pay[copies, at] = -self._swing[copies, at], -self._pay[copies, at]

    def _take_out(self, copies: np.ndarray, at: np.ndarray) -> None:
        """Of those who have come; the last one takes the place."""
        last = self._number[copies] - 1
        self._came[copies, at] = self._came[copies, last]
        self._swing[copies, self._width + at], self._pay[copies, self._width + at] = self._swing[copies, self._width + last], self._pay[copies, self._width + last]
        self._came[copies, last], self._number[copies] = -1, last
