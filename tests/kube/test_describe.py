"""Pods, nodes and workloads become the facts that the contract states."""

import json
import re
from datetime import datetime

import msgspec
import pytest
from kube.siblings import manifest, pod

from restow.contracts import events as e
from restow.contracts import times
from restow.contracts import values as v
from restow.kube import decode as d
from restow.kube import wire
from restow.kube.annotations import read_devices, write_devices
from restow.kube.describe import millis, node_fact, pod_fact
from restow.kube.requests import FactError, effective
from restow.kube.shapes import Shaper


def spec(**fields) -> wire.PodSpec:
    return msgspec.convert(fields, wire.PodSpec)


def box(name="c", requests=None, limits=None, **more):
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def altered(name: str, change) -> wire.Pod:
    data = json.loads(manifest(name))
    change(data)
    return d.PODS.object(json.dumps(data).encode())


# -- effective requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "cpu"),
    [
        ({"containers": [box(requests={"cpu": "1"}), box(requests={"cpu": "500m"})]}, 1500),
        ({"containers": [box(requests={"cpu": "1"})], "initContainers": [box(requests={"cpu": "3"})]}, 3000),
        # KEP-753: a sidecar adds to the containers, and to the init containers that start after it, not before.
        (
            {
                "containers": [box(requests={"cpu": "1"})],
                "initContainers": [box(requests={"cpu": "2"}), box(requests={"cpu": "500m"}, restartPolicy="Always")],
            },
            2000,
        ),
        (
            {
                "containers": [box(requests={"cpu": "1"})],
                "initContainers": [box(requests={"cpu": "500m"}, restartPolicy="Always"), box(requests={"cpu": "2"})],
            },
            2500,
        ),
        (
            {
                "containers": [box(requests={"cpu": "1"})],
                "initContainers": [
                    box(requests={"cpu": "500m"}, restartPolicy="Always"),
                    box(requests={"cpu": "700m"}, restartPolicy="Always"),
                ],
            },
            2200,
        ),
        ({"containers": [box(requests={"cpu": "1"})], "overhead": {"cpu": "250m"}}, 1250),
        (
            {"containers": [box(requests={"cpu": "1"})], "resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "1"}},
            4000,
        ),
        ({"containers": [box(limits={"cpu": "2"})]}, 2000),
        ({"containers": [box(requests={"cpu": "1"}, limits={"cpu": "2"})]}, 1000),
        ({"containers": [box(requests={"cpu": "100u"}), box(requests={"cpu": "100u"})]}, 1),
    ],
)
def test_effective_requests(fields, cpu):
    assert effective(spec(**fields)) == {"cpu": cpu}


def test_pod_level_resources_replace_only_what_kubernetes_lets_them():
    asked = effective(
        spec(
            containers=[box(requests={"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi"})],
            resources={"requests": {"ephemeral-storage": "9Gi", "hugepages-2Mi": "8Mi"}},
        )
    )
    assert asked == {"ephemeral-storage": 1 << 30, "hugepages-2Mi": 8 << 20}


def test_a_sidecar_pod_as_the_scheduler_counts_it():
    requests = pod_fact(pod("sidecar"))[0].requests
    # cpu: max(250+100, max(1000, 300+100)); memory: max(128+128, 512+128)
    assert requests == {"cpu": 1000, "memory": 640 << 20, "pods": 1}


def test_overhead_and_ephemeral_storage_count():
    requests = pod_fact(pod("ephemeral_volume"))[0].requests
    assert requests == {"cpu": 1250, "memory": (2048 + 120) << 20, "pods": 1, "ephemeral-storage": 10 << 30}


# -- devices ---------------------------------------------------------------------------------------------------------------


def test_whole_gpus():
    shape = pod_fact(pod("indexed_job"))[0]
    assert shape.devices == v.DeviceRequest(1, 1000)
    assert shape.requests == {"cpu": 4000, "memory": 16 << 30, "restow.dev/gpu-milli": 1000, "pods": 1}


def test_half_a_gpu():
    shape = pod_fact(pod("fractional_gpu"))[0]
    assert (shape.devices, shape.requests["restow.dev/gpu-milli"]) == (v.DeviceRequest(1, 500), 500)


def test_the_traces_annotations_ask_for_gpus_and_models():
    shape, _, fact = pod_fact(pod("openb_gpu"))
    assert shape.devices == v.DeviceRequest(1, 460)
    models = v.Expression("alibabacloud.com/gpu-card-model", "In", ("V100M16", "V100M32"))
    assert shape.node_affinity == (v.NodeTerm(labels=(models,)),)
    assert fact.devices == (v.DeviceShare(1, 460),)
    assert fact.annotations == {}


