"""What bins are worth at most where whatever is in one pays for it: exact in the resource that is packed, by price in all others.

`Prices` are the duals of the problem. Whatever they are, the value is a bound: each class is paid for as often as there is one, who leaves pays its cost and `move`,
and what is in a bin pays for the other resources, of which the bin is paid what it has. All of it in integers, so that a bound is never below
what is possible by an error of rounding.
"""

from typing import NamedTuple

import numpy as np

from restow.domain.defragmentation.bound.problem import REST, Problem

NEVER = -(1 << 58)
ANY = 1 << 40
DEAREST = 100
"""No price of a pod, of another resource or of a move is more than so many times `scale`: where the slope is nearly flat a step may be as long as you like, duals may be as large, and integers are not."""


class Prices(NamedTuple):
    """`pods` `(K,)` and `rest` `(G, R)` (of all that the largest node has) `int64`, and `move`: millionths of the objective, none below 0. `split` `(G, D, 1 + R)`: what of a demand's
    weight is paid for what is packed and for each other resource, by how often they allow it: so its least is paid at most. `totals` `(D + L,) int64`: what one more in `Totals` costs; below 0, pays."""

    pods: np.ndarray
    rest: np.ndarray
    move: int
    split: np.ndarray
    totals: np.ndarray


class Totals(NamedTuple):
    """What is known of how often each demand fits on all nodes together, and how often each of `Wants.levels` is there: whole numbers, no fewer than `least` and no more than `most` `(D + L,) int64`; `ANY` where
    nothing is known."""

    least: np.ndarray
    most: np.ndarray

    def pay(self, totals: np.ndarray) -> int:
        """What these prices bring at most."""
        return int(np.where(totals > 0, totals * self.most, totals * self.least).sum())

    def able(self, totals: np.ndarray) -> np.ndarray:
        """Prices of what is known."""
        return np.clip(totals, np.where(self.least > 0, NEVER, 0), np.where(self.most < ANY, -NEVER, 0))


