"""HighNodeUtilization: hardly used nodes are emptied, for as long as the others have capacity."""

import pytest
from domain.build import GIB, configured, given, node, pod, replica_of, shape, then
from domain.descheduling.plugin_words import Plugin, kept, reasons
from domain.descheduling_words import WEB
from domain.saga import move, plan

from restow.contracts.values import OwnerRef, Taint, Toleration
from restow.domain.config import DefragmentationArgs, MigrationConfig

high = Plugin("HighNodeUtilization")
NODES = tuple(node(n, cpu=10_000, memory=100 * GIB, pods=100) for n in ("n1", "n2", "n3"))
SHAPES = shape("s"), shape("wide", cpu=5_000)
CPU = {"thresholds": {"cpu": 20}}


def pods(count, at, shape="s", start=0, **more):
    more.setdefault("owner", WEB)
    return tuple(pod(f"{at}-{i}", shape, at, **more) for i in range(start, start + count))


def test_hardly_used_nodes_are_emptied_the_emptiest_first():
    state = given(*NODES, *SHAPES, *pods(2, "n1"), *pods(1, "n2"), *pods(1, "n3", "wide"))
    outcome = high(state, **CPU)
    assert [x.pod for x in outcome.evictions] == ["n2-0", "n1-0", "n1-1"]
    assert outcome.evictions[0].reason == "its node uses no more than cpu 20 %, and others have capacity"


def test_a_threshold_is_not_crossed_by_what_equals_it():
    state = given(*NODES, *SHAPES, *pods(2, "n1"), *pods(3, "n2"), *pods(3, "n3"))
    assert len(high.gone(state, **CPU)) == 2
    assert high.gone(state, thresholds={"cpu": 19.999}) == []


def test_every_resource_must_be_below():
    state = given(*NODES, *SHAPES, *pods(1, "n1"), *pods(1, "n2", "wide"), *pods(1, "n3", "wide"))
    assert high.gone(state, thresholds={"cpu": 20, "memory": 0.5}) == []
    assert high.gone(state, thresholds={"cpu": 20, "memory": 1}) == ["n1-0"]
    assert high.gone(state, thresholds={"cpu": 20, "pods": 0}) == []


def test_it_stops_where_the_others_have_no_capacity_left():
    state = given(*NODES[:2], *SHAPES, *pods(2, "n1"), *pods(9, "n2"))
    outcome = high(state, **CPU)
    assert [x.pod for x in outcome.evictions] == ["n1-0"]
    assert kept(outcome) == {"n1-1": "Capacity: the nodes that pods could go to have no cpu left"}


def test_the_least_important_go_first():
    state = given(*NODES[:2], *SHAPES, shape("low", priority=-1), *pods(1, "n1"), *pods(1, "n1", "low", 1), *pods(9, "n2"))
    assert high.gone(state, **CPU) == ["n1-1"]


NOTHING = {
    "no node is underutilized": (pods(3, "n1") + pods(3, "n2"), {}),
    "all nodes are underutilized: none is there to take pods": (pods(1, "n1"), {}),
    "1 nodes are underutilized; numberOfNodes asks for more than 1": (pods(3, "n1"), {"numberOfNodes": 1}),
}


@pytest.mark.parametrize(("there", "said"), NOTHING.values(), ids=NOTHING)
def test_why_nothing_is_done(there, said, request):
    state = given(*NODES[:2], *SHAPES, *there)
    assert high.gone(state, **CPU, **said) == []
    assert high.told(state, **CPU, **said) == [request.node.callspec.id]


def test_cordoned_nodes_are_emptied_but_not_filled():
    cordoned = node("n2", cpu=10_000, unschedulable=True)
    assert high.gone(given(NODES[0], cordoned, *SHAPES, *pods(3, "n1"), *pods(1, "n2")), **CPU) == ["n2-0"]
    state = given(NODES[0], cordoned, *SHAPES, *pods(1, "n1"), *pods(3, "n2"))
    assert high.gone(state, **CPU) == []
    assert high.told(state, **CPU) == ["no other node lets pods in"]