def test_models_join_every_term_of_the_pods_own_affinity():
    def own(data):
        rule = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
        required = {"nodeSelectorTerms": [rule]}
        data["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}

    (term,) = pod_fact(altered("openb_gpu", own))[0].node_affinity
    assert [x.key for x in term.labels] == ["zone", "alibabacloud.com/gpu-card-model"]


def test_zero_gpus_of_the_trace_are_none():
    def none(data):
        data["metadata"]["annotations"].update(
            {"alibabacloud.com/gpu-milli": "0", "alibabacloud.com/gpu-count": "0"}
        )

    assert pod_fact(altered("openb_gpu", none))[0].devices is None


@pytest.mark.parametrize("milli", [1, 460, 465, 1000])
def test_allocated_devices_are_read_as_they_were_written(milli):
    shares = (v.DeviceShare(0, milli), v.DeviceShare(3, 1000))
    assert read_devices(write_devices(shares)) == shares


@pytest.mark.parametrize("text", ["", "{", '{"gpu":[{"minor":-1}]}', '{"gpu":[{"minor":1' + '0' * 30 + '}]}', '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"200"}}]}'])
def test_a_bad_device_annotation_says_what_is_allowed(text):
    with pytest.raises(ValueError, match="allowed: "):
        read_devices(text)


# -- pods --------------------------------------------------------------------------------------------------------------------


def test_a_running_pod():
    fact = pod_fact(pod("deployment", 5))[2]
    assert (fact.namespace, fact.node, fact.phase, fact.ready) == ("shop", "node-005", "Running", True)
    assert (fact.created, fact.started) == (1772352000000, 1772352001000)
    assert fact.moving().started == fact.started
    assert fact.owner == v.OwnerRef("ReplicaSet", "web-7d9c5b9f7b", "0f6d0a8e-5f6e-4a58-9d43-2f3a1c1f0a01", "apps/v1")
    assert fact.labels == {"app": "web", "pod-template-hash": "7d9c5b9f7b"}
    assert (fact.gated, fact.static, fact.deleting) == (False, False, 0)


def test_a_static_pod():
    assert pod_fact(pod("static_pod"))[2].static


def test_a_gated_pod():
    gated = altered("deployment", lambda data: data["spec"].update(schedulingGates=[{"name": "queue"}]))
    assert pod_fact(gated)[2].gated
    assert not pod_fact(gated)[2].landing


@pytest.mark.parametrize(("gates", "landing"), [(["restow.dev/landing"], True), (["restow.dev/landing", "queue"], False), ([], False)])
def test_a_pod_that_only_our_gate_keeps_from_its_scheduler(gates, landing):
    gated = altered("deployment", lambda data: data["spec"].update(schedulingGates=[{"name": name} for name in gates]))
    assert (pod_fact(gated)[2].gated, pod_fact(gated)[2].landing) == (bool(gates), landing)


def test_a_terminating_pod():
    when = altered("deployment", lambda data: data["metadata"].update(deletionTimestamp="2026-03-01T09:00:00Z"))
    assert pod_fact(when)[2].deleting == 1772355600000


def test_a_pod_that_the_kubelet_rejected():
    def rejected(data):
        data["status"] = {"phase": "Failed", "reason": "OutOfcpu", "message": "long"}

    fact = pod_fact(altered("deployment", rejected))[2]
    assert fact.moving() == e.PodChanged(fact.pod, fact.node, "Failed", False, 0, "OutOfcpu")


def test_annotations_that_a_rule_reads_are_kept():
    assert pod_fact(pod("volcano_job"))[2].annotations == {
        "scheduling.k8s.io/group-name": "mpi-9a",
        "volcano.sh/task-spec": "worker",
    }


@pytest.mark.parametrize(
    "name",
    [
        "volcano.sh/preemptable", "volcano.sh/cooldown-time", "volcano.sh/sla-waiting-time", "sla-waiting-time",
        "scheduling.volcano.sh/queue-name", "volcano.sh/queue-name", "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt",
    ],
)  # fmt: skip
def test_annotations_of_volcanos_plugins_are_kept(name):
    said = altered("deployment", lambda data: data["metadata"]["annotations"].update({name: "x"}))
    assert pod_fact(said)[2].annotations == {name: "x"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d["spec"]["containers"][0]["resources"]["requests"].update(cpu="1x"),
            r"""spec.containers\[0\].resources.requests\["cpu"\]: '1x' is not a quantity; allowed: """,
        ),
        (lambda d: d["spec"]["containers"][0]["resources"]["requests"].update(cpu="-1"), "negative; allowed: "),
        (
            lambda d: d["spec"]["containers"][0]["resources"]["requests"].update({"koordinator.sh/gpu": "150"}),
            "150 % of a GPU is asked for; allowed: ",
        ),
    ],
)
def test_a_bad_value_is_named_with_path_and_what_is_allowed(change, message):
    """In the shape of a pod that exists; a template of one that does not is refused."""
    read = altered("deployment", change)
    assert re.search(message, pod_fact(read)[0].unreadable)
    with pytest.raises(FactError, match=message):
        Shaper().shaped(read.spec, {})
    shaper = Shaper()
    assert shaper.shaped(read.spec, {}, exists=True).shape.unreadable
    with pytest.raises(FactError, match=message):
        shaper.shaped(read.spec, {})


