"""A linear program over what nodes may hold, and branch and bound over it where totals are whole numbers.

A column is what some bins or nodes hold at some prices. The program says how many of each are best, and its duals are the next prices, until its value (which can only
rise) and the lowest bound (which can only fall) meet. Which prices there are and what is a bound at them, `priced` and `filled` say. Needs HiGHS, the extra `restow[bound]`.
"""

from abc import abstractmethod
from collections.abc import Iterator
from math import floor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from restow.domain.defragmentation.bound.problem import Problem
from restow.domain.defragmentation.bound.relaxed import ANY, Totals, anything, dot

if TYPE_CHECKING:
    import highspy

MISSING = -50.0
"""What the program pays for a pod that is in no bin, for as much of another resource as the largest node has, and for a move beyond the limit, while there are too few columns: so no dual is dearer (`relaxed.DEAREST`)."""
SHORT = -20.0
"""And for one that is missing of a total, times what it and a bin are worth."""
FRACTION = 0.02
"""A total is no whole number if it is farther from one than this."""
MOST_FINISHED = 12
"""Leaves that are made lower once more in the end, one after another, as long as each is the highest."""
FUTILE = 4
"""Leaves in a row that are parted though the highest has hardly fallen since."""
PRIMAL_SIMPLEX = 4


class Answer(Protocol):
    """`value`: no plan gains more beyond its cost, in millionths, and what is best at these prices then."""

    @property
    def value(self) -> int: ...


class Leaf(NamedTuple):
    """A part of what is possible: no plan in which `known` holds gains more than `value`, by these prices. `totals` `(D + L,)`: as the program has them, None before it is solved. `finished`: it is no
    longer worked on."""

    value: int
    known: Totals
    prices: Any
    totals: np.ndarray | None = None
    finished: bool = False


