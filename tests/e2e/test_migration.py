"""Defragmentation moves pods hold first, and gives up cleanly: no pod is lost, no hold is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from e2e.world import VOLCANO, World, node_of, uid_of

from restow.cli.embedded import configs

MOVER = {"restow.dev/test": "mover"}


async def fragmented(world: World, movers: int = 1, *, kind: str = "ReplicaSet") -> tuple[str, str]:
    """Source and target node: one GPU a mover of 8 in use on the first, 4 of 8 on the second."""
    target = await world.node("target", gpus=8)
    await world.replicaset("filler", 4, gpu=1)
    await world.replicas("filler", 4)
    source = await world.node("source", gpus=8)
    await world.replicaset("mover", movers, gpu=1, labels=MOVER, kind=kind)
    # Least allocated: the new node is the emptier one.
    assert {node_of(pod) for pod in await world.replicas("mover", movers)} == {source}
    await world.plannable(movers)
    return source, target


def patient(patience: str) -> str:
    """A policy that waits for budgets: without patience what they refuse is not even planned."""
    return f"{configs.policy()}  budgetPatience: {patience}\n"


async def no_hold_is_left(world: World) -> None:
    async def probe() -> bool:
        return not await world.reservations()

    await world.until("no Reservation is left", probe)


async def test_a_migration_holds_first_and_lands_on_its_hold(world: World) -> None:
    source, target = await fragmented(world)
    (before,) = await world.pods("mover")
    path = f"{VOLCANO}/namespaces/{world.ns}/reservations"
    since = (await world.api.ok("GET", path))["metadata"]["resourceVersion"]
    pods_since = (await world.api.ok("GET", f"/api/v1/namespaces/{world.ns}/pods"))["metadata"]["resourceVersion"]
    plan = await world.defragment()
    assert [(move["name"], move["source"], move["target"]) for move in plan["moves"]] == [(before["metadata"]["name"], source, target)]
    (id,) = (move["migration"] for move in plan["moves"])
    assert await world.migrated(plan) == {id: "landed"}
    (after,) = await world.replicas("mover", 1)
    assert uid_of(after) != uid_of(before)
    assert node_of(after) == target
    # The hold was created before the victim began to terminate.
    async with world.api.watch(path, resourceVersion=since) as watch:
        hold = await watch.until("ADDED", f"restow-{id}")
    async with world.api.watch(f"/api/v1/namespaces/{world.ns}/pods", resourceVersion=pods_since) as watch:
        while True:
            event = await watch.next(30)
            if uid_of(event["object"]) == uid_of(before) and event["object"]["metadata"].get("deletionTimestamp"):
                break
    assert int(hold["object"]["metadata"]["resourceVersion"]) < int(event["object"]["metadata"]["resourceVersion"])
    assert hold["object"]["spec"]["tasks"][0]["template"]["spec"]["nodeName"] == target
    story = await world.restow_json("why", f"migration/{id}")
    steps = [step for step in ("planned", "holding", "held", "evicting", "evicted", "landed") if step in str(story).lower()]
    assert steps == ["planned", "holding", "held", "evicting", "evicted", "landed"]
    await no_hold_is_left(world)

    async def emptied() -> bool:
        return all(node_of(pod) != source for pod in await world.pods())

    await world.until("the source is empty", emptied)


async def test_several_pods_of_a_deployment_are_moved_together(world: World) -> None:
    source, target = await fragmented(world, 2, kind="Deployment")
    plan = await world.defragment()
    assert len(plan["moves"]) == 2
    assert set((await world.migrated(plan)).values()) == {"landed"}
    assert {node_of(pod) for pod in await world.replicas("mover", 2)} == {target}
    assert all(node_of(pod) != source for pod in await world.pods())
    await no_hold_is_left(world)


async def test_a_budget_that_refuses_rolls_back(world: World) -> None:
    """Longer than it is waited for, in the end."""
    source, _ = await fragmented(world)
    await world.budget("keep", MOVER, minAvailable=1)
    (before,) = await world.pods("mover")
    with world.stack.configured("descheduler", patient("1s")):
        await world.plannable(1)
        plan = await world.defragment()
        (move,) = plan["moves"]
        assert await world.migrated(plan) == {move["migration"]: "failed"}
    (after,) = await world.replicas("mover", 1)
    assert (uid_of(after), node_of(after)) == (uid_of(before), source)
    # DESIGN 5: the mark makes an eviction fail that comes late.
    assert after["metadata"]["annotations"]["restow.dev/migration"] == "aborted"
    rows = await world.restow_json("get", "migrations", "-n", world.ns)
    assert rows["items"][-1]["reason"] == "Budget"
    await no_hold_is_left(world)


async def test_what_a_budget_would_refuse_is_not_planned(world: World) -> None:
    """RULES G-13: nothing is held for it, and nobody is asked to go."""
    source, _ = await fragmented(world)
    await world.budget("keep", MOVER, minAvailable=1)
    (before,) = await world.pods("mover")

    async def known() -> bool:
        return (await world.defragment(dry=True)).get("kept", {}).get("Budget") == 1

    await world.until("the budget is known", known)
    plan = await world.defragment()
    assert (plan["moves"], plan["kept"]["Budget"]) == ([], 1)
    (after,) = await world.replicas("mover", 1)
    assert (uid_of(after), node_of(after)) == (uid_of(before), source)
    assert await world.reservations() == []


async def test_a_budget_that_refuses_for_a_while_is_waited_for(world: World) -> None:
    _, target = await fragmented(world)
    await world.budget("keep", MOVER, minAvailable=1)
    (before,) = await world.pods("mover")
    name = before["metadata"]["name"]
    with world.stack.configured("descheduler", patient("60s")):
        await world.plannable(1)
        plan = await world.defragment()
        told = await world.events(name, "MigrationWaits")
        assert "a disruption budget does not allow it yet" in told[0]["message"]
        (still,) = await world.replicas("mover", 1)
        assert uid_of(still) == uid_of(before)
        await world.remove(f"/apis/policy/v1/namespaces/{world.ns}/poddisruptionbudgets/keep")
        assert set((await world.migrated(plan)).values()) == {"landed"}
    (after,) = await world.replicas("mover", 1)
    assert node_of(after) == target
    await no_hold_is_left(world)


async def test_the_pod_group_of_a_pod_that_is_moved_says_so(world: World) -> None:
    """Seed 003, RULES 003-2: identities in the spec, Succeeded in the status, and the group's own phase is untouched."""
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{world.ns}/podgroups"
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "gang"}, "spec": {"minMember": 1}}
    target = await world.node("target", gpus=8)
    await world.replicaset("filler", 4, gpu=1)
    await world.replicas("filler", 4)
    source = await world.node("source", gpus=8)
    await world.make(groups, body)
    template = {"metadata": {"labels": {"app": "mover"}, "annotations": {"scheduling.k8s.io/group-name": "gang"}}, "spec": world.spec(gpu=1)}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "mover"}}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "mover"}, "spec": spec}
    await world.api.ok("POST", f"/apis/apps/v1/namespaces/{world.ns}/replicasets", made)
    before = {uid_of(pod): pod for pod in await world.replicas("mover", 2)}
    assert {node_of(pod) for pod in before.values()} == {source}
    await world.plannable(2)
    plan = await world.defragment()
    assert set((await world.migrated(plan)).values()) == {"landed"}

    async def told() -> Any:
        seen = await world.api.ok("GET", f"{groups}/gang")
        return seen if ((seen.get("status") or {}).get("migrationState") or {}).get("phase") == "Succeeded" else None

    seen = await world.until("the PodGroup says Succeeded", told)
    infos = seen["spec"]["migrationInfo"]
    # One after the other, for the gang keeps its minimum; so the last one is told of, or both where they overlapped.
    assert {info["pod"]["metadata"]["uid"] for info in infos} <= set(before)
    for info in infos:
        assert set(info["pod"]) == {"apiVersion", "kind", "metadata"}, "identity alone"
        assert (info["sourceNode"], info["targetNode"]) == (source, target)
        assert info["reservation"]["metadata"]["name"].startswith("restow-")
    assert seen["status"]["phase"] == "Running"
    await no_hold_is_left(world)


