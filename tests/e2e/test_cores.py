"""CPUs and GPUs by name: who gets which, and that nobody gets what somebody has (RULES 004-5)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.error
from pathlib import Path

import pytest
from e2e.koordinator import (
    CPUS,
    GPU,
    core_of,
    cpus_of,
    cpus_running,
    end,
    gpus_of,
    machine,
    pod,
    sixteen_cpus,
)
from e2e.koordinator import exclusive as lsr
from e2e.world import World

FOUR = {"cpu": "4"}
SHORT = "not enough cpus available to satisfy request"
SESSION = "scheduler_session"
TOPOLOGY = "node.koordinator.sh/cpu-topology"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"


async def restarted(world: World) -> None:
    """The session's process is killed, and another one has taken its place."""
    stack = world.stack
    parent = int(json.loads((stack.folder / ".restow" / "stack.json").read_text())["pid"])
    children = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    (process,) = [p for p in children if SESSION in Path(f"/proc/{p}/cmdline").read_text()]
    before = stack.service_url(SESSION)
    os.kill(process, signal.SIGKILL)

    async def back() -> bool:
        try:
            return stack.service_url(SESSION) != before and bool(await asyncio.to_thread(stack.service, SESSION))
        except (OSError, urllib.error.URLError):
            return False

    await world.until("the session is back", back)


async def test_pods_of_class_lsr_have_cpus_of_their_own(world: World) -> None:
    node = await sixteen_cpus(world)
    for i in range(3):
        await pod(world, f"p{i}", FOUR, **lsr("FullPCPUs"))
        there = await world.lands(f"p{i}", node)
        # Whole cores of one NUMA zone, as text that Linux reads.
        assert len({core_of(cpu) for cpu in cpus_of(there)}) == 2
        assert len({core_of(cpu) // 4 for cpu in cpus_of(there)}) == 1
        assert set(json.loads(there["metadata"]["annotations"][CPUS])) == {"cpuset"}
    assert len(await cpus_running(world, "p0", "p1", "p2")) == 12
    # Others share what is there: they have none of their own, and take none.
    await pod(world, "shares", {"cpu": "1"})
    assert CPUS not in (await world.lands("shares", node))["metadata"].get("annotations", {})
    await pod(world, "p3", FOUR, **lsr("SpreadByPCPUs"))
    await world.waits("p3", "1 Insufficient cpu")
    await end(world, "shares", "p1")
    await world.lands("p3", node)
    assert len(await cpus_running(world, "p0", "p2", "p3")) == 12


async def test_cpus_stay_who_has_them_when_the_session_starts_again(world: World) -> None:
    if world.stack.kind != "kubesim":
        pytest.skip("the test ends a process of its own stack")
    node = await sixteen_cpus(world)
    for name in ("a", "b"):
        await pod(world, name, FOUR, **lsr("FullPCPUs"))
        await world.lands(name, node)
    before = [cpus_of(one) for one in await world.running("a", "b")]
    await restarted(world)
    for name in ("c", "d"):
        await pod(world, name, FOUR, **lsr("FullPCPUs"))
        await world.lands(name, node)
    assert [cpus_of(one) for one in await world.running("a", "b")] == before
    assert await cpus_running(world, "a", "b", "c", "d") == set(range(16))


async def test_a_node_whose_cpus_nobody_knows_gives_none_and_says_so(world: World) -> None:
    node = await machine(world)
    await pod(world, "p", FOUR, **lsr("FullPCPUs"))
    await world.waits("p", "1 node(s) invalid CPU Topology")
    await pod(world, "odd", {"cpu": "1500m"}, **lsr("FullPCPUs"))
    await world.waits("odd", "1 the requested CPUs must be integer")
    why = " ".join((await world.restow("why", f"{world.ns}/p")).split())
    assert "node(s) invalid CPU Topology" in why
    # Where no topology object says it, the node's own annotation may.
    detail = [{"id": cpu, "core": core_of(cpu), "socket": 0, "node": core_of(cpu) // 4} for cpu in range(16)]
    await world.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {TOPOLOGY: json.dumps({"detail": detail})}}})
    assert cpus_of(await world.lands("p", node)) == {0, 1, 8, 9}
    await world.waits("odd", "1 the requested CPUs must be integer")


async def test_a_node_may_have_capacity_and_no_cpus(world: World) -> None:
    """One of each core is free: no two of one."""
    node = await sixteen_cpus(world)
    await pod(world, "halves", {"cpu": "8"}, **_required("SpreadByPCPUs"))
    await world.lands("halves", node)
    assert len({core_of(cpu) for cpu in await cpus_running(world, "halves")}) == 8
    await pod(world, "whole", FOUR, **_required("FullPCPUs"))
    await world.waits("whole", f"1 {SHORT}")
    await pod(world, "odd", {"cpu": "3"}, **_required("FullPCPUs"))
    await world.waits("odd", "1 node(s) requested cpus not multiple cpus per core")
    await end(world, "halves")
    await world.lands("whole", node)


def _required(policy: str) -> dict:
    said = lsr(policy)
    said["annotations"] = {name: json.dumps({"requiredCPUBindPolicy": policy}) for name in said["annotations"]}
    return said


async def test_a_gpu_that_does_not_work_is_given_to_nobody(world: World) -> None:
    if world.stack.kind == "cluster" and (await world.api.call("GET", f"{DEVICES}?limit=1")).status == 404:
        pytest.skip("the cluster has no Device objects")
    node = await machine(world, gpus=2)
    gpus = [{"type": "gpu", "minor": minor, "health": minor == 1} for minor in (0, 1)]
    body = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "metadata": {"name": node}, "spec": {"devices": gpus}}
    await world.make(DEVICES, body)

    async def known() -> bool:
        await pod(world, "probe", {GPU: "200"})
        said = await world.until("the probe is settled", lambda: settled(world, "probe"))
        await end(world, "probe")
        return "Insufficient gpu" in said

    await world.until("the scheduler knows the Device", known)
    await pod(world, "a", {GPU: "100"})
    assert gpus_of(await world.lands("a", node)) == {1: 100}
    await pod(world, "b", {GPU: "100"})
    await world.waits("b", "1 Insufficient gpu")
    await world.patch(f"{DEVICES}/{node}", {"spec": {"devices": [{**gpu, "health": True} for gpu in gpus]}})
    assert gpus_of(await world.lands("b", node)) == {0: 100}


async def settled(world: World, name: str) -> str:
    """Its node, or why it has none, once either is known."""
    there = await world.get(name) or {"spec": {}}
    said = [c["message"] for c in there.get("status", {}).get("conditions") or () if (c["type"], c["status"]) == ("PodScheduled", "False")]
    return there["spec"].get("nodeName") or "".join(said)
