"""Controllers of pods become facts: whose they are, what an eviction means to them, and what they do with their pods just now."""

import json

import pytest
from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts import values as v
from restow.kube import decode as d
from restow.kube import wire
from restow.kube.workloads import workload_fact


def test_of_a_replica_set_it_is_known_who_controls_it_or_else_how_many_pods_it_wants():
    meta = wire.Meta(name="web-1", namespace="shop", uid="r")
    assert workload_fact(wire.ReplicaSet(meta), d.REPLICASETS) == e.WorkloadObserved("r", "ReplicaSet", "shop", "web-1", wanted=1)
    meta.owner_references = [wire.Owner("Deployment", "web", "d", "apps/v1", True)]
    assert workload_fact(wire.ReplicaSet(meta), d.REPLICASETS) == e.WorkloadObserved(
        "r", "ReplicaSet", "shop", "web-1", v.OwnerRef("Deployment", "web", "d", "apps/v1")
    )


@pytest.mark.parametrize(("are", "busy"), [(3, "scaling_down"), (1, "")])
@pytest.mark.parametrize(("spec", "wanted"), [({"replicas": 2}, 2), ({}, 1), ({"replicas": 2, "ordinals": {"start": 5}}, 7)])
def test_a_stateful_set_always_says_from_which_ordinal_on_it_makes_no_pods(spec, wanted, are, busy):
    body = {"metadata": {"name": "db", "namespace": "shop", "uid": "db", "generation": 1}, "spec": spec, "status": {"replicas": are, "observedGeneration": 1}}
    fact = workload_fact(d.STATEFULSETS.object(json.dumps(body).encode()), d.STATEFULSETS)
    assert (fact.busy, fact.wanted) == (busy, wanted)


@pytest.mark.parametrize(("spec", "wanted"), [({"replicas": 3}, 3), ({}, 1), ({"replicas": 0}, 0)])
def test_a_deployment_at_rest_says_how_many_pods_it_wants(spec, wanted):
    body = {"metadata": {"name": "web", "namespace": "shop", "uid": "d"}, "spec": spec, "status": {}}
    assert workload_fact(d.DEPLOYMENTS.object(json.dumps(body).encode()), d.DEPLOYMENTS) == e.WorkloadObserved("d", "Deployment", "shop", "web", wanted=wanted)


def job(spec=None, status=None, **meta):
    body = {"metadata": {"name": "j", "namespace": "shop", "uid": "j", **meta}, "spec": spec or {}, "status": status or {}}
    return workload_fact(d.JOBS.object(json.dumps(body).encode()), d.JOBS)


def rules(*said):
    return {"podFailurePolicy": {"rules": list(said)}}


DISRUPTED = [{"type": "DisruptionTarget"}]
EXIT = {"operator": "In", "values": [42]}


