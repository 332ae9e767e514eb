"""Plugin `fragmentation`: where a pod goes, on which device, and why; the quick forms against the definition in plain Python."""

import math

import numpy as np
import pytest
from domain.build import NOW, changed, configured, given, node, pod, replica_of, shape, then
from effort import examples
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceShare, Expression, NodeTerm
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.fragmentation import model, rules_of
from restow.domain.fragmentation.model import Model
from restow.domain.fragmentation.typical import PARTS, Census, typical
from restow.domain.predicates import static_mask
from restow.domain.session import decider
from restow.domain.session.node_snapshot import NodeSnapshot
from restow.domain.session.placer import Placer, Rankings
from restow.domain.session.plugins.fragmentation import (
    CURVE,
    FINE,
    PACKING,
    Gradient,
    Packed,
    gradient,
    gradients,
    packed,
)
from restow.domain.session.scoring import SCALE

MODELS = ("T4", "V100")
LIKES_T4 = (NodeTerm((Expression("model", "In", ("T4",)),)),)
PLUGINS = ((PluginConfig("predicates"), PluginConfig("fragmentation")),)
CONF = configured("session", SessionConfig(actions=(ActionConfig("allocate"),), tiers=PLUGINS))


def share(*pairs):
    return tuple(DeviceShare(i, m) for i, m in pairs)


def decided(state):
    """Where the session puts every pod: name → (node, its devices)."""
    events = decider.decide(state, c.Schedule(NOW, 1_000))
    return {event.pod: (event.node, event.devices) for event in events if isinstance(event, e.PodPlaced)}


# -- where a pod goes -----------------------------------------------------------------------------------------------------


