"""What pods refer to becomes the facts that the contract states; what cannot be read says why, and is never an error."""

import json

import msgspec
import pytest

from restow.contracts import events as e
from restow.contracts import values as v
from restow.domain.fold import apply
from restow.domain.state import ClusterState
from restow.kube import decode as d
from restow.kube.cpus import MANAGER_POLICY, TOPOLOGY
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown
from restow.kube.objects import OBJECTS
from restow.kube.reflector import Delete, Replace, Upsert

BORN, BORN_MS = "2026-03-01T08:00:00Z", 1772352000000
GIB = 2**30


def one(collection, name="x", *, meta=None, **body):
    """The object as the collection reads it from the API's bytes."""
    metadata = {"name": name, "uid": "u1", "resourceVersion": "7", "creationTimestamp": BORN, **(meta or {})}
    return collection.object(json.dumps({"metadata": metadata, **body}).encode())


def fact(collection, name="x", **body):
    return OBJECTS[collection.name].describe(one(collection, name, **body))


# -- groups ----------------------------------------------------------------------------------------------------------------


def group(**spec):
    return fact(d.POD_GROUPS, "g", meta={"namespace": "n"}, spec=spec)


def test_a_pod_group_in_full():
    body = {
        "meta": {
            "namespace": "n",
            "deletionTimestamp": BORN,
            "annotations": {"volcano.sh/maximum-runtime": "1h", "sla-waiting-time": "5m", "kubectl.kubernetes.io/x": "y"},
        },
        "spec": {
            "minMember": 3,
            "minTaskMember": {"worker": 2, "ps": 1},
            "minResources": {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": 8},
            "queue": "research",
            "priorityClassName": "high",
            "networkTopology": {"mode": "soft"},
        },
        "status": {"phase": "Inqueue", "running": 2, "conditions": [{"type": "Scheduled"}]},
    }
    assert fact(d.POD_GROUPS, "g", **body) == e.PodGroupObserved(
        namespace="n",
        name="g",
        uid="u1",
        created=BORN_MS,
        queue="research",
        min_member=3,
        min_task_member={"ps": 1, "worker": 2},
        min_resources={"cpu": 1500, "memory": 2 * GIB, "restow.dev/gpu-milli": 8000},
        priority_class="high",
        annotations={"volcano.sh/maximum-runtime": "1h", "sla-waiting-time": "5m"},
        phase="Inqueue",
        deleting=BORN_MS,
        topology=v.NetworkTopology("soft"),
    )


def test_a_pod_group_that_says_nothing_asks_for_nobody():
    bare = e.PodGroupObserved("n", "g", "u1", BORN_MS, min_member=0)
    assert fact(d.POD_GROUPS, "g", meta={"namespace": "n"}) == bare
    assert fact(d.POD_GROUPS, "g", meta={"namespace": "n"}, spec=None, status=None) == bare
    assert group(minTaskMember=None, minResources=None) == bare


@pytest.mark.parametrize(
    ("spec", "invalid"),
    [
        ({"minMember": -1}, "spec.minMember: -1; allowed: 0 to 2147483647"),
        ({"minMember": 2**31}, "spec.minMember: 2147483648; allowed: 0 to 2147483647"),
        ({"minMember": "three"}, "spec.minMember: 'three'; allowed: int"),
        ({"minMember": 1e40}, "spec.minMember: 1e+40; allowed: int"),
        ({"minTaskMember": {"ps": -2}}, 'spec.minTaskMember["ps"]: -2; allowed: 0 to 2147483647'),
        ({"minTaskMember": {"ps": 1, "w": "x"}}, "spec.minTaskMember[\"w\"]: 'x'; allowed: int"),
        ({"minResources": {"cpu": "-1"}}, "spec.minResources[\"cpu\"]: '-1' is negative; allowed: 0 or more"),
        ({"minResources": {"cpu": "1e30"}}, "spec.minResources[\"cpu\"]: '1e30' is too large; allowed: up to "),
        ({"minResources": {"nvidia.com/gpu": 2**62}}, 'spec.minResources["nvidia.com/gpu"]: 4611686018427387904 is too large; '),
        ({"minResources": {"memory": "lots"}}, "spec.minResources[\"memory\"]: 'lots' is not a quantity; allowed: "),
        ({"minResources": {"memory": [1]}}, 'spec.minResources["memory"]: a list; allowed: int | float | str'),
        ("gang", "spec: 'gang'; allowed: object"),
    ],
)
def test_a_pod_group_that_cannot_be_read_says_path_value_and_what_is_allowed(spec, invalid):
    got = fact(d.POD_GROUPS, "g", meta={"namespace": "n"}, spec=spec, status={"phase": "Pending"})
    assert got.invalid.startswith(invalid)
    assert (got.namespace, got.name, got.uid, got.phase) == ("n", "g", "u1", "Pending")


def test_a_pod_group_that_cannot_be_read_still_says_its_queue():
    got = group(queue="q", minMember=-1)
    assert (got.queue, bool(got.invalid)) == ("q", True)


def test_a_status_of_another_form_says_nothing():
    assert fact(d.POD_GROUPS, "g", meta={"namespace": "n"}, status={"phase": {"a": 1}}).phase == ""
    assert fact(d.QUEUES, "q", status=[]).state == "Open"


# -- groups of scheduling.k8s.io -----------------------------------------------------------------------------------------------


def upstream(**spec):
    return fact(d.UPSTREAM_GROUPS, "g", meta={"namespace": "n"}, spec=spec)


def test_a_group_of_the_apis_own_is_a_gang_of_its_minimum_and_never_the_same_as_volcanos_of_that_name():
    got = upstream(schedulingPolicy={"gang": {"minCount": 3}}, priorityClassName="high", disruptionMode="Pod")
    assert got == e.PodGroupObserved("n", "scheduling.k8s.io:g", "u1", BORN_MS, min_member=3, priority_class="high", phase="Inqueue")
    state = ClusterState()
    say(state, d.UPSTREAM_GROUPS, Upsert(one(d.UPSTREAM_GROUPS, "g", **SAMPLES[d.UPSTREAM_GROUPS])))
    say(state, d.POD_GROUPS, Upsert(one(d.POD_GROUPS, "g", **SAMPLES[d.POD_GROUPS])))
    assert list(state.pod_groups) == [("n", "scheduling.k8s.io:g"), ("n", "g")]
    assert say(state, d.POD_GROUPS, Replace(frozenset(), "9")) == ["pod_group_gone", "synced"]
    assert list(state.pod_groups) == [("n", "scheduling.k8s.io:g")]


@pytest.mark.parametrize("policy", [{"basic": {}}, {}])
def test_a_group_without_the_gang_policy_asks_for_nobody(policy):
    assert (upstream(schedulingPolicy=policy).min_member, upstream(schedulingPolicy=policy).invalid) == (0, "")


@pytest.mark.parametrize(
    ("mode", "together"),
    [("PodGroup", True), ("Pod", False), (None, False), ({"all": {}}, True), ({"single": {}}, False), ({}, False)],
    ids=str,
)
def test_the_disruption_mode_is_read_in_the_words_of_each_version(mode, together):
    assert upstream(schedulingPolicy={"gang": {"minCount": 2}}, disruptionMode=mode).together is together


@pytest.mark.parametrize(
    ("spec", "invalid"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}, "spec.schedulingConstraints.topology: 2 constraints; allowed: one"),
        ({"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": {"topology": [{"key": "rack"}]}}, ""),
        ({"schedulingPolicy": {"gang": {"minCount": 2}}, "parentCompositePodGroupName": "up"}, "spec.parentCompositePodGroupName: is not kept"),
        ({"schedulingPolicy": {"gang": {"minCount": -2}}}, "spec.schedulingPolicy.gang.minCount: -2; allowed: 0 to 2147483647"),
        ({"schedulingPolicy": {"gang": {"minCount": "two"}}}, "spec.schedulingPolicy.gang.minCount: 'two'; allowed: int"),
        ({"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": {"topology": []}}, ""),
    ],
)
def test_what_a_group_of_the_apis_own_asks_for_and_is_not_kept_is_said_by_path(spec, invalid):
    got = upstream(**spec)
    assert got.invalid.startswith(invalid)
    assert bool(got.invalid) == bool(invalid)
    if "is not kept" in invalid:
        assert got.min_member == 2, "its minimum binds moves all the same"


