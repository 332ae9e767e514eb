"""A DeschedulerPolicy with upstream's plugins in the service: pods move hold first, and nobody is evicted who has no place."""

from __future__ import annotations

from typing import Any

from e2e.moving import workload
from e2e.world import TAG, World, node_of, uid_of

POLICY = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
nodeSelector: {tag}={ns}
profiles:
  - name: taints
    pluginConfig:
      - name: RemovePodsViolatingNodeTaints
        args: {{}}
    plugins:
      deschedule:
        enabled: [RemovePodsViolatingNodeTaints]
  - name: copies
    pluginConfig:
      - name: RemoveDuplicates
        args: {{}}
      - name: DefaultEvictor
        args:
          minReplicas: 2
    plugins:
      balance:
        enabled: [RemoveDuplicates]
restow:
  interval: 0s
  maxUnavailable: 0
  evictionsPerMinute: 0
"""


async def descheduled(world: World, dry: bool = False) -> list[Any]:
    url = f"{world.stack.service_url('descheduler')}/deschedule{'?dryRun=true' if dry else ''}"
    async with world.api.session.post(url, json={}, headers=world.stack.authorization) as answer:
        body = await answer.json()
        assert answer.status == 200, body
    return [event for event in body["events"] if "moves" in event]


async def test_a_policy_of_upstreams_plugins_moves_pods_hold_first_and_leaves_those_without_a_place(world: World) -> None:
    drained = await world.node("drained", cpu="8")
    await world.replicaset("api", 2)
    await world.replicaset("big", 1, "5")
    await world.replicas("api", 2)
    (big,) = await world.replicas("big", 1)
    await world.patch(f"/api/v1/nodes/{drained}", {"spec": {"taints": [{"key": "drain", "effect": "NoSchedule"}]}})
    first = await world.node("first")
    await world.replicaset("web", 4, "500m")
    assert {node_of(pod) for pod in await world.replicas("web", 4)} == {first}
    second = await world.node("second")
    before = {uid_of(pod) for pod in await world.pods()}
    with world.stack.configured("descheduler", POLICY.format(tag=TAG, ns=world.ns)):

        async def ready() -> list[Any]:
            plans = await descheduled(world, dry=True)
            return plans if [len(plan["moves"]) for plan in plans] == [2, 2] else []

        await world.until("the log has seen enough for both plugins", ready)
        taints, copies = await descheduled(world)
        assert (taints["plugin"], taints["profile"]) == ("RemovePodsViolatingNodeTaints", "taints")
        assert (copies["plugin"], copies["profile"]) == ("RemoveDuplicates", "copies")
        assert {move["source"] for move in taints["moves"]} == {drained}
        assert taints["kept"] == {"NoTarget": 1}
        assert [(move["source"], move["target"]) for move in copies["moves"]] == [(first, second)] * 2
        for plan in (taints, copies):
            assert set((await world.migrated(plan)).values()) == {"landed"}
        moved = " ".join((await world.restow("why", f"migration/{taints['moves'][0]['migration']}")).split())
        assert "by RemovePodsViolatingNodeTaints (profile taints): does not tolerate the node's taint drain:NoSchedule" in moved
        said = " ".join((await world.restow("why", f"pod/{world.ns}/{big['metadata']['name']}")).split())
        assert "leaves it there: RemovePodsViolatingNodeTaints (profile taints): none of the 2 nodes that it may go to takes it" in said
    web = [node_of(pod) for pod in await world.replicas("web", 4)]
    assert sorted(web) == sorted([first, first, second, second])
    assert drained not in {node_of(pod) for pod in await world.replicas("api", 2)}
    (stays,) = await world.replicas("big", 1)
    assert (uid_of(stays), node_of(stays)) == (uid_of(big), drained)
    assert len(before & {uid_of(pod) for pod in await world.pods()}) == 3

    async def no_hold() -> bool:
        return not await world.reservations()

    await world.until("no Reservation is left", no_hold)
    assert "identical" in await world.restow("verify")


async def test_a_drain_moves_a_gang_as_one_or_not_at_all(world: World) -> None:
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{world.ns}/podgroups"
    drained, kept = await world.node("drained", cpu="1"), await world.node("kept", cpu="1")
    group = {"metadata": {"name": "train", "annotations": {"restow.dev/movable": "gang"}}, "spec": {"minMember": 2}}
    await world.api.ok("POST", groups, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"} | group)
    before = await workload(world, "train", world.spec("1"), 2, annotations={"scheduling.k8s.io/group-name": "train"})
    assert {node_of(pod) for pod in before} == {drained, kept}
    await world.patch(f"/api/v1/nodes/{drained}", {"spec": {"taints": [{"key": "drain", "effect": "NoSchedule"}]}})
    b = await world.node("b", cpu="1")
    with world.stack.configured("descheduler", POLICY.format(tag=TAG, ns=world.ns)):

        async def stays() -> bool:
            (taints, _) = await descheduled(world, dry=True)
            return taints["kept"] == {"NoTarget": 1}

        await world.until("one of them has no place", stays)
        (on_drained,) = [pod for pod in before if node_of(pod) == drained]
        await descheduled(world)
        said = " ".join((await world.restow("why", f"pod/{world.ns}/{on_drained['metadata']['name']}")).split())
        assert "its gang is moved as one or not at all, and pod" in said
        c = await world.node("c", cpu="1")

        async def goes() -> bool:
            return len((await descheduled(world, dry=True))[0]["moves"]) == 2

        await world.until("both have one", goes)
        taints, _ = await descheduled(world)
        assert {(move["source"], move["gang"]) for move in taints["moves"]} == {(node, f"{world.ns}/train") for node in (drained, kept)}
        assert set((await world.migrated(taints)).values()) == {"landed"}
    assert {node_of(pod) for pod in await world.replicas("train", 2)} == {b, c}
    assert "identical" in await world.restow("verify")


async def test_a_pod_that_nobody_makes_again_is_evicted_without_a_hold_where_it_asks_for_it(world: World) -> None:
    drained = await world.node("drained")
    for name, notes in (("stays", {}), ("goes", {"descheduler.alpha.kubernetes.io/evict": "true"})):
        await world.api.ok(
            "POST", f"/api/v1/namespaces/{world.ns}/pods",
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": world.spec()},
        )  # fmt: skip
    await world.running("stays", "goes")
    await world.patch(f"/api/v1/nodes/{drained}", {"spec": {"taints": [{"key": "drain", "effect": "NoSchedule"}]}})
    await world.node("other")
    with world.stack.configured("descheduler", POLICY.format(tag=TAG, ns=world.ns)):

        async def ready() -> bool:
            return len((await descheduled(world, dry=True))[0]["moves"]) == 1

        await world.until("the log has seen the taint", ready)
        taints, _ = await descheduled(world)
        (move,) = taints["moves"]
        assert (move["name"], move["target"]) == ("goes", "")
        assert await world.migrated(taints) == {move["migration"]: "removed"}

        async def gone() -> bool:
            return await world.get("goes") is None

        await world.until("the pod is gone", gone)
    assert await world.get("stays") is not None
    assert await world.reservations() == []


async def test_metrics_that_cannot_be_read_stop_the_plugin_that_needs_them_and_no_other(world: World) -> None:
    """There is no metrics-server here."""
    drained = await world.node("drained")
    await world.replicaset("web", 1)
    await world.replicas("web", 1)
    await world.patch(f"/api/v1/nodes/{drained}", {"spec": {"taints": [{"key": "drain", "effect": "NoSchedule"}]}})
    other = await world.node("other")
    args = "{thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}"
    load = f"    pluginConfig: [{{name: LoadAware, args: {args}}}]\n    plugins: {{balance: {{enabled: [LoadAware]}}}}\n"
    policy = POLICY.format(tag=TAG, ns=world.ns).replace("restow:\n  interval: 0s", f"  - name: load\n{load}restow:\n  interval: 1s")
    with world.stack.configured("descheduler", policy):

        async def moved() -> bool:
            return [node_of(pod) for pod in await world.pods("web")] == [other]

        await world.until("the interval has fired and the pod has moved", moved)

        async def said() -> list[Any]:
            plans = await world.restow_json("get", "plans")
            return [plan for plan in plans["items"] if plan["plugin"] == "LoadAware" and plan["profile"] == "load"]

        plans = await world.until("LoadAware has had its turn", said)
        assert {plan["moves"] for plan in plans} == {0}
        assert all("metrics.k8s.io" in plan["reason"] for plan in plans), plans
    await world.replicas("web", 1)
