"""What a log says of the world around the deciders: what came, what ended and how, what users did. Everything that followed from a decision is left out."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Iterable

import msgspec

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName, PodUid, ReservationUid
from restow.domain.deciders import DECIDERS
from restow.domain.evolve.demand_slots import PLAN
from restow.domain.record_trust import Examined
from restow.domain.state import OVER, ClusterState, Touched
from restow.eventlog.port import Record
from restow.replay.source import Source
from restow.replay.state_at import Progress, ReplayError, examine_next, fold_examined, no_progress, state_at
from restow.replay.whatif.meter import Measured, Meter
from restow.replay.workload import workload_of

BY_USERS = (c.MovePod, c.MoveGang, c.Approve, c.Reject, c.SetMode, c.CancelPlan, c.Defragment, c.Deschedule, c.Pause, c.Resume)
"""Commands of the descheduler that somebody may have sent."""
TIMED = ("interval", "cron", "demand")
"""Triggers of plans that the state asks for by itself."""


class Life(msgspec.Struct):
    """A pod of ours with all that came in its place after evictions of ours: `pods` in their order, `facts` as first seen. Times in ms, 0 for never; all but `seen` are
    of the last of them. `running`: from its bind until it ended by itself in `phase`. `deleted`: somebody else deleted it then, at `deleting` with so many ms until it was gone."""

    pods: list[PodUid]
    facts: list[e.PodObserved]
    seen: Millis
    workload: str
    running: int = 0
    phase: str = ""
    tidied: int = -1
    """Milliseconds from its end, or its deletion, until it was gone; -1 where it stayed."""
    deleted: Millis = Millis(0)
    killed: bool = False
    """It was evicted and nothing came in its place."""
    nodes: list[NodeName] = []


class Arrive(msgspec.Struct, frozen=True):
    life: int


class Delete(msgspec.Struct, frozen=True):
    life: int


class Describe(msgspec.Struct, frozen=True):
    """A pod of ours is described anew: labels, annotations, gates."""

    fact: e.PodObserved


class Ask(msgspec.Struct, frozen=True):
    command: c.Command


Item = e.Event | Arrive | Delete | Describe | Ask
"""One thing that happens; an event is folded as it is."""


class Step(msgspec.Struct):
    """One record, as far as it tells of the world."""

    time: Millis
    items: list[Item]


class Delays(msgspec.Struct, frozen=True, rename="camel"):
    """Medians of what the API, controllers and kubelets took, in ms: from a placement until the pod was seen on its node, from there until it was ready, from a move's begin until its
    slot's object was seen, from an eviction until the pod was seen to end, from there until it was gone, and until its successor was seen."""

    bind: int = 0
    ready: int = 0
    hold: int = 0
    evict: int = 0
    gone: int = 0
    successor: int = 0


class Recorded(msgspec.Struct):
    """`steps`: what happened, in order. `own_delays`: of a pod, from its placement to its node, and from there to ready (ms)."""

    name: str
    first: Millis
    last: Millis
    steps: list[Step]
    lives: list[Life]
    delays: Delays
    own_delays: dict[PodUid, tuple[int, int]]
    happened: Measured
    nodes: dict[NodeName, e.NodeObserved]
    others: int
    """Decisions of other versions of the deciders than ours."""


class _Pod(msgspec.Struct):
    fact: e.PodObserved
    seen: Millis
    workload: str
    lineage: str
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


def read(source: Source, progress: Progress = no_progress) -> Recorded:
    """Fold the whole log once. Raises ReplayError where it is not whole, is empty, or moved pods of another scheduler."""
    watch = _Watch()
    state = state_at(source, progress=progress, watch=watch)
    if not state.seq:
        raise ReplayError(f"{source.name} is empty: there is nothing to be asked what if")
    if state.migration_config.beside:
        raise ReplayError("pods of other schedulers are moved in this log (restow.beside of the policy): what their scheduler would have done is not known")
    return watch.recorded(source, state)


