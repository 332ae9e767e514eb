"""RemoveFailedPods: pods of phase Failed, by age, reason, exit code and owner."""

import pytest
from domain.build import NOW, given, node, pod, replica_of, shape
from domain.descheduling.plugin_words import Plugin, kept, reasons
from domain.descheduling_words import HOUR, WEB

from restow.contracts import events as e
from restow.contracts.values import ContainerTrouble

failed = Plugin("RemoveFailedPods")
WORLD = (node("n1"), node("n2"), shape("s"))


def one(name="p", **more):
    return pod(name, node="n1", **({"owner": WEB, "phase": "Failed"} | more))


def test_an_hour_is_the_least_age_where_nothing_is_said():
    state = given(*WORLD, one("a", created=NOW - 1000), one("b"), one("c", phase="Running", created=0))
    outcome = failed(state)
    assert reasons(outcome) == {"a": "has failed", "b": "has failed"}, "also at exactly that age, as upstream has it"
    assert kept(failed(state, now=NOW + HOUR - 1000)) == {"b": "Age: 3599 s; only 3600 s and older"}
    assert failed.gone(state, now=NOW, minPodLifetimeSeconds=0) == ["a", "b"], "0 asks for no age"


CODES = (ContainerTrouble("a", terminated="Error", exit_code=1), ContainerTrouble("b", "init", waiting="Never", exit_code=7))
CASES = {
    "reason of the pod": ({"reason": "NodeAffinity"}, {"reasons": ["NodeAffinity"]}, True),
    "reason of a container": ({}, {"reasons": ["Error"]}, True),
    "another reason": ({}, {"reasons": ["OOMKilled"]}, False),
    "reason of an init container": ({}, {"reasons": ["Never"]}, False),
    "reason of an init container, included": ({}, {"reasons": ["Never"], "includingInitContainers": True}, True),
    "exit code": ({}, {"exitCodes": [0, 1]}, True),
    "another exit code": ({}, {"exitCodes": [7]}, False),
    "exit code of an init container, included": ({}, {"exitCodes": [7], "includingInitContainers": True}, True),
    "reason and exit code": ({}, {"reasons": ["Error"], "exitCodes": [1]}, True),
    "reason without exit code": ({}, {"reasons": ["Error"], "exitCodes": [2]}, False),
    "excluded owner": ({}, {"excludeOwnerKinds": ["ReplicaSet"]}, False),
    "another owner is excluded": ({}, {"excludeOwnerKinds": ["Job"]}, True),
    "any of its owners": ({"owners": (replica_of("j", "Job"),)}, {"excludeOwnerKinds": ["Job"]}, False),
    "of another namespace": ({}, {"namespaces": {"exclude": ["default"]}}, False),
    "of other labels": ({}, {"labelSelector": {"matchLabels": {"a": "b"}}}, False),
    "bare, which the evictor lets go once it has failed": ({"owner": None}, {}, False),
}


@pytest.mark.parametrize(("is_", "args", "goes"), CASES.values(), ids=CASES)
def test_which_go(is_, args, goes):
    state = given(*WORLD, one(**is_), e.PodTroubled("p", CODES))
    assert failed.gone(state, now=NOW + 2 * HOUR, **args) == (["p"] if goes else [])


def test_a_bare_pod_goes_where_the_policy_lets_failed_bare_pods_go():
    state = given(*WORLD, one(owner=None))
    assert failed.gone(state, now=NOW + 2 * HOUR, evictor={"evictFailedBarePods": True}) == ["p"]


def test_it_says_why_the_pod_failed():
    assert reasons(failed(given(*WORLD, one(reason="Shutdown")), minPodLifetimeSeconds=0)) == {"p": "has failed: Shutdown"}


def test_arguments_that_make_no_sense():
    assert failed.refused(minPodLifetimeSeconds=-1).startswith("minPodLifetimeSeconds: ")
    assert failed.refused(labelSelector={"matchExpressions": [{"key": "a", "operator": "Is"}]}) == (
        "labelSelector.matchExpressions[0].operator: 'Is'; allowed: In, NotIn, Exists, DoesNotExist"
    )