def test_a_group_of_the_apis_own_may_ask_for_one_value_of_a_node_label():
    got = upstream(schedulingPolicy={"gang": {"minCount": 2}}, schedulingConstraints={"topology": [{"key": "rack"}]})
    assert got.topology == v.NetworkTopology("hard", label="rack")


def test_the_queue_of_a_group_of_the_apis_own_is_its_annotation():
    meta = {"namespace": "n", "annotations": {"scheduling.volcano.sh/queue-name": "research"}}
    assert fact(d.UPSTREAM_GROUPS, "g", meta=meta, spec={"schedulingPolicy": {"basic": {}}}).queue == "research"


# -- queues ----------------------------------------------------------------------------------------------------------------


def test_a_queue_in_full():
    spec = {
        "weight": 5,
        "parent": "root",
        "priority": 50,
        "reclaimable": False,
        "capability": {"cpu": "200", "nvidia.com/gpu": 0},
        "deserved": {"cpu": 150},
        "guarantee": {"resource": {"cpu": "50"}},
        "affinity": {"nodeGroupAffinity": {}},
    }
    assert fact(d.QUEUES, "q", spec=spec, status={"state": "Open", "running": 3}) == e.QueueObserved(
        name="q",
        uid="u1",
        created=BORN_MS,
        weight=5,
        capability={"cpu": 200_000, "restow.dev/gpu-milli": 0},
        guarantee={"cpu": 50_000},
        deserved={"cpu": 150_000},
        reclaimable=False,
        parent="root",
        priority=50,
    )