class _Watch:
    def __init__(self) -> None:
        self._raw: list[tuple[Millis, list[tuple[e.Event | c.Command, bool]]]] = []
        self._others = 0
        self._chosen: set[str] = set()
        """Claims (`namespace/name`) that got their volume by a decision."""
        self._pods: dict[PodUid, _Pod] = {}
        self._asked: set[PodUid] = set()
        self._made: set[ReservationUid] = set()
        self._began: dict[str, Millis] = {}
        self._taken: dict[str, list[int]] = defaultdict(list)
        self._nodes: dict[NodeName, e.NodeObserved] = {}

    def __call__(self, state: ClusterState, record: Record, found: Examined) -> None:
        now = Millis(state.time)
        if found.kind:
            return
        if record.family in DECIDERS and record.envelope.logic != DECIDERS[record.family].logic:
            self._others += len(found.decisions)
        kept: list[tuple[e.Event | c.Command, bool]] = []
        for decision in found.decisions:
            if record.family == "migration" and isinstance(decision.command, BY_USERS) and _by_a_user(decision.command):
                kept.append((decision.command, True))
            for event in decision.events:
                self._note(state, event, now)
                if isinstance(event, e.Led | e.Configured) or (record.family == "cluster" and not self._follows(event)):
                    kept.append((event, False))
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

    def _note(self, state: ClusterState, event: e.Event, now: Millis) -> None:
        match event:
            case e.PodObserved(pod=uid) as fact:
                if uid not in self._pods:
                    known = state.pods[uid].fact
                    self._pods[uid] = _Pod(fact, now, f"{fact.namespace}/{workload_of(state, known) or f'Pod/{fact.name}'}", state.lineage(known))
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
                if (id := state.successors.get(uid)) is not None and (victim := state.migrations[id].move.pod) in self._pods:
                    self._pods[victim].successor = uid
            case e.Evicting(migration=id) if id in state.migrations:
                self._asked.add(state.migrations[id].move.pod)
                self._began[state.migrations[id].move.pod] = now
            case e.Preempted(pod=uid):
                self._asked.add(uid)
                self._began[uid] = now
            case e.Holding(migration=id):
                self._began[id] = now
            case e.ReservationObserved(migration=id) if id in self._began:
                self._taken["hold"].append(now - self._began.pop(id))
            case e.NodeObserved(name=name):
                self._nodes[name] = event

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

    def recorded(self, source: Source, state: ClusterState) -> Recorded:
        names = state.session_config.scheduler_names
        ours = {uid for uid, pod in self._pods.items() if state.shapes[pod.fact.shape].scheduler in names and not pod.fact.static} if self._pods else set()
        lives = self._lives(ours)
        steps = [Step(now, self._items(now, kept, lives)) for now, kept in self._raw]
        first, last = steps[0].time, max(step.time for step in steps)
        return Recorded(
            source.name, first, last, [step for step in steps if step.items], lives, self._delays(ours), self._own_delays(ours),
            measured(source, first, last, {uid for life in lives for uid in life.pods[1:]}), self._nodes,
            self._others,
        )  # fmt: skip

    def _lives(self, ours: set[PodUid]) -> list[Life]:
        came = defaultdict[str, deque[PodUid]](deque)
        taken = {pod.successor for uid, pod in self._pods.items() if pod.successor}
        for uid, pod in self._pods.items():
            if uid in ours and uid not in taken:
                came[pod.lineage].append(uid)
        for uid, pod in self._pods.items():
            if uid in ours and pod.evicted and not pod.successor and pod.lineage:
                left = pod.deleting or pod.gone
                pod.successor = next((other for other in came[pod.lineage] if self._pods[other].seen >= left and other not in taken and other != uid), PodUid(""))
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

    def _items(self, now: Millis, kept: Iterable[tuple[e.Event | c.Command, bool]], lives: list[Life]) -> list[Item]:
        items: list[Item] = []
        for one, by_user in kept:
            if by_user:
                items.append(Ask(one))  # type: ignore[arg-type]
                continue
            pod = self._pods.get(getattr(one, "pod", ""))  # type: ignore[arg-type]
            if pod is None or pod.life < 0:
                items.append(one)  # type: ignore[arg-type]
                continue
            uid, life = pod.fact.pod, pod.life
            match one:
                case e.PodObserved() if one is pod.fact:
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
            if pod.placed and pod.bound >= pod.placed:
                taken["bind"].append(pod.bound - pod.placed)
            if pod.bound and pod.ready >= pod.bound and not pod.fact.node:
                taken["ready"].append(pod.ready - pod.bound)
            if pod.deleting and pod.gone:
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


def _by_a_user(command: c.Command) -> bool:
    """Whether somebody has asked for it; or metrics have been read for it, which nobody can read again."""
    match command:
        case c.Defragment(trigger=trigger):
            return trigger not in TIMED
        case c.Deschedule(trigger=trigger, samples=samples):
            return trigger not in TIMED or samples is not None
        case c.Pause(by=by) | c.Resume(by=by):
            return bool(by)
    return True


def measured(source: Source, first: Millis, last: Millis, successors: set[PodUid]) -> Measured:
    """What really happened. Folds the log."""
    meter, state = Meter(first, last), ClusterState()
    for batch in source.batches():
        for record in batch:
            examined = examine_next(state, record, source.log_id)
            if not examined.kind:
                meter.before(state, examined.time)
            fold_examined(state, record, examined, source.log_id)
            meter.hear(state, (event for decision in examined.decisions for event in decision.events), Millis(state.time))
        state.touched = Touched()
    return meter.measured(state, successors)