async def test_victims_that_somebody_else_deletes_are_replaced_and_nothing_is_left(world: World) -> None:
    """Whenever in its saga a migration meets the deletion."""
    await fragmented(world, 3)
    before = await world.pods("mover")
    names = [pod["metadata"]["name"] for pod in before]

    async def delete(name: str) -> None:
        await world.remove(f"/api/v1/namespaces/{world.ns}/pods/{name}")

    plan, *_ = await asyncio.gather(world.defragment(), *map(delete, names[:2]))
    steps = await world.migrated(plan) if plan["moves"] else {}
    assert set(steps.values()) <= {"landed", "failed"}
    after = await world.replicas("mover", 3)
    assert not {uid_of(pod) for pod in after} & {uid_of(pod) for pod in before[:2]}
    await no_hold_is_left(world)


async def test_a_victim_deleted_while_its_eviction_is_refused_counts_as_moved_or_rolled_back(world: World) -> None:
    await fragmented(world)
    await world.budget("keep", MOVER, minAvailable=1)
    (before,) = await world.pods("mover")
    with world.stack.configured("descheduler", patient("60s")):
        await world.plannable(1)
        plan = await world.defragment()
        (move,) = plan["moves"]
        await world.remove(f"/api/v1/namespaces/{world.ns}/pods/{before['metadata']['name']}")
        steps = await world.migrated(plan)
        assert steps in ({move["migration"]: "landed"}, {move["migration"]: "failed"})
    (after,) = await world.replicas("mover", 1)
    assert uid_of(after) != uid_of(before)
    await no_hold_is_left(world)