def test_a_queue_that_says_nothing():
    assert fact(d.QUEUES, "q") == e.QueueObserved("q", "u1", BORN_MS)


@pytest.mark.parametrize(
    ("spec", "status", "state"),
    [
        ({}, {}, "Open"),
        ({}, {"state": ""}, "Open"),
        ({}, {"state": "Closed"}, "Closed"),
        ({}, {"state": "Closing"}, "Closing"),
        ({"state": "Closed"}, {}, "Closed"),
        ({"state": "Open"}, {"state": "Closing"}, "Closing"),
        ({"weight": 0}, {"state": "Closed"}, "Closed"),
    ],
)
def test_a_queue_is_closed_through_its_status(spec, status, state):
    assert fact(d.QUEUES, "q", spec=spec, status=status).state == state


@pytest.mark.parametrize(
    ("spec", "invalid"),
    [
        ({"weight": 0}, "spec.weight: 0; allowed: 1 to 2147483647"),
        ({"weight": -4}, "spec.weight: -4; allowed: 1 to "),
        ({"priority": 2**40}, "spec.priority: 1099511627776; allowed: -2147483648 to 2147483647"),
        (
            {"capability": {"cpu": "1"}, "guarantee": {"resource": {"cpu": "2"}}},
            'spec.guarantee.resource["cpu"]: 2 is above spec.capability; allowed: up to 1',
        ),
        (
            {"capability": {"nvidia.com/gpu": 1}, "deserved": {"koordinator.sh/gpu": 101}},
            'spec.deserved["nvidia.com/gpu"]: 1.01 is above spec.capability; allowed: up to 1',
        ),
        (
            {"deserved": {"cpu": "1"}, "guarantee": {"resource": {"cpu": "2"}}},
            'spec.guarantee.resource["cpu"]: 2 is above spec.deserved; allowed: up to 1',
        ),
        ({"guarantee": {"resource": {"cpu": "-2"}}}, "spec.guarantee.resource[\"cpu\"]: '-2' is negative"),
        ({"capability": {"cpu": {}}}, 'spec.capability["cpu"]: an object; allowed: int | float | str'),
        ({"parent": 3}, "spec.parent: 3; allowed: str"),
    ],
)
def test_a_queue_that_cannot_be_read_says_path_value_and_what_is_allowed(spec, invalid):
    got = fact(d.QUEUES, "q", spec=spec)
    assert got.invalid.startswith(invalid)
    assert (got.name, got.uid, got.weight, got.capability, got.guarantee) == ("q", "u1", 1, {}, {})


