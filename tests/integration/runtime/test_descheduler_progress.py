"""What metrics and people are told of plans and migrations: by the leader alone, once, and nothing that was over before."""

from types import SimpleNamespace

from domain.build import NOW, configured, given, node, pod, replica_of, shape, then
from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.values import Move, Packing
from restow.descheduler.metrics import DeschedulerMetrics
from restow.descheduler.progress import Progress
from restow.descheduler.user_events import Told
from restow.domain.config import DefragmentationArgs, MigrationConfig
from restow.runtime.telemetry import Metrics

NONE = Packing(2, 0, 0, 0, 0, 0)


class Heard:
    def __init__(self):
        self.said = []

    def planned(self, state, plan):
        self.said.append(("planned", plan.planned.plan))

    def evicted(self, state, migration):
        self.said.append(("evicted", migration.id))

    def ended(self, state, migration, evicted):
        self.said.append(("ended", migration.id, str(migration.step), evicted))

    def over(self, state, plan):
        self.said.append(("over", plan.planned.plan))

    def emptied(self, state, node, plan):
        self.said.append(("emptied", node, plan))

    def returned(self, state, node, plan):
        self.said.append(("returned", node, plan))

    def take(self):
        said, self.said = self.said, []
        return said


def cluster():
    return given(node("a"), node("b"), shape("s"), *(pod(f"p{i}", node="a", owner=replica_of("rs")) for i in range(1, 4)))


def plan(id, *pods):
    moves = tuple(Move(f"{id}-{name[1:]}", name, "default", name, "a", "b") for name in pods)
    return e.Planned(id, "Defragmentation", moves, NONE, NONE, ("a",), trigger="api")


def watched(state):
    heard = Heard()
    progress = Progress(SimpleNamespace(state=state), (heard,))
    progress.look(tell=False)
    return progress, heard


def test_each_step_is_told_once():
    state = cluster()
    progress, heard = watched(state)

    def after(*events):
        then(state, *events)
        progress.look(tell=True)
        return heard.take()

    assert after(plan("x", "p1", "p2")) == [("planned", "x")]
    assert after(e.Holding("x-1", NOW), e.Held("x-1"), e.Evicting("x-1", NOW + 60_000)) == []
    assert after(e.Evicted("x-1", NOW)) == [("evicted", "x-1")]
    assert after(e.Landed("x-1", "p9", "b")) == [("ended", "x-1", "landed", True)]
    assert after(e.MigrationFailed("x-2", "NoCapacity", "")) == [("ended", "x-2", "failed", False), ("over", "x")]
    assert after(node("c")) == []


def test_what_comes_together_is_told_together():
    state = cluster()
    progress, heard = watched(state)
    then(state, plan("x", "p1"), e.Holding("x-1", NOW), e.Held("x-1"), e.Evicting("x-1", NOW + 60_000), e.Evicted("x-1", NOW), e.NotRecreated("x-1"))
    progress.look(tell=True)
    assert heard.take() == [("planned", "x"), ("evicted", "x-1"), ("ended", "x-1", "not_recreated", True), ("over", "x")]


def test_a_plan_without_moves_is_over_at_once():
    state = cluster()
    progress, heard = watched(state)
    then(state, plan("x"))
    progress.look(tell=True)
    assert heard.take() == [("planned", "x"), ("over", "x")]


def test_a_restart_tells_nothing_again_and_goes_on_with_what_is_under_way():
    state = cluster()
    then(state, plan("old", "p1"), e.MigrationFailed("old-1", "NoCapacity", ""), plan("x", "p2"), e.Holding("x-2", NOW))
    progress, heard = watched(state)
    progress.look(tell=True)
    assert heard.take() == []
    then(state, e.MigrationFailed("x-2", "HoldTimeout", ""))
    progress.look(tell=True)
    assert heard.take() == [("ended", "x-2", "failed", False), ("over", "x")]


def test_a_standby_says_nothing_and_knows_where_to_go_on():
    state = cluster()
    progress, heard = watched(state)
    then(state, plan("x", "p1", "p2"), e.MigrationFailed("x-1", "NoCapacity", ""))
    progress.look(tell=False)
    assert heard.take() == []
    then(state, e.MigrationFailed("x-2", "NoCapacity", ""))
    progress.look(tell=True)
    assert heard.take() == [("ended", "x-2", "failed", False), ("over", "x")]


def test_nodes_and_pods_are_told_in_sentences():
    state = cluster()
    notices = []
    told = Told(SimpleNamespace(record=notices.append))
    then(state, plan("x", "p1", "p2"))
    told.planned(state, state.plans["x"])
    then(state, e.MigrationFailed("x-1", "Budget", "one must stay"), e.MigrationFailed("x-2", "NoCapacity", ""))
    told.ended(state, state.migrations["x-1"], False)
    told.over(state, state.plans["x"])
    assert [(n.regarding.kind, n.regarding.name, n.type, n.note) for n in notices] == [
        ("Node", "a", "Normal", "plan x (api) is to move 2 pods off this node"),
        ("Node", "b", "Normal", "plan x (api) is to move 2 pods to it"),
        ("Pod", "p1", "Warning", "stays on a, was to move to b: Budget: one must stay (migration x-1)"),
        ("Node", "a", "Normal", "plan x is over: 2 pods not moved"),
    ]


