"""The best node for a shape, exactly, and again after every placement at the cost of the rows that changed.

All that fits is ranked by one integer: the score first, then the lexicographically first name. A ranking is made in one
vectorised pass over all rows and kept in `state.memo` across sessions; after that only rows that changed are ranked anew.
Few rows are ranked one by one in plain integers, and nodes that have the same left are ranked once (`_Contents`): in a
cluster of equal machines that is nearly all of them. A test holds all forms equal.
"""

from collections.abc import Hashable, Iterable

import numpy as np

from restow.contracts.ids import ShapeId
from restow.domain.predicates import node_rules, static_mask
from restow.domain.session.board import Board
from restow.domain.session.scoring import ContentScorer, One, StaticScorer
from restow.domain.state import ClusterState

MANY = 128
"""Rows from which on the vectorised form is the faster one."""
BYTES = 64 << 20
"""What kept rankings may take; the ones unused for longest go first."""
MAX_CONTENTS = 1 << 16
NOWHERE = -1
"""In place of a score: no room."""

Scorers = tuple[tuple[ContentScorer, ...], tuple[StaticScorer, ...]]


class _Base:
    """What does not depend on what nodes have left, for all shapes that say the same about nodes: `keys` `(nodes,) int64` are
    static scores and the tie-break, -1 where a rule about the node forbids it; `plain` the same as a list, once needed."""

    __slots__ = ("keys", "nodes_seen", "plain")

    def __init__(self, keys: np.ndarray, nodes_seen: int) -> None:
        self.keys = keys
        self.nodes_seen = nodes_seen
        self.plain: list[int] | None = None


class _Ranking:
    """`keys` `(nodes,) int64`: the rank of each row, -1 where the shape does not fit. `known`: score by content. `seen` and
    `nodes_seen` are positions in the table's and the nodes' changes, `told` in the board's."""

    __slots__ = ("base", "devices", "keys", "known", "nodes_seen", "ones", "plain", "seen", "told", "wanted")

    def __init__(self, state: ClusterState, shape: ShapeId, ones: list[One], base: _Base):
        v = state.vectors[shape]
        self.ones = ones
        self.wanted = v.items
        self.devices = v.devices
        self.known: dict[int, int] = {}
        """In keys: times the unit."""
        self.told = 0
        self.base = base
        self.seen, self.nodes_seen = state.table.dirty.position, state.changed_rows.position
        self.keys = np.empty(0, np.int64)
        self.plain = self.keys.data


