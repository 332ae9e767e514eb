"""Seed 000's planner, the default: its rules and its order (2.3).

Sources by ascending utilisation; on each the movable pods, larger requests first; for each the fullest target that it fits
on by the scheduler's rules, where everything promised so far counts. A pod without such a node stays, with the reason. Moves wait for
nothing: who moves counts at both ends.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import MigrationId, NodeName, PodUid
from restow.contracts.values import DeviceRequest, DeviceShare, Move
from restow.domain.defragmentation.classify import (
    SCALE,
    Nodes,
    classify,
    exact,
    in_use,
    promised_to_others,
    scaled,
)
from restow.domain.defragmentation.evictable import Evictable
from restow.domain.defragmentation.placement import Placement
from restow.domain.defragmentation.plan import Found, Stays, Task
from restow.domain.defragmentation.simulation import Simulation, Spot, simulated
from restow.domain.fragmentation import alike
from restow.domain.groups import group_of
from restow.domain.node_table import WHOLE, Vector
from restow.domain.predicates import static_mask, static_reasons
from restow.domain.resources import GPU_MILLI, canonical_resource
from restow.domain.session.plugins.predicates.filters import InterPodAffinity
from restow.domain.state import ClusterState
from restow.domain.verdicts import (
    LIMIT,
    NO_TARGET,
    NO_TARGETS,
    TOGETHER,
    TOO_FEW_SOURCES,
    Stay,
    sentence,
    stay,
)

NODE_RULES = "node selector, affinity or taints"
PROTECTION = "protectionThresholds"
DEVICES = "Insufficient gpu"


def plan(task: Task, stays: Stays) -> Found:
    """The state stays as it is. Raises ArgsError."""
    with simulated(task.state, task.time) as simulation:
        return _found(simulation, task, stays)


def _found(simulation: Simulation, task: Task, stays: Stays) -> Found:
    """What is promised already is charged."""
    state, args = task.state, task.args
    nodes = classify(state, args, task.time, task.scope)
    names = [NodeName(state.table.names[row]) for row in nodes.sources]
    if len(names) <= args.numberOfNodes:
        why = Stay(TOO_FEW_SOURCES, f"no more than numberOfNodes ({args.numberOfNodes}) nodes are below lowThresholds")
        for node in names:
            for uid in state.on_node.get(node, ()):
                stays(uid, node, why)
        return Found((), {})
    return _Packing(simulation, nodes, task, stays, names).run()


class _Company(NamedTuple):
    """Who goes together. `gang`: the PodGroup (`namespace/name`) that they all are; empty for a pod that goes alone."""

    pods: list[PodUid]
    gang: str


class _Packing:
    """One plan as it comes about: source by source, and on each of them pod by pod. A gang that starts again goes with the first of its pods, where all of
    them are on sources: nobody starts again for the sake of a node that is not emptied."""

    def __init__(self, simulation: Simulation, nodes: Nodes, task: Task, stays: Stays, sources: Sequence[NodeName]) -> None:
        state, args = task.state, task.args
        self._state, self._task, self._stays, self._sources = state, task, stays, dict.fromkeys(sources)
        self._targets = Targets(simulation, nodes, task)
        self._evictable = Evictable(state, args, canonical_resource(args.resourceType), scope=task.scope)
        self._quota = task.scope.quota.copy()
        self._moves: list[Move] = []
        self._ends: dict[PodUid, Spot] = {}
        self._kept: dict[PodUid, Stay] = {}
        """Pods of gangs that were not moved, and why."""

    def run(self) -> Found:
        for source in self._sources:
            movable: dict[PodUid, _Company] = {}
            for uid in self._state.on_node.get(source, ()):
                if uid in self._ends:
                    continue
                going = self._company(uid)
                if isinstance(going, Stay):
                    self._stays(uid, source, going)
                else:
                    movable[uid] = going
            for uid in sorted(movable, key=self._evictable.order):
                if uid in self._ends:
                    continue
                going = movable[uid]
                why = self._kept.get(uid) or self._take(going)
                if why is not None:
                    self._stays(uid, source, why)
                    if going.gang:
                        self._kept.update(dict.fromkeys(going.pods, why))
        return Found(self._moves, self._ends)

    def _company(self, uid: PodUid) -> _Company | Stay:
        """Who goes where this one goes, or why it stays."""
        said, group = self._evictable.verdict(uid), group_of(self._state.pods[uid].fact)
        if not said:
            return _Company([uid], "")
        alone, (pods, why) = stay(said), self._evictable.as_one(uid)
        if not pods or group is None:
            return alone
        why = why or next((f"pod {self._state.pods[one].fact.name} is on no node that is to be emptied" for one in pods if self._at(one) not in self._sources), "")
        if why:
            return Stay(alone.id, f"{alone.sentence}; and its gang cannot be moved as one: {why}")
        return _Company(sorted(pods, key=self._evictable.order), "/".join(group))

    def _at(self, uid: PodUid) -> NodeName:
        return self._state.pods[uid].live.node or NodeName("")

    def _take(self, going: _Company) -> Stay | None:
        """Plans the moves of one pod, or of a whole gang; why nobody of them moves where that cannot be."""
        if (alone := next((one for one in going.pods if one in self._ends), None)) is not None:
            # It could be spared, and was planned by itself before.
            return Stay(TOGETHER, f"its gang is moved as one or not at all, and pod {self._state.pods[alone].fact.name} moves alone")
        if said := self._limit(going.pods):
            return stay(said)
        spots = self._targets.take_all(going.pods)
        if isinstance(spots, Stay):
            return spots
        for uid, spot in zip(going.pods, spots, strict=True):
            pod, source, target = self._state.pods[uid].fact, self._at(uid), NodeName(self._state.table.names[spot.row])
            id = MigrationId(f"{self._task.plan}-{len(self._moves) + 1}")
            self._moves.append(Move(id, uid, pod.namespace, pod.name, source, target, spot.devices, gang=going.gang))
            self._ends[uid] = spot
            self._quota.take(source, pod.namespace, self._quota.charged(uid, source))
        return None

    def _limit(self, going: Sequence[PodUid]) -> str:
        """The limit that all of them together would break."""
        if len(self._moves) + len(going) > self._task.max_moves:
            return LIMIT
        quota = self._quota if len(going) == 1 else self._quota.copy()
        for uid in going:
            namespace, charged = self._state.pods[uid].fact.namespace, quota.charged(uid, self._at(uid))
            if said := quota.reached(self._at(uid), namespace, charged):
                return said
            if len(going) > 1:
                quota.take(self._at(uid), namespace, charged)
        return ""


class Fullest:
    """The objective (`placement.Objective`): the highest utilisation first, then the first name. A device that pods share keeps free what protects it."""

    def __init__(self, state: ClusterState, nodes: Nodes) -> None:
        table = state.table
        self._table, self._state, self._column, self._share = table, state, nodes.column, nodes.share
        self._gpu = table.columns.get(GPU_MILLI, -1)
        self._count = len(table.names) + 1
        self._names = len(table.names) - table.rank

    def asks(self, v: Vector) -> tuple[tuple[tuple[int, int], ...], int]:
        """Of devices themselves nothing is asked as a sum, but where it is protected."""
        protected = self._column if self._share < 0 else -1
        items = tuple((c, a) for c, a in v.items if v.devices is None or c != self._gpu or c == protected)
        return items, self.kept(v.devices)

    def kept(self, request: DeviceRequest | None) -> int:
        return WHOLE - self._share if self._share >= 0 and request is not None and request.milli < WHOLE else 0

    def rank(self, v: Vector, free: np.ndarray, shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
        total = self._table.allocatable[rows, self._column]
        usage = total - free[:, self._column]
        if self._share >= 0:
            usage, total = in_use(shares)
        return scaled(exact(usage), exact(total)) * self._count + self._names[rows]

    def rank_one(self, v: Vector, free: list[int], shares: list[int], row: int) -> int:
        total = int(self._table.allocatable[row, self._column])
        usage = total - free[self._column]
        if self._share >= 0:
            usage, total = (int(one[0]) for one in in_use(np.array([shares])))
        return (usage * SCALE // total if total > 0 else 0) * self._count + int(self._names[row])

    def beside(self, row: int) -> int:
        return 0

    def spot(self, uid: PodUid, row: int) -> Spot:
        """With devices as `NodeTable.choose_devices`: the least free share that suffices beside what is kept of it, ties by index."""
        request = self._state.vectors[self._state.pods[uid].fact.shape].devices
        if request is None:
            return Spot(row)
        kept = self.kept(request)
        able = sorted((share, i) for i, share in enumerate(self._table.device_free[row].tolist()) if share - kept >= request.milli)
        return Spot(row, tuple(DeviceShare(i, request.milli) for i in sorted(i for _, i in able[: request.count])))


class Targets:
    """The target nodes of one plan, to which every planned move is charged at once (seed 000, 2.3.3). Capacity only shrinks here, so an equivalence class that
    once fitted nowhere never fits again, unless one of its rules may be loosened by what is promised to others."""

    def __init__(self, simulation: Simulation, nodes: Nodes, task: Task) -> None:
        self._simulation, self._state, self._nodes, self._explains = simulation, simulation.state, nodes, task.explains
        state, table = simulation.state, simulation.state.table
        self._rows = nodes.targets[~promised_to_others(state, task.time)[nodes.targets]]
        open = np.zeros(len(table.names), bool)
        open[self._rows] = True
        self._fullest = Fullest(state, nodes)
        self._placement = Placement(simulation, open, nodes.column if nodes.share < 0 else -1, nodes.floor, self._fullest)
        self._closed: dict[Hashable, str] = {}
        """Classes of pods that fit nowhere, and the rule that leaves the fewest targets."""

    def take_all(self, uids: Sequence[PodUid]) -> list[Spot] | Stay:
        """Promises each a target; or why there is none for one of them, and nothing is promised to anybody."""
        if len(uids) == 1:
            spot = self.take(uids[0])
            return spot if isinstance(spot, Stay) else [spot]
        # What fits nowhere beside some of them may fit once these have given their places back.
        closed, spots = dict(self._closed), list[Spot]()
        for uid in uids:
            spot = self.take(uid)
            if isinstance(spot, Stay):
                for one, taken in reversed(list(zip(uids, spots, strict=False))):
                    self._simulation.leave(one, taken.row)
                    self._simulation.session.nodes.give(taken.row, self._state.vectors[self._state.pods[one].fact.shape], taken.devices)
                self._closed = closed
                name, why = self._state.pods[uid].fact.name, spot.sentence or sentence(spot.id)
                return Stay(spot.id, f"its gang is moved as one or not at all, and of pod {name}: {why}", spot.targets, spot.removed)
            spots.append(spot)
        return spots

    def take(self, uid: PodUid) -> Spot | Stay:
        """Promises the best target that the pod fits on; or why there is none."""
        rules = self._simulation.rules(uid)
        shape = self._state.pods[uid].fact.shape
        equivalence_class: Hashable = self._simulation.session.equivalence_class(self._simulation.twin(uid), list(rules)) if rules else shape
        if equivalence_class not in self._closed:
            spot = self._placement.find(uid)
            if spot is not None:
                self._simulation.session.nodes.take(spot.row, self._state.vectors[shape], spot.devices)
                self._simulation.enter(uid, spot)
                return spot
        removed = self._removed(uid) if self._explains or equivalence_class not in self._closed else {}
        why = self._closed.get(equivalence_class) or max(sorted(removed), key=lambda rule: removed[rule], default=NO_TARGETS)
        # Whose anti-affinity is about others does not move (`is_foreseen`): what it closes stays closed.
        if all(rule.shrinks or isinstance(rule, InterPodAffinity) for rule in rules):
            self._closed[equivalence_class] = why
        return self._nowhere(uid, why, removed)

    def _nowhere(self, uid: PodUid, why: str, removed: dict[str, int]) -> Stay:
        """With how many targets each rule removes, those about nodes by their own names, where somebody asks for it."""
        if not self._explains:
            return Stay(f"{NO_TARGET}: {why}", "")
        if removed.pop(NODE_RULES, 0):
            shape = self._state.pods[uid].fact.shape
            reasons = static_reasons(self._state, alike(self._state, shape))
            for row in self._rows[~static_mask(self._state, shape)[self._rows]].tolist():
                removed[reasons[row]] = removed.get(reasons[row], 0) + 1
        removed = dict(sorted(removed.items()))
        said = "no target fits: " + ", ".join(f"{count} {rule}" for rule, count in removed.items()) if removed else sentence(f"{NO_TARGET}: {NO_TARGETS}")
        return Stay(f"{NO_TARGET}: {why}", said, len(self._rows), removed)

    def _removed(self, uid: PodUid) -> dict[str, int]:
        """How many targets each rule removes; the first that applies counts."""
        left, counts = np.ones(len(self._rows), bool), dict[str, int]()
        for rule, fits in self._rules(uid):
            if gone := int((left & ~fits).sum()):
                counts[rule] = counts.get(rule, 0) + gone
            left &= fits
        return counts

    def _rules(self, uid: PodUid) -> Iterator[tuple[str, np.ndarray]]:
        """Of each rule its name and where it is kept, `(targets,) bool`."""
        table, rows, shape = self._state.table, self._rows, self._state.pods[uid].fact.shape
        yield NODE_RULES, static_mask(self._state, shape)[rows]
        v, free, shares = self._state.vectors[shape], table.free[rows], table.device_free[rows]
        names = {column: resource for resource, column in table.columns.items()}
        for column, amount in v.items:
            if column == self._placement.column:
                yield PROTECTION, free[:, column] - self._placement.floor[rows] >= amount
            if v.devices is None or names[column] != GPU_MILLI:
                yield f"Insufficient {names[column]}", free[:, column] >= amount
        if v.devices is not None:
            yield DEVICES, (shares >= v.devices.milli).sum(axis=1) >= v.devices.count
            if kept := self._fullest.kept(v.devices):
                yield PROTECTION, (shares >= v.devices.milli + kept).sum(axis=1) >= v.devices.count
        for rule, failing in self._simulation.failing(uid):
            yield rule, ~failing[rows]
