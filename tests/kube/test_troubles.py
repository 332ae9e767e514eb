"""What a pod on a node says of itself becomes a fact where it is notable, and only when it changes."""

import json

import pytest

from restow.contracts import events as e
from restow.contracts.values import ContainerTrouble, LabelSelector, OwnerRef, PodCondition
from restow.domain.fold import apply
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState
from restow.kube import decode as d
from restow.kube import wire_objects as w
from restow.kube.budgets import budget_fact
from restow.kube.describe import pod_fact
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown
from restow.kube.reflector import Delete, Upsert
from restow.kube.troubles import tell

AT = "2026-01-01T00:00:00Z"
MILLIS = 1_767_225_600_000
WELL = [{"type": t, "status": "True", "lastTransitionTime": AT} for t in ("PodScheduled", "Initialized", "Ready", "ContainersReady")]
RUNS = {"name": "main", "restartCount": 0, "state": {"running": {"startedAt": AT}}}


def plain():
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u1"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}


def a_pod(node="n1", conditions=WELL, containers=(RUNS,), init=(), ephemeral=(), **status):
    made = plain()
    made["spec"]["nodeName"] = node
    made["status"] = status | {
        "phase": "Running",
        "conditions": list(conditions),
        "containerStatuses": list(containers),
        "initContainerStatuses": list(init),
        "ephemeralContainerStatuses": list(ephemeral),
    }
    return decoded(made)


def decoded(made):
    return d.PODS.object(json.dumps(made).encode())


def status(name="main", restarts=0, **state):
    return {"name": name, "restartCount": restarts, "state": state}


def told(**said):
    return tell(a_pod(**said)).troubles


def test_a_pod_that_runs_well_has_none():
    assert told() == ((), ())
    done = status("setup", terminated={"exitCode": 0, "reason": "Completed"})
    assert told(init=[done]) == ((), ()), "an init container that has done its work is none"
    odd = status("setup", terminated={"exitCode": 0, "reason": "CreateContainerConfigError"})
    assert len(told(init=[odd])[0]) == 1, "what a policy may name is told"


def test_a_pod_without_a_node_has_none():
    unschedulable = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": AT}]
    assert told(node="", conditions=unschedulable) == ((), ())


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        ({"containers": [status(restarts=3)]}, ContainerTrouble("main", restarts=3)),
        ({"containers": [status(waiting={"reason": "ImagePullBackOff"})]}, ContainerTrouble("main", waiting="ImagePullBackOff")),
        (
            {"containers": [status(terminated={"exitCode": 137, "reason": "OOMKilled"})]},
            ContainerTrouble("main", terminated="OOMKilled", exit_code=137),
        ),
        ({"containers": [status(terminated={"exitCode": 0})]}, ContainerTrouble("main", exit_code=0)),
        ({"init": [status("i", 2, waiting={"reason": "CrashLoopBackOff"})]}, ContainerTrouble("i", "init", 2, "CrashLoopBackOff")),
        ({"ephemeral": [status("e", terminated={"exitCode": 1})]}, ContainerTrouble("e", "ephemeral", exit_code=1)),
    ],
    ids=["restarts", "waits", "ended", "ended well", "init", "ephemeral"],
)
def test_what_is_told_of_containers(said, trouble):
    assert told(**said) == ((trouble,), ())


