"""Random stories for the fold: a small cluster in which pods mean everything that a pod can mean, and events in runs of one type."""

import random
from collections.abc import Iterator

from domain.build import (
    GIB,
    NOW,
    configured,
    job_of,
    node,
    pod,
    pod_group,
    queue,
    replica_of,
    reservation,
    shape,
)
from domain.saga import move, plan

from restow.contracts import events as e
from restow.contracts.dynamic_resources import AllocatedDevice, PublishedDevice
from restow.contracts.values import (
    BlockMember,
    ClaimChoice,
    ContainerTrouble,
    DeviceShare,
    Gpu,
    LabelSelector,
    MoveSeen,
    NumaZone,
    OwnerRef,
    PodTerm,
    SlotFor,
)
from restow.domain import config
from restow.domain.config import ActionConfig
from restow.domain.records import FINAL, SlotPhase
from restow.domain.state import ClusterState

PODS = tuple(f"p{i}" for i in range(60))
NODES = ("n0", "n1", "n2", "n3", "n4")
KEPT = NODES[:2]
"""Nodes on which capacity is kept for somebody now and then."""
ELSEWHERE = "n9"
"""No node, most of the time."""
SHAPES = ("small", "large", "half", "two", "social", "urgent", "foreign", "theirs")
HOLDS = tuple(f"r{i}" for i in range(4))
SHARES = ((), (), (DeviceShare(0, 500),), (DeviceShare(1, 330),), (DeviceShare(0, 1000), DeviceShare(1, 1000)), (DeviceShare(5, 100), DeviceShare(-1, 7)))
BOTH = config.SessionConfig(scheduler_names=("restow", "volcano"), actions=(ActionConfig("allocate"), ActionConfig("preempt")))
OURS = config.SessionConfig(scheduler_names=("restow",))
NOBODY = config.SessionConfig(scheduler_names=("somebody",))


