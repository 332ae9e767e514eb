"""ResourceSlices, ResourceClaims, their templates and DeviceClasses: what a scheduler and a watcher read and write of them."""

from __future__ import annotations

from typing import Any

from kubesim.conformance.harness import MERGE, STRATEGIC, TABLE, Api, unique

GROUP = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.example.com"


def a_slice(name: str, node: str) -> dict[str, Any]:
    device = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}, "capacity": {"memory": {"value": "40Gi"}}}
    spec = {"driver": DRIVER, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": [device]}
    return {"metadata": {"name": name}, "spec": spec}


def a_claim(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}}


async def test_slices_and_classes(api: Api) -> None:
    """KS-176"""
    name, node = unique("slice"), unique("node")
    version = (await api.ok("GET", f"{GROUP}/resourceslices"))["metadata"]["resourceVersion"]
    async with api.watch(f"{GROUP}/resourceslices", resourceVersion=version) as watch:
        made = await api.ok("POST", f"{GROUP}/resourceslices", a_slice(name, node))
        told = await watch.until("ADDED", name)
    assert told["object"]["spec"]["devices"][0]["capacity"] == {"memory": {"value": "40Gi"}}
    assert made["metadata"]["generation"] == 1
    row = (await api.ok("GET", f"{GROUP}/resourceslices/{name}", accept=TABLE))["rows"][0]["cells"]
    assert row[:4] == [name, node, DRIVER, node]
    await api.ok("DELETE", f"{GROUP}/resourceslices/{name}")
    of = unique("class")
    made = await api.ok("POST", f"{GROUP}/deviceclasses", {"metadata": {"name": of}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}})
    assert made["metadata"]["generation"] == 1
    await api.ok("DELETE", f"{GROUP}/deviceclasses/{of}")


async def test_claims_and_templates(api: Api, ns: str) -> None:
    """KS-176"""
    path = f"{GROUP}/namespaces/{ns}/resourceclaims"
    claim = await api.ok("POST", path, a_claim("c"))
    assert claim["status"] == {}
    assert claim["spec"]["devices"]["requests"][0]["exactly"] == {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert (await api.ok("GET", f"{path}/c", accept=TABLE))["rows"][0]["cells"][:2] == ["c", "pending"]
    other = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}}]}}}
    body = await api.fails(422, "Invalid", "PATCH", f"{path}/c", other, media=MERGE)
    assert body["details"]["causes"][0]["field"] == "spec"
    await api.ok("PATCH", f"{path}/c", {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}, media=MERGE)
    results = [{"request": "gpu", "driver": DRIVER, "pool": "p", "device": "gpu-0"}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    got = await api.ok("PATCH", f"{path}/c/status", {"status": status}, media=MERGE)
    assert got["status"] == status
    assert (await api.ok("GET", f"{path}/c", accept=TABLE))["rows"][0]["cells"][:2] == ["c", "allocated,reserved"]
    await api.ok("PATCH", f"{path}/c/status", {"status": {"allocation": None, "reservedFor": None}}, media=MERGE)
    await api.ok("PATCH", f"{path}/c", {"metadata": {"finalizers": None}}, media=MERGE)
    await api.ok("DELETE", f"{path}/c")
    path = f"{GROUP}/namespaces/{ns}/resourceclaimtemplates"
    made = await api.ok("POST", path, {"metadata": {"name": "t"}, "spec": {"spec": a_claim("c")["spec"]}})
    assert made["spec"]["spec"] == claim["spec"]
    await api.fails(422, "Invalid", "PATCH", f"{path}/t", {"spec": other}, media=MERGE)
    await api.ok("DELETE", f"{path}/t")


async def test_for_whom_a_claim_is_reserved_is_merged_by_uid_and_what_a_pod_calls_its_claims_by_name(api: Api, ns: str) -> None:
    """KS-176. What a hand-over of a claim writes: one user more, another one gone; another claim under the same name."""
    path = f"{GROUP}/namespaces/{ns}/resourceclaims"
    await api.ok("POST", path, a_claim("c"))
    await api.ok("PATCH", f"{path}/c", {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}, media=MERGE)
    results = [{"request": "gpu", "driver": DRIVER, "pool": "p", "device": "gpu-0"}]
    users = [{"resource": "pods", "name": name, "uid": f"u-{name}"} for name in "ab"]
    await api.ok("PATCH", f"{path}/c/status", {"status": {"allocation": {"devices": {"results": results}}, "reservedFor": users[:1]}}, media=MERGE)
    got = await api.ok("PATCH", f"{path}/c/status", {"status": {"reservedFor": [users[1], {"$patch": "delete", "uid": "u-a"}]}}, media=STRATEGIC)
    assert got["status"]["reservedFor"] == users[1:]
    await api.ok("PATCH", f"{path}/c/status", {"status": {"allocation": None, "reservedFor": None}}, media=MERGE)
    await api.ok("PATCH", f"{path}/c", {"metadata": {"finalizers": None}}, media=MERGE)
    pods = f"/api/v1/namespaces/{ns}/pods"
    spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}], "resourceClaims": [{"name": "one", "resourceClaimTemplateName": "none"}, {"name": "two", "resourceClaimTemplateName": "none"}]}
    await api.ok("POST", pods, {"metadata": {"name": "p"}, "spec": spec})
    for said in ([{"name": "one", "resourceClaimName": "x"}, {"name": "two", "resourceClaimName": "y"}], [{"name": "one", "resourceClaimName": "z"}]):
        got = await api.ok("PATCH", f"{pods}/p/status", {"status": {"resourceClaimStatuses": said}}, media=STRATEGIC)
    assert {one["name"]: one["resourceClaimName"] for one in got["status"]["resourceClaimStatuses"]} == {"one": "z", "two": "y"}
