"""Capacity for jobs that wait although what they ask for is there in pieces: found, held first, made by moving others, and given back
where nobody needs it any more. Nobody asks for any of it: the descheduler's trigger does."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.moving import Obj, added, moved, only, optimizing, says, since, stays, workload
from e2e.world import VOLCANO, World, node_of, uid_of

GPU = "nvidia.com/gpu"
DEMAND = optimizing(GPU, demand=True)
GROUPS = "/apis/scheduling.volcano.sh/v1beta1"
GANG = {"scheduling.k8s.io/group-name": "gang"}


async def pieces(world: World, *gpus: int) -> list[Obj]:
    """A node of 8 GPUs for each of these pods, which a ReplicaSet of its own makes again: the pods in this order."""
    found = []
    for i, count in enumerate(gpus):
        node = await world.node(f"n{i}", gpus=8)
        (pod,) = await workload(world, f"w{i}", world.spec(gpu=count))
        assert node_of(pod) == node, "the new node is the emptier one"
        found.append(pod)
    return found


async def gang(world: World, members: int, need: int, gpu: int = 6) -> list[str]:
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "gang"}, "spec": {"minMember": need}}
    await world.make(f"{GROUPS}/namespaces/{world.ns}/podgroups", body)
    names = [f"gang-{i}" for i in range(members)]
    for name in names:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": GANG}, "spec": world.spec(gpu=gpu)}
        await world.api.ok("POST", f"/api/v1/namespaces/{world.ns}/pods", pod)
    return names


def once(world: World) -> None:
    """Each of these waits until a job has waited long enough: not repeated where only the controllers differ."""
    if world.stack.kind == "bare":
        pytest.skip("proven on kubesim with its own controllers")


def reservations(world: World) -> str:
    return f"{VOLCANO}/namespaces/{world.ns}/reservations"


async def slots(world: World) -> list[Obj]:
    return [one for one in await world.reservations() if one["metadata"]["name"].startswith("restow-slot-")]


async def plans(world: World) -> list[Any]:
    """Those that the trigger made for this test's jobs."""
    found = (await world.restow_json("get", "plans"))["items"]
    return [plan for plan in found if plan["trigger"] == "demand" and world.ns in plan["reason"]]


async def test_a_job_that_fits_in_pieces_gets_a_node_without_asking(world: World) -> None:
    three, five = await pieces(world, 3, 5)
    version, pods_since = await since(world, reservations(world)), await since(world, f"/api/v1/namespaces/{world.ns}/pods")
    job = await world.pod("job", gpu=6)
    await world.waits("job", "2 Insufficient gpu")
    with world.stack.configured("descheduler", DEMAND):
        await world.lands("job", node_of(three))
    await moved(world, "w0", three, node_of(five))
    await stays(world, five)
    # The capacity is the job's alone, and it was there before anybody had to leave.
    capacity, hold = await added(world, reservations(world), version, 2)
    assert capacity["metadata"]["name"].startswith("restow-slot-")
    assert hold["metadata"]["labels"]["restow.dev/migration"]
    (owner,) = capacity["spec"]["owners"]
    assert (owner["object"]["uid"], capacity["spec"]["allocateOnce"], capacity["spec"]["preAllocation"]) == (uid_of(job), True, True)
    assert capacity["spec"]["template"]["spec"]["nodeName"] == node_of(three)
    async with world.api.watch(f"/api/v1/namespaces/{world.ns}/pods", resourceVersion=pods_since) as watch:
        while True:
            event = await watch.next(30)
            if uid_of(event["object"]) == uid_of(three) and event["object"]["metadata"].get("deletionTimestamp"):
                break
    assert int(capacity["metadata"]["resourceVersion"]) < int(event["object"]["metadata"]["resourceVersion"])
    await says(world, f"pod/{world.ns}/{three['metadata']['name']}", f"to free capacity for {world.ns}/job")
    assert "identical" in await world.restow("verify")


async def test_a_gang_starts_as_a_whole_when_capacity_was_made_for_all_of_it(world: World) -> None:
    threes = await pieces(world, 5, 5, 3, 3)
    names = await gang(world, 2, 2)
    await world.unschedulable(names[0], "the gang needs 2 pods together")
    with world.stack.configured("descheduler", DEMAND):
        members = await world.running(*names)
    assert {node_of(pod) for pod in members} == {node_of(pod) for pod in threes[2:]}
    assert {node_of(await only(world, f"w{i}")) for i in (2, 3)} == {node_of(pod) for pod in threes[:2]}
    await stays(world, *threes[:2])


async def test_a_gang_of_which_not_all_fit_gets_capacity_for_as_many_as_it_needs(world: World) -> None:
    once(world)
    first = await pieces(world, 5, 5, 3, 3)
    names = await gang(world, 3, 2)
    await world.unschedulable(names[0], "the gang needs 2 pods together")
    with world.stack.configured("descheduler", DEMAND):

        async def two_run() -> bool:
            found = [await world.get(name) for name in names]
            return sum(bool(pod and node_of(pod)) for pod in found) == 2

        await world.until("two members have a node", two_run)
        (plan,) = [plan for plan in await plans(world) if plan["moves"]]
        assert f"capacity for podgroup {world.ns}/gang, 2 of its 3 pods that wait; not for all of them" in plan["reason"]
    await stays(world, *first[:2])


async def test_nobody_is_evicted_where_nobody_has_anywhere_to_go_and_why_says_so(world: World) -> None:
    once(world)
    before = await pieces(world, 5, 5, 5)
    await world.pod("job", gpu=6)
    await world.waits("job", "3 Insufficient gpu")
    with world.stack.configured("descheduler", DEMAND):
        said = await says(world, f"pod/{world.ns}/job", "capacity was looked for by moving others, once", "have nowhere to go, or must not be moved")
        assert f"no node can be freed for {world.ns}/job" in said
    await stays(world, *before)
    assert await world.reservations() == []
    assert [plan["moves"] for plan in await plans(world)] == [0]


async def test_a_job_that_is_deleted_meanwhile_gives_its_capacity_back(world: World) -> None:
    three, five = await pieces(world, 3, 5)
    for app in ("w0", "w1"):  # of one alone, the plan moves the other: a budget that allows nothing makes a pod dearer to move
        await world.budget(f"keep-{app}", {"app": app}, minAvailable=1)
    await world.pod("job", gpu=6)
    await world.waits("job", "2 Insufficient gpu")
    with world.stack.configured("descheduler", optimizing(GPU, demand=True, restow={"budgetPatience": 120_000})):
        await world.until("the room is asked for", lambda: slots(world))
        (told,) = [await world.events(three["metadata"]["name"], "MigrationWaits")]
        assert "a disruption budget does not allow it yet" in told[0]["message"]
        assert await slots(world), "it waits for what the budget keeps"
        await world.remove(f"/api/v1/namespaces/{world.ns}/pods/job", grace=0)

        async def nothing() -> bool:
            return not await world.reservations()

        await world.until("room and hold are given back", nothing)
        (plan,) = await plans(world)
        assert (plan["phase"], "does not wait any more" in plan["cancelled"]) == ("cancelled", True), plan
    await stays(world, three, five)
    # And the capacity is anybody's.
    await world.pod("other", gpu=5)
    await world.lands("other", node_of(three))
