"""RemovePodsViolatingInterPodAntiAffinity: whom a required anti-affinity is about in its domain."""

import pytest
from domain.build import given, node, pod, shape
from domain.descheduling.plugin_words import Plugin, reasons
from domain.descheduling_words import WEB

from restow.contracts import events as e
from restow.contracts.values import LabelSelector, PodTerm

rivals = Plugin("RemovePodsViolatingInterPodAntiAffinity")
HOST, ZONE = "kubernetes.io/hostname", "zone"
NODES = tuple(node(n, labels={HOST: n, ZONE: z}) for n, z in (("n1", "a"), ("n2", "a"), ("n3", "b")))
APART = LabelSelector({"app": "x"})


def shuns(name="apart", key=HOST, priority=0, **more):
    return shape(name, pod_anti_affinity=(PodTerm(key, more.pop("selector", APART), **more),), priority=priority)


def one(name, shape="apart", at="n1", **more):
    more.setdefault("labels", {"app": "x"})
    return pod(name, shape, at, owner=WEB, **more)


def test_one_of_each_domain_stays():
    state = given(*NODES, shuns(), *(one(n) for n in "abc"), one("d", at="n2"))
    outcome = rivals(state)
    assert reasons(outcome) == dict.fromkeys("ab", f"its anti-affinity is about a pod in the same {HOST}")


def test_domains_of_many_nodes():
    state = given(*NODES, shuns(key=ZONE), one("a"), one("b", at="n2"), one("c", at="n3"))
    assert rivals.gone(state) == ["a"]


def test_the_least_important_goes():
    state = given(*NODES, shuns("high", priority=10), shuns("low", priority=1), one("a", "high"), one("b", "low"), one("c", "high"))
    assert rivals.gone(state) == ["b", "a"]


OTHERS = {
    "in its way": ((), {}, True),
    "of other labels": ((), {"labels": {"app": "y"}}, False),
    "of another namespace": ((), {"namespace": "other"}, False),
    "of another domain": ((), {"at": "n3"}, False),
    "terminating": ((), {"deleting": 1}, False),
    "finished": ((), {"phase": "Succeeded"}, False),
}


@pytest.mark.parametrize(("facts", "is_", "goes"), OTHERS.values(), ids=OTHERS)
def test_who_is_in_its_way(facts, is_, goes):
    state = given(*NODES, shape("s"), shuns(), *facts, one("a"), one("b", "s", **is_))
    assert rivals.gone(state) == (["a"] if goes else [])


def test_namespaces_of_the_term():
    other = e.NamespaceObserved("other", {"team": "t"})
    for said in ({"namespaces": ("other",)}, {"namespace_selector": LabelSelector({"team": "t"})}):
        state = given(*NODES, other, shape("s"), shuns(**said), one("a"), one("b", "s", namespace="other"))
        assert rivals.gone(state) == ["a"], said


def test_only_required_terms():
    state = given(*NODES, shuns(weight=10), one("a"), one("b"))
    assert rivals.gone(state) == []


def test_a_term_about_others_only_lets_its_own_kind_be():
    state = given(*NODES, shape("s"), shuns(selector=LabelSelector({"app": "y"})), one("a"), one("b"), one("c", "s", labels={"app": "y"}))
    assert rivals.gone(state) == ["a", "b"]


def test_a_node_without_the_key_is_a_domain_of_its_own():
    state = given(node("n1"), node("n2"), shuns(), one("a"), one("b"), one("c", at="n2"))
    assert rivals.gone(state) == ["a"]


def test_whom_nobody_may_evict_stays_and_the_other_goes():
    state = given(*NODES, shuns(), one("a", static=True), one("b"))
    assert rivals.gone(state) == ["b"]


def test_limits():
    state = given(*NODES, shuns(), *(one(n) for n in "abc"))
    assert rivals.gone(state, limits={"maxNoOfPodsToEvictPerNode": 1}) == ["a"]


def test_pods_that_the_arguments_leave_out_are_in_nobodys_way():
    state = given(*NODES, shuns(), one("a"), one("b", labels={"app": "x", "keep": "yes"}))
    assert rivals.gone(state) == ["a"]
    assert rivals.gone(state, labelSelector={"matchExpressions": [{"key": "keep", "operator": "DoesNotExist"}]}) == []
