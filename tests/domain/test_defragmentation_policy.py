"""Defragmentation as a plugin of a policy: the profile's filters say who may go, nodeSelector which nodes take part, the limits how many."""

import types
from collections import Counter

import pytest
from domain.build import NOW, configured, given, node, pod, replica_of, shape, then
from domain.descheduling_words import WEB
from domain.planning import CAPACITY, carry_out
from domain.planning import cluster as random_cluster
from domain.saga import decider
from effort import examples
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import NodeName
from restow.contracts.values import DeviceShare, OwnerRef
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs, MigrationConfig
from restow.domain.defragmentation.scope import Quota, Scope
from restow.domain.descheduling.plugins import PLUGINS
from restow.domain.descheduling.policy import load, written
from restow.domain.migration.deschedule import explain, explain_alone
from restow.domain.migration.warnings import warnings
from restow.domain.policy_args import Args

THRESHOLDS = {"protectionThresholds": {"cpu": 95}, "defragmentThresholds": {"cpu": 40}, "lowThresholds": {"cpu": 40}, "resourceType": "cpu"}
GREEDY = DefragmentationArgs(**THRESHOLDS)
OPTIMIZING = DefragmentationArgs(planner="optimizing", objective="nodes", resourceType="cpu", protectionThresholds={})
PLANNERS = pytest.mark.parametrize("args", [GREEDY, OPTIMIZING], ids=["greedy", "optimizing"])
ANNOTATED = "descheduler.alpha.kubernetes.io/"


def config(args=GREEDY, evictor=None, plugins=None, configs=(), **more) -> MigrationConfig:
    """As the service reads such a policy."""
    said = {
        "apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy",
        "profiles": [{
            "name": "p",
            "pluginConfig": [{"name": "DefaultEvictor", "args": evictor or {}}, *configs],
            "plugins": {"balance": {"enabled": ["Defragmentation"]}, **(plugins or {})},
        }],
    }  # fmt: skip
    policy = load(said | more)
    return MigrationConfig(policy=written(policy.upstream), defragmentation=args, profile="p", defragment_at=policy.own.before)


def app(name, on="thin", shape="s", **more):
    more.setdefault("owner", WEB)
    return pod(name, shape, on, **more)


def cluster(*facts, conf=None, thin=("a", "b"), **more):
    """`thin` has what is to leave it; `full` has capacity for it, is used well, and nobody leaves it."""
    full = (app(f"f{i}", "full", "stays", owner=None) for i in range(3))
    return given(
        configured("migration", conf or config(**more)), shape("s"), shape("stays", cpu=2_000, priority=5_000),
        node("full", cpu=12_000, labels={"pool": "x"}), node("thin", cpu=8_000, labels={"pool": "x"}), *full,
        *(app(name) for name in thin), *facts,
    )  # fmt: skip


def alone(state, demand=""):
    (planned,) = decider.decide(state, c.Defragment(NOW, "api", "now", demand))
    return planned


def gone(state):
    """By Defragmentation alone; as part of the policy it plans the same."""
    planned = alone(state)
    (turn,) = decider.decide(state, c.Deschedule(NOW, "api", "now"))
    assert [(m.pod, m.target) for m in turn.moves] == [(m.pod, m.target) for m in planned.moves]
    assert turn.kept == planned.kept
    return [m.pod for m in planned.moves]


# -- the filter ----------------------------------------------------------------------------------------------------------

KEPT = {
    "labelSelector": ({"labelSelector": {"matchLabels": {"may": "go"}}}, {}, "EvictorLabels"),
    "namespaceLabelSelector": ({"namespaceLabelSelector": {"matchLabels": {"may": "go"}}}, {}, "EvictorNamespace"),
    "minReplicas": ({"minReplicas": 2}, {"owner": replica_of("lonely")}, "MinReplicas"),
    "minPodAge": ({"minPodAge": "1h"}, {"started": NOW - 60_000}, "MinPodAge"),
    "priorityThreshold": ({"priorityThreshold": {"value": 100}}, {"shape": "dear"}, "Priority"),
    "a default protection": ({}, {"shape": "local"}, "LocalStorage"),
    "a protection by default of critical pods": ({}, {"shape": "critical"}, "SystemCritical"),
    "a protection that is asked for": ({"podProtections": {"extraEnabled": ["PodsWithoutPDB"]}}, {}, "WithoutPDB"),
    "noEvictionPolicy": (
        {"noEvictionPolicy": "Mandatory"}, {"annotations": {f"{ANNOTATED}prefer-no-eviction": ""}}, "NoEviction",
    ),
}  # fmt: skip
SHAPES = (shape("dear", priority=100), shape("local", local_storage=True), shape("critical", priority=2_000_000_000))


