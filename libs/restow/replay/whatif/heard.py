"""What a stretch of a log tells, record by record: what came from outside, what people asked for, and the life of each pod."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Iterable

import msgspec

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName, PodUid, ReservationUid, ShapeId
from restow.contracts.values import PodShape
from restow.domain.deciders import DECIDERS
from restow.domain.evolve.demand_slots import PLAN
from restow.domain.migration import OWN_REASONS, TIMED
from restow.domain.record_trust import Examined
from restow.domain.state import OVER, ClusterState
from restow.eventlog.port import Record
from restow.replay.whatif.meter import evicting
from restow.replay.whatif.recorded import (
    DAEMON_SET,
    Arrive,
    Ask,
    Delays,
    Delete,
    Describe,
    Detail,
    Item,
    Leave,
    Life,
    Step,
)
from restow.replay.workload import workload_of

BY_USERS = (c.MovePod, c.MoveGang, c.Approve, c.Reject, c.SetMode, c.CancelPlan, c.Defragment, c.Deschedule, c.Pause, c.Resume)
"""Commands of the descheduler that somebody may have sent."""
ABOUT_PLANS = (c.Approve, c.Reject, c.CancelPlan)


class _Pod(msgspec.Struct):
    fact: e.PodObserved
    seen: Millis
    workload: str
    lineage: str
    scheduler: str
    life: int = -1
    placed: Millis = Millis(0)
    nodes: list[NodeName] = []
    bound: Millis = Millis(0)
    ready: Millis = Millis(0)
    ended: Millis = Millis(0)
    phase: str = ""
    deleting: Millis = Millis(0)
    gone: Millis = Millis(0)
    evicted: bool = False
    successor: PodUid = PodUid("")
    there: bool = False
    """When the stretch began."""
    had_node: bool = False
    leaving: bool = False
    """It was on its way out by then: it goes as it went, and whoever came in its place came as recorded."""


class Heard:
    """What came from outside, and what became of each pod, as the records of the stretch say it one by one."""

    def __init__(self) -> None:
        self._raw: list[tuple[Millis, list[e.Event | Ask | Leave]]] = []
        self.others = 0
        self._chosen: set[str] = set()
        """Claims (`namespace/name`) that got their volume by a decision."""
        self._pods: dict[PodUid, _Pod] = {}
        self._asked: set[PodUid] = set()
        self._made: set[ReservationUid] = set()
        self._began: dict[str, Millis] = {}
        self._taken: dict[str, list[int]] = defaultdict(list)
        self.nodes: dict[NodeName, e.NodeObserved] = {}
        self.details: dict[NodeName, dict[str, Detail]] = {}
        self.shapes: dict[ShapeId, PodShape] = {}

    def begin(self, state: ClusterState, now: Millis) -> None:
        """What is there already."""
        self.nodes.update(state.nodes)
        self.shapes.update(state.shapes)
        details: list[Detail] = [*state.csi_nodes.values(), *state.numa.values(), *state.device_objects.values()]
        for one in details:
            self._detail(one)
        self._made.update(uid for uid, known in state.reservations.items() if known.fact.migration or PLAN in known.fact.labels)
        self._chosen.update(choice.claim for placed in state.placed.values() for choice in placed.volumes)
        for uid in evicting(state):
            self._asked.add(uid)
            self._began[uid] = now
        for uid, known in state.pods.items():
            pod = self._pods[uid] = self._pod(state, known.fact, now)
            pod.there, pod.leaving = True, bool(known.live.deleting)
            self._moving(pod, known.live, now)
            if uid in state.placed:
                pod.nodes, pod.placed = [state.placed[uid].node], now
            pod.had_node = bool(pod.nodes)

    def hear(self, state: ClusterState, record: Record, found: Examined) -> None:
        """It has been folded, and is one of ours."""
        now = Millis(state.time)
        if record.family in DECIDERS and record.envelope.logic != DECIDERS[record.family].logic:
            self.others += len(found.decisions)
        kept: list[e.Event | Ask | Leave] = []
        for decision in found.decisions:
            if record.family == "migration" and isinstance(decision.command, BY_USERS) and _by_a_user(decision.command):
                kept.append(_asked(state, decision.command))
            for event in decision.events:
                self._note(state, event, now)
                if isinstance(event, e.NodeGone):
                    kept.append(_leave(state, event))
                elif isinstance(event, e.Led | e.Configured) or (record.family == "cluster" and not self._follows(event)):
                    kept.append(event)
        self._raw.append((now, kept))

    def _follows(self, event: e.Event) -> bool:
        """Whether it is about an object that a decision has made."""
        match event:
            case e.ReservationObserved(reservation=uid, migration=id, labels=labels):
                if id or PLAN in labels:
                    self._made.add(uid)
                return uid in self._made
            case e.ReservationGone(reservation=uid):
                return uid in self._made
            case e.ClaimObserved(namespace=namespace, name=name, volume=volume, selected_node=node):
                return bool(volume or node) and f"{namespace}/{name}" in self._chosen
            case e.VolumeObserved(claim=claim):
                return claim in self._chosen
        return isinstance(event, e.Unknown)

    def _pod(self, state: ClusterState, fact: e.PodObserved, now: Millis) -> _Pod:
        known = state.pods[fact.pod].fact
        return _Pod(fact, now, f"{fact.namespace}/{workload_of(state, known) or f'Pod/{fact.name}'}", state.lineage(known), state.shapes[known.shape].scheduler)

    def _note(self, state: ClusterState, event: e.Event, now: Millis) -> None:
        match event:
            case e.PodObserved(pod=uid) as fact if uid in self._pods or uid in state.pods:
                # One that came and went within a commit (a watcher that was away) nobody has decided about: its facts stay as they are.
                if uid not in self._pods:
                    self._pods[uid] = self._pod(state, fact, now)
                self._moving(self._pods[uid], fact, now)
            case e.PodChanged(pod=uid) if uid in self._pods:
                self._moving(self._pods[uid], event, now)
            case e.PodGone(pod=uid) if uid in self._pods:
                pod = self._pods[uid]
                pod.gone = now
                pod.evicted = pod.evicted or (not pod.ended and not pod.deleting and uid in self._asked)
            case e.PodPlaced(pod=uid, node=node, volumes=volumes) | e.HandedOver(pod=uid, node=node, volumes=volumes) if uid in self._pods:
                self._chosen.update(choice.claim for choice in volumes)
                pod = self._pods[uid]
                pod.placed = now
                pod.nodes = [node]
                if (id := state.successors.get(uid)) is not None and (victim := state.migrations[id].move.pod) in self._pods and not self._pods[victim].leaving:
                    self._pods[victim].successor = uid
            case e.Evicting(migration=id) if id in state.migrations:
                self._asked.add(state.migrations[id].move.pod)
                self._began[state.migrations[id].move.pod] = now
            case e.Preempted(pod=uid):
                self._asked.add(uid)
                self._began[uid] = now
            case e.MigrationFailed(migration=id) if id in state.migrations:
                self._stays(state.migrations[id].move.pod)
            case e.PreemptionEnded(pod=uid):
                self._stays(uid)
            case e.Holding(migration=id):
                self._began[id] = now
            case e.ReservationObserved(migration=id) if id in self._began:
                self._taken["hold"].append(now - self._began.pop(id))
            case e.NodeObserved(name=name):
                self.nodes[name] = event
            case e.CsiNodeObserved() | e.NumaObserved() | e.DeviceObserved():
                self._detail(event)
            case e.ShapeDeclared(shape=id, spec=spec):
                self.shapes[id] = spec

    def _detail(self, one: Detail) -> None:
        self.details.setdefault(one.node, {})[type(one).__name__] = one

    def _stays(self, uid: PodUid) -> None:
        """It was to be evicted, and is not: whoever deletes it later is somebody else."""
        pod = self._pods.get(uid)
        if pod is not None and not (pod.deleting or pod.gone or pod.ended):
            self._asked.discard(uid)

    def _moving(self, pod: _Pod, live: e.PodObserved | e.PodChanged, now: Millis) -> None:
        if live.node is not None and not pod.bound:
            pod.bound = now
            pod.nodes = [live.node]
        if live.ready and not pod.ready:
            pod.ready = now
        if live.deleting and not pod.deleting:
            pod.deleting = now
            pod.evicted = live.pod in self._asked and not pod.ended
        if live.phase in OVER and not pod.ended and not pod.deleting:
            pod.ended, pod.phase = now, live.phase

    # -- what it comes to ----------------------------------------------------------------------------------------------

    def told(self, state: ClusterState) -> tuple[list[Life], list[Step], Delays, dict[PodUid, tuple[int, int]]]:
        names = state.session_config.scheduler_names
        ours = {uid for uid, pod in self._pods.items() if pod.scheduler in names and not pod.fact.static}
        lives = self._lives(ours)
        steps = [Step(now, self._items(now, kept, lives)) for now, kept in self._raw]
        return lives, [step for step in steps if step.items], self._delays(ours), self._own_delays(ours)

    def of_nodes(self, state: ClusterState) -> dict[NodeName, list[tuple[Millis, e.PodObserved]]]:
        """The last of each that was there until the end, or as long as its node."""
        found = defaultdict[NodeName, dict[str, tuple[Millis, e.PodObserved]]](dict)
        for pod in self._pods.values():
            fact = pod.fact
            if not pod.nodes or pod.ended or not (fact.static or (fact.owner is not None and fact.owner.kind == DAEMON_SET)):
                continue
            node, key = pod.nodes[-1], fact.name if fact.static else pod.lineage
            since = found[node].pop(key, (pod.bound, fact))[0]
            if not pod.gone or node not in state.nodes:
                found[node][key] = since, fact
        return {node: list(pods.values()) for node, pods in found.items()}

    def _lives(self, ours: set[PodUid]) -> list[Life]:
        came = defaultdict[str, deque[PodUid]](deque)
        taken = {pod.successor for uid, pod in self._pods.items() if pod.successor}
        for uid, pod in self._pods.items():
            if uid in ours and uid not in taken:
                came[pod.lineage].append(uid)
        for uid, pod in self._pods.items():
            if uid in ours and pod.evicted and not pod.successor and pod.lineage:
                left = pod.deleting or pod.gone
                pod.successor = next((other for other in came[pod.lineage] if self._pods[other].seen >= left and not self._pods[other].there and other not in taken and other != uid), PodUid(""))
                taken.add(pod.successor)
        return [self._life(number, uid) for number, uid in enumerate(uid for uid in self._pods if uid in ours and uid not in taken)]

    def _life(self, number: int, uid: PodUid) -> Life:
        chain = [uid]
        while (following := self._pods[chain[-1]].successor) and following not in chain:
            chain.append(following)
        pods = [self._pods[one] for one in chain]
        for pod in pods:
            pod.life = number
        last = pods[-1]
        life = Life(chain, [pod.fact for pod in pods], pods[0].seen, pods[0].workload, nodes=[node for pod in pods for node in pod.nodes])
        first = pods[0]
        life.there, life.bound = first.there, first.had_node
        if first.bound == first.seen and first.ready > first.seen:
            life.readied = first.ready - first.seen
        if last.ended and last.bound:
            life.running, life.phase = last.ended - last.bound, last.phase
            if last.gone:
                life.tidied = last.gone - last.ended
        elif last.evicted:
            life.killed = True
        elif last.deleting or last.gone:
            life.deleted = last.deleting or last.gone
            life.tidied = last.gone - life.deleted if last.gone else -1
        return life

    def _items(self, now: Millis, kept: Iterable[e.Event | Ask | Leave], lives: list[Life]) -> list[Item]:
        items: list[Item] = []
        for one in kept:
            pod = self._pods.get(getattr(one, "pod", ""))  # type: ignore[arg-type]
            if isinstance(one, Ask | Leave) or pod is None or pod.life < 0:
                items.append(one)
                continue
            uid, life = pod.fact.pod, pod.life
            match one:
                case e.PodObserved() if one is pod.fact and not pod.there:
                    if uid == lives[life].pods[0]:
                        items.append(Arrive(life))
                case e.PodObserved():
                    items.append(Describe(one))
            if not pod.evicted and not pod.ended and _deletes(one, pod) and Delete(life) not in items:
                items.append(Delete(life))
        return items

    def _delays(self, ours: set[PodUid]) -> Delays:
        taken = self._taken
        for uid in ours:
            pod = self._pods[uid]
            if pod.placed and pod.bound >= pod.placed and not pod.had_node:
                taken["bind"].append(pod.bound - pod.placed)
            if pod.bound and pod.ready >= pod.bound and not pod.fact.node and not pod.had_node:
                taken["ready"].append(pod.ready - pod.bound)
            if pod.deleting and pod.gone and not pod.leaving:
                taken["gone"].append(pod.gone - pod.deleting)
            if pod.evicted and pod.deleting:
                taken["evict"].append(pod.deleting - self._began[uid])
                if pod.successor:
                    taken["successor"].append(max(0, self._pods[pod.successor].seen - pod.deleting))
        return Delays(**{name: int(statistics.median(times)) for name, times in taken.items() if times})

    def _own_delays(self, ours: set[PodUid]) -> dict[PodUid, tuple[int, int]]:
        found = {}
        for uid in ours:
            pod = self._pods[uid]
            if pod.placed and pod.bound >= pod.placed and pod.ready >= pod.bound:
                found[uid] = pod.bound - pod.placed, pod.ready - pod.bound
        return found


def _deletes(fact: object, pod: _Pod) -> bool:
    """Whether this is the first that is heard of its deletion. Asked after all of the log has been noted."""
    if isinstance(fact, e.PodChanged | e.PodObserved):
        return bool(fact.deleting)
    return isinstance(fact, e.PodGone) and not pod.deleting


def _leave(state: ClusterState, gone: e.NodeGone) -> Leave:
    return Leave(gone.name, frozenset(uid for uid, node in state.homeless.items() if node == gone.name))


def _asked(state: ClusterState, command: c.Command) -> Ask:
    """With what is known of the plan that it is about: by another configuration, or at another time, the model gives it another name and other moves."""
    known = state.plans.get(command.plan) if isinstance(command, ABOUT_PLANS) else None
    if known is None:
        return Ask(command)
    moves, some = known.planned.moves, command.moves if isinstance(command, c.Approve) else ()
    return Ask(command, known.planned.plugin, frozenset(move.pod for move in moves if move.pod), frozenset(move.pod for move in moves if move.pod and move.migration in some))


def _by_a_user(command: c.Command) -> bool:
    """Whether somebody has asked for it; or metrics have been read for it, which nobody can read again."""
    match command:
        case c.CancelPlan(reason=reason):
            return not reason.startswith(OWN_REASONS)
        case c.Defragment(trigger=trigger):
            return trigger not in TIMED
        case c.Deschedule(trigger=trigger, samples=samples):
            return trigger not in TIMED or samples is not None
        case c.Pause(by=by) | c.Resume(by=by):
            return bool(by)
    return True
