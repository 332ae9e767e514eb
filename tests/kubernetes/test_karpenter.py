"""Beside Karpenter, with the nodes of its kwok provider: placeholders add no node, marks keep a node, and an emptied node that is cordoned goes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.lab import Lab
from kubernetes.world import MID, NS, PRIORITIES, World, pod_spec, refused
from kubesim.conformance.harness import MERGE

from restow.contracts.times import millis
from restow.contracts.values import PodShape
from restow.domain.autoscalers import PROTECTS
from restow.kube.beside import Beside
from restow.kube.gates import Gates
from restow.kube.node_marks import NodeMarks
from restow.kube.placeholder import Hold, placeholder
from restow.kube.reservation_objects import Created

LOG, UNTIL = "log-1", millis("2199-01-01T00:00:00Z")
POOL = "/apis/karpenter.sh/v1/nodepools"
TYPE = {
    "name": "c-4x-amd64-linux", "architecture": "amd64", "operatingSystems": ["linux"],
    "offerings": [{"Price": 1.0, "Available": True, "Requirements": [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (("karpenter.sh/capacity-type", "on-demand"), ("topology.kubernetes.io/zone", "z"))
    ]}],
    "resources": {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "20Gi", "pods": "50"},
}  # fmt: skip
QUIET = 12.0
"""Seconds in which Karpenter would have acted: it batches for one, and looks at what is empty after `consolidateAfter`, 2 s."""
ACTS = 60.0


def pool() -> dict[str, Any]:
    needs = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
    template = {"spec": {"requirements": needs, "nodeClassRef": {"name": "default", "kind": "KWOKNodeClass", "group": "karpenter.kwok.sh"}}}
    spec = {"template": template, "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "2s", "budgets": [{"nodes": "100%"}]}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": spec}


class Karpenter:
    """`nodes`: by name, those that it has made; they are ready as soon as they are seen."""

    def __init__(self, world: World):
        self._world = world

    async def nodes(self) -> dict[str, dict[str, Any]]:
        listed = await self._world.api.ok("GET", "/api/v1/nodes")
        return {one["metadata"]["name"]: one for one in listed["items"] if "karpenter.sh/nodepool" in one["metadata"].get("labels", {})}

    async def keep_ready(self) -> None:
        """What a kubelet says, and what the node lifecycle controller, which does not run here, makes of it."""
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        while True:
            for name, node in (await self.nodes()).items():
                taints = [one for one in node["spec"].get("taints", ()) if one["key"] != "node.kubernetes.io/not-ready"]
                if not any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", ())):
                    await self._world.api.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}}, media=MERGE)
                    await self._world.api.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taints or None}}, media=MERGE)
            await asyncio.sleep(0.2)

    async def until(self, count: int, seconds: float = ACTS) -> list[str]:
        for _ in range(int(seconds / 0.2)):
            found = [name for name, node in (await self.nodes()).items() if not node["metadata"].get("deletionTimestamp")]
            if len(found) == count:
                return sorted(found)
            await asyncio.sleep(0.2)
        raise AssertionError(f"not within {seconds:g} s: {count} nodes; there are {found}; {self._world.lab.log('karpenter')[-3000:]}")


@pytest.fixture
async def karpenter(lab: Lab, world: World, tmp_path: Path) -> AsyncIterator[Karpenter]:
    if not os.access(lab.assets / "karpenter", os.X_OK):
        pytest.skip(f"{lab.assets} lacks karpenter (KARPENTER=1 tests/kubernetes/build.sh {lab.assets})")
    lab.kubectl("apply", "-f", str(lab.assets / "karpenter-crds"))
    lab.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/nodepools.karpenter.sh", "crd/nodeclaims.karpenter.sh")
    (tmp_path / "types.json").write_text(json.dumps([TYPE]))
    await world.api.call("POST", "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}})
    await world.api.ok("POST", POOL, pool())
    lab.start_karpenter(tmp_path / "types.json")
    one = Karpenter(world)
    ready = asyncio.create_task(one.keep_ready())
    try:
        yield one
        await world.wipe_pods()
        await world.api.ok("DELETE", f"{POOL}/default")
        for _ in range(int(ACTS / 0.2)):
            if not (await world.api.ok("GET", "/apis/karpenter.sh/v1/nodeclaims"))["items"]:
                break
            await asyncio.sleep(0.2)
    finally:
        ready.cancel()
        await asyncio.gather(ready, return_exceptions=True)
        lab.stop("karpenter")


def plain(cpu: str = "3") -> dict[str, Any]:
    spec = pod_spec(0)
    spec["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    return spec


async def test_a_placeholder_that_waits_for_its_node_adds_no_node_and_a_pod_that_waits_does(world: World, karpenter: Karpenter, session: Beside) -> None:
    await world.pod("first", plain())
    (node,) = await karpenter.until(1)
    await world.running("first")
    manifest = placeholder(PodShape({"cpu": 3_000, "pods": 1}, priority=PRIORITIES[MID], scheduler="default-scheduler"), Hold(LOG, "s-1", node, NS))
    for _ in range(20):
        if isinstance(await session.occupy(manifest, PRIORITIES[MID], LOG), Created):
            break
        await asyncio.sleep(0.2)
    await world.until(lambda: [p for p in world.placeholders() if refused(p)], "its scheduler finds no capacity there")
    await asyncio.sleep(QUIET)
    assert list(await karpenter.nodes()) == [node]
    await world.pod("second", plain())
    assert len(await karpenter.until(2)) == 2, "it would have acted"


async def test_a_gated_pod_and_a_nominated_one_add_no_node(world: World, karpenter: Karpenter, descheduler: Gates) -> None:
    await world.pod("first", plain())
    (node,) = await karpenter.until(1)
    await world.pod("gated", plain() | {"schedulingGates": [{"name": "restow.dev/landing"}]})
    await world.pod("nominated", plain() | {"schedulerName": "restow"})
    waits = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "waits"}]
    status = {"status": {"conditions": waits, "nominatedNodeName": node}}
    await world.api.ok("PATCH", f"/api/v1/namespaces/{NS}/pods/nominated/status", status, media=MERGE)
    await asyncio.sleep(QUIET)
    assert list(await karpenter.nodes()) == [node]
    status["status"]["nominatedNodeName"] = None
    await world.api.ok("PATCH", f"/api/v1/namespaces/{NS}/pods/nominated/status", status, media=MERGE)
    assert len(await karpenter.until(2)) == 2, "a pod of ours that waits for no capacity of its own"


async def test_a_protected_node_stays_and_one_that_was_emptied_and_cordoned_goes(world: World, karpenter: Karpenter, marks: NodeMarks) -> None:
    for name in ("first", "second"):
        await world.pod(name, plain())
    both = await karpenter.until(2)
    kept, emptied = [one["spec"]["nodeName"] for name in ("first", "second") for one in await world.running(name)]
    there = await karpenter.nodes()
    await marks.mark(kept, there[kept]["metadata"]["uid"], LOG, protect=True, plan="", until=UNTIL)
    await marks.mark(emptied, there[emptied]["metadata"]["uid"], LOG, protect=False, plan="p", until=UNTIL)
    said = (await karpenter.nodes())[kept]["metadata"]["annotations"]
    assert all(said[key] == "true" for key in PROTECTS)
    for name in ("first", "second"):
        await world.api.ok("DELETE", f"/api/v1/namespaces/{NS}/pods/{name}", {"gracePeriodSeconds": 0})
    assert await karpenter.until(1) == [kept], both
    await asyncio.sleep(QUIET)
    assert list(await karpenter.nodes()) == [kept]
    await marks.mark(kept, there[kept]["metadata"]["uid"], LOG, protect=False, plan="", until=UNTIL)
    assert await karpenter.until(0) == []