@PLANNERS
@pytest.mark.parametrize(("evictor", "like", "verdict"), KEPT.values(), ids=KEPT)
def test_whoever_the_filter_keeps_stays_with_its_verdict(args, evictor, like, verdict):
    made = {"namespaces": e.NamespaceObserved("default", {})}
    state = cluster(*SHAPES, *made.values(), app("x", **like), thin=(), args=args, evictor=evictor)
    assert gone(state) == []
    assert alone(state).kept[verdict] >= 1
    (said,) = (one for one in explain_alone(state, NOW) if one.pod == "x")
    assert (said.verdict, bool(said.message)) == (verdict, True)


@PLANNERS
@pytest.mark.parametrize(("evictor", "like"),
    [
        ({"podProtections": {"defaultDisabled": ["PodsWithLocalStorage"]}}, {"shape": "local"}),
        ({"evictLocalStoragePods": True}, {"shape": "local"}),
        ({"evictSystemCriticalPods": True}, {"shape": "critical"}),
        ({"priorityThreshold": {"value": 101}}, {"shape": "dear"}),
        ({"priorityThreshold": {"value": 1}}, {"shape": "dear", "annotations": {f"{ANNOTATED}evict": ""}}),
        ({"minPodAge": "1h"}, {"started": NOW - 7_200_000}),
    ],
    ids=["a protection that is taken away", "the same, deprecated", "critical pods", "below the threshold", "its annotation asks for it", "old enough"],
)
def test_whoever_the_filter_lets_go_goes(args, evictor, like):
    assert gone(cluster(*SHAPES, app("x", **like), thin=(), args=args, evictor=evictor)) == ["x"]


@PLANNERS
def test_what_no_hold_could_promise_stays_whatever_the_filter_says(args):
    evictor = {"evictDaemonSetPods": True, "evictFailedBarePods": True}
    there = (app("d", owner=OwnerRef("DaemonSet", "d", "uid-d", "apps/v1")), app("bare", owner=None, annotations={f"{ANNOTATED}evict": ""}))
    assert gone(cluster(*there, thin=(), args=args, evictor=evictor)) == []


@PLANNERS
def test_a_filter_plugin_of_ones_own_is_asked(args, monkeypatch):
    class Mine(Args, frozen=True):
        label: str = "mine"

    def says(point, state, args, now):
        return lambda uid: f"Mine: at {point} its label {args.label} says so" if args.label in state.pods[uid].fact.labels else ""

    plugin = types.SimpleNamespace(NAME="Mine", POINTS=("filter", "preEvictionFilter"), Args=Mine, says=says)
    monkeypatch.setitem(PLUGINS, "Mine", plugin)
    for point in plugin.POINTS:
        more = {"plugins": {point: {"enabled": ["Mine"]}}, "configs": [{"name": "Mine", "args": {}}]}
        state = cluster(app("x", labels={"mine": ""}), thin=(), args=args, **more)
        assert gone(state) == []
        assert alone(state).kept["Mine"] == 1
        assert {one.message for one in explain_alone(state, NOW) if one.pod == "x"} == {f"at {point} its label mine says so"}


# -- nodes ---------------------------------------------------------------------------------------------------------------


@PLANNERS
@pytest.mark.parametrize("left", ["full", "thin"])
def test_nodes_that_nodeSelector_leaves_out_are_neither_left_nor_filled(args, left):
    state = cluster(args=args, nodeSelector="pool=x")
    assert gone(state) == ["a", "b"]
    then(state, replace(state.nodes[left], labels={"pool": "y"}))
    assert gone(state) == []


