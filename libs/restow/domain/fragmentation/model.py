"""What of a node's idle GPU share typical pods cannot use: quickly, for one node and for many.

Of a typical pod it matters whether the node's rules admit it (the node's *class*), whether everything else that it asks for is
there (a set of bits, by a search in what they ask for), and how many devices have enough for it. Once it is known which pods a
node is *open* to, a device's share says alone what of it is unusable, so that is a table by share; only pods of
several devices need to look at all of them together.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np

from restow.contracts.values import DeviceRequest
from restow.domain.fragmentation.typical import Typical
from restow.domain.node_table import WHOLE
from restow.domain.predicates import Switches, static_mask, switches
from restow.domain.state import ClusterState

MOST_SHARE = 1 << 60
"""More than any fragmentation: what a pod leaves that does not fit."""
MAX_OPEN = 1 << 12
"""Sets of typical pods that tables are kept for, each 8 KiB in either form."""

MAX_CODE = 1 << 40
"""Before numbers for rows grow beyond int64 they are counted anew."""

Asked = tuple[tuple[int, int], ...]
"""What a pod asks for of each column that typical pods ask for: (column, amount)."""


class Open:
    """Of a node that is open to these typical pods: `table[share]` (and `array`) is what is unusable of a device's idle share, times the
    sum of all weights, pods of several devices apart. Those are `several`: (count, milli, weight)."""

    __slots__ = ("array", "several", "table")

    def __init__(self, typical: Typical, bits: int) -> None:
        usable = np.zeros(WHOLE + 1, np.int64)
        several: dict[tuple[int, int], int] = {}
        for i, demand in enumerate(typical.demands):
            if not bits >> i & 1:
                continue
            if demand.count == 1:
                usable[demand.milli :] += demand.weight
            elif demand.count:
                asks = demand.count, demand.milli
                several[asks] = several.get(asks, 0) + demand.weight
        self.array = np.arange(WHOLE + 1) * (typical.weights - usable)
        self.table: list[int] = self.array.tolist()
        self.several = tuple((count, milli, weight) for (count, milli), weight in sorted(several.items()))

    def unusable(self, shares: Sequence[int]) -> int:
        """Idle shares of the devices (1 to WHOLE) → unusable thousandths, times the sum of all weights."""
        table, found = self.table, 0
        for idle in shares:
            found += table[idle]
        for count, milli, weight in self.several:
            able = [idle for idle in shares if idle >= milli]
            if len(able) >= count:
                found -= sum(able) * weight
        return found

    def placed(self, shares: Sequence[int], request: DeviceRequest | None) -> tuple[int, int]:
        """The same with a request taken from the shares, so that it is least; and the share that one device is taken from,
        the least among equals. Several devices are the fullest that suffice."""
        if request is None:
            return self.unusable(shares), 0
        count, milli = request.count, request.milli
        able = sorted(idle for idle in shares if idle >= milli)
        if len(able) < count:
            return MOST_SHARE, 0
        if count > 1:
            left = sorted(shares)
            for idle in able[:count]:
                left.remove(idle)
            return self.unusable([*left, *[idle - milli for idle in able[:count]]]), 0
        table, least, chosen = self.table, MOST_SHARE, 0
        if not self.several:
            for idle in able:
                if (found := table[idle - milli] - table[idle]) < least:
                    least, chosen = found, idle
            return least + self.unusable(shares), chosen
        tried = 0
        for idle in able:
            if idle == tried:
                continue
            tried = idle
            left = list(shares)
            left[left.index(idle)] = idle - milli
            if (found := self.unusable(left)) < least:
                least, chosen = found, idle
        return least, chosen


class OpenMany:
    """`Open` for many nodes: `tables` `(sets, shares)`, and for each row the index of its set."""

    def __init__(self, sets: Sequence[Open], of: np.ndarray) -> None:
        self._tables = np.stack([each.array for each in sets])
        self._of = of
        asks = sorted({(count, milli) for each in sets for count, milli, _ in each.several})
        weights = [{(count, milli): weight for count, milli, weight in each.several} for each in sets]
        self._several = [(*ask, np.array([w.get(ask, 0) for w in weights], np.int64)[of]) for ask in asks]

    def unusable(self, shares: np.ndarray) -> np.ndarray:
        """`(rows, devices)` idle shares, 0 where there is no device → `(rows,) int64`."""
        found = self._tables[self._of[:, None], shares].sum(axis=1)
        for count, milli, weight in self._several:
            able = shares >= milli
            usable = np.where(able, shares, 0).sum(axis=1) * weight
            found -= np.where(able.sum(axis=1) >= count, usable, 0)
        return found

    def placed(self, shares: np.ndarray, request: DeviceRequest | None) -> np.ndarray:
        """As `Open.placed`, without the choice."""
        if request is None:
            return self.unusable(shares)
        count, milli = request.count, request.milli
        able = shares >= milli
        if count > 1:
            order = np.argsort(np.where(able, shares, WHOLE + 1), axis=1, kind="stable")[:, :count]
            left = shares.copy()
            np.put_along_axis(left, order, np.take_along_axis(shares, order, axis=1) - milli, axis=1)
            return np.where(able.sum(axis=1) >= count, self.unusable(np.maximum(left, 0)), MOST_SHARE)
        return np.where(able, self._each(shares, np.maximum(shares - milli, 0)), MOST_SHARE).min(axis=1, initial=MOST_SHARE)

    def _each(self, shares: np.ndarray, left: np.ndarray) -> np.ndarray:
        """`(rows, devices)`: what is unusable of the row when this device has `left`, the others their shares."""
        of = self._of[:, None]
        was = self._tables[of, shares]
        found = was.sum(axis=1, keepdims=True) - was + self._tables[of, left]
        for count, milli, weight in self._several:
            before, after = shares >= milli, left >= milli
            able = before.sum(axis=1, keepdims=True) - before + after
            was = np.where(before, shares, 0)
            usable = was.sum(axis=1, keepdims=True) - was + np.where(after, left, 0)
            found -= np.where(able >= count, usable, 0) * weight[:, None]
        return found


class Model:
    """Made for one value of the typical pods; kept in `state.memo` with the tables that it has made."""

    def __init__(self, typical: Typical) -> None:
        self.typical = typical
        self._all = (1 << len(typical.demands)) - 1
        self._columns = [self._column(column) for column in sorted({c for d in typical.demands for c, _ in d.needs})]
        self._open: dict[int, Open] = {}
        self._node_classes: tuple[tuple[int, int, Switches], np.ndarray] | None = None
        self._numbers: dict[bytes, int] = {}
        self._admitted: list[int] = []

    @staticmethod
    def of(state: ClusterState, typical: Typical) -> "Model":
        kept = state.memo.find(Model)
        if kept is None or (kept.typical is not typical and kept.typical != typical):
            kept = state.memo.keep(Model(typical))
        return kept

    def _column(self, column: int) -> tuple[int, list[int], list[int]]:
        """(column, what is asked for, ascending; the bits of those whom it is enough for, by how many of these are there)."""
        needs = [dict(demand.needs).get(column, 0) for demand in self.typical.demands]
        steps = sorted({need for need in needs if need})
        bits = [sum(1 << i for i, need in enumerate(needs) if need <= there) for there in (0, *steps)]
        return column, steps, bits

    # -- classes of nodes ----------------------------------------------------------------------------------------------

    def node_classes(self, state: ClusterState) -> np.ndarray:
        """`(nodes,) int64`; numbers stay the same while the model does."""
        key = (state.table.structure, state.changed_rows.position, switches(state))
        if self._node_classes is None or self._node_classes[0] != key:
            rules, nodes = self.typical.rules, len(state.table.names)
            masks = np.zeros((nodes, len(rules)), bool)
            for i, shape in enumerate(rules):
                masks[:, i] = static_mask(state, shape)
            packed = np.packbits(masks, axis=1)
            unique, of = np.unique(packed, axis=0, return_inverse=True) if len(rules) else (packed[:1], np.zeros(nodes, np.int64))
            numbers = [self._number(pattern) for pattern in unique]
            self._node_classes = key, np.array(numbers, np.int64)[of.reshape(-1)]
        return self._node_classes[1]

    def _number(self, pattern: np.ndarray) -> int:
        number = self._numbers.setdefault(pattern.tobytes(), len(self._admitted))
        if number == len(self._admitted):
            admits = np.unpackbits(pattern).tolist()
            self._admitted.append(sum(1 << i for i, d in enumerate(self.typical.demands) if admits[d.rule]))
        return number

    # -- whom a node is open to --------------------------------------------------------------------------------------

    def asked(self, items: Iterable[tuple[int, int]]) -> Asked:
        amounts = dict(items)
        return tuple((column, amounts.get(column, 0)) for column, _, _ in self._columns)

    def open(self, asked: Asked, free: Sequence[int], node_class: int) -> tuple[Open, Open]:
        """Before and after these amounts are taken."""
        before = after = self._admitted[node_class]
        for (column, steps, bits), (_, amount) in zip(self._columns, asked, strict=True):
            there = free[column]
            before &= bits[bisect_right(steps, there)]
            after &= bits[bisect_right(steps, there - amount)]
        return self._table(before), self._table(after)

    def open_many(self, asked: Asked, free: np.ndarray, node_classes: np.ndarray) -> tuple[OpenMany, OpenMany]:
        """`open` for rows: `free` `(rows, columns)`, `node_classes` `(rows,)`."""
        found = []
        for taken in (False, True):
            # One number for a row's class and how much of each column is there: equal numbers, equal sets.
            code, radix = node_classes, len(self._admitted)
            indexes = [node_classes]
            for (column, steps, _), (_, amount) in zip(self._columns, asked, strict=True):
                there = free[:, column] - amount if taken else free[:, column]
                indexes.append(np.searchsorted(np.array(steps, np.int64), there, side="right"))
                if radix > MAX_CODE:
                    code = np.unique(code, return_inverse=True)[1]
                    radix = len(code)
                code, radix = code * (len(steps) + 1) + indexes[-1], radix * (len(steps) + 1)
            _, first, of = np.unique(code, return_index=True, return_inverse=True)
            sets: dict[int, int] = {}
            where = [sets.setdefault(self._bits(each), len(sets)) for each in np.stack(indexes, axis=1)[first].tolist()]
            found.append(OpenMany([self._table(bits) for bits in sets], np.array(where, np.int64)[of]))
        return found[0], found[1]

    def _bits(self, indexes: Sequence[int]) -> int:
        """Of a class, and for each column of how many steps there is enough."""
        bits = self._admitted[indexes[0]]
        for (_, _, masks), index in zip(self._columns, indexes[1:], strict=True):
            bits &= masks[index]
        return bits

    def _table(self, bits: int) -> Open:
        known = self._open.get(bits)
        if known is None:
            if len(self._open) >= MAX_OPEN:
                self._open.clear()
            known = self._open[bits] = Open(self.typical, bits)
        return known
