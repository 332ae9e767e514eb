"""Reservations played by the real deciders, in commits that facts may come between: each step is a few small numbers, so that
what fails shrinks. After every commit the state is added up anew, and the judge of logs has read it."""

import json

from checker import Judge
from domain.build import NOW, configured, node, owner, pod, reservation, shape
from domain.test_cores import machine
from msgspec.structs import replace
from property.holds_recount import wrong

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision, encode_event
from restow.contracts.values import (
    CoreRequest,
    DeviceShare,
    Gpu,
    HostPort,
    LabelSelector,
    ObjectRef,
    OwnerRule,
    PodTerm,
    Taint,
)
from restow.domain import gc, session
from restow.domain import reservation as reservations
from restow.domain import session_config as conf
from restow.domain.decider import decide_all
from restow.domain.fold import fold
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState
from restow.replay.diff import diff

SESSIONS = 40
"""Far more commits than a session makes of a step."""
SHAPES = {
    "c1": {"cpu": 1_000}, "c2": {"cpu": 2_000}, "c3": {"cpu": 3_000}, "c6": {"cpu": 6_000},
    "g5": {"gpu": (1, 500)}, "g6": {"gpu": (1, 600)}, "g10": {"gpu": (1, 1_000)}, "g20": {"gpu": (2, 1_000)},
    "k2": {"cpu": 2_000, "cores": CoreRequest(2, "FullPCPUs", True)}, "k4": {"cpu": 4_000, "cores": CoreRequest(4)},
    "port": {"cpu": 500, "host_ports": (HostPort(80),)},
    "anti": {"cpu": 500, "pod_anti_affinity": (PodTerm("host", LabelSelector({"app": "a"})),)},
    "vip": {"cpu": 4_000, "priority": 10}, "none": {"cpu": 0, "memory": 0},
}  # fmt: skip
NAMES = list(SHAPES)
NODES = {"n0": (8_000, 2, machine()), "n1": (5_000, 2, ()), "n2": (4_000, 0, machine(zones=1, cores=2))}
HOLDS = tuple(f"r{i}" for i in range(5))
AFFINITY, EXACT = "scheduling.koordinator.sh/reservation-affinity", "scheduling.koordinator.sh/exact-match-reservation"
IGNORED = {"scheduling.koordinator.sh/reservation-ignored": "true"}
ORDER = "scheduling.koordinator.sh/reservation-order"
PREEMPT = conf.read_conf({"actions": ["enqueue", "reserve", "allocate", "preempt", "backfill"]})


