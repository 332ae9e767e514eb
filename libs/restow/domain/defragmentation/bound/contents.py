"""What nodes have and who is at home there, as `tables` and `exact` need it: all that does not depend on prices."""

from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from restow.domain.defragmentation.bound.problem import Bins, Nodes, Problem
from restow.domain.defragmentation.bound.valued import NO_LIMIT

MOST_WAYS, ALL_WAYS = 2_000, 200_000
"""In which those at home in a bin may stay, of one bin and of all."""
MOST_ENTRIES = 1 << 26
"""Of the largest of `tables`, at the finest units: half a GiB. A node that says it has 256 devices, or a wrong number of them, would take many GiB."""
LARGEST = 1 << 52
"""What all nodes are worth at most, together: at the dearest prices integers are large enough for it then."""


class Stays(NamedTuple):
    """Who may stay, one each: on which `node`, its number `at` that node, its class `kind`, what its leaving costs, its whole `devices` and its `units` of the other resource."""

    node: np.ndarray
    at: np.ndarray
    kind: np.ndarray
    cost: np.ndarray
    devices: np.ndarray
    units: np.ndarray


class Ways(NamedTuple):
    """Who of those at home in a bin may stay together: the bin's number in `Contents.used` and its own, what is left of it `(W,)`, the units of the other resource, and who it is, `(W, L)` of 0 and 1. `first`: of each used bin."""

    used: np.ndarray
    bin: np.ndarray
    left: np.ndarray
    units: np.ndarray
    who: np.ndarray
    first: np.ndarray


