"""What whole free blocks (racks, NVLink domains) are worth to the gangs that are to be near to each other, in thousandths of the unit of `prices`.

Each pod of such a gang counts by itself wherever it fits, as any other (`usable_worth`). Once more it counts where it is one of a whole gang: of the slots that a
block has for such pods as many as make up whole gangs, at what they are worth there on average. So the last slots that make a block whole are worth a gang.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from restow.domain.defragmentation.demand_mix import WHOLE_PART, WantedGang
from restow.domain.defragmentation.prices import Prices
from restow.domain.defragmentation.usable_worth import MILLI
from restow.domain.fragmentation.fitting import needs, times, times_one
from restow.domain.network.blocks import NO_BLOCK
from restow.domain.network.reach import blocks
from restow.domain.predicates import static_mask
from restow.domain.resources import GPU_MILLI
from restow.domain.state import ClusterState


class GangClass(NamedTuple):
    """Gangs that are alike. By row: `at` the block, NO_BLOCK where none of its pods may be, and `weights` what one more pod that fits is worth; `names` of blocks. `needs`: by column what a pod asks for."""

    gang: WantedGang
    at: list[int]
    weights: list[int]
    names: list[str]
    needs: list[tuple[int, int]]
    number: int
    name: str


class BlockWorth:
    """As the state is when this is made."""

    def __init__(self, state: ClusterState, prices: Prices, hours: int, gangs: tuple[WantedGang, ...]) -> None:
        self.gangs, self._gpu = gangs, state.table.columns.get(GPU_MILLI, -1)
        self.classes = [_class(state, prices, hours, gang) for gang in gangs]

    def fits(self, free: np.ndarray, shares: np.ndarray, counted: np.ndarray) -> np.ndarray:
        """`(classes, nodes) int64`: for how many pods of each class of gangs each row has capacity; `free` `(nodes, resources)`, `shares` `(nodes, devices)`, `counted` `(nodes,) bool`."""
        found = np.zeros((len(self.classes), len(counted)), np.int64)
        for k, alike in enumerate(self.classes):
            rows = np.flatnonzero((np.array(alike.at, np.int64) != NO_BLOCK) & counted)
            found[k, rows] = times(alike.gang.one.v, free[rows], shares[rows], self._gpu)
        return found

    def fits_one(self, k: int, row: int, free: list[int], shares: list[int]) -> int:
        """The same of one row and class, in plain integers."""
        alike = self.classes[k]
        return 0 if alike.at[row] == NO_BLOCK else times_one(alike.needs, alike.gang.one.v.devices, free, shares)

    def tally(self, free: np.ndarray, shares: np.ndarray, counted: np.ndarray) -> "Tally":
        return Tally(self, self.fits(free, shares, counted), counted)


class Tally:
    """Whole gangs by block, as rows change. `fits` and `slots` by class and row, and by class and block; `total` is what all whole gangs are worth."""

    def __init__(self, of: BlockWorth, fits: np.ndarray, counted: np.ndarray) -> None:
        self.of, self._counted = of, counted.tolist()
        self.fits: list[list[int]] = fits.tolist()
        self.slots = [[0] * len(alike.names) for alike in of.classes]
        self._worth = [[0] * len(alike.names) for alike in of.classes]
        for k, alike in enumerate(of.classes):
            for row in np.flatnonzero(fits[k]).tolist():
                self.slots[k][alike.at[row]] += self.fits[k][row]
                self._worth[k][alike.at[row]] += self.fits[k][row] * alike.weights[row]
        self.total = sum(self.of_block(k, block) for k, alike in enumerate(of.classes) for block in range(len(alike.names)))

    def gangs(self, k: int, block: int) -> int:
        """How many whole ones the block has slots for."""
        return self.slots[k][block] // self.of.classes[k].gang.pods

    def of_block(self, k: int, block: int) -> int:
        """What these are worth."""
        slots, pods = self.slots[k][block], self.of.classes[k].gang.pods
        return self._worth[k][block] * (slots // pods * pods) // slots if slots else 0

    def of_class(self, k: int) -> tuple[int, int]:
        """How many there are in all blocks, and what they are worth."""
        every = range(len(self.slots[k]))
        return sum(self.gangs(k, block) for block in every), sum(self.of_block(k, block) for block in every)

    def only(self, rows: np.ndarray) -> int:
        """What whole gangs on these rows, `(nodes,) bool`, are worth: others add nothing to them."""
        counted = np.array(self._counted, bool) & rows
        return Tally(self.of, np.array(self.fits, np.int64).reshape(len(self.of.classes), len(counted)) * counted, counted).total

    def set(self, row: int, free: list[int], shares: list[int]) -> int:
        """What a row has free now; by how much more all of it is worth."""
        return sum([self._fit(k, row, self.of.fits_one(k, row, free, shares)) for k in range(len(self.fits))]) if self._counted[row] else 0

    def would(self, rows: Mapping[int, tuple[list[int], list[int], int]]) -> int:
        """By how much more it would be worth if these rows had so much free, by column and device."""
        before = {row: [fits[row] for fits in self.fits] for row in rows}
        more = sum([self.set(row, free, shares) for row, (free, shares, _) in rows.items()])
        for row, fits in before.items():
            for k, fit in enumerate(fits):
                self._fit(k, row, fit)
        return more

    def _fit(self, k: int, row: int, now: int) -> int:
        """So many of a class's pods fit on a row now; by how much more all is worth."""
        change = now - self.fits[k][row]
        if not change:
            return 0
        alike = self.of.classes[k]
        block = alike.at[row]
        before = self.of_block(k, block)
        self.fits[k][row] = now
        self.slots[k][block] += change
        self._worth[k][block] += change * alike.weights[row]
        more = self.of_block(k, block) - before
        self.total += more
        return more


def _class(state: ClusterState, prices: Prices, hours: int, gang: WantedGang) -> GangClass:
    found, one, gpu = blocks(state, gang.topology), gang.one, state.table.columns.get(GPU_MILLI, -1)
    known = gang.tier < len(found.tiers)
    able = static_mask(state, one.rules) & state.table.alive
    at = np.where(able, found.at[gang.tier], NO_BLOCK).tolist() if known else [NO_BLOCK] * len(able)
    weights = [price * one.part * one.size * hours // (max(size, 1) * WHOLE_PART * MILLI) for price, size in zip(prices.per_hour, prices.size, strict=True)]
    number, name = found.tiers[gang.tier] if known else (0, "")
    return GangClass(gang, at, weights, list(found.names[gang.tier]) if known else [], needs(one.v, gpu), number, name)
