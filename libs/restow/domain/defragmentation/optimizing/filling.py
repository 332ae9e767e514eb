"""What nodes could hold, by simulated annealing of each alone at the prices of pods: for plans by `value` (`pricing`).

Several copies of all nodes at once, each with its own contents: some of those who are there leave, or who has left comes back, and others come. At first also where the node and what is paid for them lose a little by it,
at last only where they gain. What was best on the way is a pattern's beginning. All in integers, by numbers that look like chance.
"""

from collections.abc import Sequence

import numpy as np

from restow.domain.defragmentation.optimizing.annealing import losses, numbers
from restow.domain.defragmentation.optimizing.board import Contents
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
        self._needs, self._uses = board.need[np.append(board.kind, len(board.need) - 1)], board.home_used
        self._admits = board.masks[patterns.may][:, patterns.rows].T & patterns.open[patterns.rows][:, None]
        self._turn = 0

    def starts(self, prices: Prices, begin: Sequence[Start], steps: int, heat: int) -> list[tuple[Start, int]]:
        """From each of these on, so many steps: the best on the way, and what it is worth at these prices. About `heat` may be lost at first."""
        return _Copies(self, prices, begin).cooled(steps, heat)


class _Copies:
    def __init__(self, filling: Filling, prices: Prices, begin: Sequence[Start]) -> None:
        self._filling, self._patterns, self._begin = filling, filling._patterns, begin
        patterns, board = self._patterns, self._patterns.board
        self._node = np.array([one.node for one in begin], np.int64)
        self._rows, self._home, self._many = patterns.rows[self._node], filling._home[self._node], filling._many[self._node]
        self._nobody = len(board.uids)
        self._leaving = np.append(patterns.cost[:-1] + prices.move + prices.pods[patterns.of], 0)
        self._pays, self._kneed = prices.pods, board.need[patterns.kind]
        able = filling._admits & (prices.pods > 0)
        self._able = able.sum(axis=1)[self._node]
        self._classes = np.argsort(~able, axis=1, kind="stable")[self._node]
        copies = len(begin)
        # What there is, and who: of those at home who has left, and who has come, with the devices that each has.
        self._free, self._shares, self._loads = (of.copy() for of in board.contents(self._rows))
        self._low, self._low_shares = np.minimum(self._free, 0), np.minimum(self._shares, 0)
        self._gone = np.zeros(self._home.shape, bool)
        self._came, self._took = np.full((copies, COMING), -1), np.zeros((copies, COMING, self._shares.shape[1]), np.int64)
        self._number = np.zeros(copies, np.int64)
        self._seat()
        self._worth = self._weighed(np.arange(copies), self._free, self._shares, self._loads)
        paid = np.append(self._pays, 0)[self._came].sum(axis=1) - np.where(self._gone, self._leaving[self._home], 0).sum(axis=1)
        self._score = self._worth - board.worth[self._rows] * THOUSANDTHS + paid
        self._best, self._best_gone, self._best_came = self._score.copy(), self._gone.copy(), self._came.copy()

    def _seat(self) -> None:
        board, patterns = self._patterns.board, self._patterns
        for copy, one in enumerate(self._begin):
            if one.gone:
                gone = list(one.gone)
                self._gone[copy] = np.isin(self._home[copy], gone)
                self._free[copy] += self._filling._needs[gone].sum(axis=0)
                self._shares[copy] += self._filling._uses[gone].sum(axis=0)
                self._loads[copy] -= len(gone)
        for nth in range(max((len(one.came) for one in self._begin), default=0)):
            which = np.array([copy for copy, one in enumerate(self._begin) if len(one.came) > nth and nth < COMING], np.int64)
            classes = np.array([self._begin[copy].came[nth] for copy in which.tolist()], np.int64)
            some, after = board.fitting(self._rows[which], Contents(self._free[which], self._shares[which], self._loads[which]), patterns.kind[classes], np.full(len(which), self._nobody))
            which, classes = which[some], classes[some]
            at = self._number[which]
            self._took[which, at], self._came[which, at] = self._shares[which] - after.shares, classes
            self._number[which] += 1
            self._free[which], self._shares[which], self._loads[which] = after

    def _weighed(self, copies: np.ndarray, free: np.ndarray, shares: np.ndarray, loads: np.ndarray) -> np.ndarray:
        self._patterns.weighed += len(copies)
        return self._patterns.board.weighed(self._rows[copies], Contents(free, shares, loads)) * THOUSANDTHS

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

    def _step(self, randoms: np.ndarray, others: np.ndarray, heat: int) -> None:
        """One change of each copy is tried."""
        copies = len(self._begin)
        loss = losses(heat, (randoms & np.uint64((1 << _BITS) - 1)).astype(np.int64))
        picks = (randoms >> np.uint64(_BITS)).astype(np.int64)
        tries = CHANGES[(others & np.uint64(15)).astype(np.int64)]
        picked = np.empty((copies, OUT), np.int64)
        for nth in range(OUT):
            # As often one of those who have come as one of those who were there: these are many more at first.
            bits = picks >> nth * _PICKED & (1 << _PICKED) - 1
            come = (bits & 1 > 0) & (self._number > 0)
            at = (bits >> 1) * np.where(come, self._number, self._many) >> _PICKED - 1
            picked[:, nth] = np.where((tries[:, 0] > nth) & (come | (self._many > 0)), at + np.where(come, self._many, 0), -1)
        # Those who have come from last to first, so that each can be taken out by itself; nobody twice.
        picked = -np.sort(-picked, axis=1)
        picked[:, 1:][picked[:, 1:] == picked[:, :-1]] = -1
        free, shares, loads, paid = self._free.copy(), self._shares.copy(), self._loads.copy(), np.zeros(copies, np.int64)
        back = np.zeros(copies, bool)
        for nth in range(OUT):
            at = picked[:, nth]
            some = np.flatnonzero(at >= self._many)
            if len(some):
                slot = at[some] - self._many[some]
                classes = self._came[some, slot]
                free[some] += self._kneed[classes]
                shares[some] += self._took[some, slot]
                loads[some] -= 1
                paid[some] -= self._pays[classes]
            some = np.flatnonzero((at >= 0) & (at < self._many))
            if len(some):
                pods, away = self._home[some, at[some]], self._gone[some, at[some]]
                sign = np.where(away, -1, 1)
                free[some] += self._filling._needs[pods] * sign[:, None]
                shares[some] += self._filling._uses[pods] * sign[:, None]
                loads[some] -= sign
                paid[some] -= self._leaving[pods] * sign
                back[some] |= away
        able = np.ones(copies, bool)
        returned = np.flatnonzero(back)
        able[returned] = (free[returned] >= self._low[returned]).all(axis=1) & (shares[returned] >= self._low_shares[returned]).all(axis=1)
        # Beside whoever comes back there is hardly ever a place left.
        adds = np.where(back | (self._able == 0) | (self._number > COMING - 2), 0, tries[:, 1])
        added = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
        for nth in range(2):
            some = np.flatnonzero(able & (adds > nth))
            if not len(some):
                break
            at = ((others[some] >> np.uint64(4 + nth * _CLASS)).astype(np.int64) & (1 << _CLASS) - 1) * self._able[some] >> _CLASS
            classes = self._classes[some, at]
            fits, after = self._patterns.board.fitting(self._rows[some], Contents(free[some], shares[some], loads[some]), self._patterns.kind[classes], np.full(len(some), self._nobody))
            if not nth:
                able[some] = False
                able[some[fits]] = True
            adds[some] = nth
            some, classes = some[fits], classes[fits]
            adds[some] = tries[some, 1]
            added.append((some, classes, shares[some] - after.shares))
            free[some], shares[some], loads[some] = after
            paid[some] += self._pays[classes]
        left = np.flatnonzero(able)
        worth = self._weighed(left, free[left], shares[left], loads[left])
        gained = worth - self._worth[left] + paid[left]
        good = gained >= -loss[left]
        left, worth, gained = left[good], worth[good], gained[good]
        if not len(left):
            return
        accepted = np.zeros(copies, bool)
        accepted[left] = True
        self._free[left], self._shares[left], self._loads[left] = free[left], shares[left], loads[left]
        self._worth[left] = worth
        self._score[left] += gained
        for nth in range(OUT):
            at = picked[:, nth]
            some = np.flatnonzero(accepted & (at >= self._many))
            if len(some):
                slot, last = at[some] - self._many[some], self._number[some] - 1
                self._came[some, slot], self._took[some, slot] = self._came[some, last], self._took[some, last]
                self._came[some, last], self._number[some] = -1, last
            some = np.flatnonzero(accepted & (at >= 0) & (at < self._many))
            self._gone[some, at[some]] ^= True
        for some, classes, taken in added:
            which = np.flatnonzero(accepted[some])
            some = some[which]
            at = self._number[some]
            self._came[some, at], self._took[some, at] = classes[which], taken[which]
            self._number[some] = at + 1
        better = np.flatnonzero(accepted & (self._score > self._best))
        self._best[better], self._best_gone[better], self._best_came[better] = self._score[better], self._gone[better], self._came[better]
