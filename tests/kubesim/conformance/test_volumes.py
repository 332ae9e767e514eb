"""Volumes, claims, storage classes and CSI nodes: what a scheduler reads and writes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubesim.conformance.harness import MERGE, TABLE, Api, unique

VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"


def a_volume(name: str) -> dict[str, Any]:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/kubesim"}}
    return {"metadata": {"name": name}, "spec": {**spec, "storageClassName": name}}


def a_claim(name: str, storage_class: str) -> dict[str, Any]:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": {**asked, "storageClassName": storage_class}}


@pytest.fixture
async def volume(api: Api) -> AsyncIterator[dict[str, Any]]:
    """A volume of a class of its own, as its creation was answered."""
    name = unique("pv")
    yield await api.ok("POST", VOLUMES, a_volume(name))
    await api.call("DELETE", f"{VOLUMES}/{name}")
    await api.call("PATCH", f"{VOLUMES}/{name}", {"metadata": {"finalizers": None}}, media=MERGE)


async def test_defaults(api: Api, ns: str, volume: dict[str, Any]) -> None:
    """KS-173"""
    assert volume["spec"]["volumeMode"] == "Filesystem"
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["status"]["phase"] == "Pending"
    path = f"/api/v1/namespaces/{ns}/persistentvolumeclaims"
    claim = await api.ok("POST", path, a_claim("c", unique("none")))
    assert (claim["spec"]["volumeMode"], claim["status"]["phase"]) == ("Filesystem", "Pending")
    name = unique("sc")
    made = await api.ok("POST", CLASSES, {"metadata": {"name": name}, "provisioner": "example.com/none"})
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")
    await api.ok("DELETE", f"{CLASSES}/{name}")


async def test_claims_and_volumes_are_protected(api: Api, ns: str, volume: dict[str, Any]) -> None:
    """KS-177"""
    claim = await api.ok("POST", f"/api/v1/namespaces/{ns}/persistentvolumeclaims", a_claim("c", unique("none")))
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert volume["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]


async def test_a_claim_gets_its_volume_once(api: Api, ns: str) -> None:
    """KS-174"""
    path = f"/api/v1/namespaces/{ns}/persistentvolumeclaims"
    await api.ok("POST", path, a_claim("c", unique("none")))
    chosen = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-1"}}}
    claim = await api.ok("PATCH", f"{path}/c", chosen, media=MERGE)
    assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "node-1"
    claim = await api.ok("PATCH", f"{path}/c", {"spec": {"volumeName": unique("pv")}}, media=MERGE)
    assert claim["spec"]["volumeName"]
    for change in ({"volumeName": "another"}, {"accessModes": ["ReadWriteMany"]}, {"storageClassName": "another"}):
        body = await api.fails(422, "Invalid", "PATCH", f"{path}/c", {"spec": change}, media=MERGE)
        assert body["details"]["causes"][0]["field"] == "spec"
        assert "spec is immutable after creation except resources.requests" in body["message"]
    del claim["spec"]["volumeMode"]
    del claim["metadata"]["resourceVersion"]
    await api.ok("PUT", f"{path}/c", claim)


async def test_a_volume_gets_its_claim(api: Api, ns: str, volume: dict[str, Any]) -> None:
    """KS-175"""
    name = volume["metadata"]["name"]
    async with api.watch(VOLUMES, resourceVersion=volume["metadata"]["resourceVersion"]) as watch:
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": ns, "name": "c"}
        await api.ok("PATCH", f"{VOLUMES}/{name}", {"spec": {"claimRef": reference}}, media=MERGE)
        while True:
            told = (await watch.until("MODIFIED", name))["object"]["spec"]
            if "claimRef" in told:
                break
    assert (told["claimRef"]["namespace"], told["claimRef"]["name"]) == (ns, "c")
    assert told["capacity"] == {"storage": "1Gi"}


async def test_storage_classes_and_csi_nodes(api: Api) -> None:
    """KS-176"""
    name = unique("sc")
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    late = {"provisioner": "example.com/none", "volumeBindingMode": "WaitForFirstConsumer"}
    await api.ok("POST", CLASSES, {"metadata": {"name": name, "annotations": default}, **late})
    row = (await api.ok("GET", f"{CLASSES}/{name}", accept=TABLE))["rows"][0]["cells"]
    assert row[:5] == [f"{name} (default)", "example.com/none", "Delete", "WaitForFirstConsumer", False]
    for change in ({"provisioner": "example.com/other"}, {"volumeBindingMode": "Immediate"}):
        await api.fails(422, "Invalid", "PATCH", f"{CLASSES}/{name}", change, media=MERGE)
    await api.ok("DELETE", f"{CLASSES}/{name}")

    version = (await api.ok("GET", CSI_NODES))["metadata"]["resourceVersion"]
    node = unique("node")
    drivers = [{"name": "csi.example.com", "nodeID": node, "topologyKeys": None, "allocatable": {"count": 3}}]
    async with api.watch(CSI_NODES, resourceVersion=version) as watch:
        await api.ok("POST", CSI_NODES, {"metadata": {"name": node}, "spec": {"drivers": drivers}})
        told = await watch.until("ADDED", node)
    assert told["object"]["spec"]["drivers"][0]["allocatable"] == {"count": 3}
    row = (await api.ok("GET", f"{CSI_NODES}/{node}", accept=TABLE))["rows"][0]["cells"]
    assert row[:2] == [node, 1]
    await api.ok("DELETE", f"{CSI_NODES}/{node}")
