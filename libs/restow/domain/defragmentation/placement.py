"""Where a pod would land: of the rows that may take it, have capacity for it and that every rule lets it onto, the best by an objective.

One query for both planners. For each equivalence class of pods (equal requests, equal rules about nodes) the rank of every row is kept, and made anew only for
rows that have changed: a question costs one pass over integers. Rules that depend on what runs are asked of the simulation besides.
"""

from collections.abc import Hashable, Iterable
from typing import Protocol

import numpy as np

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.simulation import Simulation, Spot
from restow.domain.fragmentation import alike
from restow.domain.node_table import Vector
from restow.domain.predicates import static_mask

PARTS = 1024
MANY_ROWS = 32
"""Rows from which on the vectorised form is the faster one."""
MOST_CONTENTS = 1 << 16
"""Contents of rows of which ranks are kept."""
RANKED = 1_000
"""Rows that are ranked for a new class of pods in one step of search."""


class Objective(Protocol):
    """Ranks are positive, and of two rows the one with the higher rank is the better one."""

    def asks(self, v: Vector) -> tuple[tuple[tuple[int, int], ...], int]:
        """What a row must have free, by column, and thousandths that must stay free of each device beside a share."""
        ...

    def rank(self, v: Vector, free: np.ndarray, shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """`(rows,) int64`: of rows with this free, `(rows, resources)` and `(rows, devices)`."""
        ...

    def rank_one(self, v: Vector, free: list[int], shares: list[int], row: int) -> int:
        """The same of one row that the pod fits on, in plain integers; a test holds both equal."""
        ...

    def beside(self, row: int) -> int:
        """All that the rank of a row depends on, and that changes, beside what it has free."""
        ...

    def spot(self, uid: PodUid, row: int) -> Spot | None:
        """What the pod gets there; None where its devices or CPUs cannot be had as they are chosen."""
        ...


class Suits(Protocol):
    """`enough`: the rank from which on it may be decided by what the pod prefers."""

    enough: int

    def worse(self, uid: PodUid) -> np.ndarray | None:
        """`(nodes,)`: true for rows that suit the pod less than its home; None where it makes no difference."""
        ...


class _Class:
    """Pods of equal requests and equal rules about nodes."""

    __slots__ = ("items", "kept", "keys", "known", "mask", "number", "seen", "v")

    def __init__(self, number: int, v: Vector, items: tuple[tuple[int, int], ...], kept: int, mask: np.ndarray) -> None:
        self.number, self.v, self.items, self.kept, self.mask = number, v, items, kept, mask
        self.keys, self.seen = np.zeros(0, np.int64), -1
        """As of so many of the board's changes; none before somebody asks."""
        self.known: dict[int, int] = {}
        """Ranks by content of a row (`Placement._content`): what is tried and taken back is ranked once."""


class Placement:
    """`open` `(nodes,) bool`: rows where something may land. `floor` `(nodes,) int64`: what must stay free of `column` (the resource that
    is protected; -1 for none). `steps` counts what was asked."""

    def __init__(self, simulation: Simulation, open: np.ndarray, column: int, floor: np.ndarray, objective: Objective) -> None:
        self.simulation, self.open, self.column, self.floor, self.objective = simulation, open, column, floor, objective
        self.steps = 0
        self.suits: Suits | None = None
        """Which rows to prefer among those of a rank that is good enough; None for no difference."""
        self._state, self._table, self._board = simulation.state, simulation.state.table, simulation.session.nodes
        self._classes: dict[Hashable, _Class] = {}
        self._of_shape: dict[str, _Class] = {}
        self._contents: dict[tuple, int] = {}
        self._now: dict[int, int] = {}
        """By row: its content, as far as it is known. `_read` of the board's changes are in it."""
        self._read = 0

    def find(self, uid: PodUid, banned: Iterable[int] = (), least: int = 0) -> Spot | None:
        """The best row for a pod that is in the air, one that suits it if there is any of a rank that is good enough; None where it fits on none of this rank at `least`."""
        if self.suits is not None and (worse := self.suits.worse(uid)) is not None:
            banned = list(banned)
            found = self._find(uid, [*banned, *np.flatnonzero(worse).tolist()], max(least, self.suits.enough))
            if found is not None:
                return found
        return self._find(uid, banned, least)

    def _find(self, uid: PodUid, banned: Iterable[int], least: int) -> Spot | None:
        self.steps += 1
        keys = self.keys(uid)
        rules = bool(self.simulation.rules(uid))
        if rules:
            keys = keys.copy()
            for _, failing in self.simulation.failing(uid):
                keys[failing] = -1
        rows = list(banned)
        saved = keys[rows]
        keys[rows] = -1
        found: Spot | None = None
        while found is None:
            row = int(keys.argmax()) if len(keys) else -1
            if row < 0 or keys[row] < least:
                break
            found = self.objective.spot(uid, row)
            if found is None:
                rows.append(row)
                saved = np.append(saved, keys[row])
                keys[row] = -1
        if not rules:
            # Backwards, so that a row that was banned twice gets its own.
            for row, key in zip(reversed(rows), reversed(saved.tolist()), strict=True):
                keys[row] = key
        return found

    def fits_at(self, uid: PodUid, row: int) -> Spot | None:
        """What the pod gets on this row; None where it does not fit, or a rule does not let it."""
        self.steps += 1
        # Without ranks: of one row they are not asked for, and of all rows they take long to bring up to date.
        if self._fits(self._class(uid), row) is None or self.simulation.forbidden(uid, row):
            return None
        return self.objective.spot(uid, row)

    def ranks_without(self, uid: PodUid, rows: np.ndarray, asks: np.ndarray, device: np.ndarray, milli: np.ndarray) -> np.ndarray:
        """`(pods,) int64`: the rank of each other pod's row for this one if the other pod were not there; -1 where that does not help. `asks` `(pods, resources)` is
        what it has, and `milli` what it has of its one `device` (-1 where it has none or several)."""
        one, table = self._class(uid), self._table
        found = np.full(len(rows), -1, np.int64)
        lacks, fits = np.zeros(len(rows), bool), one.mask[rows]
        for c, a in one.items:
            free = self._free(table.free[:, c], c)[rows]
            lacks |= free < a
            fits = fits & (free + asks[:, c] >= a)
        some = np.flatnonzero(fits)
        rows, asks, device, milli = rows[some], asks[some], device[some], milli[some]
        shares = table.device_free[rows]
        helps, request = lacks[some], one.v.devices
        if request is not None:
            least, has = request.milli + one.kept, np.flatnonzero(device >= 0)
            now = shares[has, device[has]]
            shares[has, device[has]] = now + milli[has]
            helps[has] |= (now < least) & (now + milli[has] >= least)
            helps &= (shares >= least).sum(axis=1) >= request.count
        some, rows, shares, asks = some[helps], rows[helps], shares[helps], asks[helps]
        if len(some):
            found[some] = self.objective.rank(one.v, table.free[rows] + asks, shares, rows)
        return found

    def short(self, uid: PodUid) -> np.ndarray:
        """`(nodes,) int64`: how much a pod lacks on each row, in parts of its request; -1 where nobody's leaving would help."""
        self.steps += 1
        one, table = self._class(uid), self._table
        lack = np.zeros(len(table.names), np.int64)
        for c, a in one.items:
            lack += np.clip(a - self._free(table.free[:, c], c), 0, a) * PARTS // a
        if (devices := one.v.devices) is not None:
            width = table.device_free.shape[1]
            if devices.count > width:
                return np.full(len(lack), -1)
            widest = np.partition(table.device_free, width - devices.count, axis=1)[:, width - devices.count]
            lack += np.clip(devices.milli - widest, 0, devices.milli) * PARTS // devices.milli
        return np.where(one.mask, lack, -1)

    def kind(self, uid: PodUid) -> int:
        """Equal for pods that are the same to place, rules about what runs aside."""
        return self._class(uid).number

    # -- ranks -------------------------------------------------------------------------------------------------------

    def keys(self, uid: PodUid) -> np.ndarray:
        """`(nodes,) int64`: the rank of each row as it is now, -1 where the pod does not fit (rules about what runs aside)."""
        one, changes = self._class(uid), self._board.changes
        if one.seen < 0:
            one.seen = len(changes)
            self.steps += 1 + len(one.mask) // RANKED
            one.keys = self.rank(one, np.arange(len(one.mask)))
        elif one.seen < len(changes):
            rows = set(changes[one.seen :])
            one.seen = len(changes)
            if len(rows) < MANY_ROWS:
                for row in rows:
                    content = self._content(row)
                    rank = one.known.get(content)
                    if rank is None:
                        rank = one.known[content] = self.rank_one(one, row)
                    one.keys[row] = rank
            else:
                several = np.array(sorted(rows), np.int64)
                self.steps += 1
                one.keys[several] = self.rank(one, several)
        return one.keys

    def _content(self, row: int) -> int:
        """A number for the row and what it has."""
        changes, now = self._board.changes, self._now
        if self._read < len(changes):
            for changed in changes[self._read :]:
                now.pop(changed, None)
            self._read = len(changes)
        number = now.get(row)
        if number is None:
            if len(self._contents) >= MOST_CONTENTS:
                self._contents.clear()
                now.clear()
                for one in self._classes.values():
                    one.known.clear()
            free, shares = self._board.row(row)
            number = now[row] = self._contents.setdefault((row, self.objective.beside(row), *free, *shares), len(self._contents))
        return number

    def _class(self, uid: PodUid) -> _Class:
        shape = self._state.pods[uid].fact.shape
        one = self._of_shape.get(shape)
        if one is None:
            v = self._state.vectors[shape]
            key = (v.items, v.devices, alike(self._state, shape))
            one = self._classes.get(key)
            if one is None:
                mask = static_mask(self._state, shape) & self.open
                one = self._classes[key] = _Class(len(self._classes), v, *self.objective.asks(v), mask)
            self._of_shape[shape] = one
        return one

    def rank_one(self, one: _Class, row: int) -> int:
        """`rank` of one row."""
        has = self._fits(one, row)
        return -1 if has is None else self.objective.rank_one(one.v, *has, row)

    def _fits(self, one: _Class, row: int) -> tuple[list[int], list[int]] | None:
        """What this row has free, and of each device; None where such a pod does not fit there."""
        if not one.mask[row]:
            return None
        free, shares = self._board.row(row)
        floor = int(self.floor[row])
        for c, a in one.items:
            if free[c] - (floor if c == self.column else 0) < a:
                return None
        if one.v.devices is not None:
            milli = one.v.devices.milli + one.kept
            if sum(share >= milli for share in shares) < one.v.devices.count:
                return None
        return free, shares

    def rank(self, one: _Class, rows: np.ndarray) -> np.ndarray:
        free, shares = self._table.free[rows], self._table.device_free[rows]
        fits = one.mask[rows].copy()
        for c, a in one.items:
            fits &= self._free(free[:, c], c, rows) >= a
        if one.v.devices is not None:
            fits &= (shares >= one.v.devices.milli + one.kept).sum(axis=1) >= one.v.devices.count
        return np.where(fits, self.objective.rank(one.v, free, shares, rows), -1)

    def _free(self, free: np.ndarray, column: int, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Without what must stay free."""
        return free - self.floor[rows] if column == self.column else free
