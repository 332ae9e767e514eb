"""What Restow sets on nodes for autoscalers: the accounts may set that and nothing else, and when nobody wants it any more, because its log is lost, it goes.
What a person has set stays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
from collections.abc import AsyncIterator
from typing import Any

from e2e.stack import Running
from kubernetes.kubelets import Kubelets
from kubernetes.lab import NAMESPACE, Lab
from kubernetes.services import kill_for_good, plan, seen, services
from kubernetes.world import World, pod_spec
from kubesim.conformance.harness import MERGE

from restow.cli.embedded import configs
from restow.contracts.ids import NodeName
from restow.contracts.times import millis
from restow.domain.autoscalers import CORDONED, ENDS, PROTECTED, PROTECTS
from restow.kube.effects import Done
from restow.kube.node_marks import NodeMarks

LOG, UNTIL, PAST = "log-1", millis("2199-01-01T00:00:00Z"), "2026-01-01T00:00:00Z"
POLICY = (
    configs.policy(protection=100).replace("coolDownTime: 0", "coolDownTime: 0\n          planner: optimizing\n          objective: nodes\n          wholeNodes: true")
    + "  emptied: cordon\n  emptiedFor: 5m\n  protectTargets: true\n"
)
SLOW = 120.0
"""Seconds in which an evicted pod ends: the drain is in its middle for so long."""


@contextlib.asynccontextmanager
async def running(lab: Lab) -> AsyncIterator[Running]:
    """Restow's services, with a log of their own; `services` has a loop of its own."""
    stack = services(lab, POLICY)
    yielded = await asyncio.to_thread(stack.__enter__)
    try:
        yield yielded
    finally:
        await asyncio.to_thread(stack.__exit__, None, None, None)


async def there(world: World, node: str) -> tuple[dict[str, str], bool]:
    """Annotations of ours and for autoscalers, and whether the node is cordoned."""
    found = await world.api.ok("GET", f"/api/v1/nodes/{node}")
    notes = found["metadata"].get("annotations") or {}
    return {key: notes[key] for key in (*PROTECTS, *ENDS, *ENDS.values()) if key in notes}, bool(found["spec"].get("unschedulable"))


async def until(world: World, what: str, node: str, wanted: Any) -> None:
    found: Any = None
    for _ in range(600):
        if wanted(found := await there(world, node)):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within 60 s: {what}: {node} has {found}")


async def ends(world: World, node: str) -> None:
    """The time of its marks comes, with nobody to put it off."""
    notes = (await there(world, node))[0]
    past = {end: PAST for mark, end in ENDS.items() if mark in notes}
    assert past, notes
    await world.api.ok("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"annotations": past}}, media=MERGE)


async def test_a_log_that_is_lost_in_the_middle_of_a_drain_leaves_nothing_on_nodes_and_what_people_have_cordoned_stays(
    world: World, lab: Lab, kubelets: Kubelets, marks: NodeMarks
) -> None:
    for name in ("light", "target"):
        await world.node(name)
    await world.workload("replicasets", "heavy", 1, pod_spec(6, schedulerName="restow"), 0.2, annotations={"restow.dev/movable": "false"})
    async with running(lab) as stack:
        (heavy,) = await world.running("heavy")
        target = heavy["spec"]["nodeName"]
        light = next(name for name in ("light", "target") if name != target)
        await world.cordon(target)
        await seen(stack, "the target is cordoned", lambda state: state.nodes[NodeName(target)].unschedulable)
        await world.replicaset("victim", 2, pod_spec(1, schedulerName="restow"), term=SLOW)
        pods = await world.running("victim", 2)
        assert {pod["spec"]["nodeName"] for pod in pods} == {light}
        await world.cordon(target, on=False)
        await seen(stack, "the target is open again", lambda state: not state.nodes[NodeName(target)].unschedulable)
        assert len(await plan(stack, 2)) == 2
        await until(world, "the emptied node is cordoned", light, lambda found: CORDONED in found[0] and found[1])
        await until(world, "the target is protected", target, lambda found: {PROTECTED, ENDS[PROTECTED], *PROTECTS} == found[0].keys())
        kill_for_good(stack)
    lost = (await there(world, light))[0][CORDONED].split()[0]
    # A person cordons one node, and another one that we had cordoned again after having taken it back.
    for name in ("theirs", "again"):
        await world.node(name)
    lab.kubectl("cordon", "theirs")
    uid = (await world.api.ok("GET", "/api/v1/nodes/again"))["metadata"]["uid"]
    assert await marks.mark("again", uid, lost, protect=False, plan="p", until=UNTIL) == Done()
    assert await there(world, "again") == ({CORDONED: f"{lost} p", ENDS[CORDONED]: "2199-01-01T00:00:00Z"}, True)
    lab.kubectl("uncordon", "again")
    lab.kubectl("cordon", "again")
    for name in (light, target, "again"):
        await ends(world, name)
    lab.kubectl("-n", NAMESPACE, "delete", "leases", "--all")
    async with running(lab) as stack:
        assert await seen(stack, "another log", lambda state: state.log) != lost
        for name in (light, target, "again"):
            await until(world, "nothing of ours is on it", name, lambda found: not found[0])
        assert [(await there(world, name))[1] for name in (light, target, "again", "theirs")] == [False, False, True, True]
        lab.kubectl("delete", "reservations.batch.volcano.sh", "-A", "--all")
        await world.wipe_pods()
    lab.kubectl("-n", NAMESPACE, "delete", "leases", "--all")


async def test_the_guard_lets_nothing_else_of_a_node_be_changed_and_the_collector_set_nothing(world: World, lab: Lab, marks: NodeMarks) -> None:
    await world.node("n")
    uid = (await world.api.ok("GET", "/api/v1/nodes/n"))["metadata"]["uid"]
    others = (
        {"metadata": {"labels": {"x": "y"}}}, {"metadata": {"annotations": {"x": "y"}}}, {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}},
        {"metadata": {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}},
    )  # fmt: skip
    collector = ({"spec": {"unschedulable": True}}, {"metadata": {"annotations": {PROTECTS[0]: "true"}}}, {"metadata": {"annotations": {CORDONED: "log-2 p"}}})
    for patch in collector:
        await refuses(lab, "garbage-collector", patch)
    await marks.mark("n", uid, LOG, protect=True, plan="p", until=UNTIL)
    assert (await there(world, "n"))[1]
    for patch in others:
        for service in ("descheduler", "garbage-collector"):
            await refuses(lab, service, patch)
    await marks.mark("n", uid, LOG, protect=False, plan="", until=UNTIL)
    assert await there(world, "n") == ({}, False)


async def refuses(lab: Lab, service: str, patch: Any) -> None:
    account = lab.kubeconfig(lab.account(service), service)
    kubectl = [lab.assets / "kubectl", f"--kubeconfig={account}", "patch", "node", "n", "--type=merge", "-p", json.dumps(patch)]
    done = await asyncio.to_thread(subprocess.run, kubectl, capture_output=True, text=True)
    assert re.search("restow.* may ", done.stderr), (service, patch, done.stdout, done.stderr)
