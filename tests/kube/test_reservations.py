"""A Reservation of any form becomes one fact; one that cannot be read becomes a fact that says why."""

import json

import msgspec
import pytest

from restow.contracts import values as v
from restow.kube import decode as d
from restow.kube.reservations import reservation_fact

NGINX = {
    "spec": {
        "containers": [
            {
                "name": "nginx",
                "image": "nginx:latest",
                "command": ["sleep", "300"],
                "resources": {"requests": {"cpu": "500m", "memory": "500Mi"}},
            }
        ],
        "restartPolicy": "Never",
    }
}
BUSYBOX = {"spec": {"containers": [{"name": "busybox", "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}}}]}}
SEED_000 = {
    "schedulerName": "volcano",
    "queue": "default",
    "minAvailable": 3,
    "ttl": "600s",
    "owners": [{"labelSelector": {"matchLabels": {"volcano.sh/reservation-job": "job-multi"}}}],
    "tasks": [
        {"name": "nginx", "replicas": 2, "template": NGINX},
        {"name": "busybox", "replicas": 1, "template": BUSYBOX},
    ],
}
OWNERS = [{"controller": {"kind": "ReplicaSet", "name": "web", "namespace": "shop", "apiVersion": "apps/v1"}}]


def fact(spec, door="volcano", **meta):
    metadata = {"name": "r", "namespace": "default", "uid": "u", "generation": 2, "resourceVersion": "9", **meta}
    metadata.setdefault("creationTimestamp", "2026-03-01T08:00:00Z")
    collection = d.VOLCANO_RESERVATIONS if door == "volcano" else d.KOORDINATOR_RESERVATIONS
    return reservation_fact(collection.object(json.dumps({"metadata": metadata, "spec": spec}).encode()), door)


def test_seed_000s_example():
    shapes, got = fact(SEED_000)
    assert got.invalid == ""
    spec = got.spec
    assert (spec.queue, spec.min_available, spec.ttl, spec.expires, spec.scheduler) == (
        "default", 3, 600_000, 0, "volcano",
    )  # fmt: skip
    assert (spec.match_policy, spec.allocate_once) == ("PodSpec", True)
    assert spec.owners == (v.OwnerRule(selector=v.LabelSelector({"volcano.sh/reservation-job": "job-multi"})),)
    assert [(t.name, t.replicas) for t in spec.tasks] == [("nginx", 2), ("busybox", 1)]
    assert shapes[spec.tasks[0].shape].requests == {"cpu": 500, "memory": 500 << 20, "pods": 1}
    assert {shape.scheduler for shape in shapes.values()} == {"volcano"}
    assert (got.door, got.created, got.generation) == ("volcano", 1772352000000, 2)


def test_the_template_form_is_one_task_that_lives_until_it_expires():
    _, got = fact({"template": NGINX | {"metadata": {"creationTimestamp": None, "labels": {"a": "b"}}}, "owners": OWNERS})
    (task,) = got.spec.tasks
    assert (task.replicas, task.labels) == (1, {"a": "b"})
    assert (got.spec.match_policy, got.spec.allocate_once, got.spec.ttl) == ("Owner", False, None)
    assert got.spec.owners[0].controller == v.ObjectRef("ReplicaSet", "shop", "web", "", "apps/v1")


def test_koordinators_allocates_once_unless_it_says_otherwise():
    assert fact({"template": NGINX, "owners": OWNERS}, "koordinator")[1].spec.allocate_once
    reusable = {"template": NGINX, "owners": OWNERS, "allocateOnce": False, "ttl": "0"}
    assert not fact(reusable, "koordinator")[1].spec.allocate_once
    assert fact(reusable, "koordinator")[1].spec.ttl == 0


def test_a_node_name_in_the_template_pins_the_task():
    pinned = {"spec": NGINX["spec"] | {"nodeName": "node-7"}}
    assert fact({"template": pinned, "owners": OWNERS})[1].spec.tasks[0].node == "node-7"


def test_preferred_nodes_keep_their_order():
    tasks = [{"name": "a", "template": NGINX, "reservationNodeNames": ["z", "a"]}]
    assert fact({"tasks": tasks})[1].spec.tasks[0].preferred_nodes == ("z", "a")


def test_our_own_holds_match_by_owner():
    _, got = fact(SEED_000, labels={"restow.dev/migration": "p-1"})
    assert (got.migration, got.spec.match_policy) == ("p-1", "Owner")


def test_expires_and_ttl_together_are_both_read():
    spec = fact(SEED_000 | {"expires": "2026-03-02T08:00:00Z"})[1].spec
    assert (spec.ttl, spec.expires) == (600_000, 1772438400000)


def test_limits_stand_in_for_missing_requests_in_a_template():
    bare = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 1, "nvidia.com/gpu": 2}}}]}}
    shapes, got = fact({"template": bare})
    assert shapes[got.spec.tasks[0].shape].requests == {"cpu": 1000, "restow.dev/gpu-milli": 2000, "pods": 1}


