"""Who could be pushed off a row so that somebody else has capacity there: of each class of pods the best one, found for all rows at once.

The pods that may move are kept as arrays, which are brought up to date from what the world has lifted and landed. What the leaving of each would do for a class of pods
is kept, too, and looked at anew only on rows that have changed. Made when it is first asked for: many plans need nobody pushed.
"""

import numpy as np

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.choices import size
from restow.domain.defragmentation.optimizing.world import World

LOOKED, ASKED = 16_000, 2_000
"""Pods that are looked at in one step of search, and pods that are ranked in one."""
MOST_KEPT = 4_000_000
"""Ranks that are kept, of all classes together (32 MB)."""


class _Ranks:
    """Of one class of pods: what `Placement.ranks_without` said when the world had changed so often (`seen`)."""

    __slots__ = ("ranks", "seen")

    def __init__(self, pods: int) -> None:
        self.ranks, self.seen = np.full(pods, -1, np.int64), -1


class Pushing:
    """By number of pod: `row` (-1 while it may not be pushed), `device` (-1 for none or several) and `milli` of it, `asks` `(pods, resources)`, `size`, `kind`."""

    def __init__(self, world: World) -> None:
        self.world, self._width = world, world.state.table.device_free.shape[1]
        self.uids = sorted(uid for uid in world.state.charges if uid in world.state.pods and world.movable(uid))
        self._number = {uid: i for i, uid in enumerate(self.uids)}
        vectors = [world.vector(uid) for uid in self.uids]
        self.kind = np.array([world.placement.kind(uid) for uid in self.uids], np.int64)
        self.size = np.array([size(world, uid) for uid in self.uids], np.int64)
        self.asks = np.zeros((len(self.uids), len(world.largest)), np.int64)
        for i, v in enumerate(vectors):
            for c, a in v.items:
                self.asks[i, c] = a
        self.row = np.full(len(self.uids), -1, np.int64)
        self.device = np.full(len(self.uids), -1, np.int64)
        self.milli = np.zeros(len(self.uids), np.int64)
        for i, uid in enumerate(self.uids):
            self._put(i, uid)
        self._seen = len(world.touched)
        self._kept: dict[int, _Ranks] = {}

    def _put(self, i: int, uid: PodUid) -> None:
        if uid in self.world.in_the_air:
            self.row[i] = -1
            return
        spot = self.world.spot(uid)
        self.row[i] = spot.row
        one = spot.devices[0] if len(spot.devices) == 1 and spot.devices[0].index < self._width else None
        self.device[i], self.milli[i] = (one.index, one.milli) if one is not None else (-1, 0)

    def _update(self) -> None:
        world = self.world
        for uid in set(world.touched[self._seen :]):
            if (i := self._number.get(uid)) is not None:
                self._put(i, uid)
        self._seen = len(world.touched)

    def candidates(self, uid: PodUid, banned: frozenset[int], most: int) -> list[PodUid]:
        """Pods that are no larger, each on another row than the `banned` ones, without any one of whom this pod would fit there: of each class the one that leaves
        the least unused; the smallest class first."""
        self._update()
        world = self.world
        among = self._ranks(uid)
        numbers = np.flatnonzero((among >= 0) & (self.row >= 0) & (self.size <= size(world, uid)) & (self.row[:, None] != list(banned)).all(axis=1))
        ranks = among[numbers]
        if not len(numbers):
            return []
        order = np.lexsort((-ranks, self.kind[numbers]))
        first = order[np.flatnonzero(np.diff(self.kind[numbers][order], prepend=-1))]
        first = first[np.lexsort((-ranks[first], self.size[numbers][first]))]
        return [self.uids[i] for i in numbers[first][:most].tolist()]

    def _ranks(self, uid: PodUid) -> np.ndarray:
        """`(pods,) int64`: as `Placement.ranks_without`, of all pods; of those in the air it says nothing."""
        world, kind, changes = self.world, self.world.placement.kind(uid), self.world.session.nodes.changes
        kept = self._kept.get(kind)
        if kept is None:
            if (len(self._kept) + 1) * len(self.uids) > MOST_KEPT:
                self._kept.clear()
            kept = self._kept[kind] = _Ranks(len(self.uids))
        if kept.seen < 0:
            numbers = np.flatnonzero(self.row >= 0)
        else:
            changed = np.zeros(len(world.state.table.names) + 1, bool)
            changed[changes[kept.seen :]] = True
            changed[-1] = False  # where those are who are on no row
            numbers = np.flatnonzero(changed[self.row])
        kept.seen = len(changes)
        world.steps += 1 + len(self.uids) // LOOKED + len(numbers) // ASKED
        if len(numbers):
            kept.ranks[numbers] = world.placement.ranks_without(uid, self.row[numbers], self.asks[numbers], self.device[numbers], self.milli[numbers])
        return kept.ranks
