"""A gang in one block of nodes, by Volcano's HyperNodes as an API serves them (plugin network-topology-aware)."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.world import World, node_of

from restow.cli.embedded import configs

HYPER_NODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"


def conf() -> str:
    return f"""\
{configs.scheduler()}
actions: "enqueue, reserve, allocate, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins:
  - name: predicates
  - name: nodeorder
  - name: reservation
  - name: network-topology-aware
"""


async def block(world: World, name: str, *nodes: str) -> str:
    """A HyperNode of tier 1. Where a cluster serves no such objects the test is of no use."""
    if world.stack.kind == "cluster" and (await world.api.call("GET", f"{HYPER_NODES}?limit=1")).status == 404:
        pytest.skip("the cluster has no HyperNode")
    full = f"{world.ns}-{name}"
    members = [{"type": "Node", "selector": {"exactMatch": {"name": node}}} for node in nodes]
    body = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": full}, "spec": {"tier": 1, "members": members}}
    await world.make(HYPER_NODES, body)
    return full


async def gang(world: World, name: str, size: int, topology: dict[str, Any]) -> None:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"minMember": size, "queue": "default", "networkTopology": topology},
    }  # fmt: skip
    await world.api.ok("POST", f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{world.ns}/podgroups", group)
    for i in range(size):
        body = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"{name}-{i}", "annotations": {"scheduling.k8s.io/group-name": name}}, "spec": world.spec("3"),
        }  # fmt: skip
        await world.api.ok("POST", f"/api/v1/namespaces/{world.ns}/pods", body)


async def test_a_hard_gang_waits_until_one_block_holds_it(world: World) -> None:
    nodes = [await world.node(f"n{i}") for i in range(4)]
    await block(world, "left", *nodes[:1])
    right = await block(world, "right", nodes[1])
    with world.stack.configured("scheduler_session", conf()):
        await gang(world, "train", 2, {"mode": "hard", "highestTierAllowed": 1})
        said = await world.unschedulable("train-0", "the gang needs 2 pods together in one block of tier 1")
        assert "has capacity for 1 of them" in said
        members = [{"type": "Node", "selector": {"exactMatch": {"name": node}}} for node in nodes[1:3]]
        await world.patch(f"{HYPER_NODES}/{right}", {"spec": {"members": members}})
        assert {node_of(pod) for pod in await world.running("train-0", "train-1")} == set(nodes[1:3])
