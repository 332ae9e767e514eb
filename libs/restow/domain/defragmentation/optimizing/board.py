"""A copy of a world for simulated annealing, in plain integers: who takes part, what rows have, and what changes there are worth.

What a row gains by somebody's coming or going is kept until something on it changes. Few of many tries are accepted, so most of them are answered by what is known.
"""

from collections.abc import Sequence

from restow.contracts.ids import PodUid
from restow.contracts.values import DeviceShare
from restow.domain.defragmentation.optimizing.search import Search
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.defragmentation.simulation import Spot
from restow.domain.device_choice import fullest
from restow.domain.fragmentation import alike
from restow.domain.node_table import Vector
from restow.domain.predicates import static_mask

_MIX, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1
KEPT = 64
"""Contents of a row of which it is kept what was worked out: pods often come and go again."""


def takes_part(world: World, uid: PodUid) -> bool:
    """Whether a board can follow this pod, if it may be moved."""
    v, shape = world.vector(uid), world.state.shapes[world.state.pods[uid].fact.shape]
    if uid in world.gangs or world.rules(uid) or world.prefers(uid) or shape.cores is not None or world.twin(uid).claims:
        return False
    # Whose devices are known, and as it asks for them.
    home, count, milli = world.home(uid), *((v.devices.count, v.devices.milli) if v.devices is not None else (0, 0))
    return len(home.devices) == count and all(d.milli == milli and d.index < len(world.free(home.row)[1]) for d in home.devices)


class Pod:
    """`row` and `devices` are where it is now. `kind`: what it asks for; `own`: the same for its home alone, where it has its old devices.
    `left`: what its row would gain without it; None where that is not known. `sign`: a number for it with these devices."""

    __slots__ = ("cost", "devices", "home", "home_devices", "items", "kind", "left", "mask", "milli", "number", "own", "request", "row", "sign", "uid")

    def __init__(self, world: World, uid: PodUid, cost: int, mask: list[bool]) -> None:
        v, home, spot = world.vector(uid), world.home(uid), world.spot(uid)
        self.uid, self.items, self.request, self.cost, self.mask = uid, v.items, v.devices, cost, mask
        self.milli = v.devices.milli if v.devices is not None else 0
        self.home, self.home_devices = home.row, [d.index for d in home.devices]
        self.number = self.kind = self.own = 0
        self.left: int | None = None
        self.put(spot.row, [d.index for d in spot.devices])

    def put(self, row: int, devices: list[int]) -> None:
        self.row, self.devices = row, devices
        mixed = (self.number + 1) * _MIX & _MASK
        self.sign = (mixed ^ mixed >> 29 ^ sum([1 << d for d in devices])) * _MIX & _MASK


Known = tuple[dict[int, int], dict[int, int | None]]
"""Of a row with the same pods: what it gains by the leaving of one, and by coming (`Board.come`, `Board.replace`)."""


