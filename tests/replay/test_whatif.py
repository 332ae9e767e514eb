"""A recorded log is decided anew on virtual time: the same world comes out as long as nothing is changed, and what is changed shows."""

import importlib
from collections import defaultdict

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from replay.handmade import LOG_ID, Handmade, migration, time_at
from replay.world import World

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import decode
from restow.contracts.times import rfc3339
from restow.contracts.values import DeviceRequest, DeviceShare, Move, OwnerRef, PodShape
from restow.domain.config import DefragmentationArgs, MigrationConfig, SessionConfig, text_of
from restow.domain.decider import decide_all
from restow.domain.deciders import DECIDERS
from restow.domain.state import ClusterState
from restow.replay.source import ListSource
from restow.replay.state_at import ReplayError, fold_record, state_at, time_of
from restow.replay.times import Point
from restow.replay.whatif.answer import Begin, Change, answer, changed_world, error_of
from restow.replay.whatif.asked import _those
from restow.replay.whatif.model import Model
from restow.replay.whatif.reading import Stretch, read
from restow.replay.whatif.recorded import Lose

GPU = "restow.dev/gpu-milli"


class Simple:
    """Nodes of one device each, Jobs of one pod that asks for it; sessions as the real decider runs them. Times as in `Handmade`: a second a commit."""

    def __init__(self, nodes=2):
        self.log, self.state = Handmade(), ClusterState()
        self.decide("session", c.Lead("a"))
        names = [f"n{i}" for i in range(nodes)]
        shape = PodShape({"cpu": 1_000, "pods": 1, GPU: 1_000}, scheduler="restow", devices=DeviceRequest(1, 1_000), spec_digest="one")
        self.facts(
            *(e.NodeObserved(name, f"uid-{name}", {"cpu": 8_000, "pods": 20, GPU: 1_000}, {"class": "small"}, devices=1) for name in names),
            e.ShapeDeclared("one", shape),
        )

    @property
    def now(self):
        return time_at(self.log.seq + 1)

    def facts(self, *events):
        self._fold(self.log.facts(*events))

    def decide(self, family, command):
        decisions = decide_all(self.state, DECIDERS[family], [command])
        if decisions:
            self._fold(self.log.commit(family, *decisions, read=self.log.seq, logic=DECIDERS[family].logic))

    def _fold(self, seq):
        fold_record(self.state, self.log.records[seq - 1], LOG_ID)

    def comes(self, name):
        self.facts(e.PodObserved(f"uid-{name}", "lab", name, "one", self.now, owner=OwnerRef("Job", f"job-{name}", f"uid-job-{name}")))
        self.scheduled()

    def scheduled(self):
        """The session runs, and the kubelets run what it has placed."""
        self.decide("session", c.Schedule(self.now))
        placed = [(uid, one) for uid, one in self.state.placed.items() if self.state.pods[uid].live.node is None]
        for uid, one in placed:
            self.facts(e.PodChanged(uid, one.node, "Running", True, devices=one.devices))

    def ends(self, name):
        live = self.state.pods[f"uid-{name}"].live
        self.facts(e.PodChanged(live.pod, live.node, "Succeeded", devices=live.devices))
        self.scheduled()

    def deleted(self, name):
        self.facts(e.PodGone(f"uid-{name}"))
        self.scheduled()

    def passes(self, seconds):
        for second in range(seconds):
            self.facts(e.Synced("nodes", str(second)))

    def source(self):
        return ListSource(self.log.records, log_id=LOG_ID)


def queue(nodes=2):
    """Three Jobs of about 20 seconds; the third waits for the first to end."""
    world = Simple(nodes)
    for name in ("a", "b", "c"):
        world.comes(name)
    world.passes(10)
    world.ends("a")
    world.passes(10)
    for name in ("b", "c"):
        world.ends(name)
    world.passes(40)
    return world


def waits(measured):
    (found,) = measured.waits
    return found


@pytest.mark.parametrize("seed", range(6))
def test_given_a_log_when_nothing_is_changed_then_the_same_is_decided_and_twice_the_same(seed):
    world = World(seed, nodes=8)
    source = world.play(30).source()
    recorded = read(source)
    first, again = Model(recorded).run(), Model(read(source)).run()
    assert to_builtins(first) == to_builtins(again)
    assert error_of(recorded, first).placements > 20


