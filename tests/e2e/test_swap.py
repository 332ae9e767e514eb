"""Two pods that must change places, for neither has another one: both land, or nobody is evicted."""

from __future__ import annotations

from e2e.moving import added, moved, nothing_is_held, only, optimizing, says, since, stays
from e2e.world import VOLCANO, World, node_of

POLICY = {"objective": "room", "room": {"cpu": "4"}}


async def circle(world: World) -> tuple[str, str]:
    """Two nodes of 8 cores, 2 of which are free on each. If `five` (5 cores) and `three` change places, one of them has 4."""
    a = await world.node("a", cpu="8")
    await world.replicaset("five", 1, "5")
    await world.pod("stone", "1")
    await world.running("stone")
    assert node_of(await only(world, "five")) == a
    b = await world.node("b", cpu="8")
    await world.replicaset("three", 1, "3")
    assert node_of(await only(world, "three")) == b
    await world.pod("rock", "3")
    await world.lands("rock", b)
    return a, b


async def test_two_pods_change_places(world: World) -> None:
    a, b = await circle(world)
    five, three = await only(world, "five"), await only(world, "three")
    path = f"{VOLCANO}/namespaces/{world.ns}/reservations"
    version = await since(world, path)
    with world.stack.configured("descheduler", optimizing(**POLICY, swaps=True)):
        await world.plannable(2)
        assert "changes places" in await world.restow("defrag", "--dry-run")
        plan = await world.defragment()
        assert {(move["name"], move["target"], move["swap"]) for move in plan["moves"]} == {
            (five["metadata"]["name"], b, True),
            (three["metadata"]["name"], a, True),
        }
        assert set((await world.migrated(plan)).values()) == {"landed"}
    await moved(world, "five", five, b)
    await moved(world, "three", three, a)
    # Each hold waits on the other's node for the room that the other leaves.
    for hold in await added(world, path, version, 2):
        assert hold["spec"]["preAllocation"] is True
    await nothing_is_held(world)
    await world.pod("four", "4")
    await world.lands("four", a)
    assert "identical" in await world.restow("verify")


async def test_where_a_budget_keeps_one_of_them_both_stay(world: World) -> None:
    await circle(world)
    before = await world.pods()
    await world.budget("keep", {"app": "three"}, minAvailable=1)
    with world.stack.configured("descheduler", optimizing(**POLICY, swaps=True, restow={"holdDeadline": "5s", "budgetPatience": "1s"})):
        await world.plannable(2)
        plan = await world.defragment()
        assert set((await world.migrated(plan)).values()) == {"failed"}
    await stays(world, *before)
    await nothing_is_held(world)


async def test_where_pods_may_not_change_places_nobody_is_evicted_and_why_says_so(world: World) -> None:
    await circle(world)
    before = await world.pods()
    with world.stack.configured("descheduler", optimizing(**POLICY, swaps=True)):
        await world.plannable(2)
    with world.stack.configured("descheduler", optimizing(**POLICY, swaps=False)):
        plan = await world.defragment()
        assert plan["moves"] == []
        assert plan["kept"] == {"Bare": 2, "NoTarget": 2}
        five = (await only(world, "five"))["metadata"]["name"]
        three = (await only(world, "three"))["metadata"]["name"]
        await says(
            world, f"pod/{world.ns}/{five}", "leaves it there",
            f"in exchange with {world.ns}/{three}, and two pods may not change places (swaps: false)",
        )  # fmt: skip
    await stays(world, *before)
    assert await world.reservations() == []
