"""The cluster as pods are thought to be moved: a session's node snapshot and rules, and where each pod is by now.

A pod is lifted from its place and lands on another one. Every change is on a trail, so that a thought that leads nowhere is taken
back exactly. Whoever is elsewhere than the state says is `away`: that, at the end, is the plan.

`opened` makes one to plan in: a session on the state, what is promised already, and which nodes take part.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName, PodUid
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.appraisal import Appraisal
from restow.domain.defragmentation.args import capacity_of, optional_threshold
from restow.domain.defragmentation.classify import exact, promised_to_others, spared
from restow.domain.defragmentation.evictable import Evictable
from restow.domain.defragmentation.optimizing.gaps import fillable
from restow.domain.defragmentation.optimizing.ranking import LOSSLESS, LeastLoss
from restow.domain.defragmentation.optimizing.unplaced import Unplaced, unplaced
from restow.domain.defragmentation.optimizing.usable import Usable
from restow.domain.defragmentation.optimizing.value import Objective, Value
from restow.domain.defragmentation.placement import PARTS, Placement
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.preferences import Preferences
from restow.domain.defragmentation.simulation import Simulation, Spot, simulated
from restow.domain.defragmentation.usable_worth import loads_of
from restow.domain.fragmentation import is_load
from restow.domain.fragmentation.fitting import usable
from restow.domain.node_table import Vector
from restow.domain.resources import GPU_MILLI, canonical_resource
from restow.domain.session.framework import Filter
from restow.domain.state import ClusterState
from restow.domain.verdicts import NOT_OPEN, NOT_SELECTED, OWED

MOST_KNOWN = 8
"""Contents of a row of which it is kept what was worked out."""


class World:
    """`moved`: pods that an earlier part of the plan has brought elsewhere; there they are at home. `floor` `(nodes,) int64`: what must stay free of `column` (the
    resource that is protected; -1 for none). `worth` is by row, `total` its sum and what whole blocks are worth besides (`tally`); `spent` what those who are away cost."""

    def __init__(self, simulation: Simulation, task: Task, objective: Objective, rows: "Rows", moved: Mapping[PodUid, Spot] | None = None) -> None:
        state, args = task.state, task.args
        self.simulation, self.session, self.state = simulation, simulation.session, state
        self.open, self.sources, self.counted = rows.open, rows.sources, rows.counted
        self.value, self._costs = _value(task, objective, rows.appraisal), rows.appraisal.costs
        self.column, self.floor = _floor(state, args)
        self._evictable, self._verdicts = rows.evictable, rows.verdicts
        self._sized: dict[PodUid, bool] = {}
        self.waiting: Sequence[Unplaced] = ()
        """Who waits, and fitted nowhere before anybody moved; nobody in plans for those who wait, which hold what they make."""
        self.moved: dict[PodUid, Spot] = {}
        self.emptied: frozenset[int] = frozenset()
        """Rows that the earlier part has taken somebody from."""
        self.away: dict[PodUid, Spot] = {}
        self._cost: dict[PodUid, int] = {}
        self._preferences = Preferences(simulation, self._costs.preferences)
        self._less: dict[PodUid, int] = {}
        """Of those who are away: what it costs that they prefer their home."""
        self._gone: dict[int, dict[PodUid, None]] = {}
        self.gratis = False
        """Whether moves cost nothing: to see what could be gained."""
        self.gone_of: Counter[str] = Counter()
        """By namespace: pods that are not at home."""
        self._quota = task.scope.quota
        self.charged_for: Counter[str] = Counter()
        """By eviction budget, where there are any: the same."""
        self._come: dict[int, dict[PodUid, None]] = {}
        self._trail: list[tuple[PodUid, Spot, bool, int]] = []
        self.touched: list[PodUid] = []
        """Who was lifted or landed, again for every time."""
        self.in_the_air: set[PodUid] = set()
        self.gangs: Mapping[PodUid, str] = rows.gangs
        self._homes: dict[int, list[PodUid]] = {}
        self._home: dict[PodUid, Spot] = {}
        self.sizes: dict[PodUid, int] = {}
        """How hard each pod is to find a place for (`choices.size`)."""
        self._known: dict[int, dict[tuple, dict]] = {}
        self._now: dict[int, dict] = {}
        """Of these what is known of who is on the row now."""
        self.largest = [max(int(n), 1) for n in self.state.table.allocatable.max(axis=0, initial=1)]
        """By column: the most that a node has of it."""
        self.loads = rows.loads.copy()
        """`(nodes,) int64`: pods that keep each row from being free."""
        for row in simulation.arriving:
            self.loads[row] += 1
        if self.gangs:
            self.leave_as_one(self.gangs)
        self._begin_at(moved or {})
        self.objective = LeastLoss(simulation, self.value, self.counted, self.loads, rows.fill)
        self.placement = Placement(simulation, self.open, self.column, self.floor, self.objective)
        self.placement.suits = self
        self.worth = self._worths()
        blocks, table = rows.appraisal.blocks if objective == "value" else None, self.state.table
        self.tally = blocks.tally(table.free, table.device_free, self.counted) if blocks is not None and blocks.classes else None
        """What whole free blocks are worth besides; None where that is nothing."""
        self.total = sum(self.worth) + (0 if self.tally is None else self.tally.total)
        self.spent = 0

    def _begin_at(self, moved: Mapping[PodUid, Spot]) -> None:
        """As the state will be when these have landed, in every respect that a plan made then would see."""
        snapshot, table = self.session.nodes, self.state.table
        for uid, spot in moved.items():
            home = self.home(uid)
            snapshot.give(home.row, self.vector(uid), home.devices)
            snapshot.take(spot.row, self.vector(uid), spot.devices)
            self.simulation.vacate(uid)
            self.simulation.enter(uid, spot)
            self.loads[home.row] -= 1
            self.loads[spot.row] += 1
            for row in (home.row, spot.row):
                self._homes.setdefault(row, sorted(self.state.on_node.get(NodeName(table.names[row]), ())))
        for uid, spot in moved.items():
            self._homes[self.home(uid).row].remove(uid)
            self._homes[spot.row].append(uid)
        for there in self._homes.values():
            there.sort()
        self.moved = dict(moved)
        self.emptied = frozenset(table.rows[self.state.charges[uid].node] for uid in moved)

    def leave_as_one(self, pods: Iterable[PodUid]) -> None:
        """Where these run says nothing of where their gangs are to be."""
        if (chooser := self.session.extensions.blocks) is not None:
            chooser.leave(list(pods))

    def _worths(self) -> list[int]:
        table = self.state.table
        worths = self.value.worths(table.free, table.device_free, self.loads)
        return [worth if counted else 0 for worth, counted in zip(worths, self.counted.tolist(), strict=True)]

    @property
    def steps(self) -> int:
        """Of search."""
        return self.placement.steps

    @steps.setter
    def steps(self, steps: int) -> None:
        self.placement.steps = steps

    # -- questions ---------------------------------------------------------------------------------------------------

    def vector(self, uid: PodUid) -> Vector:
        return self.state.vectors[self.state.pods[uid].fact.shape]

    def raised(self, v: Vector, floor: int) -> Vector:
        """The request with so much more of the protected resource, where it asks for that at all."""
        return Vector(tuple((c, a + floor if c == self.column else a) for c, a in v.items), v.devices)

    def name(self, row: int) -> NodeName:
        return self.session.name(row)

    def home(self, uid: PodUid) -> Spot:
        if (spot := self.moved.get(uid)) is not None:
            return spot
        if (home := self._home.get(uid)) is None:
            charge = self.state.charges[uid]
            home = self._home[uid] = Spot(self.state.table.rows[charge.node], self.state.devices_of(uid), charge.cores)
        return home

    def spot(self, uid: PodUid) -> Spot:
        return self.away.get(uid) or self.home(uid)

    def pods(self, row: int) -> list[PodUid]:
        """Who is there now, by uid (those who have come, last)."""
        homes = self._homes.get(row)
        if homes is None:
            homes = self._homes[row] = sorted(self.state.on_node.get(self.name(row), ()))
        gone = self._gone.get(row)
        there = [uid for uid in homes if uid not in gone] if gone else list(homes)
        come = self._come.get(row)
        return [*there, *come] if come else there

    def known(self, row: int) -> dict:
        """For what is worked out of who is on the row now, by whoever works it out: it is there again when they are."""
        if (now := self._now.get(row)) is not None:
            return now
        there = tuple([(uid, self.away[uid].devices) if uid in self.away else uid for uid in self.pods(row)])
        of_row = self._known.setdefault(row, {})
        found = of_row.get(there)
        if found is None:
            if len(of_row) >= MOST_KNOWN:
                of_row.clear()
            found = of_row[there] = {}
        self._now[row] = found
        return found

    def recall(self, other: "World") -> None:
        """What was worked out of rows in another world of the same state, by the same objective and costs, in which the same pods are at home on each of them."""
        self._known = other._known

    def verdict(self, uid: PodUid) -> str:
        """Why it must not be moved; empty where it may."""
        known = self._verdicts.get(uid)
        if known is None:
            known = self._verdicts[uid] = self._evictable.verdict(uid)
        return known

    def movable(self, uid: PodUid) -> bool:
        return not self.verdict(uid) and (uid in self.away or bool(self.sources[self.home(uid).row])) and self._has_its_size(uid)

    def _has_its_size(self, uid: PodUid) -> bool:
        """Whether some node has as much as it asks for, of each resource by itself. Whoever may bind a pod may write any number into it; one that no node has goes nowhere."""
        known = self._sized.get(uid)
        if known is None:
            known = self._sized[uid] = all(amount <= self.largest[column] for column, amount in self.vector(uid).items)
        return known

    def cost(self, uid: PodUid) -> int:
        if self.gratis:
            return 0
        known = self._cost.get(uid)
        if known is None:
            known = self._cost[uid] = self._costs.cost(uid, new=uid in self.moved, as_one=uid in self.gangs)
        return known

    @property
    def least_cost(self) -> int:
        """What every move costs at least."""
        return self._costs.move

    @property
    def preferred(self) -> int:
        """What it costs that a target suits a pod less, for each kind of its preferences."""
        return self._costs.preferences

    enough = LOSSLESS

    def worse(self, uid: PodUid) -> np.ndarray | None:
        """`placement.Suits`."""
        return self._preferences.worse(uid, self.home(uid).row)

    def prefers(self, uid: PodUid) -> bool:
        """Whether some rows may suit it less than its home."""
        return self._preferences.matter(uid)

    def dearer(self, uid: PodUid, row: int) -> int:
        """What it costs that a pod in the air prefers its home to this row."""
        return self._preferences.cost(uid, self.home(uid).row, row)

    def whatever_it_costs(self) -> int:
        """What those who are away cost, also where moves are `gratis`."""
        return sum(self._costs.cost(uid, new=uid in self.moved) + self._less.get(uid, 0) for uid in self.away)

    def price(self, uid: PodUid) -> int:
        """What moving it adds: nothing where it is on the move anyway."""
        return 0 if uid in self.away else self.cost(uid)

    def twin(self, uid: PodUid) -> PodObserved:
        return self.simulation.twin(uid)

    def rules(self, uid: PodUid) -> list[Filter]:
        return self.simulation.rules(uid)

    # -- changes, and back -------------------------------------------------------------------------------------------

    def gone(self, row: int) -> Mapping[PodUid, None]:
        """Who has left the row, of those whose home it is."""
        return self._gone.get(row, {})

    def come(self, row: int) -> Mapping[PodUid, None]:
        """Who is there away from home."""
        return self._come.get(row, {})

    def charged(self, uid: PodUid) -> tuple[str, ...]:
        """The eviction budgets that its leaving home is charged to."""
        return self._quota.charged(uid, self.name(self.home(uid).row))

    def changed(self, mark: int) -> list[PodUid]:
        """Who was lifted or landed since."""
        return list(dict.fromkeys(uid for uid, *_ in self._trail[mark:]))

    def mark(self) -> int:
        return len(self._trail)

    def undo(self, mark: int) -> None:
        """Undo everything since the mark."""
        while len(self._trail) > mark:
            uid, spot, landed, less = self._trail.pop()
            if landed:
                self._lift(uid, spot)
            else:
                self._land(uid, spot, less)

    def lift(self, uid: PodUid) -> Spot:
        spot, less = self.spot(uid), self._less.get(uid, 0)
        self._lift(uid, spot)
        self._trail.append((uid, spot, False, less))
        return spot

    def land(self, uid: PodUid, spot: Spot) -> None:
        self._land(uid, spot, None)
        self._trail.append((uid, spot, True, 0))

    def _lift(self, uid: PodUid, spot: Spot) -> None:
        row = spot.row
        self.touched.append(uid)
        self.in_the_air.add(uid)
        self.session.nodes.give(row, self.vector(uid), spot.devices)
        if uid in self.away:
            del self.away[uid]
            del self._come[row][uid]
            less = self._less.pop(uid, 0)
            self.spent -= 0 if self.gratis else self.cost(uid) + less
            self.simulation.leave(uid, row)
        else:
            self._gone.setdefault(row, {})[uid] = None
            self.gone_of[self.state.pods[uid].fact.namespace] += 1
            if self._quota.has_budgets:
                self.charged_for.update(self.charged(uid))
            self.leave_home(uid, spot)
        self._weigh(row, -1)

    def _land(self, uid: PodUid, spot: Spot, less: int | None) -> None:
        """`less`: what it cost when it landed there first, which may depend on who was where."""
        row = spot.row
        self.touched.append(uid)
        self.in_the_air.discard(uid)
        self.session.nodes.take(row, self.vector(uid), spot.devices)
        if spot == self.home(uid):
            del self._gone[row][uid]
            self.gone_of[self.state.pods[uid].fact.namespace] -= 1
            if self._quota.has_budgets:
                self.charged_for.subtract(self.charged(uid))
            self.return_home(uid, spot)
        else:
            self.away[uid] = spot
            self._come.setdefault(row, {})[uid] = None
            less = self.dearer(uid, row) if less is None else less
            if less:
                self._less[uid] = less
            self.spent += 0 if self.gratis else self.cost(uid) + less
            self.simulation.enter(uid, spot)
        self._weigh(row, 1)

    def leave_home(self, uid: PodUid, home: Spot) -> None:
        """Rules see it at home no more."""
        if uid in self.moved:
            self.simulation.leave(uid, home.row)
        else:
            self.simulation.vacate(uid)

    def return_home(self, uid: PodUid, home: Spot) -> None:
        """Undo `leave_home`."""
        if uid in self.moved:
            self.simulation.enter(uid, home)
        else:
            self.simulation.restore(uid)

    def _weigh(self, row: int, loads: int) -> None:
        self._now.pop(row, None)
        self.loads[row] += loads
        if not self.counted[row]:
            return
        free, shares = self.session.nodes.row(row)
        worth = self.value.worth(row, free, shares, int(self.loads[row]))
        self.total += worth - self.worth[row]
        self.worth[row] = worth
        if self.tally is not None:
            self.total += self.tally.set(row, free, shares)

    def settle(self) -> None:
        """What was thought is kept; there is no way back beyond this."""
        self._trail.clear()

    def free(self, row: int) -> tuple[list[int], list[int]]:
        """What a row has free, by column and device. Must not be changed."""
        return self.session.nodes.row(row)

    def send_home(self, uids: Iterable[PodUid]) -> bool:
        """Put those who are away back; False (and some may be back) where the capacity of one is taken."""
        uids = list(uids)
        for uid in uids:
            self.lift(uid)
        for uid in uids:
            if not self.home_fits(uid):
                return False
            self.land(uid, self.home(uid))
        return True

    def by_return(self, uids: Iterable[PodUid]) -> tuple[int, int] | None:
        """What `total` would gain by the return of these, who are away, and what they would cost no more; None where what one had at home is taken. Nothing is moved for it, which takes
        several times as long; rules about other pods may still forbid it."""
        rows: dict[int, tuple[list[int], list[int], int]] = {}
        spared = 0
        for uid in uids:
            spot, home = self.away[uid], self.home(uid)
            spared += 0 if self.gratis else self.cost(uid) + self._less.get(uid, 0)
            for there, sign in ((spot, 1), (home, -1)):
                if there.row not in rows:
                    free, shares = self.free(there.row)
                    rows[there.row] = free[:], shares[:], int(self.loads[there.row])
                free, shares, loads = rows[there.row]
                for column, amount in self.vector(uid).items:
                    free[column] += amount * sign
                for d in there.devices:
                    if d.index < len(shares):
                        shares[d.index] += d.milli * sign
                rows[there.row] = free, shares, loads - sign
        if any(not self._holds(rows[self.home(uid).row], uid) for uid in uids):
            return None
        more = sum([self.value.worth(row, *has) - self.worth[row] for row, has in rows.items() if self.counted[row]])
        return more + (0 if self.tally is None else self.tally.would(rows)), spared

    def _holds(self, has: tuple[list[int], list[int], int], uid: PodUid) -> bool:
        """Whether nothing that it has at home is short there, with it."""
        free, shares, _ = has
        return all(free[c] >= 0 for c, _ in self.vector(uid).items) and all(d.index < len(shares) and shares[d.index] >= 0 for d in self.home(uid).devices)

    def home_fits(self, uid: PodUid) -> bool:
        """Whether what it had at home is free there, and nobody has come with whom it must not be."""
        home = self.home(uid)
        free, shares = self.free(home.row)
        if any(free[c] < a for c, a in self.vector(uid).items):
            return False
        if any(d.index >= len(shares) or shares[d.index] < d.milli for d in home.devices):
            return False
        return not self.simulation.forbidden(uid, home.row)


class Rows:
    """Which nodes take part, `(nodes,) bool` each: where something may land (`open`), that something may leave (`sources`), and whose worth counts
    (`counted`). `closed` says, by node, why nothing leaves it. `appraisal`: in which unit it is all weighed."""

    def __init__(self, task: Task) -> None:
        state, args, time, scope = task.state, task.args, task.time, task.scope
        table, leavable = state.table, scope.leavable_rows(state)
        self.appraisal = Appraisal(state, args, time)
        self.evictable = Evictable(state, args, canonical_resource(args.resourceType), by_rules=True, scope=scope)
        self.loads, self.fill = loads_of(state), fillable(state)
        self.verdicts: dict[PodUid, str] = {}
        """Of pods that were asked about: they hang on the state, and not on who is thought to have moved."""
        self._state = state
        self.gangs: dict[PodUid, str] = {}
        """Of pods that are moved with all of their gang its PodGroup (`namespace/name`)."""
        self.counted = usable(state) & table.alive
        self.closed: dict[NodeName, str] = {}
        owed = set(state.waiting_on) | set(state.nominated_on)
        rows = np.zeros(len(table.names), bool)
        for name, row in table.rows.items():
            why = NOT_OPEN if not self.counted[row] else OWED if name in owed else "" if leavable[row] else NOT_SELECTED
            why = why or spared(state, args, time, row)
            if why:
                self.closed[name] = why
            else:
                rows[row] = True
        self.sources = rows
        self.open = self.counted & ~promised_to_others(state, time) & scope.open_rows(state)
        # Where somebody is leaving nobody arrives: that is why he leaves.
        left = {state.charges[uid].node for uid in state.victims if uid in state.charges}
        self.open &= ~table.mask(owed | left)


    @cached_property
    def waiting(self) -> list[Unplaced]:
        """Who waits and fits nowhere. To be asked first while nobody is thought to have moved."""
        return unplaced(self._state)


def _value(task: Task, objective: Objective, appraisal: Appraisal) -> Value:
    """What nodes are worth."""
    state, gpu = task.state, task.state.table.columns.get(GPU_MILLI, -1)
    if objective == "value":
        return Usable(appraisal.usable, gpu)
    capacity = state.table.vector(*capacity_of(task.args.capacity)) if objective == "capacity" else None
    return Value(objective, capacity, gpu)


def _floor(state: ClusterState, args: DefragmentationArgs) -> tuple[int, np.ndarray]:
    """The column of the protected resource and what must stay free of it, `(nodes,) int64`; a threshold of 100 protects
    nothing."""
    column = state.table.columns.get(canonical_resource(args.resourceType), -1)
    protection = optional_threshold(args, "protectionThresholds")
    if column < 0 or protection is None or protection >= 100:
        return -1, np.zeros(len(state.table.names), np.int64)
    total = exact(state.table.allocatable[:, column])
    return column, (total - (total * protection - 1) // 100).astype(np.int64)


@contextmanager
def opened(task: Task, objective: Objective, rows: Rows, moved: Mapping[PodUid, Spot] | None = None) -> Iterator[World]:
    """As the state is, or as it will be once these have `moved`. The state is as before at the end."""
    waiting = [] if objective == "none" else rows.waiting
    with simulated(task.state, task.time) as simulation:
        world = World(simulation, task, objective, rows, moved)
        world.waiting = waiting
        if objective == "nodes":
            world.objective.stay = _stay(world)
        yield world


def _stay(world: World) -> np.ndarray:
    """`(nodes,) int64`: how hard each row is to empty, 0 to PARTS; the rank among those that can be emptied at all."""
    state = world.state
    price: list[tuple[int, int, int]] = []
    found = np.full(len(state.table.names), PARTS, np.int64)
    for name, row in state.table.rows.items():
        if not world.sources[row] or name in state.held_on:
            continue
        loads = [uid for uid in world.pods(row) if is_load(state, uid)]
        if all(world.movable(uid) for uid in loads):
            price.append((sum(world.cost(uid) for uid in loads), int(state.table.rank[row]), row))
    for place, (_, _, row) in enumerate(sorted(price)):
        found[row] = place * (PARTS - 1) // len(price)
    return found
