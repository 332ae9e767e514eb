"""Moves of a Deployment's pods against a model of the Deployment and ReplicaSet controllers, which shares no code with Restow: whatever people do and however late
its facts come, a slot is given up only where those controllers make no successor for it, and is given up where they make none.

The model is of kubernetes 1.36 (pkg/controller/deployment, pkg/controller/replicaset): sizes of ReplicaSets step by step, `maxSurge` and `maxUnavailable`, Recreate,
a ReplicaSet's `status.replicas` as it was before it acted, and whom it deletes first."""

import copy
from collections import deque
from dataclasses import dataclass, field

import msgspec
from domain.build import NOW, changed, configured, given, node, pod, replica_of, shape, then
from domain.saga import advance, create, move, plan, session_answers
from effort import examples
from hypothesis import HealthCheck, example, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.domain.config import MigrationConfig
from restow.domain.records import FINAL, Step
from restow.kube.decode import DEPLOYMENTS
from restow.kube.workloads import workload_fact

LAND = 300_000
SHAPES = {1: "s", 2: "big", 3: "s"}
"""By revision: pods of the third may follow those of the first."""


@dataclass
class Pod:
    name: str
    revision: int
    ready: bool = False
    deleting: bool = False


@dataclass
class ReplicaSet:
    revision: int
    wants: int = 0
    status: int = 0
    ready: int = 0
    desired: int = 0
    """The Deployment's number when it was scaled last (annotation desired-replicas)."""


@dataclass
class Cluster:
    replicas: int
    surge: int
    unavailable: int
    recreate: bool
    revision: int = 1
    paused: bool = False
    generation: int = 1
    observed: int = 0
    status: int = 0
    updated: int = 0
    sets: dict[int, ReplicaSet] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    made: int = 0

    # -- what people do

    def scale(self, number: int) -> None:
        self._changed(number != self.replicas)
        self.replicas = number

    def roll(self, revision: int) -> None:
        self._changed(revision != self.revision)
        self.revision = revision

    def pause(self, paused: bool) -> None:
        self._changed(paused != self.paused)
        self.paused = paused

    def _changed(self, really: bool) -> None:
        self.generation += really

    def delete(self, name: str) -> None:
        self.pods[name].deleting = True

    # -- what controllers do: each call is one sync

    def of(self, revision: int) -> list[Pod]:
        return [one for one in self.pods.values() if one.revision == revision and not one.deleting]

    def sync_replica_set(self, revision: int) -> bool:
        mine, known = self.of(revision), self.sets[revision]
        before = (known.status, known.ready, len(mine))
        known.status, known.ready = len(mine), sum(one.ready for one in mine)
        for _ in range(known.wants - len(mine)):
            self.made += 1
            name = f"n{self.made}"
            self.pods[name] = Pod(name, revision)
        for one in sorted(mine, key=lambda one: (one.ready, -int(one.name[1:])))[: max(len(mine) - known.wants, 0)]:
            one.deleting = True
        return before != (known.status, known.ready, len(self.of(revision)))

    def sync_deployment(self) -> bool:
        before = copy.deepcopy((self.observed, self.status, self.updated, self.sets))
        if self.paused or any(one.desired != self.replicas for one in self.sets.values() if one.wants):
            self._scales()
        elif self.recreate:
            self._recreates()
        else:
            self._rolls()
        self.observed, self.status = self.generation, sum(one.status for one in self.sets.values())
        self.updated = self.sets[self.revision].status if self.revision in self.sets else 0
        return before != (self.observed, self.status, self.updated, self.sets)

    def _old(self) -> list[ReplicaSet]:
        return [one for one in self.sets.values() if one.revision != self.revision]

    def _new(self) -> ReplicaSet:
        if self.revision not in self.sets:
            self.sets[self.revision] = ReplicaSet(self.revision, desired=self.replicas)
        return self.sets[self.revision]

    def _scales(self) -> None:
        active = [one for one in self.sets.values() if one.wants]
        if len(active) <= 1:
            for one in active or ([self.sets[self.revision]] if self.revision in self.sets else []):
                one.wants = self.replicas
        elif not self.recreate:
            most = self.replicas + self.surge if self.replicas else 0
            missing = most - sum(one.wants for one in active)
            for one in sorted(active, key=lambda one: -one.wants):
                share = max(-one.wants, min(missing, one.wants)) if missing < 0 else missing
                one.wants, missing = one.wants + share, missing - share
        for one in self.sets.values():
            one.desired = self.replicas

    def _recreates(self) -> None:
        if any(one.wants for one in self._old()):
            for one in self._old():
                one.wants = 0
        elif not any(one.revision != self.revision for one in self.pods.values()):
            self._new().wants, self._new().desired = self.replicas, self.replicas

    def _rolls(self) -> None:
        new, old = self._new(), self._old()
        room = self.replicas + self.surge - sum(one.wants for one in self.sets.values())
        aim = self.replicas if new.wants > self.replicas else max(new.wants, min(self.replicas, new.wants + room))
        new.desired = self.replicas
        if aim != new.wants:
            new.wants = aim
            return
        spare = sum(one.wants for one in self.sets.values()) - (self.replicas - self.unavailable) - (new.wants - new.ready)
        for one in old:  # those that are not ready cost nothing
            unhealthy = max(min(one.wants - one.ready, spare), 0)
            one.wants, spare = one.wants - unhealthy, spare - unhealthy
        spare = min(spare, sum(min(one.ready, one.wants) for one in self.sets.values()) - (self.replicas - self.unavailable))
        for one in old:
            fewer = max(min(one.wants, spare), 0)
            one.wants, spare = one.wants - fewer, spare - fewer

    def kubelets(self) -> bool:
        gone = [name for name, one in self.pods.items() if one.deleting]
        late = [one for one in self.pods.values() if not one.ready and not one.deleting]
        for name in gone:
            del self.pods[name]
        for one in late:
            one.ready = True
        return bool(gone or late)

    def controllers(self) -> None:
        while any([*(self.sync_replica_set(revision) for revision in list(self.sets)), self.sync_deployment()]):
            pass

    def settles(self) -> None:
        for _ in range(100):
            self.controllers()
            if not self.kubelets():
                return
        raise AssertionError("the controllers never come to rest")