def test_status_and_labels_of_others_change_no_fact():
    assert fact(SEED_000) == fact(SEED_000, annotations={"a": "b"}, resourceVersion="10", managedFields=[{"a": 1}])


@pytest.mark.parametrize(
    ("door", "spec", "invalid"),
    [
        ("volcano", None, "spec: missing; allowed: a reservation's specification"),
        ("volcano", {}, "spec: empty; allowed: tasks or template"),
        ("volcano", {"tasks": [], "template": None}, "spec: empty; allowed: tasks or template"),
        ("volcano", SEED_000 | {"template": NGINX}, "spec: has tasks and template; allowed: one of them"),
        ("volcano", SEED_000 | {"ttl": 600}, "spec.ttl: 600; allowed: str"),
        ("volcano", SEED_000 | {"minAvailable": "x"}, "spec.minAvailable: 'x'; allowed: int"),
        ("volcano", SEED_000 | {"tasks": {"a": 1}}, "spec.tasks: an object; allowed: array"),
        ("volcano", SEED_000 | {"tasks": [{"replicas": 1.5}]}, "spec.tasks[0].replicas: 1.5; allowed: int"),
        ("volcano", SEED_000 | {"tasks": [SEED_000["tasks"][0], {"template": {"spec": {"containers": [{}, {"name": 5}]}}}]}, "spec.tasks[1].template.spec.containers[1].name: 5; allowed: str"),
        ("volcano", {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": 1, "nvidia.com/gpu": []}}}]}}}, 'spec.template.spec.containers[0].resources.requests["nvidia.com/gpu"]: a list; allowed: int | float | str'),
        ("volcano", SEED_000 | {"owners": [{}]}, "spec.owners[0]: empty; allowed: object, controller or labelSelector"),
        ("volcano", SEED_000 | {"matchPolicy": "Any"}, "spec.matchPolicy: 'Any'; allowed: PodSpec, Owner"),
        ("volcano", SEED_000 | {"tasks": [{"name": "a"}]}, "spec.tasks[0].template.spec: missing; allowed: a pod's specification"),
        ("koordinator", SEED_000, "spec.tasks: set; allowed: spec.template (tasks belong to batch.volcano.sh Reservations)"),
        ("koordinator", {"template": NGINX, "preAllocation": True}, "spec.preAllocation: true; allowed: false (pre-allocation is not supported)"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_path_value_and_what_is_allowed(door, spec, invalid):
    shapes, got = fact(spec, door)
    assert (shapes, got.spec, got.invalid) == ({}, None, invalid)


@pytest.mark.parametrize(
    ("change", "start"),
    [
        ({"ttl": "ten minutes"}, "spec.ttl: 'ten minutes' is not a duration; allowed: "),
        ({"ttl": "-5s"}, "spec.ttl: '-5s' is negative; allowed: "),
        ({"expires": "tomorrow"}, "spec.expires: 'tomorrow'; allowed: "),
    ],
)
def test_bad_times(change, start):
    assert fact(SEED_000 | change)[1].invalid.startswith(start)


def test_a_bad_quantity_is_named_by_its_path():
    bad = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "5Q"}}}]}}
    invalid = fact({"tasks": [{"name": "a", "template": NGINX}, {"name": "b", "template": bad}]})[1].invalid
    assert invalid.startswith("""spec.tasks[1].template.spec.containers[0].resources.requests["memory"]: '5Q' is not""")


def test_env_values_never_get_into_a_reason():
    leaky = {"spec": {"containers": {"name": "c", "env": [{"name": "P", "value": "hunter2"}]}}}
    _, got = fact({"tasks": [{"name": "a", "template": leaky}]})
    assert got.invalid
    assert b"hunter2" not in msgspec.json.encode(got)
