"""Devices by claim as kubesim's kube-scheduler gives them: every test asks both, kubesim always, the real one where KUBEBUILDER_ASSETS has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes.test_stock_scheduler import SETTLED, Stock, gated, running_stock
from kubernetes.world import NS, Obj
from kubesim.conformance.harness import MERGE

DRIVER = "gpu.example.com"
GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/{NS}/resourceclaims"
TEMPLATES = f"{GROUP}/namespaces/{NS}/resourceclaimtemplates"


@pytest.fixture(name="stock", params=["kubesim", "kubernetes"])
async def with_a_class(request: pytest.FixtureRequest) -> AsyncIterator[Stock]:
    async for one in running_stock(request):
        api = one.world.api
        await api.call("POST", f"{GROUP}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}})
        try:
            yield one
        finally:
            await one.world.wipe_pods()
            for path in (f"{GROUP}/resourceslices", TEMPLATES, CLAIMS):
                await api.call("DELETE", path)


def part(name: str, first: int = 0, many: int = 0, kind: str = "gpu") -> Obj:
    """A device, or a part of gpu-0 that takes these of its four slices."""
    counters = {f"slice-{i}": {"value": "1"} for i in range(first, first + many)}
    return {"name": name, "attributes": {"kind": {"string": kind}}} | ({"consumesCounters": [{"counterSet": "gpu-0", "counters": counters}]} if many else {})


async def publish(stock: Stock, node: str, *devices: Obj, number: int = 0, of: int = 1, **more: Any) -> None:
    spec = {"driver": DRIVER, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": of}, **({"devices": list(devices)} if devices else {}), **more}
    await stock.world.api.ok("POST", f"{GROUP}/resourceslices", {"metadata": {"name": f"{node}-{number}"}, "spec": spec})


def asks(count: int = 1, kind: str = "") -> Obj:
    selectors = [{"cel": {"expression": f"device.attributes['{DRIVER}'].kind == '{kind}'"}}] if kind else []
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count, **({"selectors": selectors} if selectors else {})}}]}}


async def template(stock: Stock, name: str = "one", count: int = 1, kind: str = "") -> None:
    await stock.world.api.ok("POST", TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": asks(count, kind)}})


async def pod(stock: Stock, name: str, of: str = "one", **more: Any) -> Obj:
    return await stock.pod(name, gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": of}], **more)


async def devices_of(stock: Stock, name: str) -> list[str]:
    (said,) = stock.only(name)["status"]["resourceClaimStatuses"]
    claim = await stock.world.api.ok("GET", f"{CLAIMS}/{said['resourceClaimName']}")
    assert [one["uid"] for one in claim["status"]["reservedFor"]] == [stock.only(name)["metadata"]["uid"]]
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    return sorted(one["device"] for one in claim["status"]["allocation"]["devices"]["results"])


async def test_a_claim_is_made_from_a_template_and_gets_devices(stock: Stock) -> None:
    """KS-422"""
    await stock.world.node("n0", gpus=0)
    await stock.world.node("n1", gpus=0)
    await publish(stock, "n1", part("a"), part("b"), part("c", kind="nic"))
    await template(stock, count=2, kind="gpu")
    await pod(stock, "p")
    await stock.bound("p", "n1")
    assert await devices_of(stock, "p") == ["a", "b"]
    await pod(stock, "q")
    waits = await stock.waits("q")
    (said,) = [one["message"] for one in waits["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert "cannot allocate all claims" in said


async def test_a_pod_waits_for_the_template_and_for_devices(stock: Stock) -> None:
    """KS-423"""
    await stock.world.node("n0", gpus=0)
    await pod(stock, "p")
    await asyncio.sleep(SETTLED)
    assert not stock.only("p")["spec"].get("nodeName")
    await template(stock)
    await stock.waits("p")
    await publish(stock, "n0", part("a"))
    await stock.bound("p", "n0")


async def test_devices_are_free_again_when_the_pod_goes_and_who_waits_gets_them(stock: Stock) -> None:
    """KS-424"""
    await stock.world.node("n0", gpus=0)
    await publish(stock, "n0", part("a"))
    await template(stock)
    first = await pod(stock, "p")
    await stock.bound("p", "n0")
    await pod(stock, "q")
    await stock.waits("q")
    await stock.delete(first)
    await stock.bound("q", "n0")
    assert await devices_of(stock, "q") == ["a"]


async def test_parts_share_counters(stock: Stock) -> None:
    """KS-425"""
    await stock.world.node("n0", gpus=0)
    listed = [part("whole", 0, 4, "whole"), *(part(f"half-{i}", 2 * i, 2, "half") for i in range(2)), *(part(f"quarter-{i}", i, 1, "quarter") for i in range(4))]
    counters = [{"name": "gpu-0", "counters": {f"slice-{i}": {"value": "1"} for i in range(4)}}]
    await publish(stock, "n0", *listed, of=2)
    await publish(stock, "n0", number=1, of=2, sharedCounters=counters)
    for name in ("whole", "half", "quarter"):
        await template(stock, name, kind=name)
    await pod(stock, "quarter", "quarter")
    await stock.bound("quarter", "n0")
    await pod(stock, "half", "half")
    await stock.bound("half", "n0")
    assert (await devices_of(stock, "quarter"))[0][-1] in {"half-0": "23", "half-1": "01"}[(await devices_of(stock, "half"))[0]]
    for name in ("whole", "half-2"):
        await pod(stock, name, name.partition("-")[0])
        await stock.waits(name)


async def test_a_nomination_keeps_no_device(stock: Stock) -> None:
    """KS-426"""
    await stock.world.node("n0", gpus=0)
    await publish(stock, "n0", part("a"))
    await template(stock)
    keeper = await pod(stock, "keeper", **gated())
    await stock.nominate(keeper, "n0")
    await asyncio.sleep(SETTLED)
    await pod(stock, "other")
    await stock.bound("other", "n0")


async def test_a_named_claim_is_shared_and_its_pods_are_where_its_devices_are(stock: Stock) -> None:
    """KS-427"""
    for node in ("n0", "n1"):
        await stock.world.node(node, gpus=0)
        await publish(stock, node, part("a"))
    await stock.world.api.ok("POST", CLAIMS, {"metadata": {"name": "shared"}, "spec": asks()})
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]}
    await stock.pod("p", gpus=0, **spec)
    await stock.placed("p")
    (node,) = stock.world.where("p")
    await stock.world.api.ok("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}, media=MERGE)
    await asyncio.sleep(SETTLED)
    await stock.pod("q", gpus=0, **spec)
    await stock.waits("q")
    await stock.world.api.ok("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}}, media=MERGE)
    await stock.bound("q", node)
    claim = await stock.world.api.ok("GET", f"{CLAIMS}/shared")
    assert len(claim["status"]["reservedFor"]) == 2


async def test_a_tainted_device_is_for_those_who_tolerate_that(stock: Stock) -> None:
    """KS-428"""
    await stock.world.node("n0", gpus=0)
    tainted = part("a") | {"taints": [{"key": "ill", "value": "yes", "effect": "NoSchedule"}]}
    await publish(stock, "n0", tainted, part("b"), part("c"))
    for name, tolerations in (("plain", []), ("other", [{"key": "ill", "value": "no"}]), ("tolerant", [{"key": "ill", "operator": "Exists", "effect": "NoSchedule"}])):
        asked = asks()
        asked["devices"]["requests"][0]["exactly"]["tolerations"] = tolerations
        await stock.world.api.ok("POST", TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": asked}})
    for name, given in (("plain", "b"), ("tolerant", "a"), ("other", "c")):
        await pod(stock, name, name)
        await stock.bound(name, "n0")
        assert await devices_of(stock, name) == [given]
