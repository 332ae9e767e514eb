"""One pattern for each node, so that nearly as many pods come of each class as leave: from the best mixture of patterns (`descent`), for `pricing`.

Each node takes the pattern of which there is most, and then chooses anew where whatever of a class comes or leaves too much costs its price; or begins with what is best at these prices. Then some nodes at a time, half of them those that a class
that is out of balance concerns, choose anew one after the other, at first where that costs less; what is no worse stays. All in integers, by numbers that look like chance.
"""

import numpy as np

from restow.domain.defragmentation.optimizing.patterns import Prices, Table
from restow.domain.defragmentation.optimizing.search import Chance

TRIES, TOGETHER = 500, 30
"""Times that so many nodes choose anew, where nobody says otherwise."""
EACH = 5
"""Times at most for each node that has a choice: where there are few, most of them choose each time."""
EIGHTHS, ALL = (0, 1, 2, 4, 6), 8
"""Of its price, what is out of balance costs while they do: at last all of it, and once more where somebody has chosen otherwise then."""
NEAR = 4
"""Nodes are concerned by a class that is in one of their patterns that are nearly as good as their best one: of so many for each node."""
OVER = 5_000_000_000
"""What a move beyond the limit costs beside its price, in millionths of a thousandth: five GPU-hours."""


def rounded(table: Table, prices: Prices, parts: np.ndarray, limit: int, dearer: int, tries: int = TRIES) -> list[int]:
    """A pattern of each node, in so many `tries`. `dearer`: by how much more than its price whoever leaves costs for whom nobody comes, for its price may be 0."""
    rounding = _Rounding(table, prices, limit, dearer)
    rounding.begin(parts)
    rounding.improve(tries)
    rounding.shorten(table)
    return rounding.chosen


