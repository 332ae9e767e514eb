"""Logs made by hand: a few commits with known content, and deciders small enough to read at a glance."""

from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision, encode
from restow.contracts.envelope import Envelope
from restow.contracts.times import rfc3339
from restow.contracts.values import (
    Move,
    MoveSeen,
    ObjectRef,
    OwnerRef,
    OwnerRule,
    Packing,
    PodShape,
    ReservationSpec,
    ReservationTask,
)
from restow.domain.autoscalers import CORDONED
from restow.domain.config import DefragmentationArgs, EvictionBudget, MigrationConfig, digest_of, text_of
from restow.domain.fold import evolve_one
from restow.eventlog.port import Record
from restow.replay.source import ListSource

START = 1_767_225_600_000  # 2026-01-01T00:00:00Z
STEP = 1_000
LOG_ID = "f" * 32
SHAPE = "5ba9e0000000cafe"
PACKING = Packing(nodes=2, free_nodes=0, total=0, idle=0, fragmented=0, free_devices=0)


class FirstFit:
    """Slots every waiting pod on the first node, by name, that has capacity."""

    family, logic = "session", "session@1"

    def decide(self, state, command):
        if isinstance(command, c.RefuseBind):
            return (e.PodReleased(command.pod, command.reason),)
        events = []
        with state.draft():
            for pod in sorted(state.queue, key=state.order_of):
                fits = state.table.fits(state.vectors[state.pods[pod].fact.shape])
                names = sorted(name for name, row in state.table.rows.items() if fits[row])
                if names:
                    events.append(e.PodPlaced(pod, names[0]))
                    evolve_one(state, events[-1])
        return events


class Accepting:
    """Accepts every Reservation."""

    family, logic = "reservation", "reservation@1"

    def decide(self, state, command):
        return [e.ReservationAccepted(uid, 1, 1) for uid in sorted(state.unreviewed)]


DECIDERS = {"session": FirstFit(), "reservation": Accepting()}


class Handmade:
    """Appends commits, one a second. `read` defaults to all that is there."""

    def __init__(self):
        self.records = []

    @property
    def seq(self):
        return len(self.records)

    def commit(self, family, *decisions, read=None, logic="", body=b"", release="", reader=0):
        seq = self.seq + 1
        envelope = Envelope(
            id=f"id-{seq}",
            source=f"/restow/test/{family}",
            time=rfc3339(START + seq * STEP),
            read=self.seq if read is None else read,
            logic=logic or f"{family}@1",
            release=release,
            reader=reader,
        )
        self.records.append(Record(seq, family, envelope, body or encode(decisions), (START + seq * STEP) * 1_000_000))
        return seq

    def facts(self, *events, kind="pods", **more):
        return self.commit("cluster", Decision(c.Observe(kind, "watch"), events), **more)

    def decide(self, family, command, *events, cause="", correlation="", **more):
        return self.commit(family, Decision(command, events, cause, correlation), **more)

    def tamper(self, seq, old, new):
        """Change the bytes of one record."""
        record = self.records[seq - 1]
        assert old in record.body
        self.records[seq - 1] = replace(record, body=record.body.replace(old, new, 1))

    def source(self):
        return ListSource(self.records, log_id=LOG_ID)


def time_at(seq):
    return START + seq * STEP


def node(name, cpu=4000):
    return e.NodeObserved(name, f"uid-{name}", {"cpu": cpu, "memory": 1 << 33, "pods": 110})


def shape(cpu=1000, id=SHAPE):
    return e.ShapeDeclared(id, PodShape(requests={"cpu": cpu, "memory": 1 << 30, "pods": 1}, scheduler="restow"))


def pod(name, namespace="shop", shape=SHAPE, uid="", created=START):
    return e.PodObserved(uid or f"uid-{name}", namespace, name, shape, created)


