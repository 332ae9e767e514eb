"""What bins are worth at most where whatever is in one pays for it: exact in the resource that is packed, by price in all others.

`Prices` are the duals of the problem. Whatever they are, the value is a bound: each class is paid for as often as there is one, who leaves pays its cost and `move`,
and what is in a bin pays for the other resources, of which the bin is paid what it has. All of it in integers, so that a bound is never below
what is possible by an error of rounding.
"""

from typing import NamedTuple

import numpy as np

from restow.domain.defragmentation.bound.problem import REST, Problem

NEVER = -(1 << 50)


class Prices(NamedTuple):
    """`pods` `(K,)` and `rest` `(G, R)` (of all that the largest node has) `int64`, and `move`: millionths of the objective, none below 0."""

    pods: np.ndarray
    rest: np.ndarray
    move: int


class Answer(NamedTuple):
    """`value`: no plan gains more beyond its cost, in millionths. What fills the bins at these prices, `(B, …)`: `worth` less the cost of who has left, in millionths;
    `inside` `(K)`, how many there are of each class; `spare` `(R)`, what is left of other resources, in parts of the largest node; `moves`."""

    value: int
    worth: np.ndarray
    inside: np.ndarray
    spare: np.ndarray
    moves: np.ndarray


def relaxed(of: Problem, prices: Prices, limit: int) -> Answer:
    """With at most `limit` moves."""
    width = int(of.capacity.max(initial=0)) + 1
    pays = prices.pods[None] - _charge(prices.rest, of.rest)
    slot_pays = of.slot_worth - _charge(prices.rest, of.slot_rest[None])[:, 0]
    table, counts, filler = _arrivals(of, np.where(of.admits, pays, 0), slot_pays, width)
    there = of.kind >= 0
    leaving = np.where(there, of.cost + (prices.move // of.parts)[of.kind], 0) if len(of.size) else of.cost
    to_stay = np.where(there, pays[of.group[:, None], of.kind] + leaving, 0) if len(of.size) else of.cost
    packed, stays, left = _with_home(of, table, to_stay, width)
    all_leave = leaving.sum(axis=1)
    held = packed + ((prices.rest[of.group] * of.offers) // REST).sum(axis=1) - all_leave
    alone = np.where(of.empty > 0, of.empty - all_leave, NEVER)
    emptied = alone > held
    # Who has no size after rounding is paid for as often as there is one.
    free = np.where(of.admits & (of.size == 0)[None], pays, 0).max(axis=0, initial=0)
    value = int((np.maximum(alone, held) * of.many).sum()) + prices.move * limit - int(((prices.pods - free) * of.number).sum()) - of.before
    stays &= ~emptied[:, None]
    inside, slots = _inside(of, counts[of.group, left] * ~emptied[:, None], filler[of.group], stays)
    gone = there & ~stays
    worth = np.where(emptied, of.empty, slots * of.slot_worth) - (of.cost * gone).sum(axis=1)
    spare = of.offers * ~emptied[:, None] - inside @ of.rest - slots[:, None] * of.slot_rest[None]
    moves = (gone / of.parts[of.kind]).sum(axis=1) if len(of.size) else np.zeros(len(gone))
    return Answer(value, worth, inside, spare / REST, moves)


def _charge(rest: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """`(G, n)`: what `amounts` `(n, R)` cost, each part rounded down: so it is no more than that of the sum."""
    return (rest[:, None, :] * amounts[None] // REST).sum(axis=2)


def _arrivals(of: Problem, pays: np.ndarray, slot_pays: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By group and units: the most that arrivals and slots of the objective pay, `(G, width)`; how many of each of S sizes that is, `(G, width, S)`; and which class
    pays most of a size, `(G, S)`: K for a slot, K + 1 for nobody."""
    groups, classes, most = len(pays), len(of.size), max(width - 1, 1)
    pay, filler = np.zeros((groups, most + 1), np.int64), np.full((groups, most + 1), classes + 1)
    offers = [(int(of.size[k]), pays[:, k], k) for k in range(classes)]
    for size, paid, k in [*offers, (of.slot, slot_pays, classes)]:
        if 0 < size <= most:
            better = paid > pay[:, size]
            pay[better, size], filler[better, size] = paid[better], k
    sizes = np.flatnonzero((filler <= classes).any(axis=0))
    pay, filler = pay[:, sizes], filler[:, sizes]
    value, counts = np.zeros((groups, width), np.int64), np.zeros((groups, width, len(sizes)), np.int16)
    every = np.arange(groups)
    for x in range(1, width):
        value[:, x], counts[:, x] = value[:, x - 1], counts[:, x - 1]
        fit = int(np.searchsorted(sizes, x, "right"))
        if fit:
            options = value[:, x - sizes[:fit]] + pay[:, :fit]
            chosen = options.argmax(axis=1)
            some = every[options[every, chosen] > value[:, x]]
            at = chosen[some]
            value[some, x] = options[some, at]
            counts[some, x] = counts[some, x - sizes[at]]
            counts[some, x, at] += 1
    return value, counts, filler


def _with_home(of: Problem, table: np.ndarray, pays: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`(B,)` what each bin is paid with who had better stay; `(B, L) bool` who does; `(B,)` the units left to arrivals and slots."""
    bins, longest = of.kind.shape
    pad = int(of.takes.max(initial=0))
    value = np.full((bins, pad + width), NEVER, np.int64)
    value[:, pad:] = table[of.group]
    units, chosen = np.arange(pad, pad + width)[None], []
    for at in range(longest):
        some = int((of.kind[:, at] >= 0).sum())
        with_one = np.take_along_axis(value[:some], units - of.takes[:some, at, None], axis=1) + pays[:some, at, None]
        better = with_one > value[:some, pad:]
        np.copyto(value[:some, pad:], with_one, where=better)
        chosen.append(better)
    left, every = of.capacity.copy(), np.arange(bins)
    stays = np.zeros((bins, longest), bool)
    for at in reversed(range(longest)):
        some = len(chosen[at])
        stays[:some, at] = chosen[at][every[:some], left[:some]]
        left[:some] -= of.takes[:some, at] * stays[:some, at]
    return value[every, pad + of.capacity], stays, left


def _inside(of: Problem, arrived: np.ndarray, filler: np.ndarray, stays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`(B, K)` how many of each class are in each bin, and `(B,)` slots of the objective. `arrived` and `filler` `(B, S)`."""
    inside = np.zeros((len(stays), len(of.size) + 2))
    np.add.at(inside, (np.arange(len(stays))[:, None], filler), arrived)
    at = np.nonzero(stays)
    np.add.at(inside, (at[0], of.kind[at]), 1)
    return inside[:, :-2], inside[:, -2]