def test_a_guarantee_needs_no_deserved_and_no_capability():
    assert fact(d.QUEUES, spec={"guarantee": {"resource": {"cpu": "2"}}, "capability": {"memory": "1"}}).invalid == ""


# -- classes and namespaces --------------------------------------------------------------------------------------------------


def test_priority_classes():
    got = fact(d.PRIORITY_CLASSES, "high", value=1000, globalDefault=True, preemptionPolicy="Never", description="long")
    assert got == e.PriorityClassObserved("high", 1000, True, "Never")
    assert fact(d.PRIORITY_CLASSES, "low", value=-5) == e.PriorityClassObserved("low", -5)


def test_a_namespace_is_its_labels():
    got = fact(d.NAMESPACES, "shop", meta={"labels": {"team": "a"}, "annotations": {"b": "c"}}, status={"phase": "Active"})
    assert got == e.NamespaceObserved("shop", {"team": "a"})


# -- volumes -------------------------------------------------------------------------------------------------------------------


def test_a_bound_claim():
    meta = {
        "namespace": "n",
        "annotations": {"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "node-1"},
    }
    spec = {
        "volumeName": "pv-1",
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOncePod"],
        "resources": {"requests": {"storage": "10Gi"}},
        "volumeMode": "Block",
    }
    assert fact(d.CLAIMS, "c", meta=meta, spec=spec, status={"phase": "Bound"}) == e.ClaimObserved(
        "n", "c", "u1", "Bound", "pv-1", "fast", ("ReadWriteOncePod",), 10 * GIB, True, "node-1", True
    )


@pytest.mark.parametrize(
    ("annotations", "phase", "bound"),
    [
        ({}, "Bound", False),
        ({"pv.kubernetes.io/bind-completed": "yes"}, "Pending", False),
        ({"pv.kubernetes.io/bind-completed": "yes"}, "Lost", False),
        ({"pv.kubernetes.io/bind-completed": "yes"}, "Bound", True),
    ],
)
def test_a_claim_is_bound_when_both_sides_are_done(annotations, phase, bound):
    meta = {"namespace": "n", "annotations": annotations}
    assert fact(d.CLAIMS, meta=meta, spec={"volumeName": "v"}, status={"phase": phase}).bound is bound


def test_a_claim_without_a_class_has_none():
    assert fact(d.CLAIMS, meta={"namespace": "n"}, spec={}) == e.ClaimObserved("n", "x", "u1")


def test_the_old_annotation_of_the_class_wins():
    meta = {"namespace": "n", "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}
    assert fact(d.CLAIMS, meta=meta, spec={"storageClassName": "new"}).storage_class == "old"
    assert fact(d.VOLUMES, meta=meta, spec={"storageClassName": "new"}).storage_class == "old"


def test_a_csi_volume_in_full():
    spec = {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "storageClassName": "fast",
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "n", "name": "c", "uid": "u9"},
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "volumeAttributes": {"a": "b"}},
        "nodeAffinity": {
            "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "a"]}]}]}
        },
    }
    assert fact(d.VOLUMES, "pv", spec=spec, status={"phase": "Bound"}) == e.VolumeObserved(
        name="pv",
        uid="u1",
        phase="Bound",
        capacity=5 * GIB,
        storage_class="fast",
        modes=("ReadOnlyMany", "ReadWriteOnce"),
        claim="n/c",
        claim_uid="u9",
        affinity=(v.NodeTerm((v.Expression("zone", "In", ("a", "b")),)),),
        driver="ebs.csi.aws.com",
        handle="vol-1",
    )


