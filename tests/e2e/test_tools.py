"""kubectl and the restow CLI on the live stack."""

from __future__ import annotations

import asyncio
import json

import pytest
import yaml
from e2e.koordinator import TAKEN
from e2e.world import APPS, KOORDINATOR, VOLCANO, World, node_of


def hold(world: World, name: str) -> str:
    task = {"name": "t", "replicas": 1, "template": {"spec": world.spec("200m")}}
    spec = {"tasks": [task], "owners": [{"labelSelector": {"matchLabels": {"who": "me"}}}], "schedulerName": "restow"}
    meta = {"name": name, "namespace": world.ns}
    return yaml.safe_dump({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": meta, "spec": spec})


async def test_kubectl_knows_the_resources(world: World) -> None:
    said = await world.kubectl("api-resources")
    lines = {line.split()[0]: line for line in said.splitlines() if "reservations" in line and "volcano" in line}
    assert "batch.volcano.sh/v1alpha1" in lines["reservations"]
    assert "vcrsv" in lines["reservations"]
    assert "scheduling.koordinator.sh" in said


async def test_kubectl_applies_gets_describes_and_deletes(world: World) -> None:
    node = await world.node("a")
    assert "created" in await world.kubectl("apply", "-f", "-", stdin=hold(world, "r"))
    await world.held("r", "Available")
    assert "unchanged" in await world.kubectl("apply", "-f", "-", stdin=hold(world, "r"))
    header, row = (await world.kubectl("get", "vcrsv", "-n", world.ns)).splitlines()
    assert header.split() == ["NAME", "PHASE", "MIN", "PENDING", "WAITING", "AVAILABLE", "SUCCEEDED", "AGE"]
    assert row.split()[:3] == ["r", "Available", "1"]
    said = await world.kubectl("describe", "reservations.batch.volcano.sh", "r", "-n", world.ns)
    assert "Available" in said
    await world.events("r", "Available")
    assert "Held" in await world.kubectl("describe", "reservations.batch.volcano.sh", "r", "-n", world.ns)
    await world.pod("p", labels={"who": "else"})
    await world.running("p")
    wide = await world.kubectl("get", "pods", "-n", world.ns, "-o", "wide")
    assert "Running" in wide
    assert node in wide
    assert node in await world.kubectl("get", "nodes")
    assert "deleted" in await world.kubectl("delete", "vcrsv", "r", "-n", world.ns)
    assert not await world.reservations()


async def test_kubectl_describe_shows_why_a_pod_waits(world: World) -> None:
    await world.node("a", cpu="1")
    await world.pod("big", "3")
    await world.events("big", "FailedScheduling")
    said = await world.kubectl("describe", "pod", "big", "-n", world.ns)
    assert "FailedScheduling" in said
    assert "Insufficient cpu" in said


async def test_kubectl_get_watch_shows_changes(world: World) -> None:
    await world.node("a")
    command = ("kubectl", *world.stack.kubectl, "get", "pods", "-n", world.ns, "-w", "-o", "json")
    await world.kubectl("version")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        await world.pod("p")
        text, decoder = "", json.JSONDecoder()
        async with asyncio.timeout(90):
            while True:
                text += (await process.stdout.read(65536)).decode()
                try:
                    while text.lstrip():
                        found, end = decoder.raw_decode(text.lstrip())
                        text = text.lstrip()[end:]
                        if found["kind"] == "Pod" and found["status"]["phase"] == "Running":
                            return
                except ValueError:
                    continue
    finally:
        process.kill()
        await process.communicate()


async def test_restow_shows_the_live_state(world: World) -> None:
    node = await world.node("a", cpu="2", gpus=2)
    await world.pod("p", "500m", gpu=1)
    await world.running("p")
    await world.pod("big", "5")
    await world.unschedulable("big")
    await world.apply(hold(world, "r"))
    await world.held("r", "Available")
    (row,) = [row for row in (await world.restow_json("get", "nodes"))["items"] if row["name"] == node]
    assert (row["pods"], row["holds"], row["used"]["cpu"], row["reserved"]["cpu"]) == (1, 1, 500, 200)
    assert sorted(row["deviceFree"]) == [0, 1000]
    assert node in await world.restow("get", "pods", "-n", world.ns)
    (row,) = (await world.restow_json("get", "reservations", "-n", world.ns))["items"]
    assert (row["phase"], row["slots"][0]["node"]) == ("Available", node)
    assert "nodes" in await world.restow("state")
    then = (await world.restow_json("state", "pods", "-n", world.ns))["sequence"]
    earlier = await world.restow_json("state", "pods", "--at", "1", "-n", world.ns)
    assert earlier["items"] == []
    assert earlier["sequence"] < then
    why = await world.restow("why", f"pod/{world.ns}/big")
    assert "Insufficient cpu" in why
    assert node in await world.restow("why", f"pod/{world.ns}/p")
    assert "Available" in await world.restow("why", f"reservation/{world.ns}/r")
    await world.restow("why", "pod/no-such-namespace/nothing", code=2)


async def deployment(world: World, name: str, replicas: int) -> str:
    await world.replicaset(name, replicas, "1", kind="Deployment")
    if replicas:
        await world.replicas(name, replicas)
    return f"{APPS}/namespaces/{world.ns}/deployments/{name}"


async def fills_up(world: World, path: str, app: str, running: int, more: int) -> None:
    """So many pods of this Deployment run, and the others wait for capacity."""
    await world.patch(path, {"spec": {"replicas": running + more}})

    async def probe() -> bool:
        found = await world.pods(app)
        told = [c for p in found for c in p.get("status", {}).get("conditions") or () if c["type"] == "PodScheduled" and c["status"] == "False"]
        return len(found) == running + more and len([p for p in found if node_of(p)]) == running and len(told) == more

    await world.until(f"{running} pods of {app} run and {more} wait", probe)


async def allocated_from(world: World, app: str) -> list[str]:
    """The Reservations that pods of this app took their places from, as their annotations say."""
    said = [p["metadata"].get("annotations", {}).get(TAKEN) for p in await world.pods(app)]
    return sorted(json.loads(text)["name"] for text in said if text)


@pytest.mark.parametrize("api", ["volcano", "koordinator"])
async def test_restow_reserve_keeps_capacity_for_a_scale_up_while_others_fill_the_rest(world: World, api: str) -> None:
    """Seed 004, story 3: before a scale-up, and after a scale-down."""
    await world.node("a", "4")
    await world.node("b", "4")
    web, batch = await deployment(world, "web", 2), await deployment(world, "batch", 0)
    reserve = ("reserve", "--like", "deployment/web", "-n", world.ns, "--replicas", "3", "--api", api, "--wait", "--timeout", "60s")
    if api == "koordinator":
        for name in (f"{world.ns}-{step}-{i}" for step in ("up", "down") for i in range(3)):
            world.also_remove(f"{KOORDINATOR}/{name}")
    said = await world.restow(*reserve, "--ttl", "1h", "--name", f"{world.ns}-up")
    assert "3 slots for the next pods of deployment/web, for 1h (held after" in said
    await fills_up(world, batch, "batch", 3, 2)
    await world.patch(web, {"spec": {"replicas": 5}})
    await world.replicas("web", 5)
    names = [f"{world.ns}-up"] * 3 if api == "volcano" else [f"{world.ns}-up-{i}" for i in range(3)]
    assert await allocated_from(world, "web") == names

    # All is full. Three pods go, and what they leave is kept: not one of those that wait gets it.
    await world.patch(batch, {"spec": {"replicas": 3}})
    await world.patch(web, {"spec": {"replicas": 2}})
    await world.replicas("batch", 3)
    await world.replicas("web", 2)
    await world.restow(*reserve, "--ttl", "0", "--name", f"{world.ns}-down")
    await fills_up(world, batch, "batch", 3, 2)
    await world.patch(web, {"spec": {"replicas": 5}})
    await world.replicas("web", 5)
    assert len([name for name in await allocated_from(world, "web") if "-down" in name]) == 3


async def test_restow_describe_says_where_it_is_held_who_uses_it_and_why_another_waits(world: World) -> None:
    a = await world.node("a", "4")
    web = await deployment(world, "web", 1)
    await world.restow("reserve", "--like", "deployment/web", "-n", world.ns, "--replicas", "2", "--name", "two", "--wait", "--timeout", "60s")
    await world.patch(web, {"spec": {"replicas": 2}})
    await world.replicas("web", 2)
    said = await world.restow_json("describe", f"reservation/{world.ns}/two")
    assert (said["phase"], said["owners"], said["left"]["cpu"]) == ("Available", ["pods of Deployment web"], 1000)
    assert [place["node"] for place in said["slots"]] == [a, a]
    (drawn,) = said["allocations"]
    assert drawn["pod"].startswith(f"{world.ns}/web-")
    text = await world.restow("describe", f"reservation/{world.ns}/two")
    assert drawn["pod"] in text

    refused = await world.restow("reserve", "--like", "deployment/web", "-n", world.ns, "--replicas", "3", "--name", "more", "--wait", "--timeout", "1s", code=1)
    assert "restow describe" in refused
    said = await world.restow_json("describe", f"reservation/{world.ns}/more")
    assert (said["phase"], said["fit"]["waiting"], said["fit"]["fit"]) == ("Pending", 3, 1)
    assert "Insufficient cpu" in said["fit"]["reasons"]
    assert "a minAvailable of at most 1" in [relief["change"] for relief in said["fit"]["reliefs"]]
    assert f"{world.ns}/more" in await world.restow("get", "reservations", "-n", world.ns)


async def test_restow_reserve_holds_capacity_that_is_in_use_before_others_get_it(world: World) -> None:
    """With --pre-allocation what is freed goes to the hold, not to the pods that have waited longer."""
    node = await world.node("a", "2")
    web, batch = await deployment(world, "web", 2), await deployment(world, "batch", 0)
    await fills_up(world, batch, "batch", 0, 1)
    await world.restow("reserve", "--like", "deployment/web", "-n", world.ns, "--name", "kept", "--pre-allocation")
    await world.held("kept", "Waiting")
    said = await world.restow_json("describe", f"reservation/{world.ns}/kept")
    assert (said["slots"][0]["node"], said["slots"][0]["missing"]["cpu"]) == (node, 1000)
    assert len(said["slots"][0]["users"]) == 2
    await world.patch(web, {"spec": {"replicas": 1}})
    await world.held("kept", "Available")
    await fills_up(world, batch, "batch", 0, 1)
    await world.patch(web, {"spec": {"replicas": 2}})
    await world.replicas("web", 2)


async def test_restow_reads_the_log_and_finds_every_decision_identical(world: World) -> None:
    await world.node("a")
    await world.replicaset("web", 3)
    await world.replicas("web", 3)
    assert "cluster" in await world.restow("log", "stats")
    assert "FAMILY" in await world.restow("log", "tail")
    export = world.stack.folder / f"{world.ns}.jsonl.zst"
    await world.restow("log", "export", str(export))
    for where in ((), (str(export),)):
        said = await world.restow("verify", *where)
        assert "identically" in said or "identical" in said
    assert world.ns in await world.restow("state", "pods", "--log", str(export))


async def test_restow_defrag_plans_without_moving_and_moves_when_asked(world: World) -> None:
    target = await world.node("target", gpus=4)
    await world.replicaset("filler", 2, gpu=1)
    await world.replicas("filler", 2)
    source = await world.node("source", gpus=4)
    await world.replicaset("mover", 1, gpu=1)
    (pod,) = await world.replicas("mover", 1)
    assert node_of(pod) == source

    await world.plannable(1)
    said = await world.restow_json("defrag", "--dry-run")
    assert [m["name"] for e in said["events"] for m in e.get("moves", ())] == [pod["metadata"]["name"]]
    (same,) = await world.replicas("mover", 1)
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    said = await world.restow("defrag", "--now")
    assert "wave 1 of 1: 1 move" in said
    assert f"landed       {world.ns}/{pod['metadata']['name']} on {target}" in said
    assert "1 landed in" in said

    async def moved() -> bool:
        return [node_of(p) for p in await world.pods("mover")] == [target]

    await world.until("the pod was moved", moved)
    (successor,) = await world.replicas("mover", 1)
    why = " ".join((await world.restow("why", f"pod/{world.ns}/{successor['metadata']['name']}")).split())
    assert f"came from {source}, where it was {world.ns}/{pod['metadata']['name']}, to {target}, to pack nodes tighter" in why


async def test_restow_migrate_moves_one_pod_and_says_why_one_stays(world: World) -> None:
    await world.node("first", gpus=4)
    await world.replicaset("mover", 1, gpu=1, labels={"app": "mover"})
    (pod,) = await world.replicas("mover", 1)
    second = await world.node("second", gpus=4)

    async def known() -> bool:
        # A pod whose readiness is not a fact yet is refused.
        try:
            return "would move" in await world.restow("migrate", f"pod/{world.ns}/{pod['metadata']['name']}", "--to", second, "--dry-run")
        except AssertionError:
            return False

    await world.until("the descheduler knows both", known)
    said = await world.restow("migrate", f"{world.ns}/{pod['metadata']['name']}", "--to", second)
    assert "1 landed in" in said
    (pod,) = await world.replicas("mover", 1)
    assert node_of(pod) == second
    await world.budget("keep", {"app": "mover"}, minAvailable=1)
    await world.restow("migrate", f"{world.ns}/{pod['metadata']['name']}", code=1)
    (same,) = await world.replicas("mover", 1)
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    await world.restow("migrate", f"{world.ns}/{pod['metadata']['name']}", "--to", second, code=1)
    await world.restow("defrag", "--cancel", code=1)


async def test_an_existing_crd_is_left_as_it_is(world: World) -> None:
    """DESIGN 6: an existing CRD is never overwritten. The stack of this test found its own ones, and changed nothing."""
    name = "reservations.batch.volcano.sh"
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    there = await world.api.ok("GET", path)
    assert (await world.api.call("GET", f"{VOLCANO}/reservations")).status == 200
    assert there["metadata"]["generation"] == 1


async def test_restow_up_refuses_an_api_that_it_cannot_use(world: World) -> None:
    await world.restow("up", "--kube", "no/such/file", code=2)
    await world.restow("up", "--kube", "http://127.0.0.1:1", "--apply", "up.log", code=2)