class Story:
    """Facts and intents about the state as it is by now: most of them mean something there, some do not."""

    def __init__(self, seed: int, state: ClusterState) -> None:
        self.chance, self.state = random.Random(seed), state
        self.pick = self.chance.choice

    def chapters(self, runs: int) -> Iterator[list[e.Event]]:
        """The cluster, then runs of events with others between them. Each is told about the state that those before have led to."""
        yield self.begin()
        for _ in range(runs):
            for _ in range(self.pick((0, 2, 6, 20))):
                yield self.other()
            yield self.run()

    def begin(self) -> list[e.Event]:
        near = PodTerm("zone", LabelSelector({"app": "owner"}))
        shapes = [
            shape("small", cpu=100),
            shape("large", cpu=1_500, memory=3 * GIB),
            shape("half", cpu=100, gpu=(1, 500)),
            shape("two", cpu=200, gpu=(2, 1000)),
            shape("social", cpu=100, pod_affinity=(near,)),
            shape("urgent", cpu=100, priority=self.pick((-5, 1_000, 2_000_000_000))),
            shape("foreign", cpu=100, scheduler="volcano"),
            shape("theirs", cpu=100, gpu=(1, 1000), scheduler="volcano"),
        ]
        session = configured("session", self.pick((BOTH, OURS, OURS)))
        beside = configured("migration", config.MigrationConfig(beside=("volcano",), budgets=(config.EvictionBudget("few", 3, per="namespace"),)))
        facts = [queue("a"), pod_group("g", self.pick(("", "a"))), pod_group("h"), beside, session, self.budget()]
        first = [self.observed(uid) for uid in self.chance.sample(PODS, self.chance.randint(0, 50))]
        return [*shapes, *(self.node(name) for name in NODES), *facts, self.workload(), *first]

    def run(self) -> list[e.Event]:
        """Of one type, long enough to be folded together; now and then a pod is in it twice."""
        chance, pods, queue = self.chance, list(self.state.pods), list(self.state.queue)
        make, about = self.pick(((self.observed, PODS), (self.changed, pods), (self.changed, pods), (self.gone, pods[::2])))
        if len(queue) > 12 and self.likely(50):
            make, about = self.placed, queue
        some = chance.sample(about, min(len(about), chance.randint(14, 40)))
        more = [self.pick(some or PODS) for _ in range(self.pick((0, 2, 8)) + max(0, 14 - len(some)))]
        told = [make(uid) for uid in (*some, *more)]
        chance.shuffle(told)
        return told

    def other(self) -> list[e.Event]:
        if self.likely(10):
            return self.saga()
        makes = (self.about_pods, self.about_pods, self.about_holds, self.about_holds, self.about_moves, self.about_objects, self.about_the_rest, self.about_the_rest)
        return [self.pick(makes)()]

    def likely(self, percent: int) -> bool:
        return self.chance.random() * 100 < percent

    # -- pods --------------------------------------------------------------------------------------------------------

    def observed(self, uid: str = "") -> e.PodObserved:
        notes = self.pick(({}, {}, {"scheduling.k8s.io/group-name": self.pick("gh")}, {"scheduling.volcano.sh/queue-name": "a"}, {"other": "x"}))
        owner = self.pick((None, replica_of("rs"), replica_of("rs"), replica_of("set", "StatefulSet")))
        on: dict = {"node": None}
        if self.likely(35):
            on = {"node": self.where(), "phase": self.pick(("Running", "Running", "Pending")), "ready": self.likely(50), "devices": self.pick(SHARES)}
        rare = self.pick(({"deleting": NOW}, {"gated": True}, {"gated": True, "landing": True}, {"cores": (0, 1)}, {"phase": "Running"}, {"phase": "Failed"}, {"labels": {"app": "owner"}}, {"nominated": "n1"}))
        kind = self.pick(SHAPES) if self.likely(98) else "undeclared"
        return pod(uid or self.pick(PODS), kind, **({"annotations": notes, "owner": owner} | on | (rare if self.likely(15) else {})))

    def changed(self, uid: str = "") -> e.PodChanged:
        uid = uid or self.pick(PODS)
        on, charge = self.state.node_of(uid), self.state.charges.get(uid)
        if self.likely(15):
            on = self.pick((None, ELSEWHERE, self.where()))
        phase = self.pick(("Running", "Running", "Running", "Running", "Pending", "Succeeded", "Failed"))
        if on is None and self.likely(80):
            phase = "Pending"
        devices = charge.devices if charge is not None and self.likely(40) else self.pick(SHARES) if self.likely(30) else ()
        reason = self.pick(("UnexpectedAdmissionError", "UnexpectedAdmissionError", "OutOfcpu", "Evicted", "")) if phase == "Failed" else ""
        return e.PodChanged(uid, on, phase, self.likely(60), self.pick((0, 0, 0, 0, NOW, -1)), reason, devices, cores=(0, 2) if self.likely(3) else ())

    def placed(self, uid: str = "") -> e.PodPlaced:
        volumes = (ClaimChoice("default/c", "v"),) if self.likely(4) else ()
        return e.PodPlaced(uid or self.waiting(), self.where(), self.pick(SHARES), volumes, (1, 3) if self.likely(4) else ())

    def gone(self, uid: str = "") -> e.PodGone:
        return e.PodGone(uid or self.pick(PODS))

    def waiting(self) -> str:
        """Most often a pod that waits for a node."""
        return self.pick(list(self.state.queue)) if self.state.queue and self.likely(80) else self.pick(PODS)

    def where(self) -> str:
        return self.pick(NODES) if self.likely(95) else ELSEWHERE

    # -- what else a pod may mean ------------------------------------------------------------------------------------

    def about_pods(self) -> e.Event:
        uid, waiting, state = self.pick(PODS), self.waiting(), self.state
        charged = list(state.charges) or PODS
        social = tuple(u for u in state.queue if state.pods[u].fact.shape == "social")
        if state.gated and self.likely(20):
            who = self.pick([uid for uid in state.gated if state.awaits_placement(uid)] or list(state.gated))
            held = [(uid, name, one.node) for uid, slots in state.slots.items() for name, one in slots.items() if one.phase is SlotPhase.HELD]
            hold = self.pick(held) if held and self.likely(50) else None
            return e.PodLetGo(who) if hold is None else e.HandedOver(*hold[:2], who, hold[2])
        if self.likely(20):
            return e.Nominated(waiting, self.pick(KEPT), NOW + 5, self.pick(SHARES), (self.pick(charged),))
        return self.pick((
            e.PodReleased(uid, "test"),
            e.Unfit(self.pick(SHAPES), 3, {"Insufficient cpu": 3}, (waiting,)),
            e.Unfit("social", 3, {"Insufficient cpu": 3}, social),
            e.Withheld("NotEnoughTasks", "waits", (waiting,), "default/g"),
            e.NominationEnded(self.pick(list(state.nominations) or PODS), "Deadline"),
            e.TaskReserved(waiting, self.pick(NODES)),
            e.Preempted(self.pick(charged), uid, "preempt"),
            e.PreemptionEnded(self.pick(list(state.victims_of) or PODS), self.pick(("Deadline", "Refused: x", "x"))),
            e.PodTroubled(uid, self.pick(((), (ContainerTrouble("a", restarts=1),)))),
            self.observed(self.pick(list(state.pods) or PODS)),
            self.observed(),
            self.changed(),
            self.placed(),
            self.gone(),
        ))  # fmt: skip

    def about_holds(self) -> e.Event:
        state, hold, slot = self.state, self.pick(HOLDS), self.pick(("t-0", "t-1"))
        held = [(uid, name, one.node) for uid, slots in state.slots.items() for name, one in slots.items() if one.phase is SlotPhase.HELD]
        asked = [key for key in state.slot_queue if state.reservations[key[0]].accepted]
        if held and self.likely(40):
            uid, name, where = self.pick(held)
            return e.HandedOver(uid, name, self.waiting(), where, self.pick(SHARES))
        if asked and self.likely(60):
            return e.HoldPlaced(*self.pick(asked), self.pick(KEPT), self.pick(SHARES), waiting=self.likely(20))
        if asked and self.likely(20):
            return e.HoldUnfit(*self.pick(asked), 3, {"Insufficient cpu": 3})
        newer = [uid for uid, record in state.reservations.items() if record.fact.generation > record.accepted > 0]
        if newer and self.likely(60):
            return e.ReservationAccepted(self.pick(newer), 2, 1, NOW + 5)
        unaccepted = [uid for uid, record in state.reservations.items() if not record.accepted]
        return self.pick((
            self.placeholder(hold, slot),
            reservation(hold, ("t", 2, self.pick(("small", "half"))), allocate_once=self.likely(50), deleting=self.pick((0, 0, 0, NOW))),
            e.ReservationAccepted(self.pick(unaccepted or HOLDS), 1, 1, NOW + 5),
            e.ReservationAccepted(self.pick(unaccepted or HOLDS), 1, 1, NOW + 5),
            e.HoldReady(hold, slot),
            self.pick((e.OwnersGated(hold, self.pick((0, NOW + 9))), e.OwnersUnlisted(hold), self.let_go(self.pick(list(self.state.gated) or PODS)))),
            e.HoldReleased(hold, slot, self.pick(("Deleted", "Preempted"))),
            e.ReservationGone(hold) if self.likely(30) else e.Expired(hold),
        ))  # fmt: skip

    def let_go(self, pod):
        """Done, or refused by the API."""
        return e.LetGoRefused(pod, "403") if self.likely(75) else e.PodLetGo(pod)

    def placeholder(self, hold: str, slot: str, where: str = "") -> e.PodObserved:
        """One that stands in this slot, or says so."""
        of = {"namespace": "restow-holds", "labels": {"restow.dev/log": self.state.log}, "annotations": {"restow.dev/slot": f"{hold}/{slot}"}}
        return pod(self.pick(PODS), "foreign", where or self.pick((None, self.where())), phase=self.pick(("Running", "Pending")), **of)

    def saga(self) -> list[e.Event]:
        """A migration from its plan to its end, or as far as it comes."""
        state, number = self.state, len(self.state.plans)
        known = {uid: one.fact for uid, one in state.pods.items() if uid in state.charges and one.fact.owner is not None}
        new = [uid for uid in PODS if uid not in state.pods]
        if not known or len(new) < 2:
            return [self.observed()]
        uid, (follower, next_one), target = self.pick([uid for uid in known if uid in state.returned] or list(known)), self.chance.sample(new, 2), self.pick(KEPT)
        source, of, id, hold, slot = state.charges[uid].node, known[uid], f"plan-{number}-1", f"hold-{number}", "t-0"
        told = [
            plan(f"plan-{number}", move(id, uid, source, target), whole=number % 2 > 0),
            e.Holding(id, NOW + 5),
            reservation(hold, ("t", 1, of.shape), migration=id),
            e.ReservationAccepted(hold, 1, 1, NOW + 5),
            e.HoldPlaced(hold, slot, target),
            e.Held(id),
            e.LandingOpened(id, "uid-rs", NOW + 5),
            e.ConsentAsked(id, NOW + 5, ":8080/x", evicts_on_silence=self.likely(50)),
            e.ConsentGiven(id),
            e.Evicting(id, NOW + 5),
            e.PodChanged(uid, source, "Running", deleting=NOW),
            e.Evicted(id, NOW + 5),
            self.placeholder(hold, slot, where=target),
            pod(follower, of.shape, owner=of.owner, labels=of.labels, annotations=of.annotations, gated=self.likely(50), landing=self.likely(50)),
            e.HandedOver(hold, slot, follower, target),
            e.PodGone(uid),
            e.PodChanged(follower, target, "Running", ready=True),
            e.WorkloadToTell(id, "moved", "annotation", follower, NOW + 5),
            e.Landed(id, follower, target),
            e.WorkloadTold(id),
            e.LandingClosed(id),
            *((e.NodeEmptied(source, f"plan-{number}"),) if number % 4 == 1 else ()),
            e.PodGone(follower),
            pod(next_one, of.shape, source, owner=of.owner, labels=of.labels),
        ]
        if number % 4 == 3:
            told += self.of_a_job(f"job-{number}", of.shape, source, target)
        return told[: self.chance.randint(1, len(told))] if self.likely(70) else told

    def of_a_job(self, name: str, asked: str, source: str, target: str) -> list[e.Event]:
        """A pod that ends with success when it is moved."""
        id, owner = f"{name}-1", replica_of("j", "Job")
        return [
            job_of("j"), pod(name, asked, source, owner=owner), plan(name, move(id, name, source, target)), e.Holding(id, NOW + 5), e.Held(id), e.Evicting(id, NOW + 5),
            e.PodChanged(name, source, "Running", deleting=NOW), e.PodChanged(name, source, "Succeeded", deleting=NOW), e.Evicted(id, NOW + 5), e.PodGone(name), e.NotRecreated(id),
        ]  # fmt: skip

    def about_moves(self) -> e.Event:
        """What brings one on, or ends it."""
        active = [one for one in self.state.migrations.values() if one.step not in FINAL]
        if not active:
            return self.observed()
        one = self.pick(active)
        return self.pick((
            e.Evicted(one.id, NOW + 5), e.TurningBack(one.id, NOW + 5, "x"), e.NotRecreated(one.id), e.MigrationFailed(one.id, self.pick(("Budget", "Budget", "HoldStolen"))),
            e.Landed(one.id, one.successor or self.pick(PODS), one.move.target), e.Evicting(one.id, NOW + 5), e.Held(one.id),
            e.ConsentAsked(one.id, NOW + 5, "annotation"), e.ConsentRefused(one.id, "x", self.pick((0, NOW + 9))),
            e.PodGone(one.move.pod), e.PodGone(one.successor or self.pick(PODS)),
        ))  # fmt: skip

    def about_objects(self) -> e.Event:
        return self.pick((
            self.node(self.where()),
            e.NodeGone(self.pick((*NODES, ELSEWHERE))) if self.likely(30) else self.node(self.where()),
            self.budget(),
            self.workload(),
            e.PodGroupObserved("default", self.pick("gh"), "u", NOW, self.pick(("", "a")), 2, phase=self.pick(("Pending", "Inqueue"))),
            configured("session", self.pick((BOTH, OURS, OURS, NOBODY)) if self.likely(30) else OURS),
            e.ShapeDeclared("undeclared", shape("undeclared", cpu=300).spec),
        ))  # fmt: skip

    def about_the_rest(self) -> e.Event:
        """What no run is about: it is in the state all the same."""
        state, name, where, uid, number = self.state, self.pick("ab"), self.where(), self.waiting(), len(self.state.plans)
        amounts = self.pick(({}, {"cpu": 2_000}))
        capacity = SlotFor(f"room-{number}", uid, "default", self.pick(KEPT))
        return self.pick((
            e.Synced("pods", str(number)),
            e.SessionLed(self.pick((1, 2, 9)), "x"),
            e.NominationsChecked(self.pick(("volcano", "default-scheduler")), self.pick(("honoured", "ignored", "unknown")), "x"),
            e.PriorityClassObserved(name, 1),
            e.NamespaceObserved(name, {"team": "x"}),
            e.QuotaObserved("default", name, "u", self.pick(((), ("pods",)))),
            e.ClaimObserved("default", "c", "u", selected_node=where),
            e.ClaimObserved("default", "c", "u"),
            e.ClaimObserved("default", name, "u", volume="v"),
            e.VolumeObserved(name, "u", capacity=GIB, claim="default/a"),
            e.StorageClassObserved(name, "p", "Immediate"),
            e.CsiNodeObserved(where, {"driver": 1}),
            e.NumaObserved(where, "single-numa-node", "pod", (NumaZone("node-0", amounts),)),
            e.DeviceObserved(where, (Gpu(0, self.likely(80)), Gpu(1, True))),
            e.DeviceGone(where),
            e.HyperNodeObserved(name, number % 3 + 1, members=(BlockMember(where),)),
            e.HyperNodeGone(name),
            e.ResourceSliceObserved(name, "d", where, number, node=where, devices=(PublishedDevice("g"), PublishedDevice("h"))),
            e.ResourceSliceGone(name),
            e.ResourceClaimObserved("default", name, "u", allocated=(AllocatedDevice("r", "d", where, "g"),)),
            e.ResourceClaimGone("default", name),
            e.DeviceClassObserved(name, ("true",)),
            e.DeviceClassGone(name),
            e.PodGroupObserved("default", "p", "u", NOW, phase="Pending"),
            e.Enqueued("default", self.pick(("p", "g"))),
            configured("reservation", config.ReservationConfig(default_ttl=7_000)),
            configured("migration", config.MigrationConfig(interval=7_000, emptied=self.pick(("none", "cordon", "cordon")), beside=("volcano",))),
            configured("gc", config.GcConfig(period=7_000)),
            e.Collected(self.pick(HOLDS), "Retention"),
            e.SnapshotTaken(self.pick((5, 50)), 1, 1),
            e.Archived(self.pick((1, 7)), 60, "file", "digest"),
            e.Truncated(4),
            e.LogRepaired(state.broken, 9),
            e.SearchBegun(f"plan-{number}", "demand"),
            e.SearchEnded(state.search.plan, "Died"),
            plan(f"plan-{number}", slots=(capacity,), demand=uid, trigger="demand"),
            plan(f"plan-{number}", *(move(f"next-{id}", "", "", self.pick(NODES), follows=id) for id in list(state.active)[:1])),
            self.of_modes(f"plan-{number}", uid),
            e.PlanCancelled(f"plan-{number - 1}", "x"),
            self.pick((e.MovesPaused("x", "y"), e.MovesResumed("x"))),
            e.Bounced("uid-rs", self.pick(NODES), 2),
            e.Unknown("cluster.moon", b""),
            reservation(self.pick([uid for uid in HOLDS if uid in state.reservations] or HOLDS), ("t", 2, "large"), generation=2),
        ))  # fmt: skip

    def of_modes(self, id: str, uid: str) -> e.Event:
        match self.chance.randrange(5):
            case 0 | 1:
                return self.only_observed(id, uid)
            case 2 | 3:
                return self.proposed(id, uid)
        return e.ModeSet(self.pick(("observe", "propose", "automatic")), "x")

    def only_observed(self, id: str, uid: str) -> e.Event:
        """A plan that nobody carries out, or a look back at one."""
        plans = list(self.state.observed.items())
        if not plans or self.likely(40):
            return plan(id, move(f"{id}-1", uid, "a", "b"), mode="observe")
        known, looks = self.pick(plans)
        seen = MoveSeen(f"{known}-1", self.pick(("there", "ended")), self.pick(("free", "taken", "")))
        return e.LookedBack(known, looks + self.pick((1, 1, 2)), (seen,))

    def proposed(self, id: str, uid: str) -> e.Event:
        """A plan that waits for a person, or what that says of one."""
        plans = list(self.state.proposals)
        if not plans or self.likely(40):
            return plan(id, move(f"{id}-1", uid, "a", "b"), move(f"{id}-2", self.pick(PODS), "a", "c"), mode="propose")
        known = self.pick(plans)
        return self.pick((e.PlanApproved(known, "x"), e.PlanApproved(known, "x", moves=(f"{known}-2",)), e.PlanRejected(known, "x", "y")))

    def node(self, name: str) -> e.NodeObserved:
        """Small enough to be over-committed now and then."""
        return node(name, self.pick((1_500, 6_000)), 16 * GIB, self.pick((0, 2, 2, 3)), uid=self.pick(("u1", "u1", "u1", "u2")), labels={"zone": "z"})

    def budget(self) -> e.Event:
        return e.BudgetObserved("default", "b", "u", LabelSelector(), self.pick((0, 1, 2)), unready=self.likely(50))

    def workload(self) -> e.Event:
        return e.WorkloadObserved("uid-rs", "ReplicaSet", "default", "rs", self.pick((None, OwnerRef("Deployment", "d", "uid-d"))))