@pytest.mark.parametrize(
    ("labels", "zones"),
    [
        ({"other": "x"}, {}),
        ({"topology.kubernetes.io/zone": "a", "x": "y"}, {"topology.kubernetes.io/zone": "a"}),
        (
            {"failure-domain.beta.kubernetes.io/zone": "a__b", "failure-domain.beta.kubernetes.io/region": ""},
            {"failure-domain.beta.kubernetes.io/zone": "a__b"},
        ),
    ],
)
def test_zones_of_a_volume_are_its_labels_old_and_new(labels, zones):
    assert fact(d.VOLUMES, meta={"labels": labels}, spec={}).zones == zones


def test_a_volume_may_be_anywhere_or_nowhere():
    assert fact(d.VOLUMES, spec={}).affinity is None
    assert fact(d.VOLUMES, spec={"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}).affinity == ()


def test_a_storage_class_in_full():
    meta = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    body = {
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": {"type": "gp3"},
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["b", "a"]}]}],
    }
    assert fact(d.STORAGE_CLASSES, "fast", meta=meta, **body) == e.StorageClassObserved(
        "fast", "ebs.csi.aws.com", "WaitForFirstConsumer", (v.NodeTerm((v.Expression("zone", "In", ("a", "b")),)),), True
    )
    assert fact(d.STORAGE_CLASSES, "slow", provisioner="p") == e.StorageClassObserved("slow", "p")


def test_limits_of_csi_drivers():
    drivers = [{"name": "b", "allocatable": {"count": 25}}, {"name": "a", "allocatable": {"count": 0}}, {"name": "c"}]
    assert fact(d.CSI_NODES, "node-1", spec={"drivers": drivers}) == e.CsiNodeObserved("node-1", {"a": 0, "b": 25})
    assert fact(d.CSI_NODES, "node-1", spec={"drivers": None}) == e.CsiNodeObserved("node-1")


# -- NUMA ------------------------------------------------------------------------------------------------------------------------


def zone(name, kind="Node", **amounts):
    resources = [{"name": n, "capacity": a, "allocatable": a, "available": "0"} for n, a in amounts.items()]
    return {"name": name, "type": kind, "costs": [{"name": name, "value": 10}], "resources": resources}


def test_the_numa_zones_of_a_node():
    zones = [zone("node-10", cpu="8", memory="2Gi"), zone("node-2", cpu="7500m"), zone("socket-0", "Socket", cpu="16")]
    got = fact(d.NUMA, "n1", zones=zones, topologyPolicies=["SingleNUMANodePodLevel"])
    assert got == e.NumaObserved(
        "n1",
        "single-numa-node",
        "pod",
        (v.NumaZone("node-2", {"cpu": 7500}), v.NumaZone("node-10", {"cpu": 8000, "memory": 2 * GIB})),
    )


def test_the_cpus_of_a_node_are_an_annotation_of_its_topology():
    detail = [{"id": 2, "core": 1, "socket": 0, "node": 0}, {"id": 0, "core": 0, "socket": 0, "node": 0}, {"id": 1}]
    meta = {"annotations": {TOPOLOGY: json.dumps({"detail": detail})}}
    assert fact(d.NUMA, "n1", meta=meta).cpus == (v.Cpu(0, 0, 0, 0), v.Cpu(1, 0, 0, 0), v.Cpu(2, 1, 0, 0))
    # Those that the kubelet keeps for the system are nobody's.
    meta["annotations"][MANAGER_POLICY] = json.dumps({"policy": "static", "reservedCPUs": "0-1"})
    assert fact(d.NUMA, "n1", meta=meta).cpus == (v.Cpu(2, 1, 0, 0),)