def test_given_a_queue_when_decided_anew_then_every_placement_is_as_recorded():
    found = answer(queue().source())
    assert (found.error.same, found.error.placements, found.error.percent) == (3, 3, 100.0)
    assert found.changed is None
    assert waits(found.recorded).longest > 10_000
    assert abs(waits(found.model).longest - waits(found.recorded).longest) <= 2_000


@pytest.mark.parametrize("seed", range(4))
def test_nobody_has_more_than_its_node_by_a_count_of_our_own(seed):
    """Of every instant: what pods on a node ask for, from their shapes alone, and devices given to one pod alone."""
    model = Model(read(World(seed, nodes=4).play(24).source()))
    looked = 0

    def look(state):
        nonlocal looked
        looked += 1
        asked, given = defaultdict(lambda: defaultdict(int)), defaultdict(int)
        for uid, pod in state.pods.items():
            node = pod.live.node or (state.placed[uid].node if uid in state.placed else None)
            if node not in state.nodes or pod.live.phase in ("Succeeded", "Failed"):
                continue
            for name, amount in state.shapes[pod.fact.shape].requests.items():
                asked[node][name] += amount
            for share in pod.live.devices or (state.placed[uid].devices if uid in state.placed else ()):
                given[node, share.index] += share.milli
        for node, amounts in asked.items():
            for name, amount in amounts.items():
                assert amount <= state.nodes[node].allocatable[name], (node, name)
        assert all(milli <= 1_000 for milli in given.values())

    inner = model._commit

    def commit(family, decisions):
        did = inner(family, decisions)
        look(model.state)
        return did

    model._commit = commit
    model.run()
    assert looked > 50


def test_a_pod_that_starts_later_ends_later_and_one_that_was_deleted_does_not():
    """On one node instead of two the third Job runs after the second; what somebody deleted goes when it went."""
    found = answer(queue().source(), Change(nodes=((-1, "small"),)))
    assert found.changed is not None
    assert waits(found.changed).longest > waits(found.model).longest + 10_000
    assert waits(found.changed).waiting == 0

    world = Simple(nodes=1)
    world.comes("a")
    world.passes(5)
    world.comes("b")
    world.passes(5)
    world.deleted("b")
    world.deleted("a")
    world.passes(5)
    recorded = read(world.source())
    ran = Model(recorded).run()
    # The second never had a node, and nobody waits in the end.
    for measured in (recorded.happened, ran.measured):
        assert (waits(measured).pods, waits(measured).gone, waits(measured).waiting, measured.samples[-1].waiting) == (2, 1, 0, 0)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "terminating"])
def test_a_pod_that_came_and_went_within_one_commit_is_nowhere_afterwards(gone):
    """As a watcher tells it that was away meanwhile."""
    world = Simple(nodes=1)
    came = e.PodObserved("uid-x", "lab", "x", "one", world.now, owner=OwnerRef("Job", "job-x", "uid-job-x"))
    world.facts(came, e.PodGone("uid-x") if gone else e.PodChanged("uid-x", deleting=world.now))
    world.passes(3)
    if not gone:
        world.facts(e.PodGone("uid-x"))
    world.comes("a")
    world.passes(3)
    model = Model(read(world.source()))
    ran = model.run()
    assert list(model.state.pods) == ["uid-a"]
    assert ran.nodes[-1] == ["n0"]


def test_more_nodes_and_nobody_waits():
    found = answer(queue().source(), Change(nodes=((+1, "small"),)))
    assert waits(found.changed).longest <= 1_000 < waits(found.model).longest
    assert found.changed.samples[-1].free_devices == found.model.samples[-1].free_devices + 1


