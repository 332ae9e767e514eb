"""By `value`: what each node is worth at most where devices and one other resource are packed at once, in whole pods and whole requests.

`relaxed` packs devices and has a price for all else, so half a node's cores may go with one way to fill its devices and half with another. Here each node is filled in one way: who is at home stays as a whole or leaves
as a whole, arrivals share the node's cores, and a request counts as often as whole free devices and what is left of cores allow at once. Only of requests that are smaller than a device the ones that fit into devices in use count
without regard to cores, and of those for parts of several devices each part counts. Prices are for pods, moves and totals, and for what rounding
leaves of cores; whatever they are, the sum is a bound.

The best way is found by tables over what is used of cores (`tables`) and followed back (here, and in `traced`) to what the node holds then, which is a column of the program.
"""

from typing import NamedTuple

import numpy as np

from restow.domain.defragmentation.bound.contents import Contents, Stays, sums
from restow.domain.defragmentation.bound.problem import REST
from restow.domain.defragmentation.bound.relaxed import NEVER, Totals
from restow.domain.defragmentation.bound.tables import Tables, joined

CHUNK = 32
"""Nodes that are worked out together: their tables stay in a processor's cache."""


class Best(NamedTuple):
    """Of nodes at some prices: what they are worth at most without who has to leave `(N,)`; and how: whole free devices and units of the other resource that are left `(N, 2)`, which bins are free and else
    how many units are used in each, who stays of `Contents.whole` and `.loose`, and of bins without anybody how many are free, and which are not: nodes and their units."""

    held: np.ndarray
    left: np.ndarray
    is_free: np.ndarray
    used: np.ndarray
    whole: np.ndarray
    loose: np.ndarray
    free: np.ndarray
    filled: tuple[np.ndarray, np.ndarray]


def value(of: Contents, at: Tables, alone: tuple[np.ndarray, np.ndarray], limit: int, known: Totals) -> int:
    """No plan gains more beyond its cost. `alone`: as the function says."""
    prices, problem = at.prices, of.of
    paid = prices.move * limit - int((prices.pods * problem.number).sum()) + known.pay(prices.totals)
    return int((np.maximum(*alone) * problem.nodes.many).sum()) + paid - problem.before


def alone(of: Contents, at: Tables, best: Best) -> tuple[np.ndarray, np.ndarray]:
    """What each node is worth with nobody on it, and else, `(N,)` both."""
    nodes = of.of.nodes
    gone = sums(nodes.of, at.leaving.sum(axis=1)[nodes.bin] * nodes.often, len(nodes.many))
    gone += sums(nodes.loose_of, (nodes.loose_cost + at.prices.move) * nodes.loose_often, len(nodes.many))
    paid = at.prices.rest[nodes.group] * of.has // REST
    return np.where(nodes.empty != 0, nodes.empty - gone, NEVER), best.held - gone + nodes.base + paid


def best(of: Contents, at: Tables) -> Best:
    nodes, none = len(of.of.nodes.many), np.zeros(0, np.int64)
    found = Best(
        np.zeros(nodes, np.int64), np.zeros((nodes, 2), np.int64), np.zeros(len(of.bin_node), bool), np.zeros(len(of.bin_node), np.int64),
        np.zeros(len(of.whole.node), bool), np.zeros(len(of.loose.node), bool), np.zeros(nodes, np.int64), (none, none),
    )  # fmt: skip
    filled = [(none, none)]
    for first in range(0, nodes, CHUNK):
        filled += _chunk(of, at, found, first, min(first + CHUNK, nodes))
    node, units = zip(*filled, strict=True)
    return found._replace(filled=(np.concatenate(node), np.concatenate(units)))


