"""The best node for a shape, exactly, and again after every placement at the cost of the rows that changed.

All that fits is ranked by one integer: the score first, then the lexicographically first name. A ranking is made in one
vectorised pass over all rows and kept in `state.memo` across sessions, once a shape is asked for again; after that only rows that changed are ranked anew.
Few rows are ranked one by one in plain integers, and nodes that have the same left are ranked once (`_Contents`): in a
cluster of equal machines that is nearly all of them. A test holds all forms equal.
"""

from collections.abc import Collection, Hashable
from heapq import heappop, heappush

import numpy as np

from restow.contracts.ids import ShapeId
from restow.domain.node_table import Vector
from restow.domain.predicates import node_rules, static_mask, switches
from restow.domain.session.node_snapshot import NodeSnapshot
from restow.domain.session.scoring import ContentScorer, One, StaticScorer
from restow.domain.state import ClusterState

MANY = 128
"""Rows from which on the vectorised form is the faster one."""
BYTES = 64 << 20
"""What kept rankings may take; the ones unused for longest go first."""
MAX_CONTENTS = 1 << 16
TOP = 1024
"""How many of the best rows are kept in order, so that not all are looked at for every pod."""
FEW = 8
"""Picks from which on that is worth while; where every pod has its own shape, none is asked for so often."""
NEVER = 1 << 62
"""Above every key."""
NOWHERE = -1
"""In place of a score: no capacity."""

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
    `nodes_seen` are positions in the table's and the nodes' changes, `told` in the snapshot's.

    Every row whose key is above `floor` is in `top`, with the best one last, or, if it got its key later, in the heap `late` of
    (-key, row); in both are rows that have another key by now. `floor` is None while there are none. `picks`: how often the
    best one was looked for among all."""

    __slots__ = (
        "base", "floor", "keys", "known", "late", "nodes_seen", "ones", "picks", "plain", "seen", "session", "told",
        "top", "top_keys",
    )  # fmt: skip

    def __init__(self, state: ClusterState, base: _Base):
        self.ones: list[One] | None = None
        self.known: dict[int, int] = {}
        """In keys: times the unit."""
        self.told = 0
        self.session = 0
        """The number of the one that has brought it up to date: a reference to its placer would keep all that it has charged."""
        self.base = base
        self.seen, self.nodes_seen = state.table.dirty.position, state.changed_rows.position
        self.keys = np.empty(0, np.int64)
        self.plain = self.keys.data
        self.top: list[int] = []
        self.top_keys: list[int] = []
        self.late: list[tuple[int, int]] = []
        self.floor: int | None = None
        self.picks = 0

    def best(self) -> int | None:
        """The row with the highest key, None where no row fits. All rows are looked at now and then only: between that, the
        best one is among those that were among the best, or have been ranked since."""
        plain, top, keys, late = self.plain, self.top, self.top_keys, self.late
        while top and plain[top[-1]] != keys[-1]:
            top.pop()
            keys.pop()
        while late and plain[late[0][1]] != -late[0][0]:
            heappop(late)
        if late and (not top or -late[0][0] > keys[-1]):
            return late[0][1]
        if top:
            return top[-1]
        return self._of_all()

    def _of_all(self) -> int | None:
        """The best one, looked for among all rows."""
        if not len(self.keys):
            return None
        row = int(self.keys.argmax())
        if self.plain[row] < 0:
            return None
        self.picks += 1
        if self.floor is not None or self.picks > FEW:
            self._build()
        return row

    def _build(self) -> None:
        keys, count = self.keys, len(self.keys)
        self.forget_top()
        if count > 2 * TOP:
            rows = keys.argpartition(count - TOP)[count - TOP :]
            rows = rows[keys[rows].argsort()]
            rows = rows[keys[rows] >= 0]
            self.top, self.top_keys = rows.tolist(), keys[rows].tolist()
            self.floor = self.top_keys[0] - 1 if len(rows) == TOP else -1

    def forget_top(self) -> None:
        """Many keys have changed."""
        self.floor, self.top, self.top_keys, self.late, self.picks = None, [], [], [], 0


class _Contents:
    """Numbers for what rows have left, and for their classes: equal rows, equal numbers."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self._machines: dict[int, bytes] = {}
        self._nodes_seen = -1

    def open(self, nodes_seen: int) -> None:
        """What machines are is read again where nodes have changed."""
        if nodes_seen != self._nodes_seen:
            self._nodes_seen = nodes_seen
            self._machines.clear()

    def number(self, row: int, snapshot: NodeSnapshot, node_classes: Collection[np.ndarray]) -> int:
        free, devices = snapshot.row(row)
        machine = self._machines.get(row)
        if machine is None:
            machine = self._machines[row] = snapshot.table.allocatable[row].tobytes()
        content: Hashable = (*free, *devices, machine)
        if node_classes:
            content = content, *[int(node_class[row]) for node_class in node_classes]
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
        self.sessions = 0
        """How many there have been."""
        self._asked: set[ShapeId] = set()
        """Shapes whose best node was wanted already."""

    def is_new(self, shape: ShapeId) -> bool:
        """Whether nobody has asked for this shape before. From then on it is known, and its ranking is worth keeping."""
        if shape in self._asked:
            return False
        if len(self._asked) > MAX_CONTENTS:
            self._asked.clear()
        self._asked.add(shape)
        return True

    @staticmethod
    def of(state: ClusterState, scorers: Scorers) -> "Rankings":
        key = (state.table.structure, scorers, switches(state))
        kept = state.memo.find(Rankings)
        if kept is None or kept.key != key:
            kept = state.memo.keep(Rankings(key, scorers, len(state.table.names)))
        if len(kept.contents.numbers) > MAX_CONTENTS:
            kept.contents = _Contents()
            for ranking in kept.by_shape.values():
                ranking.known.clear()
        return kept