class _Rounding:
    def __init__(self, table: Table, prices: Prices, limit: int, dearer: int) -> None:
        # |n| (price + dearer / 2) - n dearer / 2 is |n| price, and dearer for each that is missing.
        self._half = dearer // 2
        self._prices = np.append(prices.pods + self._half, prices.move)
        self._limit, self._of_moves, self._moves, self._most = limit, table.moves, table.moves.tolist(), int(table.moves.max())
        ends = np.append(table.first[1:], len(table.patterns))
        self._spans = list(zip(table.first.tolist(), ends.tolist(), strict=True))
        self._classes = len(prices.pods)
        self._more = np.bincount(table.at, table.more, len(table.patterns)).astype(np.int64)
        self._by_node(table)
        self._scores = scores = table.scores(prices)
        self._known = [self._at(eighths) for eighths in range(ALL + 1)]
        self._choosing = [node for node, (first, end) in enumerate(self._spans) if end - first > 1]
        behind = np.maximum.reduceat(scores, table.first)[table.node] - scores
        near = np.argsort(behind, kind="stable")[: NEAR * len(self._spans)]
        some = np.zeros(len(table.patterns), bool)
        some[near] = True
        entries = np.flatnonzero(some[table.at] & (table.more != 0))
        pairs = np.unique(np.column_stack((table.kind[entries], table.node[table.at[entries]])), axis=0)
        bounds = np.searchsorted(pairs[:, 0], np.arange(self._classes + 1))
        self._concerned = [pairs[begin:end, 1].tolist() for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
        self._concerned.append(self._choosing)

    def _by_node(self, table: Table) -> None:
        """Which classes some pattern of a node changes, and by how many each of its patterns: of thousands of classes these are few."""
        self._kinds, self._changes = list[np.ndarray](), list[np.ndarray]()
        entries = np.append(table.begin, len(table.at))
        for first, end in self._spans:
            some = slice(entries[first], entries[end])
            kinds, which = np.unique(table.kind[some], return_inverse=True)
            changes = np.zeros((end - first, len(kinds) + 1), np.int64)
            np.add.at(changes, (table.at[some] - first, which.ravel()), table.more[some])
            # Moves are a class of their own, which leaves: so many come as are allowed.
            changes[:, -1] = -table.moves[first:end]
            self._kinds.append(np.append(kinds, self._classes))
            self._changes.append(changes)

    def begin(self, parts: np.ndarray) -> None:
        """With the better one of two: of what there is most, or of what is best at these prices, where what is out of balance costs more and more."""
        found = list[tuple[int, list[int]]]()
        for measure, ramp in ((parts, (ALL,)), (self._scores, range(1, ALL + 1))):
            self._take([first + int(measure[first:end].argmax()) for first, end in self._spans])
            for eighths in ramp:
                self._choose(self._choosing, eighths)
            found.append((self._worth(), self.chosen))
        self._take(max(found, key=lambda one: one[0])[1])

    def _take(self, chosen: list[int]) -> None:
        self.chosen = chosen
        self._sums, self._moved = np.zeros(self._classes + 1, np.int64), int(self._of_moves[chosen].sum())
        for j, (first, _), kinds, changes in zip(chosen, self._spans, self._kinds, self._changes, strict=True):
            self._sums[kinds] += changes[j - first]
        self._sums[-1] += self._limit

    def improve(self, tries: int) -> None:
        chance, best = Chance(), self._worth()
        for nth in range(min(tries, EACH * len(self._choosing))):
            nodes = chance.sample(self._choosing, TOGETHER)
            if nth % 2:
                nodes = self._of_one_class(chance, nodes[TOGETHER // 2 :])
            before = [self.chosen[node] for node in nodes], self._sums.copy(), self._moved
            for eighths in EIGHTHS:
                self._choose(nodes, eighths)
            if self._choose(nodes, ALL):
                self._choose(nodes, ALL)
            if (worth := self._worth()) >= best:
                best = worth
                continue
            for node, old in zip(nodes, before[0], strict=True):
                self.chosen[node] = old
            _, self._sums, self._moved = before

    def shorten(self, table: Table) -> None:
        """Everybody stays on the nodes that gain least for each move, until there are no more moves than there may be."""
        moves = self._of_moves[self.chosen]
        gain = table.value[self.chosen] // np.maximum(moves, 1)
        for node in np.argsort(gain, kind="stable").tolist():
            if self._moved <= self._limit:
                break
            if moves[node]:
                self._moved -= int(moves[node])
                self.chosen[node] = self._spans[node][0]

    def _of_one_class(self, chance: Chance, nodes: list[int]) -> list[int]:
        out = np.cumsum(np.abs(self._sums) * self._prices)
        if not out[-1]:
            return nodes
        k = int(np.searchsorted(out, chance.number(int(out[-1])), "right"))
        return list(dict.fromkeys(nodes + chance.sample(self._concerned[k], TOGETHER // 2)))

    def _worth(self) -> int:
        """What it is worth, and less what is out of balance."""
        return int(self._scores[self.chosen].sum()) - int((np.abs(self._sums) * self._prices).sum()) + int(self._sums[:-1].sum()) * self._half - max(self._moved - self._limit, 0) * OVER

    def _at(self, eighths: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """By node, where what is out of balance costs so many eighths: what each pattern is worth, and what one of each class that the node changes costs."""
        prices, scores = self._prices * eighths // ALL, self._scores + self._more * (self._half * eighths // ALL)
        return [(scores[first:end], prices[kinds]) for (first, end), kinds in zip(self._spans, self._kinds, strict=True)]

    def _choose(self, nodes: list[int], eighths: int) -> bool:
        """Each of these chooses anew, where what is out of balance costs so many eighths; whether any chooses otherwise."""
        known, chosen, sums, limit, changed = self._known[eighths], self.chosen, self._sums, self._limit, False
        for node in nodes:
            first, end = self._spans[node]
            kinds, changes, (scores, prices) = self._kinds[node], self._changes[node], known[node]
            old = chosen[node]
            moved = self._moved - self._moves[old]
            others = sums[kinds] - changes[old - first]
            found = scores - np.abs(changes + others) @ prices if eighths else scores
            if moved + self._most > limit:
                found = found - np.maximum(self._of_moves[first:end] + (moved - limit), 0) * OVER
            new = first + int(found.argmax())
            if new != old:
                sums[kinds] = others + changes[new - first]
                chosen[node], self._moved, changed = new, moved + self._moves[new], True
        return changed
