"""PodLifeTime: what is old enough, or has been in a state that the policy names; the oldest first."""

import pytest
from domain.build import NOW, given, node, pod, replica_of, shape
from domain.descheduling.plugin_words import Plugin, kept
from domain.descheduling_words import HOUR, WEB

from restow.contracts import events as e
from restow.contracts.values import Container, ContainerTrouble, OwnerRef, PodCondition

life = Plugin("PodLifeTime")
WORLD = (node("n1"), node("n2"), shape("s"))


def one(name="p", at="n1", **more):
    more.setdefault("owner", WEB)
    return pod(name, node=at, **more)


def troubled(*containers, conditions=(), name="p"):
    return e.PodTroubled(name, containers, conditions)


def test_only_what_is_older_goes_and_the_oldest_first():
    ages = {"a": 700, "b": 600, "c": 601, "d": 5000}
    state = given(*WORLD, *(one(name, "n2" if name == "a" else "n1", created=NOW - age * 1000) for name, age in ages.items()))
    outcome = life(state, now=NOW, maxPodLifeTimeSeconds=600)
    assert [x.pod for x in outcome.evictions] == ["d", "a", "c"]
    assert outcome.evictions[0].reason == "is 5000 s old, older than 600 s"
    assert kept(outcome) == {"b": "Age: 600 s; only older than 600 s"}


def test_finished_pods_are_looked_at():
    state = given(*WORLD, one("f", phase="Failed"), one("r"), one("s", phase="Succeeded"))
    assert life.gone(state, states=["Failed", "Succeeded"]) == ["f", "s"]


STARTS = one(phase="Pending", ready=False, unready=NOW, sandboxless=NOW, waiting="ContainerCreating")
WAITS = one(phase="Pending", ready=False, unready=NOW, initialized=NOW - 60_000, waiting="PodInitializing")
DONE = one(phase="Succeeded", ready=False, unready=NOW, initialized=NOW - 60_000)
STATES = {
    "phase": ((one(),), {"states": ["Running"]}, True),
    "another phase": ((one(),), {"states": ["Pending"]}, False),
    "pending with a node": ((one(phase="Pending", ready=False),), {"states": ["Pending"]}, True),
    "reason of the pod": ((one(reason="NodeLost"),), {"states": ["NodeLost"]}, True),
    "waiting": ((one(), troubled(ContainerTrouble("c", waiting="ErrImagePull"))), {"states": ["ErrImagePull"]}, True),
    "ended": ((one(), troubled(ContainerTrouble("c", terminated="OOMKilled", exit_code=137))), {"states": ["OOMKilled"]}, True),
    "an init container": (
        (one(), troubled(ContainerTrouble("c", "init", waiting="CrashLoopBackOff"))),
        {"states": ["CrashLoopBackOff"]},
        False,
    ),
    "an init container, included": (
        (one(), troubled(ContainerTrouble("c", "init", waiting="CrashLoopBackOff"))),
        {"states": ["CrashLoopBackOff"], "includingInitContainers": True},
        True,
    ),
    "an ephemeral container": (
        (one(), troubled(ContainerTrouble("c", "ephemeral", terminated="Error"))),
        {"states": ["Error"], "includingInitContainers": True},
        False,
    ),
    "an ephemeral container, included": (
        (one(), troubled(ContainerTrouble("c", "ephemeral", terminated="Error"))),
        {"states": ["Error"], "includingEphemeralContainers": True},
        True,
    ),
    "its containers are created": ((STARTS,), {"states": ["ContainerCreating"]}, True),
    "they are created, it is not initialized": ((STARTS,), {"states": ["PodInitializing"]}, False),
    "one that waits for init containers": ((WAITS,), {"states": ["PodInitializing"], "includingInitContainers": True}, True),
    "what is stored of it is all": ((STARTS, troubled(ContainerTrouble("c", restarts=1))), {"states": ["ContainerCreating"]}, False),
    "succeeded": ((DONE,), {"states": ["Completed"]}, True),
    "exit code of one that has succeeded": ((DONE,), {"exitCodes": [0]}, True),
    "exit code": ((one(), troubled(ContainerTrouble("c", terminated="Error", exit_code=3))), {"exitCodes": [1, 3]}, True),
    "another exit code": ((one(), troubled(ContainerTrouble("c", terminated="Error", exit_code=2))), {"exitCodes": [1, 3]}, False),
    "exit code of who still runs": ((one(),), {"exitCodes": [0]}, False),
    "exit code of an ephemeral container never counts": (
        (one(), troubled(ContainerTrouble("c", "ephemeral", exit_code=3))),
        {"exitCodes": [3], "includingEphemeralContainers": True},
        False,
    ),
}


