"""Table output and partial metadata."""

from __future__ import annotations

import pytest
from kubesim.conformance.harness import TABLE, Api, unique
from kubesim.conformance.objects import config_map, pod

COLUMNS = {
    "/api/v1/pods": ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"],
    "/api/v1/nodes": ["Name", "Status", "Roles", "Age", "Version", "Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"],
    "/api/v1/namespaces": ["Name", "Status", "Age"],
    "/api/v1/events": ["Last Seen", "Type", "Reason", "Object", "Subobject", "Source", "Message", "First Seen", "Count", "Name"],
    "/api/v1/configmaps": ["Name", "Data", "Age"],
    "/api/v1/secrets": ["Name", "Type", "Data", "Age"],
    "/api/v1/services": ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"],
    "/api/v1/persistentvolumes": ["Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass", "VolumeAttributesClass", "Reason", "Age", "VolumeMode"],
    "/api/v1/persistentvolumeclaims": ["Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age", "VolumeMode"],
    "/apis/apps/v1/deployments": ["Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"],
    "/apis/apps/v1/replicasets": ["Name", "Desired", "Current", "Ready", "Age", "Containers", "Images", "Selector"],
    "/apis/apps/v1/statefulsets": ["Name", "Ready", "Age", "Containers", "Images"],
    "/apis/apps/v1/daemonsets": ["Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age", "Containers", "Images", "Selector"],
    "/apis/batch/v1/jobs": ["Name", "Status", "Completions", "Duration", "Age", "Containers", "Images", "Selector"],
    "/apis/policy/v1/poddisruptionbudgets": ["Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"],
    "/apis/coordination.k8s.io/v1/leases": ["Name", "Holder", "Age"],
    "/apis/scheduling.k8s.io/v1/priorityclasses": ["Name", "Value", "Global-Default", "Age", "PreemptionPolicy"],
    "/apis/storage.k8s.io/v1/storageclasses": ["Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"],
    "/apis/storage.k8s.io/v1/csinodes": ["Name", "Drivers", "Age"],
    "/apis/rbac.authorization.k8s.io/v1/roles": ["Name", "Created At"],
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": ["Name", "Created At"],
    "/apis/rbac.authorization.k8s.io/v1/rolebindings": ["Name", "Role", "Age", "Users", "Groups", "ServiceAccounts"],
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": ["Name", "Role", "Age", "Users", "Groups", "ServiceAccounts"],
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies": ["Name", "Mutations", "ParamKind", "Age"],
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings": ["Name", "PolicyName", "ParamRef", "Age"],
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies": ["Name", "Validations", "ParamKind", "Age"],
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings": ["Name", "PolicyName", "ParamRef", "Age"],
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": ["Name", "Created At"],
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(COLUMNS))
async def test_columns(api: Api, path: str) -> None:
    """KS-195"""
    table = await api.ok("GET", path, accept=TABLE)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]] == COLUMNS[path]


async def test_rows(api: Api, ns: str) -> None:
    """KS-196"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod("a"))
    table = await api.ok("GET", path, accept=TABLE)
    assert table["metadata"]["resourceVersion"]
    row = table["rows"][0]
    assert row["cells"][:4] == ["a", "0/1", "Pending", "0"]
    assert row["cells"][5:] == ["<none>", "<none>", "<none>", "<none>"]
    single = await api.ok("GET", f"{path}/a", accept=TABLE)
    assert single["rows"][0]["cells"][0] == "a"


async def test_include_object(api: Api, ns: str) -> None:
    """KS-197"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a", k="v"))
    table = await api.ok("GET", f"{path}/a", accept=TABLE)
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    table = await api.ok("GET", f"{path}/a?includeObject=Object", accept=TABLE)
    assert table["rows"][0]["object"]["data"] == {"k": "v"}
    table = await api.ok("GET", f"{path}/a?includeObject=None", accept=TABLE)
    assert table["rows"][0].get("object") is None


async def test_partial_metadata(api: Api, ns: str) -> None:
    """KS-198"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a", k="v"))
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
    body = await api.ok("GET", f"{path}/a", accept=accept)
    assert (body["kind"], body["apiVersion"], body["metadata"]["name"]) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
        "a",
    )
    assert "data" not in body
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
    body = await api.ok("GET", path, accept=accept)
    assert body["kind"] == "PartialObjectMetadataList"


async def test_node_rows(api: Api) -> None:
    """KS-199"""
    name = unique("node")
    labels = {"node-role.kubernetes.io/worker": ""}
    await api.ok(
        "POST",
        "/api/v1/nodes",
        {"metadata": {"name": name, "labels": labels}, "spec": {"unschedulable": True}},
    )
    try:
        table = await api.ok("GET", f"/api/v1/nodes/{name}", accept=TABLE)
        cells = table["rows"][0]["cells"]
        assert (cells[0], cells[2]) == (name, "worker")
        # Whether anybody has said that it is ready depends on who else runs there.
        assert cells[1] in {f"{state},SchedulingDisabled" for state in ("Unknown", "NotReady", "Ready")}
    finally:
        await api.ok("DELETE", f"/api/v1/nodes/{name}")
