"""What nodes could hold, devices packed exactly: each alone, as well as the prices of pods allow, as if there were enough of all other resources.

By units of a device that are left: what those who come are paid for them, and what it is worth that they are free. Then each device with those who are at home there, who may stay. At last so many
whole devices of a node are kept for those who take several, or are left free together, where the others lose least by it. What comes of it is a beginning (`patterns.Start`): whether there is a place for
all of it, and what it is really worth, is seen when it is carried out.
"""

from math import gcd

import numpy as np

from restow.domain.defragmentation.optimizing.patterns import Patterns, Prices, Start
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS
from restow.domain.defragmentation.usable_worth import UsableWorth
from restow.domain.node_table import NO_DEVICE, WHOLE

UNITS = 200
"""Of a device, at most: sizes are rounded up."""
NEVER = -(1 << 58)
KEPT = 4
"""Beginnings for each node."""


class Packing:
    def __init__(self, patterns: Patterns, worth: UsableWorth) -> None:
        self._patterns, self._worth, board = patterns, worth, patterns.board
        milli, self._parts = board.milli[patterns.kind], np.maximum(board.count[patterns.kind], 1)
        exact = gcd(WHOLE, *milli[milli > 0].tolist())
        self._unit = max(exact, -(-WHOLE // UNITS))
        self._units = WHOLE // self._unit
        self._size = -(-milli // self._unit)
        self._several = (milli >= WHOLE) & (self._parts > 1)
        shares = patterns.board.shares[patterns.rows]
        self._there = shares > NO_DEVICE // 2
        self._nodes, self._width = shares.shape
        bins: list[list[int]] = [[] for _ in range(shares.size)]
        capacity = shares.copy()
        for node, (home, devices) in enumerate(zip(patterns.at_home, patterns.devices, strict=True)):
            for i, of in zip(home, devices, strict=True):
                capacity[node] += board.home_used[i]
                for d in of:
                    bins[node * self._width + d].append(i)
        self._capacity = (np.clip(capacity, 0, WHOLE) // self._unit * self._there).ravel()
        self._home = np.full((len(bins), max(map(len, bins), default=0)), -1)
        for j, some in enumerate(bins):
            self._home[j, : len(some)] = some
        self._group_up()

    def _group_up(self) -> None:
        """Nodes are alike that take the same classes and to which the same is worth as much."""
        patterns, board = self._patterns, self._patterns.board
        weights = np.array([self._weights(row) for row in patterns.rows.tolist()], np.int64).reshape(len(patterns.rows), len(self._worth.wanted))
        admits = board.masks[patterns.may][:, patterns.rows].T & patterns.open[patterns.rows][:, None]
        _, first, group = np.unique(np.hstack([weights, admits]), axis=0, return_index=True, return_inverse=True)
        self._group, self._admits, weights = group.ravel(), admits[first], weights[first]
        units, devices = np.arange(self._units + 1) * self._unit, np.arange(self._width + 1)
        self._left = np.zeros((len(first), len(units)), np.int64)
        self._together = np.zeros((len(first), len(devices)), np.int64)
        for i, one in enumerate(self._worth.wanted):
            if (asked := one.v.devices) is None:
                continue
            if asked.count > 1 and asked.milli >= WHOLE:
                self._together += weights[:, i, None] * (devices // asked.count)
            else:
                self._left += weights[:, i, None] * (units // asked.milli) // asked.count

    def _weights(self, row: int) -> list[int]:
        """No demand is worth more there than the whole node: one that is has no place there, however large it is beside a node that has nearly nothing."""
        return [min(weight, self._worth.whole(row, THOUSANDTHS)) for weight in self._worth.weights(row, THOUSANDTHS)]

    @property
    def able(self) -> bool:
        """Whether anybody has devices."""
        return self._home.shape[1] > 0

    def whole(self) -> np.ndarray:
        """`(nodes,) int64`: what one device of a node is worth where all are free."""
        many = self._there.sum(axis=1)
        return (self._together[self._group, many] + many * self._left[self._group, -1]) // np.maximum(many, 1)

    def starts(self, prices: Prices) -> list[Start]:
        """The best ones for each node."""
        patterns, width, units = self._patterns, self._width, self._units
        pays = prices.pods
        table, came, before = self._coming(pays)
        reserved, takers = self._whole(pays)
        filled, stays, left = self._with_home(table, prices)
        filled = np.where(self._there.ravel(), filled, 0).reshape(-1, width)
        lost = np.where(self._capacity.reshape(-1, width) == units, filled, -NEVER)
        order = np.argsort(lost, axis=1, kind="stable")
        lost = np.minimum(np.cumsum(np.minimum(np.take_along_axis(lost, order, axis=1), -NEVER // width), axis=1), -NEVER)
        able = np.cumsum(self._capacity.reshape(-1, width) == units, axis=1)[:, -1:] >= np.arange(1, width + 1)
        promised = np.full((self._nodes, width + 1), NEVER)
        promised[:, 0] = 0
        promised[:, 1:] = np.where(able, reserved[self._group, 1:] - lost, NEVER)
        # Who is on no device stays where it pays for what it takes.
        loose = (patterns.cost[:-1] + prices.move + pays[patterns.of] <= 0).tolist()
        lists: dict[tuple[int, int], list[int]] = {}
        found, best = list[Start](), np.argsort(-promised, axis=1, kind="stable")[:, :KEPT]
        stay: list[list[int]] = [[] for _ in self._home]
        at = np.nonzero(stays)
        for j, i in zip(at[0].tolist(), self._home[at].tolist(), strict=True):
            stay[j].append(i)
        units_left = left.tolist()
        for node in range(self._nodes):
            group = int(self._group[node])
            bins = [d for d in range(width) if self._there[node, d]]
            for whole in best[node].tolist():
                if promised[node, whole] == NEVER:
                    continue
                kept, comes, staying = set(order[node, :whole].tolist()), dict[int, int](), dict[int, int]()
                for d in bins:
                    if d not in kept:
                        j = node * width + d
                        there = (group, units_left[j])
                        if there not in lists:
                            lists[there] = _listed(came[group], before[group], there[1])
                        for i in stay[j]:
                            staying[i] = staying.get(i, 0) + 1
                        for k in lists[there]:
                            comes[k] = comes.get(k, 0) + 1
                while whole and (k := int(takers[group, whole])) >= 0:
                    comes[k] = comes.get(k, 0) + int(self._parts[k])
                    whole -= int(self._parts[k])
                gone = tuple([i for i, of in zip(patterns.at_home[node], patterns.devices[node], strict=True) if (staying.get(i, 0) < len(of) if of else loose[i])])
                found.append(Start(node, gone, self._largest_first(comes)))
        return found

    def _largest_first(self, comes: dict[int, int]) -> tuple[int, ...]:
        """By class how many parts come: of pods, those of which all do."""
        size = self._patterns.board.size[self._patterns.kind]
        return tuple([k for k in sorted(comes, key=lambda k: (-int(size[k]), k)) for _ in range(comes[k] // int(self._parts[k]))])

    def _coming(self, pays: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """By group and units of one device, `(groups, units + 1)` each: what those who come pay at most, with what is left; the class that came last (-1: nobody), and how many units there were before it."""
        value = self._left.copy()
        came, before = np.full(value.shape, -1), np.zeros(value.shape, np.int64)
        pay, who = np.full((len(value), self._units + 1), NEVER), np.zeros((len(value), self._units + 1), np.int64)
        for k in np.flatnonzero((self._size > 0) & (self._size <= self._units) & ~self._several).tolist():
            paid = np.where(self._admits[:, k], pays[k] // self._parts[k], NEVER)
            better = paid > pay[:, self._size[k]]
            pay[better, self._size[k]], who[better, self._size[k]] = paid[better], k
        sizes = np.flatnonzero((pay > 0).any(axis=0))
        pay, who, every = pay[:, sizes], who[:, sizes], np.arange(len(value))
        for x in range(1, self._units + 1):
            less = value[:, x - 1] > value[:, x]
            value[less, x], came[less, x], before[less, x] = value[less, x - 1], came[less, x - 1], before[less, x - 1]
            if fit := int(np.searchsorted(sizes, x, "right")):
                options = value[:, x - sizes[:fit]] + pay[:, :fit]
                chosen = options.argmax(axis=1)
                some = every[options[every, chosen] > value[:, x]]
                at = chosen[some]
                value[some, x], came[some, x], before[some, x] = options[some, at], who[some, at], x - sizes[at]
        return value, came, before

    def _whole(self, pays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`(groups, devices + 1)` each: what so many whole devices of a node are worth, free or with those who take several; and who takes the last of them (-1: they are free)."""
        value = self._together + np.arange(self._width + 1) * self._left[:, -1:]
        takers = np.full(value.shape, -1)
        for x in range(1, self._width + 1):
            for k in np.flatnonzero(self._several & (self._parts <= x)).tolist():
                with_one = np.where(self._admits[:, k], value[:, x - int(self._parts[k])] + pays[k], NEVER)
                better = with_one > value[:, x]
                value[better, x], takers[better, x] = with_one[better], k
        return value, takers

    def _with_home(self, table: np.ndarray, prices: Prices) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`(bins,)` what each is worth, `(bins, most) bool` who stays there, and `(bins,)` the units that are left to those who come."""
        patterns, units = self._patterns, self._units
        of = np.append(patterns.of, 0)
        paid = patterns.cost + prices.move + prices.pods[of]
        # Of devices that there are, those with the most pods first: whoever comes later in the list concerns fewer and fewer of them.
        many = (self._home >= 0).sum(axis=1)
        bins = np.flatnonzero(self._there.ravel())
        bins = bins[np.argsort(-many[bins], kind="stable")]
        home, many, every = self._home[bins], many[bins], np.arange(len(bins))
        value = np.full((len(bins), 2 * units + 1), NEVER)
        value[:, units:] = table[self._group[bins // self._width]]
        flat, begins, at, chosen = value.ravel(), every * (2 * units + 1) + units, np.arange(units + 1), list[np.ndarray]()
        for nth in range(int(many.max(initial=0))):
            pods = home[: int((many > nth).sum()), nth]
            some = value[: len(pods), units:]
            with_one = flat.take((begins[: len(pods)] - self._size[of[pods]])[:, None] + at) + (paid[pods] // self._parts[of[pods]])[:, None]
            chosen.append(with_one > some)
            np.copyto(some, with_one, where=chosen[-1])
        left, stay = self._capacity[bins], np.zeros(home.shape, bool)
        for nth, better in reversed(list(enumerate(chosen))):
            staying = better[every[: len(better)], left[: len(better)]]
            stay[: len(better), nth] = staying
            left[: len(better)] -= np.where(staying, self._size[of[home[: len(better), nth]]], 0)
        worth, stays, units_left = np.zeros(len(self._home), np.int64), np.zeros(self._home.shape, bool), np.zeros(len(self._home), np.int64)
        worth[bins], stays[bins], units_left[bins] = value[every, units + self._capacity[bins]], stay, left
        return worth, stays, units_left


def _listed(came: np.ndarray, before: np.ndarray, units: int) -> list[int]:
    found = list[int]()
    while came[units] >= 0:
        found.append(int(came[units]))
        units = int(before[units])
    return found