@pytest.mark.parametrize(("facts", "args", "goes"), STATES.values(), ids=STATES)
def test_states(facts, args, goes):
    assert life.gone(given(*WORLD, *facts), **args) == (["p"] if goes else [])


NOT_READY = PodCondition("Ready", "False", "PodCompleted", NOW)
CONDITIONS = {
    "type": ({"type": "Ready"}, True),
    "all that is said": ({"type": "Ready", "status": "False", "reason": "PodCompleted"}, True),
    "one thing differs": ({"type": "Ready", "status": "True"}, False),
    "only a reason": ({"reason": "PodCompleted"}, True),
    "for long enough": ({"type": "Ready", "minTimeSinceLastTransitionSeconds": 3600}, True),
    "not for long enough": ({"type": "Ready", "minTimeSinceLastTransitionSeconds": 3601}, False),
}


@pytest.mark.parametrize(("condition", "goes"), CONDITIONS.values(), ids=CONDITIONS)
def test_conditions(condition, goes):
    state = given(*WORLD, one(ready=False), troubled(conditions=(NOT_READY,)))
    assert life.gone(state, conditions=[{"type": "Other"}, condition]) == (["p"] if goes else [])


PLAIN = {
    "not ready": (STARTS, {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}, True),
    "not ready for long enough": (STARTS, {"type": "ContainersReady", "minTimeSinceLastTransitionSeconds": 3600}, True),
    "not for long enough": (STARTS, {"type": "Ready", "minTimeSinceLastTransitionSeconds": 3601}, False),
    "without a sandbox": (STARTS, {"type": "PodReadyToStartContainers", "status": "False"}, True),
    "initialized, for all that is said": (STARTS, {"type": "Initialized"}, False),
    "not initialized": (WAITS, {"type": "Initialized", "status": "False", "minTimeSinceLastTransitionSeconds": 3660}, True),
    "not initialized for long enough": (WAITS, {"type": "Initialized", "minTimeSinceLastTransitionSeconds": 3661}, False),
    "completed": (DONE, {"reason": "PodCompleted", "status": "True"}, True),
    "completed, and so not ready": (DONE, {"type": "Ready", "reason": "PodCompleted", "status": "False"}, True),
    "completed does not mean unready": (DONE, {"reason": "ContainersNotReady"}, False),
}


@pytest.mark.parametrize(("who", "condition", "goes"), PLAIN.values(), ids=PLAIN)
def test_conditions_that_every_pod_has_for_a_while(who, condition, goes):
    assert life.gone(given(*WORLD, who), conditions=[condition]) == (["p"] if goes else [])


def test_a_ready_pod_has_the_conditions_that_it_must_have():
    state = given(*WORLD, one())
    assert life.gone(state, conditions=[{"type": "Ready", "status": "True"}]) == ["p"]
    told = {"type": "Ready", "status": "True", "minTimeSinceLastTransitionSeconds": 1}
    assert life.gone(state, conditions=[told]) == [], "since when is not known from logs in which nobody said it"


@pytest.mark.parametrize(("type", "since"), [("PodScheduled", 1), ("PodReadyToStartContainers", 2), ("Initialized", 3), ("ContainersReady", 9), ("Ready", 10)])
def test_conditions_of_a_pod_that_runs_well_have_a_time(type, since):
    """Counted from its creation, an hour before."""
    state = given(*WORLD, one(created=NOW, well=(1, 2, 3, 9, 10)))
    for least, goes in ((3600 - since, True), (3601 - since, False)):
        asked = {"type": type, "status": "True", "minTimeSinceLastTransitionSeconds": least}
        assert bool(life.gone(state, now=NOW + HOUR, conditions=[asked])) is goes