@pytest.mark.parametrize(
    ("spec", "status", "evicted", "retries"),
    [
        ({}, {}, "counted", 6),
        ({"backoffLimit": 0}, {}, "counted", 0),
        ({"backoffLimit": 3}, {"failed": 2}, "counted", 1),
        ({"backoffLimit": 1}, {"failed": 4}, "counted", 0),
        ({"backoffLimit": 5}, {"failed": 1, "uncountedTerminatedPods": {"failed": ["x", "y"]}}, "counted", 2),
        ({"backoffLimitPerIndex": 1}, {"failed": 3}, "counted", 2**31 - 4),
        ({"backoffLimitPerIndex": 1, "backoffLimit": 4}, {"failed": 3}, "counted", 1),
        (rules({"action": "Ignore", "onPodConditions": DISRUPTED}) | {"backoffLimitPerIndex": 1}, {}, "ignored", 0),
        (rules({"action": "FailIndex", "onPodConditions": DISRUPTED}) | {"backoffLimitPerIndex": 1}, {}, "fatal", 0),
        (rules({"action": "Ignore", "onPodConditions": DISRUPTED}) | {"podReplacementPolicy": "Failed"}, {}, "ignored", 0),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, {}, "unknown", 0),
        (rules({"action": "Ignore", "onPodConditions": DISRUPTED}), {}, "ignored", 0),
        (rules({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}), {}, "counted", 6),
        (rules({"action": "FailJob", "onPodConditions": DISRUPTED}), {}, "fatal", 0),
        (rules({"action": "FailJob", "onExitCodes": EXIT}, {"action": "Ignore", "onPodConditions": DISRUPTED}), {}, "unknown", 0),
        (rules({"action": "Count", "onExitCodes": EXIT}, {"action": "Ignore", "onPodConditions": DISRUPTED}), {}, "counted", 6),
        (rules({"action": "Ignore", "onExitCodes": EXIT}, {"action": "Ignore", "onPodConditions": DISRUPTED}), {}, "ignored", 0),
        (rules({"action": "Ignore", "onPodConditions": DISRUPTED}, {"action": "FailJob", "onExitCodes": EXIT}), {}, "ignored", 0),
        (rules({"action": "Count", "onPodConditions": DISRUPTED}) | {"backoffLimit": 2}, {}, "counted", 2),
    ],
)
def test_a_job_says_what_an_evicted_pod_is_to_it(spec, status, evicted, retries):
    fact = job(spec, status)
    assert (fact.owner, fact.evicted, fact.retries) == (None, evicted, retries)
    assert fact.per_index == spec.get("backoffLimitPerIndex")


def test_what_is_said_of_moving_a_workloads_pods_is_a_fact():
    meta = wire.Meta(name="web-1", namespace="shop", uid="r", annotations={"restow.dev/movable": "false", "other": "x"})
    assert workload_fact(wire.ReplicaSet(meta), d.REPLICASETS) == e.WorkloadObserved("r", "ReplicaSet", "shop", "web-1", movable="false", wanted=1)


SAID = {"restow.dev/movable": "false", "restow.dev/before-move": ":8080/ask", "other": "x"}


@pytest.mark.parametrize(("kind", "counts"), [("Deployment", False), ("Rollout", True)])
def test_what_is_said_of_a_replicasets_pods_is_for_its_deployment_to_say(kind, counts):
    """The Deployment's controller copies annotations to the ReplicaSet, and never takes one away that was taken off the Deployment."""
    meta = wire.Meta(name="web-1", namespace="shop", uid="r", annotations=SAID)
    meta.owner_references = [wire.Owner(kind, "web", "d", "apps/v1" if kind == "Deployment" else "argoproj.io/v1alpha1", True)]
    fact = workload_fact(wire.ReplicaSet(meta), d.REPLICASETS)
    assert (fact.movable == "false", fact.hooks == {"restow.dev/before-move": ":8080/ask"}) == (counts, counts)
    deployment = workload_fact(wire.Deployment(wire.Meta(name="web", namespace="shop", uid="d", annotations=SAID)), d.DEPLOYMENTS)
    assert deployment == e.WorkloadObserved("d", "Deployment", "shop", "web", movable="false", hooks={"restow.dev/before-move": ":8080/ask"}, wanted=1)


def busy(collection, spec, status, **meta):
    body = {"metadata": {"name": "web", "namespace": "shop", "uid": "w", **meta}, "spec": spec, "status": status}
    fact = workload_fact(collection.object(json.dumps(body).encode()), collection)
    return "" if fact is None else fact.busy


THREE = {"replicas": 3}


@pytest.mark.parametrize(
    ("spec", "status", "generation", "expected"),
    [
        (THREE, {"replicas": 3, "updatedReplicas": 3, "observedGeneration": 2}, 2, ""),
        (THREE, {"replicas": 2, "updatedReplicas": 2, "observedGeneration": 2}, 2, ""),  # one was evicted, or it is scaled up
        (THREE, {"replicas": 3, "updatedReplicas": 3, "observedGeneration": 1}, 2, "rollout"),
        (THREE, {"replicas": 4, "updatedReplicas": 1, "observedGeneration": 2}, 2, "rollout"),
        (THREE, {"replicas": 3, "observedGeneration": 2}, 2, "rollout"),
        (THREE, {"replicas": 4, "updatedReplicas": 4, "observedGeneration": 2}, 2, "scaling_down"),
        ({"replicas": 0}, {"replicas": 1, "updatedReplicas": 1, "observedGeneration": 2}, 2, "scaling_down"),
        (THREE | {"paused": True}, {"replicas": 3, "updatedReplicas": 3, "observedGeneration": 2}, 2, "paused"),
    ],
)
def test_a_deployment_says_whether_it_is_being_rolled_out(spec, status, generation, expected):
    assert busy(d.DEPLOYMENTS, spec, status, generation=generation) == expected


