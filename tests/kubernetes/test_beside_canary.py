"""The start-up check says whether this scheduler honours nominations, and takes no room for it."""

from __future__ import annotations

import asyncio
import time

from kubernetes.lab import Lab
from kubernetes.moves import LOG
from kubernetes.world import World, path_of, pod_spec
from kubesim.conformance.harness import MERGE, Target

from restow.kube import canary
from restow.kube.canaries import honours_nominations, sweep
from restow.kube.canary import Verdict
from restow.kube.client import Client, ClientConfig, connect


async def client_of(lab: Lab, accounts: dict[str, Target]) -> Client:
    return await connect(ClientConfig(kubeconfig=str(lab.kubeconfig(accounts["scheduler-session"], "canary"))))


async def test_the_stock_scheduler_honours_nominations(world: World, lab: Lab, accounts: dict[str, Target]) -> None:
    await world.node("n", gpus=1)
    await world.pod("full", pod_spec())
    await world.running("full")
    took = []
    async with await client_of(lab, accounts) as client:
        for i in range(20):
            began = time.perf_counter()
            assert await honours_nominations(client, "default-scheduler", "n", LOG, f"t{i}") == Verdict("honoured")
            took.append(1000 * (time.perf_counter() - began))
    took.sort()
    print(f"start-up check: p50 {took[10]:.0f} p99 {took[-1]:.0f} ms of 20")
    await world.until(lambda: not world.placeholders(), "nothing is left behind")


async def test_a_scheduler_that_does_not_answer_is_unknown(world: World, lab: Lab, accounts: dict[str, Target]) -> None:
    await world.node("n")
    async with await client_of(lab, accounts) as client:
        verdict = await honours_nominations(client, "no-such-scheduler", "n", LOG, "t", patience=1)
    assert verdict == Verdict("unknown", "the scheduler did not look at the probe within 1 s")
    await world.until(lambda: not world.placeholders(), "nothing is left behind")


async def test_a_node_that_is_not_there_proves_nothing(world: World, lab: Lab, accounts: dict[str, Target]) -> None:
    """The probe is refused for another reason than the guest, and still is when that has gone."""
    await world.node("n")
    async with await client_of(lab, accounts) as client:
        verdict = await honours_nominations(client, "default-scheduler", "no-such-node", LOG, "t", patience=1)
    assert verdict == Verdict("unknown", "something else keeps pods away from the node within 1 s")


async def test_a_node_without_the_label_that_anti_affinity_counts_by_proves_nothing(world: World, lab: Lab, accounts: dict[str, Target]) -> None:
    """The scheduler honours nominations, and yet would bind the probe beside the guest."""
    await world.node("n")
    await world.api.ok("PATCH", "/api/v1/nodes/n", {"metadata": {"labels": {canary.HOSTNAME: None}}}, media=MERGE)
    async with await client_of(lab, accounts) as client:
        verdict = await honours_nominations(client, "default-scheduler", "n", LOG, "t", patience=1)
    assert verdict == Verdict("unknown", "something else keeps pods away from the node within 1 s")


async def test_a_scheduler_that_looks_at_bound_pods_alone_is_found_out(world: World, lab: Lab, accounts: dict[str, Target]) -> None:
    await world.node("n")

    def careless(kind: str, pod: dict) -> None:
        if kind == "ADDED" and pod["metadata"]["name"] == "canary-probe-t":
            target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "canary-probe-t"}, "target": target}
            tasks.append(asyncio.create_task(world.api.ok("POST", f"{path_of(pod)}/binding", binding)))

    tasks: list[asyncio.Task] = []
    world.told.append(careless)
    async with await client_of(lab, accounts) as client:
        verdict = await honours_nominations(client, "careless", "n", LOG, "t")
    assert verdict.said == "ignored"
    await asyncio.gather(*tasks)


async def test_what_a_check_left_behind_whose_process_died_is_removed_and_another_logs_is_not(world: World, lab: Lab, accounts: dict[str, Target]) -> None:
    await world.node("n")
    async with await client_of(lab, accounts) as client:
        for log in (LOG, "another"):
            await client.create("/api/v1/namespaces/restow-holds/pods", canary.guest("default-scheduler", "n", log, f"dead-{log}"))
        await sweep(client, LOG)
        left = [pod["metadata"]["name"] for pod in (await world.api.ok("GET", "/api/v1/namespaces/restow-holds/pods"))["items"]]
        await sweep(client, "another")
    assert left == ["canary-guest-dead-another"]
