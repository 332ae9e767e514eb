"""Capacity that is kept free in a window of time (seed 001, RULES 001-1), with and without the plugin."""

from __future__ import annotations

from datetime import UTC, datetime

from e2e.world import World, node_of

from restow.cli.embedded import configs


def open_now(world: World) -> str:
    """A window that is open now and for an hour at least, over the nodes of this world with the label `shift`."""
    hour = datetime.now(UTC).hour
    return f"""\
{configs.scheduler()}
actions: "enqueue, reserve, allocate, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins:
  - name: predicates
  - name: nodeorder
  - name: reservation
  - name: reserve
    arguments:
      reservelabels:
      - nodeSelector: {{restow.dev/e2e: {world.ns}, shift: night}}
        resources: {{cpu: 4}}
        podNumToReserve: 2
        cron: "* {hour},{(hour + 1) % 24} * * *"
"""


async def reserve_task(world: World, name: str) -> None:
    body = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {"volcano.sh/reserveable": "true"}},
        "spec": world.spec("2"),
    }  # fmt: skip
    await world.api.ok("POST", f"/api/v1/namespaces/{world.ns}/pods", body)


async def test_low_priority_pods_wait_and_reserve_tasks_start_at_once(world: World) -> None:
    kept = await world.node("kept", labels={"shift": "night"})
    free = await world.node("free")
    with world.stack.configured("scheduler_session", open_now(world)):
        for i in range(6):
            await world.pod(f"low{i}", "1")
        await world.unschedulable("low5", "1 node(s) were kept free for a reservation window")
        assert {node_of(pod) for pod in await world.running("low0", "low1", "low2", "low3")} == {free}
        await reserve_task(world, "r0")
        await reserve_task(world, "r1")
        assert {node_of(pod) for pod in await world.running("r0", "r1")} == {kept}


async def test_when_the_plugin_is_taken_away_those_who_wait_are_placed(world: World) -> None:
    kept = await world.node("kept", labels={"shift": "night"})
    with world.stack.configured("scheduler_session", open_now(world)):
        await world.pod("low", "1")
        await world.unschedulable("low", "kept free")
    assert node_of((await world.running("low"))[0]) == kept


async def test_after_the_last_reserve_task_the_rest_is_free_for_all(world: World) -> None:
    kept = await world.node("kept", cpu="6", labels={"shift": "night"})
    with world.stack.configured("scheduler_session", open_now(world)):
        for i in range(4):
            await world.pod(f"low{i}", "1")
        await world.running("low0", "low1")
        await world.unschedulable("low3", "kept free")
        await world.remove(f"/api/v1/namespaces/{world.ns}/pods/low0")
        await reserve_task(world, "r0")
        await world.running("r0")
        await world.unschedulable("low3", "kept free")
        await reserve_task(world, "r1")
        assert {node_of(pod) for pod in await world.running("r1", "low2")} == {kept}
