"""A Reservation of any form becomes one fact; one that cannot be read becomes a fact that says why."""

import json

import msgspec
import pytest

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts import values as v
from restow.contracts.codec import Decision
from restow.domain.fold import fold
from restow.domain.state import ClusterState
from restow.kube import decode as d
from restow.kube import reflector
from restow.kube.annotations import kept
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown
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


def fact(spec, api="volcano", **meta):
    metadata = {"name": "r", "namespace": "default", "uid": "u", "generation": 2, "resourceVersion": "9", **meta}
    metadata.setdefault("creationTimestamp", "2026-03-01T08:00:00Z")
    collection = d.VOLCANO_RESERVATIONS if api == "volcano" else d.KOORDINATOR_RESERVATIONS
    return reservation_fact(collection.object(json.dumps({"metadata": metadata, "spec": spec}).encode()), api)


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
    assert (got.api, got.created, got.generation) == ("volcano", 1772352000000, 2)


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


def test_a_status_and_annotations_that_no_rule_reads_change_no_fact():
    assert fact(SEED_000) == fact(SEED_000, annotations={"a": "b"}, resourceVersion="10", managedFields=[{"a": 1}])


@pytest.mark.parametrize(
    ("api", "spec", "invalid"),
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
        ("volcano", SEED_000 | {"matchPolicy": ""}, "spec.matchPolicy: ''; allowed: PodSpec, Owner"),
        ("volcano", SEED_000 | {"tasks": [{"name": "a"}]}, "spec.tasks[0].template.spec: missing; allowed: a pod's specification"),
        ("koordinator", SEED_000, "spec.tasks: set; allowed: spec.template (tasks belong to batch.volcano.sh Reservations)"),
        ("volcano", SEED_000 | {"allocateOnce": False}, "spec.allocateOnce: false; allowed with tasks: true (each slot is handed over once)"),
        ("volcano", SEED_000 | {"allocatePolicy": "Default"}, "spec.allocatePolicy: 'Default'; allowed: Aligned, Restricted, Covering"),
        ("volcano", SEED_000 | {"allocatePolicy": ""}, "spec.allocatePolicy: ''; allowed: Aligned, Restricted, Covering"),
        ("koordinator", {"template": NGINX, "allocatePolicy": "Covering"}, "spec.allocatePolicy: 'Covering'; allowed: Aligned, Restricted"),
        ("volcano", {"template": NGINX | {"metadata": {"namespace": "shop"}}}, "spec.template.metadata.namespace: 'shop'; allowed: 'default', the Reservation's own, or none"),
        ("volcano", SEED_000 | {"minAvailable": 1 << 40}, "spec.minAvailable: 1099511627776; allowed: a whole number of 32 bits"),
        ("volcano", {"tasks": [{"template": NGINX, "replicas": -(1 << 31) - 1}]}, "spec.tasks[0].replicas: -2147483649; allowed: a whole number of 32 bits"),
        ("koordinator", {"template": NGINX, "taints": [{"key": 5}]}, "spec.taints[0].key: 5; allowed: str"),
        ("koordinator", {"template": NGINX, "unschedulable": "yes"}, "spec.unschedulable: 'yes'; allowed: bool"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_path_value_and_what_is_allowed(api, spec, invalid):
    shapes, got = fact(spec, api)
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


CLUSTER = {"namespace": ""}
RESTRICTED = "scheduling.koordinator.sh/reservation-restricted-options"


def koordinator(more=None, **meta):
    """A Reservation at Koordinator's api, which has no namespace."""
    got = fact({"template": NGINX, "owners": OWNERS} | (more or {}), "koordinator", **CLUSTER | meta)[1]
    assert got.invalid == ""
    return got


@pytest.mark.parametrize(
    ("api", "spec", "once", "policy"),
    [
        ("volcano", SEED_000, True, "Aligned"),
        ("volcano", {"template": NGINX}, False, "Covering"),
        ("volcano", {"template": NGINX, "allocateOnce": True}, True, "Covering"),
        ("volcano", {"template": NGINX, "allocatePolicy": "Aligned"}, False, "Aligned"),
        ("volcano", {"template": NGINX, "allocatePolicy": "Covering"}, False, "Covering"),
        ("koordinator", {"template": NGINX}, True, "Aligned"),
        ("koordinator", {"template": NGINX, "allocatePolicy": ""}, True, "Aligned"),
        ("koordinator", {"template": NGINX, "allocatePolicy": "Restricted", "allocateOnce": False}, False, "Restricted"),
    ],
)
def test_each_door_and_form_has_its_own_defaults(api, spec, once, policy):
    """RULES 000-3, 003-1, 004-1."""
    got = fact(spec, api)[1].spec
    assert (got.allocate_once, got.allocate_policy) == (once, policy)


@pytest.mark.parametrize(("api", "spec"), [("volcano", SEED_000), ("volcano", {"template": NGINX}), ("koordinator", {"template": NGINX})])
def test_pre_allocation_unschedulable_and_taints_are_read_at_both_doors(api, spec):
    said = {"preAllocation": True, "unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
    got = fact(spec | said, api)[1].spec
    assert (got.pre_allocation, got.unschedulable, got.taints) == (True, True, (v.Taint("k", "NoSchedule", "v"),))
    plain = fact(spec, api)[1].spec
    assert (plain.pre_allocation, plain.unschedulable, plain.taints) == (False, False, ())


def test_a_place_stands_for_a_pod_in_the_reservations_namespace():
    _, got = fact(SEED_000, namespace="shop")
    assert {task.namespace for task in got.spec.tasks} == {"shop"}
    own = {"template": NGINX | {"metadata": {"namespace": "shop"}}}
    assert fact(own, namespace="shop")[1].spec.tasks[0].namespace == "shop"


def test_a_reservation_of_the_cluster_stands_for_a_pod_in_its_templates_namespace():
    assert koordinator().spec.tasks[0].namespace == "default"
    assert koordinator({"template": NGINX | {"metadata": {"namespace": "shop"}}}).spec.tasks[0].namespace == "shop"


def test_labels_of_a_koordinator_reservation_lie_over_its_templates():
    labelled = {"template": NGINX | {"metadata": {"labels": {"a": "template", "b": "template"}}}}
    got = koordinator(labelled, labels={"a": "own", "scheduling.koordinator.sh/reservation-order": "3"})
    assert got.labels == {"a": "own", "scheduling.koordinator.sh/reservation-order": "3"}
    assert got.spec.tasks[0].labels == {"a": "own", "b": "template", "scheduling.koordinator.sh/reservation-order": "3"}
    _, volcanos = fact(labelled, labels={"a": "own"})
    assert (volcanos.labels, volcanos.spec.tasks[0].labels) == ({"a": "own"}, {"a": "template", "b": "template"})


def test_claims_of_the_templates_volumes_are_the_places():
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "config", "configMap": {"name": "x"}},
    ]
    _, got = fact({"template": {"spec": NGINX["spec"] | {"volumes": volumes}}, "owners": OWNERS})
    assert got.spec.tasks[0].claims == ("data-0",)


@pytest.mark.parametrize(
    ("text", "restricted"),
    [
        ('{"resources": ["memory", "cpu", "cpu"]}', ("cpu", "memory")),
        ('{"resources": ["koordinator.sh/gpu-core"]}', ("restow.dev/gpu-milli",)),
        ('{"resources": null}', ()),
        ("{}", ()),
        ("null", ()),
        ("", ()),
    ],
)
def test_what_restricted_is_about_is_an_annotation_of_the_reservation(text, restricted):
    assert koordinator({"allocatePolicy": "Restricted"}, annotations={RESTRICTED: text}).spec.restricted == restricted
    assert koordinator(annotations={RESTRICTED: text}).spec.restricted == ()


@pytest.mark.parametrize("text", ["{", "[]", '{"resources": "cpu"}', '{"resources": [1]}', "[" * 5_000])
def test_an_annotation_that_cannot_be_read_is_named(text):
    broken = {"template": NGINX, "owners": OWNERS, "allocatePolicy": "Restricted"}
    invalid = fact(broken, "koordinator", annotations={RESTRICTED: text})[1].invalid
    assert invalid.startswith(f"metadata.annotations[{RESTRICTED}]: ")
    assert invalid.endswith('; allowed: JSON such as {"resources": ["cpu"]}')


def test_fields_that_mean_nothing_are_reported_by_path():
    typo = {"spec": {"containers": [{"name": "c", "imagePullpolicy": "Always"}], "nodename": "n"}, "status": {}}
    spec = SEED_000 | {
        "minavailable": 3,
        "tasks": [{"name": "a", "template": typo, "replica": 2}],
        "owners": [{"labelSelector": {"matchLabels": {"any": "label"}, "labels": {}}, "object": {"name": "p", "app": "x"}, "pod": {}}],
        "taints": [{"key": "k", "effect": "NoSchedule", "when": "now", "timeAdded": None}],
    }
    _, got = fact(spec)
    assert got.invalid == ""
    assert got.unknown == (
        "spec.minavailable",
        "spec.owners[0].labelSelector.labels",
        "spec.owners[0].object.app",
        "spec.owners[0].pod",
        "spec.taints[0].when",
        "spec.tasks[0].replica",
        "spec.tasks[0].template.spec.containers[0].imagePullpolicy",
        "spec.tasks[0].template.spec.nodename",
        "spec.tasks[0].template.status",
    )


def test_fields_of_volcanos_tasks_that_a_reservation_has_not_are_named():
    """Seed 000's tasks are Volcano's: who copies one from a Job is told which of its fields do nothing."""
    job = {"minAvailable": 1, "policies": [{"event": "PodFailed", "action": "RestartJob"}], "dependsOn": {"name": ["ps"]}, "maxRetry": 3}
    template = SEED_000["tasks"][0]["template"]
    _, got = fact(SEED_000 | {"tasks": [{"template": template, **job, "topologyPolicy": "none", "partitionPolicy": {}}]})
    assert got.invalid == ""
    assert got.spec.tasks[0].name == "default0"
    assert got.unknown == tuple(f"spec.tasks[0].{name}" for name in sorted({*job, "topologyPolicy", "partitionPolicy"}))


def test_fields_of_the_other_door_mean_nothing_and_are_not_read():
    got = koordinator({"queue": "q", "minAvailable": 9, "schedulerName": "volcano", "preAllocationPolicy": {}})
    assert got.unknown == ("spec.minAvailable", "spec.preAllocationPolicy", "spec.queue", "spec.schedulerName")
    assert (got.spec.queue, got.spec.min_available, got.spec.scheduler) == ("", 0, "")


def test_what_every_field_of_the_api_says_is_known():
    assert fact(SEED_000)[1].unknown == koordinator().unknown == ()


def test_unknown_fields_are_reported_of_a_spec_that_cannot_be_read_too():
    _, got = fact({"tasks": 5, "task": []})
    assert got.invalid == "spec.tasks: 5; allowed: array"
    assert got.unknown == ("spec.task",)


def test_the_form_is_said_whatever_a_task_is_called():
    assert fact(SEED_000)[1].spec.form == "tasks"
    called_so = {"owners": SEED_000["owners"], "tasks": [{"name": "reservation", "template": NGINX}]}
    assert fact(called_so)[1].spec.form == "tasks"
    assert koordinator().spec.form == "template"


@pytest.mark.parametrize(
    ("spec", "schedulers"),
    [
        ({"template": {"spec": {"schedulerName": "koord-scheduler"}}}, ("koord-scheduler",)),
        ({"schedulerName": "volcano", "tasks": [{"template": {"spec": {}}}]}, ("volcano",)),
        ({"schedulerName": "volcano", "tasks": [{"template": {"spec": {"schedulerName": "mine"}}}, {"template": {}}]}, ("mine", "volcano")),
        ({"schedulerName": "volcano"}, ("volcano",)),
        ({"schedulerName": 5, "template": {"spec": {"schedulerName": []}}}, ()),
        ({"tasks": {"a": 1}, "template": 7}, ()),
        ([], ()),
    ],
)
def test_whose_it_is_is_known_of_what_cannot_be_read_too(spec, schedulers):
    """Else another scheduler's would be told that it is wrong."""
    got = fact(spec | {"ttl": "never"} if isinstance(spec, dict) else spec)[1]
    assert (got.spec, got.schedulers) == (None, schedulers)


def test_at_koordinators_door_only_the_template_says_whose_it_is():
    body = {"schedulerName": "volcano", "ttl": "never", "template": NGINX}
    assert fact(body, "koordinator", **CLUSTER)[1].schedulers == ()


def test_the_report_is_bounded():
    _, got = fact(SEED_000 | {f"x{i:03}": 1 for i in range(99)} | {"a" * 500: 1})
    assert len(got.unknown) == 16
    assert max(map(len, got.unknown)) == 200
    assert got.unknown[-1] == "spec.x014"


@pytest.mark.parametrize("spec", [5, "text", [], [{"a": 1}], True])
def test_a_spec_that_is_no_object_has_no_fields(spec):
    _, got = fact(spec)
    assert (got.spec, got.unknown) == (None, ())
    assert got.invalid


def observed(state, **meta):
    """The facts that the watcher makes of this object, folded."""
    metadata = {"name": "r", "uid": "u", "generation": 1, "creationTimestamp": "2026-03-01T08:00:00Z", **meta}
    spec = {"template": NGINX, "owners": OWNERS, "allocatePolicy": "Restricted"}
    one = d.KOORDINATOR_RESERVATIONS.object(json.dumps({"metadata": metadata, "spec": spec, "status": {"phase": "Any"}}).encode())
    batch = Batch(StateKnown(state))
    batch.add(d.KOORDINATOR_RESERVATIONS, reflector.Upsert(one))
    events = batch.events()
    fold(state, state.seq + 1, "cluster", 0, [Decision(c.Observe("test", "given"), events)])
    return [event for event in events if isinstance(event, e.ReservationObserved)]


def test_labels_and_annotations_that_a_rule_reads_are_facts_although_they_make_no_generation():
    state = ClusterState()
    assert len(observed(state)) == 1
    assert observed(state) == []
    assert observed(state, resourceVersion="7", managedFields=[{}], annotations={"kubectl.kubernetes.io/x": "y"}) == []
    (relabelled,) = observed(state, labels={"scheduling.koordinator.sh/reservation-order": "1"})
    assert relabelled.labels == {"scheduling.koordinator.sh/reservation-order": "1"}
    (restricted,) = observed(state, annotations={RESTRICTED: '{"resources": ["cpu"]}'})
    assert restricted.spec.restricted == ("cpu",)
    assert [event.generation for event in (relabelled, restricted)] == [1, 1]


def test_of_a_pod_the_wishes_are_kept_and_what_was_allocated_is_not():
    """The log says itself what a pod has of a Reservation; the annotation is for people, and would be a fact of our own making."""
    prefix = "scheduling.koordinator.sh/"
    wishes = {f"{prefix}reservation-affinity": "{}", f"{prefix}exact-match-reservation": "{}"}
    assert kept(wishes | {f"{prefix}reservation-allocated": "{}"}) == wishes
