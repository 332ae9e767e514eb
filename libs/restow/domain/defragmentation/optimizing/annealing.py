"""Simulated annealing: pods go elsewhere one by one, or change places in twos, at first also where a little is lost by it, at the end only where something is gained.

What a node is worth by objective `value` changes a little with every pod. So there is a slope to follow that sets of pods, each of which has to gain by itself, do not see. All on
a copy in plain integers, with a generator of its own: the same state gives the same plan. Only pods take part that no rule about others concerns and that prefer nothing;
whether its end is better is asked of the world, and whether it can be reached when the moves are put in order.
"""

from restow.contracts.ids import PodUid
from restow.contracts.values import DeviceShare
from restow.domain.defragmentation.costs import MOVE
from restow.domain.defragmentation.optimizing.improve import take_if_better, take_up
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Chance, Search
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.defragmentation.simulation import Spot
from restow.domain.device_choice import fullest
from restow.domain.fragmentation import alike
from restow.domain.predicates import static_mask

TRIES = 12
"""So many take the time of one step of search."""
EACH, EACH_MOVE = 1_000, 2_000
"""Tries for each pod that takes part, and for each move that is left, at most: with few of them there is less to be tried."""
HEAT_MOVE, HEAT_NODE = 3, 800
"""What may be lost at first: about so many tenths of what a move costs, or one in so many parts of what the dearest node is worth, whichever is more."""
HOME = 5
"""One try in so many of who is away leads home."""
_BITS = 24