class Contents:
    """What does not depend on prices. `unit`: so many of the other resource (of `REST`) are one; each pod's are rounded down."""

    def __init__(self, of: Problem, unit: int) -> None:
        assert of.wants is not None
        self.of, self.wants, self.whole_size, self.unit = of, of.wants, of.whole, unit
        bins, nodes, wants, whole = of.bins, of.nodes, of.wants, of.whole
        rest = of.rest[:, 0] if of.rest.shape[1] else np.zeros(len(of.size), np.int64)
        self.rest, self.units, self.units_together = rest, rest // unit, rest * of.parts // unit
        self.has = nodes.offers[:, 0] if of.rest.shape[1] else np.zeros(len(nodes.many), np.int64)
        self.offers = self.has // unit
        self.width = int(self.offers.max(initial=0)) + 1
        self.most = int(sums(nodes.of, nodes.often, len(nodes.many)).max(initial=0))
        self.there = bins.kind >= 0
        homes, takes = self.there.sum(axis=1), bins.takes[:, 0] if bins.takes.shape[1] else np.zeros(len(bins.many), np.int64)
        full = (homes == 1) & (bins.capacity == whole) & (takes == whole)
        bare = full | ((homes == 0) & (bins.capacity == whole))
        self.bare = sums(nodes.of, nodes.often * bare[nodes.bin], len(nodes.many))
        """How many bins of each node nobody is at home in, or one who has all of it: by itself each is free."""
        entry = np.flatnonzero(~bare[nodes.bin])
        self.bin_node, self.bin_at, entry = numbered(nodes.of, np.repeat(entry, nodes.often[entry]))
        self.used, self.bin_used = np.unique(nodes.bin[entry], return_inverse=True)
        self.ways = self._ways()
        self.whole = self._whole(np.flatnonzero(full[nodes.bin]))
        node, at, entry = numbered(nodes.loose_of, np.repeat(np.arange(len(nodes.loose_of)), nodes.loose_often))
        self.loose = Stays(node, at, nodes.loose[entry], nodes.loose_cost[entry], np.zeros(len(node), np.int64), self.units[nodes.loose[entry]])
        self.packed, self.is_whole = wants.asks[:, 0], wants.fit[:whole].max(axis=0, initial=0) == 0
        self.pair = (wants.parts > 1) & ~self.is_whole
        self.kept, self.counts = self._counts()

    @staticmethod
    def may(of: Problem) -> bool:
        """Whether nodes have devices, no more than one other resource is told, integers are large enough for what all are worth at the dearest prices, tables are not too large, and not too many share a device."""
        if of.wants is None or of.rest.shape[1] > 1 or not 0 < of.whole < of.wants.fit.shape[0] or of.scale * int(of.nodes.many.sum()) >= LARGEST:
            return False
        most = int(sums(of.nodes.of, of.nodes.often, len(of.nodes.many)).max(initial=0))
        if len(of.admits) * (most + 1) ** 2 * (int(of.nodes.offers.max(initial=0)) + 1) > MOST_ENTRIES:
            return False
        ways = [prod(len(some) + 1 for some in alike_in(of.bins, b)) for b in range(len(of.bins.many))]
        return max(ways, default=0) <= MOST_WAYS and sum(ways) <= ALL_WAYS

    def _ways(self) -> Ways:
        bins, whole, longest = self.of.bins, self.whole_size, self.of.bins.kind.shape[1]
        which, left, units, who = [], [], [], []
        for i, b in enumerate(self.used.tolist()):
            alike = alike_in(bins, b)
            for many in product(*(range(len(some) + 1) for some in alike)):
                stay = [j for some, count in zip(alike, many, strict=True) for j in some[:count]]
                unused = min(int(bins.capacity[b]), whole) - int(bins.takes[b, stay].sum())
                # Whoever shares a device that is over-committed may go on doing so.
                if unused >= 0 or bins.capacity[b] > whole:
                    which.append(i)
                    left.append(max(unused, 0))
                    units.append(int(self.units[bins.kind[b, stay]].sum()))
                    who.append([int(j in stay) for j in range(longest)])
        used = np.array(which, np.int64)
        return Ways(used, self.used[used], np.array(left, np.int64), np.array(units, np.int64), np.array(who, np.int64).reshape(len(used), longest), np.searchsorted(used, np.arange(len(self.used))))

    def _whole(self, entries: np.ndarray) -> Stays:
        """Pods with whole devices: as many of their parts as one has are one; what is left over stays by itself."""
        nodes, bins, of = self.of.nodes, self.of.bins, self.of
        bin_ = nodes.bin[entries]
        who = np.stack([nodes.of[entries], bins.kind[bin_, 0], bins.cost[bin_, 0]], axis=1) if len(entries) else np.zeros((0, 3), np.int64)
        one, of_one = np.unique(who, axis=0, return_inverse=True)
        often = sums(of_one.ravel(), nodes.often[entries], len(one))
        parts = of.parts[one[:, 1]]
        each = np.concatenate([np.repeat(np.arange(len(one)), often // parts), np.repeat(np.arange(len(one)), often % parts)])
        devices = np.concatenate([np.repeat(parts, often // parts), np.ones(int((often % parts).sum()), np.int64)])
        node, at, order = numbered(one[each, 0], np.arange(len(each)))
        kind, cost, devices = one[each[order], 1], one[each[order], 2], devices[order]
        return Stays(node, at, kind, cost * devices, devices, np.where(devices > 1, self.units_together[kind], self.units[kind]))

    def _counts(self) -> tuple[np.ndarray, np.ndarray]:
        """`(J,)` amounts of the other resource of which more would be of no use, and `(devices + 1, J, D)`: how often so many whole free devices and such an amount allow each demand at once."""
        wants, kept = self.wants, np.zeros(1, np.int64)
        other = np.full((1, len(wants.parts)), NO_LIMIT, np.int64)
        if self.of.rest.shape[1]:
            steps, counts = wants.steps[0]
            most = np.searchsorted(steps, self.has.max(initial=0), "right")
            kept, other = steps[:most], np.where(wants.asks[:, 1], counts[:most], NO_LIMIT)
        free = np.arange(self.most + 1)[:, None]
        devices = wants.fit[self.whole_size] * free // wants.parts + wants.whole[np.minimum(free[:, 0], len(wants.whole) - 1)]
        devices = np.where(self.packed, np.where(self.pair, 0, devices), NO_LIMIT)
        found = np.minimum(devices[:, None], other[None])
        return kept, np.where(found < NO_LIMIT, found, 0)


def sampled(of: Problem, which: np.ndarray) -> Problem:
    """With these nodes alone, and the pods that are at home there; what it is worth now is a guess."""
    nodes, place = of.nodes, np.full(len(of.nodes.many), -1)
    place[which] = np.arange(len(which))
    held, loose = np.flatnonzero(place[nodes.of] >= 0), np.flatnonzero(place[nodes.loose_of] >= 0)
    some = Nodes(
        nodes.group[which], nodes.many[which], np.arange(len(which)), nodes.empty[which], nodes.base[which], nodes.offers[which], place[nodes.of[held]], nodes.bin[held], nodes.often[held],
        place[nodes.loose_of[loose]], nodes.loose[loose], nodes.loose_cost[loose], nodes.loose_often[loose],
    )  # fmt: skip
    number, kinds = np.zeros(len(of.number), np.int64), of.bins.kind[some.bin]
    np.add.at(number, kinds[kinds >= 0], np.broadcast_to((some.often * some.many[some.of])[:, None], kinds.shape)[kinds >= 0])
    np.add.at(number, some.loose, some.loose_often * some.many[some.loose_of])
    return of._replace(nodes=some, number=number, before=of.before * int(some.many.sum()) // int(nodes.many.sum()))


def alike_in(bins: Bins, b: int) -> list[list[int]]:
    """Who is at home in this bin, those that are of one class and take as much together: the dearest to move first, for they stay rather than the others."""
    kinds, takes, costs = bins.kind[b].tolist(), bins.takes[b].tolist(), bins.cost[b].tolist()
    found: dict[tuple[int, int], list[int]] = {}
    for j in sorted((j for j, kind in enumerate(kinds) if kind >= 0), key=lambda j: -costs[j]):
        found.setdefault((kinds[j], takes[j]), []).append(j)
    return list(found.values())


def numbered(node: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """These, in the order of their nodes: the node of each, its number on that node, and which it is."""
    which = which[np.argsort(node[which], kind="stable")]
    sorted_ = node[which]
    return sorted_, np.arange(len(sorted_)) - np.searchsorted(sorted_, sorted_), which


def sums(at: np.ndarray, amounts: np.ndarray, length: int) -> np.ndarray:
    """`(length,) int64`: the amounts added up where they are; in integers."""
    found = np.zeros(length, np.int64)
    np.add.at(found, at, amounts)
    return found
