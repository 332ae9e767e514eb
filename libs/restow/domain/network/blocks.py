"""Blocks of nodes by tier: tier 1 is the narrowest group of nodes, such as a rack, each higher one is wider, and a node by itself is tier 0 (Volcano
counts HyperNodes in this way). A node is in at most one block of a tier, and blocks that share a node are one inside the other.

Rows are the node table's. Nothing here may depend on the order in which nodes came: blocks have numbers, but are told apart and ordered by name.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

HOSTNAME = "kubernetes.io/hostname"
NO_BLOCK = -1
Chain = tuple[str, ...]
"""The blocks that a node is in, by tier, the narrowest first; empty where it is in none of that tier."""


class Tier(NamedTuple):
    """`number` as users write it (`highestTierAllowed`), `name` as in `highestTierName`: a HyperNode's `tierName`, or a node label."""

    number: int
    name: str


class Source(Protocol):
    """Who says which blocks there are. Equal sources say the same of the same nodes."""

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The narrowest first."""
        ...

    def chain(self, node: str, labels: Mapping[str, str]) -> Chain: ...


class Labels(NamedTuple):
    """Levels by node labels, `keys` the widest first, as in Kueue's `Topology`. A block is named after the values from the widest level down to its own. A
    node that lacks a label is in no block of that level, nor of narrower ones."""

    keys: tuple[str, ...]

    @property
    def tiers(self) -> tuple[Tier, ...]:
        lowest = 0 if self.keys and self.keys[-1] == HOSTNAME else 1
        return tuple(Tier(lowest + i, key) for i, key in enumerate(reversed(self.keys)))

    def chain(self, node: str, labels: Mapping[str, str]) -> Chain:
        path, chain = list[str](), list[str]()
        for key in self.keys:
            value = labels.get(key) or (node if key == HOSTNAME else "")
            if not value:
                break
            path.append(value)
            chain.append("/".join(path))
        return (*[""] * (len(self.keys) - len(chain)), *reversed(chain))


class Blocks:
    """`at` `(tiers, rows) int64`: the number of the block of each tier that each row is in. `names` by tier and number. `stamp` grows with every change."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tiers = source.tiers
        self.names: list[list[str]] = [[] for _ in self.tiers]
        self.stamp = 0
        self._numbers: list[dict[str, int]] = [{} for _ in self.tiers]
        self._chains: list[Chain] = []
        self._at = np.full((len(self.tiers), 64), NO_BLOCK, np.int64)
        self._nowhere: Chain = ("",) * len(self.tiers)
        self._ranks: dict[int, tuple[int, np.ndarray]] = {}
        self._there: dict[int, tuple[int, np.ndarray]] = {}

    @property
    def at(self) -> np.ndarray:
        return self._at[:, : len(self._chains)]

    def set(self, row: int, node: str, labels: Mapping[str, str]) -> None:
        """The node of a row, and what its labels are now; no node where its name is empty."""
        if row >= len(self._chains):
            self._grow(row + 1)
        chain = self.source.chain(node, labels) if node else self._nowhere
        if chain == self._chains[row]:
            return
        self._chains[row] = chain
        for i, name in enumerate(chain):
            self._at[i, row] = self._number(i, name) if name else NO_BLOCK
        self.stamp += 1

    def _grow(self, rows: int) -> None:
        self._chains.extend([self._nowhere] * (rows - len(self._chains)))
        if rows > self._at.shape[1]:
            more = np.full((len(self.tiers), rows), NO_BLOCK, np.int64)
            self._at = np.concatenate([self._at, more], axis=1)

    def _number(self, tier: int, name: str) -> int:
        numbers = self._numbers[tier]
        number = numbers.get(name)
        if number is None:
            number = numbers[name] = len(numbers)
            self.names[tier].append(name)
        return number

    # -- questions ---------------------------------------------------------------------------------------------------

    def tier_of(self, highest: int) -> int:
        """The place of the widest tier up to this number; NO_BLOCK where all are wider."""
        return sum(tier.number <= highest for tier in self.tiers) - 1

    def tier_named(self, name: str) -> int:
        """The place of the widest tier of this name; NO_BLOCK where there is none."""
        return max((i for i, tier in enumerate(self.tiers) if tier.name == name), default=NO_BLOCK)

    def inside(self, tier: int, number: int) -> np.ndarray:
        """`(rows,) bool`: the rows of a block."""
        return np.asarray(self.at[tier] == number)

    def around(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """The blocks that all of these rows are in, as (place of the tier, number), the narrowest first."""
        at = self.at[:, list(rows)]
        alike = (at == at[:, :1]).all(axis=1) & (at[:, 0] != NO_BLOCK)
        return [(int(tier), int(at[tier, 0])) for tier in np.flatnonzero(alike)]

    def near(self, rows: Sequence[int], tiers: int) -> np.ndarray:
        """`(rows,) int64`: with how many of these each row shares a block, summed over so many tiers, the narrowest first."""
        shared = np.zeros(self.at.shape[1], np.int64)
        for tier in range(tiers):
            at = self.at[tier]
            there = at[list(rows)]
            # The last place is that of rows in no block.
            counts = np.bincount(there[there != NO_BLOCK], minlength=len(self.names[tier]) + 1)
            shared += counts[at]
        return shared

    def sums(self, tier: int, amounts: np.ndarray) -> np.ndarray:
        """`(blocks,) int64`: by number the sum of these amounts, `(rows,) int64`, over each block's rows."""
        at = self.at[tier]
        there = at != NO_BLOCK
        return np.bincount(at[there], weights=amounts[there], minlength=len(self.names[tier])).astype(np.int64)

    def numbers(self, tier: int) -> np.ndarray:
        """The blocks of a tier that have rows."""
        known = self._there.get(tier)
        if known is None or known[0] != self.stamp:
            known = self._there[tier] = self.stamp, np.flatnonzero(self.sums(tier, np.ones(len(self._chains), np.int64)))
        return known[1]

    def ranks(self, tier: int) -> np.ndarray:
        """`(blocks,) int64`: the place of each block's name among those of the tier."""
        names = self.names[tier]
        known = self._ranks.get(tier)
        if known is None or known[0] != len(names):
            ranks = np.empty(len(names), np.int64)
            ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
            known = self._ranks[tier] = len(names), ranks
        return known[1]

    def describe(self, tier: int, number: int) -> tuple[int, str]:
        """What a block is known by, whatever its number: (number of the tier, name)."""
        return self.tiers[tier].number, self.names[tier][number]
