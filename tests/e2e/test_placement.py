"""Pods are placed where their specs allow, and told why where they do not fit."""

from __future__ import annotations

import pytest
from e2e.world import World, node_of, uid_of

from restow.cli.embedded import configs


async def test_a_pod_is_placed_and_runs(world: World) -> None:
    node = await world.node("a")
    await world.pod("p", "500m", "100Mi")
    (pod,) = await world.running("p")
    assert node_of(pod) == node


async def test_node_selectors_choose_the_node(world: World) -> None:
    await world.node("hdd", labels={"disk": "hdd"})
    ssd = await world.node("ssd", labels={"disk": "ssd"})
    for i in range(3):
        await world.pod(f"p{i}", nodeSelector={"restow.dev/e2e": world.ns, "disk": "ssd"})
    assert {node_of(pod) for pod in await world.running("p0", "p1", "p2")} == {ssd}


async def test_node_affinity_chooses_the_node(world: World) -> None:
    east = await world.node("east", labels={"zone": "east"})
    await world.node("west", labels={"zone": "west"})
    terms = [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["west"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    await world.pod("p", affinity=affinity)
    (pod,) = await world.running("p")
    assert node_of(pod) == east


async def test_taints_keep_pods_away_that_do_not_tolerate_them(world: World) -> None:
    taint = {"key": "team", "value": "blue", "effect": "NoSchedule"}
    tainted = await world.node("tainted", taints=[taint])
    await world.pod("stranger")
    await world.unschedulable("stranger", "untolerated taint")
    await world.pod("blue", tolerations=[{"key": "team", "operator": "Equal", "value": "blue", "effect": "NoSchedule"}])
    (pod,) = await world.running("blue")
    assert node_of(pod) == tainted
    assert not node_of(await world.get("stranger") or {})


async def test_a_cordoned_node_takes_nothing_until_it_is_uncordoned(world: World) -> None:
    node = await world.node("a")
    await world.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    async def seen() -> bool:
        rows = await world.restow_json("get", "nodes")
        return any(row["name"] == node and row["unschedulable"] for row in rows["items"])

    await world.until("the log has seen the cordon", seen)
    await world.pod("p")
    await world.unschedulable("p", "unschedulable")
    await world.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
    await world.running("p")


async def test_least_allocated_spreads(world: World) -> None:
    await world.node("a")
    await world.node("b")
    for i in range(4):
        await world.pod(f"p{i}", "500m", "500Mi")
    pods = await world.running(*(f"p{i}" for i in range(4)))
    assert sorted(node_of(pod)[-1] for pod in pods) == ["a", "a", "b", "b"]


async def test_binpack_packs(world: World) -> None:
    with world.stack.configured("scheduler_session", configs.scheduler("binpack")):
        await world.node("a")
        await world.node("b")
        for i in range(4):
            await world.pod(f"p{i}", "500m", "500Mi")
        pods = await world.running(*(f"p{i}" for i in range(4)))
        assert len({node_of(pod) for pod in pods}) == 1


async def test_a_burst_fills_every_core_and_no_core_twice(world: World) -> None:
    nodes = [await world.node(name, cpu="2") for name in "abc"]
    await world.replicaset("burst", 30, "200m", "16Mi")
    pods = await world.replicas("burst", 30)
    assert [sum(node_of(pod) == node for pod in pods) for node in nodes] == [10, 10, 10]


async def test_whole_gpus_are_given_out_once(world: World) -> None:
    await world.node("a", gpus=4)
    for i in range(2):
        await world.pod(f"two{i}", gpu=2)
    await world.running("two0", "two1")
    await world.pod("third", gpu=1)
    await world.unschedulable("third", "Insufficient gpu")
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/two0", grace=0)
    await world.running("third")


async def test_shares_of_a_gpu_never_span_two_devices(world: World) -> None:
    """RULES 004-4: 60 % and 50 % need two devices; 40 % fits beside the 60 %."""
    node = await world.node("a", gpus=2)
    shares = {"s60": 60, "s50": 50, "s40": 40}
    for name, percent in shares.items():
        await world.pod(name, more={"koordinator.sh/gpu": str(percent)})
        await world.running(name)
    devices = {}
    for name in shares:
        pod = await world.get(name)
        assert pod is not None
        assert node_of(pod) == node
        devices[name] = pod["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"]
    minor = {name: text.partition('"minor":')[2][0] for name, text in devices.items()}
    assert minor["s60"] == minor["s40"] != minor["s50"]
    await world.pod("late", more={"koordinator.sh/gpu": "60"})
    await world.unschedulable("late", "Insufficient gpu")


async def test_a_pod_that_waits_says_why_and_is_placed_when_capacity_appears(world: World) -> None:
    await world.node("small", cpu="1")
    await world.node("tainted", cpu="8", taints=[{"key": "x", "effect": "NoSchedule"}])
    await world.pod("big", "2")
    message = await world.unschedulable("big", "Insufficient cpu", "untolerated taint")
    # On a shared cluster there are more nodes than these.
    assert "nodes are available:" in message
    if world.stack.kind != "cluster":
        assert message.startswith("0/2 nodes are available: 1 Insufficient cpu, 1 ")
    (event, *_) = await world.events("big", "FailedScheduling")
    assert event["type"] == "Warning"
    assert "Insufficient cpu" in event["message"]
    large = await world.node("large", cpu="4")
    (pod,) = await world.running("big")
    assert node_of(pod) == large
    assert [c["status"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"] == ["True"]


async def test_capacity_of_a_deleted_pod_goes_to_one_that_waits(world: World) -> None:
    await world.node("a", cpu="1")
    await world.pod("first", "800m")
    await world.running("first")
    await world.pod("second", "800m")
    await world.unschedulable("second")
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/first")
    await world.running("second")


async def test_pods_of_other_schedulers_are_not_touched(world: World) -> None:
    await world.node("a", cpu="1")
    before = await world.pod("foreign", "100m", schedulerName="somebody-else")
    await world.pod("ours", "100m")
    await world.running("ours")
    await world.pod("late", "5")
    await world.unschedulable("late")
    after = await world.get("foreign")
    assert after is not None
    assert (uid_of(after), node_of(after)) == (uid_of(before), "")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


@pytest.mark.parametrize("name", ["restow", "volcano", "koord-scheduler"])
async def test_the_embedded_stack_answers_to_the_names_of_the_seeds(world: World, name: str) -> None:
    await world.node("a")
    await world.pod("p", schedulerName=name)
    await world.running("p")


async def test_a_gated_pod_waits_for_its_gate(world: World) -> None:
    await world.node("a")
    await world.pod("gated", schedulingGates=[{"name": "example.com/gate"}])
    await world.pod("free")
    await world.running("free")
    pod = await world.get("gated")
    assert pod is not None
    assert not node_of(pod)
    await world.patch(f"/api/v1/namespaces/{world.ns}/pods/gated", {"spec": {"schedulingGates": []}})
    await world.running("gated")
