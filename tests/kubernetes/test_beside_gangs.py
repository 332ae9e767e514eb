"""Gangs of the API's own (`scheduling.k8s.io`, v1alpha2 in 1.36, v1beta1 in 1.37) that kube-scheduler schedules: their pods are moved, and no gang falls below its minimum."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from e2e.stack import Running
from kubernetes.lab import Lab, assets, minor, own
from kubernetes.moves import Mover, crowded, ref, told
from kubernetes.services import ended, known, migrate
from kubernetes.world import MID, NS, World, pod_spec
from kubesim.conformance.harness import MERGE

from restow.kube.effects import Accepted, OverBudget, Refused
from restow.kube.gates import Gates

OLD = 36
"""The minor version whose gangs have gates of their own, another version of the API, and a disruptionMode that is a word."""


@pytest.fixture(scope="module", name="lab")
def with_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder, why = assets()
    if folder is None:
        pytest.skip(why)
    gates = "GenericWorkload=true" + (",GangScheduling=true,WorkloadAwarePreemption=true" if minor(folder) == OLD else "")
    with own(tmp_path_factory, "gangs", features=gates, apis=f"{version(folder)}=true") as one:
        one.install()
        yield one


def version(folder: Path) -> str:
    return f"scheduling.k8s.io/{'v1alpha2' if minor(folder) == OLD else 'v1beta1'}"


def groups(world: World) -> str:
    return f"/apis/{version(world.lab.assets)}/namespaces/{NS}/podgroups"


async def gang(world: World, name: str, least: int, together: bool | None = None) -> None:
    """`together`: whether its pods are disrupted as a whole; None says nothing."""
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": least}}}
    if minor(world.lab.assets) != OLD:
        spec["priorityClassName"] = MID  # as its pods have it: otherwise the scheduler of 1.37 takes none of them
    if together is not None:
        word = "PodGroup" if together else "Pod"
        spec["disruptionMode"] = word if minor(world.lab.assets) == OLD else {"all" if together else "single": {}}
    await world.api.call("DELETE", f"{groups(world)}/{name}")
    await world.api.ok("POST", groups(world), {"apiVersion": version(world.lab.assets), "kind": "PodGroup", "metadata": {"name": name}, "spec": spec})


def of(group: str, **more: Any) -> Any:
    return pod_spec(schedulingGroup={"podGroupName": group}, **more)


async def test_kube_scheduler_binds_a_gang_all_at_once_or_not_at_all(world: World) -> None:
    """So that what follows is about gangs: these gates work."""
    await world.node("n", gpus=2)
    await gang(world, "g", 3)
    await world.replicaset("g", 3, of("g"))
    await world.unschedulable("g", 3)
    assert world.where("g") == ["waits"] * 3
    await world.node("n2", gpus=1)
    await world.running("g", 3)


async def test_pods_of_a_gang_land_where_50_equal_pods_wait_for_the_same_room(world: World, mover: Mover) -> None:
    await gang(world, "victim", 6)
    print("a gang, 50 wait, one by one:", told(await crowded(world, mover, 8, spec=of("victim"))))


async def victims(world: World, stack: Running, name: str, least: int, together: bool | None = None) -> Any:
    """Three pods of a gang on `source`, and a target for one."""
    await world.node("source", gpus=3)
    await gang(world, name, least, together)
    await world.workload("deployments", name, 3, of(name), 0.2)
    found = await world.running(name, 3)
    await world.cordon("source")
    await world.node("target", gpus=1)
    await known(stack, found)
    return found


async def test_the_services_move_a_pod_that_its_gang_can_spare(world: World, stack: Running) -> None:
    first, *_ = await victims(world, stack, "spare", 2)
    over = await ended(stack, await migrate(stack, first, "target"))
    assert over["step"] == "landed", over
    await world.stands("spare", ["source", "source", "target"])
    assert json.loads(await asyncio.to_thread(stack.restow, "get", "podgroups", "-A", "--output", "json"))["items"]


@pytest.mark.parametrize(
    ("name", "least", "whole", "reason"),
    [
        ("least", 3, False, "2 other members of PodGroup work/scheduling.k8s.io:least are ready; its minCount is 3"),
        ("together", 1, True, "PodGroup work/scheduling.k8s.io:together is disrupted as a whole or not at all (disruptionMode)"),
    ],
)
async def test_the_services_leave_a_gang_at_its_minimum_and_one_that_is_disrupted_as_a_whole(
    world: World, stack: Running, name: str, least: int, whole: bool, reason: str
) -> None:
    first, *_ = await victims(world, stack, name, least, whole)
    with pytest.raises(HTTPError) as refusal:
        await migrate(stack, first, "target")
    assert reason in refusal.value.msg
    await world.stands(name, ["source"] * 3)


async def test_the_services_move_a_gang_as_one_where_it_is_said_that_it_starts_again(world: World, stack: Running) -> None:
    """At its minimum, and disrupted as a whole: nobody of it could be moved alone."""
    named, _ = await starts_again(world, stack, "asone")
    seen: list[tuple[str, str]] = []
    world.told.append(lambda _, pod: seen.append(told_of(pod)) if pod in world.of("asone") and told_of(pod) not in seen[-1:] else None)
    try:
        said = await asyncio.to_thread(stack.restow, "migrate", named, "--output", "json")
    except AssertionError as error:
        raise AssertionError(f"what became of its pods: {seen}") from error
    moves = json.loads(said)["migrations"]
    assert [one["step"] for one in moves] == ["landed"] * 3, moves
    await world.stands("asone", ["target", "target-0", "target-1"])


async def starts_again(world: World, stack: Running, name: str) -> tuple[str, Any]:
    """A gang that is moved as one or not at all, with places for all of it: how it is named, and its pods."""
    pods = await victims(world, stack, name, 3, True)
    for i in range(2):
        await world.node(f"target-{i}", gpus=1)
    named = f"podgroup/{NS}/{name}"
    assert "nobody says that its gang starts again" in await refused(stack, named)
    await world.api.ok("PATCH", f"{groups(world)}/{name}", {"metadata": {"annotations": {"restow.dev/movable": "gang"}}}, media=MERGE)
    for _ in range(100):
        if not await refused(stack, named):
            break
        await asyncio.sleep(0.1)
    return named, pods


ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
BUDGETS = f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets"
STAYS = {"metadata": {"name": "stays"}}


@contextlib.asynccontextmanager
async def kept(world: World, descheduler: Gates, pod: Any) -> AsyncIterator[None]:
    """Somebody's admission refuses to evict this pod."""
    name = pod["metadata"]["name"]
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": f"request.name != '{name}'", "message": "it is to stay"}]}
    await world.api.ok("POST", f"{ADMISSION}ies", {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", **STAYS, "spec": spec})
    binding = {"policyName": "stays", "validationActions": ["Deny"]}
    await world.api.ok("POST", f"{ADMISSION}ybindings", {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", **STAYS, "spec": binding})
    try:
        for _ in range(300):
            if isinstance(await descheduler.evict(ref(pod), dry=True), Refused):
                break
            await asyncio.sleep(0.1)
        yield
    finally:
        for what in ("ybindings", "ies"):
            await world.api.call("DELETE", f"{ADMISSION}{what}/stays")


async def test_a_dry_run_of_an_eviction_counts_budgets_and_spends_none(world: World, descheduler: Gates) -> None:
    """What asking about all of a gang before the first eviction goes by."""
    await world.node("n", gpus=2)
    await world.replicaset("victim", 2, pod_spec())
    pods = await world.running("victim", 2)
    budget = {"metadata": {"name": "victim"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "victim"}}}}
    await world.api.ok("POST", BUDGETS, budget)
    for _ in range(300):
        if (await world.api.ok("GET", f"{BUDGETS}/victim")).get("status", {}).get("disruptionsAllowed") == 1:
            break
        await asyncio.sleep(0.1)
    for pod in (*pods, *pods):
        assert await descheduler.evict(ref(pod), dry=True) == Accepted()
    assert (await world.api.ok("GET", f"{BUDGETS}/victim"))["status"]["disruptionsAllowed"] == 1
    await world.budget(0)
    assert isinstance(await descheduler.evict(ref(pods[0]), dry=True), OverBudget)
    assert not any(pod["metadata"].get("deletionTimestamp") for pod in world.of("victim"))


async def test_the_services_evict_nobody_of_a_gang_where_the_api_would_refuse_one(world: World, stack: Running, descheduler: Gates) -> None:
    named, pods = await starts_again(world, stack, "refused")
    async with kept(world, descheduler, pods[-1]):
        with pytest.raises(AssertionError, match="it is to stay"):
            await asyncio.to_thread(stack.restow, "migrate", named)
    await world.stands("refused", ["source"] * 3)
    assert {pod["metadata"]["uid"] for pod in pods} == {pod["metadata"]["uid"] for pod in world.of("refused")}, "the same pods"


def told_of(pod: Any) -> tuple[str, str]:
    """Its name, and where it stands with its scheduler."""
    spec, status = pod["spec"], pod["status"]
    gates = "".join(f" {gate['name']}" for gate in spec.get("schedulingGates") or ())
    said = [f"{one.get('reason', '')}: {one.get('message', '')}" for one in status.get("conditions") or () if one["type"] == "PodScheduled"]
    return pod["metadata"]["name"], f"nominated {status.get('nominatedNodeName', '-')} on {spec.get('nodeName', '-')}{gates} {said}"


async def refused(stack: Running, what: str) -> str:
    """Why `restow migrate` would not, in one line; empty where it would."""
    try:
        await asyncio.to_thread(stack.restow, "migrate", what, "--dry-run")
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""
