"""What bins and nodes are worth at some prices by the units of another resource that are used (`exact`).

All are of whole numbers; the least, `NEVER`, is what cannot be.
"""

from typing import NamedTuple

import numpy as np

from restow.domain.defragmentation.bound.contents import Contents
from restow.domain.defragmentation.bound.problem import REST
from restow.domain.defragmentation.bound.relaxed import NEVER

FEW_ROWS = 3
"""Where fewer than one row in so many gains by a step, these are copied out and back."""


class Prices(NamedTuple):
    """As `relaxed.Prices`, of which only these matter. `rest` `(G,)`: of the other resource, without which rounded pods would overfill nodes a little each."""

    pods: np.ndarray
    rest: np.ndarray
    move: int
    totals: np.ndarray


class Offer(NamedTuple):
    """Classes that arrive alike, by group the one that pays most, `(G,)` both: so many bins' `size` (of whole ones: so many) and `units`."""

    size: int
    units: int
    pays: np.ndarray
    kind: np.ndarray


class Tables(NamedTuple):
    """At these prices, of groups G, units left or used C: `weights` `(G, D)` of demands; `leaving` `(B, L)`, what the leaving of each costs, and `staying`; `one_free`, what a whole free device is by itself;
    `shares` `(G, units, C)`: of a bin with so many units that are not all free; `filled` `(used, C)`: with who is at home, of the `ways` `(W, C)`, and `free` `(used,)`, if nobody is; `bare` `(G, n, devices + 1, C)`: of so many bins
    with so many free; `after` `(G, devices + 1, C)`: what so many free devices and units left are worth with arrivals of whole devices or of none, `sizeless` before those of whole ones, and `counted` before both.
    `loose`, `whole`: what staying pays. `small`, `none`, `several`: who arrives."""

    prices: Prices
    weights: np.ndarray
    leaving: np.ndarray
    staying: np.ndarray
    one_free: int
    left: np.ndarray
    shares: np.ndarray
    ways: np.ndarray
    filled: np.ndarray
    free: np.ndarray
    bare: np.ndarray
    counted: np.ndarray
    sizeless: np.ndarray
    after: np.ndarray
    loose: np.ndarray
    whole: np.ndarray
    small: list[Offer]
    none: list[Offer]
    several: list[Offer]


