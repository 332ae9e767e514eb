"""One run of a policy: the order of plugins, the limits, and a verdict for whoever stays."""

import pytest
from domain.build import NOW, given, node, pod, shape
from domain.descheduling_words import HOUR, WEB, evaluate, evicted, policy, profile, why

from restow.contracts import events as e
from restow.contracts.values import Taint
from restow.domain.migration.run_once import carried_out
from restow.domain.snapshot import dump

TAINTED = "RemovePodsViolatingNodeTaints"


def web(name, where="n1", **more):
    return pod(name, "s", where, owner=WEB, **more)


def cluster(*pods, **tainted):
    return given(shape("s"), node("n1", **tainted), node("n2"), *pods)


def later(state, what):
    return evaluate(state, what, NOW + HOUR)


def test_pods_go_in_the_order_of_nodes_and_names_and_the_state_stays_as_it_is():
    state = cluster(web("b"), web("a"), web("c", "n2"), web("a2", namespace="aaa"))
    before = dump(state)
    outcome = later(state, policy())
    assert [(one.pod, one.node) for one in outcome.evictions] == [("a2", "n1"), ("a", "n1"), ("b", "n1"), ("c", "n2")]
    assert {(one.plugin, one.profile, one.point, one.grace) for one in outcome.evictions} == {("PodLifeTime", "default", "deschedule", None)}
    assert dump(state) == before
    assert later(state, policy()) == outcome


def test_the_grace_of_the_policy_is_on_every_eviction():
    (one,) = later(cluster(web("a")), policy(gracePeriodSeconds=5)).evictions
    assert one.grace == 5


@pytest.mark.parametrize(
    ("limits", "gone"),
    [
        ({"maxNoOfPodsToEvictTotal": 2}, ["a", "b"]),
        ({"maxNoOfPodsToEvictPerNode": 1}, ["a", "x"]),
        ({"maxNoOfPodsToEvictPerNamespace": 1}, ["a", "y"]),
        ({"maxNoOfPodsToEvictTotal": 0}, []),
        ({"maxNoOfPodsToEvictPerNode": 0}, []),
        ({"maxNoOfPodsToEvictPerNamespace": 0}, []),
        ({}, ["a", "b", "x", "y"]),
    ],
    ids=["total", "node", "namespace", "total 0", "node 0", "namespace 0", "none"],
)
def test_limits(limits, gone):
    state = cluster(web("a"), web("b"), web("x", "n2"), web("y", "n2", namespace="other"))
    outcome = later(state, policy(**limits))
    assert [one.pod for one in outcome.evictions] == gone
    assert set(why(outcome)) == {"a", "b", "x", "y"} - set(gone)
    assert set(why(outcome).values()) <= {"Limit"}


def test_all_profiles_deschedule_before_the_first_balances():
    first = profile("RemoveDuplicates", point="balance", name="first")
    second = profile(name="second")
    state = cluster(*(web(name) for name in "abc"))
    outcome = later(state, policy(first, second))
    assert [one.profile for one in outcome.evictions] == ["second"] * 3


def test_who_is_evicted_is_gone_for_later_plugins_and_counts_once():
    tainted = {"taints": (Taint("drain", "NoSchedule"),)}
    state = cluster(web("a"), web("b"), **tainted)
    both = policy(profile(name="old"), profile(TAINTED, name="tainted"), maxNoOfPodsToEvictTotal=3)
    outcome = later(state, both)
    assert [(one.pod, one.profile) for one in outcome.evictions] == [("a", "old"), ("b", "old")]
    assert outcome.verdicts == ()


def test_limits_are_shared_by_profiles():
    tainted = {"taints": (Taint("drain", "NoSchedule"),)}
    state = cluster(web("young", created=NOW + HOUR), web("old"), **tainted)
    both = policy(profile(name="old"), profile(TAINTED, name="tainted"), maxNoOfPodsToEvictPerNode=1)
    outcome = later(state, both)
    assert [one.pod for one in outcome.evictions] == ["old"]
    assert [(v.pod, v.profile, v.why.partition(":")[0]) for v in outcome.verdicts if v.profile == "tainted"] == [("young", "tainted", "Limit")]


@pytest.mark.parametrize("gone", [e.NodeGone("n2"), node("n2", ready=False)], ids=["gone", "not ready"])
def test_with_fewer_than_two_ready_nodes_nothing_is_looked_at(gone):
    state = given(shape("s"), node("n1"), node("n2"), web("a"), gone)
    outcome = later(state, policy())
    assert outcome.evictions == ()
    assert "at least 2" in outcome.skipped


