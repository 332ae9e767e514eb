"""Room for pods that wait although what they ask for is there in pieces: the cheapest moves that put the pieces together.

All pods of the demand get a node, or none does. Nobody is moved who has nowhere to go, and nobody who has is moved in vain: for each pod
the nodes are asked in the order of what freeing them costs at least, until no other can be cheaper.
"""

from collections import Counter
from collections.abc import Mapping
from heapq import heapify, heappop

import numpy as np

from restow.contracts.events import Planned, PodObserved
from restow.contracts.ids import Millis, NodeName, PlanId, PodUid
from restow.contracts.values import RoomFor
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.choices import Pods, easiest, lightest, size_of
from restow.domain.defragmentation.optimizing.improve import prune
from restow.domain.defragmentation.optimizing.landing import Landing
from restow.domain.defragmentation.optimizing.opened import Rows, opened
from restow.domain.defragmentation.optimizing.order import Sequence
from restow.domain.defragmentation.optimizing.plan import NO_TARGET
from restow.domain.defragmentation.optimizing.search import DEPTH, Limits, Search
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.defragmentation.outcome import planned
from restow.domain.predicates import static_mask
from restow.domain.resources import shown
from restow.domain.session.jobs import Job, gang, job_of, single
from restow.domain.session.run import Session
from restow.domain.session.view import Fit
from restow.domain.state import ClusterState

TRIED = 24
"""Nodes that are tried for one pod after the first that will do."""
ANYTHING = -(1 << 62)
"""No cost is too high: the limit of moves bounds it."""


class NoRoom(Exception):
    """Why no moves would help, as a sentence."""


class Granted:
    """A node for a pod that waits, charged in the world."""

    __slots__ = ("pod", "row", "spot")

    def __init__(self, pod: PodObserved, row: int, spot: Fit) -> None:
        self.pod, self.row, self.spot = pod, row, spot


def make_room(
    state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, demand: str, max_moves: int
) -> Planned:
    """The plan as a value; the state stays as it is. `reason` says for what, or why not. Raises ArgsError."""
    rows = Rows(state, args, time)
    limits = Limits(max_moves, 1, args.searchSteps, False, args.swaps)
    kept: Counter[str] = Counter()
    steps = 0
    try:
        with opened(state, args, time, "none", rows) as (world, landing):
            search = Search(world, landing, limits)
            try:
                job, pods = _asked(world.session, demand)
                granted = _Demand(search, kept, rows.closed).all(job, pods)
            finally:
                steps = world.steps
            wanted = {uid: spot.row for uid, spot in world.away.items()}
        with opened(state, args, time, "none", rows) as (world, landing):
            for one in granted:
                # Its Reservation is there first and takes what becomes free.
                world.session.board.take(one.row, state.vectors[one.pod.shape], one.spot.devices)
            first = sorted(wanted, key=lambda uid: (wanted[uid], uid))
            ordered = Sequence(world, landing, plan_id, limits.swaps, max_moves).order(wanted, first)
            if ordered.stayed:
                raise NoRoom(f"{len(ordered.stayed)} of {len(wanted)} moves would wait for each other")
    except NoRoom as why:
        return planned(state, plan_id, (), {}, kept, "optimizing", steps, reason=f"no plan for {demand}: {why}")
    names = enumerate(granted, 1)
    made = tuple(RoomFor(f"restow-room-{plan_id}-{i}", one.pod.pod, one.pod.namespace, world.name(one.row)) for i, one in names)
    return planned(state, plan_id, ordered.moves, ordered.ends, kept, "optimizing", steps, made, f"room for {demand}")