def placements():
    """Two nodes and five pods of one core, placed in two sessions of which the second has two decisions."""
    log = Handmade()
    log.decide("session", c.Lead("session-0"), e.SessionLed(1, "session-0"))
    log.facts(node("a", 2000), node("b"), kind="nodes")
    log.facts(shape(), pod("web-1"), pod("web-2"), pod("web-3"))
    log.decide(
        "session",
        c.Schedule(time_at(4)),
        e.PodPlaced("uid-web-1", "a"),
        e.PodPlaced("uid-web-2", "a"),
        e.PodPlaced("uid-web-3", "b"),
        cause="3/0",
    )
    log.facts(pod("web-4"), pod("web-5"))
    log.facts(e.PodChanged("uid-web-1", "a", "Running", True))
    log.commit(
        "session",
        Decision(c.Schedule(time_at(7)), (e.PodPlaced("uid-web-4", "b"), e.PodPlaced("uid-web-5", "b")), "5/0"),
        Decision(c.RefuseBind(time_at(7), "uid-web-4", "b", "NodeGone"), (e.PodReleased("uid-web-4", "NodeGone"),)),
        read=5,
    )
    return log


def migration(lands=True, worth=None, waits=False, approved=None, ends_late=False, cordons="", cost=1_000, gone_first=False):
    """A pod is moved from a to b: planned, held, evicted, and its successor lands, or none comes. `worth`: what the plan says of itself. `waits`: another pod does,
    until it is placed on a when the successor is on b. `approved`: the plan has a second move, and a person approves these.
    `ends_late`: the old pod has not ended yet when the new one has landed. `cordons`: node a is cordoned meanwhile, for this plan.
    `gone_first`: the old pod has gone before its eviction is decided upon."""
    log = Handmade()
    owner = {"owner": OwnerRef("ReplicaSet", "web", "uid-rs")}
    spec = ReservationSpec(
        tasks=(ReservationTask("task", 1, SHAPE, node="b"),),
        owners=(OwnerRule(controller=ObjectRef(uid="uid-rs")),),
        allocate_once=True,
    )
    log.facts(node("a"), node("b"), kind="nodes")
    log.facts(shape(), replace(pod("web-old"), node="a", phase="Running", ready=True, **owner), *([pod("job")] if waits else []))
    moves = (Move("p1-1", "uid-web-old", "shop", "web-old", "a", "b", cost=cost),)
    if approved is not None:
        moves += (Move("p1-2", "uid-web-other", "shop", "web-other", "a", "b", cost=700),)
    log.decide(
        "migration",
        c.Defragment(time_at(3), "api", "p1"),
        e.Planned("p1", "Defragmentation", moves, PACKING, PACKING, ("a",), worth=worth, mode="" if approved is None else "propose"),
        cause="api",
        correlation="p1",
    )
    if approved is not None:
        log.decide("migration", c.Approve(time_at(4), "p1", "ada", moves=approved), e.PlanApproved("p1", "ada", moves=approved))
    log.decide("migration", c.Advance(time_at(4)), e.Holding("p1-1", time_at(30)))
    log.facts(
        e.ReservationObserved("uid-r", "volcano", "shop", "restow-p1-1", time_at(5), migration="p1-1", spec=spec),
        kind="reservations",
    )
    log.decide("reservation", c.Review(time_at(6)), e.ReservationAccepted("uid-r", 1, 1))
    log.decide("session", c.Schedule(time_at(7)), e.HoldPlaced("uid-r", "task-0", "b"))
    log.decide("migration", c.Advance(time_at(8)), e.Held("p1-1"), e.Evicting("p1-1", time_at(60)))
    log.facts(e.PodChanged("uid-web-old", "a", "Running", True, time_at(9)))
    if lands:
        log.facts(replace(pod("web-new"), **owner))
    if gone_first:
        log.facts(e.PodGone("uid-web-old"))
    log.decide("migration", c.Advance(time_at(11)), e.Evicted("p1-1", time_at(99)))
    if not lands:
        log.facts(e.PodGone("uid-web-old"))
        return log
    log.decide("session", c.Schedule(time_at(12)), e.HandedOver("uid-r", "task-0", "uid-web-new", "b"), *([e.PodPlaced("uid-job", "a")] if waits else []))
    if not ends_late:
        log.facts(e.PodGone("uid-web-old"))
    if cordons:
        log.facts(replace(node("a"), unschedulable=True, marks={CORDONED: f"{LOG_ID} {cordons}"}), kind="nodes")
    log.facts(e.PodChanged("uid-web-new", "b", "Running", True))
    log.decide("migration", c.Advance(time_at(15)), e.Landed("p1-1", "uid-web-new", "b"))
    return log


