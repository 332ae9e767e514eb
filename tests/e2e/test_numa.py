"""Alignment with NUMA zones: nodes whose kubelet insists on one zone a container, or a pod (NodeResourceTopology)."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.world import World, node_of

TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
CONTAINER = "1 cannot align container"
Obj = dict[str, Any]


async def zones(world: World, node: str, *cores: int, scope: str = "container", policy: str = "single-numa-node") -> None:
    """The node's topology, as its exporter would write it. Where a cluster serves no such objects the test is of no use."""
    if world.stack.kind == "cluster" and (await world.api.call("GET", f"{TOPOLOGIES}?limit=1")).status == 404:
        pytest.skip("the cluster has no NodeResourceTopology")
    said = [
        {"name": f"node-{i}", "type": "Node", "resources": [
            {"name": "cpu", "capacity": str(n), "allocatable": str(n), "available": str(n)},
            {"name": "memory", "capacity": "8Gi", "allocatable": "8Gi", "available": "8Gi"},
        ]} for i, n in enumerate(cores)
    ]  # fmt: skip
    body = {
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": node}, "zones": said,
        "attributes": [{"name": "topologyManagerPolicy", "value": policy}, {"name": "topologyManagerScope", "value": scope}],
    }  # fmt: skip
    await world.make(TOPOLOGIES, body)

    if policy == "single-numa-node":
        await world.until("the log has seen the topology", lambda: _probed(world, sum(cores)))


async def _probed(world: World, cores: int) -> bool:
    """Whether a pod that fits the node and no zone is told so."""
    await _guaranteed(world, "probe", str(cores))

    async def settled() -> str:
        pod = await world.get("probe")
        assert pod is not None
        waits = [c["message"] for c in pod["status"].get("conditions") or () if (c["type"], c["status"]) == ("PodScheduled", "False")]
        return node_of(pod) or "".join(waits)

    answer = await world.until("the probe is settled", settled)
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/probe", grace=0)
    return "cannot align" in answer


def exact(name: str, cpu: str, memory: str = "64Mi") -> Obj:
    """A container whose limits are its requests."""
    amounts = {"cpu": cpu, "memory": memory}
    return {"name": name, "image": "registry.k8s.io/pause:3.10", "resources": {"requests": amounts, "limits": amounts}}


async def _guaranteed(world: World, name: str, *cpus: str, **more: Any) -> None:
    await world.pod(name, containers=[exact(f"c{i}", cpu) for i, cpu in enumerate(cpus)], **more)


async def test_a_guaranteed_pod_that_fits_the_node_but_no_zone_waits_for_a_node_with_one(world: World) -> None:
    split = await world.node("split", cpu="8")
    await zones(world, split, 4, 4)
    await _guaranteed(world, "wide", "6")
    await world.waits("wide", CONTAINER)
    # Of a pod that is not Guaranteed nothing is aligned.
    await world.pod("burstable", "6")
    await world.lands("burstable", split)
    whole = await world.node("whole", cpu="8")
    await world.lands("wide", whole)


async def test_what_runs_in_a_zone_is_not_there_for_the_next_one(world: World) -> None:
    node = await world.node("a", cpu="8")
    await zones(world, node, 4, 4)
    for name in ("g0", "g1"):
        await _guaranteed(world, name, "3")
        await world.lands(name, node)
    # Two cores are free, one in each zone.
    await _guaranteed(world, "g2", "2")
    await world.waits("g2", CONTAINER)
    await _guaranteed(world, "pair", "1", "1")
    await world.lands("pair", node)
    for name in ("pair", "g0"):
        await world.remove(f"/api/v1/namespaces/{world.ns}/pods/{name}", grace=0)
    await world.lands("g2", node)


async def test_with_scope_pod_all_containers_need_one_zone(world: World) -> None:
    node = await world.node("a", cpu="8")
    await zones(world, node, 4, 4, scope="pod")
    await _guaranteed(world, "pair", "3", "3")
    await world.waits("pair", "1 cannot align pod")
    await _guaranteed(world, "small", "2", "2")
    await world.lands("small", node)


async def test_when_the_kubelet_insists_no_longer_the_pod_is_placed(world: World) -> None:
    node = await world.node("a", cpu="8")
    await zones(world, node, 4, 4)
    await _guaranteed(world, "wide", "6")
    await world.waits("wide", CONTAINER)
    why = " ".join((await world.restow("why", f"{world.ns}/wide")).split())
    assert "cannot align container" in why
    await world.patch(f"{TOPOLOGIES}/{node}", {"attributes": [{"name": "topologyManagerPolicy", "value": "best-effort"}]})
    await world.lands("wide", node)
    assert node_of(await world.get("wide") or {"spec": {}}) == node
