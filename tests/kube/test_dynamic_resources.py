"""ResourceSlices, ResourceClaims and DeviceClasses of every version that is read become the same facts."""

import json

import msgspec
import pytest

from restow.contracts import events as e
from restow.contracts.dynamic_resources import (
    AllocatedDevice,
    ClaimConstraint,
    ClaimRequest,
    CounterSet,
    DeviceTaint,
    PublishedDevice,
    SubRequest,
)
from restow.contracts.values import Expression, NodeTerm, Toleration
from restow.kube import decode as d
from restow.kube.objects import OBJECTS
from restow.kube.requests import FactError


def fact(collection: d.Collection, spec: object, status: object = None, **meta: object):
    """Read from the bytes of an object."""
    said = {"metadata": {"name": "x", "uid": "u", "resourceVersion": "1"} | meta, "spec": spec} | ({"status": status} if status is not None else {})
    one = collection.object(json.dumps(said).encode())
    assert not isinstance(one, d.Undecodable), one
    return OBJECTS[collection.name].describe(one)


def published(*devices: object, **spec: object) -> e.ResourceSliceObserved:
    said = {"driver": "gpu.nvidia.com", "pool": {"name": "node-1", "generation": 3, "resourceSliceCount": 2}, "nodeName": "node-1", "devices": devices}
    return fact(d.RESOURCE_SLICES, said | spec)


def test_devices_of_a_node_with_what_they_have_alike_said_once():
    said = [
        {"name": f"gpu-{i}", "attributes": {"productName": {"string": "A100"}, "uuid": {"string": f"GPU-{i}"}}, "capacity": {"memory": {"value": "40Gi"}}}
        for i in range(2)
    ]
    got = published(*said)
    assert (got.driver, got.pool, got.generation, got.slices, got.node, got.nodes, got.everywhere) == ("gpu.nvidia.com", "node-1", 3, 2, "node-1", None, False)
    assert got.common == {"productName": "A100"}
    assert got.devices == tuple(PublishedDevice(f"gpu-{i}", {"uuid": f"GPU-{i}"}, {"memory": (40 << 30) * 1000}) for i in range(2))


def test_attributes_of_every_kind_are_their_text_and_the_drivers_own_have_no_domain():
    kinds = {
        "n": {"int": 7}, "t": {"bool": True}, "f": {"bool": False}, "s": {"string": "7g"}, "v": {"version": "1.2.3"}, "e": {"string": ""}, "gpu.nvidia.com/own": {"int": 0},
        "resource.kubernetes.io/numaNode": {"ints": [5, 4]}, "l": {"bools": [True, False]}, "later": {"colour": "red"},
    }  # fmt: skip
    assert published({"name": "g", "attributes": kinds}).common == {
        "n": "7", "t": "true", "f": "false", "s": "7g", "v": "1.2.3", "e": "", "own": "0", "resource.kubernetes.io/numaNode": "[5, 4]", "l": "[true, false]", "later": "",
    }  # fmt: skip


def test_a_device_that_is_a_part_of_another_one_uses_counters_that_they_share():
    consumes = [{"counterSet": "gpu-0", "counters": {"memory-slice-0": {"value": "1"}, "multiprocessors": {"value": 14}}}]
    got = published({"name": "gpu-0-mig-19-0-1", "consumesCounters": consumes}, sharedCounters=[{"name": "gpu-0", "counters": {"memory-slice-0": {"value": "1"}}}])
    assert got.devices == (PublishedDevice("gpu-0-mig-19-0-1", consumes=(CounterSet("gpu-0", {"memory-slice-0": 1_000, "multiprocessors": 14_000}),)),)
    assert got.counters == (CounterSet("gpu-0", {"memory-slice-0": 1_000}),)


def test_where_devices_are():
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]}]}
    found = (NodeTerm((Expression("rack", "In", ("1",)),)),)
    assert published(nodeName=None, nodeSelector=terms).nodes == found
    assert published(nodeName=None, allNodes=True).everywhere
    got = published({"name": "a", "nodeName": "n2"}, {"name": "b", "nodeSelector": terms}, {"name": "c", "allNodes": True}, nodeName=None, perDeviceNodeSelection=True)
    assert [(one.node, one.nodes, one.everywhere) for one in got.devices] == [("n2", None, False), ("", found, False), ("", None, True)]


def test_taints_and_what_else_keeps_a_device_from_being_had_at_once():
    device = {"name": "a", "taints": [{"key": "xid", "value": "79", "effect": "NoExecute"}], "allowMultipleAllocations": True, "bindingConditions": ["ready"]}
    assert published(device).devices == (PublishedDevice("a", taints=(DeviceTaint("xid", "NoExecute", "79"),), shared=True, waits=True),)


def test_a_slice_of_v1beta1_is_the_same():
    body = {"attributes": {"type": {"string": "gpu"}}, "capacity": {"memory": {"value": "1Gi"}}, "taints": [{"key": "k", "effect": "NoSchedule"}]}
    assert published({"name": "a", "basic": body}) == published({"name": "a", **body})