def anneal(search: Search, steps: int, fresh: bool) -> None:
    """The plan becomes what is found in so many steps, if that is better. `fresh`: it begins with everybody at home."""
    world, plan = search.world, dict(search.world.away)
    if fresh:
        take_up(world, {})
    board = _Board(search)
    if steps > 0 and len(board.rows) > 1 and board.pods:
        tries, chance = min(steps * TRIES, EACH * len(board.pods), EACH_MOVE * search.limits.moves), Chance()
        first = max(MOVE * search.limits.least * HEAT_MOVE // 10, world.value.most * THOUSANDTHS // HEAT_NODE)
        for at in range(tries):
            board.try_one(chance, first * (tries - at) // tries)
        world.steps += tries // TRIES
        take_if_better(search, board.ends())
    if fresh:
        take_if_better(search, plan)


def slack(chance: Chance, heat: int) -> int:
    """What one try may lose: `heat` times the logarithm, to the base 2 and by straight lines, of one divided by a chance."""
    n = chance.number(1 << _BITS) + 1
    halves = _BITS + 1 - n.bit_length()
    within = (n << halves) - (1 << _BITS)
    return heat * ((halves << _BITS) - within) >> _BITS


class _Pod:
    """`at` and `devices` are where it is now."""

    __slots__ = ("at", "cost", "count", "devices", "home", "home_devices", "items", "mask", "milli", "request", "uid")

    def __init__(self, world: World, uid: PodUid, cost: int, mask: list[bool]) -> None:
        v, home, spot = world.vector(uid), world.home(uid), world.spot(uid)
        self.uid, self.items, self.request, self.cost, self.mask = uid, v.items, v.devices, cost, mask
        self.milli = v.devices.milli if v.devices is not None else 0
        self.home, self.home_devices = home.row, [d.index for d in home.devices]
        self.at, self.devices = spot.row, [d.index for d in spot.devices]


Place = tuple[_Pod, int, list[int]]
"""A pod, the row that it is on, and the devices that it has there."""


class _Board:
    """Who takes part, and what rows have (lists by row). Those who do not take part stay where they are."""

    def __init__(self, search: Search) -> None:
        world = self._world = search.world
        self._limit, self._worth_of = search.limits.moves, world.value.worth
        self._column, self._floor = world.column, world.floor.tolist()
        by_name = sorted(range(len(world.worth)), key=lambda row: int(world.state.table.rank[row]))
        self.rows = [row for row in by_name if world.open[row]]
        self.pods: list[_Pod] = []
        masks: dict[object, list[bool]] = {}
        for row in by_name:
            for uid in world.pods(row) if world.counted[row] else ():
                if world.movable(uid) and self._takes_part(uid):
                    like = alike(world.state, world.state.pods[uid].fact.shape)
                    if like not in masks:
                        masks[like] = (static_mask(world.state, like) & world.open).tolist()
                    self.pods.append(_Pod(world, uid, search.limits.least * world.cost(uid), masks[like]))
        self.pods.sort(key=lambda pod: pod.uid)
        every = range(len(world.worth))
        self._free, self._shares = [list(world.free(row)[0]) for row in every], [list(world.free(row)[1]) for row in every]
        self._loads, self._worth = world.loads.tolist(), list(world.worth)
        self._on: list[list[_Pod]] = [[] for _ in every]
        for pod in self.pods:
            self._on[pod.at].append(pod)
        mine = {pod.uid for pod in self.pods}
        self._others = {uid: spot for uid, spot in world.away.items() if uid not in mine}
        self._away = len(world.away)

    def ends(self) -> dict[PodUid, Spot]:
        """Where everybody is who is away."""
        away = [pod for pod in self.pods if pod.at != pod.home]
        return self._others | {pod.uid: Spot(pod.at, tuple(DeviceShare(d, pod.milli) for d in sorted(pod.devices))) for pod in away}

    def _takes_part(self, uid: PodUid) -> bool:
        world = self._world
        v, shape = world.vector(uid), world.state.shapes[world.state.pods[uid].fact.shape]
        if uid in world.gangs or world.rules(uid) or world.prefers(uid) or shape.cores is not None or world.twin(uid).claims:
            return False
        # Whose devices are known, and as it asks for them.
        home, count, milli = world.home(uid), *((v.devices.count, v.devices.milli) if v.devices is not None else (0, 0))
        return len(home.devices) == count and all(d.milli == milli and d.index < len(world.free(home.row)[1]) for d in home.devices)

    def try_one(self, chance: Chance, heat: int) -> None:
        pod = self.pods[chance.number(len(self.pods))]
        a, rows = pod.at, self.rows
        b = pod.home if a != pod.home and not chance.number(HOME) else rows[chance.number(len(rows))]
        if b == a or not (b == pod.home or pod.mask[b]):
            return
        was = [(pod, a, pod.devices)]
        self._take(pod, a, pod.devices, -1)
        now = self._placed(pod, b) or self._exchanged(chance, was, b)
        if now is None:
            for one, row, devices in was:
                self._take(one, row, devices, 1)
            return
        self._judge(was, now, slack(chance, heat))

    def _exchanged(self, chance: Chance, was: list[Place], b: int) -> list[Place] | None:
        """The pod, which is in the air, comes to `b`, and one from there to its place; in `was` then are both."""
        pod, a, _ = was[0]
        if not (there := self._on[b]):
            return None
        other = there[chance.number(len(there))]
        if not (other.mask[a] or a == other.home):
            return None
        was.append((other, b, other.devices))
        self._take(other, b, other.devices, -1)
        now = self._placed(pod, b)
        if now is None:
            return None
        then = self._placed(other, a)
        if then is None:
            self._take(pod, b, now[0][2], -1)
            return None
        return now + then

    def _judge(self, was: list[Place], now: list[Place], most: int) -> None:
        """Kept if no more than `most` is lost by it."""
        a, b = was[0][1], now[0][1]
        worth_a = self._worth_of(a, self._free[a], self._shares[a], self._loads[a])
        worth_b = self._worth_of(b, self._free[b], self._shares[b], self._loads[b])
        more = (worth_a + worth_b - self._worth[a] - self._worth[b]) * THOUSANDTHS
        away = 0
        for sign, some in ((1, was), (-1, now)):
            for one, row, _ in some:
                if row != one.home:
                    more += sign * one.cost
                    away -= sign
        if more < -most or (away > 0 and self._away + away > self._limit):
            for one, row, devices in now:
                self._take(one, row, devices, -1)
            for one, row, devices in was:
                self._take(one, row, devices, 1)
            return
        for one, row, _ in was:
            self._on[row].remove(one)
        for one, row, devices in now:
            self._on[row].append(one)
            one.at, one.devices = row, devices
        self._worth[a], self._worth[b] = worth_a, worth_b
        self._away += away

    def _placed(self, pod: _Pod, row: int) -> list[Place] | None:
        """It has its devices at home, elsewhere the fullest; None, and nothing is changed, where it has no place."""
        free, request = self._free[row], pod.request
        floor = self._floor[row] if row != pod.home else 0
        for c, amount in pod.items:
            if free[c] - (floor if c == self._column else 0) < amount:
                return None
        devices: list[int] = []
        if request is not None:
            shares = self._shares[row]
            found = fullest(shares, request) if row != pod.home else pod.home_devices if all(shares[d] >= pod.milli for d in pod.home_devices) else None
            if found is None:
                return None
            devices = found
        self._take(pod, row, devices, 1)
        return [(pod, row, devices)]

    def _take(self, pod: _Pod, row: int, devices: list[int], sign: int) -> None:
        free = self._free[row]
        for c, amount in pod.items:
            free[c] -= sign * amount
        if devices:
            shares, milli = self._shares[row], sign * pod.milli
            for d in devices:
                shares[d] -= milli
        self._loads[row] += sign