@pytest.mark.parametrize("text", ["", "{", "7", "null", "{}", '{"detail":null}', '{"detail":[{"core":1}]}', '{"detail":[{"id":-1},{"id":99999999}]}'])
def test_a_topology_that_cannot_be_read_is_none_and_hides_no_zones(text):
    got = fact(d.NUMA, "n1", zones=[zone("node-0", cpu="8")], meta={"annotations": {TOPOLOGY: text, MANAGER_POLICY: text}})
    assert (got.cpus, len(got.zones)) == ((), 1)


# -- devices -------------------------------------------------------------------------------------------------------------


def test_the_gpus_of_a_node_and_which_of_them_work():
    devices = [
        {"type": "gpu", "minor": 1, "health": False, "topology": {"socketID": 0, "nodeID": 1, "pcieID": "a"}},
        {"type": "gpu", "minor": 0, "health": True, "id": "GPU-1", "resources": {"koordinator.sh/gpu-core": "100"}},
        {"type": "rdma", "minor": 2, "health": True},
        {"type": "gpu", "health": True},
        {"type": "gpu", "minor": -1, "health": True},
        {"type": "gpu", "minor": 3},
    ]
    got = fact(d.DEVICES, "n1", spec={"devices": devices})
    assert got == e.DeviceObserved("n1", (v.Gpu(0), v.Gpu(1, False, 1), v.Gpu(3, False)))
    assert fact(d.DEVICES, "n1", spec={"devices": None}) == fact(d.DEVICES, "n1") == e.DeviceObserved("n1")


def test_gpus_of_a_zone_are_in_the_column_of_gpus():
    resources = [{"name": "nvidia.com/gpu", "allocatable": "2"}]
    assert fact(d.NUMA, zones=[{"name": "node-0", "type": "Node", "resources": resources}]).zones == (
        v.NumaZone("node-0", {"restow.dev/gpu-milli": 2000}),
    )


@pytest.mark.parametrize(
    ("policies", "attributes", "expected"),
    [
        ([], {}, ("", "container")),
        (["None"], {}, ("none", "container")),
        (["SingleNUMANodeContainerLevel"], {}, ("single-numa-node", "container")),
        (["Restricted"], {}, ("restricted", "container")),
        (["RestrictedPodLevel", "None"], {}, ("restricted", "pod")),
        (["BestEffortPodLevel"], {}, ("best-effort", "pod")),
        (["Nonsense"], {}, ("", "container")),
        ([], {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}, ("single-numa-node", "pod")),
        (["BestEffort"], {"topologyManagerPolicy": "restricted"}, ("restricted", "container")),
        (["SingleNUMANodePodLevel"], {"topologyManagerPolicy": "x", "topologyManagerScope": "y"}, ("single-numa-node", "pod")),
    ],
)
def test_policy_and_scope_in_the_old_and_the_new_form(policies, attributes, expected):
    said = [{"name": name, "value": value} for name, value in attributes.items()]
    got = fact(d.NUMA, zones=[], topologyPolicies=policies, attributes=said)
    assert (got.policy, got.scope) == expected


# -- as changes ------------------------------------------------------------------------------------------------------------------

SAMPLES = {
    d.NAMESPACES: {},
    d.PRIORITY_CLASSES: {"value": 5},
    d.QUEUES: {"spec": {"weight": 2}},
    d.POD_GROUPS: {"meta": {"namespace": "n"}, "spec": {"minMember": 2}},
    d.UPSTREAM_GROUPS: {"meta": {"namespace": "n"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}},
    d.STORAGE_CLASSES: {"provisioner": "p"},
    d.CLAIMS: {"meta": {"namespace": "n"}, "spec": {"volumeName": "v"}},
    d.VOLUMES: {"spec": {"capacity": {"storage": "1Gi"}}},
    d.CSI_NODES: {"spec": {"drivers": []}},
    d.NUMA: {"zones": [zone("node-0", cpu="1")]},
    d.DEVICES: {"spec": {"devices": [{"type": "gpu", "minor": 0, "health": True}]}},
    d.HYPER_NODES: {"spec": {"tier": 1, "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n1"}}}]}},
    d.RESOURCE_SLICES: {"spec": {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "nodeName": "n", "devices": [{"name": "gpu-0"}]}},
    d.RESOURCE_CLAIMS: {"meta": {"namespace": "n"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}},
    d.DEVICE_CLASSES: {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
    d.BUDGETS: {"meta": {"namespace": "n"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}, "status": {"disruptionsAllowed": 1}},
    d.QUOTAS: {"meta": {"namespace": "n"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "2"}}},
}
SAMPLED = [pytest.param(c, body, id=c.name) for c, body in SAMPLES.items()]
NAMES = "namespace priority_class queue pod_group pod_group storage_class claim volume csi_node numa device hyper_node resource_slice resource_claim device_class budget quota"
TAGS = dict(zip(SAMPLES, NAMES.split(), strict=True))


