"""The bound by `value` where requests take parts of two devices of a node at once, and no node has more than two: the two NUMA zones of a host, say.

`relaxed` counts half of such a request for each device that has room for its part, and lets half of such a pod leave: so a host with room in one zone alone is worth more than it is before anybody has moved. Here each node is
filled exactly in both devices together: by tables over the units of each that are used by whoever has but one part there, for each set of those with two parts that may stay, and by one over what is left of both. Other resources
are left out.
"""

from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from restow.domain.defragmentation.bound import relaxed
from restow.domain.defragmentation.bound.contents import alike_in, sums
from restow.domain.defragmentation.bound.held import STAY, ByNode, Filled, Held, lumped
from restow.domain.defragmentation.bound.problem import Problem
from restow.domain.defragmentation.bound.relaxed import NEVER, Totals, anything, dearest

CLOSE = 0.001
"""The program's value and the bound meet where they differ by less than this part."""
CELLS = 40_000_000
"""What may be weighed in one step at most: units of both devices, for each node and each set of pods that may stay."""
CHUNK = 1 << 18
"""Of these so many together."""
LARGEST = 1 << 61
"""All that prices may come to in all: integers are large enough."""


class Prices(NamedTuple):
    """As `relaxed.Prices`, of which only these matter."""

    pods: np.ndarray
    move: int
    totals: np.ndarray


class Cases(NamedTuple):
    """Sets of pods with two parts that may stay on a node together, those of one node one after the other and those of one group, too: `node`, the units that they take of each device, `(C,)` both; who it is, a class and what the leaving of a part
    costs, `(C, S)`, -1 for nobody. `first`: of each node."""

    node: np.ndarray
    takes: np.ndarray
    kind: np.ndarray
    cost: np.ndarray
    first: np.ndarray


