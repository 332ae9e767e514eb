"""What nodes could hold: who stays and who comes, what that is worth, and what it takes from others or leaves to them. For plans by `value` (`pricing`).

A class is pods of equal requests that the same nodes take. At prices for a pod of each class (whoever comes brings it, whoever leaves costs it) and for a move, each node alone says which of its patterns is best.
Here patterns are made that are good at some prices: pods leave device by device, or those first that are cheap for what they take, and then others come, one after the other, where most
is gained by it for what they take. Nodes are in the order of their names; all in integers, so every machine finds the same ones.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from restow.domain.defragmentation.optimizing.board import Board, Contents
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS

BEST, EACH = 3, 20
"""Sets of pods that leave a node from which others are let come in one go, and patterns of a node that are kept."""
SOME, EACH_OF_SOME = 1_000, 40
"""On so few nodes so many patterns of each are kept."""
COMING = 16
"""Pods that come to a node in one go, at most."""
FINISHED = 2_000
"""Beginnings in one go from which pods are let come, the best ones."""
LEFT, KINDS = 1_500, 12
"""Where few contents are weighed, those that promise most: of each node the best set of pods that leave it, so many in all; and so many classes that may come after the first has come."""
TOGETHER = 1 << 18
"""Of beginnings times classes so many are looked at together: what they take of memory grows with these."""
TOP = 5
"""Of each class the best nodes for one of it: there a pattern with it is kept, so that it has a price."""
EVALUATED = 1_000
"""Contents that are weighed in the time of one step of search, about."""
DEAREST = 1 << 52
"""No move is taken to cost more: what all pods of a node cost is to be int64."""


class Prices(NamedTuple):
    """`pods` `(classes,) int64` and `move`, millionths of a thousandth (as `Search.net`)."""

    pods: np.ndarray
    move: int


class Start(NamedTuple):
    """Of a node (its place in `Patterns.rows`): who leaves it, and which classes come, in this order."""

    node: int
    gone: tuple[int, ...]
    came: tuple[int, ...]


class Pattern(NamedTuple):
    """`value`: what the node gains beyond what the leaving costs. `changes`: by class how many more there are on it."""

    start: Start
    value: int
    changes: tuple[tuple[int, int], ...]


NOTHING = ((0, 0),)
"""The entry of a pattern that changes nothing."""


class Table(NamedTuple):
    """Patterns, by node: `node`, `value`, `moves` `(patterns,)`, and what they change, `at` (a pattern), `kind` and `more` `(entries,)`, where each has one entry at least, from `begin` `(patterns,)` on; `first`
    `(nodes,)` the first of each node. `layers`: `kind` and `more` of the first entries of all patterns, then of the second ones, the patterns with the most entries first; `place` `(patterns,)` is which of these each pattern is."""

    patterns: list[Pattern]
    node: np.ndarray
    value: np.ndarray
    moves: np.ndarray
    at: np.ndarray
    kind: np.ndarray
    more: np.ndarray
    begin: np.ndarray
    first: np.ndarray
    layers: list[tuple[np.ndarray, np.ndarray]]
    place: np.ndarray

    def scores(self, prices: Prices) -> np.ndarray:
        """`(patterns,) int64`: what each is worth at these prices. Layer by layer: several times as fast as pattern by pattern."""
        paid = np.zeros(len(self.patterns), np.int64)
        for kind, more in self.layers:
            paid[: len(kind)] += prices.pods.take(kind) * more
        return self.value - prices.move * self.moves + paid.take(self.place)

    def changes(self, chosen: np.ndarray, classes: int) -> np.ndarray:
        """`(classes,) int64`: how many more there are of each with these patterns."""
        begin = self.begin[chosen]
        many = np.append(self.begin[1:], len(self.at))[chosen] - begin
        entries = np.repeat(begin - np.cumsum(many) + many, many) + np.arange(int(many.sum()))
        # Floats are exact for so few.
        return np.bincount(self.kind.take(entries), self.more.take(entries), classes).astype(np.int64)

    def best(self, scores: np.ndarray) -> np.ndarray:
        """`(nodes,) int64`: which pattern of each node; the first of those that are as good."""
        most = np.maximum.reduceat(scores, self.first)
        found = np.flatnonzero(scores == most[self.node])
        return found[np.searchsorted(self.node[found], np.arange(len(self.first)))]

    def reached(self, prices: Prices, limit: int) -> tuple[np.ndarray, int]:
        """The best pattern of each node at these prices, and what no plan made of the patterns exceeds. `limit`: on moves."""
        scores = self.scores(prices)
        chosen = self.best(scores)
        return chosen, int(scores[chosen].sum()) + prices.move * limit

    def slope(self, chosen: np.ndarray, classes: int, limit: int) -> np.ndarray:
        """`(classes + 1,) int64`: how many more come than leave with these, by class, and at last how many more moves there may be: by that what is reached falls with each price."""
        return np.append(self.changes(chosen, classes), limit - int(self.moves[chosen].sum()))


def table_of(patterns: list[Pattern], node: np.ndarray, value: np.ndarray, moves: np.ndarray, at: np.ndarray, kind: np.ndarray, more: np.ndarray) -> Table:
    """Of patterns of all nodes, by node, with what they change by pattern."""
    lengths = np.bincount(at, minlength=len(patterns))
    begin, longest = np.cumsum(lengths) - lengths, np.argsort(-lengths, kind="stable")
    layers = list[tuple[np.ndarray, np.ndarray]]()
    for nth in range(int(lengths.max(initial=0))):
        entries = begin[longest[: int((lengths > nth).sum())]] + nth
        layers.append((kind[entries], more[entries]))
    return Table(patterns, node, value, moves, at, kind, more, begin, np.flatnonzero(np.diff(node, prepend=-1)), layers, np.argsort(longest))


def rows_of(board: Board) -> np.ndarray:
    """`(rows,)`: those on which pods may land or are at home."""
    return np.union1d(board.rows, np.unique(board.home))


class Patterns:
    """Of a board on which everybody is at home. `classes`: how many; `kind` and `may` `(classes,)` as on the board, `number` how many pods there are of each; `of` `(pods,)` the class of each pod."""

    def __init__(self, board: Board, some: np.ndarray | None = None, sparing: bool = False) -> None:
        """Of `some` rows, else of all on which pods may land or are at home. `sparing`: fewer contents are weighed."""
        self.board, self.sparing = board, sparing
        known: dict[tuple[int, int], int] = {}
        self.of = np.array([known.setdefault(one, len(known)) for one in zip(board.kind.tolist(), board.may.tolist(), strict=True)], np.int64)
        self.kind, self.may = np.array(list(known), np.int64).reshape(-1, 2).T
        self.classes, self.number = len(known), np.bincount(self.of, minlength=len(known))
        self.open = np.zeros(len(board.worth), bool)
        self.open[board.rows] = True
        rows = rows_of(board) if some is None else some
        self.rows = rows[np.argsort(board.rank[rows], kind="stable")]
        self.at_home: list[list[int]] = [[] for _ in self.rows]
        index = {row: node for node, row in enumerate(self.rows.tolist())}
        for i, row in enumerate(board.home.tolist()):
            if (node := index.get(row)) is not None:
                self.at_home[node].append(i)
        of_pod: list[list[int]] = [[] for _ in board.uids]
        for i, d in np.argwhere(board.home_used[:-1]).tolist():
            of_pod[i].append(d)
        self.devices = [[of_pod[i] for i in some] for some in self.at_home]
        self.cost, self._nobody = np.minimum(np.append(board.cost, 0), DEAREST), len(board.uids)
        """`(pods + 1,)`, as on the board; nobody's last."""
        self._need = np.vstack([board.need[board.kind], np.zeros((1, board.need.shape[1]), np.int64)])
        self.thorough = not sparing and len(self.rows) <= SOME
        self.weighed = 0
        """Contents that have been weighed so far."""
        self._known: list[dict[tuple, Pattern]] = [{} for _ in self.rows]
        for node in range(len(self.rows)):
            self.keep(Start(node, (), ()), 0)
        everybody = [Start(node, tuple(home), ()) for node, home in enumerate(self.at_home)]
        self._most = self._weighed(everybody, self._without(everybody, self._gone(everybody))) - self._worth(everybody)

    # -- what is known -------------------------------------------------------------------------------------------------

    def keep(self, start: Start, value: int) -> None:
        known = self._known[start.node]
        key = start.gone, start.came
        if key not in known:
            changes: dict[int, int] = {}
            for k in start.came:
                changes[k] = changes.get(k, 0) + 1
            for i in start.gone:
                k = int(self.of[i])
                changes[k] = changes.get(k, 0) - 1
            known[key] = Pattern(start, value, tuple(sorted((k, n) for k, n in changes.items() if n)))

    def table(self) -> Table:
        patterns = [one for known in self._known for one in known.values()]
        node = np.array([one.start.node for one in patterns], np.int64)
        lengths = np.array([max(len(one.changes), 1) for one in patterns], np.int64)
        changes = np.array(list(chain.from_iterable(one.changes or NOTHING for one in patterns)), np.int64).reshape(-1, 2)
        value, moves = np.array([one.value for one in patterns], np.int64), np.array([len(one.start.gone) for one in patterns], np.int64)
        return table_of(patterns, node, value, moves, np.repeat(np.arange(len(patterns)), lengths), changes[:, 0].copy(), changes[:, 1].copy())

    def forget(self, table: Table, scores: np.ndarray) -> None:
        """All but the best of each node, and that in which nothing changes, which is its first."""
        order = np.lexsort((-scores, table.node))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - table.first[table.node[order]]
        for j in np.flatnonzero(place >= (EACH_OF_SOME if self.thorough else EACH)).tolist():
            one = table.patterns[j].start
            if one.gone or one.came:
                del self._known[one.node][one.gone, one.came]

    # -- new ones --------------------------------------------------------------------------------------------------------

    def grow(self, prices: Prices, by_gain: bool, most: int | None = None) -> bool:
        """Others that are good at these prices: sets of pods leave, and others come. `by_gain`: who comes first is whoever gains most,
        otherwise who gains most for what it takes. Whether no more than `most` contents were weighed: it ends there."""
        last = None if most is None else self.weighed + most
        starts = self._leaving(prices)
        gone = self._gone(starts)
        there = self._without(starts, gone)
        worth, began = self._weighed(starts, there), self._worth(starts)
        bills = self._bills(gone)
        base = worth - began - bills - prices.move * np.array([len(one.gone) for one in starts]) - self._paid(gone, prices)
        node = np.array([one.node for one in starts])
        order = np.lexsort((-base, node))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - np.searchsorted(node, node[order])
        nobody = np.array([not one.gone for one in starts])
        for j in np.flatnonzero((place < BEST) & ~nobody).tolist():
            self.keep(starts[j], int(worth[j] - began[j] - bills[j]))
        able = self.open[self.rows[node]]
        if self.sparing:
            chosen = np.sort(np.concatenate((_largest(np.flatnonzero(able & ~nobody & (place == 0) & (base > -prices.move)), base, LEFT), np.flatnonzero(able & nobody))))
        else:
            chosen = np.sort(_largest(np.flatnonzero(able & ((place < BEST) | nobody)), base, FINISHED))
        begun = [starts[j] for j in chosen.tolist()]
        return self._let_come(begun, Contents(*(of[chosen] for of in there)), worth[chosen], bills[chosen], prices, by_gain, last)

    def _leaving(self, prices: Prices) -> list[Start]:
        """Sets of pods of each node that may leave it together: nobody first."""
        size, found = self.board.size[self.board.kind], list[Start]()
        costs = self.cost[:-1] + prices.move + prices.pods[self.of]
        for node, (home, devices) in enumerate(zip(self.at_home, self.devices, strict=True)):
            some: dict[tuple[int, ...], None] = {(): None}
            cost = {i: int(costs[i]) for i in home}
            on: dict[int, list[int]] = {}
            for i, of in zip(home, devices, strict=True):
                for d in of:
                    on.setdefault(d, []).append(i)
            many = {i: max(len(of), 1) for i, of in zip(home, devices, strict=True)}
            price = {d: sum([cost[i] // many[i] for i in pods]) for d, pods in on.items()}
            by_device = list(dict.fromkeys(i for d in sorted(on, key=lambda d: (price[d], d)) for i in on[d]))
            loose = sorted((i for i, of in zip(home, devices, strict=True) if not of), key=lambda i: (cost[i], i))
            by_size = sorted(home, key=lambda i: (cost[i] // max(int(size[i]), 1), i))
            for order in (by_device + loose, loose + by_device, by_size) if loose else (by_device, by_size):
                for n in range(1, self._worth_it(node, [cost[i] for i in order], prices.move) + 1):
                    some[tuple(sorted(order[:n]))] = None
            found += [Start(node, gone, ()) for gone in some]
        return found

    def _worth_it(self, node: int, costs: list[int], move: int) -> int:
        """How many of those who cost so much may leave: on many nodes while the node may still gain by it nearly what it costs, if all left it."""
        if not self.sparing:
            return len(costs)
        left = int(self._most[node]) + move
        for n, cost in enumerate(costs):
            left -= cost
            if left < 0:
                return n
        return len(costs)

    def _without(self, starts: Sequence[Start], gone: np.ndarray) -> Contents:
        """What nodes have without those who leave them."""
        board, rows = self.board, self.rows[[one.node for one in starts]]
        free, shares = board.free.take(rows, axis=0), board.shares.take(rows, axis=0)
        for at in range(gone.shape[1]):
            free += self._need.take(gone[:, at], axis=0)
            shares += board.home_used.take(gone[:, at], axis=0)
        return Contents(free, shares, board.loads[rows] - (gone < self._nobody).sum(axis=1))

    def _gone(self, starts: Sequence[Start]) -> np.ndarray:
        """`(starts, most)`: pods, `_nobody` where there are fewer."""
        found = np.full((len(starts), max((len(one.gone) for one in starts), default=0)), self._nobody)
        for j, one in enumerate(starts):
            found[j, : len(one.gone)] = one.gone
        return found

    def _bills(self, gone: np.ndarray) -> np.ndarray:
        return self.cost[gone].sum(axis=1)

    def _paid(self, gone: np.ndarray, prices: Prices) -> np.ndarray:
        return np.append(prices.pods[self.of], 0)[gone].sum(axis=1)

    def _worth(self, starts: Sequence[Start]) -> np.ndarray:
        return self.board.worth[self.rows[[one.node for one in starts]]] * THOUSANDTHS

    def _weighed(self, starts: Sequence[Start], there: Contents) -> np.ndarray:
        self.weighed += len(starts)
        return self.board.weighed(self.rows[[one.node for one in starts]], there) * THOUSANDTHS

    def _let_come(self, starts: list[Start], there: Contents, worth: np.ndarray, bills: np.ndarray, prices: Prices, by_gain: bool, last: int | None = None) -> bool:
        """One after the other until nobody has a place: patterns are what is best on the way, and the end. Who comes first may lose what others gain after it. False where more contents than `last` were weighed before all
        had their turn."""
        first, found, each = list[tuple[np.ndarray, ...]](), list[tuple[Start, int]](), max(TOGETHER // self.classes, 1)
        for begin in range(0, len(starts), each):
            some = slice(begin, begin + each)
            (which, *rest), others = self._let_some_come(starts[some], Contents(*(of[some] for of in there)), worth[some], bills[some], prices, by_gain)
            first.append((which + begin, *rest))
            found += others
            if last is not None and self.weighed > last:
                return False
        if first:
            which, kinds, gain, value = (np.concatenate(of) for of in zip(*first, strict=True))
            for j in _best_of_each(which, kinds, gain).tolist():
                one = starts[which[j]]
                self.keep(one._replace(came=(*one.came, int(kinds[j]))), int(value[j]))
        for one, reached in found:
            self.keep(one, reached)
        return True

    def _let_some_come(self, starts: list[Start], there: Contents, worth: np.ndarray, bills: np.ndarray, prices: Prices, by_gain: bool) -> tuple[tuple[np.ndarray, ...], list[tuple[Start, int]]]:
        """The best of these for one of each class: which they are, the class, what is gained by one, and what the node is worth with it; and the patterns, with what they are worth."""
        board, rows, nobody = self.board, self.rows[[one.node for one in starts]], self._nobody
        began = self._worth(starts)
        gained, most, long, most_worth = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64), worth.copy()
        came: list[list[int]] = [[] for _ in starts]
        one_each: tuple[np.ndarray, ...] = tuple([np.zeros(0, np.int64)] * 4)
        able = board.masks[self.may][:, rows].T & (prices.pods > 0)
        left, size = np.arange(len(rows)), np.maximum(board.size[self.kind], 1)
        for nth in range(COMING):
            at, kinds = np.nonzero(able[left])
            if not len(at):
                break
            which = left[at]
            possible, after = board.fitting(rows[which], Contents(*(of.take(which, axis=0) for of in there)), self.kind[kinds], np.full(len(which), nobody))
            able[left] = False
            which, kinds = which[possible], kinds[possible]
            able[which, kinds] = True
            if not len(which):
                break
            self.weighed += len(which)
            weighed = board.weighed(rows[which], after) * THOUSANDTHS
            gain = weighed - worth[which] + prices.pods[kinds]
            if not nth:
                some = _best_of_each(which, kinds, gain)
                one_each = which[some], kinds[some], gain[some], (weighed - began[which] - bills[which])[some]
            key = gain if by_gain else np.where(gain > 0, gain * 1_000 // size[kinds], gain)
            order = np.lexsort((kinds, -key, which))
            first = order[np.searchsorted(which[order], np.unique(which))]
            if not nth and self.sparing:
                later = order[np.arange(len(order)) - np.searchsorted(which[order], which[order]) >= KINDS]
                able[which[later], kinds[later]] = False
            left = which[first]
            for of, new in zip(there, after, strict=True):
                of[left] = new[first]
            worth[left] = weighed[first]
            gained[left] += gain[first]
            for j, k in zip(left.tolist(), kinds[first].tolist(), strict=True):
                came[j].append(k)
            better = left[gained[left] > most[left]]
            most[better], most_worth[better], long[better] = gained[better], worth[better], nth + 1
        return one_each, [
            (one._replace(came=one.came + tuple(came[j][:n])), reached - int(began[j]) - int(bills[j]))
            for j, one in enumerate(starts)
            for n, reached in ((int(long[j]), int(most_worth[j])), (len(came[j]), int(worth[j])))
            if n
        ]

    def take_in(self, starts: Sequence[Start]) -> None:
        """These, as far as those who are to come have a place."""
        starts, there, bills = self._landed(starts)
        values = self._weighed(starts, there) - self._worth(starts) - bills
        for one, value in zip(starts, values.tolist(), strict=True):
            self.keep(one, value)

    def _landed(self, starts: Sequence[Start]) -> tuple[list[Start], Contents, np.ndarray]:
        """With those of them who come that have a place; what nodes have then; and what the leaving costs."""
        board, rows, gone = self.board, self.rows[[one.node for one in starts]], self._gone(starts)
        there = self._without(starts, gone)
        came: list[list[int]] = [[] for _ in starts]
        for nth in range(max((len(one.came) for one in starts), default=0)):
            which = np.array([j for j, one in enumerate(starts) if len(one.came) > nth])
            kinds = np.array([starts[j].came[nth] for j in which.tolist()])
            possible, after = board.fitting(rows[which], Contents(*(of[which] for of in there)), self.kind[kinds], np.full(len(which), self._nobody))
            which, kinds = which[possible], kinds[possible]
            for of, new in zip(there, after, strict=True):
                of[which] = new
            for j, k in zip(which.tolist(), kinds.tolist(), strict=True):
                came[j].append(k)
        return [one._replace(came=tuple(some)) for one, some in zip(starts, came, strict=True)], there, self._bills(gone)


def _best_of_each(which: np.ndarray, kinds: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Of beginnings the best ones for one of each class; the first of those that are as good."""
    order = np.lexsort((which, -gain, kinds))
    place = np.arange(len(order)) - np.searchsorted(kinds[order], kinds[order])
    return order[place < TOP]


def _largest(some: np.ndarray, by: np.ndarray, most: int) -> np.ndarray:
    """Of some at most so many, the largest first."""
    return some[np.argsort(-by[some], kind="stable")[:most]]
