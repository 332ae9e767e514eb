"""PersistentVolumes that an unbound claim may take: the smallest that fits, on each node.

Volumes lie on shelves by class, access modes and mode (block or file system), and there in piles by node affinity: a
thousand local volumes of one node are one pile.
"""

from bisect import bisect_left, insort

import numpy as np

from restow.contracts.events import ClaimObserved, VolumeObserved
from restow.domain.changes import Changes
from restow.domain.volumes.nodes import Nodes, Terms

_NONE = -1
"""The largest capacity where there is no volume."""

Sized = tuple[int, str]
"""Bytes and name: the order in which volumes are preferred."""
_ShelfKey = tuple[str, bool, tuple[str, ...]]


class _Shelf:
    """Volumes that differ in capacity and node affinity only. `largest`: `(nodes,) int64`, bytes of the largest volume with
    a node affinity that a row can reach."""

    __slots__ = ("anywhere", "largest", "of_row", "piles")

    def __init__(self, size: int) -> None:
        self.anywhere: list[Sized] = []
        self.piles: dict[Terms, list[Sized]] = {}
        self.of_row: dict[int, dict[Terms, None]] = {}
        self.largest = np.full(size, _NONE, np.int64)


class Pool:
    """What is available. Rows follow `nodes`: after their labels have changed the pool is made anew. `changed` lists rows
    with another volume in reach, `anywhere` counts changes that concern every row."""

    def __init__(self, nodes: Nodes) -> None:
        self.changed: Changes[int] = Changes()
        self.anywhere = 0
        self._nodes = nodes
        self._shelves: dict[_ShelfKey, _Shelf] = {}
        self._where: dict[str, tuple[_ShelfKey, Terms | None, int]] = {}

    def image(self) -> tuple:
        """All that is kept, to compare with another pool."""
        shelves = {
            key: (shelf.anywhere, shelf.piles, {r: set(t) for r, t in shelf.of_row.items() if t}, shelf.largest.tolist())
            for key, shelf in self._shelves.items()
            if shelf.anywhere or shelf.piles
        }
        return self._where, shelves

    def put(self, volume: VolumeObserved) -> None:
        self.take(volume.name)
        key = (volume.storage_class, volume.block, tuple(sorted(volume.modes)))
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = _Shelf(len(self._nodes))
        terms = volume.affinity
        self._where[volume.name] = (key, terms, volume.capacity)
        if terms is None:
            insort(shelf.anywhere, (volume.capacity, volume.name))
            self.anywhere += 1
            return
        rows = self._note(terms)
        pile = shelf.piles.get(terms)
        if pile is None:
            pile = shelf.piles[terms] = []
            for row in rows.tolist():
                shelf.of_row.setdefault(row, {})[terms] = None
        insort(pile, (volume.capacity, volume.name))
        shelf.largest[rows] = np.maximum(shelf.largest[rows], volume.capacity)

    def take(self, name: str) -> None:
        """The volume is not available any more; nothing happens where it was not."""
        where = self._where.pop(name, None)
        if where is None:
            return
        key, terms, capacity = where
        shelf = self._shelves[key]
        if terms is None:
            shelf.anywhere.remove((capacity, name))
            self.anywhere += 1
            return
        pile = shelf.piles[terms]
        pile.pop(bisect_left(pile, (capacity, name)))
        rows = self._note(terms)
        if not pile:
            del shelf.piles[terms]
            for row in rows.tolist():
                del shelf.of_row[row][terms]
        for row in rows[shelf.largest[rows] == capacity].tolist():
            shelf.largest[row] = max((shelf.piles[t][-1][0] for t in shelf.of_row[row]), default=_NONE)

    def _note(self, terms: Terms) -> np.ndarray:
        """The rows that these terms match, noted as changed."""
        rows = self._nodes.matching(terms)
        self.changed.extend(rows.tolist())
        # Nobody may ever ask, and asking is what forgets.
        self.changed.trim()
        return rows

    def reach(self, claim: ClaimObserved) -> np.ndarray:
        """`(nodes,) bool`: rows with a volume that fits the claim, other claims aside."""
        found = np.zeros(len(self._nodes), bool)
        for shelf in self._fitting(claim):
            if shelf.anywhere and shelf.anywhere[-1][0] >= claim.request:
                found[:] = True
                break
            found |= shelf.largest >= claim.request
        return found

    def smallest(self, claim: ClaimObserved, row: int, taken: set[str]) -> str:
        """The smallest volume that fits the claim on this row, ties by name; "" where there is none."""
        best: Sized | None = None
        for shelf in self._fitting(claim):
            for pile in (shelf.anywhere, *(shelf.piles[terms] for terms in shelf.of_row.get(row, ()))):
                at = bisect_left(pile, (claim.request, ""))
                while at < len(pile) and pile[at][1] in taken:
                    at += 1
                if at < len(pile) and (best is None or pile[at] < best):
                    best = pile[at]
        return "" if best is None else best[1]

    def _fitting(self, claim: ClaimObserved) -> list[_Shelf]:
        wanted = set(claim.modes)
        return [
            shelf
            for (storage_class, block, modes), shelf in self._shelves.items()
            if storage_class == claim.storage_class and block == claim.block and wanted.issubset(modes)
        ]