def _chunk(of: Contents, at: Tables, found: Best, first: int, last: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of these nodes, from the first on, everything that `found` says, and `Best.filled`. What they are worth is known by how many of their devices are free and how many units are used; whoever is
    at home is added one by one, and taken back again in the opposite order. `before`: of the nodes of each round, without who is added there. `most`: no node has more free devices so far."""
    some, most = np.arange(first, last), int(of.bare[first:last].max())
    group, width = of.of.nodes.group[some], int(of.offers[some].max()) + 1
    worth = at.bare[group, of.bare[some], :, :width]
    before: list[np.ndarray] = []
    rounds = [
        (kind, which)
        for kind, (node, number) in enumerate(((of.bin_node, of.bin_at), (of.loose.node, of.loose.at), (of.whole.node, of.whole.at)))
        for which in _rounds(node, number, first, last)
    ]
    for kind, which in rounds:
        if kind == 0:
            n, b = of.bin_node[which] - first, of.bin_used[which]
            most = min(most + 1, of.most)
            had = worth[n, : most + 1]
            worth[n, : most + 1] = joined(had, at.filled[b, :width], at.free[b])
        else:
            stays, pays = (of.loose, at.loose) if kind == 1 else (of.whole, at.whole)
            n = stays.node[which] - first
            had = worth[n, : most + 1]
            worth[n, : most + 1] = _stay(had, stays, pays, which)
        before.append(had)
    worth = worth[:, : most + 1]
    for one, (of_group, offers) in enumerate(zip(group.tolist(), of.offers[some].tolist(), strict=True)):
        worth[one, :, : offers + 1] += at.after[of_group, : most + 1, offers::-1]
        worth[one, :, offers + 1 :] += NEVER
    worth = worth.reshape(len(some), -1)
    chosen = worth.argmax(axis=1)
    found.held[some] = worth[np.arange(len(some)), chosen]
    free, used = chosen // width, chosen % width
    found.left[some] = np.stack([free, of.offers[some] - used], axis=1)
    for (kind, which), had in zip(reversed(rounds), reversed(before), strict=True):
        if kind == 0:
            n, b = of.bin_node[which] - first, of.bin_used[which]
            found.is_free[which], found.used[which] = _parted(had, at.filled[b, :width], at.free[b], free[n], used[n])
            free[n] -= found.is_free[which]
            used[n] -= found.used[which]
            continue
        stays, pays, chose = (of.loose, at.loose, found.loose) if kind == 1 else (of.whole, at.whole, found.whole)
        n, each = stays.node[which] - first, np.arange(len(which))
        more, less = free[n] + stays.devices[which], used[n] - stays.units[which]
        with_one = np.where((more <= most) & (less >= 0), had[each, np.minimum(more, most), np.maximum(less, 0)] + pays[which], 2 * NEVER)
        chose[which] = with_one > had[each, free[n], used[n]]
        free[n], used[n] = np.where(chose[which], more, free[n]), np.where(chose[which], less, used[n])
    filled, bins = [], of.bare[some].copy()
    while len(n := np.flatnonzero(bins > 0)):
        is_free, by = _parted(at.bare[group[n], bins[n] - 1], at.shares[group[n], of.whole_size], np.full(len(n), at.one_free), free[n], used[n])
        found.free[some[n]] += is_free
        filled.append((some[n[~is_free]], by[~is_free]))
        free[n] -= is_free
        used[n] -= by
        bins[n] -= 1
    return filled


def _stay(had: np.ndarray, stays: Stays, pays: np.ndarray, which: np.ndarray) -> np.ndarray:
    """With these, one of each node, where they stay: each of so many whole devices fewer are free."""
    found, (devices_most, width) = had.copy(), had.shape[1:]
    for devices, units in set(zip(stays.devices[which].tolist(), stays.units[which].tolist(), strict=True)):
        n = np.flatnonzero((stays.devices[which] == devices) & (stays.units[which] == units))
        if units < width:
            with_one = had[n, devices:, : width - units] + pays[which[n], None, None]
            found[n, : devices_most - devices, units:] = np.maximum(found[n, : devices_most - devices, units:], with_one)
    return found


def _rounds(node: np.ndarray, at: np.ndarray, first: int, last: int) -> list[np.ndarray]:
    """Of nodes from the first on, the first of each, the second, and so on."""
    low, high = np.searchsorted(node, [first, last])
    return [low + np.flatnonzero(at[low:high] == j) for j in range(int(at[low:high].max(initial=-1)) + 1)]


def _parted(before: np.ndarray, filled: np.ndarray, free: np.ndarray, devices: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How what `joined` found came to be, of so many free devices and units: whether the bin is free, and how many units are used in it."""
    each, units = np.arange(len(before)), np.arange(before.shape[2])
    with_free = np.where(devices > 0, before[each, np.maximum(devices - 1, 0), used] + free, 2 * NEVER)
    less = used[:, None] - units
    with_filled = np.where(less >= 0, before[each[:, None], devices[:, None], np.maximum(less, 0)] + filled[:, : len(units)], 4 * NEVER)
    by = with_filled.argmax(axis=1)
    is_free = with_free >= with_filled[each, by]
    return is_free, np.where(is_free, 0, by)