class Board:
    """`rows` may be landed on, `pods` take part; the others stay where they are. `on`: who is on each row. `away`: how many are not at home."""

    def __init__(self, search: Search) -> None:
        world = self._world = search.world
        self._worth_of, self._column, self._floor = world.value.worth, world.column, world.floor.tolist()
        by_name = sorted(range(len(world.worth)), key=lambda row: int(world.state.table.rank[row]))
        self.rows = [row for row in by_name if world.open[row]]
        self.pods: list[Pod] = []
        masks: dict[object, list[bool]] = {}
        kinds: dict[Vector, int] = {}
        for row in by_name:
            for uid in world.pods(row) if world.counted[row] else ():
                if world.movable(uid) and takes_part(world, uid):
                    like = alike(world.state, world.state.pods[uid].fact.shape)
                    if like not in masks:
                        masks[like] = (static_mask(world.state, like) & world.open).tolist()
                    self.pods.append(Pod(world, uid, search.limits.least * world.cost(uid), masks[like]))
        self.pods.sort(key=lambda pod: pod.uid)
        for pod in self.pods:
            pod.kind = kinds.setdefault(world.vector(pod.uid), len(kinds))
        for number, pod in enumerate(self.pods):
            pod.number, pod.own = number, len(kinds) + number
            pod.put(pod.row, pod.devices)
        self._width = len(kinds) + len(self.pods)
        every = range(len(world.worth))
        self._free, self._shares = [list(world.free(row)[0]) for row in every], [list(world.free(row)[1]) for row in every]
        self._loads, self._worth = world.loads.tolist(), list(world.worth)
        self.on: list[list[Pod]] = [[] for _ in every]
        for pod in self.pods:
            self.on[pod.row].append(pod)
        self._signs = [sum(pod.sign for pod in there) for there in self.on]
        self._kept: list[dict[int, Known]] = [{sign: ({}, {})} for sign in self._signs]
        self._left = [self._kept[row][sign][0] for row, sign in enumerate(self._signs)]
        self._come = [self._kept[row][sign][1] for row, sign in enumerate(self._signs)]
        mine = {pod.uid for pod in self.pods}
        self._others = {uid: spot for uid, spot in world.away.items() if uid not in mine}
        self.away = len(world.away)

    def ends(self) -> dict[PodUid, Spot]:
        """Where everybody is who is away."""
        away = [pod for pod in self.pods if pod.row != pod.home]
        return self._others | {pod.uid: Spot(pod.row, tuple(DeviceShare(d, pod.milli) for d in sorted(pod.devices))) for pod in away}

    # -- what a row would gain -----------------------------------------------------------------------------------------

    def come(self, pod: Pod, row: int) -> int | None:
        """By this pod of another row; None where there is no place for it."""
        known, key = self._come[row], pod.own if row == pod.home else pod.kind
        if key not in known:
            known[key] = self._after(row, (), pod)
        return known[key]

    def leave(self, pod: Pod) -> int:
        """By the leaving of this one, who is there."""
        if pod.left is None:
            pod.left = self._left[pod.row][pod.number] = self._after(pod.row, (pod,), None) or 0
        return pod.left

    def replace(self, pod: Pod, other: Pod) -> int | None:
        """The row that `pod` is on, with the other in its place; None where there is none."""
        row = pod.row
        known, key = self._come[row], (pod.number + 1) * self._width + (other.own if row == other.home else other.kind)
        if key not in known:
            known[key] = self._after(row, (pod,), other)
        return known[key]

    def _after(self, row: int, gone: Sequence[Pod], pod: Pod | None) -> int | None:
        for one in gone:
            self._take(one, row, one.devices, -1)
        found, worth = None, self._worth[row]
        devices = self._place(pod, row) if pod is not None else []
        if devices is not None:
            if pod is not None:
                self._take(pod, row, devices, 1)
            found = self._worth_of(row, self._free[row], self._shares[row], self._loads[row]) - worth
            if pod is not None:
                self._take(pod, row, devices, -1)
        for one in gone:
            self._take(one, row, one.devices, 1)
        return found

    def _place(self, pod: Pod, row: int) -> list[int] | None:
        """It has its devices at home, elsewhere the fullest; None where it has no place."""
        free, floor = self._free[row], self._floor[row] if row != pod.home else 0
        for c, amount in pod.items:
            if free[c] - (floor if c == self._column else 0) < amount:
                return None
        if pod.request is None:
            return []
        shares = self._shares[row]
        if row != pod.home:
            return fullest(shares, pod.request)
        return pod.home_devices if all(shares[d] >= pod.milli for d in pod.home_devices) else None

    def _take(self, pod: Pod, row: int, devices: list[int], sign: int) -> None:
        free = self._free[row]
        for c, amount in pod.items:
            free[c] -= sign * amount
        if devices:
            shares, milli = self._shares[row], sign * pod.milli
            for d in devices:
                shares[d] -= milli
        self._loads[row] += sign

    # -- changes -------------------------------------------------------------------------------------------------------

    def move(self, moves: Sequence[tuple[Pod, int]]) -> None:
        """All of them leave, and then come to these rows, where there is a place for each."""
        rows: dict[int, None] = {}
        for pod, row in moves:
            rows[pod.row] = rows[row] = None
            self.on[pod.row].remove(pod)
            self._signs[pod.row] -= pod.sign
            self._take(pod, pod.row, pod.devices, -1)
            self.away += (row != pod.home) - (pod.row != pod.home)
        for pod, row in moves:
            devices = self._place(pod, row)
            assert devices is not None, "a row that a pod comes to has a place for it"
            self._take(pod, row, devices, 1)
            self.on[row].append(pod)
            pod.put(row, devices)
            self._signs[row] += pod.sign
        for row in rows:
            kept, sign = self._kept[row], self._signs[row]
            if sign not in kept:
                if len(kept) >= KEPT:
                    kept.clear()
                kept[sign] = {}, {}
            left, self._come[row] = kept[sign]
            self._left[row] = left
            for pod in self.on[row]:
                pod.left = left.get(pod.number)
            self._worth[row] = self._worth_of(row, self._free[row], self._shares[row], self._loads[row])
