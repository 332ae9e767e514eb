"""Rows over time: every version of every row in typed arrays, keyframes of which version was in force, and the changes between.

A keyframe is taken whenever as many changes have come as there are rows in force: so both together are as large as the changes, and any
instant is one keyframe and at most as many changes as it has rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from typing import Any

import numpy as np

GONE = -1
"""The version of a row that is there no more."""
LEAST_APART = 1024
"""Changes between two keyframes, at least."""
_PENDING = 4096


class Grown:
    """An array of records that only grows. Appending costs a list's append."""

    def __init__(self, dtype: Any) -> None:
        self._buffer, self._size = np.empty(_PENDING, dtype), 0
        self._pending: list[tuple] = []

    def __len__(self) -> int:
        return self._size + len(self._pending)

    def add(self, row: tuple) -> None:
        self._pending.append(row)
        if len(self._pending) >= _PENDING:
            self._flush()

    @property
    def array(self) -> np.ndarray:
        """`(len,)`; a view, and never changed."""
        self._flush()
        return self._buffer[: self._size]

    def _flush(self) -> None:
        count = len(self._pending)
        if not count:
            return
        if self._size + count > len(self._buffer):
            # Whoever has a view of the old one keeps it.
            larger = np.empty(max(2 * len(self._buffer), self._size + count), self._buffer.dtype)
            larger[: self._size] = self._buffer[: self._size]
            self._buffer = larger
        self._buffer[self._size : self._size + count] = np.array(self._pending, self._buffer.dtype)
        self._size += count
        self._pending.clear()


_CHANGE = np.dtype([("seq", "<i8"), ("slot", "<i8"), ("version", "<i8")])


class Track:
    """The rows of one kind. A key has one *slot* for ever, in the order in which keys are first named."""

    def __init__(self, dtype: Any) -> None:
        self.slots: dict[Hashable, int] = {}
        self.keys: list[Any] = []
        self._rows, self._changes = Grown(dtype), Grown(_CHANGE)
        self._now: dict[int, Any] = {}
        self._versions: dict[int, int] = {}
        self._frames: list[tuple[int, np.ndarray]] = [(0, np.empty(0, np.int64))]

    def slot(self, key: Hashable) -> int:
        """The slot of a key, which it has from now on."""
        found = self.slots.get(key)
        if found is None:
            found = self.slots[key] = len(self.keys)
            self.keys.append(key)
        return found

    def present(self) -> list[Any]:
        """The keys whose rows are in force at the end."""
        return [self.keys[slot] for slot in self._versions]

    def row(self, key: Hashable) -> Any:
        """The row that is in force for the key at the end, None for none."""
        slot = self.slots.get(key)
        return None if slot is None else self._now.get(slot)

    def put(self, seq: int, key: Hashable, row: Any, record: tuple | None) -> None:
        """From `seq` on `row` is in force, as this `record` of the dtype, whose first field is the slot; None for both: none is."""
        slot = self.slot(key)
        if record is None:
            self._now.pop(slot, None)
            self._versions.pop(slot, None)
            version = GONE
        else:
            self._now[slot], version = row, len(self._rows)
            self._versions[slot] = version
            self._rows.add(record)
        self._changes.add((seq, slot, version))
        if len(self._changes) - self._frames[-1][0] >= max(LEAST_APART, len(self._versions)):
            self._frames.append((len(self._changes), np.fromiter(self._versions.values(), np.int64, len(self._versions))))

    # -- questions ---------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> np.ndarray:
        """Every version of every row."""
        return self._rows.array

    @property
    def changes(self) -> np.ndarray:
        """Every change, in its order: since which sequence (`seq`), which `slot`, and its `version`, which is GONE where there is none any more."""
        return self._changes.array

    def until(self, seq: int) -> np.ndarray:
        """The changes up to this sequence."""
        changes = self._changes.array
        return changes[: int(np.searchsorted(changes["seq"], seq, side="right"))]

    def versions_at(self, seq: int) -> np.ndarray:
        """`(rows in force,) int64`: their versions after sequence `seq`, by slot."""
        changes, rows = self._changes.array, self._rows.array
        end = int(np.searchsorted(changes["seq"], seq, side="right"))
        begin, base = self._frames[bisect_right(self._frames, end, key=lambda frame: frame[0]) - 1]
        # By slot; where one changed several times, numpy's assignment keeps the last value.
        now = np.full(len(self.keys), GONE, np.int64)
        now[rows["slot"][base]] = base
        now[changes["slot"][begin:end]] = changes["version"][begin:end]
        return now[now != GONE]

    def last_until(self, seq: int) -> np.ndarray:
        """`(rows,) int64`: the last version until then of every row, also of those that are no more. O(changes)."""
        changes = self.until(seq)
        changes = changes[changes["version"] != GONE]
        now = np.full(len(self.keys), GONE, np.int64)
        # Where one changed several times, numpy's assignment keeps the last value.
        now[changes["slot"]] = changes["version"]
        return now[now != GONE]

    def history(self, slot: int) -> list[tuple[int, Any]]:
        """Every version of one row in its order: since which sequence, and its record; None where there is none."""
        changes = self._changes.array
        return [(int(seq), None if version == GONE else self._rows.array[version]) for seq, _, version in changes[changes["slot"] == slot].tolist()]

    def changed(self, after: int, upto: int) -> np.ndarray:
        """`(slots,) bool`: those whose row at the one sequence may be another than at the other one. Either may be the later."""
        changes = self._changes.array
        begin, end = np.searchsorted(changes["seq"], sorted((after, upto)), side="right")
        mask = np.zeros(len(self.keys), bool)
        mask[changes["slot"][begin:end]] = True
        return mask