class Placer:
    """For one session. Where scorers, or the rules about nodes that count, are others than in the last one, all rankings are made anew."""

    def __init__(self, state: ClusterState, snapshot: NodeSnapshot, scorers: Scorers) -> None:
        self._state = state
        self._snapshot = snapshot
        self._kept = Rankings.of(state, scorers)
        self._kept.contents.open(state.changed_rows.position)
        self._kept.sessions += 1
        self._session = self._kept.sessions
        self.unit = len(state.table.names) + 1
        """One point of score in a key; what is below it is the tie-break."""
        node_classes = {i: node_classes(state) for i, s in enumerate(scorers[0]) if (node_classes := getattr(s, "node_classes", None)) is not None}
        self._node_classes: dict[int, np.ndarray] = node_classes
        """By the place of each scorer that has them."""
        self._news: dict[tuple[int, int, int, int], np.ndarray | None] = {}
        """What `_changed` has found."""

    def best(self, shape: ShapeId) -> int | None:
        """The row of the best node, or None where nothing fits."""
        if shape not in self._kept.by_shape and self._kept.is_new(shape):
            # Where every pod has its own shape none is asked for again, and to keep an array for each costs as much as to make it.
            return self._best_by_score(shape)
        return self._ranking(shape).best()

    def keys(self, shape: ShapeId) -> np.ndarray:
        """`(nodes,) int64`: the rank of each row as it is now, -1 where the shape does not fit. Must not be written to."""
        return self._ranking(shape).keys

    def fits(self, shape: ShapeId, row: int) -> bool:
        return bool(static_mask(self._state, shape)[row]) and self._state.table.fits_row(row, self._state.vectors[shape])

    # -- rankings ----------------------------------------------------------------------------------------------------

    def _ranking(self, shape: ShapeId) -> _Ranking:
        """As it is now. When first asked for in this session it is brought up to what has changed since its last one."""
        known, changes = self._kept.by_shape.get(shape), self._snapshot.changes
        if known is None or known.session != self._session:
            known = self._new(shape) if known is None else self._refresh(shape, known)
            known.session = self._session
            # The node snapshot may have charged rows already: those are in the table's arrays, too.
            known.told = len(changes)
        elif known.told < len(changes):
            rows = set(changes[known.told :])
            known.told = len(changes)
            self._rank(shape, known, rows)
        return known

    def _new(self, shape: ShapeId) -> _Ranking:
        state, kept = self._state, self._kept
        while len(kept.by_shape) >= kept.most:
            del kept.by_shape[next(iter(kept.by_shape))]
        ranking = _Ranking(state, self._base_of(shape))
        ranking.keys = self._keys(shape, ranking.base, slice(None))
        ranking.plain = ranking.keys.data
        kept.by_shape[shape] = ranking
        return ranking

    def _refresh(self, shape: ShapeId, ranking: _Ranking) -> _Ranking:
        state, kept, changes = self._state, self._kept, self._snapshot.changes
        rows = self._changed(ranking)
        del kept.by_shape[shape]
        if rows is None:
            return self._new(shape)
        kept.by_shape[shape] = ranking  # used last
        ranking.base = self._base_of(shape)
        ranking.seen, ranking.nodes_seen = state.table.dirty.position, state.changed_rows.position
        if len(rows) >= MANY:
            self._rank_many(shape, ranking, rows)
            rows = rows[:0]
        if len(rows) or changes:
            self._rank(shape, ranking, {*rows.tolist(), *changes})
        return ranking

    def _changed(self, ranking: _Ranking) -> np.ndarray | None:
        """Rows that may be others than when it was up to date, in order; None where that is forgotten. Most shapes were up to date at the same time."""
        nodes, dirty = self._state.changed_rows, self._state.table.dirty
        key = ranking.nodes_seen, ranking.seen, nodes.position, dirty.position
        if key not in self._news:
            seen = nodes.since(ranking.nodes_seen), dirty.since(ranking.seen)
            forgotten = seen[0] is None or seen[1] is None
            self._news[key] = None if forgotten else np.array(sorted({*(seen[0] or ()), *(seen[1] or ())}), np.int64)
        return self._news[key]

    def _base_of(self, shape: ShapeId) -> _Base:
        """Up to date, and shared."""
        state, kept = self._state, self._kept
        spec = state.shapes[shape]
        key = (node_rules(spec), *[scorer.reads(spec) for scorer in kept.scorers[1]])
        known = kept.bases.get(key)
        position = state.changed_rows.position
        if known is not None and known.nodes_seen == position:
            return known
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
            self._rank_many(shape, ranking, np.array(sorted(rows), np.int64))
            return
        if ranking.base.plain is None:
            ranking.base.plain = ranking.base.keys.tolist()
        bases, known, unit = ranking.base.plain, ranking.known, self.unit
        contents, snapshot = self._kept.contents, self._snapshot
        numbers = snapshot.contents
        plain, late = ranking.plain, ranking.late
        floor = NEVER if ranking.floor is None else ranking.floor
        for row in rows:
            if (base := bases[row]) < 0:
                plain[row] = -1
                continue
            if (number := numbers.get(row)) is None:
                number = numbers[row] = contents.number(row, snapshot, self._node_classes.values())
            if (score := known.get(number)) is None:
                score = self._score(shape, ranking, row)
                score = known[number] = score * unit if score >= 0 else NOWHERE
            plain[row] = key = base + score if score >= 0 else -1
            if key > floor:
                heappush(late, (-key, row))

    def _rank_many(self, shape: ShapeId, ranking: _Ranking, at: np.ndarray) -> None:
        ranking.keys[at] = self._keys(shape, ranking.base, at)
        ranking.forget_top()

    def _score(self, shape: ShapeId, ranking: _Ranking, row: int) -> int:
        if not self._has_capacity(self._state.vectors[shape], row):
            return -1
        free, shares = self._snapshot.row(row)
        if ranking.ones is None:
            ranking.ones = [scorer.one(self._state, shape) for scorer in self._kept.scorers[0]]
        allocatable = self._state.table.allocatable[row].tolist()
        if not self._node_classes:
            return sum(one(free, allocatable, shares) for one in ranking.ones)
        total = 0
        for i, one in enumerate(ranking.ones):
            node_classes = self._node_classes.get(i)
            total += one(free, allocatable, shares) if node_classes is None else one(free, allocatable, shares, int(node_classes[row]))
        return total

    def _has_capacity(self, v: Vector, row: int) -> bool:
        free, shares = self._snapshot.row(row)
        for column, amount in v.items:
            if free[column] < amount:
                return False
        return v.devices is None or sum(share >= v.devices.milli for share in shares) >= v.devices.count

    def _keys(self, shape: ShapeId, base: _Base, at: np.ndarray | slice) -> np.ndarray:
        """`(rows,) int64`: rank of each row, -1 where the shape does not fit."""
        table, v = self._state.table, self._state.vectors[shape]
        free, fits = table.free[at], base.keys[at] >= 0
        for column, amount in v.items:
            fits &= free[:, column] >= amount
        if v.devices is not None:
            fits &= (table.device_free[at] >= v.devices.milli).sum(axis=1) >= v.devices.count
        many = np.count_nonzero(fits)
        if not many:
            return np.full(len(fits), -1, np.int64)
        keys = self._scored(shape, base, at)
        if many < len(keys):
            keys[~fits] = -1
        return keys

    def _scored(self, shape: ShapeId, base: _Base, at: np.ndarray | slice) -> np.ndarray:
        """The same, where the shape fits; elsewhere anything."""
        scores = [scorer.many(self._state, shape)(at) for scorer in self._kept.scorers[0]]
        if not scores:
            return base.keys[at].copy()
        keys = sum(scores[1:], scores[0]) * self.unit
        keys += base.keys[at]
        return keys

    def _best_by_score(self, shape: ShapeId) -> int | None:
        """The best row, without a ranking: nearly always that with the highest score of all has capacity."""
        base = self._base_of(shape)
        keys = self._scored(shape, base, slice(None))
        if not len(keys):
            return None
        row = int(keys.argmax())
        if base.keys[row] >= 0 and self._has_capacity(self._state.vectors[shape], row):
            return row
        keys = self._keys(shape, base, slice(None))
        row = int(keys.argmax())
        return row if keys[row] >= 0 else None

    def _base(self, shape: ShapeId, at: np.ndarray) -> np.ndarray:
        """`(rows,) int64`: static score and tie-break, -1 where a rule about the node forbids it."""
        state, table = self._state, self._state.table
        keys = len(table.names) - table.rank[at]
        for scorer in self._kept.scorers[1]:
            scores = scorer.static(state, shape, at)
            if scores is not None:
                keys = keys + scores * self.unit
        return np.where(static_mask(state, shape)[at] & table.alive[at], keys, -1)
