"""A small cluster played by the real deciders: what the five services would write, without services.

Facts come while others decide (so `read` lags behind), several commands share a commit, workloads come and go, nodes fail,
pods are moved, services restart from snapshots. One seed, one log.
"""

import random

from replay.handmade import LOG_ID, Handmade, time_at

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import PlanId
from restow.contracts.values import (
    DeviceRequest,
    ObjectRef,
    OwnerRef,
    OwnerRule,
    PodShape,
    ReservationSpec,
    ReservationTask,
)
from restow.domain.config import DefragmentationArgs, GcConfig, MigrationConfig, text_of
from restow.domain.decider import decide_all
from restow.domain.deciders import DECIDERS
from restow.domain.effects import AbortEviction, CreateHold, DeleteReservation, Evict
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState
from restow.replay.state_at import fold_record

GPU = "restow.dev/gpu-milli"
SHAPES = {"half": (1, 500), "one": (1, 1000), "two": (2, 1000), "cpu": None}


class World:
    def __init__(self, seed, nodes=12):
        self.log, self.state, self.random = Handmade(), ClusterState(), random.Random(seed)
        self._count = 0
        for family in DECIDERS:
            self.decide(family, [c.Lead(f"{family}-0")])
        args = DefragmentationArgs(
            protectionThresholds={"nvidia.com/gpu": 99},
            defragmentThresholds={"nvidia.com/gpu": 50},
            lowThresholds={"nvidia.com/gpu": 45},
        )
        self.decide("migration", [c.Configure(text_of(MigrationConfig(defragmentation=args)))])
        self.decide("gc", [c.Configure(text_of(GcConfig(retention=20_000)))])
        self.facts(*(self.node(i) for i in range(nodes)), *(self.shape(name, gpus) for name, gpus in SHAPES.items()))

    def node(self, i, **more):
        return e.NodeObserved(f"n{i:02}", f"uid-n{i}", {"cpu": 16_000, "memory": 1 << 36, "pods": 20, GPU: 4_000}, devices=4, **more)

    def shape(self, name, gpus):
        requests = {"cpu": 1_000, "memory": 1 << 30, "pods": 1} | ({GPU: gpus[0] * gpus[1]} if gpus else {})
        spec = PodShape(requests, scheduler="restow", devices=DeviceRequest(*gpus) if gpus else None, spec_digest=name)
        return e.ShapeDeclared(name, spec)

    @property
    def now(self):
        return time_at(self.log.seq + 1)

    def _fold(self, seq):
        fold_record(self.state, self.log.records[seq - 1], LOG_ID)

    def facts(self, *events):
        if events:
            self._fold(self.log.facts(*events))

    def decide(self, family, commands):
        """Decide, let other facts come in between now and then, and commit on what was read."""
        decider, read = DECIDERS[family], self.log.seq
        decisions = decide_all(self.state, decider, commands, cause=f"{read}/0")
        if not decisions:
            return False
        if self.log.seq and self.random.random() < 0.3:
            self.facts(e.Synced("pods", str(self.log.seq)))
        self._fold(self.log.commit(family, *decisions, read=read, logic=decider.logic))
        return True

    def due(self):
        """Everything that the deciders ask for, until they are content."""
        for _ in range(100):
            busy = False
            for family, decider in DECIDERS.items():
                command = decider.due(self.state, self.now)
                if command is not None:
                    busy |= self.decide(family, [command])
            busy |= self.effects()
            if not busy:
                return

    def pod(self, shape, owner):
        self._count += 1
        ref = OwnerRef("ReplicaSet", owner, f"uid-{owner}") if owner else None
        return e.PodObserved(f"uid-p{self._count}", "lab", f"p{self._count}", shape, self.now, owner=ref)

    def effects(self):
        """The kubelets bind and run, the API creates, evicts and deletes."""
        before, facts = self.log.seq, []
        for uid, placement in list(self.state.placed.items()):
            if self.state.pods[uid].live.node is None:
                facts.append(e.PodChanged(uid, placement.node, "Running", True, devices=placement.devices))
        for effect in DECIDERS["migration"].pending(self.state, None):
            facts += self._carried_out(effect)
        owed = [*DECIDERS["migration"].pending(self.state, None), *DECIDERS["gc"].pending(self.state, None)]
        gone = dict.fromkeys(effect.reservation for effect in owed if isinstance(effect, DeleteReservation))
        self.facts(*facts, *map(e.ReservationGone, gone))
        return self.log.seq > before

    def _carried_out(self, effect):
        match effect:
            case CreateHold(migration=id):
                record = self.state.migrations[id]
                task = ReservationTask("pod", 1, record.shape, node=record.move.target)
                rule = OwnerRule(controller=ObjectRef(uid=record.lineage))
                spec = ReservationSpec((task,), (rule,), match_policy="Owner", allocate_once=True)
                yield e.ReservationObserved(f"uid-r-{id}", "volcano", "lab", f"restow-{id}", self.now, migration=id, spec=spec)
            case Evict(migration=id) if self.random.random() < 0.2:
                self.decide("migration", [c.ReportEviction(self.now, id, "Budget"), c.Advance(self.now)])
            case Evict(migration=id):
                record = self.state.migrations[id]
                victim = self.state.fact_of(record.move.pod)
                if victim is not None:
                    yield e.PodChanged(victim.pod, record.move.source, "Running", True, self.now)
                    yield self.pod(victim.shape, victim.owner.name)
                    yield e.PodGone(victim.pod)
            case AbortEviction(migration=id):
                self.decide("migration", [c.ReportEviction(self.now, id, "Aborted")])

    def play(self, steps):
        for step in range(steps):
            happens = self.random.random()
            running = sorted(uid for uid, pod in self.state.pods.items() if pod.live.phase == "Running" and not pod.live.deleting)
            if happens < 0.5 or not running:
                owner = f"web-{self.random.randrange(6)}"
                self.facts(*(self.pod(self.random.choice(list(SHAPES)), owner) for _ in range(self.random.randrange(1, 20))))
            elif happens < 0.85:
                self.facts(*(e.PodGone(uid) for uid in self.random.sample(running, len(running) // 3 or 1)))
            elif happens < 0.9:
                self.facts(self.node(step % 12, unschedulable=True))
            elif happens < 0.95:
                self.facts(e.NodeGone(f"n{step % 12:02}"), self.node(step % 12))
            else:
                task = ReservationTask("t", 3, self.random.choice(list(SHAPES)))
                rule = OwnerRule(controller=ObjectRef(uid="uid-web-1"))
                spec = ReservationSpec((task,), (rule,), ttl=self.random.choice((5_000, 50_000)), match_policy="Owner", allocate_once=True)
                self.facts(e.ReservationObserved(f"uid-r{step}", "volcano", "lab", f"r{step}", self.now, spec=spec))
            if step % 8 == 7:
                self.decide("migration", [c.Defragment(self.now, "api", PlanId(f"p{step}")), c.Advance(self.now)])
            if self.random.random() < 0.1:
                # Everybody restarts from a snapshot: nothing may depend on the order of a map.
                self.state = load(dump(self.state))
            self.due()
        return self.log
