"""What StatefulSets and Deployments do beside their pods, and whose pods move then: the real controllers make the pods and the facts."""

from __future__ import annotations

import asyncio
import urllib.error
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.services import ended, known, migrate, seen
from kubernetes.world import NS, World, path_of, pod_spec
from kubesim.conformance.harness import MERGE

from restow.domain.state import ClusterState

pytestmark = pytest.mark.usefixtures("nothing_is_left")
APPS = f"/apis/apps/v1/namespaces/{NS}"


async def three(world: World, stack: Running, **spec: Any) -> dict[str, Any]:
    """A StatefulSet's pods on `source`, by name."""
    await world.node("source", gpus=4)
    await world.workload("statefulsets", "victim", 3, pod_spec(), 0.2, serviceName="victim", **spec)
    await world.running("victim", 3)
    return await of_the_set(world, stack)


async def of_the_set(world: World, stack: Running) -> dict[str, Any]:
    pods = await world.running("victim", 3)
    await known(stack, pods)
    return {pod["metadata"]["name"]: pod for pod in pods}


async def template(world: World, **change: Any) -> None:
    """Pods of another revision are wanted from now on; once the controller has seen it."""
    body = {"spec": {"template": {"metadata": {"annotations": {"turn": "2"}}}, **change}}
    made = await world.api.ok("PATCH", f"{APPS}/statefulsets/victim", body, media=MERGE)
    for _ in range(600):
        status = (await world.api.ok("GET", f"{APPS}/statefulsets/victim"))["status"]
        if status.get("observedGeneration") == made["metadata"]["generation"] and status["currentRevision"] != status["updateRevision"]:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"its controller has not seen the change: {status}")


async def refused(stack: Running, pod: Any, why: str) -> None:
    """Soon: the watcher may not have told yet."""
    said = ""
    for _ in range(100):
        try:
            # A dry run, for it is not to move.
            await asyncio.to_thread(stack.restow, "migrate", f"pod/{NS}/{pod['metadata']['name']}", "--dry-run")
        except AssertionError as error:
            said = str(error)
            if why in said:
                return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{pod['metadata']['name']} is not refused for {why}: {said}")


async def lands(world: World, stack: Running, pod: Any) -> None:
    await world.node("target", gpus=1)
    one = await ended(stack, await migrate(stack, pod, "target"))
    assert one["step"] == "landed", one
    (there,) = [one for one in await world.running("victim", 3) if one["metadata"]["name"] == pod["metadata"]["name"]]
    assert there["spec"]["nodeName"] == "target"
    assert sorted(world.where("victim")) == ["source", "source", "target"]


async def test_of_a_statefulset_that_makes_its_pods_in_order_one_of_the_middle_lands(world: World, stack: Running) -> None:
    pods = await three(world, stack, podManagementPolicy="OrderedReady")
    await lands(world, stack, pods["victim-1"])


async def test_with_on_delete_those_of_an_earlier_revision_stay_and_those_that_are_made_anew_move(world: World, stack: Running) -> None:
    pods = await three(world, stack, updateStrategy={"type": "OnDelete"})
    await template(world)
    await refused(stack, pods["victim-1"], "OnDelete")
    await world.api.ok("DELETE", path_of(pods["victim-1"]))
    await world.gone([pods["victim-1"]])
    await lands(world, stack, (await of_the_set(world, stack))["victim-1"])


async def test_below_its_partition_a_pod_lands_as_it_was(world: World, stack: Running) -> None:
    pods = await three(world, stack)
    await template(world, updateStrategy={"rollingUpdate": {"partition": 2}})
    await world.gone([pods["victim-2"]])
    pods = await of_the_set(world, stack)
    before = pods["victim-0"]["metadata"]["labels"]["controller-revision-hash"]
    assert pods["victim-2"]["metadata"]["labels"]["controller-revision-hash"] != before
    await lands(world, stack, pods["victim-0"])
    assert (await of_the_set(world, stack))["victim-0"]["metadata"]["labels"]["controller-revision-hash"] == before


async def test_a_word_that_a_deployment_takes_back_counts_no_more_although_its_replicaset_keeps_a_copy(world: World, stack: Running) -> None:
    await world.node("source", gpus=3)
    await world.workload("deployments", "victim", 3, pod_spec(), 0.2)
    path, word = f"{APPS}/deployments/victim", "restow.dev/movable"
    await world.api.ok("PATCH", path, {"metadata": {"annotations": {word: "false"}}}, media=MERGE)
    (pod, *_) = pods = await world.running("victim", 3)
    await world.node("target", gpus=1)
    await known(stack, pods)

    def copied(state: ClusterState) -> bool:
        owner = pod["metadata"]["ownerReferences"][0]["uid"]
        return owner in state.workloads

    await seen(stack, "its ReplicaSet's copy is known", copied)
    await refused(stack, pod, word)
    await world.api.ok("PATCH", path, {"metadata": {"annotations": {word: None}}}, media=MERGE)
    for _ in range(100):
        try:
            move = await migrate(stack, pod, "target")
            break
        except urllib.error.HTTPError:
            await asyncio.sleep(0.2)
    (owner,) = pod["metadata"]["ownerReferences"]
    copy = await world.api.ok("GET", f"{APPS}/replicasets/{owner['name']}")
    assert copy["metadata"]["annotations"][word] == "false"
    one = await ended(stack, move)
    assert one["step"] == "landed", one