class Program:
    """`_trust`: in the best prices so far, at first; and how much less it is after others that are no better but new. `close`: the program's value and a bound meet where they differ by less than this part. `width`: of rows, of which the last are the totals. `ceiling`: where its value is no
    lower than that, it is of no use."""

    _trust, _less = 0.7, 0.1

    def __init__(self, of: Problem, limit: int, width: int, close: float, ceiling: int | None = None) -> None:
        import highspy

        self._ceiling = ceiling
        self._of, self._limit, self._close, self._width, self._infinite = of, limit, close, width, highspy.kHighsInf
        self._totals, self._worths = width - len(anything(of).least), _worths(of)
        self._duals: np.ndarray | None = None
        self._highs = self._opened(highspy)

    @property
    def may_branch(self) -> bool:
        """Whether it is parted by whole totals."""
        return True

    @abstractmethod
    def first(self) -> Leaf:
        """Where it begins, with columns for that."""

    @abstractmethod
    def add(self, answer: Any) -> int:
        """How many columns that are better than what the program has."""

    @abstractmethod
    def prices(self, duals: np.ndarray, known: Totals) -> Any: ...

    @abstractmethod
    def between(self, one: Any, other: Any, trust: float) -> Any:
        """Duals alone jump about; near the best prices so far they do not."""

    @abstractmethod
    def answer(self, prices: Any, known: Totals) -> Answer: ...

    def finished(self, leaf: Leaf) -> Leaf:
        """With whatever makes its value lower and is worth it only once."""
        return leaf._replace(finished=True)

    def _hoped(self, known: Totals) -> float:
        """The program's value where this is known, with the columns that there are."""
        self._know(known)
        return self.run(known)[0]

    def _know(self, known: Totals) -> None:
        for i, (low, high) in enumerate(zip(known.least.tolist(), known.most.tolist(), strict=True)):
            self._highs.changeRowBounds(self._totals + i, low if low > 0 else -self._infinite, high if high < ANY else self._infinite)

    def improved(self, leaf: Leaf, steps: int, enough: int = 0) -> tuple[Leaf, int]:
        """By better prices, in so many steps at most, or until it is no more than `enough`; and how many these were."""
        self._know(leaf.known)
        centre, best, totals, trust, used, ends = leaf.prices, leaf.value, leaf.totals, self._trust, 0, False
        while used < steps and not ends:
            used += 1
            upper, duals, totals = self.run(leaf.known)
            if best - upper <= self._close * abs(upper) or best <= enough or (self._ceiling is not None and upper >= self._ceiling):
                break
            while True:
                prices = self.between(centre, duals, trust)
                answer = self.answer(prices, leaf.known)
                better = answer.value < best
                if better:
                    centre, best = prices, answer.value
                new = bool(self.add(answer)) or better
                # Without trust these are the duals: if nothing is new then, nothing will be.
                ends = not new and not trust
                trust = min(trust + 0.1, 0.9) if better else max(round(trust - (self._less if new else 0.1), 2), 0.0)
                if new or ends:
                    break
        return Leaf(best, leaf.known, centre, totals), used

    def branched(self, root: Leaf, steps: int) -> int:
        """Totals are whole numbers: the problem with one of them rounded down, and that with it rounded up, are bounds together, the higher of both. The highest goes on."""
        leaves, left, futile, highest = [root], MOST_FINISHED, 0, root.value
        while True:
            leaf = leaves.pop(max(range(len(leaves)), key=lambda i: leaves[i].value))
            if leaf.finished or leaf.value <= 0:
                return leaf.value
            enough = max((one.value for one in leaves), default=0)
            if self._ceiling is not None and leaf.totals is not None and leaf.value >= self._ceiling and self._hoped(leaf.known) >= self._ceiling:
                return leaf.value
            futile, highest = (futile + 1, highest) if leaf.value > highest * (1 - self._close) else (0, leaf.value)
            which = self.fractional(leaf) if steps > 0 and leaf.value > enough and futile <= FUTILE else None
            if which is None:
                leaves.append(self.finished(leaf) if left > 0 else leaf._replace(finished=True))
                left -= 1
                continue
            for known in sorted(halves(leaf, which), key=self._hoped, reverse=True):
                child, used = self.improved(leaf._replace(known=known, totals=None), steps, enough)
                steps, enough = steps - max(used, 1), max(enough, child.value)
                leaves.append(child)

    def fractional(self, leaf: Leaf) -> int | None:
        """The total by whose being no whole number most is gained; None where all are."""
        if leaf.totals is None:
            return None
        part = leaf.totals - np.floor(leaf.totals)
        gained = np.where(np.minimum(part, 1 - part) > FRACTION, np.minimum(part, 1 - part) * self._worths, 0)
        return int(gained.argmax()) if gained.max(initial=0) > 0 else None

    def run(self, known: Totals) -> tuple[float, Any, np.ndarray]:
        """Its value, in millionths beyond what there is now, its duals, and its totals."""
        self._highs.run()
        solution = self._highs.getSolution()
        self._duals = np.array(solution.row_dual)
        value = self._highs.getInfo().objective_function_value * self._of.scale - self._of.before
        return value, self.prices(self._duals, known), np.array(solution.row_value)[self._totals :]

    @staticmethod
    def _opened(highspy: Any) -> "highspy.Highs":
        """One thread: a process that is copied has no more."""
        highs = highspy.Highs()
        for option, value in {"output_flag": False, "threads": 1, "presolve": "off", "solver": "simplex", "simplex_strategy": PRIMAL_SIMPLEX}.items():
            highs.setOptionValue(option, value)
        highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        return highs

    def _rows(self, least: np.ndarray, most: np.ndarray, scarce: int) -> None:
        """With columns for what is missing of classes and of other resources, which are so many rows, the first ones, for moves beyond the limit, which is the next, and for what is missing of totals."""
        self._highs.addRows(self._width, least, most, 0, np.zeros(self._width, np.int32), np.zeros(0, np.int32), np.zeros(0))
        self._columns(np.full(scarce, MISSING), np.eye(scarce, self._width), np.full(scarce, self._infinite))
        self._columns(np.full(1, MISSING), -np.eye(1, self._width, scarce), np.full(1, self._infinite))
        totals = np.arange(self._totals, self._width)
        self._columns(SHORT * (1 + self._worths / self._of.scale), np.eye(self._width)[totals], np.full(len(totals), self._infinite))

    def _add_better(self, worth: np.ndarray, matrix: np.ndarray) -> int:
        """Of these columns those that are worth more than the duals say of what they hold; how many."""
        if self._duals is not None:
            better = worth - dot(matrix, self._duals) > 1e-7
            worth, matrix = worth[better], matrix[better]
        if len(worth):
            self._columns(worth, matrix, np.full(len(worth), self._infinite))
        return len(worth)

    def _columns(self, worth: np.ndarray, matrix: np.ndarray, most: np.ndarray) -> None:
        at, rows = np.nonzero(matrix)
        starts = np.searchsorted(at, np.arange(len(matrix))).astype(np.int32)
        self._highs.addCols(len(matrix), worth, np.zeros(len(matrix)), most, len(rows), starts, rows.astype(np.int32), matrix[at, rows])


def halves(leaf: Leaf, which: int) -> Iterator[Totals]:
    assert leaf.totals is not None, "it has been solved"
    least, most = leaf.known.least.copy(), leaf.known.most.copy()
    most[which] = floor(leaf.totals[which])
    least[which] = most[which] + 1
    yield Totals(least, leaf.known.most)
    yield Totals(leaf.known.least, most)


def _worths(of: Problem) -> np.ndarray:
    """`(D + L,)`: about what one more in each total is worth."""
    if of.wants is None:
        return np.zeros(0)
    weights = of.wants.weights.sum(axis=0) / np.maximum((of.wants.weights > 0).sum(axis=0), 1)
    worth = (of.wants.fit / of.wants.parts) @ weights
    # Where as much is left as the size of a level.
    at = np.minimum((of.wants.levels > 0).argmax(axis=0), len(worth) - 1)
    return np.append(weights, worth[at] - worth[np.maximum(at - 1, 0)])