async def test_bare_pods_are_never_moved(world: World) -> None:
    await world.node("target", gpus=8)
    await world.replicaset("filler", 5, gpu=1)
    await world.replicas("filler", 5)
    source = await world.node("source", gpus=8)
    before = await world.pod("bare", gpu=1)
    await world.running("bare")
    pod = await world.get("bare")
    assert pod is not None
    assert node_of(pod) == source

    async def seen() -> bool:
        return (await world.defragment(dry=True))["kept"] == {"Bare": 1}

    await world.until("the plan knows the bare pod", seen)
    plan = await world.defragment()
    assert plan["moves"] == []
    (after,) = await world.running("bare")
    assert (uid_of(after), node_of(after)) == (uid_of(before), source)
    said = await world.restow("why", f"pod/{world.ns}/bare")
    assert "no controller would create it again" in said


async def triggered(world: World, **policy: Any) -> None:
    """Without being asked: the pod is moved."""
    _, target = await fragmented(world)
    with world.stack.configured("descheduler", configs.policy(interval=policy.pop("interval", "0s")) + policy.pop("more", "")):

        async def moved() -> bool:
            pods = await world.pods("mover")
            return [node_of(pod) for pod in pods] == [target]

        await world.until("the trigger has fired and the pod has moved", moved, 120)
    await world.replicas("mover", 1)
    await no_hold_is_left(world)


async def test_the_interval_triggers_a_plan(world: World) -> None:
    await triggered(world, interval="1s")


async def test_cron_triggers_a_plan(world: World) -> None:
    """Every minute: this test may wait for one, so it is not repeated where only the controllers differ."""
    if world.stack.kind == "bare":
        pytest.skip("proven on kubesim with its own controllers")
    await triggered(world, more="  cron: '* * * * *'\n")