def say(state, collection, *changes):
    """Names of the events of one batch, folded into the state."""
    batch = Batch(StateKnown(state))
    for change in changes:
        batch.add(collection, change)
    apply(state, batch.events())
    assert batch.undecodable == []
    return [event.__struct_config__.tag.removeprefix("cluster.") for event in batch.events()]


def other(body, **meta):
    return body | {"meta": {**body.get("meta", {}), **meta}}


def test_every_collection_of_objects_has_a_sample():
    assert {c.name for c in SAMPLES} == set(OBJECTS)


@pytest.mark.parametrize(("collection", "body"), SAMPLED)
def test_nothing_is_said_twice(collection, body):
    state = ClusterState()
    assert say(state, collection, Upsert(one(collection, **body))) == [f"{TAGS[collection]}_observed"]
    noise = {"resourceVersion": "99", "managedFields": [{"manager": "m"}], "generation": 4, "finalizers": ["f"]}
    assert say(state, collection, Upsert(one(collection, **body)), Upsert(one(collection, **other(body, **noise)))) == []


@pytest.mark.parametrize(("collection", "body"), SAMPLED)
def test_what_goes_is_said_once(collection, body):
    state, got = ClusterState(), one(collection, **body)
    key = collection.key(got)
    assert say(state, collection, Delete(key, got)) == []
    say(state, collection, Upsert(got))
    assert say(state, collection, Delete(key, got), Delete(key, got)) == [f"{TAGS[collection]}_gone"]
    assert list(StateKnown(state).keys(collection.name)) == []


@pytest.mark.parametrize(("collection", "body"), SAMPLED)
def test_a_completed_list_tells_what_is_gone(collection, body):
    state = ClusterState()
    kept, lost = one(collection, "kept", **body), one(collection, "lost", **body)
    say(state, collection, Upsert(kept), Upsert(lost))
    assert say(state, collection, Replace(frozenset({collection.key(kept)}), "9")) == [f"{TAGS[collection]}_gone", "synced"]
    assert list(StateKnown(state).keys(collection.name)) == [collection.key(kept)]
    assert state.synced == {collection.name: "9"}


@pytest.mark.parametrize("collection", [d.QUEUES, d.POD_GROUPS, d.CLAIMS, d.VOLUMES], ids=lambda c: c.name)
def test_another_object_under_the_same_name_ends_the_first(collection):
    state, body = ClusterState(), SAMPLES[collection]
    tag = TAGS[collection]
    say(state, collection, Upsert(one(collection, **body)))
    again = one(collection, **other(body, uid="u2"))
    assert say(state, collection, Upsert(again)) == [f"{tag}_gone", f"{tag}_observed"]
    assert state.void.total() == 0


def test_of_a_pod_groups_status_only_the_phase_is_a_fact():
    state, body = ClusterState(), SAMPLES[d.POD_GROUPS]

    def written(**status):
        return say(state, d.POD_GROUPS, Upsert(one(d.POD_GROUPS, **body, status=status)))

    assert written(phase="Pending") == ["pod_group_observed"]
    assert written(phase="Pending", conditions=[{"type": "Unschedulable", "message": "m"}]) == []
    assert written(phase="Pending", running=1, migrationState={"phase": "Running"}) == []
    assert written(phase="Running", running=1) == ["pod_group_observed"]