class _Contents:
    """Numbers for what rows have left, and for their kinds: equal rows, equal numbers."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}

    def number(self, row: int, board: Board, kinds: Iterable[np.ndarray]) -> int:
        free, devices = board.row(row)
        content = (*free, *devices, board.table.allocatable[row].tobytes(), *[int(kind[row]) for kind in kinds])
        return self.numbers.setdefault(content, len(self.numbers))


class Rankings:
    """What is kept across sessions, while nodes and columns are the same and scores are made in the same way."""

    def __init__(self, key: Hashable, scorers: Scorers, nodes: int) -> None:
        self.key = key
        self.scorers = scorers
        self.by_shape: dict[ShapeId, _Ranking] = {}
        self.bases: dict[Hashable, _Base] = {}
        self.most = max(32, BYTES // (16 * max(nodes, 1)))
        self.contents = _Contents()

    @staticmethod
    def of(state: ClusterState, scorers: Scorers, version: Hashable) -> "Rankings":
        key = (state.table.structure, scorers, version)
        kept: Rankings | None = state.memo.get("rankings")
        if kept is None or kept.key != key:
            kept = state.memo["rankings"] = Rankings(key, scorers, len(state.table.names))
        if len(kept.contents.numbers) > MAX_CONTENTS:
            kept.contents = _Contents()
            for ranking in kept.by_shape.values():
                ranking.known.clear()
        return kept


class Placer:
    """For one session. `version` names what else the static scores depend on; a change makes all rankings anew."""

    def __init__(self, state: ClusterState, board: Board, scorers: Scorers, version: Hashable = ()) -> None:
        self._state = state
        self._board = board
        self._kept = Rankings.of(state, scorers, version)
        self.unit = len(state.table.names) + 1
        """One point of score in a key; what is below it is the tie-break."""
        self._fresh: set[ShapeId] = set()
        kinds = {i: kinds(state) for i, s in enumerate(scorers[0]) if (kinds := getattr(s, "kinds", None)) is not None}
        self._kinds: dict[int, np.ndarray] = kinds
        """By the place of each scorer that has them."""

    def best(self, shape: ShapeId) -> int | None:
        """The row of the best node, or None where nothing fits."""
        keys = self.keys(shape)
        if not len(keys):
            return None
        row = int(keys.argmax())
        return row if self._ranking(shape).plain[row] >= 0 else None

    def keys(self, shape: ShapeId) -> np.ndarray:
        """`(nodes,) int64`: the rank of each row as it is now, -1 where the shape does not fit. Must not be written to."""
        ranking = self._ranking(shape)
        changes = self._board.changes
        if ranking.told < len(changes):
            rows = set(changes[ranking.told :])
            ranking.told = len(changes)
            self._rank(shape, ranking, rows)
        return ranking.keys

    def fits(self, shape: ShapeId, row: int) -> bool:
        return bool(static_mask(self._state, shape)[row]) and self._state.table.fits_row(row, self._state.vectors[shape])

    # -- rankings ----------------------------------------------------------------------------------------------------

    def _ranking(self, shape: ShapeId) -> _Ranking:
        """Brought up to what has changed since its last session, when first asked for in this one."""
        known = self._kept.by_shape.get(shape)
        if known is not None and shape in self._fresh:
            return known
        known = self._new(shape) if known is None else self._refresh(shape, known)
        self._fresh.add(shape)
        # The board may have charged rows already: those are in the table's arrays, too.
        known.told = len(self._board.changes)
        return known

    def _new(self, shape: ShapeId) -> _Ranking:
        state, kept = self._state, self._kept
        while len(kept.by_shape) >= kept.most:
            del kept.by_shape[next(iter(kept.by_shape))]
        ranking = _Ranking(state, shape, [s.one(state, shape) for s in kept.scorers[0]], self._base_of(shape))
        ranking.keys = self._keys(shape, ranking, slice(None))
        ranking.plain = ranking.keys.data
        kept.by_shape[shape] = ranking
        return ranking

    def _refresh(self, shape: ShapeId, ranking: _Ranking) -> _Ranking:
        state, kept = self._state, self._kept
        nodes, dirty = state.changed_rows.since(ranking.nodes_seen), state.table.dirty.since(ranking.seen)
        del kept.by_shape[shape]
        if nodes is None or dirty is None:
            return self._new(shape)
        kept.by_shape[shape] = ranking  # used last
        rows = {*nodes, *dirty, *self._board.changes}
        ranking.base = self._base_of(shape)
        ranking.seen, ranking.nodes_seen = state.table.dirty.position, state.changed_rows.position
        if rows:
            self._rank(shape, ranking, rows)
        return ranking

    def _base_of(self, shape: ShapeId) -> _Base:
        """Up to date, and shared."""
        state, kept = self._state, self._kept
        spec = state.shapes[shape]
        key = (node_rules(spec), *[scorer.reads(spec) for scorer in kept.scorers[1]])
        known = kept.bases.get(key)
        position = state.changed_rows.position
        changed = None if known is None else state.changed_rows.since(known.nodes_seen)
        if known is None or changed is None:
            if len(kept.bases) >= kept.most:
                kept.bases.clear()
            known = kept.bases[key] = _Base(self._base(shape, np.arange(len(state.table.names))), position)
        elif changed:
            at = np.array(sorted(set(changed)), np.int64)
            known.keys[at] = self._base(shape, at)
            known.plain = None
        known.nodes_seen = position
        return known

    def _rank(self, shape: ShapeId, ranking: _Ranking, rows: set[int]) -> None:
        if len(rows) >= MANY:
            at = np.array(sorted(rows), np.int64)
            ranking.keys[at] = self._keys(shape, ranking, at)
            return
        if ranking.base.plain is None:
            ranking.base.plain = ranking.base.keys.tolist()
        bases, known, unit = ranking.base.plain, ranking.known, self.unit
        contents, board = self._kept.contents, self._board
        numbers = board.contents
        plain = ranking.plain
        for row in rows:
            base = bases[row]
            if base < 0:
                plain[row] = -1
                continue
            number = numbers.get(row)
            if number is None:
                number = numbers[row] = contents.number(row, board, self._kinds.values())
            score = known.get(number)
            if score is None:
                score = self._score(ranking, row)
                score = known[number] = score * unit if score >= 0 else NOWHERE
            plain[row] = base + score if score >= 0 else -1

    def _score(self, ranking: _Ranking, row: int) -> int:
        free, shares = self._board.row(row)
        for column, amount in ranking.wanted:
            if free[column] < amount:
                return -1
        if ranking.devices is not None:
            milli = ranking.devices.milli
            if sum(share >= milli for share in shares) < ranking.devices.count:
                return -1
        allocatable = self._state.table.allocatable[row].tolist()
        if not self._kinds:
            return sum(one(free, allocatable, shares) for one in ranking.ones)
        total = 0
        for i, one in enumerate(ranking.ones):
            kinds = self._kinds.get(i)
            total += one(free, allocatable, shares) if kinds is None else one(free, allocatable, shares, int(kinds[row]))
        return total

    def _keys(self, shape: ShapeId, ranking: _Ranking, at: np.ndarray | slice) -> np.ndarray:
        """`(rows,) int64`: rank of each row, -1 where the shape does not fit."""
        state, table = self._state, self._state.table
        v, free, base = state.vectors[shape], table.free[at], ranking.base.keys[at]
        room = base >= 0
        for column, amount in v.items:
            room &= free[:, column] >= amount
        if v.devices is not None:
            room &= (table.device_free[at] >= v.devices.milli).sum(axis=1) >= v.devices.count
        keys = np.zeros(len(base), np.int64)
        for scorer in self._kept.scorers[0]:
            keys += scorer.many(state, shape)(at)
        keys *= self.unit
        keys += base
        keys[~room] = -1
        return keys

    def _base(self, shape: ShapeId, at: np.ndarray) -> np.ndarray:
        """`(rows,) int64`: static score and tie-break, -1 where a rule about the node forbids it."""
        state, table = self._state, self._state.table
        keys = len(table.names) - table.rank[at]
        for scorer in self._kept.scorers[1]:
            scores = scorer.static(state, shape, at)
            if scores is not None:
                keys = keys + scores * self.unit
        return np.where(static_mask(state, shape)[at] & table.alive[at], keys, -1)
