"""A cluster on virtual time: recorded facts come, the real deciders decide, and what they owe to the world is answered as API, controllers and kubelets did.

Nothing here decides: it folds, asks `due`, and answers effects. Time jumps to whatever comes next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import count

import msgspec
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision
from restow.contracts.ids import Millis, NodeName, PodUid, ReservationUid
from restow.contracts.times import rfc3339
from restow.domain import effects as owed
from restow.domain import fold, snapshot
from restow.domain.decider import Decider, Rejected, decide_all
from restow.domain.deciders import DECIDERS
from restow.domain.migration import search
from restow.domain.state import OVER, ClusterState, Touched
from restow.kube import wire
from restow.kube.reservation_manifest import Manifest, demand_slot_manifest, hold_manifest
from restow.kube.reservations import reservation_fact
from restow.replay.state_at import Progress, ReplayError, no_progress
from restow.replay.whatif.asked import asked_of_model
from restow.replay.whatif.meter import Measured, Meter
from restow.replay.whatif.recorded import (
    DAEMON_SET,
    Arrive,
    Ask,
    Delete,
    Describe,
    Item,
    Leave,
    Life,
    Lose,
    Recorded,
)

AGAIN = 1_000
"""Milliseconds after which a deadline that has passed and led to nothing is asked about again, as in a service (`runtime.commander`)."""
MOST = 1_000
"""Commits at one instant: more, and two deciders answer each other for ever."""
LATER = {"StatefulSet"}
"""Kinds of controllers that make a pod again only when the one before is gone."""
ORPHANED = 40_000
"""Milliseconds that pods of a node which is gone stay, as Kubernetes' garbage collector of pods leaves them, until they are deleted."""


class Ran(msgspec.Struct, rename="camel"):
    """What a run of the model comes to. `nodes`: of each life (as in `Recorded.lives`) where its pods were placed, in order. `refused`: what was asked for that makes no sense in the model, each once."""

    measured: Measured
    nodes: list[list[NodeName]]
    commits: int
    refused: list[str]
    unanswered: dict[str, int]


class _Alive(msgspec.Struct):
    """A life in the model. `uid` is empty before it comes, and between two of its pods."""

    life: Life
    uid: PodUid = PodUid("")
    pods: int = 0
    deleted: bool = False
    nodes: list[NodeName] = []