def tables(of: Contents, prices: Prices) -> Tables:
    problem, wants, whole, bins = of.of, of.wants, of.whole_size, of.of.bins
    demands = len(wants.parts)
    charge = prices.rest[:, None] * of.rest // REST
    # Who needs nothing, after rounding, is paid for as often as there is one.
    free = np.where(problem.admits, prices.pods - charge, 0).max(axis=0, initial=0)
    prices = prices._replace(pods=prices.pods - np.where((problem.size == 0) & (of.units == 0), free, 0))
    weights = np.where(wants.weights > 0, np.maximum(wants.weights - prices.totals[:demands], 0), 0)
    level = wants.levels @ prices.totals[demands:]
    parts = np.where(of.packed & ~of.is_whole, weights, 0)
    left = (-(-parts[:, None] * wants.fit[None, :whole] // wants.parts)).sum(axis=2) - level[:whole]
    pays = np.where(problem.admits, prices.pods - charge, NEVER)
    stays = prices.pods - charge
    share = np.flatnonzero((problem.size > 0) & (problem.size < whole))
    # Where less that is left is never worth more, whoever pays nothing does not arrive.
    small = _offers(of.width, whole, share, problem.size, of.units, pays, rises=bool((np.diff(left, axis=1) >= 0).all()))
    none = _offers(of.width, 0, np.flatnonzero((problem.size == 0) & (of.units > 0)), problem.size, of.units, pays, rises=True)
    several = np.flatnonzero(problem.size == whole)
    one_free = -int(level[whole])
    several_pay = np.maximum(np.where(problem.admits, (stays - one_free) * problem.parts, NEVER), NEVER)
    several_offers = _offers(of.width, of.most, several, problem.parts, of.units_together, several_pay, rises=False)
    shares = _shares(left, small, np.append(of.ways.left, whole), of.width)
    leaving = np.where(of.there, bins.cost + (prices.move // problem.parts)[bins.kind], 0) if len(problem.size) else bins.cost
    staying = np.where(of.there, stays[bins.group[:, None], bins.kind] + leaving, 0) if len(problem.size) else bins.cost
    ways = np.zeros((0, of.width), np.int64)
    filled = np.full((len(of.used), of.width), NEVER)
    if len(of.ways.bin):
        paid = (staying[of.ways.bin] * of.ways.who).sum(axis=1)
        ways = np.maximum(shifted(shares[bins.group[of.ways.bin], of.ways.left], of.ways.units) + paid[:, None], NEVER)
        filled = np.maximum.reduceat(ways, of.ways.first, axis=0)
    sizeless_home = np.where(of.there & (bins.takes == 0), np.maximum(staying, 0), 0).sum(axis=1)
    free = np.where(bins.capacity[of.used] >= whole, one_free + sizeless_home[of.used], NEVER)
    bare = _bare(of, shares[:, whole], one_free)
    counted = _counted(of, weights, prices.rest)
    pair = (-(-weights * wants.fit[whole] // wants.parts) * of.pair).sum(axis=1)
    counted += pair[:, None, None] * np.arange(of.most + 1)[None, :, None]
    sizeless = counted.copy()
    for c in range(1, of.width):
        for offer in none:
            if offer.units > c:
                break
            np.maximum(sizeless[:, :, c], sizeless[:, :, c - offer.units] + offer.pays[:, None], out=sizeless[:, :, c])
    after = sizeless.copy()
    for u in range(1, of.most + 1):
        for offer in several_offers:
            if offer.size <= u:
                np.maximum(after[:, u, offer.units :], after[:, u - offer.size, : of.width - offer.units] + offer.pays[:, None], out=after[:, u, offer.units :])
    group = problem.nodes.group
    loose = stays[group[of.loose.node], of.loose.kind] + of.loose.cost + prices.move
    move = prices.move // problem.parts[of.whole.kind] * of.whole.devices
    stays_whole = (stays[group[of.whole.node], of.whole.kind] - one_free) * of.whole.devices + of.whole.cost + move
    return Tables(prices, weights, leaving, staying, one_free, left, shares, ways, filled, free, bare, counted, sizeless, np.maximum(after, NEVER), loose, stays_whole, small, none, several_offers)


def _counted(of: Contents, weights: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """`(G, devices + 1, C)`: what demands pay beyond the price of what is kept for them, the best of all amounts that may be."""
    net = np.einsum("gd,ujd->guj", weights, of.counts) - (rest[:, None] * of.kept // REST)[:, None]
    found = np.full((*net.shape[:2], of.width), NEVER)
    first = np.flatnonzero(np.diff(of.kept // of.unit, prepend=-1))
    some = np.maximum.reduceat(net, first, axis=2)
    found[:, :, (of.kept // of.unit)[first]] = some
    return np.maximum.accumulate(found, axis=2)


def _offers(width: int, most: int, classes: np.ndarray, sizes: np.ndarray, units: np.ndarray, pays: np.ndarray, rises: bool) -> list[Offer]:
    """Those that fit, none that needs more than another of its size and pays nowhere more. `rises`: what is left is worth no less the more it is; so who pays nothing does not arrive, nor who is larger than another that pays as much."""
    found: dict[tuple[int, int], Offer] = {}
    for k in classes.tolist():
        size, used = int(sizes[k]), int(units[k])
        if size <= most and used < width:
            had = found.get((size, used), Offer(size, used, np.full(len(pays), 2 * NEVER), np.full(len(pays), -1)))
            found[size, used] = had._replace(pays=np.maximum(had.pays, pays[:, k]), kind=np.where(pays[:, k] > had.pays, k, had.kind))
    some = [offer for _, offer in sorted(found.items()) if offer.pays.max(initial=2 * NEVER) > (0 if rises else NEVER)]
    kept: list[Offer] = []
    for one in some:
        if not any((rises or other.size == one.size) and other.units <= one.units and (other.pays >= one.pays).all() for other in kept):
            kept.append(one)
    return kept


def _shares(left: np.ndarray, offers: list[Offer], needed: np.ndarray, width: int) -> np.ndarray:
    """`(G, whole + 1, C)`: of a bin with so many units, of which something is used if these are all. Only for what is `needed`, and what is left then."""
    whole = left.shape[1]
    found = np.full((len(left), whole + 1, width), NEVER)
    found[:, :whole] = left[:, :, None]
    asked = np.zeros(whole + 1, bool)
    asked[needed] = True
    for x in range(whole, 0, -1):
        if asked[x]:
            asked[[x - offer.size for offer in offers if offer.size <= x]] = True
    for x in np.flatnonzero(asked[1:]).tolist():
        for offer in offers:
            if offer.size > x + 1:
                break
            some = found[:, x + 1, offer.units :]
            np.maximum(some, found[:, x + 1 - offer.size, : width - offer.units] + offer.pays[:, None], out=some)
    return np.maximum(found, NEVER, out=found)


def _bare(of: Contents, filled: np.ndarray, one_free: int) -> np.ndarray:
    """`(G, n, devices + 1, C)`: of so many bins that nobody is at home in with so many of them free."""
    nodes, groups = of.of.nodes, len(filled)
    most = np.zeros(groups, np.int64)
    np.maximum.at(most, nodes.group, of.bare)
    bare = np.full((groups, int(most.max(initial=0)) + 1, of.most + 1, of.width), NEVER)
    bare[:, 0, 0] = 0
    for k in range(1, bare.shape[1]):
        some = np.flatnonzero(most >= k)
        bare[some, k, : k + 1] = joined(bare[some, k - 1, : k + 1], filled[some], np.full(len(some), one_free))
    return bare


# -- steps ---------------------------------------------------------------------------------------------------------------


def joined(value: np.ndarray, filled: np.ndarray, free: np.ndarray) -> np.ndarray:
    """`(n, devices + 1, C)`: with one bin more, which is used as `filled` `(n, C)` says or free, `(n,)`. `filled` does not fall."""
    width = value.shape[2]
    found = np.full_like(value, NEVER)
    rises = (filled > NEVER) & (np.diff(filled, axis=1, prepend=2 * NEVER) != 0)
    often = rises.sum(axis=0)
    for c in np.flatnonzero(often).tolist():
        if often[c] * FEW_ROWS < len(value):
            n = np.flatnonzero(rises[:, c])
            found[n, :, c:] = np.maximum(found[n, :, c:], value[n, :, : width - c] + filled[n, None, c, None])
            continue
        some = found[:, :, c:]
        np.maximum(some, value[:, :, : width - c] + filled[:, None, c, None], out=some)
    np.maximum(found[:, 1:], value[:, :-1] + free[:, None, None], out=found[:, 1:])
    return np.maximum(found, NEVER, out=found)


def shifted(rows: np.ndarray, by: np.ndarray) -> np.ndarray:
    """`(n, C)`: each row so many units further, `(n,)`."""
    at = np.arange(rows.shape[1]) - by[:, None]
    return np.where(at >= 0, np.take_along_axis(rows, np.maximum(at, 0), axis=1), NEVER)
