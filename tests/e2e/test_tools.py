"""kubectl and the restow CLI on the live stack."""

from __future__ import annotations

import asyncio
import json

import yaml
from e2e.world import VOLCANO, World, node_of


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
    assert header.split() == ["NAME", "PHASE", "MIN", "PENDING", "AVAILABLE", "SUCCEEDED", "AGE"]
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
        await process.wait()


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
    assert (row["phase"], row["places"][0]["node"]) == ("Available", node)
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
    await world.restow("defrag", "--now")

    async def moved() -> bool:
        return [node_of(p) for p in await world.pods("mover")] == [target]

    await world.until("the pod was moved", moved)
    await world.replicas("mover", 1)


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
