"""Capacity for pods that wait although what they ask for is there in pieces: the cheapest moves that put the pieces together.

All pods of the demand get a node; where that cannot be, as many of a gang as it needs to start, or nobody does. Nobody is moved who has
nowhere to go, and nobody who has is moved in vain: for each pod the nodes are asked in the order of what freeing them costs at least,
until no other can be cheaper.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop

import numpy as np

from restow.contracts.events import Planned, PodObserved
from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import SlotFor
from restow.domain.defragmentation.optimizing.choices import Pods, easiest, lightest, size_of
from restow.domain.defragmentation.optimizing.improve import prune
from restow.domain.defragmentation.optimizing.order import Ordered
from restow.domain.defragmentation.optimizing.order import Sequence as Order
from restow.domain.defragmentation.optimizing.plan import beyond, by_target
from restow.domain.defragmentation.optimizing.search import DEPTH, Limits, Search
from restow.domain.defragmentation.optimizing.world import Rows, World, opened
from restow.domain.defragmentation.plan import Found, Task, summed_up
from restow.domain.groups import named, task_of
from restow.domain.network.reach import levels
from restow.domain.predicates import static_mask
from restow.domain.resources import shown
from restow.domain.session.fitting import Fit
from restow.domain.session.framework import Within
from restow.domain.session.jobs import Job, gang, job_of, single
from restow.domain.session.session import Session
from restow.domain.verdicts import NO_TARGET, sentence, stay

PLANNER = "optimizing"
TRIED = 24
"""Nodes that are tried for one pod after the first that will do, and so many blocks of nodes for a gang."""
ANYTHING = -(1 << 62)
"""No cost is too high: the limit of moves bounds it."""


class NoCapacity(Exception):
    """Why no moves would help, as a sentence."""


class FitsAlready(NoCapacity):
    """No moves are needed."""


class Granted:
    """A node for a pod that waits, charged in the world."""

    __slots__ = ("pod", "row", "spot")

    def __init__(self, pod: PodObserved, row: int, spot: Fit) -> None:
        self.pod, self.row, self.spot = pod, row, spot


def plan_demand(task: Task, demand: str) -> Planned:
    """The plan as a value; the state stays as it is. `reason` says for what, or why not. Raises ArgsError."""
    attempt = _Attempt(task, demand)
    try:
        granted, ordered, said = attempt.made()
    except NoCapacity as why:
        return summed_up(task, Found((), {}, attempt.steps), attempt.kept, PLANNER, reason=f"no plan for {demand}: {why}")
    names = enumerate(granted, 1)
    node = task.state.table.names
    made = tuple(SlotFor(f"restow-slot-{task.plan}-{i}", one.pod.pod, one.pod.namespace, NodeName(node[one.row])) for i, one in names)
    return summed_up(task, Found(ordered.moves, ordered.ends, attempt.steps), {}, PLANNER, made, f"capacity for {demand}{said}")


class _Attempt:
    """One plan. `kept` is of what was tried first of all that would have done, as the reason is; `steps` of all that was tried."""

    def __init__(self, task: Task, demand: str) -> None:
        self._task, self._demand = task, demand
        self._rows = Rows(task)
        self._pods = self._need = self._preferred = 0
        self.kept: Counter[str] = Counter()
        self.steps = 0

    def made(self) -> tuple[list[Granted], Ordered, str]:
        """For all who wait, or else for as many as are needed: then a text says so. Raises NoCapacity."""
        try:
            return *self._in_one_block(whole=True), ""
        except NoCapacity as why:
            if self._need >= self._pods:
                raise
            not_all = why
        granted, ordered = self._in_one_block(whole=False)
        return granted, ordered, f", {len(granted)} of its {self._pods} pods that wait; not for all of them: {not_all}"

    def _in_one_block(self, *, whole: bool) -> tuple[list[Granted], Ordered]:
        """In the cheapest of the widest blocks that it may be in, or in the cheapest of the narrowest ones that cost no more beyond that than it prefers to be
        near to each other: `costs.preferences` for each pod. Raises NoCapacity."""
        self.kept = Counter()
        widest, narrower = self._blocks()
        best = self._cheapest(widest, whole=whole)
        for blocks in narrower:
            try:
                found = self._cheapest(blocks, whole=whole)
            except FitsAlready:
                raise
            except NoCapacity:
                continue
            if _cost(found) <= _cost(best) + self._preferred * len(best[0]):
                return found
        return best

    def _cheapest(self, blocks: Sequence[Within | None], *, whole: bool) -> tuple[list[Granted], Ordered]:
        """Until one will do, and `TRIED` more. The reason is the first one's."""
        best: tuple[list[Granted], Ordered] | None = None
        tried = 0
        why: NoCapacity | None = None
        for i, within in enumerate(blocks):
            if tried > TRIED or (i and self.steps >= self._allowed(whole=whole)):
                break
            try:
                found = self._one(whole=whole, within=within, last=i + 1 == len(blocks))
            except FitsAlready:
                raise
            except NoCapacity as error:
                why = why or error
            else:
                if best is None or _cost(found) < _cost(best):
                    best = found
            tried += best is not None
        if best is None:
            raise why or NoCapacity("no block of nodes that it may be in is large enough")
        return best

    def _blocks(self) -> tuple[Sequence[Within | None], Sequence[Sequence[Within]]]:
        """The widest, of which each may be tried; and those of the narrower tiers, the narrowest first."""
        if levels(self._task.state) is None:
            return (None,), ()
        with opened(self._task, "none", self._rows) as world:
            chooser = world.session.extensions.blocks
            job, pods = _asked(world.session, self._demand)
            self._pods, self._need = len(pods), needed(job)
            self._preferred = world.preferred
            if chooser is None:
                return (None,), ()
            most = _without_the_movable(world)
            # Where none would do, one is tried for what it lacks there.
            widest = tuple(chooser.freeable(job, pods, most)) or tuple(chooser.freeable(job, pods))[:1]
            return widest, tuple(chooser.narrower(job, pods, most))

    def _allowed(self, *, whole: bool) -> int:
        """Steps of all that is tried; the other half is for those that it needs."""
        steps = self._task.args.searchSteps
        return steps // 2 if whole and self._need < self._pods else steps

    def _one(self, *, whole: bool, within: Within | None, last: bool) -> tuple[list[Granted], Ordered]:
        """In this block. Unless it is the `last` one, half of the steps are for others."""
        task, state, args = self._task, self._task.state, self._task.args
        with opened(task, "none", self._rows) as world:
            try:
                job, pods = _asked(world.session, self._demand)
                self._pods, self._need = len(pods), needed(job)
                left = self._allowed(whole=whole) - self.steps
                steps = left if last else -(-left // 2)
                search = Search(world, Limits(task.max_moves, 1, steps, False, task.scope.quota))
                world.session.within = within
                search_for = _Demand(search, self.kept, self._rows.closed, args.searchSteps)
                granted = search_for.grant_all(job, pods) if whole else search_for.grant_needed(job, pods)
            finally:
                self.steps += world.steps
            wanted = dict(world.away)
        with opened(task, "none", self._rows) as world:
            for one in granted:
                # Its Reservation is there first and takes what becomes free.
                world.session.nodes.take(one.row, state.vectors[one.pod.shape], one.spot.devices)
            ordered = Order(world, task.plan, task.max_moves).order(wanted, by_target(world, wanted))
        if ordered.stayed:
            raise NoCapacity(f"{len(ordered.stayed)} of {len(wanted)} moves would wait for each other")
        if dropped := beyond(search.limits, ordered):
            raise NoCapacity(f"the policy's limits keep {len(dropped)} of the pods where they are that would have to leave")
        return granted, ordered


def _without_the_movable(world: World) -> np.ndarray:
    """`(nodes, resources) int64`: what each row would have free if everybody left it who may."""
    free = world.state.table.free.copy()
    for row in world.state.table.rows.values():
        for uid in world.pods(row):
            if world.movable(uid):
                for column, amount in world.vector(uid).items:
                    free[row, column] += amount
    return free


def _cost(found: tuple[list[Granted], Ordered]) -> int:
    return sum(move.cost for move in found[1].moves)


def needed(job: Job) -> int:
    """Of its pods that wait so many must get a place for it to start; one, where it runs already."""
    tasks = sum(max(need - job.ready_by_task.get(task, 0), 0) for task, need in job.need_by_task.items())
    return max(job.need - job.ready, tasks, 1)


def _asked(session: Session, demand: str) -> tuple[Job, list[PodObserved]]:
    """The job and those of its pods that wait. Raises NoCapacity."""
    state = session.state
    pod = state.fact_of(PodUid(demand))
    group = job_of(state, pod) if pod is not None else named(demand)
    if pod is None and group not in state.pod_groups:
        raise NoCapacity("there is no such pod and no such PodGroup")
    if group is not None and group in state.pod_groups:
        job = gang(state, group)
        job.tasks.sort(key=lambda uid: session.extensions.task_turn(state, uid))
    elif group is not None:
        raise NoCapacity(f"its PodGroup {'/'.join(group)} does not exist")
    else:
        assert pod is not None
        job = single(state, pod)
        job.tasks = [uid for uid in job.tasks if state.awaits_placement(uid)]
    if not job.tasks:
        raise NoCapacity("nobody of it waits for a node")
    if (why := session.gates.valid(job)) is not None:
        raise NoCapacity(f"{why.reason}: {why.message}")
    if (why := session.gates.queue(job.queue)) is not None:
        raise NoCapacity(why.message)
    pods = [state.pods[uid].fact for uid in job.tasks]
    for one in pods:
        if (why := session.gates.rules(one)) is not None:
            raise NoCapacity(why.message)
    return job, pods


class _Demand:
    """`kept` counts why pods on nodes that would do could not free capacity, for the first who found none. `steps` is what people call the limit."""

    def __init__(self, search: Search, kept: Counter[str], closed: Mapping[NodeName, str], steps: int) -> None:
        self.search, self.kept, self.closed, self._steps = search, kept, closed, steps
        self.world: World = search.world
        self._known: dict[tuple, list[Pods]] = {}

    def grant_all(self, job: Job, pods: list[PodObserved]) -> list[Granted]:
        """A node for each. Raises NoCapacity; what was moved stays moved in the world."""
        granted: list[Granted] = []
        for pod in self._largest_first(pods):
            self._next(job, pod, granted, f"{len(pods)} pods")
        return self._complete(granted, pods)

    def grant_needed(self, job: Job, pods: list[PodObserved]) -> list[Granted]:
        """A node for as many as the job needs, the first ones if that can be: as the scheduler does it, who finds none is passed over
        while enough others are left. Raises NoCapacity; what was moved stays moved in the world."""
        granted: list[Granted] = []
        left, need = list(pods), needed(job)
        first: NoCapacity | None = None
        while len(granted) < need:
            chosen = _chosen(job, left, [one.pod for one in granted])
            if len(granted) + len(chosen) < need:
                raise first or NoCapacity(f"{need} pods are needed, and {len(pods)} wait")
            for pod in self._largest_first(chosen):
                left.remove(pod)
                try:
                    self._next(job, pod, granted, f"{need} pods that it needs")
                except NoCapacity as why:
                    first = first or why
                    break
        return self._complete(granted, pods)

    def _largest_first(self, pods: list[PodObserved]) -> list[PodObserved]:
        return sorted(pods, key=lambda pod: -size_of(self.world, self.world.state.vectors[pod.shape]))

    def _next(self, job: Job, pod: PodObserved, granted: list[Granted], of: str) -> None:
        """A node for this one, too. Raises NoCapacity, and nothing has changed."""
        session = self.world.session
        if (why := session.gates.quota(job, pod)) is not None:
            raise NoCapacity(why.message)
        one = self._now(pod) or self._freed(pod)
        if one is None:
            if not self.kept:
                self._count(pod)
            raise NoCapacity(self._why(pod, f" beside {len(granted)} of the {of}" if granted else ""))
        session.charge_queue(job.queue, pod.shape, 1)
        granted.append(one)

    def _complete(self, granted: list[Granted], pods: list[PodObserved]) -> list[Granted]:
        """In the order of the pods, without moves that turn out to be for nothing. Raises NoCapacity."""
        world = self.world
        if not world.away:
            raise FitsAlready("it fits as it is")
        prune(self.search)
        if len(world.away) > self.search.limits.moves:
            raise NoCapacity(f"it would take {len(world.away)} moves; allowed: {self.search.limits.moves}")
        order = {pod.pod: i for i, pod in enumerate(pods)}
        return sorted(granted, key=lambda one: order[one.pod.pod])

    # -- one pod -----------------------------------------------------------------------------------------------------

    def _now(self, pod: PodObserved) -> Granted | None:
        """Where it fits without anybody's leaving, as the scheduler would choose."""
        fit = self.world.session.find(pod)
        return None if fit is None else self._grant(pod, fit.row)

    def _grant(self, pod: PodObserved, row: int) -> Granted | None:
        """Charge it; None where it does not fit there after all."""
        world, session = self.world, self.world.session
        if not session.fits_at(pod, row, session.concerned(pod)):
            return None
        spot = session.fit_at(pod, row)
        shape = world.state.shapes[pod.shape]
        if shape.devices is not None and not spot.devices:
            return None
        session.nodes.take(row, world.state.vectors[pod.shape], spot.devices)
        if spot.cores:
            session.placements[pod.pod] = spot
        for rule in session.extensions.filters:
            rule.placed(pod, row, spot.volumes)
        return Granted(pod, row, spot)

    def _revoke(self, one: Granted) -> None:
        session = self.world.session
        for rule in session.extensions.filters:
            rule.removed(one.pod, one.row)
        session.placements.pop(one.pod.pod, None)
        session.nodes.give(one.row, self.world.state.vectors[one.pod.shape], one.spot.devices)

    def _freed(self, pod: PodObserved) -> Granted | None:
        """The cheapest node to be freed for it; those on it have found other places."""
        world = self.world
        heap = self._offers(pod)
        best: tuple[int, int, Pods] | None = None
        tried = 0
        while heap and not self.search.spent:
            key, row, pods = heappop(heap)
            if best is not None and (key[0] >= best[0] or tried >= TRIED):
                break
            tried += best is not None
            mark, before = world.mark(), world.spent
            one = self._clear(pod, row, pods)
            if one is None:
                continue
            cost = world.spent - before
            self._revoke(one)
            world.undo(mark)
            if best is None or cost < best[0]:
                best = cost, row, pods
        return None if best is None else self._clear(pod, best[1], best[2])

    def _clear(self, pod: PodObserved, row: int, pods: Pods) -> Granted | None:
        """Move these off the row and grant it; nothing changes where that cannot be."""
        world, search = self.world, self.search
        mark = world.mark()
        for uid in pods:
            world.lift(uid)
        one = self._grant(pod, row)
        if one is not None:
            for uid in sorted(pods, key=lambda uid: (-size_of(world, world.vector(uid)), uid)):
                if not search.place(uid, frozenset({row}), DEPTH, ANYTHING):
                    self._revoke(one)
                    one = None
                    break
        if one is not None and search.limits.quota.bounds and search.beyond(pods, world.changed(mark)):
            self._revoke(one)
            one = None
        if one is None:
            world.undo(mark)
        return one

    def _offers(self, pod: PodObserved) -> list[tuple[tuple, int, Pods]]:
        """(cost, row, who would leave it), a heap."""
        world, wanted = self.world, self.world.state.vectors[pod.shape]
        lack = world.placement.short(pod.pod)
        held = world.session.concerned(pod)
        able, session = lack >= 0, world.session
        if session.within is not None and session.extensions.blocks is not None:
            # Each block is to take no longer than it has nodes.
            able &= session.extensions.blocks.inside(session.within)
        rows = np.flatnonzero(able)
        rows = rows[np.lexsort((world.state.table.rank[rows], lack[rows]))]
        found: list[tuple[tuple, int, Pods]] = []
        for row in rows.tolist():
            if self.search.spent:
                break
            free, shares = world.free(row)
            key = (wanted.items, wanted.devices, row, *free, *shares)
            sets = self._known.get(key)
            if sets is None:
                world.steps += 1
                sets = self._known[key] = lightest(world, row, wanted, 3)
            for pods in sets:
                if pods:
                    found.append((easiest(world, pods), row, pods))
                elif held:
                    # Capacity is not what it lacks: somebody there is in its way.
                    found += [(easiest(world, (uid,)), row, (uid,)) for uid in world.pods(row) if world.movable(uid)]
        heapify(found)
        return found

    # -- why not -----------------------------------------------------------------------------------------------------

    def _why(self, pod: PodObserved, beside: str) -> str:
        state = self.world.state
        name = f"{pod.namespace}/{pod.name}"
        if self.search.spent:
            return f"searchSteps ({self._steps}) were used up before a node for {name} was found{beside}"
        mask = static_mask(state, pod.shape) & state.table.alive
        if not mask.any():
            return f"no node is one that {name} may run on"
        for c, a in state.vectors[pod.shape].items:
            there = int(np.maximum(state.table.free[mask, c], 0).sum())
            if there < a:
                resource = state.table.resources[c]
                return f"all nodes together have {shown(resource, there)} free; {name} asks for {shown(resource, a)}{beside}"
        said = f"no node can be freed for {name}{beside}: those who would have to leave have nowhere to go, or must not be moved"
        if self.search.bounded:
            said += f" ({sentence(next(iter(self.search.bounded.values())))})"
        return said

    def _count(self, pod: PodObserved) -> None:
        """Verdicts of the pods on nodes that it may run on."""
        world, state = self.world, self.world.state
        mask = static_mask(state, pod.shape)
        for node, pods in state.on_node.items():
            if not mask[state.table.rows[node]]:
                continue
            for uid in pods:
                self.kept[stay(world.verdict(uid)).id or self.closed.get(node, "") or self.search.bounded.get(uid, NO_TARGET)] += 1


def _chosen(job: Job, left: list[PodObserved], granted: list[PodObserved]) -> list[PodObserved]:
    """Who is to get a place beside these: the first ones who, all together, make the job ready; fewer where that cannot be."""
    have = Counter(task_of(pod) for pod in granted)
    lacks = {task: need - job.ready_by_task.get(task, 0) - have[task] for task, need in job.need_by_task.items()}
    lacks = {task: lack for task, lack in lacks.items() if lack > 0}
    spare = needed(job) - len(granted) - sum(lacks.values())
    chosen = []
    for pod in left:
        task = task_of(pod)
        if lacks.get(task, 0) > 0:
            lacks[task] -= 1
        elif spare > 0:
            spare -= 1
        else:
            continue
        chosen.append(pod)
    return chosen
