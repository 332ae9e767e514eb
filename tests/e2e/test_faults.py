"""Nothing that the API does to the services loses a pod, places one twice or stops progress. One test a fault.

The faults are kubesim's (`docs/kubesim.md`, KF); a real API server cannot be told to fail.
"""

from __future__ import annotations

from typing import Any

import pytest
from e2e.world import VOLCANO, World, node_of

pytestmark = pytest.mark.simulated("kubesim's scripted faults")


async def traffic(world: World, name: str, count: int = 6) -> None:
    """So many pods come and run, on nodes that have capacity for exactly them; one that is deleted is replaced."""
    for at in ("a", "b"):
        await world.node(f"{name}-{at}", cpu=str(count // 2), labels={"part": name})
    await world.replicaset(name, count, "1", nodeSelector={"restow.dev/e2e": world.ns, "part": name})
    await settled(world, name, count)
    victim = (await world.pods(name))[0]
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/{victim['metadata']['name']}")

    async def replaced() -> bool:
        return victim["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in await world.pods(name)}

    await world.until("the deleted pod is gone", replaced)
    await settled(world, name, count)


async def settled(world: World, name: str, count: int) -> None:
    pods = await world.replicas(name, count)
    loads = [node_of(pod) for pod in pods]
    assert sorted(loads.count(node) for node in set(loads)) == [count // 2, count // 2]


async def hit(world: World, *counts: int) -> None:
    """The rules have hit so often: the test has proven something."""
    rules = await world.faults()
    assert [rule["hits"] for rule in rules] == list(counts), rules


STATUS_OF_BIND: dict[str, Any] = {
    "conflict": {"code": 409},
    "too many requests": {"code": 429, "retry_after": 1},
    "internal error": {"code": 500},
    "unavailable": {"code": 503},
    "timeout": {"code": 504},
}


@pytest.mark.parametrize("fault", STATUS_OF_BIND)
async def test_bindings_that_fail_are_tried_again(world: World, fault: str) -> None:
    await world.fault("status", verb="create", resource="pods/binding", count=4, **STATUS_OF_BIND[fault])
    await traffic(world, "web")
    await hit(world, 4)


async def test_a_lost_answer_to_a_binding_is_no_failure(world: World) -> None:
    await world.fault("drop", verb="create", resource="pods/binding", count=3)
    await traffic(world, "web")
    await hit(world, 3)


async def test_a_connection_that_is_cut_before_the_binding_is_tried_again(world: World) -> None:
    await world.fault("cut", verb="create", resource="pods/binding", count=3)
    await traffic(world, "web")
    await hit(world, 3)


@pytest.mark.parametrize("code", [409, 429, 500])
async def test_a_status_that_cannot_be_written_is_written_later(world: World, code: int) -> None:
    await world.node("a")
    await world.fault("status", verb="patch", resource="reservations/status", count=3, code=code)
    await world.reservation("r", {"t": (1, world.spec("100m"))}, owners=[{"labelSelector": {"matchLabels": {"a": "b"}}}])
    await world.held("r", "Available")
    await hit(world, 3)


async def test_a_condition_that_cannot_be_written_is_written_later(world: World) -> None:
    await world.node("a", cpu="1")
    await world.fault("status", verb="patch", resource="pods/status", name="big", count=2, code=500)
    await world.pod("big", "3")
    await world.unschedulable("big", "Insufficient cpu")
    await hit(world, 2)


async def fragmented(world: World) -> tuple[str, str]:
    target = await world.node("target", gpus=4)
    await world.replicaset("filler", 2, gpu=1)
    await world.replicas("filler", 2)
    source = await world.node("source", gpus=4)
    await world.replicaset("mover", 1, gpu=1)
    await world.replicas("mover", 1)
    await world.plannable(1)
    return source, target


async def moved(world: World, wanted: tuple[str, ...]) -> None:
    """The migration is over in one of these ways, the pod runs where that says, and no hold is left."""
    source, target = await fragmented(world)
    plan = await world.defragment()
    (step,) = (await world.migrated(plan)).values()
    assert step in wanted
    (pod,) = await world.replicas("mover", 1)
    assert node_of(pod) == (target if step == "landed" else source)

    async def released() -> bool:
        return not (await world.api.ok("GET", f"{VOLCANO}/namespaces/{world.ns}/reservations"))["items"]

    await world.until("no hold is left", released)


@pytest.mark.parametrize("code", [429, 500])
async def test_a_hold_that_cannot_be_created_is_created_later(world: World, code: int) -> None:
    await world.fault("status", verb="create", resource="reservations", count=3, code=code)
    await moved(world, ("landed",))
    await hit(world, 3)


async def test_a_lost_answer_to_the_creation_of_a_hold_is_no_failure(world: World) -> None:
    await world.fault("drop", verb="create", resource="reservations", count=1)
    await moved(world, ("landed",))
    await hit(world, 1)


@pytest.mark.parametrize("code", [409, 429, 500])
async def test_an_eviction_that_fails_is_tried_again(world: World, code: int) -> None:
    """A 429 here is not a budget's: it has no such cause."""
    await world.fault("status", verb="create", resource="pods/eviction", count=2, code=code)
    await moved(world, ("landed",))
    await hit(world, 2)


async def test_an_eviction_that_conflicts_for_long_is_rolled_back(world: World) -> None:
    await world.fault("status", verb="create", resource="pods/eviction", count=-1, code=409)
    await moved(world, ("failed",))


async def test_a_lost_answer_to_an_eviction_counts_as_evicted(world: World) -> None:
    await world.fault("drop", verb="create", resource="pods/eviction", count=1)
    await moved(world, ("landed",))
    await hit(world, 1)


async def test_a_hold_that_cannot_be_deleted_is_deleted_later(world: World) -> None:
    await world.fault("status", verb="delete", resource="reservations", name="restow-", count=3, code=500)
    await moved(world, ("landed",))
    await hit(world, 3)


async def test_watches_that_are_cut_go_on_where_they_were(world: World) -> None:
    await world.break_watches("cut")
    await traffic(world, "one")
    await world.break_watches("cut")
    await traffic(world, "two")


async def test_events_that_come_twice_count_once(world: World) -> None:
    await traffic(world, "one")
    await world.break_watches("duplicate", last=20)
    await traffic(world, "two")
    await settled(world, "one", 6)


async def test_a_watch_that_is_gone_is_listed_again(world: World) -> None:
    await traffic(world, "one")
    await world.break_watches("gone")
    await traffic(world, "two")


async def test_a_forgotten_history_is_listed_again(world: World) -> None:
    await traffic(world, "one")
    await world.break_watches("compact")
    await world.break_watches("cut")
    await traffic(world, "two")


async def test_changes_during_a_silent_watch_are_not_lost(world: World) -> None:
    await world.node("a")
    await world.break_watches("stall")
    await world.pod("p")
    await world.break_watches("resume")
    await world.running("p")


@pytest.mark.parametrize("code", [410, 429, 500, 503])
async def test_lists_that_fail_are_asked_for_again(world: World, code: int) -> None:
    await world.fault("status", verb="list", resource="pods", count=3, code=code)
    await world.break_watches("gone")

    async def used_up() -> bool:
        return (await world.faults())[0]["hits"] == 3

    await world.until("the faults are used up, by whoever lists pods", used_up)
    await traffic(world, "web")


@pytest.mark.parametrize("code", [410, 429, 500])
async def test_watches_that_are_refused_are_asked_for_again(world: World, code: int) -> None:
    await world.fault("status", verb="watch", resource="pods", count=3, code=code)
    await world.break_watches("cut")
    await traffic(world, "web")


async def test_a_stale_cache_does_not_move_the_cluster_back_in_time(world: World) -> None:
    """Lists from a lagging cache, after a 410: pods that were bound in between stay bound, and nothing is placed twice."""
    await traffic(world, "one")
    await world.fault("lag", verb="list", resource="pods", count=3, versions=15)
    await world.break_watches("gone")
    await traffic(world, "two")
    await settled(world, "one", 6)


async def test_slow_answers_hold_nobody_up(world: World) -> None:
    await world.fault("delay", verb="create", resource="pods/binding", count=2, seconds=2.0)
    await traffic(world, "web")
    await hit(world, 2)
