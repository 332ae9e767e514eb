"""Topology spread and the scores of soft terms: given a cluster and a pod, then which nodes are out or preferred."""

import math

import numpy as np
import pytest
from domain.build import NOW, configured, given, pod, run, shape, then
from domain.topology_words import HOST, MISSING, SKEWED, ZONE, named, sel, zoned

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import PodTerm, Spread, Taint, Toleration
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.topology import Subject, Topology
from restow.domain.topology.scores import FRACTION, ln

PLAIN = shape("plain")
WEB = {"app": "web"}
NODES = (zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"), zoned("none"))


def out(state, labels, pinned="") -> dict[str, set[str]]:
    """Which nodes each reason removes for such a pod."""
    return named(state, Topology.of(state).spread(Subject("default", labels, "s", pinned)))


# -- topology spread -------------------------------------------------------------------------------------------------


def spread(*constraints: Spread, **more) -> e.ShapeDeclared:
    return shape("s", spread=constraints, **more)


def per_zone(**more) -> Spread:
    return Spread(1, ZONE, "DoNotSchedule", sel(app="web"), **more)


def webs(*where: str, **more) -> list[e.PodObserved]:
    return [pod(f"web{i}", "plain", name, labels=WEB, **more) for i, name in enumerate(where)]


def test_a_zone_may_not_be_more_than_max_skew_above_the_emptiest():
    state = given(NODES, PLAIN, spread(per_zone()), *webs("a1"))
    assert out(state, WEB) == {SKEWED: {"a1", "a2"}, MISSING: {"none"}}
    then(state, pod("more", "plain", "b1", labels=WEB))
    assert out(state, WEB) == {MISSING: {"none"}}


def test_a_pod_that_the_selector_is_not_about_does_not_count_itself():
    state = given(NODES, PLAIN, spread(per_zone()), *webs("a1"))
    assert out(state, {"app": "api"}) == {MISSING: {"none"}}


@pytest.mark.parametrize("keys", [(), ("absent",)])
def test_a_selector_without_requirements_counts_nobody_but_the_pod_itself(keys):
    """So does kube-scheduler (`countPodsMatchSelector`; asked of 1.36.3)."""
    all_of_them = Spread(1, ZONE, "DoNotSchedule", sel(), match_label_keys=keys)
    state = given(NODES, PLAIN, spread(all_of_them), *webs("a1", "a1", "a1"))
    assert out(state, WEB) == {MISSING: {"none"}}
    state = given(NODES, PLAIN, spread(Spread(1, ZONE, "ScheduleAnyway", sel(), match_label_keys=keys)), *webs("a1", "a1", "a1"))
    assert scores(state, "spread_score") == [10_000, 10_000, 10_000, 0]


@pytest.mark.parametrize("who", [{"namespace": "other"}, {"deleting": 5}], ids=["other namespaces", "terminating pods"])
def test_spread_does_not_count(who):
    state = given(NODES, PLAIN, spread(per_zone()), *webs("a1", "a2", **who))
    assert out(state, WEB) == {MISSING: {"none"}}


def test_with_fewer_domains_than_min_domains_the_global_minimum_is_zero():
    state = given(NODES, PLAIN, spread(per_zone(min_domains=3)), *webs("a1", "b1"))
    assert out(state, WEB) == {SKEWED: {"a1", "a2", "b1"}, MISSING: {"none"}}
    then(state, zoned("c1", "c"))
    assert out(state, WEB) == {SKEWED: {"a1", "a2", "b1"}, MISSING: {"none"}}
    then(state, pod("more", "plain", "c1", labels=WEB))
    assert out(state, WEB) == {MISSING: {"none"}}


POLICIES = {
    "honours node affinity by default": (per_zone(), {"node_selector": {"disk": "ssd"}}, False),
    "ignores node affinity": (per_zone(node_affinity_policy="Ignore"), {"node_selector": {"disk": "ssd"}}, True),
    "ignores taints by default": (per_zone(), {}, True),
    "honours taints": (per_zone(node_taints_policy="Honor"), {}, False),
    "honours tolerations": (per_zone(node_taints_policy="Honor"), {"tolerations": (Toleration("t", "Exists"),)}, True),
}


@pytest.mark.parametrize(("constraint", "more", "counted"), POLICIES.values(), ids=POLICIES)
def test_an_empty_zone_counts_only_if_the_constraint(constraint, more, counted):
    """Zone c is empty, but tainted and without the disk."""
    disks = [zoned(n, n[0], labels={"disk": "ssd"}) for n in ("a1", "b1")]
    state = given(disks, zoned("c1", "c", taints=(Taint("t", "NoSchedule"),)), PLAIN, spread(constraint, **more), *webs("a1", "b1"))
    assert ("a1" in out(state, WEB).get(SKEWED, ())) is counted


def test_a_daemons_node_is_the_only_one_that_counts_for_it():
    state = given(NODES, PLAIN, spread(per_zone()), *webs("a1"))
    assert out(state, WEB, pinned="a1") == {MISSING: {"none"}}


def test_a_node_fails_for_the_first_constraint_that_it_does_not_meet():
    hosts = Spread(1, HOST, "DoNotSchedule", sel(app="web"))
    state = given(NODES, PLAIN, spread(hosts, per_zone()), *webs("none", "none"))
    # A node that lacks a key of any constraint is no domain of the others, either.
    assert out(state, WEB) == {MISSING: {"none"}}
    then(state, pod("more", "plain", "a1", labels=WEB))
    assert out(state, WEB) == {SKEWED: {"a1", "a2"}, MISSING: {"none"}}


def test_pods_move_with_the_labels_of_their_node():
    state = given(NODES, PLAIN, spread(per_zone()), *webs("a1"))
    then(state, zoned("a1", "b"))
    assert out(state, WEB) == {SKEWED: {"a1", "b1"}, MISSING: {"none"}}
    then(state, e.NodeGone("a1"))
    assert out(state, WEB) == {MISSING: {"none"}}


# -- scores ----------------------------------------------------------------------------------------------------------


def scores(state, which: str, labels=WEB, shape="s", among=("a1", "a2", "b1", "none")) -> list[int] | None:
    rows = np.zeros(len(state.table.names), bool)
    rows[[state.table.rows[name] for name in among]] = True
    found = getattr(Topology.of(state), which)(Subject("default", labels, shape), rows)
    return None if found is None else [int(found[state.table.rows[name]]) for name in ("a1", "a2", "b1", "none")]


def test_preferred_terms_add_and_subtract_their_weight_per_pod():
    liked, loathed = PodTerm(ZONE, sel(app="web"), weight=30), PodTerm(HOST, sel(app="web"), weight=10)
    soft = shape("s", pod_affinity=(liked,), pod_anti_affinity=(loathed,))
    state = given(NODES, PLAIN, soft, *webs("a1", "a1", "b1"))
    # a1: 60 - 20, a2: 60, b1: 30 - 10, none: 0
    assert scores(state, "affinity_score") == [6_666, 10_000, 3_333, 0]
    assert scores(state, "affinity_score", among=("a1", "b1")) == [10_000, 0, 0, 0]


def test_terms_of_running_pods_count_too_and_their_required_affinity_a_little():
    theirs = shape("t", pod_affinity=(PodTerm(HOST, sel(app="web")), PodTerm(ZONE, sel(app="web"), weight=9)))
    state = given(NODES, PLAIN, theirs, pod("p", "t", "a1"))
    assert scores(state, "affinity_score", shape="plain") == [10_000, 9_000, 0, 0]
    assert scores(state, "affinity_score", {"app": "api"}, shape="plain") is None


def test_soft_spread_prefers_the_emptier_domain_and_never_a_node_without_the_key():
    soft = spread(Spread(1, ZONE, "ScheduleAnyway", sel(app="web")))
    state = given(NODES, PLAIN, soft, *webs("a1", "a2", "a2", "b1"))
    # Two zones: 3 * ln 4 rounds to 4, 1 * ln 4 to 1; (4 + 1 - 4) / 4 and (4 + 1 - 1) / 4.
    assert scores(state, "spread_score") == [2_500, 2_500, 10_000, 0]
    assert scores(given(NODES, soft), "spread_score") == [10_000, 10_000, 10_000, 0]


@pytest.mark.parametrize(("affinity", "even", "chosen"), [(1, 0, "a1"), (0, 1, "b1")])
def test_either_preference_counts_without_the_other(affinity, even, chosen):
    """The pod would be near its like, and evenly spread."""
    order = PluginConfig("nodeorder", {}, {f"{name}.weight": 0 for name in ("leastrequested", "balancedresource")} | {"podaffinity.weight": affinity, "podtopologyspread.weight": even})
    conf = configured("session", SessionConfig(actions=(ActionConfig("allocate"),), tiers=((PluginConfig("predicates"), order),)))
    both = spread(Spread(1, ZONE, "ScheduleAnyway", sel(app="web")), pod_affinity=(PodTerm(HOST, sel(app="web"), weight=1),))
    state = given(conf, NODES, PLAIN, both, *webs("a1"), pod("p", labels=WEB))
    run(state, session.decider, c.Schedule(NOW))
    assert state.placed["p"].node == chosen


def test_the_logarithm_is_exact_and_needs_no_floating_point():
    assert [ln(n) for n in (1, 2, 5_002)] == [math.floor(math.log(n) * (1 << FRACTION)) for n in (1, 2, 5_002)]
