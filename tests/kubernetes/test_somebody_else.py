"""Somebody else works against the moves of three workloads, as Koordinator's descheduler, Karpenter or a person may: Restow sees it, says so, and lets them alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.lab import Lab
from kubernetes.left import nothing_is_left
from kubernetes.services import POLICY, known, services
from kubernetes.world import NS, World, path_of, pod_spec
from kubesim.conformance.harness import MERGE

from restow.domain.beside import SLOT

SECONDS = 300.0
"""At most. Two disturbances are told apart where more than a minute is between them (`ONE_INCIDENT`); how soon the first one comes is up to the machine."""
PLANNED, LANDED, TARGETS = "planned", "landed", "targets"
"""Workloads: whose pods are deleted while a slot is about to be held for them; evicted soon after they have landed; and whose targets are taken away meanwhile."""
ALL = {PLANNED: ("PodGone",), LANDED: ("TakenAway", "PodGone"), TARGETS: ("TargetLost",)}
"""And what Restow calls it. Whoever evicts soon after a landing may meet the next move."""
NODES = {PLANNED: 2, LANDED: 6, TARGETS: 2}
"""Where the pod that was taken away gets another node each time, it has not bounced."""
TAINT = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}


@pytest.fixture(name="stack")
def running_stack(lab: Lab, kubelets: object) -> Iterator[Running]:
    with services(lab, POLICY.replace("holdDeadline: 60s", "holdDeadline: 10s")) as running:
        yield running


class Somebody:
    """Another descheduler. `did`: how often, by workload."""

    def __init__(self, world: World):
        self.world, self.did = world, Counter[str]()
        self._known: set[str] = set()
        self._landing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        world.told.append(self._told)

    def _told(self, kind: str, pod: Any) -> None:
        """A placeholder comes to a node, or a pod runs."""
        meta, node = pod["metadata"], pod["spec"].get("nodeName", "")
        name = node.rpartition("-")[0]
        if meta["uid"] in self._known or name not in ALL or kind == "DELETED":
            return
        if SLOT in (meta.get("annotations") or {}):
            self._known.add(meta["uid"])
            self._landing.add(node)
            self._does({PLANNED: self._deletes, LANDED: None, TARGETS: self._takes}[name], name, node)
        elif name == LANDED and pod["status"].get("phase") == "Running":
            self._known.add(meta["uid"])
            if node in self._landing:
                self._landing.discard(node)
                self._does(self._evicts, name, pod)

    def _does(self, what: Any, name: str, on: Any) -> None:
        if what is not None:
            self.did[name] += 1
            task = asyncio.get_running_loop().create_task(what(on))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deletes(self, _: str) -> None:
        for pod in [one for one in self.world.of(PLANNED) if not one["metadata"].get("deletionTimestamp")]:
            await self.world.api.call("DELETE", path_of(pod))

    async def _evicts(self, pod: Any) -> None:
        await asyncio.sleep(1.0)
        meta = pod["metadata"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": meta["name"], "namespace": meta["namespace"]}}
        await self.world.api.call("POST", path_of(pod, "/eviction"), body)

    async def _takes(self, node: str) -> None:
        await self.world.api.ok("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": [TAINT], "unschedulable": True}}, media=MERGE)
        await asyncio.sleep(3.0)
        await self.world.api.ok("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": None, "unschedulable": None}}, media=MERGE)


def another(name: str, pod: Any) -> str:
    """The next one of its workload's nodes."""
    return f"{name}-{(int(pod['spec']['nodeName'].rpartition('-')[2]) + 1) % NODES[name]}"


async def moves(world: World, stack: Running, name: str) -> None:
    """Something plans the move of its pod again and again: to another node."""
    while True:
        await asyncio.sleep(2)
        pods = [one for one in world.of(name) if one["status"].get("phase") == "Running" and not one["metadata"].get("deletionTimestamp")]
        if len(pods) == 1:
            target = another(name, pods[0])
            with contextlib.suppress(AssertionError):
                # It may be under way, or refused.
                await asyncio.to_thread(stack.restow, "migrate", f"pod/{NS}/{pods[0]['metadata']['name']}", "--to", target, "--no-follow")


def said(notes: list[tuple[str, str]], name: str) -> bool:
    """On a pod of this workload, or on its Deployment."""
    return any(f"{whom}-".startswith(f"{name}-") and why in note for whom, note in notes for why in ALL[name])


@pytest.mark.slow
async def test_whose_moves_somebody_else_disturbs_twice_is_left_alone_and_it_is_said(world: World, stack: Running) -> None:
    for name in ALL:
        for i in range(NODES[name]):
            await world.node(f"{name}-{i}", gpus=1, labels={"pool": name})
        await world.workload("deployments", name, 1, pod_spec(nodeSelector={"pool": name}), 0.2)
        await known(stack, await world.running(name))
    somebody, ended = Somebody(world), Counter[str]()

    def told(kind: str, pod: Any) -> None:
        uid, app = pod["metadata"]["uid"], (pod["metadata"].get("labels") or {}).get("app", "")
        if app in ALL and pod["metadata"].get("deletionTimestamp") and uid not in counted:
            counted.add(uid)
            ended[app] += 1

    counted: set[str] = set()
    world.told.append(told)
    tasks = [asyncio.create_task(moves(world, stack, name)) for name in ALL]
    begun, notes, done = time.perf_counter(), list[tuple[str, str]](), set[asyncio.Task[None]]()
    while (took := time.perf_counter() - begun) < SECONDS and not done and not all(said(notes, name) for name in ALL):
        done, _ = await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_EXCEPTION)
        events = (await world.api.ok("GET", "/apis/events.k8s.io/v1/events"))["items"]
        notes = [(one["regarding"]["name"], one["note"]) for one in events if one["reason"] == "Disturbed"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
    told_of = json.loads(await asyncio.to_thread(stack.restow, "get", "migrations", "--output", "json"))["items"]
    print(f"in {took:.0f} s: pods ended {dict(ended)}, disturbed {dict(somebody.did)}; moves {Counter((one['step'], one['reason']) for one in told_of)}")
    print(notes)
    world.told.remove(somebody._told)
    await nothing_is_left(world)
    for name in ALL:
        (pod,) = await world.running(name)
        assert said(notes, name), f"an Event on a pod of {name}, or on the Deployment"
        await asyncio.to_thread(stack.restow, "migrate", f"pod/{NS}/{pod['metadata']['name']}", "--to", another(name, pod), "--no-follow", code=1)
        assert "somebody else" in await asyncio.to_thread(stack.restow, "why", f"pod/{NS}/{pod['metadata']['name']}")