def test_what_is_told_of_conditions_that_are_not_plain():
    not_ready = {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": AT}
    completed = {"type": "Initialized", "status": "True", "reason": "PodCompleted", "lastTransitionTime": AT}
    own = {"type": "example.com/gate", "status": "True"}
    assert told(conditions=[not_ready, completed, own]) == (
        (),
        (
            PodCondition("Ready", "False", "ContainersNotReady", MILLIS),
            PodCondition("Initialized", "True", "PodCompleted", MILLIS),
            PodCondition("example.com/gate", "True"),
        ),
    )


def say(state, *changes):
    batch = Batch(StateKnown(state))
    for change in changes:
        batch.add(d.PODS, change)
    apply(state, batch.events())
    return [event.__struct_config__.tag.removeprefix("cluster.") for event in batch.events()]


def test_it_is_said_once_and_only_when_it_changes():
    state = ClusterState()
    assert say(state, Upsert(a_pod())) == ["shape_declared", "pod_observed"]
    assert say(state, Upsert(a_pod(containers=[status(restarts=1)])), Upsert(a_pod(containers=[status(restarts=1)]))) == ["pod_troubled"]
    assert state.troubles["u1"].containers == (ContainerTrouble("main", restarts=1),)
    assert say(state, Upsert(a_pod(containers=[status(restarts=1)]))) == []
    assert load(dump(state)).troubles == state.troubles
    assert say(state, Upsert(a_pod(containers=[status(restarts=2)])), Upsert(a_pod())) == ["pod_troubled"], "the last is told"
    assert state.troubles == {}
    assert say(state, Upsert(a_pod(containers=[status(restarts=3)])), Upsert(a_pod())) == [], "it has passed already"
    say(state, Upsert(a_pod(containers=[status(restarts=1)])))
    again = Upsert(a_pod(containers=[status(restarts=1)]))
    assert say(state, Delete("u1", a_pod()), again) == ["pod_gone", "pod_observed", "pod_troubled"]
    assert state.troubles["u1"].containers == (ContainerTrouble("main", restarts=1),)
    assert say(state, Upsert(a_pod(containers=[status(restarts=2)])), Delete("u1", a_pod())) == ["pod_gone"]
    assert state.troubles == {}


def test_of_a_pod_that_is_not_there_it_is_void():
    state = ClusterState()
    apply(state, [e.PodTroubled("nobody", (ContainerTrouble("a", restarts=1),))])
    assert state.troubles == {}
    assert state.void["cluster.pod_troubled"] == 1


def metadata(**meta):
    made = plain()
    made["metadata"].update(meta)
    return pod_fact(decoded(made))[2]


def test_all_owner_references_are_known_and_which_of_them_controls():
    a = {"kind": "ReplicaSet", "name": "a", "uid": "1", "apiVersion": "apps/v1"}
    b = {"kind": "Widget", "name": "b", "uid": "2", "apiVersion": "x/v1"}
    fact = metadata(ownerReferences=[b, a | {"controller": True}])
    assert fact.owner == OwnerRef("ReplicaSet", "a", "1", "apps/v1")
    assert fact.owners == (OwnerRef("Widget", "b", "2", "x/v1"),)
    fact = metadata(ownerReferences=[a, b])
    assert fact.owner is None
    assert [o.uid for o in fact.owners] == ["1", "2"]


def test_a_pod_of_the_kubelets_own_is_static_by_its_source():
    assert metadata(annotations={"kubernetes.io/config.source": "file"}).static
    assert not metadata(annotations={"kubernetes.io/config.source": "api"}).static


@pytest.mark.parametrize(
    ("volume", "local"),
    [({"emptyDir": {}}, True), ({"hostPath": {"path": "/var"}}, True), ({"configMap": {"name": "c"}}, False)],
    ids=["emptyDir", "hostPath", "configMap"],
)
def test_local_storage_is_part_of_the_shape(volume, local):
    made = plain()
    made["spec"]["volumes"] = [{"name": "v", **volume}]
    assert pod_fact(decoded(made))[0].local_storage is local


def test_budgets():
    def fact(**parts):
        return budget_fact(w.Budget(**{"metadata": w.Meta(name="b", namespace="ns", uid="u"), **parts}))

    assert fact() == e.BudgetObserved("ns", "b", "u")
    assert fact(spec=w.BudgetSpec(selector=w.LabelSelector(match_labels={"a": "b"})), status=w.BudgetStatus(2)) == e.BudgetObserved(
        "ns", "b", "u", LabelSelector({"a": "b"}), 2
    )
    assert fact(spec=w.BudgetSpec(unhealthy_pod_eviction_policy="AlwaysAllow")).unready
    assert not fact(spec=w.BudgetSpec(unhealthy_pod_eviction_policy="Sometimes")).unready, "one that we do not know"
    assert fact(status=w.BudgetStatus(0, 2, 2)).unready, "as many are healthy as are to be"
    assert not fact(status=w.BudgetStatus(0, 1, 2)).unready
    assert not fact(status=w.BudgetStatus(0, 0, 0)).unready, "a budget that wants nobody healthy is not observed yet"
    assert fact(spec=w.BudgetSpec(selector=w.LabelSelector())).selector == LabelSelector(), "an empty one is about all pods of the namespace"