@pytest.mark.parametrize("since", [None, 12])
def test_nodes_that_are_asked_for_twice_are_added_up(since):
    """In any order, of a class that is named in two ways, and a node that is itself taken away may be copied."""
    recorded = read(queue(4).source(), Stretch(None if since is None else Point(seq=since)))

    def names(*nodes):
        there = set(recorded.there)
        for step in changed_world(recorded, Change(nodes=nodes)).steps:
            there |= {item.name for item in step.items if isinstance(item, e.NodeObserved)}
            there -= {item.node for item in step.items if isinstance(item, Lose)}
        return there

    more = {"whatif-small-1", "whatif-small-2", "whatif-small-3"}
    assert names((+1, "small"), (+2, "small")) == names((+3, "small")) == {"n0", "n1", "n2", "n3"} | more
    assert names((-1, "small"), (-2, "small")) == names((-3, "small")) == {"n0"}
    assert names((-1, "n3"), (-1, "small")) == names((-2, "small")) == {"n0", "n1"}
    assert names((-4, "small"), (+1, "n0")) == names((+1, "n0"), (-4, "small")) == {"whatif-n0-1"}
    with pytest.raises(ReplayError, match="2 nodes of small are to be taken away, and there are 1 others"):
        names((-3, "small"), (-2, "small"))


def test_where_nothing_was_placed_the_error_is_not_known():
    found = answer(queue().source(), begin=Begin(Stretch(None, Point(seq=2))))
    assert (found.error.placements, found.error.percent) == (0, None)
    assert "not known" in found.error.told
    assert "%" not in found.error.told


def test_what_cannot_be_asked_is_refused_before_the_model_runs():
    ran = []
    with pytest.raises(ReplayError, match="no node is large"):
        answer(queue().source(), Change(nodes=((+1, "large"),)), lambda done, total: ran.append(done))
    assert not ran


def test_without_a_workload_it_is_gone_and_nobody_waits_longer():
    found = answer(queue().source(), Change(without=("lab/job-a",)))
    assert waits(found.changed).pods == 2
    assert waits(found.changed).longest <= 1_000 < waits(found.model).longest


def test_another_policy_decides_what_becomes_of_plans():
    """A person asked for plans, which moved pods; where the policy only observes, the same requests move nobody."""
    policy = MigrationConfig(mode="observe", defragmentation=DefragmentationArgs())
    found = answer(World(2, nodes=8).play(30).source(), Change(policy=text_of(policy)))
    assert found.model.moves > 0
    assert found.model.lost_gpu_hours > 0
    assert (found.changed.moves, found.changed.lost_gpu_hours) == (0, 0)


def test_a_plan_that_cannot_be_made_is_left_out_and_the_model_goes_on(monkeypatch):
    """It ended `restow whatif`; in the cluster it is a plan without moves."""
    source = World(2, nodes=8).play(30).source()

    def overflows(*_):
        raise OverflowError("too large")

    monkeypatch.setattr(importlib.import_module("restow.domain.migration.decider"), "defragment", overflows)
    model = Model(read(source))
    assert not model.run().refused
    assert {(known.planned.fault, known.planned.moves) for known in model.state.plans.values()} == {(True, ())}


def proposing(**conf):
    """Three nodes of four devices, on which one pod, one and two run, each of a controller of its own; a policy that proposes a plan each five seconds, which comes a second late."""
    world = Simple(nodes=0)
    world.facts(*(e.NodeObserved(f"w{i}", f"uid-w{i}", {"cpu": 8_000, "pods": 20, GPU: 4_000}, devices=4) for i in range(3)))
    for name, node, device in (("a", "w0", 0), ("b", "w1", 0), ("c", "w2", 0), ("d", "w2", 1)):
        runs = {"node": node, "phase": "Running", "ready": True, "devices": (DeviceShare(device, 1_000),)}
        world.facts(e.PodObserved(f"uid-{name}", "lab", name, "one", world.now, owner=OwnerRef("ReplicaSet", name, f"uid-rs-{name}"), **runs))
    args = DefragmentationArgs(planner="optimizing", objective="nodes", protectionThresholds={"nvidia.com/gpu": 100})
    world.decide("migration", c.Lead("m"))
    world.decide("migration", c.Configure(text_of(MigrationConfig(**{"mode": "propose", "interval": 5_000, "defragmentation": args} | conf))))
    world.passes(6)
    world.decide("migration", c.Defragment(world.now, "interval", "late"))
    (planned,) = (known.planned for known in world.state.plans.values())
    assert len(planned.moves) == 2
    assert {move.target for move in planned.moves} == {"w2"}
    return world, planned