def asks(requests, annotations=None, **labels) -> v.PodShape:
    """Of a pod that runs."""
    def change(data):
        data["metadata"]["annotations"] = annotations or {}
        data["metadata"]["labels"] = {key.replace("_", "/"): value for key, value in labels.items()}
        data["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "30", "memory": "1Gi"} | requests}
        data["spec"]["nodeName"] = "n"

    return pod_fact(altered("deployment", change))[0]


@pytest.mark.parametrize(
    ("requests", "annotations", "gpus"),
    [
        ({"koordinator.sh/gpu": "150"}, {}, 2),
        ({"nvidia.com/gpu": "1", "koordinator.sh/gpu": "50"}, {}, 1),
        ({"koordinator.sh/gpu-core": "30", "nvidia.com/gpu": "4"}, {}, 4),
        ({"alibabacloud.com/gpu-milli": "2500"}, {}, 3),
        ({"nvidia.com/gpu": str(2**62)}, {}, 1024),
        ({}, {"scheduling.koordinator.sh/device-allocated": "{"}, 0),
        ({}, {"scheduling.koordinator.sh/resource-status": "{"}, 0),
        ({}, {"alibabacloud.com/gpu-milli": "much"}, 0),
    ],
)
def test_a_running_pod_of_which_not_everything_can_be_read_takes_what_can_be(requests, annotations, gpus):
    """A pod that is left out takes nothing: its node would be filled a second time, and the kubelet would refuse whoever comes, again and again."""
    shape = asks(requests, annotations)
    assert "allowed: " in shape.unreadable
    assert (shape.requests["cpu"], shape.requests["memory"], shape.requests.get("restow.dev/gpu-milli", 0)) == (30_000, 1 << 30, gpus * 1000)


@pytest.mark.parametrize("cpu", ["9223372036854775807", "10P", "1e30", "1e50"])
def test_what_is_beyond_all_bounds_is_more_than_any_node_has_if_it_can_be_said(cpu):
    shape = asks({"cpu": cpu})
    assert "too large; allowed: " in shape.unreadable
    assert shape.requests.get("cpu", 0) in (0, 1 << 48)
    assert shape.requests["memory"] == 1 << 30


def test_what_containers_cannot_say_together_they_say_each():
    most = box(requests={"memory": str(2**63 - 1)})
    shape = Shaper().shaped(spec(containers=[most, most]), {}, exists=True).shape
    assert ("add up to more" in shape.unreadable, shape.requests["memory"]) == (True, 2 << 48)


def test_the_rest_of_a_pod_with_a_bad_annotation_is_what_it_was():
    good, bad = (asks({}, {"scheduling.koordinator.sh/device-allocated": text}) for text in ('{"gpu": []}', "{"))
    assert msgspec.structs.replace(bad, unreadable="") == good


# -- nodes and workloads -----------------------------------------------------------------------------------------------------


def test_a_node():
    body = {
        "metadata": {"name": "gpu-1", "uid": "u", "resourceVersion": "5", "labels": {"zone": "a"}},
        "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule", "timeAdded": "2026-03-01T09:00:00Z"}]},
        "status": {
            "allocatable": {"cpu": "63900m", "memory": "262144Mi", "pods": "110", "nvidia.com/gpu": "8", "hugepages-1Gi": "0"},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
        },
    }
    node = d.NODES.object(json.dumps(body).encode())
    assert node_fact(node) == e.NodeObserved(
        name="gpu-1",
        uid="u",
        allocatable={"cpu": 63900, "memory": 262144 << 20, "restow.dev/gpu-milli": 8000, "pods": 110},
        labels={"zone": "a"},
        taints=(v.Taint("gpu", "NoSchedule"),),
        devices=8,
        ready=True,
        unschedulable=True,
    )


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "alibabacloud.com/gpu-count", "koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"])
def test_of_a_node_with_more_gpus_than_a_log_can_say_nothing_is_said(name):
    """In thousandths they would leave 64 bits, and no reader could read the commit that says so."""
    unit = 100 if name.startswith("koordinator") else 1
    most = (2**63 - 1) // 1000
    assert node_fact(wire.Node(wire.Meta(name="n"), status=wire.NodeStatus({name: str(min(most * unit, 2**63 - 1))}))).allocatable["restow.dev/gpu-milli"] < 2**63
    for amount in (most + 1) * unit, 2**63 - 1:
        if amount < 2**63:
            with pytest.raises(FactError, match=f"status.allocatable: [0-9]+ GPUs; allowed: up to {most}"):
                node_fact(wire.Node(wire.Meta(name="n"), status=wire.NodeStatus({name: str(amount)})))


