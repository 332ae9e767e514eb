"""Who is lost in the model, and who is not: nodes that go away, and evictions that came to nothing."""

import pytest
from msgspec.structs import replace
from replay.test_whatif import Simple, waits

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import (
    Gpu,
    ObjectRef,
    OwnerRef,
    OwnerRule,
    PodShape,
    ReservationSpec,
    ReservationTask,
    Taint,
)
from restow.domain import effects as owed
from restow.domain.deciders import DECIDERS
from restow.replay.times import Point
from restow.replay.whatif.answer import Begin, Change, answer, changed_world
from restow.replay.whatif.model import ORPHANED, Model
from restow.replay.whatif.reading import Stretch, read


class Web(Simple):
    """Pods of ReplicaSets, and one of them that is to be moved."""

    def __init__(self, nodes=3):
        super().__init__(nodes)
        for family in ("migration", "reservation", "gc"):
            self.decide(family, c.Lead("a"))

    def runs(self, *names, kind="ReplicaSet"):
        for name in names:
            self.facts(e.PodObserved(f"uid-{name}", "lab", name, "one", self.now, owner=OwnerRef(kind, f"of-{name}", f"uid-of-{name}")))
            self.scheduled()

    def moves(self, name, target, evict):
        """Its slot is held; then what `evict` says of its eviction."""
        self.decide("migration", c.MovePod(self.now, "p1", f"uid-{name}", target))
        for _ in range(12):
            for family, decider in DECIDERS.items():
                if (command := decider.due(self.state, self.now)) is not None:
                    self.decide(family, command)
            for effect in (*DECIDERS["migration"].pending(self.state, None), *DECIDERS["gc"].pending(self.state, None)):
                match effect:
                    case owed.CreateHold(migration=id):
                        record = self.state.migrations[id]
                        task, rule = ReservationTask("pod", 1, record.shape, node=record.move.target), OwnerRule(controller=ObjectRef(uid=record.lineage))
                        spec = ReservationSpec((task,), (rule,), match_policy="Owner", allocate_once=True)
                        self.facts(e.ReservationObserved(f"uid-r-{id}", "volcano", "lab", f"restow-{id}", self.now, migration=id, spec=spec))
                    case owed.Evict(migration=id):
                        evict(id)
                    case owed.AbortEviction(migration=id):
                        self.decide("migration", c.ReportEviction(self.now, id, "Aborted"))
                    case owed.DeleteReservation(reservation=uid):
                        self.facts(e.ReservationGone(uid))

    def refuse(self, id):
        self.decide("migration", c.ReportEviction(self.now, id, "Refused"))

    def terminates(self, name):
        self.facts(replace(self.state.pods[f"uid-{name}"].live, deleting=self.now))


def test_a_pod_whose_eviction_was_refused_goes_when_somebody_deletes_it_later():
    """Its move failed, and it stayed. (It was taken for evicted: it lived for ever in the model, and the record had lost what it had done.)"""
    world = Web()
    world.runs("a")
    world.moves("a", "n2", world.refuse)
    assert [one.reason for one in world.state.migrations.values()] == ["Refused"]
    world.passes(60)
    world.terminates("a")
    world.deleted("a")
    world.passes(5)
    recorded = read(world.source())
    (life,) = recorded.lives
    assert (life.pods, life.killed, life.deleted > 0) == (["uid-a"], False, True)
    assert (recorded.happened.failed, recorded.happened.lost_gpu_hours) == (1, 0.0)
    model = Model(recorded)
    assert model.run().measured.samples[-1].free_devices == 3
    assert not model.state.pods


def test_a_victim_that_was_spared_goes_when_somebody_deletes_it_later():
    world = Web()
    world.runs("a")
    for told in (e.Preempted("uid-a", "uid-b", "preempt"), e.PreemptionEnded("uid-a", "no longer")):
        world._fold(world.log.decide("session", c.Schedule(world.now), told, logic=DECIDERS["session"].logic))
    world.passes(60)
    world.deleted("a")
    recorded = read(world.source())
    assert (recorded.lives[0].killed, recorded.lives[0].deleted > 0, recorded.happened.lost_gpu_hours) == (False, True, 0.0)


