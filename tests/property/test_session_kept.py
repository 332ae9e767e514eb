"""What sessions keep beside the state decides nothing: a state from a snapshot decides the same, whatever happened before; and at rest nobody
waits who fits. Worlds of gangs, preemption, reclaim, nodes that come and go, pods that are resized in place or change their gang."""

import random

import pytest
from domain.build import (
    NOW,
    changed,
    configured,
    given,
    in_queue,
    member,
    node,
    pod_group,
    queue,
    replica_of,
    run,
    shape,
    then,
)
from msgspec.structs import replace
from property.holds_recount import wrong

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.contracts.values import HostPort, LabelSelector, PodTerm, Spread
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.session import queues
from restow.domain.session.jobs import gang, job_of
from restow.domain.session.verdict.explain import opened
from restow.domain.snapshot import dump, load

decider = session.decider
ACTIONS = ("enqueue", "allocate", "preempt", "reclaim", "backfill")
TIERS = (("priority", "gang", "conformance"), ("drf", "predicates", "proportion", "nodeorder"))
CONF = SessionConfig(tuple(map(ActionConfig, ACTIONS)), tuple(tuple(map(PluginConfig, tier)) for tier in TIERS))
X, Y = LabelSelector({"app": "x"}), LabelSelector({"app": "y"})
RULES = (
    {}, {}, {"host_ports": (HostPort(80),)}, {"pod_anti_affinity": (PodTerm("host", X),)}, {"pod_affinity": (PodTerm("zone", Y),)},
    {"spread": (Spread(1, "zone", "DoNotSchedule", X),)}, {"node_selector": {"zone": "z0"}}, {"preemption": "Never"},
)  # fmt: skip


class World:
    def __init__(self, seed: int) -> None:
        self.luck, self.now, self.count = random.Random(seed), NOW, 0
        self.shapes = [f"s{cpu}-{priority}" for cpu in (500, 1_000, 2_000, 4_000) for priority in (0, 5)]
        declared = [shape(name, cpu=int(name[1:].partition("-")[0]), priority=int(name[-1]), **self.luck.choice(RULES)) for name in self.shapes]
        groups = e.Synced("podgroups.scheduling.volcano.sh", "1")
        self.state = given(configured("session", CONF), groups, declared, queue("a", capability={"cpu": 8_000}), queue("b", weight=2))
        self.nodes = self.luck.randint(2, 4)
        self.tell(*(self.machine(i) for i in range(self.nodes)))

    def tell(self, *facts: e.Event) -> None:
        then(self.state, *facts, time=self.now)

    def machine(self, i: int, **more) -> e.NodeObserved:
        return node(f"n{i}", cpu=self.luck.choice([3_000, 4_000, 8_000]), labels={"zone": f"z{i % 2}", "host": f"n{i}"}, **more)

    def something(self) -> None:
        luck, state = self.luck, self.state
        running = [uid for uid, pod in state.pods.items() if pod.live.node and not pod.live.deleting]
        new = {"labels": {"app": luck.choice("xy")}, "created": self.now}
        self.count += 1
        what = luck.randrange(8)
        if what < 2:
            owner = luck.choice([None, replica_of("o")])
            self.tell(*(in_queue(f"p{self.count}-{i}", luck.choice(["a", "b", "default"]), luck.choice(self.shapes), owner=owner, **new) for i in range(3)))
        elif what == 2:
            size = luck.randint(1, 4)
            self.tell(pod_group(f"g{self.count}", luck.choice("ab"), luck.randint(1, size), created=self.now))
            self.tell(*(member(f"p{self.count}-{i}", f"g{self.count}", luck.choice(self.shapes), **new) for i in range(size)))
        elif what == 3 and running:
            uid = luck.choice(running)
            self.tell(e.PodGone(uid) if luck.random() < 0.5 else changed(uid, node=state.pods[uid].live.node, phase="Running", deleting=self.now))
        elif what == 4:
            i = luck.randrange(self.nodes)
            self.tell(self.machine(i, uid=f"uid-n{i}", unschedulable=luck.random() < 0.4))
        elif what == 5 and running:
            self.describe(luck.choice(running), shape=luck.choice(self.shapes))
        elif what == 6 and running and state.pod_groups:
            uid = luck.choice(running)
            self.describe(uid, annotations={"scheduling.k8s.io/group-name": luck.choice(sorted(state.pod_groups))[1]})
        elif state.pods:
            self.tell(e.PodGone(luck.choice(list(state.pods))))

    def describe(self, uid: PodUid, **more) -> None:
        live = self.state.pods[uid].live
        self.tell(replace(self.state.pods[uid].fact, node=live.node, phase=live.phase, ready=live.ready, deleting=live.deleting, **more))

    def kubelets(self, share: float = 1.0) -> None:
        state, chance = self.state, self.luck.random
        for uid, placement in list(state.placed.items()):
            if state.pods[uid].live.node is None and chance() < share:
                self.tell(changed(uid, node=placement.node, phase="Running", ready=True))
        for uid in list(state.victims_of):
            if chance() < share:
                self.tell(changed(uid, node=state.pods[uid].live.node, phase="Running", deleting=self.now))
        self.tell(*(e.PodGone(uid) for uid, pod in list(state.pods.items()) if pod.live.deleting and chance() < share / 2))

    def sessions(self) -> None:
        for _ in range(100):
            command = decider.due(self.state, self.now)
            if command is None:
                return
            if self.luck.random() < 0.2:
                assert list(decider.decide(self.state, command)) == list(decider.decide(load(dump(self.state)), command))
            if not run(self.state, decider, command):
                return
        raise AssertionError("no rest")

    def waits_and_fits(self) -> list[PodUid]:
        state, found = self.state, []
        with opened(state) as seen:
            for uid in [uid for uid in state.pods if state.awaits_placement(uid)]:
                pod, job, group = state.pods[uid].fact, seen.job_for(uid), job_of(state, state.pods[uid].fact)
                if queues.refused(state, job.queue) or seen.gates.quota(job, pod) or (group is not None and gang(state, group).short(1)):
                    continue
                if not seen.extensions.refusal("overused", job.queue) and seen.find(pod) is not None:
                    found.append(uid)
        return found


@pytest.mark.parametrize("seed", range(8))
def test_a_state_from_a_snapshot_decides_the_same_and_at_rest_nobody_waits_who_fits(seed):
    world = World(seed)
    for _ in range(20):
        world.now += world.luck.choice([10, 1_000, 30_000])
        world.something()
        world.sessions()
        world.kubelets(world.luck.random())
        assert wrong(world.state) == []
    for _ in range(12):
        world.now += 30_000
        world.sessions()
        world.kubelets()
    world.sessions()
    assert world.waits_and_fits() == []