def test_an_emptied_node_is_told_once_and_so_is_that_it_was_not_taken_away():
    conf = MigrationConfig(emptied="announce", defragmentation=DefragmentationArgs(wholeNodes=True))
    state = given(configured("migration", conf), node("a"), node("b"), shape("s"), *(pod(f"p{i}", node=n, owner=replica_of("rs")) for i, n in enumerate("ab")))
    moves = Move("x-0", "p0", "default", "p0", "a", "c"), Move("x-1", "p1", "default", "p1", "b", "c")
    then(state, e.Planned("x", "Defragmentation", moves, NONE, NONE, ("a", "b"), whole=True))
    for id in ("x-0", "x-1"):
        then(state, e.Holding(id, NOW), e.Held(id), e.Evicting(id, NOW + 60_000))
    progress, heard = watched(state)
    notices = []
    told = Progress(SimpleNamespace(state=state), (Told(SimpleNamespace(record=notices.append)),))
    told.look(tell=False)

    def after(*events):
        then(state, *events)
        progress.look(tell=True)
        told.look(tell=True)
        return [said for said in heard.take() if said[0] in ("emptied", "returned")]

    assert after(e.NodeEmptied("a", "x"), e.NodeEmptied("b", "x")) == [("emptied", "a", "x"), ("emptied", "b", "x")]
    assert after(e.PlanCancelled("x", "")) == []
    assert after(e.NodeGone("b"), e.NodeReturned("a", "x", "NotTaken")) == [("returned", "a", "x")], "b was taken away"
    assert [(n.regarding.name, n.reason, n.note) for n in notices if n.regarding.kind == "Node"][-3:] == [
        ("a", "NodeEmptied", "plan x has emptied this node: it may be taken away"),
        ("b", "NodeEmptied", "plan x has emptied this node: it may be taken away"),
        ("a", "NodeReturned", "this node, which plan x has emptied, was not taken away: it is anybody's again"),
    ]


def test_landings_count_evicted_pods_alone_and_those_that_missed_their_slots_as_misses():
    state, metrics = cluster(), Metrics("migration")
    shown = DeschedulerMetrics(SimpleNamespace(state=state, metrics=metrics, clock=SimpleNamespace(now=lambda: 0)))
    progress = Progress(SimpleNamespace(state=state), (shown,))
    progress.look(tell=False)

    def landings():
        return [metrics.registry.get_sample_value("restow_landings_total", {"result": result}) for result in ("landed", "missed")]

    assert landings() == [0, 0], "whoever looks for a rise sees the first one"
    then(state, plan("x", "p1", "p2", "p3"))
    for id in ("x-1", "x-2"):
        then(state, e.Holding(id, NOW), e.Held(id), e.Evicting(id, NOW + 60_000), e.Evicted(id, NOW))
    progress.look(tell=True)
    then(state, e.Landed("x-1", "p9", "b"), e.NotRecreated("x-2"), e.MigrationFailed("x-3", "NoCapacity", ""))
    progress.look(tell=True)
    assert landings() == [1, 1]


def test_metrics_do_not_grow_with_every_node_that_ever_was_nor_with_what_people_call_their_plans():
    """Autoscalers name no two nodes alike. What was counted by itself goes on to be, and nothing is left out of the sum."""
    state, metrics = cluster(), Metrics("migration")
    shown = DeschedulerMetrics(SimpleNamespace(state=state, metrics=metrics, clock=SimpleNamespace(now=lambda: 0)))
    then(state, plan("x", "p1"))
    moved, made = state.migrations["x-1"], state.plans["x"]
    for number in (*range(3_000), 0, 0):
        shown.evicted(state, SimpleNamespace(plan="x", move=SimpleNamespace(namespace=moved.move.namespace, source=f"node-{number}")))
    for number in (*range(200), 0):
        shown.planned(state, replace(made, planned=replace(made.planned, trigger=f"t-{number}")))

    def of(name, **labels):
        samples = [sample for metric in metrics.registry.collect() for sample in metric.samples if sample.name == name]
        return len(samples), sum(sample.value for sample in samples), [sample.value for sample in samples if labels.items() <= sample.labels.items()]

    assert of("descheduler_pods_evicted_total", node="node-0") == (1_001, 3_002, [3])
    assert of("descheduler_pods_evicted_total", node="others", namespace="others")[2] == [2_000]
    assert of("restow_plans_total", trigger="others") == (51, 201, [150])
    assert of("restow_plans_total", trigger="t-0")[2] == [2]
