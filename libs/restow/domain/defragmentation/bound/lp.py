"""The best prices there are, by the linear program over what bins may hold: columns are made as they are needed. By `value` totals are whole numbers: branch and bound over them.

A column is what some bins hold at some prices. The program says how many of each are best, and its duals are the next prices, until its value (which can only
rise) and the lowest bound (which can only fall) meet. Needs HiGHS, the extra `restow[bound]`.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from math import floor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from restow.domain.defragmentation.bound.problem import REST, Problem
from restow.domain.defragmentation.bound.relaxed import ANY, Answer, Prices, Totals, anything, dot, relaxed
from restow.domain.defragmentation.bound.volume import descent

if TYPE_CHECKING:
    import highspy

CLOSE, CLOSER = 0.003, 0.001
"""The two values meet where they differ by less than this part; by `value`, where that costs little, the second."""
DOWN = 80
"""Steps down the slope before the program: without them it begins far off, at 5,000 nodes of openb with a hundred runs that bring nothing. By `value`, where the
first prices are near enough, they cost more than they bring."""
MISSING = -50.0
"""What the program pays for a pod that is in no bin, while there are too few columns."""
SHORT = -20.0
"""And for one that is missing of a total, times what it and a bin are worth."""
LARGEST = 1 << 57
"""What a node may be worth at such prices; all nodes sixteen times that."""
FRACTION = 0.02
"""A total is no whole number if it is farther from one than this."""
PRIMAL_SIMPLEX = 4


def installed() -> bool:
    return find_spec("highspy") is not None


def solved(of: Problem, limit: int, steps: int) -> int:
    """The lowest value found in so many steps."""
    program, centre, best = Program(of, limit), None, 0
    for answer, prices in descent(of, limit, DOWN if of.wants is None else 0):
        program.add(answer)
        if centre is None or answer.value < best:
            centre, best = prices, answer.value
    assert centre is not None, "some prices are always tried"
    leaf, used = program.improved(Leaf(best, anything(of), centre), steps)
    return branched(program, leaf, steps - used) if program.may_branch else leaf.value


def branched(program: "Program", root: "Leaf", steps: int) -> int:
    """Totals are whole numbers: the problem with one of them rounded down, and that with it rounded up, are bounds together, the higher of both. The highest goes on."""
    leaves = [root]
    while steps > 0:
        at = max(range(len(leaves)), key=lambda i: leaves[i].value)
        leaf = leaves.pop(at)
        enough = max((one.value for one in leaves), default=0)
        which = program.fractional(leaf)
        if which is None or leaf.value <= enough:
            leaves.append(leaf)
            break
        for known in _halves(leaf, which):
            child, used = program.improved(leaf._replace(known=known, totals=None), steps, enough)
            steps -= max(used, 1)
            leaves.append(child)
    return max(leaf.value for leaf in leaves)


def _halves(leaf: "Leaf", which: int) -> Iterator[Totals]:
    assert leaf.totals is not None, "it has been solved"
    least, most = leaf.known.least.copy(), leaf.known.most.copy()
    most[which] = floor(leaf.totals[which])
    least[which] = most[which] + 1
    yield Totals(least, leaf.known.most)
    yield Totals(leaf.known.least, most)


class Leaf(NamedTuple):
    """A part of what is possible: no plan in which `known` holds gains more than `value`, by these prices. `totals` `(D + L,)`: as the program has them, None before it is solved."""

    value: int
    known: Totals
    prices: Prices
    totals: np.ndarray | None = None


def _between(of: Problem, one: Prices, other: Prices, trust: float) -> Prices:
    """Duals alone jump about; near the best prices so far they do not."""
    pods, rest, split, totals = (
        np.rint(trust * a + (1 - trust) * b).astype(np.int64) for a, b in ((one.pods, other.pods), (one.rest, other.rest), (one.split, other.split), (one.totals, other.totals))
    )
    return Prices(pods, rest, round(trust * one.move + (1 - trust) * other.move), split if of.wants is None else of.wants.split(split, totals), totals)


class Program:
    """Rows: each class at least as often as there is one, other resources by group, moves, and each lump of bins once. By `value` each group's other resources once, too, and of each demand
    no more than each of what it asks for allows, and of each total no more and no less than is known."""

    def __init__(self, of: Problem, limit: int) -> None:
        import highspy

        self._of, self._limit, self._infinite = of, limit, highspy.kHighsInf
        self._classes, (self._groups, self._others) = len(of.size), (len(of.admits), of.rest.shape[1])
        lumps = int(of.nodes.lump.max(initial=-1)) + 1
        self._moves = self._classes + self._groups * self._others
        self._kept = self._moves + 1 + lumps
        self._counted = self._kept + self._groups * self._others
        weights = of.wants.weights if of.wants is not None else np.zeros((self._groups, 0), np.int64)
        asks = of.wants.asks if of.wants is not None else np.zeros((0, 1 + self._others), bool)
        some = (weights > 0)[:, :, None] & asks[None]
        self._count = np.where(some, self._counted - 1 + np.cumsum(some).reshape(some.shape), -1)
        """The row of each demand of a group and of what it asks for, `(G, D, 1 + R)`; -1 for none."""
        self._totals = self._counted + int(some.sum())
        self._width = self._totals + len(anything(of).least)
        self._duals: np.ndarray | None = None
        self._highs = self._opened(highspy)
        least = np.concatenate([of.number, np.zeros(self._groups * self._others), np.full(self._width - self._moves, -self._infinite)])
        nodes = np.repeat(np.bincount(of.nodes.group, of.nodes.many, self._groups), self._others)
        most = np.concatenate([np.full(self._moves, self._infinite), [limit], np.ones(lumps), nodes, np.zeros(self._totals - self._counted), np.full(self._width - self._totals, self._infinite)])
        self._highs.addRows(self._width, least, most, 0, np.zeros(self._width, np.int32), np.zeros(0, np.int32), np.zeros(0))
        self._columns(np.full(self._classes, MISSING), np.eye(self._classes, self._width), np.full(self._classes, self._infinite))
        self._add_sizeless()
        self._add_demands(weights)
        totals, self._worths = np.arange(self._totals, self._width), _worths(of)
        self._columns(SHORT * (1 + self._worths / of.scale), np.eye(self._width)[totals], np.full(len(totals), self._infinite))

    @property
    def may_branch(self) -> bool:
        """Whether there are totals, and integers are large enough for their prices."""
        of = self._of
        if of.wants is None:
            return False
        often = np.concatenate([of.wants.fit.max(axis=0), of.wants.levels.max(axis=0)]) * of.bins_on_one
        for _, counts in of.wants.steps:
            often[: counts.shape[1]] = np.maximum(often[: counts.shape[1]], counts.max(axis=0))
        most = float(of.scale + (-SHORT * (of.scale + self._worths) * often).sum())
        return most < LARGEST and most * int(of.nodes.many.sum()) < LARGEST * 16

    def improved(self, leaf: Leaf, steps: int, enough: int = 0) -> tuple[Leaf, int]:
        """By better prices, in so many steps at most, or until it is no more than `enough`; and how many these were."""
        for i, (low, high) in enumerate(zip(leaf.known.least.tolist(), leaf.known.most.tolist(), strict=True)):
            self._highs.changeRowBounds(self._totals + i, low if low > 0 else -self._infinite, high if high < ANY else self._infinite)
        close = CLOSE if self._of.wants is None else CLOSER
        centre, best, totals, trust, used = leaf.prices, leaf.value, leaf.totals, 0.7, 0
        while used < steps:
            used += 1
            upper, duals, totals = self.run(leaf.known)
            if best - upper <= close * abs(upper) or best <= enough:
                break
            while True:
                prices = _between(self._of, centre, duals, trust)
                answer = relaxed(self._of, prices, self._limit, leaf.known)
                better = answer.value < best
                if better:
                    centre, best = prices, answer.value
                trust = min(trust + 0.1, 0.9) if better else max(trust - 0.1, 0.0)
                if self.add(answer) or better or not trust:
                    break
        return Leaf(best, leaf.known, centre, totals), used

    def fractional(self, leaf: Leaf) -> int | None:
        """The total by whose being no whole number most is gained; None where all are."""
        if leaf.totals is None:
            return None
        part = leaf.totals - np.floor(leaf.totals)
        gained = np.where(np.minimum(part, 1 - part) > FRACTION, np.minimum(part, 1 - part) * self._worths, 0)
        return int(gained.argmax()) if gained.max(initial=0) > 0 else None

    @staticmethod
    def _opened(highspy: Any) -> "highspy.Highs":
        """One thread: a process that is copied has no more."""
        highs = highspy.Highs()
        for option, value in {"output_flag": False, "threads": 1, "presolve": "off", "solver": "simplex", "simplex_strategy": PRIMAL_SIMPLEX}.items():
            highs.setOptionValue(option, value)
        highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        return highs

    def _add_sizeless(self) -> None:
        """Whoever has no size after rounding may be in any bin that admits it."""
        of = self._of
        some = [(k, g) for k in np.flatnonzero(of.size == 0).tolist() for g in np.flatnonzero(of.admits[:, k]).tolist()]
        matrix = np.zeros((len(some), self._width))
        for i, (k, g) in enumerate(some):
            matrix[i, k] = 1
            at = self._classes + g * self._others
            matrix[i, at : at + self._others] = -of.rest[k] / REST
        self._columns(np.zeros(len(some)), matrix, np.array([float(of.number[k]) for k, _ in some]))

    def _add_demands(self, weights: np.ndarray) -> None:
        at, demand = np.nonzero(weights)
        matrix = np.zeros((len(at), self._width))
        for c in range(1 + self._others):
            rows = self._count[at, demand, c]
            matrix[np.flatnonzero(rows >= 0), rows[rows >= 0]] = 1
        matrix[np.arange(len(at)), self._totals + demand] = 1
        self._columns(weights[at, demand] / self._of.scale, matrix, np.full(len(at), self._infinite))

    def _steps(self, answer: Answer) -> np.ndarray:
        """What nodes keep of other resources, as columns."""
        wants = self._of.wants
        if wants is None:
            return np.zeros((0, self._width))
        matrix = np.zeros((self._groups * self._others, self._width))
        for g in range(self._groups):
            for r, (units, counts) in enumerate(wants.steps):
                one, step = matrix[g * self._others + r], answer.steps[g, r]
                rows = self._count[g, :, 1 + r]
                one[rows[rows >= 0]] = -counts[step][rows >= 0]
                one[self._classes + g * self._others + r] = -units[step] / REST
                one[self._kept + g * self._others + r] = 1
        return matrix

    def _columns(self, worth: np.ndarray, matrix: np.ndarray, most: np.ndarray) -> None:
        at, rows = np.nonzero(matrix)
        starts = np.searchsorted(at, np.arange(len(matrix))).astype(np.int32)
        self._highs.addCols(len(matrix), worth, np.zeros(len(matrix)), most, len(rows), starts, rows.astype(np.int32), matrix[at, rows])

    def add(self, answer: Answer) -> int:
        """How many columns that are better than what the program has."""
        lumps = len(answer.worth)
        matrix = np.zeros((lumps, self._width))
        matrix[:, : self._classes] = answer.inside
        matrix[:, self._classes : self._moves] = answer.spare.reshape(lumps, self._groups * self._others)
        matrix[:, self._moves] = answer.moves
        matrix[np.arange(lumps), self._moves + 1 + np.arange(lumps)] = 1
        some = self._count[:, :, 0] >= 0
        matrix[:, self._count[:, :, 0][some]] = -answer.fits[:, some]
        matrix[:, self._width - answer.levels.shape[1] :] = answer.levels
        steps = self._steps(answer)
        worth, matrix = np.concatenate([answer.worth / self._of.scale, np.zeros(len(steps))]), np.concatenate([matrix, steps])
        if self._duals is not None:
            better = worth - dot(matrix, self._duals) > 1e-7
            worth, matrix = worth[better], matrix[better]
        if len(worth):
            self._columns(worth, matrix, np.full(len(worth), self._infinite))
        return len(worth)

    def run(self, known: Totals) -> tuple[float, Prices, np.ndarray]:
        """Its value, in millionths beyond what there is now, its duals, and its totals."""
        self._highs.run()
        solution = self._highs.getSolution()
        duals = self._duals = np.array(solution.row_dual)
        pods, rest = duals[: self._classes], duals[self._classes : self._moves].reshape(self._groups, self._others)
        scale = self._of.scale
        split = np.where(self._count >= 0, duals[self._count] * scale, 0)
        totals = known.able(np.rint(duals[self._totals :] * scale).astype(np.int64))
        prices = Prices(np.maximum(-pods * scale, 0), np.maximum(-rest * scale, 0), round(max(float(duals[self._moves]), 0) * scale), split, totals)
        return self._highs.getInfo().objective_function_value * scale - self._of.before, prices, np.array(solution.row_value)[self._totals :]


def _worths(of: Problem) -> np.ndarray:
    """`(D + L,)`: about what one more in each total is worth."""
    if of.wants is None:
        return np.zeros(0)
    weights = of.wants.weights.sum(axis=0) / np.maximum((of.wants.weights > 0).sum(axis=0), 1)
    worth = (of.wants.fit / of.wants.parts) @ weights
    # Where as much is left as the size of a level.
    at = np.minimum((of.wants.levels > 0).argmax(axis=0), len(worth) - 1)
    return np.append(weights, worth[at] - worth[np.maximum(at - 1, 0)])
