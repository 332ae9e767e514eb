"""DefaultEvictor: which pods may be evicted at all, and which would find another node."""

import pytest
from domain.build import GIB, NOW, given, node, pod, shape
from domain.descheduling_words import HOUR, WEB, evaluate, evicted, policy, profile, why

from restow.contracts import events as e
from restow.contracts.values import Expression, HostPort, LabelSelector, NodeTerm, OwnerRef, PodTerm, Taint

EVICT = "descheduler.alpha.kubernetes.io/evict"
PREFER_NO = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
CRITICAL = 2_000_000_000


def verdict(*facts, evictor=None, name="p"):
    """The rule that keeps the pod `p`; empty where it goes."""
    state = given(node("n1"), node("n2"), shape("s"), *facts)
    outcome = evaluate(state, policy(profile(evictor=evictor)), NOW + HOUR)
    if name in {one.pod for one in outcome.evictions}:
        return ""
    return why(outcome)[name]


def one(shape="s", owner=WEB, **more):
    return pod("p", shape, "n1", owner=owner, **more)


def protect(*extra, off=(), **config):
    return {"podProtections": {"extraEnabled": list(extra), "defaultDisabled": list(off), **({"config": config} if config else {})}}


DAEMON = OwnerRef("DaemonSet", "agent", "uid-agent", "apps/v1")
PROTECTED = {
    "an ordinary pod": ((one(),), None, ""),
    "a static pod": ((one(static=True),), None, "Static"),
    "a bare pod": ((one(owner=None),), None, "Bare"),
    "owned by what does not control it": ((one(owner=None, owners=(WEB,)),), None, ""),
    "a bare pod that has not failed": ((one(owner=None),), protect(off=("FailedBarePods",)), "Bare"),
    "of a DaemonSet": ((one(owner=DAEMON),), None, "DaemonSet"),
    "of a DaemonSet, allowed": ((one(owner=DAEMON),), {"evictDaemonSetPods": True}, ""),
    "critical": ((shape("c", priority=CRITICAL), one("c")), None, "SystemCritical"),
    "critical, allowed": ((shape("c", priority=CRITICAL), one("c")), protect(off=("SystemCriticalPods",)), ""),
    "priority at the threshold": ((shape("c", priority=100), one("c")), {"priorityThreshold": {"value": 100}}, "Priority"),
    "priority below the threshold": ((shape("c", priority=99), one("c")), {"priorityThreshold": {"value": 100}}, ""),
    "the threshold goes with its protection": (
        (shape("c", priority=100), one("c")),
        {"priorityThreshold": {"value": 100}, "evictSystemCriticalPods": True},
        "",
    ),
    "threshold by name": (
        (e.PriorityClassObserved("high", 100), shape("c", priority=100), one("c")),
        {"priorityThreshold": {"name": "high"}},
        "Priority",
    ),
    "a threshold that nobody knows keeps all": ((one(),), {"priorityThreshold": {"name": "high"}}, "Priority"),
    "local storage": ((shape("l", local_storage=True), one("l")), None, "LocalStorage"),
    "local storage, allowed": ((shape("l", local_storage=True), one("l")), {"evictLocalStoragePods": True}, ""),
    "a claim": ((shape("v", volumes=("persistentVolumeClaim",)), one("v", claims=("c",))), None, ""),
    "a claim, ignored": ((shape("v", volumes=("persistentVolumeClaim",)), one("v", claims=("c",))), {"ignorePvcPods": True}, "PVC"),
    "resource claims": ((shape("r", resource_claims=("gpu",)), one("r")), protect("PodsWithResourceClaims"), "ResourceClaims"),
    "labels": ((one(labels={"a": "b"}),), {"labelSelector": {"matchLabels": {"a": "c"}}}, "Labels"),
    "labels that are selected": ((one(labels={"a": "b"}),), {"labelSelector": {"matchLabels": {"a": "b"}}}, ""),
    "too few replicas": ((one(),), {"minReplicas": 2}, "MinReplicas"),
    "enough replicas": ((one(), pod("q", "s", "n2", owner=WEB)), {"minReplicas": 2}, ""),
    "one replica is no bound": ((one(),), {"minReplicas": 1}, ""),
    "of several owners replicas are not counted": ((one(owners=(OwnerRef("X", "x", "uid-x"),)),), {"minReplicas": 2}, ""),
    "too young": ((one(started=NOW + HOUR - 60_000),), {"minPodAge": "1m1s"}, "MinPodAge"),
    "old enough": ((one(started=NOW + HOUR - 60_000),), {"minPodAge": "1m"}, ""),
    "not started": ((one(),), {"minPodAge": "1m"}, "MinPodAge"),
    "asks to stay": ((one(annotations={PREFER_NO: ""}),), {"noEvictionPolicy": "Mandatory"}, "NoEviction"),
    "prefers to stay": ((one(annotations={PREFER_NO: ""}),), {"noEvictionPolicy": "Preferred"}, ""),
    "asks to go": ((one(owner=DAEMON, annotations={EVICT: ""}),), None, ""),
    "asks for both": ((one(annotations={EVICT: "", PREFER_NO: ""}),), {"noEvictionPolicy": "Mandatory"}, ""),
}


