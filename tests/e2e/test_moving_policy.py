"""A whole policy by hand: `restow descheduler run --now`."""

from __future__ import annotations

import json

from e2e.moving import nothing_is_held, only
from e2e.test_descheduler import POLICY
from e2e.world import TAG, World, node_of

TAINTS, COPIES = "RemovePodsViolatingNodeTaints", "RemoveDuplicates"


async def test_a_whole_policy_is_carried_out_and_followed_by_the_command_line(world: World) -> None:
    drained = await world.node("drained")
    await world.replicaset("api", 1)
    assert node_of(await only(world, "api")) == drained
    await world.patch(f"/api/v1/nodes/{drained}", {"spec": {"taints": [{"key": "drain", "effect": "NoSchedule"}]}})
    first = await world.node("first")
    await world.replicaset("web", 4, "500m")
    assert {node_of(pod) for pod in await world.replicas("web", 4)} == {first}
    await world.node("second")
    before = await only(world, "api")
    with world.stack.configured("descheduler", POLICY.format(tag=TAG, ns=world.ns)):

        async def ready() -> bool:
            plans = json.loads(await world.restow("descheduler", "run", "--now", "--dry-run", "-o", "json"))["events"]
            return [(plan["plugin"], len(plan["moves"])) for plan in plans] == [(TAINTS, 1), (COPIES, 2)]

        await world.until("the log has seen enough for both plugins", ready)
        assert (await only(world, "api"))["metadata"]["uid"] == before["metadata"]["uid"], "a dry run moves nobody"
        said = await world.restow("descheduler", "run", "--now")
    assert "moves 3 pods, by 2 plugins of the policy" in said
    assert f"{TAINTS} (profile taints): moves 1 pod" in said
    assert "why: does not tolerate the node's taint drain:NoSchedule" in said
    assert f"{COPIES} (profile copies): wave 1 of 1: 2 moves" in said
    assert f"landed       {world.ns}/{before['metadata']['name']} on " in said
    assert "\n3 landed in " in said
    assert node_of(await only(world, "api")) != drained
    assert sorted({node_of(pod) for pod in await world.replicas("web", 4)}) == sorted({first, f"{first.removesuffix('first')}second"})
    await nothing_is_held(world)
