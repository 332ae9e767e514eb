"""The default planner asks the scheduler's rules about a target, and has nothing left to do where its plan ends."""

import msgspec
from domain import ruled
from domain.build import NOW, given, node, pod, replica_of, shape
from domain.planning import afterwards, carry_out, cluster
from effort import examples
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.values import LabelSelector, PodTerm
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs

CPU = DefragmentationArgs("cpu", {"cpu": 90}, {"cpu": 40}, {"cpu": 40})
OFTEN = DefragmentationArgs("cpu", {"cpu": 100}, {"cpu": 50}, {"cpu": 50})
GPU = DefragmentationArgs("nvidia.com/gpu", {"nvidia.com/gpu": 100}, {"nvidia.com/gpu": 50}, {"nvidia.com/gpu": 50})
HOST, ZONE = "kubernetes.io/hostname", "zone"


def apart(key: str) -> e.ShapeDeclared:
    return shape("apart", cpu=1_000, pod_anti_affinity=(PodTerm(key, LabelSelector({"app": "x"})),))


def named(name: str, zone: str) -> e.NodeObserved:
    return node(name, cpu=8_000, labels={HOST: name, ZONE: zone})


def app(name: str, on: str, shape: str = "s", **labels: str) -> e.PodObserved:
    return pod(name, shape, on, owner=replica_of("rs"), labels=labels)


def state_of(key: str, *more: e.Event):
    """a has one pod; b, the fullest, has one that keeps its like away; c would do."""
    fill = [app(f"b{i}", "b") for i in range(5)] + [app(f"c{i}", "c") for i in range(5)]
    return given(shape("s", cpu=1_000), apart(key), named("a", "1"), named("b", "2"), named("c", "3"), app("p", "a", app="x"), app("k", "b", "apart"), *fill, *more)


def test_other_pods_anti_affinity_keeps_a_pod_off_a_target():
    got = defragmentation.plan(state_of(HOST), CPU, NOW, "p")
    assert [(m.pod, m.target) for m in got.moves] == [("p", "c")], "b is fuller"


def test_a_node_with_a_pod_that_asks_for_more_than_any_node_has_is_full_and_others_are_emptied():
    """Whoever binds a pod may write any number into it: plans ended in an OverflowError (from 10^14 times a core of what a node has)."""
    got = defragmentation.plan(state_of(HOST, shape("huge", cpu=1 << 62), node("d", cpu=1), app("h", "d", "huge")), CPU, NOW, "p")
    assert [(m.pod, m.target) for m in got.moves] == [("p", "c")]


def test_where_no_target_is_left_by_it_the_plan_says_so():
    state = state_of(ZONE, app("k2", "c", "apart"))
    got = defragmentation.plan(state, CPU, NOW, "p")
    assert got.moves == ()
    (found,) = [c for c in defragmentation.explain(state, CPU, NOW) if c.pod == "p"]
    assert found.verdict == "NoTarget: node(s) didn't satisfy existing pods anti-affinity rules"
    assert found.removed == {"node(s) didn't satisfy existing pods anti-affinity rules": 2}


@settings(max_examples=examples(60), deadline=None)
@any_of(st.integers(0, 100_000), st.sampled_from([20, 40, 60]))
def test_the_scheduler_would_make_each_move_whichever_of_them_have_landed(seed, low):
    state = ruled.cluster(seed)
    args = msgspec.structs.replace(OFTEN, lowThresholds={"cpu": low}, defragmentThresholds={"cpu": low})
    got = defragmentation.plan(state, args, NOW, "p")
    rest = [*state.nodes.values(), *(e.ShapeDeclared(id, spec) for id, spec in state.shapes.items())]
    target = {move.pod: move.target for move in got.moves}
    for move in got.moves:
        for landed in (True, False):
            others = [
                msgspec.structs.replace(fact.fact, node=target.get(uid, fact.fact.node) if landed else fact.fact.node)
                for uid, fact in state.pods.items()
                if uid != move.pod
            ]
            successor = msgspec.structs.replace(state.pods[move.pod].fact, node=None, phase="Pending", ready=False)
            assert ruled.may([*rest, *others], successor, move.target), move


@settings(max_examples=examples(60), deadline=None)
@any_of(st.integers(0, 100_000), st.sampled_from(["devices", "nodes", "capacity", "rules"]), st.integers(0, 2))
def test_a_second_plan_is_empty(seed, kind, number):
    """By the seed's rules: targets only fill up and stay below their protection, sources only become emptier, and no node changes from one
    to the other. (Not so with perDevice, where a device that is put to use counts anew, nor where the limit of moves ended the plan.)"""
    state = ruled.cluster(seed) if kind == "rules" else cluster(seed, kind)
    args = msgspec.structs.replace(GPU if kind == "devices" else OFTEN, numberOfNodes=number)
    got = defragmentation.plan(state, args, NOW, "p")
    assert defragmentation.plan(afterwards(state, carry_out(state, got, seed)), args, NOW, "p").moves == ()