def test_a_pod_goes_where_it_leaves_nothing_useless():
    """Most pods ask for half a GPU. On the fuller node 600 are left, and 400 would be: no half fits there any more."""
    state = given(
        CONF,
        node("far", gpus=8, cpu=64_000),
        node("fresh", gpus=1),
        node("used", gpus=1),
        shape("half", gpu=(1, 500)),
        shape("fifth", gpu=(1, 200)),
        *[pod(f"half{i}", "half", "far", devices=share((i // 2, 500))) for i in range(16)],
        pod("there", "fifth", "used", devices=share((0, 200))),
        pod("also", "fifth", "used", devices=share((0, 200))),
        pod("new", "fifth"),
    )
    assert decided(state) == {"new": ("fresh", share((0, 200)))}


def test_where_nothing_becomes_useless_the_fuller_node_is_better():
    """And so a whole GPU stays whole."""
    state = given(
        CONF,
        node("fresh", gpus=1),
        node("used", gpus=1),
        shape("fifth", gpu=(1, 200)),
        pod("there", "fifth", "used", devices=share((0, 200))),
        pod("new", "fifth"),
    )
    assert decided(state) == {"new": ("used", share((0, 200)))}


def test_a_pod_without_gpu_stays_off_cpu_that_idle_gpus_need():
    state = given(
        CONF,
        node("gpu", gpus=4, cpu=8_000),
        node("full", gpus=1, cpu=64_000),
        shape("train", cpu=2_000, gpu=(1, 1000)),
        shape("web", cpu=7_000),
        pod("t", "train", "full", devices=share((0, 1000))),
        pod("w", "web"),
    )
    # By packing alone `gpu` would be chosen: it has less cpu left.
    assert decided(state) == {"w": ("full", ())}


def test_the_device_is_the_one_on_which_least_becomes_useless():
    """Least free share would be the 400; then 200 were left, and nobody asks for so little."""
    state = given(
        CONF,
        node("n", gpus=2, cpu=64_000),
        shape("s400", gpu=(1, 400)),
        shape("s200", gpu=(1, 200)),
        shape("s600", gpu=(1, 600)),
        *[pod(f"a{i}", "s400", phase="Running") for i in range(20)],
        pod("x", "s600", "n", devices=share((0, 600))),
        pod("y", "s400", "n", devices=share((1, 400))),
        pod("p", "s200"),
    )
    # Device 0 has 400, device 1 has 600. Of typical pods most ask for 400.
    assert decided(state)["p"] == ("n", share((1, 200)))
    assert state.table.choose_devices(state.table.rows["n"], state.vectors["s200"].devices) == share((0, 200))


def test_typical_pods_count_only_where_their_rules_let_them_run():
    """The T4 node is where the typical pod can run: what it could use is not wasted on a pod that may go anywhere."""
    state = given(
        CONF,
        node("a-t4", gpus=2, labels={"model": "T4"}),
        node("b-v100", gpus=2, labels={"model": "V100"}),
        shape("picky", gpu=(1, 1000), node_affinity=LIKES_T4),
        shape("any", gpu=(1, 500)),
        *[pod(f"p{i}", "picky", phase="Running") for i in range(9)],
        pod("new", "any"),
    )
    assert decided(state)["new"][0] == "b-v100"


def test_without_gpus_the_fuller_node_is_better():
    state = given(CONF, node("a"), node("b"), shape("s"), pod("there", node="b"), pod("p"))
    assert decided(state) == {"p": ("b", ())}


def test_weight_0_is_no_opinion():
    quiet = PluginConfig("fragmentation", arguments={"fragmentation.weight": 0})
    conf = configured("session", SessionConfig(actions=(ActionConfig("allocate"),), tiers=((PluginConfig("predicates"), quiet),)))
    state = given(conf, node("a"), node("b"), shape("s"), pod("there", node="b"), pod("p"))
    assert decided(state) == {"p": ("a", ())}


# -- typical pods ---------------------------------------------------------------------------------------------------------


def weights(state):
    return {demand.needs[0][1]: demand.weight for demand in typical(state).demands}


def test_popularity_is_in_256ths_and_the_rare_is_not_typical():
    pods = [pod(f"a{i}", "a") for i in range(600)] + [pod(f"b{i}", "b") for i in range(399)] + [pod("c", "c")]
    state = given(shape("a", cpu=1), shape("b", cpu=2), shape("c", cpu=3), *pods)
    assert weights(state) == {1: 154, 2: 102}


def test_what_asks_for_the_same_is_one_and_daemon_sets_and_finished_pods_do_not_count():
    state = given(
        shape("a", cpu=1), shape("z", cpu=1, priority=9), shape("d", cpu=5),
        pod("1", "a"), pod("2", "z"), pod("3", "d", owner=replica_of("ds", "DaemonSet")), pod("4", "d", static=True),
        pod("5", "d", phase="Succeeded"),
    )  # fmt: skip
    assert weights(state) == {1: PARTS}


def test_pods_that_come_finish_and_go_are_counted_as_they_are():
    state = given(shape("a", cpu=1), shape("b", cpu=2), pod("1", "a"), pod("2", "b"))
    assert weights(state) == {1: 128, 2: 128}
    then(state, changed("2", phase="Succeeded"))
    assert weights(state) == {1: 256}
    then(state, pod("3", "b"), pod("4", "b"), e.PodGone("1"))
    assert weights(state) == {2: 256}


def test_equal_clusters_have_equal_typical_pods():
    state = given(shape("a", cpu=1), shape("b", cpu=2), *[pod(f"p{i}", "ab"[i % 3 == 0]) for i in range(300)])
    before = typical(state)
    then(state, pod("q", "a"))
    assert typical(state) == before


@settings(max_examples=examples(60), deadline=None)
@any_of(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.booleans()), max_size=80))
def test_counting_what_moved_is_counting_all(steps):
    """However pods came and went since."""
    state = given(*[shape(f"s{i}", cpu=i + 1) for i in range(6)])
    typical(state)
    for uid, at, gone in steps:
        then(state, e.PodGone(str(uid)) if gone and str(uid) in state.pods else pod(str(uid), f"s{at}"))
        assert state.memo.find(Census).refresh(state)
        assert state.memo.find(Census).popular() == Census(state).popular()
    got = typical(state)
    state.memo.clear()
    assert typical(state) == got


# -- the score ------------------------------------------------------------------------------------------------------------


def test_the_curve_is_the_sigmoid_in_whole_gpus():
    for i, height in enumerate(CURVE):
        assert abs(SCALE / (1 + math.exp(-i / 4)) - SCALE / 2 - height) <= 0.5
    for growth in range(-9_000, 9_000, 13):
        assert abs(gradient(growth * FINE) - SCALE / (1 + math.exp(min(growth, 8_000) / 1000))) < 12
    steps = np.arange(-50_000, 50_000, 7)
    assert gradients(steps).tolist() == [gradient(growth) for growth in steps.tolist()]
    assert (np.diff(gradients(steps)) <= 0).all()


SHAPES = {
    "web": {"cpu": 2_000},
    "none": {"cpu": 0, "memory": 0},
    "s160": {"cpu": 500, "gpu": (1, 160)},
    "s810": {"cpu": 500, "gpu": (1, 810)},
    "picky": {"cpu": 500, "gpu": (1, 470), "node_affinity": LIKES_T4},
    "whole": {"cpu": 3_000, "gpu": (1, 1000)},
    "pair": {"cpu": 3_000, "gpu": (2, 1000)},
    "parts": {"cpu": 100, "gpu": (3, 300)},
    "odd": {"cpu": 100, "requests": {"example.com/other": 1}},
}
NODES = st.lists(st.tuples(st.integers(500, 9_000), st.integers(0, 5), st.integers(0, 1)), min_size=1, max_size=12)
CHARGES = st.lists(st.tuples(st.integers(0, 99), st.sampled_from(list(SHAPES))), max_size=25)
MIX = st.lists(st.sampled_from(list(SHAPES)), max_size=30)


def cluster(nodes, mix):
    machines = [node(f"n{i:02}", cpu=cpu, gpus=gpus, labels={"model": MODELS[kind]}) for i, (cpu, gpus, kind) in enumerate(nodes)]
    return given(*machines, *[shape(name, **what) for name, what in SHAPES.items()], *[pod(f"p{i}", name) for i, name in enumerate(mix)])


def unusable(state, scorer, row, free, devices):
    """By definition, times the sum of all weights: where a typical pod cannot run, all idle share; where it can, the shares
    that are each too small for it."""
    found, idle = 0, [max(d, 0) for d in devices]
    for demand in scorer.typical.demands:
        runs = demand.count > 0 and static_mask(state, scorer.typical.rules[demand.rule])[row]
        runs = runs and all(free[column] >= amount for column, amount in demand.needs)
        able = [d for d in idle if d >= demand.milli]
        usable = sum(able) if runs and len(able) >= demand.count else 0
        found += demand.weight * (sum(idle) - usable)
    return found


def by_definition(state, scorer, name, row):
    """(score, devices) by trying what the plugin may choose, one after the other."""
    v, table = state.vectors[name], state.table
    free, devices = table.free[row].tolist(), table.device_free[row].tolist()
    after = list(free)
    for column, amount in v.items:
        after[column] -= amount
    request = v.devices
    if request is None:
        choices = [()]
    elif request.count > 1:
        choices = [table.choose_devices(row, request)]
    else:
        choices = [share((i, request.milli)) for i, d in enumerate(devices) if d >= request.milli]
    tried = []
    for choice in choices:
        left = list(devices)
        for d in choice:
            left[d.index] -= d.milli
        fullest = devices[choice[0].index] if len(choice) == 1 else 0
        tried.append((unusable(state, scorer, row, after, left), fullest, choice))
    grown, _, chosen = min(tried, key=lambda it: (it[0], it[1], [d.index for d in it[2]]))
    growth = (grown - unusable(state, scorer, row, free, devices)) * FINE // max(scorer.typical.weights, 1)
    cpu = table.columns["cpu"]
    idle_gpu = sum(max(d, 0) for d in devices) - (request.count * request.milli if request else 0)
    gpu_part = idle_gpu * SCALE // scorer.packed.devices
    cpu_part = max(after[cpu], 0) * SCALE // scorer.packed.cpu
    shared = request is not None and request.milli < 1000
    idle = (3 * gpu_part + cpu_part) // 4 if shared else (2 * gpu_part + 3 * cpu_part) // 5
    return (gradient(growth) * (SCALE - PACKING) + (SCALE - idle) * PACKING) // SCALE * scorer.weight, chosen


@settings(max_examples=examples(200), deadline=None)
@any_of(NODES, MIX, CHARGES)
def test_both_forms_and_the_devices_are_what_the_definition_says(nodes, mix, charges):
    state = cluster(nodes, mix)
    table = state.table
    for at, name in charges:
        row, v = at % len(nodes), state.vectors[name]
        if (devices := table.choose_devices(row, v.devices)) is not None:
            table.charge(row, v, devices, 1)
    scorer = Gradient(2, typical(state), packed(state))
    node_classes = scorer.node_classes(state)
    for name in SHAPES:
        v, one, many = state.vectors[name], scorer.one(state, name), scorer.many(state, name)(slice(None))
        for row in range(len(nodes)):
            if not table.fits_row(row, v):
                continue
            kept = table.free[row].tolist(), table.allocatable[row].tolist(), table.device_free[row].tolist()
            score, devices = by_definition(state, scorer, name, row)
            assert one(*kept, int(node_classes[row])) == many[row] == score
            assert scorer.devices(state, name, row) == devices
            assert 0 <= score <= 2 * SCALE


@settings(max_examples=examples(60), deadline=None)
@any_of(NODES, MIX, CHARGES)
def test_kept_rankings_know_the_kinds_of_nodes(nodes, mix, charges):
    """Nodes with the same left, where other typical pods may run, do not score the same."""
    state = cluster(nodes * 2, mix)
    then(state, *[node(f"n{i:02}", cpu=nodes[0][0], gpus=nodes[0][1], labels={"model": MODELS[i % 2]}) for i in range(len(nodes))])
    scorers = ((Gradient(1, typical(state), packed(state)),), ())
    board = NodeSnapshot(state.table)
    placer = Placer(state, board, scorers)
    for at, name in charges:
        row, v = at % len(state.table.names), state.vectors[name]
        if (devices := state.table.choose_devices(row, v.devices)) is not None:
            board.take(row, v, devices)
        kept = placer.keys(name).copy()
        memo = state.memo.pop(Rankings)
        np.testing.assert_array_equal(kept, Placer(state, NodeSnapshot(state.table), scorers).keys(name))
        state.memo[Rankings] = memo
    board.close()


def test_many_resources_are_numbered_without_overflow(monkeypatch):
    state = cluster([(500 * i, i % 4, i % 2) for i in range(1, 40)], [*SHAPES])
    scorer = Gradient(1, typical(state), packed(state))
    before = {name: scorer.many(state, name)(slice(None)) for name in SHAPES}
    monkeypatch.setattr(model, "MAX_CODE", 1)
    for name in SHAPES:
        np.testing.assert_array_equal(scorer.many(state, name)(slice(None)), before[name])


def test_tables_that_are_forgotten_are_made_again(monkeypatch):
    state = cluster([(500 * i, i % 4, i % 2) for i in range(1, 40)], [*SHAPES])
    scorer = Gradient(1, typical(state), packed(state))
    before = {name: scorer.many(state, name)(slice(None)) for name in SHAPES}
    state.memo.pop(Model)
    monkeypatch.setattr(model, "MAX_OPEN", 1)
    for name in SHAPES:
        np.testing.assert_array_equal(scorer.many(state, name)(slice(None)), before[name])


def test_shapes_with_equal_rules_are_one_rule():
    state = cluster([(8_000, 1, 0), (8_000, 1, 1)], [*SHAPES])
    made = typical(state)
    assert len(made.rules) == len({str(rules_of(state.shapes[name])) for name in SHAPES}) == 2
    node_classes = Model.of(state, made).node_classes(state)
    assert node_classes[0] != node_classes[1]


def test_packing_is_measured_by_the_largest_node():
    assert packed(given(node("a", gpus=2, cpu=4_000), node("b", gpus=1, cpu=9_000))) == Packed(2_000, 9_000)
    assert packed(given()) == Packed(1, 1)


@pytest.mark.parametrize("gone", [True, False])
def test_a_node_that_changes_its_model_changes_its_kind(gone):
    state = cluster([(8_000, 1, 0), (8_000, 1, 0)], ["picky"])
    scorer = Gradient(1, typical(state), packed(state))
    assert len(set(scorer.node_classes(state).tolist())) == 1
    then(state, node("n01", cpu=8_000, gpus=1, labels={} if gone else {"model": "V100"}))
    assert len(set(scorer.node_classes(state).tolist())) == 2