def test_taints_of_the_others():
    tainted = node("n2", cpu=10_000, taints=(Taint("a", "NoSchedule"),))
    brave = shape("brave", tolerations=(Toleration("a", "Exists"),))
    state = given(NODES[0], tainted, *SHAPES, brave, *pods(1, "n1"), *pods(1, "n1", "brave", 1), *pods(3, "n2"))
    outcome = high(state, **CPU)
    assert list(reasons(outcome)) == ["n1-1"]
    assert kept(outcome) == {"n1-0": "Taints: it tolerates those of no node that has capacity"}


def test_only_pods_that_ask_for_what_has_a_threshold():
    state = given(*NODES[:2], *SHAPES, shape("m", cpu=0), *pods(1, "n1", "m"), *pods(1, "n1", start=1), *pods(3, "n2"))
    assert sorted(high.gone(state, **CPU)) == ["n1-0", "n1-1"]
    assert high.gone(state, evictionModes=["OnlyThresholdingResources"], **CPU) == ["n1-1"]


def test_namespaces():
    state = given(*NODES[:2], *SHAPES, *pods(1, "n1"), *pods(1, "n1", start=1, namespace="other"), *pods(3, "n2"))
    assert high.gone(state, evictableNamespaces={"exclude": ["other"]}, **CPU) == ["n1-0"]
    assert high.gone(state, evictableNamespaces={"include": ["other"]}, **CPU) == ["n1-1"]


def test_gpus_by_the_name_that_users_know():
    nodes = node("n1", gpus=4), node("n2", gpus=4)
    state = given(*nodes, shape("g", cpu=0, memory=0, gpu=(1, 1000)), *pods(1, "n1", "g"), *pods(2, "n2", "g"))
    assert high.gone(state, thresholds={"nvidia.com/gpu": 25}) == ["n1-0"]


def test_daemon_pods_stay():
    daemon = OwnerRef("DaemonSet", "d", "uid-d")
    state = given(*NODES[:2], *SHAPES, *pods(1, "n1", owner=daemon), *pods(1, "n1", start=1, owner=replica_of("a")), *pods(3, "n2"))
    assert high.gone(state, **CPU) == ["n1-1"]


def test_arguments_that_make_no_sense():
    assert high.refused() == "thresholds: none; allowed: percentages by resource, such as cpu: 20"
    assert high.refused(thresholds={"cpu": 101}) == "thresholds.cpu: 101; allowed: 0 to 100"
    assert high.refused(thresholds={"cpu": -0.5}) == "thresholds.cpu: -0.5; allowed: 0 to 100"
    assert high.refused(evictionModes=["All"], **CPU) == "evictionModes[0]: 'All'; allowed: OnlyThresholdingResources"
    assert high.refused(numberOfNodes=-1, **CPU).startswith("numberOfNodes: ")
    assert high.refused(targetThresholds={"cpu": 50}, **CPU).startswith("Object contains unknown field `targetThresholds`")


def test_nodes_that_a_plan_has_touched_are_left_alone_for_a_while():
    """Seed 000's coolDownTime: packing and spreading never fight."""
    cooling = configured("migration", MigrationConfig(defragmentation=DefragmentationArgs(coolDownTime=7_200)))
    state = given(*NODES, *SHAPES, *pods(1, "n1"), *pods(2, "n2"), *pods(3, "n3"), cooling)
    assert high.gone(state, **CPU) == ["n1-0", "n2-0", "n2-1"]
    then(state, plan("earlier", move("m", "n1-0", "n1", "elsewhere")))
    outcome = high(state, **CPU)
    assert [one.pod for one in outcome.evictions] == ["n2-0", "n2-1"]
    assert kept(outcome)["n1-0"] == "Cooldown: a plan has touched its node within coolDownTime"
    then(state, plan("another", move("n", "n3-0", "n3", "elsewhere")))
    assert high.told(state, **CPU) == ["all nodes that pods could go to were touched by a plan within coolDownTime"]
