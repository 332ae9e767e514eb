"""The session's configuration at work: `volcano-scheduler.conf` is read again while pods wait, in whatever state it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from e2e.world import World, node_of

from restow.cli.embedded import configs

SESSION = "scheduler_session"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BROKEN = {
    "actions: enqueue, alocate\n": "alocate",
    "actions: [enqueue\n": "not YAML",
    "schedulerNames: [restow]\ntiers:\n- plugins: [{name: binpak}]\n": "binpak",
    "schedulerNames: [restow]\nschedulerNames: [volcano]\n": "twice",
}


@asynccontextmanager
async def configured(world: World, text: str) -> AsyncIterator[None]:
    """As `stack.configured`; the API is not kept waiting meanwhile."""
    scope = world.stack.configured(SESSION, text)
    await asyncio.to_thread(scope.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(scope.__exit__, None, None, None)


async def closed(world: World, *names: str) -> list[str]:
    """Nodes that take nobody yet."""
    nodes = [await world.node(name) for name in names]
    for node in nodes:
        await cordon(world, node, True)
    return nodes


async def cordon(world: World, node: str, on: bool) -> None:
    await world.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": on or None}})


async def gang(world: World, name: str, members: int) -> list[str]:
    """Pods that wait for their PodGroup: all of them are decided at once, when it is there."""
    names = [f"{name}-{i}" for i in range(members)]
    for one in names:
        meta = {"name": one, "annotations": {"scheduling.k8s.io/group-name": name}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": world.spec("500m", "500Mi")}
        await world.api.ok("POST", f"/api/v1/namespaces/{world.ns}/pods", body)
    for one in names:
        await world.waits(one, f"PodGroup {world.ns}/{name} does not exist", undetermined=True)
    return names


async def test_pods_that_wait_are_placed_by_the_configuration_of_that_moment(world: World) -> None:
    """Spread by what the file said when they began to wait, packed by what it says when they are placed; and the other way."""
    for node in "ab":
        await world.node(node)
    packed = await gang(world, "packed", 4)
    async with configured(world, configs.scheduler("binpack")):
        await group(world, "packed", 4)
        assert len({node_of(pod) for pod in await world.running(*packed)}) == 1
        for name in packed:
            await world.remove(f"/api/v1/namespaces/{world.ns}/pods/{name}", grace=0)
        spread = await gang(world, "spread", 4)
    await group(world, "spread", 4)
    assert len({node_of(pod) for pod in await world.running(*spread)}) == 2


async def group(world: World, name: str, members: int) -> None:
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"minMember": members},
    }  # fmt: skip
    await world.make(f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{world.ns}/podgroups", body)


async def test_a_broken_file_keeps_the_last_good_one_and_says_so(world: World) -> None:
    nodes = {await world.node("a"), await world.node("b")}
    good = configs.scheduler("binpack")
    async with configured(world, good):
        digest = world.stack.service(SESSION)["configured"]
        for i, (text, why) in enumerate(BROKEN.items()):
            world.stack.write(SESSION, text)

            async def refused(why: str = why) -> bool:
                notes = (await asyncio.to_thread(world.stack.service, SESSION, "/readyz"))["notes"]
                return any("configuration refused, the last good one is used" in note and why in note for note in notes)

            await world.until(f"the refusal of {text!r} is told", refused)
            assert "configuration refused; the last good one stays" in world.stack.log(SESSION)
            assert world.stack.service(SESSION)["configured"] == digest
            await world.pod(f"p{i}", "500m", "500Mi")
        placed = await world.running(*(f"p{i}" for i in range(len(BROKEN))))
        assert len({node_of(pod) for pod in placed}) == 1, "still packed"
        assert {node_of(pod) for pod in placed} < nodes
        world.stack.write(SESSION, good)

        async def well() -> bool:
            return not (await asyncio.to_thread(world.stack.service, SESSION, "/readyz"))["notes"]

        await world.until("all is well again", well)


async def test_the_names_that_the_session_answers_to_are_its_configuration_s(world: World) -> None:
    a = await world.node("a")
    async with configured(world, "schedulerNames: [restow]\n"):
        before = await world.pod("foreign", schedulerName="volcano")
        await world.pod("ours")
        await world.lands("ours", a)
        after = await world.get("foreign")
        assert after is not None
        assert not node_of(after)
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        assert not [c for c in after["status"].get("conditions") or () if c["type"] == "PodScheduled"]
    # Back to the names of the embedded stack.
    await world.lands("foreign", a)


async def test_reservations_of_a_name_that_is_not_served_any_more_are_given_back_and_held_again_when_it_is(world: World) -> None:
    a = await world.node("a", cpu="1")
    owners = [{"labelSelector": {"matchLabels": {"for": "it"}}}]
    await world.reservation("r", {"t": (1, world.spec("800m", schedulerName="volcano"))}, owners=owners)
    await world.held("r", "Available")
    (before,) = await world.reservations()
    await world.pod("other", "800m")
    await world.waits("other", "Insufficient cpu")
    async with configured(world, "schedulerNames: [restow]\n"):
        await world.lands("other", a)
        (event,) = await world.events("r", "OtherScheduler")
        assert "its templates name scheduler volcano, which is not served here" in event["message"]
        (after,) = await world.reservations()
        assert after == before, "its status is another's now"
        await world.remove(f"/api/v1/namespaces/{world.ns}/pods/other", grace=0)
    # Back to the names of the embedded stack.

    async def held_again() -> bool:
        (now,) = await world.reservations()
        return now["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"] and now["status"]["phase"] == "Available"

    await world.until("it is held again", held_again)
    await world.pod("stranger", "800m")
    await world.waits("stranger", "Insufficient cpu")


async def test_pods_are_placed_in_the_order_of_their_priority_classes(world: World) -> None:
    specs: dict[str, Any] = {}
    for name, value in (("low", 10), ("middle", 100), ("high", 1000)):
        full = f"{world.ns}-{name}"
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": full}, "value": value}
        await world.make(CLASSES, body)
        specs[name] = {"priorityClassName": full, "priority": value, "preemptionPolicy": "PreemptLowerPriority"}
    (node,) = await closed(world, "a")
    for name, spec in specs.items():

        async def admitted(name: str = name, spec: Any = spec) -> bool:
            """Admission may not know the class at once."""
            pod = {"metadata": {"name": name}, "spec": world.spec("2500m", **spec)}
            return (await world.api.call("POST", f"/api/v1/namespaces/{world.ns}/pods", pod)).status < 300

        await world.until(f"{name} is admitted", admitted)
        await world.waits(name, "1 node(s) were unschedulable")
    await cordon(world, node, False)
    await world.lands("high", node)
    # What its condition says may be some seconds old; `why` is of this moment.
    assert "Insufficient cpu" in await world.restow("why", f"{world.ns}/middle")
    for name, others in (("high", ("middle", "low")), ("middle", ("low",)), ("low", ())):
        await world.lands(name, node)
        for other in others:
            assert not node_of(await world.get(other) or {"spec": {}})
        await world.remove(f"/api/v1/namespaces/{world.ns}/pods/{name}", grace=0)


async def test_pods_that_ask_for_nothing_are_filled_in_where_everything_is_taken(world: World) -> None:
    a = await world.node("a", cpu="1")
    nothing = [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]
    await world.pod("bulk", "1")
    await world.lands("bulk", a)
    await world.pod("one", "100m")
    await world.waits("one", "1 Insufficient cpu")
    await world.pod("nothing", containers=nothing)
    await world.lands("nothing", a)
    await world.pod("picky", containers=nothing, nodeSelector={"restow.dev/e2e": world.ns, "disk": "ssd"})
    await world.waits("picky", "1 node(s) didn't match Pod's node affinity/selector")


async def test_without_backfill_such_pods_wait_and_say_so(world: World) -> None:
    a = await world.node("a")
    nothing = [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]
    async with configured(world, 'schedulerNames: [restow]\nactions: "enqueue, allocate"\n'):
        await world.pod("nothing", containers=nothing)
        await world.waits("nothing", "it asks for nothing, and the configuration has no backfill", undetermined=True)
        await world.pod("some")
        await world.lands("some", a)
    await world.lands("nothing", a)