@pytest.mark.parametrize("status", [None, {"conditions": [{"type": "Ready", "status": "Unknown"}]}])
def test_a_node_is_ready_only_when_it_says_so(status):
    assert not node_fact(wire.Node(wire.Meta(name="n"), status=msgspec.convert(status, wire.NodeStatus | None))).ready


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({"karpenter.sh/do-not-disrupt": "true"}, True),
        ({"karpenter.sh/do-not-disrupt": "5m"}, False),  # a duration counts on pods
        ({"karpenter.sh/do-not-disrupt": "true", "restow.dev/protected": "log-1 karpenter.sh/do-not-disrupt"}, False),
        ({"karpenter.sh/do-not-disrupt": "true", "restow.dev/protected": "log-1 cluster-autoscaler.kubernetes.io/scale-down-disabled"}, True),
        ({}, False),
    ],
)
def test_a_node_says_whether_somebody_else_asks_to_leave_it_alone(annotations, asked):
    assert node_fact(wire.Node(wire.Meta(name="n", annotations=annotations))).do_not_disrupt == asked


def test_no_time_is_zero():
    assert millis(None) == 0


@pytest.mark.parametrize(
    ("said", "kept"),
    [("9999-12-31T23:59:59.9999Z", "9999-12-31T23:59:59.999Z"), ("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59.999Z"), ("0001-01-01T00:00:00+12:00", "0001-01-01T00:00:00.000Z")],
)
def test_a_time_that_its_zone_or_rounding_leads_out_of_the_calendar_is_its_last_or_first_moment(said, kept):
    """A user may write that as `expires`, and everybody who shows it must be able to."""
    at = millis(datetime.fromisoformat(said))
    assert times.rfc3339(at) == kept
    assert times.seconds(at) == kept[:19] + "Z"


def test_a_pods_gates_are_named_and_ours_alone_is_told_apart():
    def gated(*names):
        fact = pod_fact(d.PODS.object(json.dumps({"metadata": {"name": "p", "uid": "p"}, "spec": {"schedulingGates": [{"name": n} for n in names]}}).encode()))[2]
        return fact.gated, fact.landing, fact.gates

    assert gated() == (False, False, ())
    assert gated("restow.dev/landing") == (True, True, ("restow.dev/landing",))
    assert gated("kueue.x-k8s.io/admission", "restow.dev/landing") == (True, False, ("kueue.x-k8s.io/admission", "restow.dev/landing"))


def test_the_group_of_a_pod_is_that_of_its_own_field_before_any_annotation():
    annotations = {"scheduling.k8s.io/group-name": "volcanos", "kueue.x-k8s.io/retriable-in-group": "false", "x": "y"}
    body = {"metadata": {"name": "p", "uid": "p", "annotations": annotations}, "spec": {"schedulingGroup": {"podGroupName": "train"}}}
    said = pod_fact(d.PODS.object(json.dumps(body).encode()))[2].annotations
    assert said == {"scheduling.k8s.io/group-name": "scheduling.k8s.io:train", "kueue.x-k8s.io/retriable-in-group": "false"}


def test_only_a_long_grace_period_is_a_fact():
    def grace(seconds):
        body = {"metadata": {"name": "p", "uid": "p"}, "spec": {"terminationGracePeriodSeconds": seconds}}
        return pod_fact(d.PODS.object(json.dumps(body).encode()))[2].grace

    assert [grace(seconds) for seconds in (None, 0, 30, 300, 301, 14_400)] == [0, 0, 0, 0, 301, 14_400]


def test_a_pods_workload_and_who_answers_its_eviction_are_facts_and_no_annotation_passes_for_them():
    annotations = {"scheduling.k8s.io/workload-ref": "fake", "lifecycle.k8s.io/eviction-responders": "fake"}

    def said(spec):
        return pod_fact(d.PODS.object(json.dumps({"metadata": {"name": "p", "uid": "p", "annotations": annotations}, "spec": spec}).encode()))[2].annotations

    assert said({}) == {}
    assert said({"workloadRef": {"name": "train", "podGroup": "workers"}}) == {"scheduling.k8s.io/workload-ref": "train/workers"}
    assert said({"workloadRef": {"name": "train", "podGroup": "workers", "podGroupReplicaKey": "3"}}) == {"scheduling.k8s.io/workload-ref": "train/workers/3"}
    responders = [{"name": "a.example/b", "priority": 1000}, {"name": "c.example/d", "priority": 500}]
    assert said({"evictionResponders": responders}) == {"lifecycle.k8s.io/eviction-responders": "a.example/b, c.example/d"}