ABOVE = replica_of("web", "Deployment")


class Play:
    """The model and the log: what each watch has not told yet waits in its queue."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.watches = cluster, {"pods": deque(), "deployments": deque()}
        self.told: dict[str, tuple[str, bool, bool]] = {}
        self.said: e.Event | None = None
        self.known: set[int] = set()
        self.touched_at: dict[str, int] = {}
        self.touches = 0
        self.waits_on: set[str] = set()
        self.now = 0
        conf = configured("migration", MigrationConfig(max_unavailable=0, evictions_per_minute=0, land_deadline=LAND))
        self.state = given(conf, *(node(name, cpu=100_000) for name in "ab"), shape("s"), shape("big", cpu=2_000))
        self.bound: dict[str, str] = {}
        self.cluster.settles()
        self.heard()
        self.tell("deployments", "pods")

    def fact_of_deployment(self) -> e.Event:
        c = self.cluster
        raw = {
            "metadata": {"name": "web", "namespace": "default", "uid": ABOVE.uid, "generation": c.generation},
            "spec": {"replicas": c.replicas, "paused": c.paused},
            "status": {"observedGeneration": c.observed, "replicas": c.status, "updatedReplicas": c.updated},
        }
        fact = workload_fact(DEPLOYMENTS.object(msgspec.json.encode(raw)), DEPLOYMENTS)
        assert fact is not None
        return fact

    def heard(self) -> None:
        """What the API has now goes into the watches."""
        for revision in sorted(set(self.cluster.sets) - self.known):
            self.known.add(revision)
            name = f"web-{revision}"
            self.watches["deployments"].append((e.WorkloadObserved(f"uid-{name}", "ReplicaSet", "default", name, owner=ABOVE),))
        if (fact := self.fact_of_deployment()) != self.said:
            self.said = fact
            self.watches["deployments"].append((fact,))
        for name in [name for name in self.told if name not in self.cluster.pods]:
            del self.told[name]
            self.watches["pods"].append((e.PodGone(name),))
        for name, one in self.cluster.pods.items():
            now = (self.bound.get(name, ""), one.ready and name in self.bound, one.deleting)
            was = self.told.get(name)
            if was == now:
                continue
            self.told[name] = now
            if was is None:
                first = pod(name, SHAPES[one.revision], owner=replica_of(f"web-{one.revision}"))
                self.watches["pods"].append((first,))
            if now != ("", False, False):
                self.watches["pods"].append((changed(name, node=now[0] or None, phase="Running" if now[0] else "Pending", ready=now[1], deleting=NOW if now[2] else 0),))

    def tell(self, *names: str, most: int = 1_000) -> None:
        for name in names:
            for _ in range(most):
                if not self.watches[name]:
                    break
                for fact in self.watches[name].popleft():
                    if isinstance(fact, e.PodChanged | e.PodGone) and fact.pod not in self.state.pods:
                        continue
                    then(self.state, fact, time=NOW + self.now)
                self.goes_on()

    def goes_on(self) -> None:
        early = ("NotNeeded", "Elsewhere") if self.now == 0 else ("NotNeeded",)
        ended = [one for one in advance(self.state, self.now) if isinstance(one, e.MigrationFailed) and one.reason in early]
        session_answers(self.state, self.now)
        ended += [one for one in advance(self.state, self.now) if isinstance(one, e.MigrationFailed) and one.reason in early]
        for one in ended:
            self.judge(one.migration)

    def waiting(self) -> set[str]:
        return {id for id in self.state.active if self.state.migrations[id].step is Step.EVICTED and not self.state.migrations[id].successor}

    def evicted_untold(self) -> set[str]:
        """They wait, too, be it that the log takes them back meanwhile: the watch of pods has not told yet that the API has accepted their evictions."""
        sent = [one for id in self.state.active if (one := self.state.migrations[id]).step in (Step.EVICTING, Step.ABORTING)]
        return {one.id for one in sent if one.move.pod not in self.cluster.pods or self.cluster.pods[one.move.pod].deleting}

    def judge(self, id: str) -> None:
        """None of those who come is for it, if nobody does anything more. Where the facts are behind by a change of somebody's since its eviction, nothing can be known.
        Nor where something was told since, and another number of pods is on its way: that what was told is from before the eviction, nobody can see.
        Where it has ended because those that may follow it are elsewhere, they do not count among those who come."""
        record = self.state.migrations[id]
        behind = any(self.watches.values())
        if behind and (self.touches > self.touched_at.get(id, 0) or (record.told and self.number_untold())):
            return
        future = copy.deepcopy(self.cluster)
        future.settles()
        followers = [one for one in future.pods.values() if one.revision in (1, 3)] if self.state.migrations[id].shape == "s" else [one for one in future.pods.values() if one.revision == 2]
        new = [one.name for one in followers if one.name not in self.cluster.pods]
        unseen = [name for name in self.cluster.pods if name not in self.state.pods and not self.cluster.pods[name].deleting and SHAPES[self.cluster.pods[name].revision] == record.shape]
        here = [uid for uid in self.state.pods if self.state.pods[uid].order > record.came_before and uid not in {m.successor for m in self.state.migrations.values()}
                and self.state.pods[uid].fact.shape == record.shape and not self.state.pods[uid].live.deleting and uid in future.pods
                and not (record.reason == "Elsewhere" and self.state.pods[uid].live.node)]
        others = (self.waiting() | self.evicted_untold()) - {id}
        assert len(new) + len(unseen) + len(here) <= len(others), f"{id} is given up, and {new}, {unseen}, {here} come or are there, for {others} {self.cluster} -> {future}"

    def number_untold(self) -> bool:
        known = self.state.workloads.get(ABOVE.uid)
        facts = [fact for some in self.watches["deployments"] for fact in some if isinstance(fact, e.WorkloadObserved) and fact.uid == ABOVE.uid]
        return any(known is None or fact.wanted != known.wanted for fact in facts)

    def evict(self, which: int, number: int) -> None:
        moved = {one.move.pod for one in self.state.migrations.values() if one.step not in FINAL}
        at = sorted(uid for uid, known in self.state.pods.items() if known.live.node and known.live.ready and not known.live.deleting and uid not in moved)
        if not at:
            return
        uid = at[which % len(at)]
        source = self.state.pods[uid].live.node
        id = f"x-{number}"
        then(self.state, plan(f"x{number}", move(id, uid, source, "b" if source == "a" else "a")), time=NOW + self.now)
        advance(self.state, self.now)
        if self.state.migrations[id].step is not Step.HOLDING:
            return
        create(self.state, id)
        session_answers(self.state, self.now)
        self.touched_at[id] = self.touches
        advance(self.state, self.now)
        if self.state.migrations[id].step is Step.EVICTING and uid in self.cluster.pods:
            self.cluster.delete(uid)


KINDS = ("scale", "roll", "pause", "resume", "delete", "deployment", "replicaset", "kubelets", "evict", "evict", "pods", "deployments", "controllers", "settle", "watch")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5)), min_size=3, max_size=30)
CLUSTERS = st.tuples(st.integers(1, 4), st.sampled_from([(1, 0), (0, 1), (1, 1), (2, 1)]), st.booleans())


def do(play: Play, what: str, which: int, number: int) -> None:
    cluster = play.cluster
    play.touches += what in ("scale", "roll", "pause", "resume", "delete")
    match what:
        case "scale":
            cluster.scale(which)
        case "roll":
            cluster.roll(1 + which % 3)
        case "pause" | "resume":
            cluster.pause(what == "pause")
        case "delete" if cluster.pods:
            cluster.delete(sorted(cluster.pods)[which % len(cluster.pods)])
        case "deployment":
            cluster.sync_deployment()
        case "replicaset" if cluster.sets:
            cluster.sync_replica_set(sorted(cluster.sets)[which % len(cluster.sets)])
        case "controllers":
            cluster.controllers()
        case "kubelets":
            kubelets(play)
        case "evict":
            play.evict(which, number)
        case "pods" | "deployments":
            play.tell(what, most=1 + which)
        case "watch":
            play.tell("deployments", "pods") if which % 2 else play.tell("pods", "deployments")
        case "settle":
            settle(play)
    play.heard()
    play.goes_on()


def kubelets(play: Play) -> bool:
    """Who has a node by the log is bound, and then ready."""
    for name in play.cluster.pods:
        placed = play.state.placed.get(name)
        if name not in play.bound and placed is not None:
            play.bound[name] = placed.node
    waits = {name for name, one in play.cluster.pods.items() if name not in play.bound and not one.deleting}
    held = {name: play.cluster.pods.pop(name) for name in waits}
    moved = play.cluster.kubelets()
    play.cluster.pods.update(held)
    return moved


def settle(play: Play) -> None:
    for _ in range(60):
        play.cluster.controllers()
        play.heard()
        play.tell("deployments", "pods")
        moved = kubelets(play)
        play.heard()
        if not moved and not any(play.watches.values()):
            return
    raise AssertionError("nothing comes to rest")


SCALED_UP_UNTOLD = [("scale", 3), ("controllers", 0), *[("pods", 5), ("kubelets", 0)] * 2, ("pods", 5), ("evict", 0), ("pods", 5)]
"""The watch of Deployments is behind that of pods when one of them is evicted: those that are left are as many as were wanted before."""


EVICTED_UNTOLD = [("scale", 2), ("evict", 0), ("evict", 0), ("settle", 0)]
"""Two are evicted, one comes: for the second, of which the log knows no more than that it is to be taken back (its Deployment is at work)."""


CAME_BEFORE_THE_SLOT = [("scale", 2), ("evict", 0), ("replicaset", 0), ("evict", 0), ("deployment", 0)]
"""As before, but the one that comes has a node before the log knows that the second has left: nobody waits for that slot, and nobody more comes."""


TO_NONE_AND_BACK_UNTOLD = [("scale", 0), ("deployment", 0), ("scale", 1), ("evict", 0), ("watch", 0)]
"""What is told first after the eviction is from before it."""


@drawn(CLUSTERS, STEPS)
@example((1, (1, 0), False), TO_NONE_AND_BACK_UNTOLD)
@example((3, (1, 0), False), CAME_BEFORE_THE_SLOT)
@example((2, (1, 0), False), SCALED_UP_UNTOLD)
@example((3, (1, 0), False), EVICTED_UNTOLD)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_slot_is_given_up_where_no_successor_comes_for_it_and_nowhere_else(kind, steps):
    replicas, (surge, unavailable), recreate = kind
    play = Play(Cluster(replicas, surge, unavailable, recreate))
    settle(play)
    for number, (what, which) in enumerate(steps, 1):
        do(play, what, which, number)
    do(play, "resume", 0, 0)
    settle(play)
    for id in play.waiting():
        record = play.state.migrations[id]
        assert not record.told, f"nobody comes for {id}, and its Deployment has told so since its eviction: {play.cluster}"
    play.now = 2 * LAND + 4_000_000
    play.goes_on()
    assert not play.waiting(), "the time to land is an end, too"
