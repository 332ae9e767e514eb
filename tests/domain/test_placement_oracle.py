"""Placement equals the slow and obvious scheduler of `tests/oracle`: same node, same devices, same volumes, same pods left
over, same counts of reasons, same node table afterwards; whatever is allocated, a few features at a time and all together.

Where no plugin scores, the first name is best: then only filters count."""

import pytest
from domain.build import GIB, NOW, configured, given, node, pod, run, shape
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from oracle.compare import compare
from oracle.schedule import Rules, unready_first
from oracle.scores import best_fit, nodeorder, preferred, untainted, weighted
from oracle.storage import HOST, ZONE, bound, claim, on_hosts, taken
from oracle.strategies import FEATURES, worlds
from oracle.world import World

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import config, session

WEIGHTS = ("leastrequested", "mostrequested", "balancedresource", "nodeaffinity", "tainttoleration", "podaffinity", "podtopologyspread")


def nodeorder_with(*weights: int) -> config.PluginConfig:
    """No preferences about neighbours: those are compared in test_topology_property."""
    padded = (*weights, *[0] * (len(WEIGHTS) - len(weights)))
    return config.PluginConfig("nodeorder", {}, {f"{name}.weight": weight for name, weight in zip(WEIGHTS, padded, strict=True)})


def equal(world, pod, node) -> int:
    return 0


SCORERS = {
    "filters": ((), equal),
    "least": ((nodeorder_with(1),), nodeorder(1, 0, 0)),
    "default": ((nodeorder_with(1, 0, 1, 2, 3),), weighted((1, nodeorder(1, 0, 1)), (1, preferred(2)), (1, untainted(3)))),
    "most": ((nodeorder_with(0, 2, 1),), nodeorder(0, 2, 1)),
    "binpack": ((config.PluginConfig("binpack"),), best_fit),
}

ALONE = [
    (),
    ("node_state", "taints"),
    ("selectors", "pinned"),
    ("ports", "running"),
    ("extended", "devices", "running"),
    ("spread", "running", "terminating", "namespaces"),
    ("affinity", "running", "terminating", "namespaces"),
    ("gangs", "devices"),
    ("best_effort", "running"),
    ("volumes", "running"),
    ("preferences", "taints", "selectors"),
]


def check(facts, scorer: str = "filters") -> None:
    plugins, score = SCORERS[scorer]
    first = config.PluginConfig("priority"), config.PluginConfig("gang")
    conf = config.SessionConfig(tiers=(first, (config.PluginConfig("predicates"), *plugins)))
    state = given(configured("session", conf), facts)
    world = World.of(facts)
    events = run(state, session.decider, c.Schedule(NOW))
    compare(state, events, world, Rules(score, order=unready_first))


@pytest.mark.parametrize("features", ALONE, ids=" ".join)
@settings(max_examples=examples(60))
@for_all(data=st.data(), scorer=st.sampled_from(list(SCORERS)))
def test_the_session_places_as_the_oracle_does(features, data, scorer):
    check(data.draw(worlds(features)), scorer)


@pytest.mark.slow
@settings(max_examples=examples(150))
@for_all(worlds(FEATURES), st.sampled_from(list(SCORERS)))
def test_the_session_places_as_the_oracle_does_whatever_comes_together(facts, scorer):
    check(facts, scorer)


def test_of_nodes_that_would_be_equally_full_the_first_is_chosen_however_their_shares_round():
    """12/35 and 6/7 are as much as twice 3/5."""
    facts = [node("n1", cpu=3_500, memory=7 * GIB), node("n2", cpu=2_000, memory=5 * GIB), shape("s", cpu=1_200, memory=3 * GIB)]
    check([*facts, shape("there", cpu=0, memory=3 * GIB), pod("x", "there", "n1"), pod("p")], "binpack")


BETA = "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(("of_volume", "of_node"), [(BETA, ZONE), (ZONE, BETA)])
def test_a_volumes_old_zone_label_means_the_nodes_new_one_and_not_the_other_way_round(of_volume, of_node):
    """kube-scheduler's VolumeZone, translateToGALabel."""
    facts = [node("n1", labels={of_node: "b"}), node("n2"), shape("s"), bound("c", "v")]
    check([*facts, taken("v", "c", zones={of_volume: "b"}), pod("p", claims=("c",))])


def test_a_node_may_refuse_bound_and_unbound_claims_at_once_and_counts_for_both():
    """kube-scheduler's VolumeBinding gives both reasons."""
    local = e.StorageClassObserved("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer")
    facts = [node(n, labels={HOST: n}) for n in ("n1", "n2")] + [shape("s"), local, claim("d", storage_class="local")]
    check([*facts, bound("c", "v"), taken("v", "c", affinity=on_hosts("n2")), pod("p", claims=("c", "d"))])