def test_who_approved_some_moves_of_a_plan_approves_those_pods_of_the_models():
    world, planned = proposing()
    world.decide("migration", c.Approve(world.now, "late", "ada", moves=(planned.moves[1].migration,)))
    world.passes(2)
    model = Model(read(world.source()))
    assert not model.run().refused
    assert "late" not in model.state.plans
    assert [record.move.pod for record in model.state.migrations.values()] == [planned.moves[1].pod]


def test_what_needs_a_move_that_was_declined_is_declined_and_the_rest_approved():
    """In the model's plan one of them goes where a pod is first to leave that nobody has approved (all were refused)."""
    world, planned = proposing()
    world.passes(1)
    model = Model(read(world.source()))
    model.run()
    moves = (
        Move("m1", "uid-a", "lab", "a", "n1", "n2"), Move("m2", "uid-b", "lab", "b", "n3", "n1", after=("m3",)), Move("m3", "uid-c", "lab", "c", "n1", "n4"),
        Move("m4", "uid-d", "lab", "d", "n5", "n3", after=("m2",)),
    )  # fmt: skip
    plan, known = next(iter(model.state.plans.items()))
    model.state.plans[plan] = replace(known, planned=replace(planned, plan=plan, moves=moves))
    assert _those(model.state, plan, {"uid-a", "uid-b", "uid-d"}) == ("m1",)
    assert _those(model.state, plan, {"uid-b", "uid-c"}) == ("m2", "m3")


def test_who_approved_moves_that_the_models_plan_has_not_has_declined_it():
    """That pod never came in the model: nobody approved that the other one moves."""
    world, planned = proposing()
    gone = planned.moves[0]
    world.decide("migration", c.Approve(world.now, "late", "ada", moves=(gone.migration,)))
    world.passes(2)
    model = Model(changed_world(read(world.source()), Change()), lambda workload: workload == f"lab/ReplicaSet/{gone.name}")
    assert not model.run().refused
    (known,) = model.state.plans.values()
    assert [move.pod for move in known.planned.moves] == [planned.moves[1].pod]
    assert (known.answer, known.by) == ("rejected", "ada")
    assert not model.state.migrations


@pytest.mark.parametrize("reject", [True, False], ids=["rejected", "in time by nobody"])
def test_a_plan_that_nobody_approved_is_cancelled_by_the_model_and_not_by_the_record(reject):
    """Where a person said no, that holds; where its time was over, the changed policy says how long that is."""
    world, _ = proposing(approve_deadline=1_000)
    world.passes(2)
    world.decide("migration", c.Reject(world.now, "late", "ada", "no") if reject else DECIDERS["migration"].due(world.state, world.now))
    world.passes(2)
    longer = text_of(MigrationConfig(mode="propose", interval=5_000, defragmentation=DefragmentationArgs(planner="optimizing", objective="nodes", protectionThresholds={"nvidia.com/gpu": 100})))
    recorded = read(world.source())
    model = Model(changed_world(recorded, Change(policy=longer)))
    assert not model.run().refused
    assert bool(model.state.proposals) is not reject


def test_another_configuration_of_the_scheduler_decides_instead_of_the_recorded_one():
    """Whose pods name another scheduler than it answers to, nobody places."""
    found = answer(queue().source(), Change(scheduler=text_of(SessionConfig(scheduler_names=("other",)))))
    assert found.model.placements == 3
    assert found.changed.placements == 0


def test_what_is_not_in_the_log_is_refused_with_what_is():
    recorded = read(queue().source())
    for change, said in (
        (Change(without=("lab/nobody",)), "lab/Job/job-a"),
        (Change(nodes=((1, "h100"),)), "no node is h100.*n0"),
        (Change(nodes=((-3, "small"),)), "3 nodes of small.*there are 2"),
    ):
        with pytest.raises(ReplayError, match=said):
            changed_world(recorded, change)
    with pytest.raises(ReplayError, match="is empty"):
        read(ListSource([], log_id=LOG_ID))


# -- a stretch of a log --------------------------------------------------------------------------------------------------


def at(source, *since):
    return Model(read(source, Stretch(*(Point(seq=seq) for seq in since)))).run()


