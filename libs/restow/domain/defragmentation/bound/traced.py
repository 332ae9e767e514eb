"""What nodes hold where they are worth most (`exact.best`): the columns of the program."""

import numpy as np

from restow.domain.defragmentation.bound import exact
from restow.domain.defragmentation.bound.contents import Contents
from restow.domain.defragmentation.bound.exact import Best
from restow.domain.defragmentation.bound.held import Filled, Held, lumped
from restow.domain.defragmentation.bound.problem import REST
from restow.domain.defragmentation.bound.relaxed import NEVER, Totals, dot
from restow.domain.defragmentation.bound.tables import Offer, Prices, Tables, tables


def filled(of: Contents, prices: Prices, limit: int, known: Totals) -> Filled:
    """With at most `limit` moves, and what is known of totals."""
    at = tables(of, prices)
    best = exact.best(of, at)
    alone, held = exact.alone(of, at, best)
    trace = _Trace(of, at, best)
    trace.empty(alone > held)
    worth = trace.worth(alone > held)
    has = np.where(alone > held, 0, of.has - trace.kept)
    return Filled(exact.value(of, at, (alone, held), limit, known), *_lumped(of, worth, trace.inside, trace.moves, has, trace.totals()))


def _lumped(of: Contents, worth: np.ndarray, inside: np.ndarray, moves: np.ndarray, has: np.ndarray, totals: np.ndarray) -> list[np.ndarray]:
    """As in `Filled`, of nodes. `has`: what a node has of the other resource for who is inside."""
    nodes, groups = of.of.nodes, len(of.of.admits)
    spare = np.zeros((len(has), groups))
    spare[np.arange(len(has)), nodes.group] = (has - dot(inside, of.rest)) / REST
    return [lumped(nodes, amounts) for amounts in (worth, inside, moves, spare, totals)]


class _Trace(Held):
    """And `kept`, what is kept for demands `(N,)`."""

    def __init__(self, of: Contents, at: Tables, best: Best) -> None:
        self._contents, self._at, self._best = of, at, best
        super().__init__(of.of)
        wants = of.wants
        whole, loose = of.whole, of.loose
        self.stay(whole.node[best.whole], whole.kind[best.whole], whole.cost[best.whole], whole.devices[best.whole])
        self.stay(loose.node[best.loose], loose.kind[best.loose], loose.cost[best.loose], 1)
        level = wants.levels[of.whole_size]
        np.add.at(self.levels, whole.node[best.whole], -whole.devices[best.whole, None] * level)
        np.add.at(self.levels, of.bin_node[best.is_free], level[None])
        self.levels += best.free[:, None] * level
        self._bins()
        self._arrive()
        self.fits *= at.weights[self._nodes.group] > 0

    def _bins(self) -> None:
        """Who stays in bins, and who arrives there."""
        of, at, best, bins = self._contents, self._at, self._best, self._of.bins
        used = of.used[of.bin_used]
        for home in range(bins.kind.shape[1]):
            # Who has no size may stay where all is free.
            some = np.flatnonzero(best.is_free & of.there[used, home] & (bins.takes[used, home] == 0) & (at.staying[used, home] > 0))
            self.stay(of.bin_node[some], bins.kind[used[some], home], bins.cost[used[some], home], 1)
        some = np.flatnonzero(~best.is_free)
        which = self._way(some)
        for home in range(bins.kind.shape[1]):
            stays = of.ways.who[which, home] == 1
            one = of.ways.bin[which[stays]]
            self.stay(of.bin_node[some[stays]], bins.kind[one, home], bins.cost[one, home], 1)
        node, units = best.filled
        node = np.concatenate([of.bin_node[some], node])
        left = np.concatenate([of.ways.left[which], np.full(len(units), of.whole_size)])
        self._shares(node, left, np.concatenate([best.used[some] - of.ways.units[which], units]))

    def _way(self, some: np.ndarray) -> np.ndarray:
        """Which of `Contents.ways` these bins are filled by."""
        ways, at = self._contents.ways, self._at
        bin_, used = self._contents.bin_used[some], self._best.used[some]
        last = np.append(ways.first[1:], len(ways.bin)) - 1
        found, on = ways.first[bin_], np.arange(len(bin_))
        while len(on := on[at.ways[found[on], used[on]] != at.filled[bin_[on], used[on]]]):
            found[on] += 1
            assert (found <= last[bin_]).all()
        return found

    def _shares(self, node: np.ndarray, left: np.ndarray, units: np.ndarray) -> None:
        """Who arrives in bins with so much left, and what is left then."""
        of, at, whole, wants = self._contents, self._at, self._contents.whole_size, self._contents.wants
        ends = np.pad(at.left, ((0, 0), (0, 1)), constant_values=2 * NEVER)[:, :, None]
        left, _ = self._walked(node, at.shares, np.broadcast_to(ends, at.shares.shape), at.small, left, units)
        one = np.where(of.packed & ~of.is_whole, wants.fit[:whole] / wants.parts, 0)
        np.add.at(self.fits, node, one[left])
        np.add.at(self.levels, node, wants.levels[left])

    def _arrive(self) -> None:
        """Whose devices are whole, and who has none; then what is free and left says how often demands fit."""
        of, at, every, wants = self._contents, self._at, np.arange(len(self._nodes.many)), self._contents.wants
        free, units = self._walked(every, at.after, at.sizeless, at.several, *self._best.left.T)
        self.levels -= (self._best.left[:, 0] - free)[:, None] * wants.levels[of.whole_size]
        free, units = self._walked(every, at.sizeless, at.counted, at.none, free, units)
        # The first amount that pays as much.
        pays = np.einsum("nd,njd->nj", at.weights[self._nodes.group], of.counts[free]) - at.prices.rest[self._nodes.group, None] * of.kept // REST
        step = np.where(of.kept // of.unit <= units[:, None], pays, 2 * NEVER).argmax(axis=1)
        self.kept = of.kept[step]
        self.fits += of.counts[free, step] + free[:, None] * np.where(of.pair, wants.fit[of.whole_size] / wants.parts, 0)

    def _walked(self, node: np.ndarray, table: np.ndarray, ends: np.ndarray, offers: list[Offer], first: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Back from what a table says to where it ends: who arrives is counted on the way, and what is left is returned."""
        group, first, units, on = self._nodes.group[node], first.copy(), units.copy(), np.arange(len(node))
        while len(on):
            now, found = table[group[on], first[on], units[on]], np.zeros(len(on), bool)
            found |= (ended := now == ends[group[on], first[on], units[on]])
            for offer in offers:
                less, fewer = first[on] - offer.size, units[on] - offer.units
                able = ~found & (less >= 0) & (fewer >= 0)
                able &= table[group[on], np.maximum(less, 0), np.maximum(fewer, 0)] + offer.pays[group[on]] == now
                some = on[able]
                np.add.at(self.inside, (node[some], offer.kind[group[some]]), offer.size if table is self._at.after else 1)
                first[some], units[some] = less[able], fewer[able]
                found |= able
            assert found.all()
            on = on[~ended]
        return first, units