def test_of_a_queues_status_only_the_state_is_a_fact():
    state = ClusterState()
    assert say(state, d.QUEUES, Upsert(one(d.QUEUES))) == ["queue_observed"]
    assert say(state, d.QUEUES, Upsert(one(d.QUEUES, status={"state": "Open", "running": 4, "allocated": {"cpu": "1"}}))) == []
    assert say(state, d.QUEUES, Upsert(one(d.QUEUES, status={"state": "Closing"}))) == ["queue_observed"]


def test_what_pods_leave_of_a_zone_is_no_fact():
    state = ClusterState()
    topology = SAMPLES[d.NUMA]["zones"][0]
    say(state, d.NUMA, Upsert(one(d.NUMA, zones=[topology])))
    fuller = [{**r, "available": "0"} for r in topology["resources"]]
    assert say(state, d.NUMA, Upsert(one(d.NUMA, zones=[{**topology, "resources": fuller}]))) == []


@pytest.mark.parametrize(
    ("collection", "body", "message"),
    [
        (d.CLAIMS, {"spec": {"resources": {"requests": {"storage": "-1Gi"}}}}, "negative; allowed: 0 or more"),
        (d.VOLUMES, {"spec": {"capacity": {"storage": "much"}}}, "not a quantity"),
        (d.CSI_NODES, {"spec": {"drivers": [{"name": "a", "allocatable": {"count": -1}}]}}, "drivers[0].allocatable.count: -1"),
        (d.NUMA, {"zones": [zone("node-0", cpu="-1")]}, 'zones[0].resources["cpu"]'),
        (d.PRIORITY_CLASSES, {"value": 2**40}, "value: 1099511627776; allowed: "),
    ],
)
def test_what_has_no_word_for_invalid_is_left_as_the_log_knows_it_and_reported(collection, body, message):
    batch = Batch(StateKnown(ClusterState()))
    batch.add(collection, Upsert(one(collection, **body)))
    assert batch.events() == ()
    (left,) = batch.undecodable
    assert message in left.message
    assert (left.kind, left.name, left.uid) == (collection.kind, "x", "u1")


def test_objects_are_known_by_namespace_and_name_even_when_they_cannot_be_read():
    broken = d.CLAIMS.object(b'{"metadata":{"namespace":"n","name":"c","uid":"u"},"spec":7}')
    assert isinstance(broken, d.Undecodable)
    assert d.CLAIMS.key(broken) == "n/c"
    assert d.VOLUMES.key(one(d.VOLUMES, "pv")) == "pv"


def test_a_zone_may_have_any_number():
    """One NodeResourceTopology whose zone has thousands of digits ended the watcher, and again at every start."""
    names = ["node-10", "node-" + "9" * 5000, "node-2", "node-02", "x"]
    batch = Batch(StateKnown(ClusterState()))
    batch.add(d.NUMA, Upsert(one(d.NUMA, zones=[zone(name, cpu="1") for name in names])))
    (fact,) = batch.events()
    assert [z.name for z in fact.zones] == ["node-2", "node-02", "node-10", "node-" + "9" * 5000, "x"]


def test_an_object_that_nobody_has_foreseen_is_left_out_and_the_others_are_read(monkeypatch):
    def breaks(_):
        raise RuntimeError("who would have thought")

    monkeypatch.setitem(OBJECTS, d.NAMESPACES.name, msgspec.structs.replace(OBJECTS[d.NAMESPACES.name], describe=breaks))
    batch = Batch(StateKnown(ClusterState()))
    batch.add(d.NAMESPACES, Upsert(one(d.NAMESPACES)))
    batch.add(d.PRIORITY_CLASSES, Upsert(one(d.PRIORITY_CLASSES, value=5)))
    assert [type(event) for event in batch.events()] == [e.PriorityClassObserved]
    assert [left.message for left in batch.undecodable] == ["RuntimeError: who would have thought"]
