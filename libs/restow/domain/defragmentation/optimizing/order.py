"""The moves of a plan in an order in which each can be carried out: what must have left before what can arrive.

First all that find capacity as things are; then those that need what others leave, of a target as little as possible: `after` names
these, and those whose being under way a rule about what runs would notice (`rule_order`). What is left waits in circles: somebody goes
to a third place first where there is one, and whoever still cannot arrive stays. So does who would arrive where others have left so much that somebody who waits fits there, and nowhere else: a hold
is asked for when those have landed, and by then the scheduler has given it to who waits.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from restow.contracts.ids import MigrationId, PodUid
from restow.contracts.values import Move
from restow.domain.defragmentation.optimizing.rule_order import RuleOrder, Step
from restow.domain.defragmentation.optimizing.value import fits
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.defragmentation.simulation import Spot


class Leg(NamedTuple):
    """A pod that goes to `end`. `follows`: it is the successor of that migration."""

    uid: PodUid
    end: Spot
    start: Spot
    follows: MigrationId = MigrationId("")

    @property
    def devices(self) -> frozenset[int]:
        """Which it is to get; none where any will do."""
        return frozenset(d.index for d in self.end.devices)


class Left(NamedTuple):
    """What a move leaves at its source, once it has landed."""

    id: MigrationId
    uid: PodUid
    spot: Spot


class Ordered(NamedTuple):
    """`ends` are where pods end up; `stayed` found no order. `net`: what it gains beyond its cost from where the pods are now, where that has been worked out."""

    moves: list[Move]
    ends: dict[PodUid, Spot]
    stayed: list[PodUid]
    net: int | None = None


MOST_LEGS = 2
"""A move may follow one of a pod, and none that follows."""


def following(plan: str, first: Ordered, then: Ordered) -> Ordered | None:
    """Both as one, the second once all of the first has landed: it takes what that leaves, device by device. None where somebody would
    go three times."""
    gone, going = _pods(first), _pods(then)
    if max(Counter([*gone.values(), *going.values()]).values(), default=0) > MOST_LEGS:
        return None
    before = {uid: id for id, uid in gone.items()}
    ids = {id: MigrationId(f"{plan}-{i}") for i, id in enumerate(going, len(gone) + 1)}
    moves = [
        replace(
            move,
            migration=ids[move.migration],
            pod=PodUid("") if move.pod in before else move.pod,
            follows=ids[move.follows] if move.follows else before.get(move.pod, MigrationId("")),
            after=(*gone, *(ids[id] for id in move.after)),
        )
        for move in then.moves
    ]
    return Ordered([*first.moves, *moves], first.ends | then.ends, [])


def _pods(ordered: Ordered) -> dict[MigrationId, PodUid]:
    """Whom each moves, and whose successor."""
    found: dict[MigrationId, PodUid] = {}
    for move in ordered.moves:
        found[move.migration] = found[move.follows] if move.follows else move.pod
    return found


class Sequence:
    """Begins with everybody at home (the world has nobody away), and charges the world as holds will: a target when a move begins, a
    source only where somebody needs what was left there."""

    def __init__(self, world: World, plan: str, most: int) -> None:
        self.world, self.plan = world, plan
        self.most = most
        self.moves: list[Move] = []
        self.ends: dict[PodUid, Spot] = {}
        self._left: dict[int, list[Left]] = {}
        self._freed: dict[int, list[MigrationId]] = {}
        self._steps: list[Step] = []
        self._number: dict[MigrationId, int] = {}
        self._by_rules: dict[PodUid, bool] = {}
        self._late: set[PodUid] = set()
        """Whose target those take who wait."""

    def order(self, wanted: Mapping[PodUid, Spot], first: list[PodUid]) -> Ordered:
        """`wanted` is where each pod goes, to the very devices that are named there as long as that can be: another one fits on what is left beside it. `first`:
        all of them in the order in which they were thought of."""
        legs = [Leg(uid, wanted[uid], self.world.home(uid)) for uid in first]
        stayed: list[PodUid] = []
        if gangs := [leg for leg in legs if leg.uid in self.world.gangs]:
            # They hold their slots beside all that run: whoever of them cannot, stays.
            stayed = [leg.uid for leg in self._all(gangs, False)]
            legs = [leg for leg in legs if leg.uid not in self.world.gangs]
        for needed in (False, True):
            legs = self._all(legs, needed)
        while legs:
            if late := [leg.uid for leg in legs if leg.uid in self._late]:
                stayed += late
                legs = [leg for leg in legs if leg.uid not in self._late]
                continue
            if not self._by_a_third(legs) and not self._on_other_devices(legs):
                stayed.append(legs.pop(self._least(legs)).uid)
            legs = self._all(legs, True)
        return Ordered(self._with_rules(), dict(self.ends), stayed)

    def _with_rules(self) -> list[Move]:
        """With what they wait for by rules, besides capacity."""
        if not any(step.ruled for step in self._steps):
            return list(self.moves)
        ids = [move.migration for move in self.moves]
        found = RuleOrder(self.world.simulation).predecessors(self._steps)
        return [
            replace(move, after=tuple(ids[i] for i in after if ids[i] != move.follows or move.follows in move.after))
            for move, after in zip(self.moves, found, strict=True)
        ]

    def _all(self, legs: list[Leg], freeing: bool) -> list[Leg]:
        """Whoever can begin does, until nobody can; the others."""
        going = True
        while going:
            going, waiting = False, []
            for leg in legs:
                if len(self.moves) < self.most and self._begin(leg, freeing):
                    going = True
                else:
                    waiting.append(leg)
            legs = waiting
        return legs

    def _least(self, legs: list[Leg]) -> int:
        """Who stays: whose staying leaves the rest with the most to hope for, that is the one that costs least to keep; of several the
        last. A second leg has moved already, and stays where it is."""
        return max(range(len(legs)), key=lambda i: (not legs[i].follows, i))

    # -- one move ----------------------------------------------------------------------------------------------------

    def _begin(self, leg: Leg, freeing: bool) -> bool:
        row = leg.end.row
        if row == leg.start.row:
            return False
        ruled = self._is_ruled(leg.uid)
        freed: list[Left] = []
        spot = self._at(leg, ruled)
        while spot is None and freeing and (left := self._next(leg)) is not None:
            self._free(row, left)
            freed.append(left)
            spot = self._at(leg, ruled)
        if spot is not None and self._is_left_to(row) and self._is_waited_for(row):
            self._late.add(leg.uid)
            spot = None
        if spot is None:
            for left in reversed(freed):
                self._unfree(row, left)
            return False
        self._take(leg, spot, tuple(dict.fromkeys(self._freed.get(row, ()))), ruled)
        return True

    def _at(self, leg: Leg, ruled: bool) -> Spot | None:
        """As the successor would be judged: without the pod that it follows."""
        row = leg.end.row
        if leg.devices:
            shares = self.world.free(row)[1]
            if any(shares[d.index] < d.milli for d in leg.end.devices):
                return None
        if ruled:
            self._say_gone(leg)
        found = self.world.placement.fits_at(leg.uid, row)
        if ruled:
            self._say_back(leg)
        # CPUs are chosen beside the devices that come with them.
        return found if found is None or found.cores or not leg.devices else found._replace(devices=leg.end.devices)

    def _say_gone(self, leg: Leg) -> None:
        """Rules only: its capacity is still in use."""
        if leg.follows:
            self.world.simulation.leave(leg.uid, leg.start.row)
        else:
            self.world.leave_home(leg.uid, leg.start)

    def _say_back(self, leg: Leg) -> None:
        if leg.follows:
            self.world.simulation.enter(leg.uid, leg.start)
        else:
            self.world.return_home(leg.uid, leg.start)

    def _take(self, leg: Leg, spot: Spot, after: tuple[MigrationId, ...], ruled: bool) -> MigrationId:
        world, uid = self.world, leg.uid
        pod = world.state.pods[uid].fact
        id = MigrationId(f"{self.plan}-{len(self.moves) + 1}")
        world.session.nodes.take(spot.row, world.vector(uid), spot.devices)
        self._say_gone(leg)
        cost = world.cost(uid) + (world.dearer(uid, spot.row) if spot.row == leg.end.row and not leg.follows else 0)
        world.simulation.enter(uid, spot)
        self.moves.append(
            Move(
                id, PodUid("") if leg.follows else uid, pod.namespace, pod.name, world.name(leg.start.row), world.name(spot.row),
                spot.devices, spot.cores, after, leg.follows, gang=world.gangs.get(uid, ""), cost=cost,
            )
        )  # fmt: skip
        earlier = [self._number[one] for one in dict.fromkeys((*after, *([leg.follows] if leg.follows else [])))]
        self._steps.append(Step(uid, leg.start.row, spot.row, tuple(earlier), ruled))
        self._number[id] = len(self._steps) - 1
        self.ends[uid] = spot
        self._left.setdefault(leg.start.row, []).append(Left(id, uid, leg.start))
        return id

    # -- what is left ------------------------------------------------------------------------------------------------

    def _next(self, leg: Leg) -> Left | None:
        """Of what is left there what is on the devices that it is to get, if there is any."""
        left, devices = self._left.get(leg.end.row), leg.devices
        if not left:
            return None
        return next((one for one in left if any(d.index in devices for d in one.spot.devices)), left[0])

    def _free(self, row: int, left: Left) -> None:
        self._left[row].remove(left)
        self.world.session.nodes.give(row, self.world.vector(left.uid), left.spot.devices)
        self._freed.setdefault(row, []).append(left.id)

    def _unfree(self, row: int, left: Left) -> None:
        self._freed[row].pop()
        self.world.session.nodes.take(row, self.world.vector(left.uid), left.spot.devices)
        self._left[row].insert(0, left)

    def _is_left_to(self, row: int) -> bool:
        """Whether who begins to arrive there waits for others to have left: what these leave somebody else may have by then."""
        return bool(self._freed.get(row)) or row in self.world.emptied

    def _is_waited_for(self, row: int) -> bool:
        """Whether somebody who waits fits there beside what has not left, and fitted nowhere in the beginning."""
        world = self.world
        free, shares = (list(of) for of in world.free(row))
        for left in self._left.get(row, ()):
            for c, a in world.vector(left.uid).items:
                free[c] += a
            for d in left.spot.devices:
                shares[d.index] += d.milli
        return any(mask[row] and fits(free, shares, v) for v, mask in world.waiting)

    def _is_ruled(self, uid: PodUid) -> bool:
        known = self._by_rules.get(uid)
        if known is None:
            known = self._by_rules[uid] = bool(self.world.rules(uid))
        return known

    # -- circles -----------------------------------------------------------------------------------------------------

    def _by_a_third(self, legs: list[Leg]) -> bool:
        """One of them goes to a place that nobody else wants, and on from there."""
        if len(self.moves) + 2 > self.most:
            return False
        wanted = {leg.end.row for leg in legs} | {leg.start.row for leg in legs}
        for i, leg in enumerate(legs):
            if leg.follows:
                continue
            spot = None
            if not self._is_ruled(leg.uid):
                spot = self.world.placement.find(leg.uid, wanted)
            if spot is None or (self._is_left_to(spot.row) and self._is_waited_for(spot.row)):
                continue
            id = self._take(leg, spot, tuple(self._freed.get(spot.row, ())), False)
            legs[i] = Leg(leg.uid, leg.end, spot, id)
            return True
        return False

    def _on_other_devices(self, legs: list[Leg]) -> bool:
        """One of them takes whatever devices it gets there: who waits for those that others are on, and these for its own."""
        for i, leg in enumerate(legs):
            if leg.devices and len(self.moves) < self.most and self._begin(leg._replace(end=Spot(leg.end.row)), True):
                del legs[i]
                return True
        return False