@pytest.mark.parametrize("seen", ["changed", "described anew", "only gone"])
def test_what_an_eviction_loses_is_counted_however_it_was_seen(seen):
    """A watcher that was away sees no more than that the pod is gone, and one that is described anew in the same moment is told as a whole (the record had lost nothing)."""
    world = Web()
    world.runs("a")
    world.passes(60)

    def evict(_):
        known = world.state.pods.get("uid-a")
        if known is None or known.live.deleting:
            return
        if seen == "changed":
            world.terminates("a")
        elif seen == "described anew":
            moving = {name: getattr(known.live, name) for name in e.PodChanged.__struct_fields__ if name != "pod"}
            world.facts(replace(known.fact, **moving | {"deleting": world.now}, annotations={"a": "b"}))
        world.facts(e.PodGone("uid-a"))

    world.moves("a", "n2", evict)
    happened = read(world.source()).happened
    assert happened.moves == 1
    assert happened.lost_gpu_hours == pytest.approx(70 / 3600, abs=0.005)


def gone(*more):
    """Three nodes of one device; the third is empty, and goes away."""
    world = Web()
    world.runs("a", "b")
    assert {pod.live.node for pod in world.state.pods.values()} == {"n0", "n1"}
    world.facts(e.NodeGone("n2"), *more)
    world.passes(60)
    return world


def test_who_is_in_the_model_alone_on_a_node_that_goes_comes_again():
    """With a node less, b is on the third one, which is taken away later. (It went on running where there is no node, and nobody waited.)"""
    found = answer(gone().source(), Change(nodes=((-1, "n0"),)))
    assert found.error.same == found.error.placements == 2
    assert (waits(found.model).waiting, waits(found.changed).waiting) == (0, 1)
    assert waits(found.changed).longest == 60_000 - ORPHANED


def test_who_is_on_a_node_that_comes_back_in_time_stays():
    world = gone()
    again = replace(world.state.nodes["n1"], name="n2", uid="uid-again")
    found = answer(gone(again).source(), Change(nodes=((-1, "n0"),)))
    assert waits(found.changed).waiting == 0


def test_who_was_there_in_the_record_too_goes_as_recorded():
    """Also one that stays for long: whoever deletes pods there may be away."""
    world = Web()
    world.runs("a", "b", "c")
    world.facts(e.NodeGone("n2"))
    world.passes(100)
    world.deleted("c")
    world.runs("d")
    world.passes(10)
    recorded = read(world.source())
    ran = Model(recorded).run()
    assert ran.nodes == [life.nodes or [] for life in recorded.lives]
    assert [one.waiting for one in ran.measured.waits] == [one.waiting for one in recorded.happened.waits] == [1]


def test_pods_of_a_daemonset_do_not_come_again_elsewhere():
    world = Web()
    world.runs("a")
    world.runs("d", kind="DaemonSet")
    world.passes(5)
    begin = Begin(Stretch(Point(seq=world.log.seq - 3)))
    found = answer(world.source(), Change(nodes=((-1, world.state.pods["uid-d"].live.node),)), begin=begin)
    assert found.changed is not None
    assert found.changed.waits == []