EXACT = {"deviceClassName": "gpu.nvidia.com", "selectors": [{"cel": {"expression": "b"}}, {"cel": {"expression": "a"}}], "allocationMode": "ExactCount", "count": 2}


def claimed(*requests: object, status: object = None, **more: object) -> e.ResourceClaimObserved:
    return fact(d.RESOURCE_CLAIMS, {"devices": {"requests": requests} | more}, status, namespace="shop")


@pytest.mark.parametrize("said", [{"name": "gpu", "exactly": EXACT}, {"name": "gpu", **EXACT}])
def test_a_request_of_v1_and_of_v1beta1(said):
    assert claimed(said).requests == (ClaimRequest("gpu", (SubRequest("", "gpu.nvidia.com", ("a", "b"), 2),)),)


def test_requests_for_all_for_monitoring_for_a_share_and_for_the_first_of_several():
    got = claimed(
        {"name": "all", "exactly": {"deviceClassName": "c", "allocationMode": "All", "adminAccess": True}},
        {"name": "part", "exactly": {"deviceClassName": "c", "count": 1, "capacity": {"requests": {"memory": "1500m"}}}},
        {"name": "any", "firstAvailable": [{"name": "big", "deviceClassName": "c", "count": 1}, {"name": "small", "deviceClassName": "d", "count": 3}]},
    )
    assert got.requests == (
        ClaimRequest("all", (SubRequest("", "c", count=0, admin=True),)),
        ClaimRequest("part", (SubRequest("", "c", capacity={"memory": 1_500}),)),
        ClaimRequest("any", (SubRequest("big", "c"), SubRequest("small", "d", count=3))),
    )


def test_a_request_tolerates_taints_of_devices():
    said = [{"key": "ill", "operator": "Exists", "effect": "NoSchedule"}, {"key": "ill", "value": "yes", "tolerationSeconds": 5}]
    asked = claimed({"name": "gpu", "exactly": {"deviceClassName": "c", "count": 1, "tolerations": said}}).requests[0].any_of[0]
    assert asked.tolerations == (Toleration("ill", "Exists", effect="NoSchedule"), Toleration("ill", value="yes", seconds=5))


def test_constraints():
    got = claimed(constraints=[{"matchAttribute": "d/numa"}, {"requests": ["a"], "distinctAttribute": "d/parent"}])
    assert got.constraints == (ClaimConstraint("d/numa"), ClaimConstraint("d/parent", ("a",), distinct=True))


def test_what_a_claim_has_and_who_may_use_it():
    results = [
        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-0"},
        {"request": "look", "driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-1", "adminAccess": True},
        {"request": "nic", "driver": "d", "pool": "p", "device": "e", "shareID": "s"},
    ]
    users = [{"resource": "pods", "name": "b", "uid": "2"}, {"resource": "pods", "name": "a", "uid": "1"}]
    got = claimed(status={"allocation": {"devices": {"results": results}}, "reservedFor": users})
    assert got.allocated == (
        AllocatedDevice("gpu", "gpu.nvidia.com", "node-1", "gpu-0"), AllocatedDevice("look", "gpu.nvidia.com", "node-1", "gpu-1", admin=True), AllocatedDevice("nic", "d", "p", "e", share="s"),
    )  # fmt: skip
    assert (got.reserved, got.reserved_otherwise) == (("1", "2"), False)
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "3"}
    got = claimed(status={"reservedFor": [group]})
    assert (got.reserved, got.reserved_otherwise, got.allocated) == ((), True, ())


def test_the_pod_that_a_claim_was_made_for_from_a_template():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": "pod-uid", "controller": True}
    made = {"ownerReferences": [owner], "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    got = fact(d.RESOURCE_CLAIMS, {"devices": {}}, namespace="shop", **made)
    assert (got.owner, got.pod_claim, got.deleting > 0) == ("pod-uid", "gpu", True)
    other = {"ownerReferences": [owner | {"kind": "Job", "apiVersion": "batch/v1"}, owner | {"controller": False}]}
    assert fact(d.RESOURCE_CLAIMS, {"devices": {}}, namespace="shop", **other).owner == ""


def test_a_class():
    spec = {"selectors": [{"cel": {"expression": "device.driver == 'd'"}}], "extendedResourceName": "example.com/gpu", "config": [{"opaque": {"driver": "d", "parameters": {}}}]}
    assert fact(d.DEVICE_CLASSES, spec) == e.DeviceClassObserved("x", ("device.driver == 'd'",), "example.com/gpu")


def test_parameters_for_drivers_are_nowhere_in_the_log():
    config = [{"requests": ["gpu"], "opaque": {"driver": "d", "parameters": {"token": "s3cret"}}}]
    got = claimed({"name": "gpu", "exactly": EXACT}, config=config, status={"allocation": {"devices": {"results": [], "config": config}}, "devices": [{"data": {"token": "s3cret"}}]})
    assert b"s3cret" not in msgspec.json.encode(got)


def test_an_amount_that_cannot_be_read_says_where_it_is():
    with pytest.raises(FactError, match=r"spec\.devices\[0\]\.capacity\.memory: 'much' is not a quantity"):
        published({"name": "a", "capacity": {"memory": {"value": "much"}}})