def dearest(of: Problem) -> int:
    """The dearest price. A node is paid `REST` times what one of another resource costs, before that is divided."""
    return min(DEAREST * of.scale, (1 << 62) // REST)


def anything(of: Problem) -> Totals:
    """Nothing is known."""
    many = len(of.wants.parts) + of.wants.levels.shape[1] if of.wants is not None else 0
    return Totals(np.zeros(many, np.int64), np.full(many, ANY))


class Answer(NamedTuple):
    """`value`: no plan gains more beyond its cost, in millionths. What fills the nodes at these prices, by lump (P): `worth` less the cost of who has left, in
    millionths `(P,)`, without what demands pay; `inside` `(P, K)`, how many there are of each class; `spare` `(P, G, R)`, what is left of other resources, in parts of the largest node; `moves` `(P,)`;
    `fits` `(P, G, D)`: how often what is left of what is packed allows each demand. `levels` `(P, L)`: as `Wants.levels`. `steps` `(G, R)`: which of `Wants.steps` pays most at the nodes of a
    group."""

    value: int
    worth: np.ndarray
    inside: np.ndarray
    spare: np.ndarray
    moves: np.ndarray
    fits: np.ndarray
    levels: np.ndarray
    steps: np.ndarray


def relaxed(of: Problem, prices: Prices, limit: int, known: Totals | None = None) -> Answer:
    """With at most `limit` moves, and what is known of totals."""
    bins, nodes = of.bins, of.nodes
    free_rest, steps = _unused(of, prices)
    if of.wants is not None:
        paid = prices.split[:, :, 0]
        left_pays = (-(-paid[:, None] * of.wants.fit[None] // of.wants.parts)).sum(axis=2)
        left_pays -= of.wants.levels @ prices.totals[len(of.wants.parts) :]
        of = of._replace(left=left_pays, together=paid @ of.wants.whole.T if of.together.shape[1] > 1 else of.together)
    width = int(bins.capacity.max(initial=0)) + 1
    pays = prices.pods[None] - _charge(prices.rest, of.rest)
    slot_pays = of.slot_worth - _charge(prices.rest, of.slot_rest[None])[:, 0]
    table, counts, filler, spared = _arrivals(of, np.where(of.admits, pays, 0), slot_pays, width)
    there = bins.kind >= 0
    leaving = np.where(there, bins.cost + (prices.move // of.parts)[bins.kind], 0) if len(of.size) else bins.cost
    to_stay = np.where(there, pays[bins.group[:, None], bins.kind] + leaving, 0) if len(of.size) else bins.cost
    packed, stays, left = _with_home(of, table, to_stay, width)
    all_leave = leaving.sum(axis=1)
    # Of nodes: what leaves with everybody, and what stays.
    loose_leave = nodes.loose_cost + prices.move
    loose_stay = pays[nodes.group[nodes.loose_of], nodes.loose] + loose_leave
    gone = _sums(nodes.of, all_leave[nodes.bin] * nodes.often, len(nodes.many)) + _sums(nodes.loose_of, loose_leave * nodes.loose_often, len(nodes.many))
    held = _sums(nodes.of, packed[nodes.bin] * nodes.often, len(nodes.many)) - gone
    held += _sums(nodes.loose_of, np.maximum(loose_stay, 0) * nodes.loose_often, len(nodes.many)) + ((prices.rest[nodes.group] * nodes.offers) // REST).sum(axis=1)
    alone = np.where(nodes.empty != 0, nodes.empty - gone, NEVER)
    together, freed = _together(of, packed)
    held += nodes.base + together + free_rest
    # Who has no size after rounding is paid for as often as there is one.
    free = np.where(of.admits & (of.size == 0)[None], pays, 0).max(axis=0, initial=0)
    value = int((np.maximum(alone, held) * nodes.many).sum()) + prices.move * limit - int(((prices.pods - free) * of.number).sum()) - of.before
    value += known.pay(prices.totals) if known is not None else 0
    inside, slots = _inside(of, counts[bins.group, left], filler[bins.group], stays)
    return _by_lump(of, value, alone > held, freed, inside, (slots, spared[bins.group, left]), there & ~stays, loose_stay > 0)._replace(steps=steps)


def _unused(of: Problem, prices: Prices) -> tuple[np.ndarray, np.ndarray]:
    """`(N,)` what demands pay at most for what nodes keep of other resources beyond its price, and `Answer.steps`."""
    nodes, groups = of.nodes, len(of.admits)
    pays, chosen = np.zeros(len(nodes.many), np.int64), np.zeros((groups, of.rest.shape[1]), np.int64)
    if of.wants is None:
        return pays, chosen
    largest = np.zeros((groups, of.rest.shape[1]), np.int64)
    np.maximum.at(largest, nodes.group, nodes.offers)
    for r, (units, counts) in enumerate(of.wants.steps):
        net = prices.split[:, :, 1 + r] @ counts.T - prices.rest[:, r, None] * units[None] // REST
        best = np.maximum.accumulate(net, axis=1)
        pays += np.maximum(best[nodes.group, np.searchsorted(units, nodes.offers[:, r], "right") - 1], 0)
        chosen[:, r] = np.where(units[None] <= largest[:, r, None], net, NEVER).argmax(axis=1)
    return pays, chosen


def _together(of: Problem, packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`(N,)` what nodes are paid more where some of their bins have nothing in them, and of each bin of a node how many are those, `(len(nodes.of),)`."""
    bins, nodes, most = of.bins, of.nodes, of.together.shape[1] - 1
    freed = np.zeros(len(nodes.of), np.int64)
    if not most:
        return np.zeros(len(nodes.many), np.int64), freed
    # What is lost by keeping it so.
    less = np.where(bins.capacity >= of.whole, packed - of.left[bins.group, bins.capacity], -NEVER)
    entry = np.repeat(np.arange(len(nodes.of)), nodes.often)
    entry = entry[np.lexsort((less[nodes.bin[entry]], nodes.of[entry]))]
    node, lost = nodes.of[entry], less[nodes.bin[entry]]
    at = np.arange(len(entry)) - np.searchsorted(node, node)
    matrix = np.full((len(nodes.many), most + 1), -NEVER, np.int64)
    matrix[:, 0] = 0
    matrix[node, at + 1] = lost
    able = matrix < -NEVER
    paid = np.where(able, of.together[nodes.group] - np.cumsum(np.where(able, matrix, 0), axis=1), NEVER)
    chosen = paid.argmax(axis=1)
    np.add.at(freed, entry, at < chosen[node])
    return paid[np.arange(len(paid)), chosen], freed


def _sums(at: np.ndarray, amounts: np.ndarray, length: int) -> np.ndarray:
    """`(length,) int64`: the amounts added up where they are; in integers."""
    found = np.zeros(length, np.int64)
    np.add.at(found, at, amounts)
    return found


def _by_lump(
    of: Problem, value: int, emptied: np.ndarray, freed: np.ndarray, inside: np.ndarray, holds: tuple[np.ndarray, np.ndarray], gone: np.ndarray, loose_stays: np.ndarray
) -> Answer:
    """Of bins that are not of `emptied` nodes, or `freed`, what is in them; of the others all are gone. `holds`: slots, and the units that are left of the bin."""
    slots, units = holds
    bins, nodes, classes = of.bins, of.nodes, len(of.size)
    lumps, groups, width = int(nodes.lump.max(initial=-1)) + 1, len(of.admits), len(bins.many)
    each, held = nodes.many[nodes.of], ~emptied[nodes.of]
    at, kept_each = nodes.lump[nodes.of] * width + nodes.bin, each * held * (nodes.often - freed)
    all_of, kept = (np.bincount(at, some, lumps * width).reshape(lumps, width) for some in (each * nodes.often, kept_each))
    cost = (bins.cost * gone).sum(axis=1)
    cost_of_all = np.where(bins.kind >= 0, bins.cost, 0).sum(axis=1)
    moves = (gone / of.parts[bins.kind]).sum(axis=1) if classes else np.zeros(width)
    moves_of_all = ((bins.kind >= 0) / of.parts[bins.kind]).sum(axis=1) if classes else np.zeros(width)
    emptied_bins = all_of - kept
    found = _product(kept, inside)
    worth = dot(kept, slots * of.slot_worth - cost) - dot(emptied_bins, cost_of_all)
    worth += np.bincount(nodes.lump, nodes.many * np.where(emptied, nodes.empty, nodes.base), lumps)
    fits, levels = np.zeros((lumps, groups, 0)), np.zeros((lumps, of.wants.levels.shape[1] if of.wants is not None else 0))
    if of.wants is not None:
        at = nodes.lump[nodes.of]
        np.add.at(levels, at, of.wants.levels[units[nodes.bin]] * kept_each[:, None] + of.wants.levels[bins.capacity[nodes.bin]] * (each * held * freed)[:, None])
        fits = np.zeros((lumps, groups, len(of.wants.parts)))
        one = of.wants.fit / of.wants.parts
        np.add.at(fits, (nodes.lump[nodes.of], nodes.group[nodes.of]), one[units[nodes.bin]] * kept_each[:, None] + one[bins.capacity[nodes.bin]] * (each * held * freed)[:, None])
        np.add.at(fits, (nodes.lump, nodes.group), of.wants.whole[_sums(nodes.of, freed, len(nodes.many))] * (nodes.many * ~emptied)[:, None])
    left = dot(kept, moves) + dot(emptied_bins, moves_of_all)
    # Who is in no bin.
    stays = loose_stays & ~emptied[nodes.loose_of]
    whose, loose = nodes.lump[nodes.loose_of], nodes.loose_often * nodes.many[nodes.loose_of]
    np.add.at(found, (whose, nodes.loose), loose * stays)
    worth -= np.bincount(whose, loose * ~stays * nodes.loose_cost, lumps)
    left += np.bincount(whose, loose * ~stays, lumps)
    spare = np.zeros((lumps, groups, of.rest.shape[1]))
    np.add.at(spare, (nodes.lump, nodes.group), nodes.offers * (nodes.many * ~emptied)[:, None])
    used = np.einsum("bk,kr->br", inside, of.rest) + slots[:, None] * of.slot_rest[None]
    np.add.at(spare, (nodes.lump[nodes.of], nodes.group[nodes.of]), -used[nodes.bin] * kept_each[:, None])
    np.add.at(spare, (whose, nodes.group[nodes.loose_of]), -of.rest[nodes.loose] * (loose * stays)[:, None])
    return Answer(value, worth, found, spare / REST, left, fits, levels, np.zeros((groups, of.rest.shape[1]), np.int64))


def dot(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """`matrix @ vector` by this thread alone: numpy's own starts as many as there are cores, and on a busy machine they spin for longer than they work (four times the CPU time)."""
    return np.einsum("ab,b->a", matrix, vector)


def _product(matrix: np.ndarray, sparse: np.ndarray) -> np.ndarray:
    """`matrix @ sparse`, where most of it is 0."""
    found = np.zeros((len(matrix), sparse.shape[1]))
    column, at = np.nonzero(sparse.T)
    if len(column):
        starts = np.flatnonzero(np.diff(column, prepend=-1))
        found[:, column[starts]] = np.add.reduceat(matrix[:, at] * sparse[at, column], starts, axis=1)
    return found


def _charge(rest: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """`(G, n)`: what `amounts` `(n, R)` cost, each part rounded down: so it is no more than that of the sum."""
    return (rest[:, None, :] * amounts[None] // REST).sum(axis=2)


def _arrivals(of: Problem, pays: np.ndarray, slot_pays: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """By group and units: the most that arrivals and slots of the objective pay, `(G, width)`; how many of each of S sizes that is, `(G, width, S)`; and which class
    pays most of a size, `(G, S)`: K for a slot, K + 1 for nobody. Last the units that are left then, `(G, width)`."""
    groups, classes, most = len(pays), len(of.size), max(width - 1, 1)
    pay, filler = np.zeros((groups, most + 1), np.int64), np.full((groups, most + 1), classes + 1)
    offers = [(int(of.size[k]), pays[:, k], k) for k in range(classes)]
    for size, paid, k in [*offers, (of.slot, slot_pays, classes)]:
        if 0 < size <= most:
            better = paid > pay[:, size]
            pay[better, size], filler[better, size] = paid[better], k
    sizes = np.flatnonzero((filler <= classes).any(axis=0))
    pay, filler = pay[:, sizes], filler[:, sizes]
    value, counts = of.left[:, :width].copy(), np.zeros((groups, width, len(sizes)), np.int16)
    spared = np.tile(np.arange(width), (groups, 1))
    every = np.arange(groups)
    for x in range(1, width):
        as_before = value[:, x - 1] >= value[:, x]
        value[as_before, x], counts[as_before, x], spared[as_before, x] = value[as_before, x - 1], counts[as_before, x - 1], spared[as_before, x - 1]
        fit = int(np.searchsorted(sizes, x, "right"))
        if fit:
            options = value[:, x - sizes[:fit]] + pay[:, :fit]
            chosen = options.argmax(axis=1)
            some = every[options[every, chosen] > value[:, x]]
            at = chosen[some]
            value[some, x] = options[some, at]
            counts[some, x] = counts[some, x - sizes[at]]
            counts[some, x, at] += 1
            spared[some, x] = spared[some, x - sizes[at]]
    return value, counts, filler, spared


def _with_home(of: Problem, table: np.ndarray, pays: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`(B,)` what each bin is paid with who had better stay; `(B, L) bool` who does; `(B,)` the units left to arrivals and slots."""
    bins, longest = of.bins.kind.shape
    pad = int(of.bins.takes.max(initial=0))
    value = np.full((bins, pad + width), NEVER, np.int64)
    value[:, pad:] = table[of.bins.group]
    units, chosen = np.arange(pad, pad + width)[None], []
    for at in range(longest):
        some = int((of.bins.kind[:, at] >= 0).sum())
        with_one = np.take_along_axis(value[:some], units - of.bins.takes[:some, at, None], axis=1) + pays[:some, at, None]
        better = with_one > value[:some, pad:]
        np.copyto(value[:some, pad:], with_one, where=better)
        chosen.append(better)
    left, every = of.bins.capacity.copy(), np.arange(bins)
    stays = np.zeros((bins, longest), bool)
    for at in reversed(range(longest)):
        some = len(chosen[at])
        stays[:some, at] = chosen[at][every[:some], left[:some]]
        left[:some] -= of.bins.takes[:some, at] * stays[:some, at]
    return value[every, pad + of.bins.capacity], stays, left


def _inside(of: Problem, arrived: np.ndarray, filler: np.ndarray, stays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`(B, K)` how many of each class are in each bin, and `(B,)` slots of the objective. `arrived` and `filler` `(B, S)`."""
    inside = np.zeros((len(stays), len(of.size) + 2))
    np.add.at(inside, (np.arange(len(stays))[:, None], filler), arrived)
    at = np.nonzero(stays)
    np.add.at(inside, (at[0], of.bins.kind[at]), 1)
    return inside[:, :-2], inside[:, -2]