def test_more_nodes_have_the_taints_of_their_class_and_not_those_of_a_node_in_trouble():
    """(They had none, and took pods that such a node never takes.)"""
    world = Web(1)
    kept = Taint("dedicated", "NoSchedule", "ml")
    first = world.state.nodes["n0"]
    world.facts(replace(first, name="ml-0", uid="uid-ml", labels={"class": "ml"}, taints=(kept,)))
    world.runs("a", "b")
    passing = ("node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/uninitialized", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")
    world.facts(replace(world.state.nodes["ml-0"], ready=False, unreadable="?", taints=(kept, *(Taint(key, "NoSchedule") for key in passing))))
    world.passes(5)
    found = answer(world.source(), Change(nodes=((+1, "ml"),)))
    assert (waits(found.model).waiting, waits(found.changed).waiting) == (1, 1)
    model = Model(changed_world(read(world.source()), Change(nodes=((+1, "ml"),))))
    model.run()
    assert [(node.taints, node.ready, node.unreadable) for name, node in model.state.nodes.items() if name.startswith("whatif")] == [((kept,), True, "")]
    small = answer(world.source(), Change(nodes=((+1, "small"),)))
    assert waits(small.changed).waiting == 0


@pytest.mark.parametrize("since", [None, 9], ids=["from the begin", "from the middle"])
def test_more_nodes_have_what_other_objects_say_of_their_class(since):
    """A Device that says which GPUs are healthy, a topology, limits of volumes."""
    world = Web(1)
    device, numa, csi = e.DeviceObserved("n0", (Gpu(0, healthy=False),)), e.NumaObserved("n0", "single-numa-node"), e.CsiNodeObserved("n0", {"ebs": 25})
    world.facts(device, numa, csi)
    world.runs("a")
    world.passes(5)
    stretch = Stretch(None if since is None else Point(seq=since))
    model = Model(changed_world(read(world.source(), stretch), Change(nodes=((+1, "n0"),))))
    model.run()
    (new,) = set(model.state.nodes) - {"n0"}
    state = model.state
    assert (state.device_objects[new], state.numa[new], state.csi_nodes[new]) == tuple(replace(one, node=new) for one in (device, numa, csi))
    assert (state.table.device_free[state.table.rows[new]] == 1000).sum() == 0


def daemons(scheduler, nodes=2):
    """Each node of 8 000m has a pod of a DaemonSet that asks for 3 000m, on one of them made anew; then two pods of 6 000m come: too large."""
    world = Web(nodes)
    world.facts(
        e.ShapeDeclared("agent", PodShape({"cpu": 3_000, "pods": 1}, scheduler=scheduler, spec_digest="agent")),
        e.ShapeDeclared("large", PodShape({"cpu": 6_000, "pods": 1}, scheduler="restow", spec_digest="large")),
    )
    for uid, node in (("agent-old", "n0"), *((f"agent-{i}", f"n{i}") for i in range(nodes))):
        world.facts(e.PodObserved(uid, "kube-system", uid, "agent", world.now, owner=OwnerRef("DaemonSet", "agent", "uid-agent"), pinned_node=node))
        world.scheduled()
        if not world.state.pods[uid].live.node:
            world.facts(e.PodChanged(uid, node, "Running", True))
        if uid == "agent-old":
            world.passes(2)
            world.facts(e.PodGone(uid))
    for name in ("a", "b"):
        world.facts(e.PodObserved(f"uid-{name}", "lab", name, "large", world.now, owner=OwnerRef("ReplicaSet", "of", "uid-of")))
        world.scheduled()
    world.passes(5)
    return world


@pytest.mark.parametrize("scheduler", ["default-scheduler", "restow"])
def test_more_nodes_have_the_pods_of_daemon_sets_as_the_first_of_their_class(scheduler):
    """(They were empty, and took pods that found no room beside those.)"""
    source = daemons(scheduler).source()
    found = answer(source, Change(nodes=((+2, "n0"),)))
    assert (found.model.waits[0].waiting, found.changed.waits[0].waiting) == (2, 2)
    model = Model(changed_world(read(source), Change(nodes=((+2, "n0"),))))
    model.run()
    new = {name for name in model.state.nodes if name.startswith("whatif")}
    agents = [(pod.live.node, pod.fact.pinned_node) for pod in model.state.pods.values() if pod.live.node in new]
    assert sorted(agents) == [(name, name) for name in sorted(new)]


@pytest.mark.parametrize("scheduler", ["default-scheduler", "restow"])
def test_pods_of_daemon_sets_do_not_come_for_nodes_that_never_came(scheduler):
    """(Those that Restow places waited for ever.)"""
    model = Model(changed_world(read(daemons(scheduler).source()), Change(nodes=((-1, "n0"),))))
    ran = model.run()
    assert {pod.live.node for pod in model.state.pods.values() if pod.fact.pinned_node} == {"n1"}
    assert ran.measured.waits[0].waiting == 2