class Pairs:
    """What does not depend on prices. `devices` `(N, 2)`: the bins of each node, the last one, of which nothing is, where it has fewer; of bins `(B + 1,)` what they have; who is at home in one with nothing elsewhere, `kind`, `takes` and `cost` `(B + 1, L)`."""

    def __init__(self, of: Problem) -> None:
        assert of.wants is not None
        self.of, self.wants, bins, nodes = of, of.wants, of.bins, of.nodes
        none = len(bins.many)
        self.capacity, self.width = np.append(bins.capacity, 0), int(bins.capacity.max(initial=0)) + 1
        self.group = np.append(bins.group, 0)
        one = (bins.kind >= 0) & (of.parts[bins.kind] == 1)
        order = np.argsort(~one, axis=1, kind="stable")[:, : int(one.sum(axis=1).max(initial=0))]
        self.kind = np.vstack([np.take_along_axis(np.where(one, bins.kind, -1), order, axis=1), np.full((1, order.shape[1]), -1)])
        self.takes, self.cost = (np.vstack([np.take_along_axis(np.where(one, some, 0), order, axis=1), np.zeros((1, order.shape[1]), np.int64)]) for some in (bins.takes, bins.cost))
        entry = np.repeat(np.arange(len(nodes.of)), nodes.often)
        entry = entry[np.argsort(nodes.of[entry], kind="stable")]
        node = nodes.of[entry]
        self.devices = np.full((len(nodes.many), 2), none)
        self.devices[node, np.arange(len(entry)) - np.searchsorted(node, node)] = nodes.bin[entry]
        self.cases = self._cases()

    @staticmethod
    def may(of: Problem) -> bool:
        """Whether there is anything with two parts of devices, no node has more than two and nothing has more parts, and all that may be asked for is asked of devices."""
        if of.wants is None or not 0 < of.whole < of.wants.fit.shape[0] or not len(of.size) or of.bins_on_one > 2 or int(of.parts.max()) > 2 or int(of.wants.parts.max()) > 2:
            return False
        if not ((of.wants.parts == 2).any() or ((of.parts == 2) & (of.size < of.whole)).any()) or (of.wants.weights > 0)[:, ~of.wants.asks[:, 0]].any():
            return False
        if dearest_pair(of) < 2 * of.scale:
            return False
        homes = [_two(of, b) for b in range(len(of.bins.many))]
        there: list[list[int]] = [[] for _ in of.nodes.many]
        for n, b, often in zip(of.nodes.of.tolist(), of.nodes.bin.tolist(), of.nodes.often.tolist(), strict=True):
            there[n] += [b] * often
        # Both of its parts are there, or it is not known where they are.
        if any(homes[some[0]] != homes[some[-1]] or (len(some) == 1 and homes[some[0]]) for some in there if some):
            return False
        sets = sum([prod(len(costs) + 1 for *_, costs in homes[some[0]]) for some in there if some])
        return sets * int(of.bins.capacity.max(initial=0) + 1) ** 2 <= CELLS

    @staticmethod
    def enough(of: Problem) -> bool:
        """Whether there is so much of the other resources that they never decide: whatever fills the devices of a node, all demands would still fit."""
        assert of.wants is not None
        nodes, sized = of.nodes, of.size > 0
        units = sums(nodes.of, of.bins.capacity[nodes.bin] * nodes.often, len(nodes.many))
        for r, (steps, counts) in enumerate(of.wants.steps):
            dearest_unit = int((-(-of.rest[sized, r] // of.size[sized])).max(initial=0))
            left = nodes.offers[:, r] - units * dearest_unit - sums(nodes.loose_of, of.rest[nodes.loose, r] * nodes.loose_often, len(nodes.many))
            fits = counts[np.maximum(np.searchsorted(steps, left, "right") - 1, 0)]
            if (left < 0).any() or of.rest[~sized, r].any() or (of.wants.asks[:, 1 + r] & (fits < 2 * of.wants.fit[-1])).any():
                return False
        return True

    def _cases(self) -> Cases:
        node, takes, who, known = [], [], [], dict[int, list[tuple[int, list[tuple[int, int]]]]]()
        order = np.argsort(self.of.nodes.group, kind="stable")
        for n in order.tolist():
            b = int(self.devices[n, 0])
            if b not in known:
                two = _two(self.of, b) if b < len(self.of.bins.many) else []
                known[b] = [
                    (sum([taken * count for (_, taken, _), count in zip(two, many, strict=True)]), [(kind, cost) for (kind, _, costs), count in zip(two, many, strict=True) for cost in costs[:count]])
                    for many in product(*(range(len(costs) + 1) for *_, costs in two))
                ]
            for taken, some in known[b]:
                if taken <= self.capacity[self.devices[n]].min():
                    node.append(n)
                    takes.append(taken)
                    who.append(some)
        longest = max(map(len, who), default=0)
        kind, cost = np.full((len(who), longest), -1), np.zeros((len(who), longest), np.int64)
        for c, some in enumerate(who):
            for at, (k, paid) in enumerate(some):
                kind[c, at], cost[c, at] = k, paid
        nodes = np.array(node, np.int64)
        return Cases(nodes, np.array(takes, np.int64), kind, cost, np.flatnonzero(np.diff(nodes, prepend=-1)))


Two = tuple[int, int, list[int]]
"""Who is of one class and takes as much of each of two devices: class, units, and what the leaving of a part costs, the dearest first."""


def _two(of: Problem, b: int) -> list[Two]:
    bins = of.bins
    return sorted((int(bins.kind[b, some[0]]), int(bins.takes[b, some[0]]), [int(bins.cost[b, j]) for j in some]) for some in alike_in(bins, b) if of.parts[bins.kind[b, some[0]]] == 2)


def dearest_pair(of: Problem) -> int:
    """The dearest price: on all nodes together what pods pay at most is an integer."""
    return min(dearest(of), LARGEST // (2 * (int(of.bins.capacity.max(initial=0)) + 1) * max(int(of.nodes.many.sum()), 1)))


class Tables(NamedTuple):
    """At some prices, of groups G and units W of a device: `weights` `(G, D)`; `arrived` `(G, W)`, what those with one part pay who take so many units, and `came`, the class of the last; `used` `(B + 1, W)`: with who is at home, and `stays` `(L, B + 1, W)`, whether each
    does; `left` `(T + 1, G, W, W)`: what is left of both devices is worth, with none, the first, ... of the `two` that arrive with two parts, of a size, each a class by group."""

    weights: np.ndarray
    arrived: np.ndarray
    came: np.ndarray
    used: np.ndarray
    stays: np.ndarray
    left: np.ndarray
    two: list[tuple[int, np.ndarray]]


def _tables(of: Pairs, prices: Prices) -> Tables:
    problem, wants, width = of.of, of.wants, of.width
    demands, groups = len(wants.parts), len(problem.admits)
    weights = np.where(wants.weights > 0, np.maximum(wants.weights - prices.totals[:demands], 0), 0)
    fit, both = wants.fit[:width], wants.parts == 2
    alone = (weights[:, None, ~both] * fit[None][:, :, ~both]).sum(axis=2) - wants.levels[:width] @ prices.totals[demands:]
    left = alone[:, :, None] + alone[:, None, :]
    for i in np.flatnonzero(both).tolist():
        left += weights[:, i, None, None] * np.minimum(fit[:, None, i], fit[None, :, i])
    free = np.minimum((np.arange(width) >= problem.whole)[:, None] + (np.arange(width) >= problem.whole).astype(np.int64), len(wants.whole) - 1)
    left += (weights[:, None] * wants.whole[None]).sum(axis=2)[:, free]
    pays = np.where(problem.admits, prices.pods, NEVER // 2)
    arrived, came = np.full((groups, width), NEVER), np.full((groups, width), -1)
    arrived[:, 0] = 0
    one = _best_of_sizes(pays, problem.size, np.flatnonzero((problem.parts == 1) & (problem.size > 0) & (problem.size < width)))
    for x in range(1, width):
        for size, paid, who in one:
            if size > x:
                break
            found = arrived[:, x - size] + paid
            better = (found > arrived[:, x]) & (paid > 0)
            arrived[better, x], came[better, x] = found[better], who[better]
    np.maximum(arrived, NEVER, out=arrived)
    lefts, two = [left], _best_of_sizes(pays * 2, problem.size, np.flatnonzero((problem.parts == 2) & (problem.size > 0) & (problem.size < width)))
    for size, paid, _ in two:
        left = left.copy()
        for a in range(size, width):
            np.maximum(left[:, a, size:], left[:, a - size, : width - size] + paid[:, None], out=left[:, a, size:])
        lefts.append(left)
    used, stays, at = arrived[of.group], np.zeros((of.kind.shape[1], len(of.group), width), bool), np.arange(width)
    for nth in range(of.kind.shape[1]):
        kind = of.kind[:, nth]
        paid = np.where(kind >= 0, prices.pods[kind] + of.cost[:, nth] + prices.move, NEVER)
        place = at - of.takes[:, nth, None]
        with_one = np.where(place >= 0, np.take_along_axis(used, np.maximum(place, 0), axis=1) + paid[:, None], NEVER)
        stays[nth] = with_one > used
        used = np.maximum(used, with_one)
    return Tables(weights, arrived, came, np.maximum(used, NEVER), stays, np.array(lefts), [(size, who) for size, _, who in two])


def _best_of_sizes(pays: np.ndarray, size: np.ndarray, classes: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Each size with what the class that pays most of it pays in each group, `(G,)`, and which that is; the smallest first."""
    found = []
    for one in np.unique(size[classes]).tolist():
        some = classes[size[classes] == one]
        best = pays[:, some].argmax(axis=1)
        found.append((one, pays[np.arange(len(pays)), some[best]], some[best]))
    return found


def filled(of: Pairs, prices: Prices, limit: int, known: Totals) -> Filled:
    """With at most `limit` moves, and what is known of totals."""
    problem, nodes, bins, cases = of.of, of.of.nodes, of.of.bins, of.cases
    at, pair_move = _tables(of, prices), prices.move // 2 * 2
    loose_leave = nodes.loose_cost + prices.move
    loose_stays = prices.pods[nodes.loose] + loose_leave > 0
    there = bins.kind >= 0
    leaving = np.where(there, bins.cost + prices.move // np.where(there, problem.parts[bins.kind], 1), 0).sum(axis=1)
    gone = sums(nodes.of, leaving[nodes.bin] * nodes.often, len(nodes.many)) + sums(nodes.loose_of, loose_leave * nodes.loose_often, len(nodes.many))
    # Both of its parts pay, or stay away.
    staying = np.where(cases.kind >= 0, 2 * (prices.pods[cases.kind] + cases.cost) + pair_move, 0).sum(axis=1)
    best, left = _best(of, at, staying)
    chosen = _first_best(best, cases)
    held = np.zeros(len(nodes.many), np.int64)
    which = cases.node[chosen]
    held[which] = best[chosen]
    held += nodes.base - gone + sums(nodes.loose_of, np.where(loose_stays, prices.pods[nodes.loose] + loose_leave, 0) * nodes.loose_often, len(nodes.many))
    alone = np.where(nodes.empty != 0, nodes.empty - gone, NEVER)
    value = int((np.maximum(alone, held) * nodes.many).sum()) + prices.move * limit - int((prices.pods * problem.number).sum()) + known.pay(prices.totals) - problem.before
    trace = _Trace(of, at, chosen, left[chosen], loose_stays)
    trace.empty(alone > held)
    return Filled(value, *(lumped(nodes, some) for some in (trace.worth(alone > held), trace.inside, trace.moves, np.zeros((len(nodes.many), 0)), trace.totals())))


def _first_best(best: np.ndarray, cases: Cases) -> np.ndarray:
    """The best case of each node, in the order of the cases."""
    most = np.maximum.reduceat(best, cases.first) if len(best) else best
    lengths = np.diff(np.append(cases.first, len(best)))
    found = np.flatnonzero(best == np.repeat(most, lengths))
    return found[np.searchsorted(found, cases.first)]


def _best(of: Pairs, at: Tables, staying: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What each case is worth, `(C,)`, and the units that are left of both devices to those who arrive with two parts and to demands, `(C, 2)`."""
    cases, width = of.cases, of.width
    best, left = np.full(len(cases.node), NEVER), np.zeros((len(cases.node), 2), np.int64)
    units, group, each = np.arange(width), of.of.nodes.group[cases.node], max(CHUNK // (width * width), 1)
    bounds = np.flatnonzero(np.diff(group, prepend=-1, append=-1))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        free = at.left[-1, group[begin]]
        for first in range(begin, end, each):
            some = slice(first, min(first + each, end))
            parts = []
            for device in of.devices[cases.node[some]].T:
                place = (of.capacity[device] - cases.takes[some])[:, None] - units
                parts.append(np.where(place >= 0, np.take_along_axis(at.used[device], np.maximum(place, 0), axis=1), NEVER))
            value = (parts[0][:, :, None] + free) + parts[1][:, None, :]
            value = value.reshape(len(value), -1)
            chosen = value.argmax(axis=1)
            best[some] = value[np.arange(len(value)), chosen] + staying[some]
            left[some, 0], left[some, 1] = chosen // width, chosen % width
    return best, left


class _Trace(Held):
    def __init__(self, of: Pairs, at: Tables, chosen: np.ndarray, left: np.ndarray, loose_stays: np.ndarray) -> None:
        super().__init__(of.of)
        self._pairs, self._at = of, at
        problem, nodes, wants, cases = of.of, of.of.nodes, of.wants, of.cases
        often = nodes.loose_often[loose_stays]
        self.stay(nodes.loose_of[loose_stays], nodes.loose[loose_stays], nodes.loose_cost[loose_stays] * often, often)
        node = cases.node[chosen]
        for who, cost in zip(cases.kind[chosen].T, cases.cost[chosen].T, strict=True):
            some = np.flatnonzero(who >= 0)
            self.stay(node[some], who[some], cost[some] * 2, 2)
        for nth in range(2):
            device = of.devices[node, nth]
            self._device(node, device, of.capacity[device] - cases.takes[chosen] - left[:, nth])
        left = self._arrive(node, left)
        fit, (one, other) = wants.fit, left.T
        self.fits[node] = np.where(wants.parts == 2, np.minimum(fit[one], fit[other]), fit[one] + fit[other])
        self.fits[node] += wants.whole[np.minimum((left >= problem.whole).sum(axis=1), len(wants.whole) - 1)]
        self.levels[node] = wants.levels[one] + wants.levels[other]
        self.fits *= at.weights[nodes.group] > 0

    def _device(self, node: np.ndarray, device: np.ndarray, units: np.ndarray) -> None:
        """Who stays in these, and who arrives with one part, where so many units are used."""
        of, at = self._pairs, self._at
        for nth in reversed(range(len(at.stays))):
            some = np.flatnonzero(at.stays[nth, device, units])
            one = device[some]
            self.stay(node[some], of.kind[one, nth], of.cost[one, nth], 1)
            units = units.copy()
            units[some] -= of.takes[one, nth]
        group, on = of.group[device], np.flatnonzero(units > 0)
        while len(on):
            who = at.came[group[on], units[on]]
            np.add.at(self.inside, (node[on], who), 1)
            units[on] -= of.of.size[who]
            on = on[units[on] > 0]

    def _arrive(self, node: np.ndarray, left: np.ndarray) -> np.ndarray:
        """Who arrives with two parts where so much is left, and what is left then."""
        at, group, left = self._at, self._pairs.of.nodes.group[node], left.copy()
        for nth in reversed(range(len(at.two))):
            size, who = at.two[nth]
            on = np.arange(len(node))
            while len(on := on[at.left[nth + 1, group[on], left[on, 0], left[on, 1]] != at.left[nth, group[on], left[on, 0], left[on, 1]]]):
                np.add.at(self.inside, (node[on], who[group[on]]), 2)
                left[on] -= size
        return left


class Paired(ByNode):
    """Without other resources."""

    SOME = 200
    _trust, _less = 0.7, 0.0

    def __init__(self, of: Problem, limit: int) -> None:
        self._pairs = Pairs(of)
        super().__init__(of, limit, 0, CLOSE)

    def same(self, of: Problem, limit: int) -> "Paired":
        return Paired(of, limit)

    def nobody_leaves(self) -> Prices:
        return self._with(np.zeros(self._classes, np.int64), self._of.scale * STAY, anything(self._of).least)

    def of_relaxed(self, prices: relaxed.Prices) -> Prices:
        return self._with(prices.pods, prices.move, prices.totals)

    def _with(self, pods: np.ndarray, move: int, totals: np.ndarray) -> Prices:
        """Who needs nothing has a place anywhere."""
        most = dearest_pair(self._of)
        return Prices(np.where(self._of.size > 0, np.clip(pods, 0, most), 0), min(max(move, 0), most), totals)

    def between(self, one: Prices, other: Prices, trust: float) -> Prices:
        pods, totals = (np.rint(trust * a + (1 - trust) * b).astype(np.int64) for a, b in ((one.pods, other.pods), (one.totals, other.totals)))
        return Prices(pods, round(trust * one.move + (1 - trust) * other.move), totals)

    def answer(self, prices: Prices, known: Totals) -> Filled:
        return filled(self._pairs, prices, self._limit, known)

    def prices(self, duals: np.ndarray, known: Totals) -> Prices:
        whole = np.rint(np.clip(duals * self._of.scale, NEVER, -NEVER)).astype(np.int64)
        return self._with(-whole[: self._classes], int(whole[self._classes]), known.able(whole[self._totals :]))
