"""The search: empty what gains most for what it costs and for what is scarce, until nothing gains enough.

For each row the sets of pods whose leaving makes it worth more, the best first, looked at again when their turn comes. All of
a set find a place, or none of it moves. Who finds none may push others out of the way, who find another place in turn: a chain
of bounded depth.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.choices import Pods, choices, easiest, gain, size
from restow.domain.defragmentation.optimizing.pushing import Pushing
from restow.domain.defragmentation.optimizing.ranking import LOSSLESS
from restow.domain.defragmentation.optimizing.scarcity import Scarcity
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.defragmentation.scope import Quota

DEPTH = 2
"""Who is pushed may push others, and these nobody."""
PUSHED = 12
"""Pods that may be pushed, for one that finds no place."""
DEEPER = 2
"""Of these, pods that have to push somebody in turn."""
ALIKE = 2
"""Sets of equal pods that are tried in vain: where two rows have no place for them, the others have none either, as good as always."""
ALL = 64
"""Sets of pods of one row, where none has a pod of another."""
LOSING = 3
"""Rows that somebody lands on although something is lost there, for others to bring it back."""
ODD = 5
"""One in so many."""
THOUSANDTHS = 1_000_000
"""A thousandth of gain for a move that costs 1000 is a gain of 1 for a cost of this many, divided."""
USES = "uses"
NO_QUOTA = Quota(None, None)
TOLLS = 5
"""Times that less is asked of a move, each time half as much, until it is nothing."""
PARTS = 3
"""A plan is searched for, and then again from where it ends, within the same steps."""


Item = tuple[tuple, int, int, int]
"""How easy it is, how deep chains may be, the row, and what was on it then."""


_MULTIPLIER, _INCREMENT, _MASK = 6364136223846793005, 1442695040888963407, (1 << 64) - 1


class Chance:
    """Numbers that look like chance: a generator of our own, so that the same state gives the same plan everywhere."""

    def __init__(self) -> None:
        self._state = 42

    def number(self, n: int) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return (self._state >> 33) % n

    def sample(self, items: list[int], count: int) -> list[int]:
        """So many of them, in some order."""
        left = items[:]
        chosen: list[int] = []
        while left and len(chosen) < count:
            at = self.number(len(left))
            left[at], left[-1] = left[-1], left[at]
            chosen.append(left.pop())
        return chosen


class Leaving(NamedTuple):
    """What the leaving of some pods gains, in how many moves, and how `easiest` it is."""

    gained: int
    moves: int
    easy: tuple[int, int, int, Pods]


def largest_first(world: World, pods: Pods) -> list[PodUid]:
    return sorted(pods, key=lambda uid: (-size(world, uid), uid))


class Limits:
    """`moves` at most; a gain of one is worth a cost of up to `THOUSANDTHS // least`; `steps` of search, of which taking parts of a plan
    back and trying again may use so many as are `improving`: what is left tells whether a next plan would be empty."""

    __slots__ = ("improving", "least", "moves", "quota", "steps", "whole")

    def __init__(self, moves: int, least: int, steps: int, whole: bool, quota: Quota = NO_QUOTA) -> None:
        self.quota = quota
        self.moves, self.least, self.steps, self.whole = moves, max(least, 1), steps, whole
        self.improving = max(steps // PARTS, 1)

    def within(self, steps: int, moved: int = 0) -> "Limits":
        """What is left of it: so many steps, and fewer moves by those who have moved; otherwise the same."""
        left = Limits(self.moves - moved, self.least, steps, self.whole, self.quota)
        left.improving = self.improving
        return left


class Search:
    """`stuck` says of pods of sets that did not move who would have had no place then, where one of them fits nowhere else; `full` that more would have
    moved but for the limit, `cut` that the steps were used up before all had had their turn."""

    def __init__(self, world: World, limits: Limits) -> None:
        self.world, self.limits = world, limits
        self.stuck: dict[PodUid, PodUid] = {}
        self.bounded: dict[PodUid, str] = {}
        """Of pods that a limit of the policy has kept: which one."""
        self.scarcity = Scarcity(world, limits.moves - len(world.away))
        self._pushing: Pushing | None = None
        self._failed = Counter[tuple]()
        """How often sets of equal pods have failed since something moved."""
        self._failing: dict[tuple, tuple[int, bool]] = {}
        """And which of them, the largest first, found no place, and whether it fits nowhere."""
        self._homeless: PodUid | None = None
        self._nowhere = False
        """Whether the pod that found no place (`place`) fits nowhere else. Otherwise it would fit, and it is not worth it."""
        self.full = False
        self.cut = False
        self._depth = DEPTH
        self.toll = 0
        """What each move must gain besides, in millionths: more than nothing while the limit of moves leaves no room for all that is worth it."""
        self.chance: Chance | None = None
        """Now and then somebody lands on the second best row, once there is one: other plans come of that."""

    @property
    def spent(self) -> bool:
        """Whether the steps are used up."""
        return self.world.steps >= self.limits.steps

    def net(self) -> int:
        """Gain and cost in one number: what is to be as large as possible."""
        return self.world.total * THOUSANDTHS - self.limits.least * self.world.spent - self.toll * len(self.world.away)

    def gains_by_return(self, uids: Sequence[PodUid]) -> bool:
        """Whether the plan would gain by the return of these, if no rule forbids it."""
        found = self.world.by_return(uids)
        return found is not None and found[0] * THOUSANDTHS + self.limits.least * found[1] + self.toll * len(uids) > 0

    def _going(self, uid: PodUid) -> int:
        """What it takes from `net` that a pod in the air goes elsewhere."""
        return self.limits.least * self.world.cost(uid) + self.toll

    def run(self, rows: np.ndarray, depth: int = DEPTH) -> None:
        """Over these rows, until none is worth it. First in places that are free; who finds none there comes again later, as one
        move dearer, and may push others then, so deep."""
        self._depth = depth
        offers = [(row, pods, *self.weighed(row, pods)) for row in rows.tolist() for pods in choices(self.world, row, self.limits.whole, ALL if self.world.value.objective == "devices" else 1, 1)]
        self.scarcity.find([(net, uses) for *_, net, uses in offers if net > 0])
        first: dict[int, tuple] = {}
        for row, pods, net, uses in offers:
            if net > 0 and (row not in first or self._key(row, pods, net, uses) < first[row]):
                first[row] = self._key(row, pods, net, uses)
        items: list[Item] = [(key, 0, row, self._seen(row)) for row, key in first.items()]
        for toll in self._tolls([(net, uses[-1]) for *_, net, uses in offers if net > 0 and uses[-1]]):
            if toll or self.toll:
                # What is offered, and in which order, hangs on the toll.
                self.toll = toll
                items = [item for row in rows.tolist() if not self._is_refused(row) and (item := self._offer(row)) is not None]
            self._over(items)

    def _is_refused(self, row: int) -> bool:
        """Whether nobody may leave it any more: there is no move left, and all who are on it would take one."""
        return self.full and len(self.world.away) >= self.limits.moves and not self.world.come(row)

    def _tolls(self, offers: list[tuple[int, int]]) -> list[int]:
        """What moves must gain besides, time after time less: where all `offers` (what each gains, and in how many moves) take more moves than are allowed,
        who gains little in many moves waits until nobody is left who gains more in fewer."""
        if sum(moves for _, moves in offers) <= self.limits.moves - len(self.world.away):
            return [0]
        most = max(net // moves for net, moves in offers)
        return [*(most >> halved for halved in range(1, TOLLS + 1)), 0]

    def _over(self, heap: list[Item]) -> None:
        """Until none of these is worth it, as things are or as they become."""
        heapify(heap)
        while heap and not self.spent:
            _, depth, row, seen = heappop(heap)
            if self._is_refused(row):
                continue
            again: Item | None = None
            if seen != self._seen(row) or any(self._tried(row, pods, depth) for _, pods in self._best(row) if not self.spent):
                again = self._offer(row)
            elif depth < self._depth:
                again = self._offer(row, self._depth)
            if again is not None:
                heappush(heap, again)
        self.cut = bool(heap)

    def _tried(self, row: int, pods: Pods, depth: int) -> bool:
        """`attempt`, but not of what has failed already for as many equal pods on other rows while nothing has moved."""
        world = self.world
        kinds = tuple(sorted(world.placement.kind(uid) for uid in pods))
        key = depth, self.weighed(row, pods)[0], kinds
        alike = not self.limits.quota.bounds and not any(world.rules(uid) for uid in pods)
        if alike and self._failed[key] >= ALIKE:
            which, self._nowhere = self._failing[key]
            self._blame(pods, largest_first(world, pods)[which])
            return False
        if self.attempt(row, pods, depth):
            self._failed.clear()
            return True
        if (uid := self._homeless) is not None:
            self._failed[key] += 1
            self._failing[key] = largest_first(world, pods).index(uid), self._nowhere
        return False

    def weighed(self, row: int, pods: Pods) -> tuple[int, list[int]]:
        """As `promised`, and what it uses."""
        net = self.promised(row, pods)
        if net <= 0:
            return net, []
        known = self.world.known(row)
        if (uses := known.get((USES, pods))) is None:
            uses = known[USES, pods] = self.scarcity.uses(row, pods)
        return net, list(uses)

    def promised(self, row: int, pods: Pods) -> int:
        """What the leaving of these gains beyond what it costs, wherever they land."""
        some = self._leaving(row, pods)
        return some.gained * THOUSANDTHS - self.limits.least * some.easy[0] - self.toll * some.moves

    def _leaving(self, row: int, pods: Pods) -> Leaving:
        """Worked out once for what is on the row."""
        world, known = self.world, self.world.known(row)
        if (some := known.get(pods)) is None:
            some = known[pods] = Leaving(gain(world, row, pods), sum([uid not in world.away for uid in pods]), easiest(world, pods))
        return some

    def _key(self, row: int, pods: Pods, net: int, uses: list[int]) -> tuple:
        """Those first that gain most beyond what is scarce, then the easiest."""
        return (-self.scarcity.surplus(net, uses), *self._leaving(row, pods).easy)

    def _best(self, row: int, dearer: int = 0, pods: int = 3) -> list[tuple[tuple, Pods]]:
        """Sets of pods that are worth it even if their leaving takes so many moves more: the best first."""
        found = []
        for some in choices(self.world, row, self.limits.whole, 3, pods):
            net, uses = self.weighed(row, some)
            net -= dearer * (self.world.least_cost * self.limits.least + self.toll)
            if net > 0:
                uses[-1] += dearer
                found.append((self._key(row, some, net, uses), some))
        return sorted(found)

    def _offer(self, row: int, depth: int = 0) -> Item | None:
        """`depth`: how deep chains may be; whoever pushes others takes one move more at least."""
        found = self._best(row, 1 if depth else 0, 1)
        return (found[0][0], depth, row, self._seen(row)) if found else None

    def _seen(self, row: int) -> int:
        """Changes with what is on the row."""
        return hash((self.world.worth[row], *self.world.free(row)[0], *self.world.free(row)[1])) & ((1 << 60) - 1)

    # -- one set of pods ---------------------------------------------------------------------------------------------

    def attempt(self, row: int, pods: Pods, depth: int = DEPTH) -> bool:
        """Move all of them off the row, if that is worth it; nothing changes where it is not."""
        world, self._homeless = self.world, None
        if len(world.away) + sum(uid not in world.away for uid in pods) > self.limits.moves:
            self.full = True
            return False
        if self.limits.quota.bounds and self.beyond(pods, pods):
            return False
        mark, before = world.mark(), self.net()
        for uid in pods:
            world.lift(uid)
        for uid in largest_first(world, pods):
            if not self.place(uid, frozenset({row}), depth, before):
                self._blame(pods, uid)
                self._homeless = uid
                world.undo(mark)
                return False
        # All of these have a place; one that others found none for on the way is none of them.
        self._homeless = None
        if self.net() <= before:
            world.undo(mark)
            return False
        if len(world.away) > self.limits.moves:
            self.full = True
            world.undo(mark)
            return False
        if self.limits.quota.bounds and self.beyond(pods, world.changed(mark)):
            world.undo(mark)
            return False
        return True

    def beyond(self, pods: Pods, going: Sequence[PodUid]) -> str:
        """The limit of the policy that those who are gone break together with these, "" where none; then it is what keeps the `pods`."""
        world, of = self.world, self.world.state.pods
        homes = {uid: world.home(uid).row for uid in going if uid in world.away or uid in pods}
        fresh = [uid for uid, row in homes.items() if uid not in world.gone(row)]
        rows, names = Counter(homes[uid] for uid in fresh), Counter(of[uid].fact.namespace for uid in fresh)
        for uid, row in homes.items():
            name = of[uid].fact.namespace
            leaving, gone = len(world.gone(row)) + rows[row], world.gone_of[name] + names[name]
            if why := self.limits.quota.exceeded(world.name(row), leaving, name, gone):
                self.bounded.update(dict.fromkeys(pods, why))
                return why
        if not self.limits.quota.has_budgets:
            return ""
        more = Counter(key for uid in fresh for key in world.charged(uid))
        why = self.limits.quota.over_budget({key: world.charged_for[key] + more[key] for uid in homes for key in world.charged(uid)})
        if why:
            self.bounded.update(dict.fromkeys(pods, why))
        return why

    def _blame(self, pods: Pods, uid: PodUid) -> None:
        if self._nowhere:
            self.stuck.update(dict.fromkeys(pods, uid))
        else:
            for one in pods:
                self.stuck.pop(one, None)

    def place(self, uid: PodUid, banned: frozenset[int], depth: int, least: int) -> bool:
        """A place for a pod in the air: where least is lost by it and all of this still gains, else by pushing others, else where more is lost
        and others bring it back."""
        world, placement = self.world, self.world.placement
        home = world.home(uid)
        # With whole nodes nobody goes home alone: the others of that node are gone.
        if home.row not in banned and not self.limits.whole and world.home_fits(uid):
            before = world.total
            world.land(uid, home)
            if world.total == before:
                return True
            world.lift(uid)
        avoided = banned | {home.row}
        spot = placement.find(uid, avoided)
        if spot is not None and self.chance is not None and not self.chance.number(ODD):
            spot = placement.find(uid, avoided | {spot.row}, LOSSLESS) or spot
        if spot is not None:
            before = world.total
            world.land(uid, spot)
            if world.total >= before or self.net() > least:
                return True
            world.lift(uid)
        if depth and self.net() - self._going(uid) > least and self._push(uid, avoided, depth, least):
            return True
        if depth and spot is not None and self._lose(uid, avoided, depth, least):
            return True
        # Last, for those who were to be pushed have said it of themselves.
        self._nowhere = spot is None
        return False

    def _lose(self, uid: PodUid, avoided: frozenset[int], depth: int, least: int) -> bool:
        """Land where something is lost by it: less than can be gained in all, or what others who leave that row bring back."""
        world = self.world
        for _ in range(LOSING):
            if self.spent:
                return False
            spot = world.placement.find(uid, avoided)
            if spot is None:
                return False
            mark = world.mark()
            world.land(uid, spot)
            if self.net() > least:
                return True
            for pods in choices(world, spot.row, self.limits.whole, 2):
                if uid not in pods and self.attempt(spot.row, pods, depth - 1) and self.net() > least:
                    return True
            world.undo(mark)
            avoided = avoided | {spot.row}
        return False

    def _push(self, uid: PodUid, banned: frozenset[int], depth: int, least: int) -> bool:
        """Land where another one frees capacity and finds a place of its own. Never with whole nodes: who is pushed leaves some behind."""
        if self.limits.whole:
            return False
        if len(self.world.away) + len(self.world.in_the_air) >= self.limits.moves:
            self.full = True
            return False
        if self._pushing is None:
            self._pushing = Pushing(self.world)
        world, placement, deep = self.world, self.world.placement, DEEPER if depth > 1 else 0
        third: bool | None = None
        for other in self._pushing.candidates(uid, banned, PUSHED):
            if self.spent:
                return False
            row = world.spot(other).row
            if placement.find(other, (row,), LOSSLESS) is None:
                deep -= 1
                if deep < 0:
                    continue
            mark = world.mark()
            world.lift(other)
            spot = placement.fits_at(uid, row)
            if spot is not None:
                world.land(uid, spot)
                if third is None:
                    third = placement.find(uid, banned | {row}) is not None
                # Who takes the capacity of the one that pushes it waits for that, and that for it: one of them goes by a third place.
                ring = third and self.net() - self._going(uid) > least
                near_by = frozenset({row}) if ring else banned | {row}
                if self.net() > least and self.place(other, near_by, depth - 1, least) and self.net() > least:
                    return True
            world.undo(mark)
        return False
