"""A copy of a world for simulated annealing, in arrays of integers: who takes part, what rows have, and what every single change would gain.

Few of many tries are accepted. So what each request would take from each row by its coming, and each pod would leave by its going, is kept in a matrix; after a change it is
worked out anew for the rows that changed, all of it at once, and is taken as it was where a row has had the same pods before. Whatever may be asked is then an index.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from restow.contracts.ids import PodUid, ShapeId
from restow.contracts.values import DeviceShare
from restow.domain.defragmentation.optimizing.search import Search
from restow.domain.defragmentation.optimizing.swaps import UNKNOWN, Swaps
from restow.domain.defragmentation.optimizing.usable import Usable
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.defragmentation.simulation import Spot
from restow.domain.fragmentation import alike
from restow.domain.node_table import Vector
from restow.domain.predicates import static_mask

_MIX, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1
KEPT, KEPT_CELLS = 64, 1 << 22
"""Contents of a row of which it is kept what was worked out, and numbers that are kept of all rows: pods often come and go again."""
NEVER = -(1 << 42)
"""In place of what a row gains, where there is no place. Times `THOUSANDTHS` it still is an int64."""
_DEAREST = 1 << 58
"""No move is taken to cost more: sums of two are to be int64, too."""
_TOGETHER = 1 << 13
"""Changes of which it is worked out together what rows gain by them, about, at the beginning."""
_NONE_LEFT = 1 << 60
"""More than any node has of anything, and than any share of a device times the devices of a node."""


def sign(pod: int, devices: int) -> int:
    """For this pod with these devices. Of pods on one row signs are added up: mixed at the end, too, or two that have changed their devices would come to the same sum."""
    mixed = (pod + 1) * _MIX & _MASK
    mixed = (mixed ^ mixed >> 29 ^ devices) * _MIX & _MASK
    mixed = (mixed ^ mixed >> 32) * _MIX & _MASK
    return mixed ^ mixed >> 29


def every(of: np.ndarray) -> np.ndarray:
    """`(rows,) bool`: whether all of a row are; of few columns several times as fast as by rows."""
    found: np.ndarray = np.logical_and.reduce(np.ascontiguousarray(of.T), axis=0)
    return found


def takes_part(world: World, uid: PodUid) -> bool:
    """Whether a board can follow this pod, if it may be moved."""
    fact = world.state.pods[uid].fact
    if uid in world.gangs or world.state.shapes[fact.shape].cores is not None or fact.claims or world.rules(uid) or world.prefers(uid):
        return False
    # Whose devices are known, and as it asks for them.
    home, asked = world.home(uid), world.state.vectors[fact.shape].devices
    if asked is None:
        return not home.devices
    width = len(world.free(home.row)[1])
    return len(home.devices) == asked.count and all(d.milli == asked.milli and d.index < width for d in home.devices)


class Worth(Protocol):
    """What rows are worth with these contents, `(rows,) int64`: no more by any pod's coming."""

    def many(self, rows: np.ndarray, free: np.ndarray, shares: np.ndarray, loads: np.ndarray) -> np.ndarray: ...


class Contents(NamedTuple):
    """What rows have free, `(rows, resources)` and `(rows, devices) int64`, and the pods that keep each from being free, `(rows,)`."""

    free: np.ndarray
    shares: np.ndarray
    loads: np.ndarray