@pytest.mark.parametrize(("wanted", "are", "expected"), [(3, 3, ""), (3, 2, ""), (2, 3, "scaling_down"), (0, 1, "scaling_down"), (None, 1, "")])
def test_a_replicaset_says_whether_it_has_too_many_pods(wanted, are, expected):
    assert busy(d.REPLICASETS, {} if wanted is None else {"replicas": wanted}, {"replicas": are}) == expected


SAME = {"currentRevision": "a", "updateRevision": "a", "replicas": 3, "currentReplicas": 3}
OTHER = SAME | {"updateRevision": "b"}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, SAME, ""),
        ({}, SAME | {"replicas": 2, "currentReplicas": 2}, ""),
        ({}, OTHER | {"currentReplicas": 2}, "rollout"),
        ({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}, OTHER, "rollout"),
        ({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}, OTHER | {"currentReplicas": 2}, ""),
        ({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}, OTHER | {"currentReplicas": 2, "replicas": 2}, ""),
        ({}, OTHER | {"currentReplicas": 0, "updatedReplicas": 1}, "rollout"),  # two are of a revision between both
        ({"updateStrategy": {"type": "OnDelete"}}, OTHER | {"currentReplicas": 0}, ""),
        ({"updateStrategy": {"type": "OnDelete"}}, SAME, ""),
        ({"replicas": 2}, SAME, "scaling_down"),
    ],
)
def test_a_statefulset_says_whether_it_is_being_updated(spec, status, expected):
    assert busy(d.STATEFULSETS, THREE | spec, status | {"observedGeneration": 1}, generation=1) == expected


AT_REST = e.WorkloadObserved("w", "StatefulSet", "shop", "web", wanted=3)


def stateful_set(spec, status=SAME):
    body = {"metadata": {"name": "web", "namespace": "shop", "uid": "w"}, "spec": THREE | spec, "status": status}
    return workload_fact(d.STATEFULSETS.object(json.dumps(body).encode()), d.STATEFULSETS)


def test_a_statefulset_that_is_updated_by_deletions_says_by_what_its_pods_are_made():
    """Its controller never makes the two revisions one again, however long ago the last pod was updated."""
    assert stateful_set({"updateStrategy": {"type": "OnDelete"}}, OTHER).revision == "b"
    assert stateful_set({"updateStrategy": {"type": "OnDelete"}}) == AT_REST


@pytest.mark.parametrize(("more", "below"), [({}, 2), ({"ordinals": {"start": 5}}, 7)])
def test_a_statefulset_that_is_updated_beyond_a_partition_says_which_pods_it_makes_by_what(more, below):
    fact = stateful_set({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}} | more, OTHER | {"currentReplicas": 2})
    assert (fact.busy, fact.revision, fact.kept, fact.kept_below) == ("", "b", "a", below)
    assert stateful_set({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}} | more) == replace(AT_REST, wanted=below + 1)
    rolling = stateful_set({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}} | more, OTHER)
    assert (rolling.busy, rolling.revision) == ("rollout", "")


def test_a_statefulset_whose_pods_do_not_wait_for_each_other_says_so():
    assert stateful_set({"podManagementPolicy": "Parallel"}).parallel
    assert stateful_set({"podManagementPolicy": "OrderedReady"}) == AT_REST