@pytest.mark.parametrize(("facts", "evictor", "rule"), PROTECTED.values(), ids=PROTECTED)
def test_who_may_be_evicted(facts, evictor, rule):
    assert verdict(*facts, evictor=evictor) == rule


def test_a_bare_pod_that_has_failed_may_go():
    state = given(node("n1"), node("n2"), shape("s"), one(owner=None, phase="Failed", ready=False))
    what = policy(profile("RemoveFailedPods", {"minPodLifetimeSeconds": 0}, {"evictFailedBarePods": True}))
    assert evicted(state, what) == ["p"]


BUDGET = e.BudgetObserved("default", "b", "uid-b", LabelSelector({"app": "web"}), 1)


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        ((one(labels={"app": "web"}), BUDGET), ""),
        ((one(labels={"app": "other"}), BUDGET), "WithoutPDB"),
        ((one(labels={"app": "web"}),), "WithoutPDB"),
        ((one(namespace="elsewhere", labels={"app": "web"}), BUDGET), "WithoutPDB"),
        ((one(), e.BudgetObserved("default", "all", "u", LabelSelector())), ""),
        ((one(), e.BudgetObserved("default", "none", "u", None)), "WithoutPDB"),
        ((one(labels={"app": "web"}), BUDGET, e.BudgetGone("default", "b")), "WithoutPDB"),
    ],
    ids=["covered", "other labels", "no budget", "other namespace", "of all", "of none", "budget gone"],
)
@pytest.mark.parametrize("evictor", [protect("PodsWithoutPDB"), {"ignorePodsWithoutPDB": True}], ids=["extraEnabled", "deprecated"])
def test_pods_without_a_budget_stay_where_that_is_asked_for(facts, rule, evictor):
    """dev-45: upstream's program as a whole keeps everything, for its informer of budgets is never started."""
    assert verdict(*facts, evictor=evictor) == rule


def test_with_a_budget_only_the_last_pod_of_its_owner_may_go():
    asked = protect("PodsWithPDBBlockingSingleReplicaOwner")
    assert verdict(one(labels={"app": "web"}), BUDGET, evictor=asked) == ""
    assert verdict(one(labels={"app": "web"}), pod("q", "s", "n2", owner=WEB), BUDGET, evictor=asked) == "PDB"
    assert verdict(one(), pod("q", "s", "n2", owner=WEB), BUDGET, evictor=asked) == "", "no budget is about it"


@pytest.mark.parametrize(
    ("claims", "rule"),
    [
        ((e.ClaimObserved("default", "c", "u", storage_class="fast"),), "PVC"),
        ((e.ClaimObserved("default", "c", "u", storage_class="slow"),), ""),
        ((e.ClaimObserved("default", "c", "u"),), "PVC"),
        ((), "PVC"),
    ],
    ids=["protected", "another class", "no class", "no claim"],
)
def test_claims_of_protected_storage_classes(claims, rule):
    asked = protect("PodsWithPVC", PodsWithPVC={"protectedStorageClasses": [{"name": "fast"}]})
    facts = (shape("v", volumes=("persistentVolumeClaim",)), one("v", claims=("c",)), *claims)
    assert verdict(*facts, evictor=asked) == rule


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"matchLabels": {"env": "prod"}}, ""),
        ({"matchLabels": {"env": "dev"}}, "Namespace"),
        ({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}, "Namespace"),
        ({}, ""),
    ],
)
def test_namespaces_by_their_labels(asked, rule):
    assert verdict(one(), e.NamespaceObserved("default", {"env": "prod"}), evictor={"namespaceLabelSelector": asked}) == rule


def test_a_namespace_that_nobody_knows_is_not_selected():
    assert verdict(one(), evictor={"namespaceLabelSelector": {"matchLabels": {"env": "prod"}}}) == "Namespace"


# -- nodeFit -----------------------------------------------------------------------------------------------------------


def fit(*facts, other=None, **args):
    """Whether the pod `p` of node n1 may go, with one other node; the whole verdict where it may not."""
    state = given(node("n1"), other or node("n2"), shape("s"), *facts)
    outcome = evaluate(state, policy(profile(evictor={"nodeFit": True, **args})), NOW + HOUR)
    return next((v.why for v in outcome.verdicts if v.pod == "p"), "")