@PLANNERS
def test_with_nodeFit_the_evictors_own_selector_says_where_pods_may_go(args):
    other = node("other", cpu=12_000, labels={"pool": "y"})
    for evictor, target in (({"nodeFit": True}, "full"), ({"nodeFit": True, "nodeSelector": "pool=y"}, "other")):
        there = (app(f"o{i}", "other", "stays", owner=None) for i in range(4 if target == "other" else 0))
        state = cluster(other, *there, args=args, evictor=evictor)
        assert gone(state) == ["a", "b"]
        assert {move.target for move in alone(state).moves} == {target}


# -- limits --------------------------------------------------------------------------------------------------------------

LIMITS = {
    "per node": ({"maxNoOfPodsToEvictPerNode": 1}, "LimitPerNode"),
    "per namespace": ({"maxNoOfPodsToEvictPerNamespace": 1}, "LimitPerNamespace"),
    "in all": ({"maxNoOfPodsToEvictTotal": 1}, "Limit"),
}


@pytest.mark.parametrize(("limits", "verdict"), LIMITS.values(), ids=LIMITS)
def test_a_plan_is_cut_where_it_would_break_a_limit(limits, verdict):
    state = cluster(thin=("a", "b", "c"), args=GREEDY, **limits)
    assert gone(state) == ["a"]
    assert alone(state).kept == {verdict: 2}
    assert Counter(one.verdict for one in explain_alone(state, NOW)) == {verdict: 2, "Planned": 1}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("limits", "verdict"), LIMITS.values(), ids=LIMITS)
def test_a_node_that_cannot_be_emptied_within_the_limits_is_not_begun(limits, verdict, whole):
    """Half of its pods elsewhere would gain nothing. One with a single pod is emptied."""
    args = replace(OPTIMIZING, wholeNodes=whole)
    state = cluster(args=args, **limits)
    assert gone(state) == []
    assert alone(state).kept[verdict] >= 2
    then(state, node("third"), app("c", "third", namespace="other"))
    assert gone(state) == ["c"]


@PLANNERS
def test_a_limit_of_none_leaves_everything(args):
    for limit in ("Total", "PerNode", "PerNamespace"):
        assert gone_of_pass(cluster(args=args, **{f"maxNoOfPodsToEvict{limit}": 0})) == []


def gone_of_pass(state):
    return [m.pod for planned in decider.decide(state, c.Deschedule(NOW, "api", "now")) for m in planned.moves]


@PLANNERS
@pytest.mark.parametrize("limits", [limits for limits, _ in LIMITS.values()], ids=LIMITS)
def test_what_other_plugins_of_the_pass_evict_counts(args, limits):
    life = {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60, "labelSelector": {"matchLabels": {"old": ""}}}}
    conf = config(args, plugins={"deschedule": {"enabled": ["PodLifeTime"]}}, configs=[life], **limits)
    state = cluster(app("old", labels={"old": ""}, created=NOW - 3_600_000), thin=("a",), conf=conf)
    plans = decider.decide(state, c.Deschedule(NOW, "api", "now"))
    assert [[m.pod for m in planned.moves] for planned in plans] == [["old"], []]
    unlimited = replace(conf, policy={k: v for k, v in conf.policy.items() if not k.startswith("max")})
    then(state, configured("migration", unlimited))
    assert gone_of_pass(state) == ["old", "a"]


# -- demand --------------------------------------------------------------------------------------------------------------

G = tuple(shape(f"g{n}", cpu=100, gpu=(n, 1000)) for n in (1, 2, 3))


def pieces(**more):
    """Two nodes with two GPUs free each; `big` wants three."""
    args = DefragmentationArgs(planner="optimizing", protectionThresholds={})
    there = [pod(n, "g1", "n1", owner=WEB, devices=(DeviceShare(i, 1000),), labels={"app": n}) for i, n in enumerate("pq")]
    there.append(pod("r", "g2", "n2", owner=WEB, devices=(DeviceShare(0, 1000), DeviceShare(1, 1000))))
    nodes = (node("n1", gpus=4, labels={"pool": "x"}), node("n2", gpus=4, labels={"pool": "x"}))
    return given(configured("migration", config(args, **more)), *G, *nodes, *there, pod("big", "g3"))


