"""GPUs that are cut in parts, on kubesim with ResourceSlices: a plan frees whole ones, and every move takes its device along, from claim to claim of nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from e2e.stack import Running, stack
from e2e.world import World, node_of
from kubesim.conformance.harness import MERGE

from restow.cli.demo.beside import objects

DRIVER = "gpu.example.com"
GROUP = "/apis/resource.k8s.io/v1"
PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "Namespace": "/api/v1/namespaces",
    "MutatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
}  # fmt: skip


@pytest.fixture(scope="module", name="stack")
def one_of_its_own() -> Iterator[Running]:
    """What is added for moves beside another scheduler is nobody else's business."""
    with stack("kubesim") as running:
        yield running
        judged = running.judged()
        assert not judged.broken, "\n".join(judged.broken[:40])


def policy(world: World) -> str:
    said: dict[str, Any] = {
        "apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy",
        "profiles": [{"name": "whole", "pluginConfig": [{"name": "Defragmentation", "args": {"planner": "claims"}}], "plugins": {"balance": {"enabled": ["Defragmentation"]}}}],
        "restow": {"beside": ["default-scheduler"], "claimNamespaces": [world.ns], "maxUnavailable": 0, "evictionsPerMinute": 0},
    }  # fmt: skip
    return yaml.safe_dump(said)


async def cut(world: World, node: str) -> None:
    """A GPU that can be had whole, in halves, or in quarters."""

    def part(name: str, first: int, many: int) -> dict[str, Any]:
        counters = {f"slice-{i}": {"value": "1"} for i in range(first, first + many)}
        return {"name": name, "attributes": {"size": {"int": many}}, "consumesCounters": [{"counterSet": "gpu-0", "counters": counters}]}

    listed = [part("whole", 0, 4), *(part(f"half-{i}", 2 * i, 2) for i in range(2)), *(part(f"quarter-{i}", i, 1) for i in range(4))]
    pool = {"driver": DRIVER, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 2}}
    counters = [{"name": "gpu-0", "counters": {f"slice-{i}": {"value": "1"} for i in range(4)}}]
    for number, more in enumerate(({"devices": listed}, {"sharedCounters": counters})):
        await world.api.ok("POST", f"{GROUP}/resourceslices", {"metadata": {"name": f"{node}-{number}"}, "spec": pool | more})


async def whole(world: World) -> int:
    """GPUs of which nobody has any part, as `restow state` counts them."""
    return int((await world.restow_json("state"))["claimDevices"][DRIVER]["freeWholes"])


async def test_a_plan_frees_whole_gpus_of_their_slices(world: World) -> None:
    for path in objects():
        for one in yaml.safe_load_all(path.read_text()):
            if one["kind"] in PATHS:
                await world.api.ok("POST", PATHS[one["kind"]], one)
    await world.api.ok("POST", f"{GROUP}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}})
    for kind, size in (("half", 2), ("quarter", 1)):
        asked = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].size == {size}"}}]}}
        await world.api.ok("POST", f"{GROUP}/namespaces/{world.ns}/resourceclaimtemplates", {"metadata": {"name": kind}, "spec": {"spec": {"devices": {"requests": [asked]}}}})
    nodes = []
    for on, kind in (("a", "half"), ("b", "quarter"), ("c", "quarter")):
        nodes.append(await world.node(on))
        await cut(world, nodes[-1])
        spec = world.spec(schedulerName="default-scheduler", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": kind}])
        body = {"replicas": 1, "selector": {"matchLabels": {"app": on}}, "template": {"metadata": {"labels": {"app": on}}, "spec": spec}}
        await world.api.ok("POST", f"/apis/apps/v1/namespaces/{world.ns}/deployments", {"metadata": {"name": on}, "spec": body})
        await world.replicas(on, 1)
        await world.api.ok("PATCH", f"/api/v1/nodes/{nodes[-1]}", {"spec": {"unschedulable": True}}, media=MERGE)
    for node in nodes:
        await world.api.ok("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}}, media=MERGE)
    assert await whole(world) == 0
    with world.stack.configured("descheduler", policy(world)):
        await world.plannable(2)
        plan = await world.defragment()
        assert plan["reason"].startswith(f"2 more whole devices by claim of {DRIVER} become free")
        assert {move["target"] for move in plan["moves"]} == {nodes[1]}
        assert set((await world.migrated(plan)).values()) == {"landed"}
    assert {node_of(pod) for on in "abc" for pod in await world.replicas(on, 1)} == {nodes[1]}

    async def freed() -> bool:
        return await whole(world) == 2

    await world.until("two GPUs are whole again", freed)
    claims = (await world.api.ok("GET", f"{GROUP}/namespaces/{world.ns}/resourceclaims"))["items"]
    assert sorted(len(claim["status"]["reservedFor"]) for claim in claims) == [1, 1, 1]
    assert "identical" in await world.restow("verify")
