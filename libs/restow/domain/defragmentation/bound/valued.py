"""What nodes are worth by objective `value`, as far as a bound can follow it.

A demand counts as often as the scarcest of what it asks for allows, of what is packed and of the resources that have a price (`problem.Wants`). Any other one counts as often as it fits now, and more only
where somebody leaves: each pod then gains at most the part of a request that it uses, of one resource of which too little is left. So may count whatever asks for nothing that is packed, or is kept off the node
by another resource now (`as_it_is`), which is the lower bound where few may move. What is worth more on the way by rounding is counted as a gain of whoever moves.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.demand_mix import Wanted
from restow.domain.defragmentation.optimizing.choices import free_without
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS
from restow.domain.defragmentation.optimizing.usable import Usable
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.device_choice import copies
from restow.domain.node_table import WHOLE, Vector

NO_LIMIT = 1 << 40


class Valued(NamedTuple):
    """Of a row, in millionths of the objective. `profile`: of each demand that is counted by what it asks for what one more adds (0 where it is not); `base`: all others as they are; `before`:
    all of them; `empty`: with nobody on it (0: no more than that); `more`: what each pod's leaving adds to `base` at most."""

    profile: tuple[int, ...]
    base: int
    before: int
    empty: int
    more: dict[PodUid, int]


