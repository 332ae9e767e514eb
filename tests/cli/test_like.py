"""What `restow reserve` makes of a workload."""

import json

import msgspec
import pytest

from restow.cli.from_workload import Asked, LikeError, manifests, parse, phase_of, renamed, same, template_of
from restow.kube import wire
from restow.kube.reservations import reservation_fact
from restow.kube.shapes import Shaper

POD = {
    "schedulerName": "restow",
    "serviceAccountName": "web",
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}},
    "initContainers": [{"name": "i", "image": "init:1", "command": ["true"], "resources": {"requests": {"cpu": "3"}}}],
    "containers": [{
        "name": "web", "image": "web:1", "args": ["--password=hunter2"], "env": [{"name": "TOKEN", "value": "hunter2"}],
        "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    }],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "key", "secret": {"secretName": "hunter2"}},
        {"name": "tmp", "emptyDir": {}},
    ],
}  # fmt: skip
META = {"labels": {"app": "web", "tier": "front"}, "annotations": {"token": "hunter2", "scheduling.koordinator.sh/resource-spec": "{}"}}


def workload(kind="Deployment", name="web", **spec):
    body = {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": META, "spec": POD}} | spec
    return {"kind": kind, "metadata": {"name": name, "uid": f"uid-{name}"}, "spec": body}


def made(text="deployment/web", found=None, controller=None, **asked):
    asked.setdefault("namespace", "shop")
    asked.setdefault("ttl", "1h")
    meant = parse(text)
    return manifests(meant, template_of(meant, found or workload(), controller), Asked(**asked))


def read(manifest, api="volcano"):
    """As the cluster_watcher reads it."""
    meta = manifest["metadata"] | {"uid": "u"}
    decoded = msgspec.json.decode(json.dumps(manifest | {"metadata": meta}), type=wire.Reservation)
    return reservation_fact(decoded, api)


def test_it_holds_capacity_for_pods_exactly_like_the_workloads():
    (manifest,) = made(replicas=3)
    shapes, fact = read(manifest)
    assert not fact.invalid
    (task,) = fact.spec.tasks
    spec = msgspec.json.decode(json.dumps(POD), type=wire.PodSpec)
    assert (task.replicas, task.labels) == (3, META["labels"])
    asked = Shaper().shaped(spec, META["annotations"]).shape
    assert shapes[task.shape] == msgspec.structs.replace(asked, local_storage=False), "an emptyDir needs no room"
    assert shapes[task.shape].requests["cpu"] == 3000, "init containers count, too"


def test_nothing_is_taken_over_that_scheduling_does_not_read():
    text = json.dumps(made())
    for word in ("hunter2", "env", "command", "mountPath", "secret", "emptyDir", "serviceAccountName", "containerPort\": 80}"):
        assert word not in text, word


def test_pods_of_the_workload_are_its_owners_whatever_their_names_and_images():
    (manifest,) = made()
    assert manifest["spec"]["matchPolicy"] == "Owner"
    assert manifest["spec"]["owners"] == [{"controller": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}]


def test_or_pods_with_its_labels():
    (manifest,) = made(by_labels=True)
    assert manifest["spec"]["owners"] == [{"labelSelector": {"matchLabels": {"app": "web"}}}]


def test_of_a_pod_the_workload_that_stands_above_it_is_meant():
    controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}
    found = {"metadata": {"name": "web-1-x", "ownerReferences": [controller], **META}, "spec": {**POD, "nodeName": "n"}}
    (manifest,) = made("pod/web-1-x", found)
    assert manifest["spec"]["owners"][0]["controller"]["name"] == "web-1"
    assert "nodeName" not in json.dumps(manifest)
    (manifest,) = made("pod/web-1-x", found, {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d"})
    assert manifest["spec"]["owners"][0]["controller"]["kind"] == "Deployment"


def test_a_bare_pod_is_known_by_its_labels_and_one_without_any_is_refused():
    found = {"metadata": {"name": "lone", **META}, "spec": POD}
    assert made("pod/lone", found)[0]["spec"]["owners"] == [{"labelSelector": {"matchLabels": META["labels"]}}]
    with pytest.raises(LikeError, match="neither a controller nor labels"):
        made("pod/lone", {"metadata": {"name": "lone"}, "spec": POD})


def test_koordinators_door_gets_one_object_a_place():
    found = made(replicas=2, api="koordinator", policy="Restricted")
    first, second = found
    assert [m["metadata"]["name"][-2:] for m in found] == ["-0", "-1"]
    assert first["spec"] == second["spec"]
    assert "namespace" not in first["metadata"]
    assert first["spec"]["owners"] == [
        {"controller": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web", "namespace": "shop"}}
    ]
    _, fact = read(first, "koordinator")
    assert (fact.invalid, fact.spec.allocate_once, fact.spec.allocate_policy) == ("", True, "Restricted")


def test_owners_by_labels_of_a_reservation_for_all_namespaces_stay_in_theirs():
    (manifest,) = made(api="koordinator", by_labels=True)
    assert manifest["spec"]["owners"][0]["object"] == {"kind": "Pod", "namespace": "shop"}


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({"ttl": "0"}, ("ttl", "0")),
        ({"expires": "2030-01-01T00:00:00Z"}, ("expires", "2030-01-01T00:00:00Z")),
        ({"queue": "q"}, ("queue", "q")),
        ({"pre_allocation": True}, ("preAllocation", True)),
        ({"policy": "Restricted"}, ("allocatePolicy", "Restricted")),
    ],
)
def test_what_is_asked_for_is_in_the_spec(asked, where):
    (manifest,) = made(**asked)
    assert manifest["spec"][where[0]] == where[1]
    assert ("ttl" in manifest["spec"]) is ("expires" not in asked), "one of them says when it ends"


def test_a_node_pins_it():
    assert read(made(node="n7")[0])[1].spec.tasks[0].node == "n7"


def test_the_same_words_have_the_same_name_and_others_another():
    names = [made(**asked)[0]["metadata"]["name"] for asked in ({}, {}, {"replicas": 2}, {"ttl": "2h"}, {"node": "n"}, {"namespace": "b"})]
    assert names[0] == names[1]
    assert len(set(names)) == 5
    assert names[0].startswith("like-web-")
    assert made(name="mine")[0]["metadata"]["name"] == "mine"


def test_names_stay_short_enough_for_labels():
    name = made("deployment/" + "x" * 63, workload(name="x" * 63))[0]["metadata"]["name"]
    assert len(name) < 60


def test_an_image_bump_asks_for_the_same_capacity_but_another_template():
    bumped = workload(template={"metadata": META, "spec": {**POD, "containers": [{**POD["containers"][0], "image": "web:2"}]}})
    before, after = made()[0], made(found=bumped)[0]
    assert not same(before, after)
    assert same(before, renamed(before, 2))
    assert renamed(before, 2)["metadata"]["name"].endswith("-2")


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("deployment/web", "Deployment", "web"),
        ("deploy/web", "Deployment", "web"),
        ("deployments.apps/web", "Deployment", "web"),
        ("STS/db", "StatefulSet", "db"),
        ("rs/a", "ReplicaSet", "a"),
        ("job/j", "Job", "j"),
        ("po/p", "Pod", "p"),
    ],
)
def test_workloads_are_named_as_for_kubectl(text, kind, name):
    assert (parse(text).kind, parse(text).name) == (kind, name)


@pytest.mark.parametrize("text", ["web", "deployment", "deployment/", "service/web", "shop/deployment/web", ""])
def test_what_is_no_workload_is_refused_with_what_is_allowed(text):
    with pytest.raises(LikeError, match="allowed"):
        parse(text)


def test_a_workload_without_a_template_is_refused():
    with pytest.raises(LikeError, match="no pod template"):
        made(found=workload(template={}))


def test_either_doors_status_is_understood():
    tasks = {"status": {"state": {"phase": "Pending", "reason": "Unschedulable", "message": "0/2"}, "phase": "Pending"}}
    assert phase_of(tasks) == ("Pending", "Unschedulable", "0/2")
    conditions = [{"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "0/2"}]
    assert phase_of({"status": {"phase": "Pending", "conditions": conditions}}) == ("Pending", "Unschedulable", "0/2")
    assert phase_of({}) == ("", "", "")