AWAY = PodTerm("kubernetes.io/hostname", LabelSelector({"app": "web"}))
HOST = {"kubernetes.io/hostname": "n2"}
MISFITS = {
    "a taint": ((one(),), node("n2", taints=(Taint("t", "NoSchedule"),)), "untolerated taint {t: }"),
    "a preference only": ((one(),), node("n2", taints=(Taint("t", "PreferNoSchedule"),)), ""),
    "a cordon": ((one(),), node("n2", unschedulable=True), "unschedulable"),
    "cpu": ((one(),), node("n2", cpu=999), "Insufficient cpu"),
    "memory": ((one(),), node("n2", memory=GIB - 1), "Insufficient memory"),
    "room in use": ((one(), pod("q", "s", "n2", owner=WEB)), node("n2", cpu=1_999), "Insufficient cpu"),
    "too many pods": ((one(), pod("q", "s", "n2", owner=WEB)), node("n2", pods=1), "Too many pods"),
    "a selector": ((shape("a", node_selector={"zone": "z"}), one("a")), node("n2", labels={"zone": "y"}), "node affinity/selector"),
    "an affinity that fits": (
        (shape("a", node_affinity=(NodeTerm((Expression("zone", "In", ("z",)),)),)), one("a")),
        node("n2", labels={"zone": "z"}),
        "",
    ),
    "a port": (
        (shape("a", host_ports=(HostPort(80),)), one("a"), pod("q", "a", "n2", owner=WEB)),
        node("n2"),
        "free ports",
    ),
    "its own anti-affinity": (
        (shape("a", pod_anti_affinity=(AWAY,)), one("a", labels={"app": "web"}), pod("q", "s", "n2", owner=WEB, labels={"app": "web"})),
        node("n2", labels=HOST),
        "anti-affinity",
    ),
    "another's anti-affinity": (
        (shape("a", pod_anti_affinity=(AWAY,)), one(labels={"app": "web"}), pod("q", "a", "n2", owner=WEB)),
        node("n2", labels=HOST),
        "anti-affinity",
    ),
    "a DaemonSet's pod has one node": ((one(pinned_node="n1"),), node("n2"), "requested node name"),
}


@pytest.mark.parametrize(("facts", "other", "reason"), MISFITS.values(), ids=MISFITS)
def test_with_node_fit_a_pod_goes_only_where_it_fits(facts, other, reason):
    said = fit(*facts, other=other)
    assert (reason in said) if reason else said == ""
    assert said == "" or said.startswith("NodeFit: 0 of 1 other nodes would take it: 1 ")


def test_its_own_node_is_no_other_node_and_its_own_port_is_free():
    assert "NodeFit" in fit(one(), other=node("n2", unschedulable=True))
    assert fit(shape("a", host_ports=(HostPort(80),)), one("a")) == ""


def test_the_evictors_node_selector_says_where_pods_may_go():
    assert fit(one(), nodeSelector="pool=a") == "NodeFit: 0 of 0 other nodes would take it"
    assert fit(one(), other=node("n2", labels={"pool": "a"}), nodeSelector="pool=a") == ""


def test_capacity_that_is_held_is_not_free():
    held = e.TaskReserved("q", "n2")
    assert "reserved for a job that starves" in fit(one(), pod("q", "s"), held)


def test_asking_leaves_no_trace():
    state = given(node("n1"), node("n2", labels=HOST), shape("a", pod_anti_affinity=(AWAY,)), *(
        pod(name, "a", "n1", owner=WEB, labels={"app": "web"}) for name in "pqr"
    ))  # fmt: skip
    asked = policy(profile(evictor={"nodeFit": True}))
    first = evaluate(state, asked, NOW + HOUR)
    assert len(first.evictions) == 3, "each of them fits there; who comes second is the scheduler's to say"
    assert evaluate(state, asked, NOW + HOUR) == first


def test_what_selects_nothing_is_said():
    state = given(node("n1"), node("n2"), shape("s"), one())
    said = {
        "priorityThreshold": {"name": "high"},
        "labelSelector": {"matchLabels": {"a": "b"}},
        "namespaceLabelSelector": {"matchLabels": {"a": "b"}},
        "nodeFit": True,
        "nodeSelector": "pool=none",
    }
    texts = [w.text for w in evaluate(state, policy(profile(evictor=said)), NOW).warnings if w.plugin == "DefaultEvictor"]
    assert [text.partition(":")[0] for text in texts] == ["priorityThreshold.name", "nodeSelector", "labelSelector", "namespaceLabelSelector"]