def _asked(session: Session, demand: str) -> tuple[Job, list[PodObserved]]:
    """The job and those of its pods that wait. Raises NoRoom."""
    state = session.state
    pod = state.pods.get(PodUid(demand))
    namespace, _, name = demand.partition("/")
    group = job_of(state, pod) if pod is not None else (namespace, name)
    if pod is None and group not in state.pod_groups:
        raise NoRoom("there is no such pod and no such PodGroup")
    if group is not None and group in state.pod_groups:
        job = gang(state, group)
        session_order = session.extensions.at("taskOrder")
        job.tasks.sort(key=lambda uid: (*[f(state.pods[uid]) for f in session_order], state.order[uid]))
    elif group is not None:
        raise NoRoom(f"its PodGroup {'/'.join(group)} does not exist")
    else:
        assert pod is not None
        job = single(state, pod)
        job.tasks = [uid for uid in job.tasks if state.awaits_placement(uid)]
    if not job.tasks:
        raise NoRoom("nobody of it waits for a node")
    if (why := session.refusal(job)) is not None:
        raise NoRoom(f"{why.reason}: {why.message}")
    if job.queue and (said := session.extensions.first("overused", job.queue)):
        raise NoRoom(said)
    pods = [state.pods[uid] for uid in job.tasks]
    for one in pods:
        if said := session.extensions.first("podWaits", one):
            raise NoRoom(said)
    return job, pods


class _Demand:
    """`kept` counts, at the end, why pods on nodes that would do could not make room."""

    def __init__(self, search: Search, kept: Counter[str], closed: Mapping[NodeName, str]) -> None:
        self.search, self.kept, self.closed = search, kept, closed
        self.world: World = search.world
        self.landing: Landing = search.landing
        self._known: dict[tuple, list[Pods]] = {}

    def all(self, job: Job, pods: list[PodObserved]) -> list[Granted]:
        """A node for each. Raises NoRoom; what was moved stays moved in the world."""
        world, session = self.world, self.world.session
        largest_first = sorted(pods, key=lambda pod: -size_of(world, world.state.vectors[pod.shape]))
        granted: list[Granted] = []
        for pod in largest_first:
            if said := session.extensions.first("allocatable", job, pod):
                raise NoRoom(said)
            one = self._now(pod) or self._freed(pod)
            if one is None:
                self._count(pod)
                raise NoRoom(self._why(pod, len(granted), len(pods)))
            session.charge_queue(job.queue, pod.shape, 1)
            granted.append(one)
        if not world.away:
            raise NoRoom("it fits as it is")
        prune(self.search)
        if len(world.away) > self.search.limits.moves:
            raise NoRoom(f"it would take {len(world.away)} moves; allowed: {self.search.limits.moves}")
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
        session.board.take(row, world.state.vectors[pod.shape], spot.devices)
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
        session.board.give(one.row, self.world.state.vectors[one.pod.shape], one.spot.devices)

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
            world.back(mark)
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
                    search.stuck[uid] = pod.name
                    self._revoke(one)
                    one = None
                    break
        if one is None:
            world.back(mark)
        return one

    def _offers(self, pod: PodObserved) -> list[tuple[tuple, int, Pods]]:
        """(cost, row, who would leave it), a heap."""
        world, wanted = self.world, self.world.state.vectors[pod.shape]
        lack = self.landing.short(pod.pod)
        held = world.session.concerned(pod)
        rows = np.flatnonzero(lack >= 0)
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
                    # Room is not what it lacks: somebody there is in its way.
                    found += [(easiest(world, (uid,)), row, (uid,)) for uid in world.pods(row) if world.movable(uid)]
        heapify(found)
        return found

    # -- why not -----------------------------------------------------------------------------------------------------

    def _why(self, pod: PodObserved, have: int, need: int) -> str:
        state = self.world.state
        name = f"{pod.namespace}/{pod.name}"
        beside = f" beside {have} of the {need} pods" if have else ""
        if self.search.spent:
            return f"searchSteps ({self.search.limits.steps}) were used up before a place for {name} was found{beside}"
        mask = static_mask(state, pod.shape) & state.table.alive
        if not mask.any():
            return f"no node is one that {name} may run on"
        for c, a in state.vectors[pod.shape].items:
            there = int(np.maximum(state.table.free[mask, c], 0).sum())
            if there < a:
                resource = state.table.resources[c]
                return f"all nodes together have {shown(resource, there)} free; {name} asks for {shown(resource, a)}{beside}"
        return f"no node can be freed for {name}{beside}: those who would have to leave have nowhere to go, or must not be moved"

    def _count(self, pod: PodObserved) -> None:
        """Verdicts of the pods on nodes that it may run on."""
        world, state = self.world, self.world.state
        mask = static_mask(state, pod.shape)
        for node, pods in state.on_node.items():
            if not mask[state.table.rows[node]]:
                continue
            for uid in pods:
                self.kept[world.verdict(uid) or self.closed.get(node, NO_TARGET)] += 1