def fragmented(args=None):
    """Nodes of four cores: a and c run one pod, b two; c's has no controller. A policy moves a's to b."""
    log = Handmade()
    args = args or DefragmentationArgs(
        resourceType="cpu", protectionThresholds={"cpu": 95}, defragmentThresholds={"cpu": 40}, lowThresholds={"cpu": 30}
    )
    text = text_of(MigrationConfig(defragmentation=args))

    def running(name, on, owner="uid-rs"):
        ref = OwnerRef("ReplicaSet", "web", owner) if owner else None
        return replace(pod(name), node=on, phase="Running", ready=True, owner=ref)

    log.facts(node("a"), node("b"), node("c"), kind="nodes")
    log.facts(shape(), running("lone", "a"), running("b-1", "b"), running("b-2", "b"), running("bare", "c", ""))
    log.decide("migration", c.Configure(text), e.MigrationConfigured(text, digest_of(text)))
    return log


def observed():
    """As `migration`, but the plan is only observed: its pod is there at the first look, whose place is taken, and has ended at the last."""
    log = Handmade()
    owner = {"owner": OwnerRef("ReplicaSet", "web", "uid-rs")}
    log.facts(node("a"), node("b"), kind="nodes")
    log.facts(shape(), replace(pod("web-old"), node="a", phase="Running", ready=True, **owner))
    move = Move("p1-1", "uid-web-old", "shop", "web-old", "a", "b", cost=1_000)
    log.decide("migration", c.Defragment(time_at(3), "interval", "p1"), e.Planned("p1", "Defragmentation", (move,), PACKING, PACKING, ("a",), mode="observe"))
    log.decide("migration", c.LookBack(time_at(4), "p1"), e.LookedBack("p1", 1, (MoveSeen("p1-1", "there", "taken", "Insufficient cpu"),)))
    log.facts(e.PodGone("uid-web-old"))
    log.decide("migration", c.LookBack(time_at(6), "p1"), e.LookedBack("p1", 2, (MoveSeen("p1-1", "ended"),)))
    return log


def proposed(answer=""):
    """A pod is to be moved, and the plan waits for a person; `answer`: what that says, approved or rejected."""
    log = Handmade()
    owner = {"owner": OwnerRef("ReplicaSet", "web", "uid-rs")}
    log.facts(node("a"), node("b"), kind="nodes")
    log.facts(shape(), replace(pod("web-old"), node="a", phase="Running", ready=True, **owner))
    text = text_of(MigrationConfig(mode="propose"))
    log.decide("migration", c.Configure(text), e.MigrationConfigured(text, digest_of(text)))
    move = Move("p1-1", "uid-web-old", "shop", "web-old", "a", "b", cost=1_000)
    log.decide("migration", c.Defragment(time_at(4), "interval", "p1"), e.Planned("p1", "Defragmentation", (move,), PACKING, PACKING, ("a",), mode="propose"))
    if answer == "approved":
        log.decide("migration", c.Approve(time_at(5), "p1", "ada", "go"), e.PlanApproved("p1", "ada", "go"))
    elif answer == "rejected":
        log.decide("migration", c.Reject(time_at(5), "p1", "ada", "not today"), e.PlanRejected("p1", "ada", "not today"))
    return log


def budgeted():
    """After `migration` the policy lets one pod of each namespace be evicted a day, and a plan moves the successor on."""
    log = migration()
    conf = text_of(MigrationConfig(budgets=(EvictionBudget("few", 1, "day", per="namespace"),)))
    log.decide("migration", c.Advance(time_at(log.seq + 1)), e.MigrationConfigured(conf, digest_of(conf)))
    move = Move("p2-1", "uid-web-new", "shop", "web-new", "b", "a")
    log.decide("migration", c.Defragment(time_at(log.seq + 1), "api", "p2"), e.Planned("p2", "Defragmentation", (move,), PACKING, PACKING))
    return log