def test_from_any_point_on_what_was_there_goes_on_as_it_did():
    """Who ran ends when it ended, who waited gets the place that comes free."""
    source = queue().source()
    for cut in range(2, source.last + 1):
        recorded = read(source, Stretch(Point(seq=cut)))
        found = error_of(recorded, Model(recorded).run())
        assert found.same == found.placements, cut
    found = answer(source, begin=Begin(Stretch(Point(seq=8))))
    assert (found.seq, found.error.placements, found.first) == (7, 1, time_at(7))
    assert (waits(found.model).pods, waits(found.model).waiting) == (1, 0)
    assert abs(waits(found.model).longest - waits(found.recorded).longest) <= 2_000


@pytest.mark.parametrize("seed", range(4))
def test_a_stretch_that_begins_in_the_middle_of_moves_is_decided_twice_the_same(seed):
    source = World(seed, nodes=8).play(30).source()
    for part in (1, 2, 3):
        cut = source.last * part // 4
        assert to_builtins(at(source, cut)) == to_builtins(at(source, cut))


def test_of_moves_under_way_each_ends_once():
    """Wherever the stretch begins once they are planned, the pod that is moved is evicted at most once more, and one comes in its place."""
    source = migration().source()
    for cut in range(4, source.last + 1):
        recorded = read(source, Stretch(Point(seq=cut)))
        model = Model(recorded)
        found = model.run()
        assert not found.unanswered
        assert found.measured.moves == recorded.happened.moves, cut
        assert found.measured.landed == recorded.happened.landed, cut
        assert [model.state.node_of(uid) for uid in model.state.pods] == ["b"], cut


def test_up_to_a_point_nothing_after_it_is_known():
    source = queue().source()
    found = answer(source, begin=Begin(Stretch(until=Point(seq=10))))
    assert (found.last, waits(found.recorded).waiting, waits(found.model).waiting) == (time_at(10), 1, 1)
    by_time = answer(source, begin=Begin(Stretch(until=Point(time=time_at(10)))))
    assert by_time.recorded.waits == found.recorded.waits


def test_a_snapshot_is_as_good_as_the_log_before_it():
    source = queue().source()
    rest = ListSource(next(iter(source.batches(9))), name="rest", log_id=LOG_ID)
    whole, short = answer(source, begin=Begin(Stretch(Point(seq=9)))), answer(rest, begin=Begin(state=state_at(source, seq=8)))
    assert to_builtins(whole) | {"name": ""} == to_builtins(short) | {"name": ""}
    with pytest.raises(ReplayError, match=r"begins at sequence 9.*--archive"):
        read(rest)
    for early in (Point(seq=8), Point(time=time_at(7))):
        with pytest.raises(ReplayError, match=r"oldest snapshot is of sequence 8 .*begin after that, or name the archive"):
            read(rest, Stretch(early), state_at(source, seq=8))


def test_nodes_that_are_there_are_taken_away_and_workloads_too():
    source = queue().source()
    since = Stretch(Point(seq=8))
    fewer = answer(source, Change(nodes=((-1, "small"),)), begin=Begin(since))
    assert waits(fewer.model).pods == 1
    assert waits(fewer.changed).longest > waits(fewer.model).longest + 5_000
    more = answer(source, Change(nodes=((+1, "small"),)), begin=Begin(since))
    assert waits(more.changed).longest == 0
    without = answer(source, Change(without=("lab/job-a",)), begin=Begin(since))
    assert waits(without.changed).longest == 0


def test_pods_whose_node_is_taken_away_wait_and_are_counted():
    """They came before the stretch and had a node; that they have none now is what was asked about."""
    source = queue(3).source()
    begin = Begin(Stretch(Point(seq=12)))
    found = answer(source, Change(nodes=((-3, "small"),)), begin=begin)
    assert found.model.waits == []
    assert (waits(found.changed).pods, waits(found.changed).waiting) == (3, 3)
    assert found.changed.samples[-1].waiting == 3
    fewer = answer(source, Change(nodes=((-1, "small"),)), begin=begin)
    assert (waits(fewer.changed).pods, waits(fewer.changed).waiting) == (1, 0)
    assert waits(fewer.changed).longest > 1_000


def test_another_configuration_holds_from_the_begin_of_the_stretch():
    source = queue().source()
    found = answer(source, Change(scheduler=text_of(SessionConfig(scheduler_names=("other",)))), begin=Begin(Stretch(Point(seq=8))))
    assert (found.model.placements, found.changed.placements) == (1, 0)