def test_of_a_pod_that_is_not_ready_the_others_are_known_too():
    state = given(*WORLD, one(created=NOW, ready=False, unready=NOW + 4_000, well=(1, 2, 3, -1, -1)))
    for type, status, goes in (("PodScheduled", "True", True), ("Initialized", "True", True), ("Ready", "True", False), ("Ready", "False", True)):
        assert bool(life.gone(state, now=NOW + HOUR, conditions=[{"type": type, "status": status}])) is goes, type


def test_init_containers_that_have_done_their_work_are_known_of_a_pod_that_fares_well():
    state = given(node("n1"), node("n2"), shape("s", containers=(Container("main"), Container("setup", init=True))), one(), one("q", phase="Pending", ready=False))
    assert life.gone(state, states=["Completed"], includingInitContainers=True) == ["p"]
    assert life.gone(state, exitCodes=[0], includingInitContainers=True) == ["p"]
    assert life.gone(state, states=["Completed"]) == []


def test_owner_kinds():
    job, two = replica_of("j", "Job"), OwnerRef("Widget", "w", "uid-w")
    state = given(*WORLD, one("a", owner=job), one("b"), one("c", owner=job, owners=(two,)))
    said = {"maxPodLifeTimeSeconds": 1}
    assert life.gone(state, ownerKinds={"include": ["Job"]}, **said) == ["a", "c"]
    assert life.gone(state, ownerKinds={"exclude": ["Widget", "ReplicaSet"]}, **said) == ["a"]


def test_every_criterion_must_be_met():
    state = given(*WORLD, one("a", phase="Failed"), one("b"), troubled(ContainerTrouble("c", exit_code=1), name="a"))
    said = {"states": ["Failed"], "exitCodes": [1], "ownerKinds": {"include": ["ReplicaSet"]}}
    assert life.gone(state, maxPodLifeTimeSeconds=3599, **said) == ["a"]
    assert life.gone(state, maxPodLifeTimeSeconds=3600, **said) == []


def test_a_full_node_is_passed_over_and_the_next_oldest_elsewhere_goes():
    state = given(*WORLD, *(one(n, at, created=NOW - age) for n, at, age in (("a", "n1", 3000), ("b", "n1", 2000), ("c", "n2", 1000))))
    outcome = life(state, limits={"maxNoOfPodsToEvictPerNode": 1}, maxPodLifeTimeSeconds=1)
    assert [x.pod for x in outcome.evictions] == ["a", "c"]
    assert kept(outcome) == {"b": "Limit: this run evicts nothing more from the node"}


def test_selectors_that_select_nothing_are_told():
    state = given(e.NamespaceObserved("default"), *WORLD, one())
    said = {"maxPodLifeTimeSeconds": 1}
    assert life.told(state, namespaces={"include": ["defualt"]}, **said) == ["namespaces: defualt does not exist"]
    assert life.told(state, labelSelector={"matchLabels": {"a": "b"}}, **said) == ["labelSelector: selects no pod on these nodes"]
    assert life.told(state, **said) == []


def test_arguments_that_make_no_sense():
    assert life.refused() == "no criterion; allowed: maxPodLifeTimeSeconds, states, conditions, exitCodes, at least one"
    assert life.refused(states=["Running", "Bad"]).startswith("states[1]: 'Bad'; allowed: Completed, ")
    assert life.refused(conditions=[{}]).startswith("conditions[0]: empty; allowed: type, ")
    assert life.refused(maxPodLifeTimeSeconds=-1).startswith("maxPodLifeTimeSeconds: ")
    both = {"include": ["a"], "exclude": ["b"]}
    said = "has include and exclude; allowed: one of them"
    assert life.refused(states=["Running"], ownerKinds=both) == f"ownerKinds: {said}"
    assert life.refused(states=["Running"], namespaces=both) == f"namespaces: {said}"
    assert life.refused(state=["Running"]).startswith("Object contains unknown field `state`")


def test_an_hour_is_an_hour():
    assert life.gone(given(*WORLD, one()), now=NOW + HOUR, maxPodLifeTimeSeconds=3599) == ["p"]