class Values:
    """`packed`: the column that is packed, or -1 for devices; `others`: those that have a price."""

    def __init__(self, world: World, worth: Usable, packed: int, others: Sequence[int], as_it_is: bool) -> None:
        self._world, self._worth, self._packed, self._as_it_is = world, worth.of, packed, as_it_is
        self._others = tuple(others)
        self.wanted: tuple[Wanted, ...] = worth.of.wanted
        self.most = np.array([self._most(i) for i in range(len(self.wanted))], np.int64)
        """How often each demand fits at most, whichever node is empty: of 128 bytes memory alone would allow billions, and what these are worth is more than integers hold."""

    def _most(self, i: int) -> int:
        each = [self._world.state.table.allocatable[:, c] // a for c, a in self._worth.needs(i)]
        return int(np.minimum.reduce(each).max(initial=0)) if each else NO_LIMIT

    @property
    def by_device(self) -> bool:
        return self._packed < 0

    def of(self, row: int, there: Sequence[PodUid]) -> Valued:
        """With these who may leave."""
        world, worth = self._world, self._worth
        weights = worth.weights(row, THOUSANDTHS)
        free, shares = world.free(row)
        now, most = worth.counts(free, shares), worth.counts(*free_without(world, row, there))
        # Whoever moves changes two nodes.
        rounded = 2 * worth.rounded(row, THOUSANDTHS)
        profile, base, more = [0] * len(weights), 0, dict.fromkeys(there, rounded)
        for i, weight in enumerate(weights):
            if not weight or not most[i]:
                continue
            if self._followed(i, free, shares, now[i]):
                profile[i] = weight
                continue
            base += weight * now[i]
            if most[i] > now[i]:
                self._freed(more, i, weight, free, now[i], most[i])
        before = sum(weight * count for weight, count in zip(weights, now, strict=True))
        empty = worth.empty(row, THOUSANDTHS)
        if empty and int(world.loads[row]) <= 0:
            before = empty
            base += empty if there else 0
        if empty and int(world.loads[row]) <= len(there):
            # Of who leaves then nothing is gained but that.
            empty = empty - sum(more.values()) + rounded * len(there) or 1
        else:
            empty = 0
        return Valued(tuple(profile), base, before, empty, more)

    def _followed(self, i: int, free: list[int], shares: list[int], now: int) -> bool:
        """Whether a demand is counted by what it asks for."""
        if self._asked(self.wanted[i].v, i)[0]:
            return not (self._as_it_is and self._fit(i, free, shares) > now)
        return not self._as_it_is and any(c in self._others for c, _ in self._worth.needs(i))

    def _fit(self, i: int, free: list[int], shares: list[int]) -> int:
        """How often the demand, which asks for what is packed, fits into what is left of that."""
        v = self.wanted[i].v
        if self._packed >= 0:
            return free[self._packed] // self._asked(v, i)[0]
        return copies(shares, v.devices) if v.devices is not None else 0

    def _freed(self, more: dict[PodUid, int], i: int, weight: int, free: list[int], now: int, most: int) -> None:
        """Counts as a gain of each pod that may leave its part of it, by the resource by which that is the least in all."""
        parts: dict[PodUid, int] | None = None
        for column, amount in self._worth.needs(i):
            if free[column] // amount > now:
                continue
            missing = (now + 1) * amount - free[column]
            some = {uid: self._part(self._used(uid, column), weight, missing, amount, most - now) for uid in more}
            if parts is None or sum(some.values()) < sum(parts.values()):
                parts = some
        for uid in more:
            # Without any part devices keep it off, of a node that is packed otherwise.
            more[uid] += weight * (most - now) if parts is None else parts[uid]

    def _used(self, uid: PodUid, column: int) -> int:
        return sum(amount for c, amount in self._world.vector(uid).items if c == column)

    @staticmethod
    def _part(used: int, weight: int, missing: int, amount: int, most: int) -> int:
        """The least concave function that is above the steps: nobody's leaving gains less by it than beside others'."""
        if missing > amount:
            return -(-weight * most * used // (missing + (most - 1) * amount))
        gained = -(-weight * used // missing) if used <= missing else weight - (-weight * (used - missing) // amount)
        return min(gained, weight * most)

    # -- of what is packed ---------------------------------------------------------------------------------------------

    def by_units(self, unit: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """`(width, demands) int64`: by units that are left of what is packed how often each demand fits there, in parts `(demands,)`."""
        most = np.arange(width, dtype=np.int64) * unit + unit - 1
        fit, of = np.zeros((width, len(self.wanted)), np.int64), np.ones(len(self.wanted), np.int64)
        for i, one in enumerate(self.wanted):
            asked, parts = self._asked(one.v, i)
            if asked and (parts == 1 or asked < WHOLE):
                fit[:, i], of[i] = np.minimum(most // asked, self.most[i] * parts), parts
        return fit, of

    def levels(self, unit: int, width: int) -> np.ndarray:
        """`(width, L) int64`: by units that are left of a bin how often a request of one bin fits, of each of L sizes that are so many units; of devices also a whole one."""
        sizes = {asked for i, one in enumerate(self.wanted) if (asked := self._asked(one.v, i))[1] == 1 and asked[0]}
        some = sorted({size for size, _ in sizes} | ({WHOLE} if self._packed < 0 else set()))
        return np.arange(width)[:, None] // np.array([size // unit for size in some if size % unit == 0], np.int64).reshape(1, -1)

    def together(self, most: int) -> np.ndarray:
        """`(most + 1, demands) int64`: how often so many whole free devices of one node allow a demand, beside `by_units`: of several."""
        found = np.zeros((most + 1, len(self.wanted)), np.int64)
        for i, one in enumerate(self.wanted):
            asked, parts = self._asked(one.v, i)
            if parts > 1 and asked >= WHOLE:
                found[:, i] = np.arange(most + 1) // parts
        return found

    def amounts(self, column: int) -> list[int]:
        """What each demand asks for of one resource."""
        return [dict(self._worth.needs(i)).get(column, 0) for i in range(len(self.wanted))]

    def asks(self, others: list[int]) -> np.ndarray:
        """`(demands, 1 + others) bool`: whether each asks for what is packed, and for each of the others."""
        packed = [[self._asked(one.v, i)[0] > 0 for i, one in enumerate(self.wanted)]]
        return np.array([*packed, *([a > 0 for a in self.amounts(c)] for c in others)], bool).T.reshape(len(self.wanted), 1 + len(others))

    def sizes(self) -> list[int]:
        """What the demands ask for of one bin."""
        return [asked for i, one in enumerate(self.wanted) if (asked := self._asked(one.v, i)[0])]

    def _asked(self, v: Vector, i: int) -> tuple[int, int]:
        """Of one bin, and of how many."""
        if self._packed >= 0:
            return dict(self._worth.needs(i)).get(self._packed, 0), 1
        return (v.devices.milli, v.devices.count) if v.devices is not None else (0, 1)