def test_where_nothing_happened_is_refused_with_what_there_is():
    source = queue().source()
    held = f"1 to {source.last}, of {rfc3339(time_at(1))} to {rfc3339(time_at(source.last))}"
    with pytest.raises(ReplayError, match=f"nothing happened in this stretch.*{held}"):
        read(source, Stretch(Point(time=time_at(source.last) + 1)))
    with pytest.raises(ReplayError, match=held):
        read(source, Stretch(Point(time=0), Point(time=1)))
    with pytest.raises(ReplayError, match="nothing happened"):
        read(source, Stretch(Point(seq=9), Point(seq=8)))


def test_a_log_with_more_shapes_than_the_state_remembers_can_be_read():
    world = Simple()
    known = world.state.shapes["one"]
    for batch in range(3):
        names = [f"{batch}-{i}" for i in range(500)]
        world.facts(*(e.ShapeDeclared(f"s{name}", known) for name in names), *(e.PodObserved(f"uid-{name}", "lab", name, f"s{name}", world.now) for name in names))
        world.facts(*(e.PodGone(f"uid-{name}") for name in names))
    assert len(world.state.shapes) < 1_500
    found = answer(world.source())
    assert (waits(found.recorded).pods, waits(found.model).pods) == (1_500, 1_500)


@pytest.mark.parametrize("seed", range(3))
def test_who_waits_when_is_as_counted_in_the_record(seed):
    source = World(seed, nodes=4).play(24).source()
    came, placed = {}, {}
    for batch in source.batches():
        for record in batch:
            for decision in decode(record.body):
                for event in decision.events:
                    match event:
                        case e.PodObserved(pod=uid, node=None):
                            came.setdefault(uid, time_of(record))
                        case e.PodPlaced(pod=uid) | e.HandedOver(pod=uid) | e.PodGone(pod=uid):
                            placed.setdefault(uid, time_of(record))
    last = max(map(time_of, (record for batch in source.batches() for record in batch)))
    recorded = read(source)
    known = [uid for uid in came if uid not in {uid for life in recorded.lives for uid in life.pods[1:]}]
    before = 0
    for sample in recorded.happened.samples:
        waits = [placed.get(uid, last) - came[uid] for uid in known if before < came[uid] <= sample.time]
        assert sample.mean_wait == (sum(waits) // len(waits) if waits else None)
        assert sample.waiting == sum(came[uid] <= sample.time and placed.get(uid, last + 1) > sample.time for uid in known)
        before = sample.time
    assert any(sample.waiting for sample in recorded.happened.samples)


@pytest.mark.parametrize("cut", [None, "placed", "bound"])
def test_who_has_a_node_and_is_not_ready_becomes_ready_when_it_did(cut):
    """Wherever the stretch begins, and also of a pod that was there when its cluster was first looked at."""
    world = Simple()
    job = OwnerRef("Job", "job", "uid-job")
    if cut is None:
        world.facts(e.PodObserved("uid-a", "lab", "a", "one", world.now, owner=job, node="n0", devices=(DeviceShare(0, 1_000),)))
    else:
        world.facts(e.PodObserved("uid-a", "lab", "a", "one", world.now, owner=job))
        world.decide("session", c.Schedule(world.now))
    cuts = {"placed": world.log.seq + 1}
    placed = world.state.placed.get("uid-a") or world.state.pods["uid-a"].live
    world.passes(3)
    world.facts(e.PodChanged("uid-a", placed.node, devices=placed.devices))
    cuts["bound"] = world.log.seq + 1
    world.passes(3)
    world.facts(e.PodChanged("uid-a", placed.node, "Running", True, devices=placed.devices))
    ready = time_at(world.log.seq)
    world.passes(3)
    model = Model(read(world.source(), Stretch(Point(seq=cuts[cut]) if cut else None)))
    seen = []
    inner = model._commit

    def commit(family, decisions):
        did = inner(family, decisions)
        if not seen and "uid-a" in model.state.pods and model.state.pods["uid-a"].live.ready:
            seen.append(model._now)
        return did

    model._commit = commit
    model.run()
    assert seen == [ready]