class Model:
    """One run. `without` says which workloads (`namespace/Kind/name`) never came."""

    def __init__(self, recorded: Recorded, without: Callable[[str], bool] = lambda workload: False) -> None:
        self.state = ClusterState()
        self._recorded, self._without = recorded, without
        self._now = recorded.first
        self._meter = Meter(recorded.first, recorded.last)
        self._later: list[tuple[Millis, int, Callable[[], None]]] = []
        self._order = count()
        self._under_way: set[owed.Effect] = set()
        self._fruitless: dict[str, int] = {}
        self._not_before: dict[str, Millis] = {}
        self._alive = [_Alive(life) for life in recorded.lives]
        self._of: dict[PodUid, _Alive] = {}
        self._whose = {uid: alive for alive in self._alive for uid in alive.life.pods}
        self._successors: set[PodUid] = set()
        self._made = count(1)
        self._refused: list[str] = []
        self._unanswered: dict[str, int] = {}

    def run(self, progress: Progress = no_progress) -> Ran:
        """Until the stretch's end. Raises ReplayError where deciders come to no rest."""
        steps = self._recorded.steps
        if self._recorded.begin:
            self._resume(self._recorded.begin)
        for done, step in enumerate(steps):
            self._until(step.time)
            self._answers()
            self._take(step.items)
            self._settle()
            progress(done + 1, len(steps))
        self._until(Millis(self._recorded.last + 1))
        measured = self._meter.measured(self.state, self._successors)
        return Ran(measured, [alive.nodes for alive in self._alive], self.state.seq, self._refused, dict(sorted(self._unanswered.items())))

    def _resume(self, image: bytes) -> None:
        """What was there when the stretch began, and what was under way goes on."""
        self.state = snapshot.load(image)
        self._meter.begin(self.state, self._now)
        never: list[e.Event] = []
        for alive in self._alive:
            if alive.life.there:
                never += self._is_there(alive)
        self._owe(None)
        self._flush(never)
        self._settle()

    def _is_there(self, alive: _Alive) -> Iterable[e.Event]:
        life, uid = alive.life, alive.life.pods[0]
        self._begin(alive, uid)
        live = self.state.pods[uid].live
        if life.bound:
            alive.nodes = [self.state.node_of(uid) or NodeName("")]
        if self._without(life.workload):
            alive.deleted = True
            return (e.PodGone(uid),)
        if live.deleting:
            alive.deleted = True
        elif live.node and live.phase not in OVER:
            self._goes_on(life, uid)
        if (live.deleting or live.phase in OVER) and life.tidied >= 0:
            self._after(life.tidied, lambda: self._gone(uid))
        return ()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _until(self, time: Millis) -> None:
        """Whatever comes before `time`, in its order."""
        while (coming := self._next()) is not None and coming < time:
            self._now = max(self._now, coming)
            self._answers()
            self._settle()
        self._now = max(self._now, time)

    def _answers(self) -> None:
        """What comes now."""
        while self._later and self._later[0][0] <= self._now:
            heapq.heappop(self._later)[2]()

    def _next(self) -> Millis | None:
        times = [self._wakes(decider) for decider in DECIDERS.values()]
        known = [time for time in times if time is not None]
        if self._later:
            known.append(self._later[0][0])
        return min(known, default=None)

    def _wakes(self, decider: Decider) -> Millis | None:
        deadline = decider.deadline(self.state)
        if deadline is None or deadline > self._now:
            return deadline
        if self._fruitless.get(decider.family) == self.state.seq:
            return max(self._not_before[decider.family], Millis(self._now + 1))
        return self._now

    def _after(self, milliseconds: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._later, (Millis(self._now + max(0, milliseconds)), next(self._order), what))

    # -- deciding ------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Everything that is due now."""
        for _ in range(MOST):
            decided = [self._decide_due(decider) for decider in DECIDERS.values()]
            if not any(decided):
                return
        raise ReplayError(f"the deciders come to no rest at {rfc3339(self._now)}: {MOST} commits at one instant")

    def _decide_due(self, decider: Decider) -> bool:
        family = decider.family
        if self._fruitless.get(family) == self.state.seq and self._now < self._not_before[family]:
            return False
        command = decider.due(self.state, self._now)
        if command is None:
            return False
        if self._report(family, command):
            return True
        deadline = decider.deadline(self.state)
        self._fruitless[family] = self.state.seq
        self._not_before[family] = deadline if deadline is not None and deadline > self._now else Millis(self._now + AGAIN)
        return False

    def _commit(self, family: str, decisions: Sequence[Decision]) -> bool:
        if not decisions:
            return False
        state = self.state
        self._meter.before(state, self._now)
        fold.fold(state, state.seq + 1, family, self._now, decisions)
        for decision in decisions:
            self._meter.hear(state, decision.events, self._now)
            for event in decision.events:
                self._note(event)
        touched, state.touched = state.touched, Touched()
        self._owe(touched)
        return True

    def _owe(self, touched: Touched | None) -> None:
        for decider in DECIDERS.values():
            for effect in decider.pending(self.state, touched):
                if effect not in self._under_way:
                    self._carry_out(decider, effect)

    def _note(self, event: object) -> None:
        """Where a life is, pod by pod; of a pod that is placed twice (its bind was refused) the last counts."""
        if isinstance(event, e.PodPlaced | e.HandedOver) and (alive := self._of.get(event.pod)) is not None:
            alive.nodes = [*alive.nodes[: alive.pods - 1], event.node]

    def _facts(self, *events: e.Event) -> None:
        """A shape that nobody had in the model for a while has been forgotten there, and was not in the record."""
        named = dict.fromkeys(event.shape for event in events if isinstance(event, e.PodObserved) and event.shape not in self.state.shapes)
        if named:
            declared = {event.shape for event in events if isinstance(event, e.ShapeDeclared)}
            known = self._recorded.shapes
            events = (*(e.ShapeDeclared(id, known[id]) for id in named if id in known and id not in declared), *events)
        self._commit("cluster", [Decision(c.Observe("model", "watch"), events, "model", "")])

    def _report(self, family: str, command: c.Command) -> bool:
        """Whether it led to anything. What is rejected is told, as in a service, and no decision."""
        try:
            decisions = search.without_faults(lambda one: decide_all(self.state, DECIDERS[family], [one]), command)
        except Rejected as error:
            if str(error) not in self._refused:
                self._refused.append(str(error))
            return False
        return self._commit(family, decisions)

    # -- what is recorded ----------------------------------------------------------------------------------------------

    def _take(self, items: Iterable[Item]) -> None:
        facts: list[e.Event] = []
        for item in items:
            match item:
                case Arrive(life=number):
                    facts += self._arrive(self._alive[number])
                case Describe(fact=fact):
                    self._flush(facts)
                    facts += self._described(fact)
                case Delete(life=number):
                    # It may have come in the same commit.
                    self._flush(facts)
                    facts += self._delete(self._alive[number])
                case Lose(node=node):
                    facts += self._lose(node)
                    facts.append(e.NodeGone(node))
                case Leave(node=node):
                    facts.append(e.NodeGone(node))
                    self._after(ORPHANED, lambda item=item: self._orphaned(item))  # type: ignore[misc]
                case Ask():
                    self._flush(facts)
                    self._ask(item)
                case e.Led() | e.Configured():
                    self._flush(facts)
                    self._commit(type(item).__struct_config__.tag.partition(".")[0], [Decision(c.Lead("model"), (item,), "model", "")])  # type: ignore[union-attr]
                case _:
                    facts.append(item)
        self._flush(facts)

    def _flush(self, facts: list[e.Event]) -> None:
        if facts:
            self._facts(*facts)
            facts.clear()

    def _arrive(self, alive: _Alive) -> Iterable[e.Event]:
        life = alive.life
        if self._without(life.workload) or alive.deleted:
            return ()
        fact = life.facts[0]
        if fact.node is None:
            fact = fresh(fact)
        else:
            self._goes_on(life, fact.pod)
        self._begin(alive, fact.pod)
        if fact.node is not None:
            alive.nodes = [fact.node]
        return (fact,)

    def _goes_on(self, life: Life, uid: PodUid) -> None:
        """One that has its node already."""
        if life.readied >= 0:
            self._after(life.readied, lambda: self._ready(uid))
        if life.running:
            self._after(life.running, lambda: self._end(uid))

    def _begin(self, alive: _Alive, uid: PodUid) -> None:
        alive.uid = uid
        alive.pods += 1
        self._of[uid] = alive

    def _described(self, fact: e.PodObserved) -> Iterable[e.Event]:
        known = self.state.pods.get(fact.pod)
        if known is None:
            return ()
        live = known.live
        moving = {name: getattr(live, name) for name in e.PodChanged.__struct_fields__ if name != "pod"}
        return (replace(fact, **moving),)

    def _delete(self, alive: _Alive) -> Iterable[e.Event]:
        """Somebody deletes it: its owner was scaled down or is gone, or a person did."""
        alive.deleted = True
        known = self.state.pods.get(alive.uid)
        if known is None or known.live.deleting:
            return ()
        uid = alive.uid
        if not known.live.node:
            return (e.PodGone(uid),)
        if alive.life.tidied >= 0:
            self._after(alive.life.tidied, lambda: self._gone(uid))
        return (replace(known.live, deleting=self._now),)

    def _lose(self, node: NodeName) -> Iterable[e.Event]:
        """All that is there."""
        return [event for uid in self.state.pods if self.state.node_of(uid) == node for event in self._lost(uid)]

    def _orphaned(self, left: Leave) -> None:
        """The node has gone and not come back. Who was there in the record goes as it went."""
        if left.node in self.state.nodes:
            return
        as_recorded = {self._whose[uid].life.pods[0] for uid in left.there if uid in self._whose}
        alone = [uid for uid, node in self.state.homeless.items() if node == left.node and uid in self._of and self._of[uid].life.pods[0] not in as_recorded]
        self._flush([event for uid in alone for event in self._lost(uid)])

    def _lost(self, uid: PodUid) -> Iterable[e.Event]:
        """With its node. Its controller makes it again, as after an eviction."""
        known, alive = self.state.pods[uid], self._of.get(uid)
        owner = known.fact.owner
        if alive is not None and owner is not None and owner.kind != DAEMON_SET and not known.live.deleting and known.live.phase not in OVER:
            self._after(self._recorded.delays.successor, lambda: self._succeed(alive, known.fact, counts=True))
        yield e.PodGone(uid)

    def _ask(self, asked: Ask) -> None:
        self._report("migration", asked_of_model(asked, self.state, self._now, self._now_is))

    def _now_is(self, uid: PodUid) -> PodUid:
        """The pod that stands in the model where that one stood in the record."""
        alive = self._whose.get(uid)
        return alive.uid if alive is not None and alive.uid else uid

    # -- what is owed --------------------------------------------------------------------------------------------------

    def _carry_out(self, decider: Decider, effect: owed.Effect) -> None:
        delays = self._recorded.delays
        match effect:
            case owed.Bind(pod=pod):
                took = self._recorded.own_delays.get(pod, (delays.bind, delays.ready))[0]
                self._answer(decider, effect, took, lambda: self._bound(effect))
            case owed.CreateHold(migration=id):
                self._answer(decider, effect, delays.hold, lambda: self._reservation(hold_manifest(self.state, self.state.migrations[id])))
            case owed.CreateDemandSlot(name=name):
                self._answer(decider, effect, delays.hold, lambda: self._reservation(demand_slot_manifest(self.state, self.state.demand_slots[name])))
            case owed.DeleteReservation(reservation=uid):
                self._answer(decider, effect, 0, lambda: self._facts(e.ReservationGone(uid)))
            case owed.Evict(migration=id):
                self._answer(decider, effect, delays.evict, lambda: self._evict(self.state.migrations[id].move.pod))
            case owed.EvictVictim(pod=pod):
                self._answer(decider, effect, delays.evict, lambda: self._evict(pod))
            case owed.AbortEviction(migration=id):
                self._answer(decider, effect, 0, lambda: self._report("migration", c.ReportEviction(self._now, id, "Aborted")))
            case owed.AskConsent(migration=id):
                self._answer(decider, effect, 0, lambda: self._report("migration", c.ReportConsent(self._now, id, "agreed")))
            case owed.TellWorkload(migration=id):
                self._answer(decider, effect, 0, lambda: self._report("migration", c.ReportTold(self._now, id)))
            case owed.BindClaim(claim=claim, volume=volume, node=node):
                self._answer(decider, effect, delays.bind, lambda: self._bind_claim(claim, volume, node))
            case owed.MarkNode() | owed.OpenLanding() | owed.CreatePlaceholder() | owed.Land() | owed.LetGo() | owed.NominateAgain() | owed.ListOwners() | owed.WithdrawRequest():
                name = type(effect).__name__
                self._unanswered[name] = self._unanswered.get(name, 0) + 1

    def _answer(self, decider: Decider, effect: owed.Effect, milliseconds: int, answer: Callable[[], object]) -> None:
        """After so long, if it is still owed then."""
        self._under_way.add(effect)

        def carried_out() -> None:
            self._under_way.discard(effect)
            if decider.owed(self.state, effect):
                answer()

        self._after(milliseconds, carried_out)

    def _bound(self, effect: owed.Bind) -> None:
        known = self.state.pods.get(effect.pod)
        if known is None or known.live.deleting:
            return
        self._facts(e.PodChanged(effect.pod, effect.node, devices=effect.devices, cores=effect.cores))
        took = self._recorded.own_delays.get(effect.pod, (0, self._recorded.delays.ready))[1]
        self._after(took, lambda: self._ready(effect.pod))
        alive = self._of.get(effect.pod)
        if alive is not None and alive.life.running:
            self._after(alive.life.running, lambda: self._end(effect.pod))

    def _ready(self, uid: PodUid) -> None:
        known = self.state.pods.get(uid)
        if known is not None and not known.live.deleting and known.live.phase not in OVER:
            self._facts(replace(known.live, phase="Running", ready=True, started=self._now))

    def _end(self, uid: PodUid) -> None:
        """It has run as long as it had to."""
        known = self.state.pods.get(uid)
        if known is None or known.live.deleting:
            return
        life = self._of[uid].life
        self._facts(replace(known.live, phase=life.phase, ready=False))  # type: ignore[arg-type]
        if life.tidied >= 0:
            self._after(life.tidied, lambda: self._gone(uid))

    def _gone(self, uid: PodUid) -> None:
        if uid in self.state.pods:
            self._facts(e.PodGone(uid))

    def _evict(self, uid: PodUid) -> None:
        """The pod terminates, and its controller makes another one: at once, or as soon as it is gone."""
        known = self.state.pods.get(uid)
        if known is None or known.live.deleting:
            return
        fact, alive, delays = known.fact, self._of.get(uid), self._recorded.delays
        self._facts(replace(known.live, deleting=self._now))
        self._after(delays.gone if known.live.node else 0, lambda: self._gone(uid))
        if alive is None or fact.owner is None:
            return
        wait = delays.gone if fact.owner.kind in LATER else 0
        self._after(wait + delays.successor, lambda: self._succeed(alive, fact))

    def _succeed(self, alive: _Alive, before: e.PodObserved, counts: bool = False) -> None:
        """`counts`: its waiting is that of the change, which took its node away."""
        if alive.deleted:
            return
        facts = alive.life.facts
        if alive.pods < len(facts):
            fact = facts[alive.pods]
        else:
            number = next(self._made)
            name = before.name if before.owner is not None and before.owner.kind in LATER else f"{before.name}-{number}"
            kept = {key: text for key, text in before.annotations.items() if not key.startswith("restow.dev/migration")}
            fact = replace(before, pod=PodUid(f"{alive.life.pods[0]}-{number}"), name=name, annotations=kept)
        fact = replace(fresh(fact), created=self._now)
        if not counts:
            self._successors.add(fact.pod)
        self._begin(alive, fact.pod)
        self._facts(fact)

    def _reservation(self, manifest: Manifest | None) -> None:
        """The API has made it, and the watcher sees it."""
        if manifest is None:
            return
        one = msgspec.json.decode(msgspec.json.encode(manifest), type=wire.Reservation)
        uid = ReservationUid(f"model-{next(self._made)}")
        shapes, fact = reservation_fact(replace(one, metadata=replace(one.metadata, uid=uid)), "volcano")
        news = [e.ShapeDeclared(id, shape) for id, shape in shapes.items() if id not in self.state.shapes]
        self._facts(*news, replace(fact, created=self._now))

    def _bind_claim(self, claim: str, volume: str, node: NodeName) -> None:
        known = self.state.claims.get(claim)
        if known is None:
            return
        facts: list[e.Event] = []
        if not volume:
            volume = f"model-{claim.replace('/', '-')}"
            facts.append(e.VolumeObserved(volume, f"uid-{volume}", "Bound", known.request, known.storage_class, known.modes, known.block, claim, known.uid))
        facts.append(replace(known, phase="Bound", volume=volume, bound=True, selected_node=node))
        self._facts(*facts)


def fresh(fact: e.PodObserved) -> e.PodObserved:
    """As its controller makes it: nobody has bound it, and no kubelet has seen it."""
    return replace(
        fact, node=None, phase="Pending", ready=False, deleting=Millis(0), reason="", devices=(), started=Millis(0), cores=(), unready=Millis(0),
        initialized=Millis(0), sandboxless=Millis(0), waiting="", well=(),
    )  # fmt: skip