def test_the_node_selector_chooses_nodes():
    state = given(
        shape("s"), node("n1", labels={"pool": "a"}), node("n2", labels={"pool": "a"}), node("n3", labels={"pool": "b"}), web("a"), web("b", "n3")
    )
    assert evicted(state, policy(nodeSelector="pool=a")) == ["a"]
    assert evicted(state, policy(nodeSelector="pool in (a, b)")) == ["a", "b"]
    assert "0 ready nodes" in later(state, policy(nodeSelector="pool=c")).skipped


def test_thresholds_of_resources_that_no_node_has_are_told():
    args = {"thresholds": {"cpu": 20, "nvidia.com/gpuu": 20}, "evictableNamespaces": {"include": ["default"]}}
    outcome = later(cluster(web("a")), policy(profile("HighNodeUtilization", args, point="balance")))
    first, second, *_ = (one.text for one in outcome.warnings if one.plugin == "HighNodeUtilization")
    assert first == "thresholds.nvidia.com/gpuu: no node has nvidia.com/gpuu"
    assert second.startswith("evictableNamespaces.include: upstream refuses it")


def test_a_cordoned_node_is_a_node():
    assert evicted(given(shape("s"), node("n1", unschedulable=True), node("n2"), web("a")), policy()) == ["a"]


def test_a_terminating_pod_is_not_evicted_again_even_if_it_asks_for_it():
    asked = {"descheduler.alpha.kubernetes.io/evict": "true"}
    state = cluster(web("a", deleting=NOW, annotations=asked), web("b", deleting=NOW))
    outcome = later(state, policy())
    assert outcome.evictions == ()
    assert set(why(outcome).values()) == {"Terminating"}


def test_a_pod_that_is_placed_but_not_bound_is_not_on_the_node():
    state = cluster(pod("a", "s", owner=WEB), e.PodPlaced("a", "n1"))
    assert evicted(state, policy()) == []


def test_what_is_refused_uses_up_no_limit_and_is_not_asked_for_twice():
    """As upstream: who is not evicted does not count, and the next one goes."""
    asked = []

    def carry(eviction):
        asked.append(eviction.pod)
        return "a budget does not allow it" if eviction.pod == "a" else ""

    state = cluster(web("a"), web("b"), web("c"))
    what = policy(profile(), profile(name="again"), maxNoOfPodsToEvictTotal=1)
    outcome = carried_out(state, what, NOW + HOUR, evicts=carry).outcome
    assert [one.pod for one in outcome.evictions] == ["b"]
    assert asked == ["a", "b"]
    assert why(outcome)["c"] == "Limit"


def test_a_source_gives_away_as_much_as_was_evicted_and_not_as_was_refused():
    """LowNodeUtilization stops where a node is no more over-used: by what has gone."""
    busy = [web(f"p{i}", created=0) for i in range(8)]
    state = given(shape("s", cpu=1_000), node("n1", cpu=10_000), node("n2", cpu=10_000), *busy)
    what = policy(profile("LowNodeUtilization", {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 60}}, point="balance"))
    for refused, gone in (((), ["p0", "p1"]), (("p0", "p1"), ["p2", "p3"])):
        made = carried_out(state, what, NOW + HOUR, evicts=lambda eviction, no=refused: "no" if eviction.pod in no else "")
        assert [one.pod for one in made.outcome.evictions] == gone


def test_of_equal_pods_those_go_last_that_prefer_to_stay():
    annotated = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}
    busy = [web(f"p{i}", annotations=annotated if i < 4 else {}) for i in range(8)]
    state = given(shape("s", cpu=1_000), node("n1", cpu=10_000), node("n2", cpu=10_000), *busy)
    what = policy(profile("LowNodeUtilization", {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 60}}, point="balance"))
    assert evicted(state, what) == ["p4", "p5"]


def test_who_is_moved_by_its_owner_already_is_not_evicted():
    moving = {"descheduler.alpha.kubernetes.io/eviction-in-progress": "", "descheduler.alpha.kubernetes.io/request-evict-only": ""}
    outcome = later(cluster(web("a", annotations=moving)), policy())
    assert (outcome.evictions, why(outcome)) == ((), {"a": "InBackground"})


def test_a_token_that_goes_in_the_clear_is_warned_of():
    """Upstream's own example has an http URL: it is followed."""
    secret = {"secretReference": {"namespace": "n", "name": "s"}}
    sources = [{"source": "Prometheus", "prometheus": {"url": "http://prometheus.monitoring:9090", "authToken": secret}}]
    (warned,) = later(cluster(), policy(metricsProviders=sources)).warnings
    assert (warned.profile, warned.plugin) == ("", "metricsProviders")
    assert "whoever is on the way can read the token" in warned.text
