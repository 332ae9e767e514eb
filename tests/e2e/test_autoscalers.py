"""What a cluster autoscaler sees of a defragmentation: targets are kept from it, and the emptied node is free for it, and said to be, for a time."""

from __future__ import annotations

import asyncio

import yaml
from e2e.moving import optimizing
from e2e.world import TAG, World, node_of

from restow.domain.autoscalers import CORDONED, PROTECTED, PROTECTS


def policy(world: World, **restow: object) -> str:
    said = yaml.safe_load(optimizing(objective="nodes", wholeNodes=True, restow=restow))
    return yaml.safe_dump({**said, "nodeSelector": f"{TAG}={world.ns}"})


async def marks(world: World, node: str) -> tuple[set[str], bool]:
    """Annotations of ours and for autoscalers, and whether it is cordoned."""
    there = await world.api.ok("GET", f"/api/v1/nodes/{node}")
    return {*PROTECTS, PROTECTED, CORDONED} & set(there["metadata"].get("annotations") or {}), bool(there["spec"].get("unschedulable"))


async def told(world: World, node: str, reason: str) -> list[str]:
    """What Events of a node say, once there is one with this reason."""
    query = f"fieldSelector=involvedObject.name%3D{node},reason%3D{reason}"

    async def probe() -> list[str]:
        return [one["message"] for one in (await world.api.ok("GET", f"/api/v1/namespaces/default/events?{query}"))["items"]]

    return await world.until(f"an Event {reason} about {node}", probe)


async def test_an_emptied_node_is_kept_free_and_said_to_be_until_nobody_has_taken_it_in_time(world: World) -> None:
    light = await world.node("light", cpu="2")
    await world.replicaset("web", 2, "500m")
    await world.replicas("web", 2)
    target = await world.node("target", cpu="4")
    await world.replicaset("api", 1, "2")
    assert {node_of(pod) for pod in await world.replicas("api", 1)} == {target}
    seen: set[str] = set()

    async def watch() -> None:
        while True:
            seen.update((await marks(world, target))[0])
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    with world.stack.configured("descheduler", policy(world, emptied="cordon", emptiedFor="20s", protectTargets=True)):
        await world.plannable(2)
        plan = await world.defragment()
        assert {(move["source"], move["target"]) for move in plan["moves"]} == {(light, target)}
        assert set((await world.migrated(plan)).values()) == {"landed"}
        assert {node_of(pod) for pod in await world.replicas("web", 2)} == {target}
        assert await marks(world, light) == ({CORDONED}, True)
        assert await told(world, light, "NodeEmptied") == [f"plan {plan['plan']} has emptied this node: it may be taken away, and nobody is placed here for 20s"]

        async def given_back() -> bool:
            return await marks(world, light) == (set(), False)

        await world.until("the node is anybody's again", given_back)
        assert len(await told(world, light, "NodeReturned")) == 1
    watching.cancel()
    assert seen == {*PROTECTS, PROTECTED}, "while the moves were under way"
    assert await marks(world, target) == (set(), False)
    assert "identical" in await world.restow("verify")


async def test_a_policy_that_is_taken_back_leaves_nothing_on_nodes(world: World) -> None:
    light = await world.node("light", cpu="2")
    await world.replicaset("web", 1, "500m")
    await world.replicas("web", 1)
    target = await world.node("target", cpu="4")
    await world.replicaset("api", 1, "2")
    await world.replicas("api", 1)
    with world.stack.configured("descheduler", policy(world, emptied="cordon", emptiedFor="1h")):
        await world.plannable(1)
        plan = await world.defragment()
        assert set((await world.migrated(plan)).values()) == {"landed"}
        assert await marks(world, light) == ({CORDONED}, True)

    async def nothing() -> bool:
        return await marks(world, light) == (set(), False)

    await world.until("nothing of ours is on the node", nothing)
    assert await marks(world, target) == (set(), False)