def test_what_a_statefulset_is_to_be_and_has_not_looked_at_yet_is_a_rollout():
    assert busy(d.STATEFULSETS, THREE, SAME | {"observedGeneration": 1}, generation=2) == "rollout"


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"completions": 3, "parallelism": 3}, {"active": 3}, ""),
        ({"completions": 3, "parallelism": 3}, {"active": 2, "succeeded": 1}, ""),
        ({"completions": 3, "parallelism": 3, "suspend": True}, {}, "suspended"),
        ({"completions": 3, "parallelism": 2}, {"active": 3}, "scaling_down"),
        ({"parallelism": 3}, {"active": 3}, ""),
        ({"parallelism": 3}, {"active": 2, "succeeded": 1}, "over"),  # a work queue makes no more pods
        ({"completions": 1, "parallelism": 1}, {"active": 1, "conditions": [{"type": "FailureTarget", "status": "True"}]}, "over"),
        ({"completions": 1, "parallelism": 1}, {"conditions": [{"type": "Complete", "status": "True"}]}, "over"),
        ({"completions": 1, "parallelism": 1}, {"active": 1, "conditions": [{"type": "Complete", "status": "False"}]}, ""),
    ],
)
def test_a_job_says_whether_it_makes_pods(spec, status, expected):
    assert busy(d.JOBS, spec, status) == expected


@pytest.mark.parametrize("collection", [d.DEPLOYMENTS, d.REPLICASETS, d.STATEFULSETS, d.JOBS, d.VOLCANO_JOBS])
def test_whatever_is_being_deleted_makes_no_pods(collection):
    assert busy(collection, {}, {}, deletionTimestamp="2026-01-01T00:00:00Z") == "deleting"


def test_whom_nobody_controls_and_who_is_at_rest_is_a_fact_as_long_as_it_exists():
    """Whoever makes it anew makes another one: its pods are followed by nobody."""
    owned = [{"kind": "Kafka", "name": "k", "uid": "k", "apiVersion": "kafka.example/v1", "controller": True}]
    body = {"metadata": {"name": "web", "namespace": "shop", "uid": "w", "ownerReferences": owned}}
    assert workload_fact(d.STATEFULSETS.object(json.dumps(body).encode()), d.STATEFULSETS) == replace(AT_REST, wanted=1)


EVICTED = {"event": "PodEvicted", "action": "RestartJob"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"tasks": [{"name": "worker"}]}, "ignored"),
        ({}, "ignored"),
        ({"policies": [{"event": "PodFailed", "action": "RestartJob"}]}, "ignored"),
        ({"policies": [EVICTED]}, "fatal"),
        ({"policies": [{"events": ["PodFailed", "PodEvicted"], "action": "AbortJob"}]}, "fatal"),
        ({"policies": [{"event": "*", "action": "RestartJob"}]}, "fatal"),
        # Three of these, and Volcano fails the Job (`maxRetry`).
        ({"policies": [{"event": "PodEvicted", "action": "RestartPod"}]}, "fatal"),
        ({"policies": [EVICTED], "tasks": [{"name": "w", "policies": [{"event": "PodEvicted", "action": "SyncJob"}]}]}, "ignored"),
        ({"tasks": [{"name": "w"}, {"name": "ps", "policies": [EVICTED]}]}, "fatal"),
    ],
)
def test_a_volcano_job_says_by_its_policies_what_an_evicted_pod_is_to_it(spec, expected):
    body = {"metadata": {"name": "j", "namespace": "ml", "uid": "j"}, "spec": spec, "status": {"state": {"phase": "Running"}}}
    fact = workload_fact(d.VOLCANO_JOBS.object(json.dumps(body).encode()), d.VOLCANO_JOBS)
    assert fact == e.WorkloadObserved("j", "Job", "ml", "j", evicted=expected, group="batch.volcano.sh")


@pytest.mark.parametrize(("phase", "expected"), [("Running", ""), ("Restarting", "over"), ("Completed", "over"), ("Aborted", "over"), ("", "")])
def test_a_volcano_job_that_runs_no_pods_says_so(phase, expected):
    assert busy(d.VOLCANO_JOBS, {}, {"state": {"phase": phase}}) == expected