class Play:
    def __init__(self, preempt: bool) -> None:
        self.state, self.judge, self.now, self.count = ClusterState(), Judge(), NOW, 0
        self.log: list[tuple[str, int, list[e.Event]]] = []
        if preempt:
            self.facts(configured("session", PREEMPT), family="session")
        self.facts(*(shape(name, **({"memory": 0} | said)) for name, said in SHAPES.items()))
        self.facts(*(self.node(name) for name in NODES))

    @staticmethod
    def node(name: str, uid: int = 0, shrunk: int = 0, gpus: int | None = None) -> e.NodeObserved:
        cpu, devices, cpus = NODES[name]
        return node(name, max(cpu - shrunk, 500), gpus=devices if gpus is None else gpus, uid=f"{name}-{uid}", cpus=cpus, labels={"host": name}, pods=20)

    # -- commits -------------------------------------------------------------------------------------------------------

    def commit(self, family: str, decisions: list[Decision], read: int | None = None) -> None:
        seq = self.state.seq + 1
        events = [event for decision in decisions for event in decision.events]
        self.log.append((family, seq, events))
        fold(self.state, seq, family, self.now, decisions)
        self.judge.commit(seq, family, seq - 1 if read is None else read, [json.loads(encode_event(event)) for event in events])
        assert not self.judge.report.broken, self.judge.report.broken
        found = wrong(self.state)
        assert not found, found

    def facts(self, *events: e.Event, family: str = "cluster") -> None:
        if events:
            self.commit(family, [Decision(c.Observe("t", "t"), events)])

    def decide(self, decider, command: c.Command, between: tuple | None = None) -> bool:
        """A decision, and what facts `between` it and its commit."""
        decisions, read = decide_all(self.state, decider, [command]), self.state.seq
        if not decisions:
            return False
        if between is not None:
            self.facts(*self.fact(*between))
        self.commit(decider.family, decisions, read)
        return True

    def work(self, between: tuple | None = None) -> None:
        """All services until nobody has anything to do."""
        for _ in range(SESSIONS):
            self.decide(reservations.decider, c.Review(self.now), between)
            command = session.decider.due(self.state, self.now)
            if command is None or not self.decide(session.decider, command, between):
                return
            between = None
        raise AssertionError(f"still busy after {SESSIONS} sessions: {self.log[-3:]}")

    def restart(self) -> None:
        """From a snapshot everything goes on as it would have."""
        again = load(dump(self.state))
        assert not (found := diff(self.state, again)), found
        assert not (found := wrong(again)), found
        for decider, command in ((reservations.decider, c.Review(self.now)), (session.decider, c.Schedule(self.now, 2_000))):
            here, there = (decide_all(state, decider, [command]) for state in (self.state, again))
            assert here == there, f"{here} here, {there} from a snapshot"
        assert not (found := diff(self.state, again)), found
        self.state = again

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self, kind: str, a: int, b: int, d: int) -> None:
        self.count += 1
        self.now += 1_000
        match kind:
            case "work":
                self.work()
            case "race":
                self.work((RACES[a % len(RACES)], b, d, a))
            case "restart":
                self.restart()
            case "refuse":
                placed = self.pick([p for p in self.state.placed if self.state.pods[p].live.node is None], a)
                if placed:
                    self.decide(session.decider, c.RefuseBind(self.now, placed, self.state.placed[placed].node, "refused"))
            case "expire":
                if uid := self.pick(self.state.reservations, a):
                    self.facts(e.Expired(uid), family="gc")
            case "collect":
                self.now += 3_600_000 * (a % 3)
                self.decide(gc.decider, c.Collect(self.now))
            case _:
                self.facts(*self.fact(kind, a, b, d))

    @staticmethod
    def pick(items, a: int):
        found = list(items)
        return found[a % len(found)] if found else None

    def fact(self, kind: str, a: int, b: int, d: int) -> list[e.Event]:
        """What somebody outside does; nothing where there is nothing to do it to."""
        state, pods = self.state, self.state.pods
        match kind:
            case "ask":
                return [self.asked(HOLDS[a % len(HOLDS)], b, d)]
            case "pod":
                return [self.pod(f"p{self.count}", a, b, d)]
            case "foreign":
                return [self.foreign(f"x{self.count}", a, b)]
            case "bind":
                return self.bound(self.pick([p for p in state.placed if pods[p].live.node is None], a))
            case "bind-all":
                return [event for p in list(state.placed) if pods[p].live.node is None for event in self.bound(p)]
            case "elsewhere":
                uid = self.pick([p for p in state.placed if pods[p].live.node is None], a)
                return [e.PodChanged(uid, self.pick(NODES, b), "Running", True, devices=self.shares(uid, b))] if uid else []
            case "ends":
                uid = self.pick([p for p in pods if pods[p].live.node], a)
                return [replace(pods[uid].live, phase=("Succeeded", "Failed")[b % 2], ready=False)] if uid else []
            case "deleting":
                uid = self.pick([p for p in pods if not pods[p].live.deleting], a)
                return [replace(pods[uid].live, deleting=self.now)] if uid else []
            case "gone":
                uid = self.pick([*state.victims_of, *pods] if b % 2 else pods, a)
                return [e.PodGone(uid)] if uid else []
            case "node":
                return self.node_fact(self.pick(NODES, a), b, d)
            case "unask":
                uid = self.pick(state.reservations, a)
                if not uid:
                    return []
                fact = state.reservations[uid].fact
                return [e.ReservationGone(uid)] if b % 2 else [replace(fact, deleting=self.now)]
        raise AssertionError(kind)

    def node_fact(self, name: str, b: int, d: int) -> list[e.Event]:
        if name not in self.state.nodes:
            return [self.node(name, d)]
        match b % 6:
            case 0:
                return [e.NodeGone(name)]
            case 1:
                return [self.node(name, d)]
            case 2:
                return [self.node(name, shrunk=1_000 * (d % 8))]
            case 3:
                return [self.node(name, gpus=d % 3)]
            case 4:
                return [e.DeviceObserved(name, tuple(Gpu(i, bool(d >> i & 1)) for i in range(2)))]
        return [e.DeviceGone(name)] if name in self.state.device_objects else []

    def shares(self, uid: str, b: int) -> tuple[DeviceShare, ...]:
        ask = self.state.shapes[self.state.pods[uid].fact.shape].devices
        return tuple(DeviceShare((b + i) % 2, ask.milli) for i in range(ask.count)) if ask else ()

    def bound(self, uid: str | None) -> list[e.Event]:
        if not uid:
            return []
        placed = self.state.placed[uid]
        return [e.PodChanged(uid, placed.node, "Running", True, devices=placed.devices, cores=placed.cores)]

    def foreign(self, name: str, a: int, b: int) -> e.PodObserved:
        kind = NAMES[a % len(NAMES)]
        kind = "c2" if kind in ("k2", "k4") else kind
        ask = SHAPES[kind].get("gpu")
        shares = tuple(DeviceShare((b + i) % 2, ask[1]) for i in range(ask[0])) if ask else ()
        return pod(name, kind, self.pick(NODES, b), devices=shares, labels={"app": "a"} if b % 5 == 0 else {})

    def pod(self, name: str, a: int, b: int, d: int) -> e.PodObserved:
        labels = [{"app": "a"}, {"app": "a"}, {"app": "a"}, {"app": "b"}, {}, IGNORED, {"app": "a"} | IGNORED][b % 7]
        notes = [{}] * 6 + [
            {AFFINITY: "{}"}, {AFFINITY: '{"name": "r1"}'}, {EXACT: '{"resourceNames": ["cpu"]}'},
            {AFFINITY: '{"tolerations": [{"key": "t", "operator": "Exists"}]}'}, {AFFINITY: '{"reservationSelector": {"tier": "x"}}'},
            {AFFINITY: "{"},
        ]  # fmt: skip
        return pod(name, NAMES[a % len(NAMES)], labels=labels, annotations=notes[d % len(notes)], namespace=["default", "default", "other"][d % 3])

    def asked(self, uid: str, b: int, d: int) -> e.ReservationObserved:
        """A Reservation, or another generation of it."""
        of_name = [r for r in self.state.reservations.values() if r.fact.name == uid and not r.gone]
        known = of_name[-1] if of_name else None
        generation = known.fact.generation + (d % 4 > 0) if known is not None else 1
        many = (HOLDS.index(uid) + d // 7) % 2 == 0
        once = HOLDS.index(uid) % 2 == 0 or many
        kind = NAMES[b % (len(NAMES) - 1)]
        spec = {
            "allocate_once": once,
            "allocate_policy": ["Aligned", "Aligned", "Restricted", "Covering"][d % 4],
            "restricted": ("cpu",) if d % 8 == 2 and "gpu" not in SHAPES[kind] else (),
            "match_policy": "PodSpec" if d % 11 == 10 else "Owner",
            "pre_allocation": d % 3 == 0,
            "unschedulable": d % 13 == 12,
            "taints": (Taint("t", "NoSchedule"),) if d % 7 == 6 else (),
            "owners": [(owner(app="a"),), (owner(app="a"),), (owner(app="b"), owner(app="a")), (OwnerRule(object=ObjectRef(name="p9")),)][(b + d) % 4],
            "ttl": [None, None, 0, 1_800_000][d % 4],
            "min_available": d % 2 if many else 0,
            "namespace": ["default", ""][HOLDS.index(uid) % 2],
        }
        labels = [{}, {}, {ORDER: "1"}, {ORDER: "2"}, {"tier": "x"}][(b + d) % 5]
        fact = reservation(uid, ("t", 1 + (b + d) % 3 if once and many else 1, kind), generation=generation, **spec)
        if known is None:
            return replace(fact, reservation=f"{uid}-{self.count}", labels=labels, created=self.now)
        old = known.fact
        return replace(fact, reservation=old.reservation, labels=labels, created=old.created, deleting=old.deleting)

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Everything is taken away: nothing is held, and nobody is left."""
        self.work()
        self.facts(*(e.ReservationGone(uid) for uid in self.state.reservations))
        self.work()
        self.facts(*(e.PodGone(uid) for uid in self.state.pods))
        self.work()
        state = self.state
        left = (state.reservations, state.allocations, state.slot_users, state.held_on, state.waiting_on, state.to_release)
        assert not any(left), left
        assert not state.table.reserved.any()
        assert not state.table.used.any()
        self.judge.end()
        assert not self.judge.report.broken, self.judge.report.broken
        assert self.judge.report.holds_left == 0


FACTS = ("ask", "pod", "foreign", "bind", "bind-all", "elsewhere", "ends", "deleting", "gone", "node", "unask")
RACES = ("foreign", "bind-all", "gone", "node", "deleting", "unask", "ask", "ends")