def test_capacity_for_a_job_is_made_by_those_who_may_go():
    assert [m.pod for m in alone(pieces(), "big").moves] == ["p"]
    assert [m.pod for m in alone(pieces(evictor={"labelSelector": {"matchLabels": {"app": "q"}}}), "big").moves] == ["q"]
    assert [m.pod for m in alone(pieces(nodeSelector="pool=x"), "big").moves] == ["p"]
    for more in ({"evictor": {"minReplicas": 9}}, {"nodeSelector": "pool=y"}, {"maxNoOfPodsToEvictPerNode": 0}, {"maxNoOfPodsToEvictTotal": 0}):
        planned = alone(pieces(**more), "big")
        assert (planned.moves, planned.slots) == ((), ())
        assert planned.reason.startswith("no plan for ")
    assert "maxNoOfPodsToEvictPerNode is reached" in alone(pieces(maxNoOfPodsToEvictPerNode=0), "big").reason


def test_why_a_pod_stays_is_told_for_a_whole_policy_too():
    state = cluster(*SHAPES, app("x", shape="local"), thin=())
    (thought,) = explain(state, c.Deschedule(NOW, "api", "now"), "x")
    assert (thought.verdict, thought.text) == ("LocalStorage", "it would lose its emptyDir or hostPath")


def test_without_a_policy_everything_is_as_it_was():
    state = cluster(*SHAPES, app("x", shape="local"), app("y", shape="critical"), thin=(), conf=MigrationConfig(defragmentation=GREEDY))
    planned = alone(state)
    assert [m.pod for m in planned.moves] == ["x"]
    assert planned.kept == {"Critical": 1}




@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"nodeSelector": "pool=none"}, "nodeSelector: 'pool=none' selects no ready node, so nothing moves"),
        ({"evictor": {"labelSelector": {"matchLabels": {"a": "b"}}}}, "DefaultEvictor: labelSelector: selects no pod"),
        ({"evictor": {"nodeSelector": "pool=none", "nodeFit": True}}, "DefaultEvictor: nodeSelector: 'pool=none' selects no ready node, so nothing fits anywhere"),
        ({"evictor": {"nodeSelector": "pool=x"}}, "DefaultEvictor: nodeSelector: 'pool=x' says nothing without nodeFit"),
        ({"evictor": {"minReplicas": 1}}, "DefaultEvictor: minReplicas: 1 protects nobody: every owner that has a pod has one"),
        (
            {"evictor": {"podProtections": {"config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": "ssd"}]}}}}},
            "DefaultEvictor: podProtections.config.PodsWithPVC: says nothing without PodsWithPVC in extraEnabled",
        ),
        ({}, ""),
    ],
)  # fmt: skip
def test_what_selects_nothing_is_told(more, told):
    assert warnings(cluster(**more)) == [told] * bool(told)


@settings(max_examples=examples(30), deadline=None)
@any_of(st.integers(0, 10_000), st.sampled_from(["devices", "nodes", "capacity"]), st.booleans(), st.integers(0, 3), st.integers(0, 4))
def test_no_plan_breaks_a_limit_or_touches_a_node_that_is_left_out(seed, objective, whole, per_node, per_namespace):
    """And each can be carried out."""
    made = DefragmentationArgs(planner="optimizing", objective=objective, protectionThresholds={}, searchSteps=800, wholeNodes=whole)
    args = replace(made, capacity=CAPACITY) if objective == "capacity" else made
    state = random_cluster(seed, objective)
    left_out = NodeName(f"n{seed % 3}")
    nodes = frozenset(name for name in state.nodes if name != left_out)
    quota = Quota(per_node, per_namespace + 2, {}, {"default": 2})
    plan = defragmentation.plan(state, args, NOW, "p", scope=Scope(None, nodes, nodes, quota))
    assert max(Counter(m.source for m in plan.moves).values(), default=0) <= per_node
    assert len(plan.moves) <= per_namespace
    assert left_out not in {node for m in plan.moves for node in (m.source, m.target)}
    if whole:
        leaving = {m.pod for m in plan.moves}
        assert all(state.on_node[source].keys() <= leaving for source in {m.source for m in plan.moves if m.pod}), "all of a node, or none"
    carry_out(state, plan, seed)
    assert plan.kept.get("NodeSelector", 0) <= len(state.on_node.get(left_out, ()))
