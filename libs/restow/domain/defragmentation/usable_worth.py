"""What the free capacity of nodes is worth to the demands that there are, for a time, in thousandths of the unit of `prices`.

Of each demand as many requests count as fit beside each other, each demand taken alone and weighed by its part of all that is asked for. So a node with
eight free GPUs is worth more than eight nodes with one each, by as much as is asked for in eights. A node that is empty and that an autoscaler would take
away is worth its price.
"""

from itertools import chain, zip_longest

import numpy as np

from restow.contracts.ids import NodeName
from restow.contracts.values import DeviceRequest
from restow.domain.defragmentation.demand_mix import WHOLE_PART, Wanted, mix
from restow.domain.defragmentation.prices import Prices
from restow.domain.device_choice import copies, copies_many
from restow.domain.fragmentation import is_load
from restow.domain.fragmentation.fitting import MANY, needs, times_one
from restow.domain.predicates import static_mask
from restow.domain.resources import GPU_MILLI
from restow.domain.state import ClusterState

MAX_KNOWN = 1 << 16
"""Node contents that the worth of is kept."""
MOST_TIMES = 1 << 62
"""No request fits more often anywhere."""
MILLI = 1000
"""Millionths of a unit, as prices are, in one of the thousandths that worth and costs are."""


class UsableWorth:
    """As the state is when this is made; `hours`: for how long what is free is counted."""

    def __init__(self, state: ClusterState, prices: Prices, hours: int, wanted: tuple[Wanted, ...] | None = None) -> None:
        """`wanted`: demands of another moment."""
        self._prices, self._hours = prices, hours
        self._removable = state.migration_config.emptied != "none"
        self._gpu = gpu = state.table.columns.get(GPU_MILLI, -1)
        self._wanted: tuple[Wanted, ...] = mix(state, prices.sizes) if wanted is None else wanted
        self._masks = [static_mask(state, one.rules) for one in self._wanted]
        self._open = [mask.tolist() for mask in self._masks]
        alike: dict[tuple, int] = {}
        opens = list(zip(*self._open, strict=True)) or [()] * len(state.table.names)
        self._of_row = [(alike.setdefault((*of, taken), len(alike)), taken) for *of, taken in zip(prices.per_hour, prices.size, opens, strict=True)]
        """By row: the same number for those where the same contents are worth the same, and which demands it takes."""
        self._needs = [needs(one.v, gpu) for one in self._wanted]
        self._weights = np.array([mask * (one.part * one.size) for one, mask in zip(self._wanted, self._masks, strict=True)], np.int64).reshape(len(self._wanted), len(state.table.names))
        self._weight = self._weights[:, 0] if self._weights.size and (self._weights == self._weights[:, :1]).all() else None
        """Where it is the same on all nodes."""
        self._amounts = list(dict.fromkeys(chain.from_iterable(self._needs)))
        self._requests = list(dict.fromkeys(one.v.devices for one in self._wanted if one.v.devices is not None))
        at = {asked: i for i, asked in enumerate([*self._amounts, *self._requests])}
        which = [[*map(at.__getitem__, needs), *([at[one.v.devices]] if one.v.devices is not None else []), len(at)] for one, needs in zip(self._wanted, self._needs, strict=True)]
        self._scarcest = np.array(list(zip_longest(*which, fillvalue=len(at))), np.int64).reshape(max(map(len, which), default=1), len(which))
        """`(most, demands)`: which of all amounts and requests each demand asks for, and at last `MANY`."""
        self._alike: dict[tuple[bool, ...], list[tuple[DeviceRequest | None, list[tuple[int, list[tuple[int, int]]]]]]] = {}
        """By which demands a row takes: those by what they ask of devices, each with its weight."""
        self._known: dict[tuple, int] = {}
        self._per_hour, self._size = np.array(prices.per_hour, np.int64), np.maximum(np.array(prices.size, np.int64), 1)
        self._each, self._rest = np.divmod(self._per_hour, self._size)
        self.most = max(max(prices.per_hour, default=0) * hours // MILLI, 1)
        """Of one node."""

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """The demands, the largest part first."""
        return self._wanted

    def one(self, row: int, free: list[int], shares: list[int], loads: int) -> int:
        """Of one node, in plain integers. `loads`: pods that keep it from being free."""
        if self._removable and not loads:
            return self._prices.per_hour[row] * self._hours // MILLI
        alike, opens = self._of_row[row]
        key = (alike, *free, *shares)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            size = self._size_of(opens, free, shares)
            known = self._known[key] = self._prices.part(row, size // WHOLE_PART) * self._hours // MILLI
        return known

    def _size_of(self, opens: tuple[bool, ...], free: list[int], shares: list[int]) -> int:
        """What fits, each demand alone, in `WHOLE_PART`ths of a size: devices are counted once for all that ask for the same."""
        alike = self._alike.get(opens)
        if alike is None:
            grouped: dict[DeviceRequest | None, list[tuple[int, list[tuple[int, int]]]]] = {}
            for one, needs, taken in zip(self._wanted, self._needs, opens, strict=True):
                if taken and (needs or one.v.devices is not None):
                    grouped.setdefault(one.v.devices, []).append((one.part * one.size, needs))
            alike = self._alike[opens] = list(grouped.items())
        size = 0
        for request, some in alike:
            most = copies(shares, request) if request is not None else MOST_TIMES
            if most > 0:
                for weight, needs in some:
                    count = most
                    for c, a in needs:
                        if free[c] < a * count:
                            count = free[c] // a
                    if count > 0:
                        size += weight * count
        return size

    def weights(self, row: int, one: int) -> list[int]:
        """Of each demand what one more that fits adds to the row's worth, times `one`, rounded up; 0 where the row does not take it."""
        per_hour, below = self._prices.per_hour[row] * self._hours * one, max(self._prices.size[row], 1) * WHOLE_PART * MILLI
        return [-(-per_hour * wanted.part * wanted.size // below) if mask[row] else 0 for wanted, mask in zip(self._wanted, self._open, strict=True)]

    def counts(self, free: list[int], shares: list[int]) -> list[int]:
        """How often each demand fits, whatever node it is."""
        return [times_one(needs, one.v.devices, free, shares) for one, needs in zip(self._wanted, self._needs, strict=True)]

    def needs(self, i: int) -> list[tuple[int, int]]:
        """By column what a demand asks for; without GPU share where devices say enough."""
        return self._needs[i]

    def empty(self, row: int, one: int) -> int:
        """What the row is worth with nobody on it because of that, times `one`, rounded up; 0 where an autoscaler takes none."""
        return self.whole(row, one) if self._removable else 0

    def whole(self, row: int, one: int) -> int:
        """What the row costs, times `one`, rounded up."""
        return -(-self._prices.per_hour[row] * self._hours * one // MILLI)

    def rounded(self, row: int, one: int) -> int:
        """By how much less than its `weights` say the row may be worth, because `one` (the method) rounds down; times `one`."""
        hours, size = self._hours * one, max(self._prices.size[row], 1) * MILLI
        return one - (-hours // MILLI) - (-self._prices.per_hour[row] * hours // size)

    def many(self, rows: np.ndarray, free: np.ndarray, shares: np.ndarray, loads: np.ndarray) -> np.ndarray:
        """`(rows,) int64`: the same of many; `free` `(rows, resources)`, `shares` `(rows, devices)`, `loads` `(rows,)`."""
        # Columns and devices lie side by side then, and each is divided by one number at a time: several times as fast as by an array of them.
        columns, shares = np.ascontiguousarray(free.T), np.asfortranarray(shares)
        often = np.empty((len(self._amounts) + len(self._requests) + 1, len(rows)), np.int64)
        for at, (c, a) in enumerate(self._amounts):
            np.floor_divide(columns[c], a, out=often[at])
        for at, request in enumerate(self._requests, len(self._amounts)):
            often[at] = copies_many(shares, request)
        often[-1] = MANY
        fit = often[self._scarcest[0]]
        for others in self._scarcest[1:]:
            np.minimum(fit, often[others], out=fit)
        np.maximum(fit, 0, out=fit)
        size = np.einsum("dn,d->n", fit, self._weight) if self._weight is not None else (fit * self._weights[:, rows]).sum(axis=0)
        size //= WHOLE_PART
        # In two parts: a price of 10,000 times the size of 20,000 cores is more than 64 bits hold.
        found = (self._each[rows] * size + self._rest[rows] * size // self._size[rows]) * self._hours // MILLI
        return np.where(loads == 0, self._per_hour[rows] * self._hours // MILLI, found) if self._removable else found


def loads_of(state: ClusterState) -> np.ndarray:
    """`(nodes,) int64`: pods that keep each row from being free, without those that migrate away; a hold does, too."""
    loads = np.zeros(len(state.table.names), np.int64)
    for name, row in state.table.rows.items():
        pods = state.on_node.get(NodeName(name), ())
        loads[row] = sum([is_load(state, uid) for uid in pods if uid not in state.victims]) + (name in state.held_on)
    return loads