class Board:
    """Pods are numbered in the order of `uids`, what they ask for by `kind`. `rows` may be landed on; pods that take no part stay where they are.

    By pod, `(pods,) int64`: `row`, `home`, `cost`, `kind`; `leave`, what its row gains without it; `own`, what its home gains by its return (for those who are away).
    `may` `(pods,)` says which row of `masks` `(masks, rows) bool` tells where it may go. `come` `(kinds, rows)`: what a row gains by the coming of such a pod, which is never
    more than 0; `NEVER` where it has no place. `on` `(rows, most)`: who is on each row, the first `many`. `away`: how many are not at home."""

    def __init__(self, search: Search, of: Worth | None = None, parts: int = 1, lazy: bool = False) -> None:
        """`of`: what rows are worth, in so many `parts` of what the world counts; as the world says where it is left out. `lazy`: `come`, `leave` and `own` are there once the board has followed a world."""
        world = search.world
        if of is None:
            assert isinstance(world.value, Usable), "by other objectives what a row is worth changes with few pods only"
            of = world.value.of
        self._of, self._parts, self._column, self._floor = of, parts, world.column, world.floor.astype(np.int64)
        self.rank, self.largest, self.gpu = world.state.table.rank, np.array(world.largest), world.value.gpu
        by_name = np.argsort(world.state.table.rank[: len(world.worth)], kind="stable")
        self.rows = by_name[world.open[by_name]]
        movable = [uid for row in by_name.tolist() if world.counted[row] for uid in world.pods(row) if world.movable(uid)]
        self._take_in(search, sorted(uid for uid in movable if takes_part(world, uid)))
        mine = set(self.uids)
        self.others = [world.home(uid).row for uid in movable if uid not in mine]
        """The homes of those who may move and take no part, one for each."""
        every = range(len(world.worth))
        self._read(world)
        self._seat()
        self._keeps = min(KEPT, KEPT_CELLS // (len(self.count) * max(len(every), 1) + len(self.uids)))
        self._kept: list[dict[int, tuple]] = [{} for _ in every]
        kinds = len(self.count) - 1
        self.come = np.full((kinds, len(every)), NEVER, np.int64)
        self.leave, self.own = np.zeros(len(self.uids), np.int64), np.full(len(self.uids), NEVER, np.int64)
        self._swaps = Swaps(len(self.uids), kinds)
        """What a pod's row gains with one of a kind in its place."""
        self._asked = sorted({*self.rows.tolist(), *self.home.tolist(), *self.row.tolist()})
        self._answered = not lazy
        if self._answered:
            self._ask(self._asked)

    def _read(self, world: World) -> None:
        """What rows have, and who is away that takes no part."""
        table, mine = world.state.table, set(self.uids)
        self.free, self.shares, self.loads = table.free.astype(np.int64), table.device_free.astype(np.int64), world.loads.astype(np.int64)
        self.worth = self._of.many(np.arange(len(self.free)), self.free, self.shares, self.loads)
        self.away, self._others = len(world.away), {uid: spot for uid, spot in world.away.items() if uid not in mine}

    def _ask(self, rows: list[int]) -> None:
        each = max(_TOGETHER // len(self.count), 1)
        for begin in range(0, len(rows), each):
            self._work_out(rows[begin : begin + each])

    def _take_in(self, search: Search, uids: list[PodUid]) -> None:
        """Who takes part, and what they ask for; nobody and nothing come last, so that there is an index for them."""
        world = search.world
        self.uids = uids
        columns, width = world.state.table.free.shape[1], world.state.table.device_free.shape[1]
        kinds: dict[Vector, int] = {}
        masks: dict[object, int] = {}
        of_shape: dict[ShapeId, tuple[int, int]] = {}
        some = [np.zeros(len(world.worth), bool)]
        many = len(uids)
        self.used, self.home_used = np.zeros((many + 1, width), np.int64), np.zeros((many + 1, width), np.int64)
        each = list[tuple[int, int, int, int, int]]()
        for i, uid in enumerate(uids):
            home, spot, shape = world.home(uid), world.spot(uid), world.state.pods[uid].fact.shape
            if (found := of_shape.get(shape)) is None:
                if (like := alike(world.state, shape)) not in masks:
                    masks[like] = len(some)
                    some.append(static_mask(world.state, like) & world.open)
                found = of_shape[shape] = kinds.setdefault(world.vector(uid), len(kinds)), masks[like]
            each.append((spot.row, home.row, min(search.limits.least * world.cost(uid), _DEAREST // self._parts) * self._parts, *found))
            for used, there in ((self.used, spot), (self.home_used, home)):
                for d in there.devices:
                    used[i, d.index] = d.milli
        numbers = np.array(each, np.int64).reshape(-1, 5)
        self.row, self.home, self.cost, self.kind, self.may = (numbers[:, at].copy() for at in range(5))
        self.masks = np.array(some)
        self.need = np.zeros((len(kinds) + 1, columns), np.int64)
        self.count, self.milli = np.zeros(len(kinds) + 1, np.int64), np.zeros(len(kinds) + 1, np.int64)
        for v, k in kinds.items():
            for c, amount in v.items:
                self.need[k, c] += amount
            if v.devices is not None:
                self.count[k], self.milli[k] = v.devices.count, v.devices.milli
        self._least = np.where(self.need > 0, self.need, -_NONE_LEFT)
        """What must be free for it: whoever asks for nothing of a resource needs none."""
        largest = np.array(world.largest)
        self.size = (self.need[:-1] * 10_000 // largest).max(axis=1, initial=0)
        """`(kinds,)`: how hard a place is to find, parts of the largest node."""
        self._asks = np.append(self.kind, len(kinds))

    def _seat(self) -> None:
        """Who is on each row."""
        rows = len(self.worth)
        there: list[list[int]] = [[] for _ in range(rows)]
        for i, row in enumerate(self.row.tolist()):
            there[row].append(i)
        self.many = np.array([len(some) for some in there], np.int64)
        self.on = np.zeros((rows, max(int(self.many.max(initial=0)) * 2, 1)), np.int64)
        self._seats = np.zeros(len(self.uids), np.int64)
        for row, some in enumerate(there):
            self.on[row, : len(some)] = some
            self._seats[some] = range(len(some))
        self._from: list[list[int]] = [[] for _ in range(rows)]
        for i, row in enumerate(self.home.tolist()):
            self._from[row].append(i)
        devices = [0] * len(self.uids)
        for i, d in np.argwhere(self.used[:-1]).tolist():
            devices[i] |= 1 << d
        self._signs = np.array([sign(i, some) for i, some in enumerate(devices)], np.uint64)
        self._sign_of = np.zeros(rows, np.uint64)
        np.add.at(self._sign_of, self.row, self._signs)

    def follow(self, world: World) -> None:
        """Everybody is where this world has them, as on a board that is made there: a world of the same state, in which the same pods are at home on the same rows."""
        row, used, free, shares, loads = self.row, self.used, self.free, self.shares, self.loads
        self.row, self.used = self.home.copy(), self.home_used.copy()
        for i, uid in enumerate(self.uids):
            if (spot := world.away.get(uid)) is not None:
                self.row[i], self.used[i] = spot.row, 0
                for d in spot.devices:
                    self.used[i, d.index] = d.milli
        self._read(world)
        self._seat()
        # Beside those who take no part, who may be elsewhere now.
        self._swaps.forget()
        for kept in self._kept:
            kept.clear()
        self.own[self.row == self.home] = NEVER
        moved = (row != self.row) | (used[:-1] != self.used[:-1]).any(axis=1)
        # Those who take no part may have come or gone there, too.
        other = (free != self.free).any(axis=1) | (shares != self.shares).any(axis=1) | (loads != self.loads)
        other[row[moved]] = other[self.row[moved]] = True
        self._ask([at for at in self._asked if other[at]] if self._answered else self._asked)
        self._answered = True

    def ends(self) -> dict[PodUid, Spot]:
        """Where everybody is who is away."""
        found = dict(self._others)
        for i in np.flatnonzero(self.row != self.home).tolist():
            found[self.uids[i]] = Spot(int(self.row[i]), tuple(DeviceShare(d, int(self.used[i, d])) for d in np.flatnonzero(self.used[i]).tolist()))
        return found

    # -- what a row would gain -----------------------------------------------------------------------------------------

    def gains(self, rows: np.ndarray, gone: np.ndarray, kinds: np.ndarray, own: np.ndarray) -> np.ndarray:
        """`(changes,) int64`: what rows gain by the leaving of pods, `(changes, most)` (`len(uids)`: nobody's), and the coming of others (`len(kinds)`: nobody's); `NEVER` where these have no
        place. Whoever is in `own` (`len(uids)`: nobody) comes home, where it has its old devices; elsewhere one has the fullest that suffice, ties by index."""
        there = Contents(self.free[rows] + self.need[self._asks[gone]].sum(axis=1), self.shares[rows] + self.used[gone].sum(axis=1), self.loads[rows] - (gone < len(self.uids)).sum(axis=1))
        some, after = self.fitting(rows, there, kinds, own)
        found = np.full(len(rows), NEVER)
        found[some] = self.weighed(rows[some], after) - self.worth[rows[some]]
        return found

    def contents(self, rows: np.ndarray) -> Contents:
        return Contents(self.free[rows], self.shares[rows], self.loads[rows])

    def weighed(self, rows: np.ndarray, there: Contents) -> np.ndarray:
        """`(changes,) int64`: what rows are worth with these contents."""
        return self._of.many(rows, there.free, there.shares, there.loads)

    def beside(self, rows: np.ndarray, there: Contents, kinds: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, Contents]:
        """`(changes,) bool`: for whom (as `gains`) there is a place beside what is there; and the contents with them."""
        possible, taken = self._places(rows, there.free, there.shares, kinds, own)
        return possible, self._joined(there, kinds, taken)

    def fitting(self, rows: np.ndarray, there: Contents, kinds: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, Contents]:
        """As `beside`: which changes have a place, `(some,) int64`, and the contents of these alone."""
        possible, taken = self._places(rows, there.free, there.shares, kinds, own)
        some = np.flatnonzero(possible)
        return some, self._joined(Contents(*(of.take(some, axis=0) for of in there)), kinds[some], taken.take(some, axis=0))

    def _joined(self, there: Contents, kinds: np.ndarray, taken: np.ndarray) -> Contents:
        """With these, who take so much of devices."""
        return Contents(there.free - self.need.take(kinds, axis=0), there.shares - taken, there.loads + (kinds < len(self.count) - 1))

    def _places(self, rows: np.ndarray, free: np.ndarray, shares: np.ndarray, kinds: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`(changes,) bool`: for whom there is a place; `(changes, devices) int64`: what it takes of devices there."""
        at_home, least = own < len(self.uids), self._least.take(kinds, axis=0)
        if self._column >= 0:
            least[:, self._column] += np.where(at_home, 0, self._floor[rows])
        possible = every(free >= least)
        taken = np.zeros(shares.shape, np.int64)
        # Few have a place, and of these not all ask for devices.
        asking = np.flatnonzero(possible & ~at_home & (self.count[kinds] > 0))
        if len(asking):
            enough, taken[asking] = self._devices(shares.take(asking, axis=0), self.count[kinds[asking]], self.milli[kinds[asking]])
            possible[asking[~enough]] = False
        back = np.flatnonzero(at_home)
        if len(back):
            taken[back] = old = self.home_used[own[back]]
            possible[back] &= every((shares[back] >= old) | (old == 0))
        return possible, taken

    def _devices(self, shares: np.ndarray, count: np.ndarray, milli: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`(changes,) bool` whether there are so many devices with so much, `(changes, devices) int64` what is taken of them: the fullest that suffice, ties by index."""
        changes, width = shares.shape
        taken = np.zeros(shares.shape, np.int64)
        if not width:
            return np.zeros(changes, bool), taken
        # Most ask for one. Devices lie side by side: what is asked of few columns is several times as fast then.
        keys = np.multiply(shares, width, order="F")
        keys += np.arange(width)
        np.copyto(keys, _NONE_LEFT, where=keys < milli[:, None] * width)
        fullest = keys.min(axis=1)
        enough = fullest < _NONE_LEFT
        taken[np.arange(changes), fullest % width] = milli * enough
        # Only of the others it is to be known in which order devices are taken.
        if len(several := np.flatnonzero(count > 1)):
            some, asked = shares[several], milli[several, None]
            able, chosen = some >= asked, np.zeros((len(several), width), bool)
            order = np.argsort(np.where(able, some, _NONE_LEFT), axis=1, kind="stable")
            np.put_along_axis(chosen, order, np.arange(width) < count[several, None], axis=1)
            chosen &= able
            enough[several], taken[several] = chosen.sum(axis=1) >= count[several], chosen * asked
        return enough, taken

    def replace(self, pods: np.ndarray, others: np.ndarray) -> np.ndarray:
        """`(changes,) int64`: what the row of each of these pods gains with the other in its place; `NEVER` where that has none there."""
        rows, kinds = self.row[pods], self.kind[others]
        keys = self._swaps.keys(rows, self._sign_of[rows], pods, kinds)
        found = self._swaps.known(keys)
        homeward = rows == self.home[others]
        asked = np.flatnonzero((found == UNKNOWN) | homeward)
        if len(asked):
            own = np.where(homeward[asked], others[asked], len(self.uids))
            found[asked] = self.gains(rows[asked], pods[asked, None], kinds[asked], own)
            kept = asked[~homeward[asked]]
            self._swaps.keep(keys[kept], found[kept])
        return found

    def gains_without(self, sets: np.ndarray) -> np.ndarray:
        """`(sets,) int64`: what a row gains by the leaving of all of these; `sets` is `(sets, most)` pods of one row each, where `len(uids)` is nobody."""
        nothing, nobody = len(self.count) - 1, len(self.uids)
        return self.gains(self.row[sets[:, 0]], sets, np.full(len(sets), nothing), np.full(len(sets), nobody))

    def targets(self, pods: np.ndarray) -> np.ndarray:
        """`(pods, rows) int64`: what each of `rows` (in their order), and the home at last, gains by the coming of each of these; `NEVER` where it has no place there, or
        is there."""
        found = np.where(self.masks[self.may[pods]][:, self.rows], self.come[self.kind[pods]][:, self.rows], NEVER)
        found[(self.rows == self.row[pods, None]) | (self.rows == self.home[pods, None])] = NEVER
        return np.column_stack((found, np.where(self.row[pods] == self.home[pods], NEVER, self.own[pods])))

    def _work_out(self, rows: Sequence[int]) -> None:
        """What these rows gain by every change, where they have what they have now."""
        nobody, kinds = len(self.uids), len(self.count) - 1
        parts = []
        for row in rows:
            there = self.on[row, : self.many[row]].copy()
            gone = np.array([i for i in self._from[row] if self.row[i] != row], np.int64)
            parts.append((row, there, gone))
        sizes = [kinds + len(there) + len(gone) for _, there, gone in parts]
        at, none = np.repeat(np.array(rows, np.int64), sizes), np.arange(kinds)
        out = np.concatenate([np.concatenate((np.full(kinds, nobody), there, np.full(len(gone), nobody))) for _, there, gone in parts])
        into = np.concatenate([np.concatenate((none, np.full(len(there), kinds), self.kind[gone])) for _, there, gone in parts])
        own = np.concatenate([np.concatenate((np.full(kinds + len(there), nobody), gone)) for _, there, gone in parts])
        found, begin = self.gains(at, out[:, None], into, own), 0
        for row, there, gone in parts:
            middle = begin + kinds + len(there)
            self.come[:, row] = found[begin : begin + kinds]
            self.leave[there] = found[begin + kinds : middle]
            self.own[gone] = found[middle : middle + len(gone)]
            begin = middle + len(gone)

    # -- changes -------------------------------------------------------------------------------------------------------

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """All of these pods leave, and then come to these rows, one after the other, where there is a place for each."""
        pods, to = np.array([i for i, _ in moves]), np.array([row for _, row in moves])
        rows, homes = self.row[pods], self.home[pods]
        changed = np.unique(np.concatenate((rows, to)))
        for row in changed.tolist():
            self._keep(row)
        np.add.at(self.free, rows, self.need[self.kind[pods]])
        np.add.at(self.shares, rows, self.used[pods])
        np.add.at(self.loads, rows, -1)
        self.away += int((to != homes).sum()) - int((rows != homes).sum())
        left = list(range(len(moves)))
        while left:
            # The first to come to each row, then the second.
            now = sorted({moves[i][1]: i for i in reversed(left)}.values())
            self._come(pods[now], to[now])
            left = sorted(set(left) - set(now))
        self.row[pods] = to
        np.subtract.at(self._sign_of, rows, self._signs[pods])
        for i, row in zip(pods.tolist(), rows.tolist(), strict=True):
            self._unseat(i, row)
        for i, row in moves:
            self._sit(i, row)
            self._sign(i)
        np.add.at(self._sign_of, to, self._signs[pods])
        self.worth[changed] = self._of.many(changed, self.free[changed], self.shares[changed], self.loads[changed])
        if new := [row for row in changed.tolist() if not self._known(row)]:
            self._work_out(new)

    def _come(self, pods: np.ndarray, to: np.ndarray) -> None:
        """Each to another row."""
        there, kinds = self.contents(to), self.kind[pods]
        possible, taken = self._places(to, there.free, there.shares, kinds, np.where(to == self.home[pods], pods, len(self.uids)))
        assert possible.all(), "a row that a pod comes to has a place for it"
        self.free[to] -= self.need[kinds]
        self.shares[to] -= taken
        self.loads[to] += 1
        self.used[pods] = taken

    def _sign(self, i: int) -> None:
        """A number for this pod with the devices that it has."""
        self._signs[i] = sign(i, sum([1 << d for d in np.flatnonzero(self.used[i]).tolist()]))

    def _unseat(self, i: int, row: int) -> None:
        last, seat = int(self.many[row]) - 1, self._seats[i]
        other = self.on[row, last]
        self.on[row, seat], self._seats[other] = other, seat
        self.many[row] = last

    def _sit(self, i: int, row: int) -> None:
        seat = int(self.many[row])
        if seat == self.on.shape[1]:
            self.on = np.concatenate((self.on, np.zeros_like(self.on)), axis=1)
        self.on[row, seat], self._seats[i] = i, seat
        self.many[row] = seat + 1

    def _keep(self, row: int) -> None:
        if not self._keeps:
            return
        kept, now = self._kept[row], int(self._sign_of[row])
        if len(kept) >= self._keeps and now not in kept:
            kept.clear()
        there = self.on[row, : self.many[row]].copy()
        gone = [i for i in self._from[row] if self.row[i] != row]
        kept[now] = self.come[:, row].copy(), there, self.leave[there], gone, self.own[gone]

    def _known(self, row: int) -> bool:
        """What is known of the row with the pods that it has now is there again."""
        if (kept := self._kept[row].get(int(self._sign_of[row]))) is None:
            return False
        self.come[:, row], there, leave, gone, own = kept
        self.leave[there], self.own[gone] = leave, own
        return True
