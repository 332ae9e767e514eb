"""The whole of Restow beside the stock scheduler, and pods with a device by ResourceClaim: it is moved like any other, and its device is nobody else's at any moment."""

from __future__ import annotations

import asyncio
import urllib.error
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab, own
from kubernetes.left import nothing_is_left
from kubernetes.services import POLICY, SESSION, ended, kill, known, migrate, plan, posted, seen, services
from kubernetes.test_dynamic_resources import (
    CLAIMS,
    DRIVER,
    OF_TYPE,
    a_world,
    claiming,
    gpu,
    let_claims_move,
    placed,
    publish,
    template,
)
from kubernetes.world import HOLDS, NS, World, path_of
from kubesim.conformance.harness import Api

from restow.domain.claim_devices import Count, claim_devices
from restow.domain.nomination_checks import UNKNOWN, verdict

Obj = dict[str, Any]
PLANS = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: whole
  pluginConfig:
  - name: Defragmentation
    args: {planner: claims}
  plugins:
    balance: {enabled: [Defragmentation]}
restow:
"""
LIMITS = POLICY.rpartition("\nrestow:\n")[2]


@pytest.fixture(scope="module", name="lab")
def with_rights_in_the_namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "claim-moves") as one:
        let_claims_move(one)
        yield one


@pytest.fixture(scope="module", name="stack")
def with_the_namespace_named(lab: Lab, kubelets: Kubelets) -> Iterator[Running]:
    with services(lab, f"{PLANS}{LIMITS}  claimNamespaces: [{NS}]\n") as running:
        yield running


@pytest.fixture(name="world")
async def with_a_class(lab: Lab, kubelets: Kubelets, stack: Running) -> AsyncIterator[World]:
    async with a_world(lab, kubelets, OF_TYPE) as one:
        yield one
        await nothing_is_left(one)
        await until(one, lambda claims: all(claim["metadata"]["ownerReferences"][0]["uid"] in one.pods for claim in claims), "each claim has its pod")
        assert [pod["metadata"]["name"] for pod in one.pods.values() if holds(pod)] == []


def holds(pod: Obj) -> bool:
    """Whether it is a placeholder in the namespace of people's."""
    return pod["metadata"]["namespace"] not in HOLDS and "restow.dev/slot" in (pod["metadata"].get("annotations") or {})


async def until(world: World, found: Any, what: str, seconds: float = 60) -> None:
    for _ in range(int(seconds / 0.1)):
        if found(said := (await world.api.ok("GET", CLAIMS))["items"]):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{what}: {[(one['metadata'], one.get('status')) for one in said]}")


def at_the_hand_over(world: World, act: Callable[[], None]) -> asyncio.Event:
    """Done once a successor that still has its gate is nominated for `b`; set then."""
    done = asyncio.Event()

    def told(kind: str, pod: Any) -> None:
        if not done.is_set() and pod["status"].get("nominatedNodeName") == "b" and pod["spec"].get("schedulingGates"):
            done.set()
            act()

    world.told.append(told)
    return done


async def with_devices(world: World, stack: Running, waiting: int = 20, **more: Any) -> Obj:
    """The victim has the only device of `a`; `b` has one, too. Many wait for a device of `b`, once they may: it has a taint until its device is held."""
    await world.node("a", gpus=0)
    await publish(world, "a", [gpu(0)])
    await template(world)
    await world.workload("deployments", "victim", 1, claiming(), 0.2, **more)
    (victim,) = await world.running("victim", 1)
    await world.node("b", gpus=0)
    await publish(world, "b", [gpu(0)])
    await known(stack, [victim])

    def ready(state: Any) -> bool:
        devices = claim_devices(state)
        return len(devices.on("b")) == 1 and bool(devices.reserved_for(victim["metadata"]["uid"])) and verdict(state, "default-scheduler") != UNKNOWN

    await seen(stack, "its device, those of b, and what nominations are worth", ready)
    return victim


async def held(world: World) -> Obj:
    """The placeholder, once it runs."""
    return await world.until(lambda: next((pod for pod in world.pods.values() if holds(pod) and pod["status"].get("phase") == "Running"), None), "a placeholder with a claim runs")


async def crowd(world: World, waiting: int = 20) -> None:
    await world.replicaset("crowd", waiting, claiming())
    await world.unschedulable("crowd", waiting)


async def test_a_pod_lands_with_the_claim_that_was_held_for_it_while_others_wait_for_a_device(world: World, stack: Running) -> None:
    victim = await with_devices(world, stack)
    await world.budget(0)
    move = await migrate(stack, victim, "b")
    placeholder = await held(world)
    await crowd(world)
    assert world.where("crowd") == ["waits"] * 20
    claim = next(one["resourceClaimName"] for one in placeholder["status"]["resourceClaimStatuses"])
    await world.budget(1)
    one = await ended(stack, move)
    assert one["step"] == "landed", one
    await world.stands("victim", ["b"])
    (successor,) = await world.running("victim")
    assert [said["resourceClaimName"] for said in successor["status"]["resourceClaimStatuses"]] == [claim]
    await placed(world, "crowd", 1)
    assert sorted(world.where("crowd")) == ["a"] + ["waits"] * 19

    def given(claims: list[Obj]) -> bool:
        having = [one for one in claims if one.get("status", {}).get("allocation")]
        return len(having) == 2 and all(len(one["status"]["reservedFor"]) == 1 for one in having)

    await until(world, given, "two devices, of two pods")


async def test_it_says_what_it_does_and_the_guard_lets_the_session_do_no_more(world: World, stack: Running, lab: Lab) -> None:
    victim = await with_devices(world, stack)
    await world.budget(0)
    move = await migrate(stack, victim, "b")
    placeholder = await held(world)
    session = Api(lab.account("scheduler-session"), world.api.session)
    (own_claim,) = (one["resourceClaimName"] for one in victim["status"]["resourceClaimStatuses"])
    owner = [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x", "controller": True}]
    for method, path, body in (
        ("PATCH", f"{CLAIMS}/{own_claim}", {"metadata": {"ownerReferences": owner}}),
        ("PATCH", f"{CLAIMS}/{own_claim}", {"metadata": {"labels": {"a": "b"}}}),
        ("PATCH", f"{CLAIMS}/{own_claim}/status", {"status": {"allocation": None, "reservedFor": None}}),
        ("PATCH", f"{CLAIMS}/{own_claim}/status", {"status": {"reservedFor": None}}),
        ("DELETE", f"{CLAIMS}/{own_claim}", {}),
    ):
        answer = await session.call(method, path, body, media="application/merge-patch+json" if method == "PATCH" else "application/json")
        assert answer.status in (403, 422), (method, path, answer)
        assert "restow" in str(answer.body), answer
    spec = {"priorityClassName": placeholder["spec"]["priorityClassName"], "containers": [{"name": "c", "image": "i"}]}
    others = Api(lab.account("descheduler"), world.api.session)
    assert (await others.call("POST", f"/api/v1/namespaces/{NS}/pods", {"metadata": {"name": "x"}, "spec": spec})).status == 403
    await world.api.ok("DELETE", path_of(placeholder), {"gracePeriodSeconds": 0})
    one = await ended(stack, move)
    assert (one["step"], one["reason"]) == ("failed", "HoldStolen")
    await world.stands("victim", ["a"])


async def test_a_hand_over_that_somebodys_admission_refuses_is_given_up_and_the_pod_lands_all_the_same(world: World, stack: Running) -> None:
    """It was asked for until the end of the move, five minutes, and its pod had been evicted."""
    victim = await with_devices(world, stack)
    await world.budget(0)
    move = await migrate(stack, victim, "b")
    await held(world)
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["resourceclaims"]}
    only = {"name": "session", "expression": 'request.userInfo.username.endsWith("restow-scheduler-session")'}
    policy = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, "matchConditions": [only], "validations": [{"expression": "false", "message": "not yours"}]}
    kinds = {"validatingadmissionpolicies": policy, "validatingadmissionpolicybindings": {"policyName": "theirs", "validationActions": ["Deny"]}}
    try:
        for kind, spec in kinds.items():
            await world.api.ok("POST", f"/apis/admissionregistration.k8s.io/v1/{kind}", {"metadata": {"name": "theirs"}, "spec": spec})
        await asyncio.sleep(3)
        await world.budget(1)
        one = await ended(stack, move, 60)
    finally:
        for kind in kinds:
            await world.api.call("DELETE", f"/apis/admissionregistration.k8s.io/v1/{kind}/theirs")
    assert one["step"] == "landed", one
    await world.stands("victim", ["b"])
    (successor,) = await world.running("victim")
    told = (await world.api.ok("GET", f"/apis/events.k8s.io/v1/namespaces/{NS}/events"))["items"]
    notes = [event["note"] for event in told if event["reason"] == "NotHandedOver" and event["regarding"]["uid"] == successor["metadata"]["uid"]]
    assert len(notes) == 1, told
    assert "not yours" in notes[0]


async def test_in_a_namespace_of_peoples_services_make_and_delete_placeholders_only(world: World, stack: Running, lab: Lab) -> None:
    """Else a stolen account could read every Secret there, by a pod that mounts them, and end every pod past its budget."""
    victim = await with_devices(world, stack)
    await world.budget(0)
    session, collector = (Api(lab.account(name), world.api.session) for name in ("scheduler-session", "garbage-collector"))
    for service in (session, collector):
        answer = await service.call("DELETE", path_of(victim) + "?dryRun=All", {})
        assert answer.status in (403, 422), answer
        assert "restow-guard-placeholders" in answer.body["message"], answer
    move = await migrate(stack, victim, "b")
    placeholder = await held(world)
    fit = {
        "priorityClassName": placeholder["spec"]["priorityClassName"], "automountServiceAccountToken": False,
        "containers": [{"name": "hold", "image": placeholder["spec"]["containers"][0]["image"]}],
    }  # fmt: skip
    await world.api.call("POST", f"/api/v1/namespaces/{NS}/serviceaccounts", {"metadata": {"name": "theirs"}})
    (container,) = fit["containers"]
    evil = {
        "no class of placeholders": {key: fit[key] for key in fit if key != "priorityClassName"},
        "somebody's account": fit | {"serviceAccountName": "theirs"},
        "a token": fit | {"automountServiceAccountToken": True},
        "a Secret": fit | {"volumes": [{"name": "v", "secret": {"secretName": "x"}}]},
        "a Secret among others": fit | {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "x"}}]}}]},
        "somebody's volume": fit | {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]},
        "the node's files": fit | {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        "a Secret as a variable": fit | {"containers": [container | {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}]}]},
        "a Secret's variables": fit | {"initContainers": [container | {"name": "first", "envFrom": [{"secretRef": {"name": "x"}}]}]},
        "privileges": fit | {"containers": [container | {"securityContext": {"privileged": True}}]},
        "a capability": fit | {"containers": [container | {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
        "the node's network": fit | {"hostNetwork": True},
        "the node's processes": fit | {"hostPID": True},
        "somebody's claim": fit | {"resourceClaims": [{"name": "c", "resourceClaimName": victim["status"]["resourceClaimStatuses"][0]["resourceClaimName"]}]},
    }
    for what, spec in ({"a placeholder": fit} | evil).items():
        answer = await session.call("POST", f"/api/v1/namespaces/{NS}/pods?dryRun=All", {"metadata": {"name": "x"}, "spec": spec})
        if what == "a placeholder":
            assert answer.status == 201, answer
        else:
            assert answer.status in (403, 422), (what, answer)
            # (The lab's API server lets nobody have privileges, and says so first.)
            assert any(guard in answer.body["message"] for guard in ("restow-guard-placeholders", "restow-guard-holds")) or what == "privileges", (what, answer)
    await world.budget(1)
    one = await ended(stack, move, 120)
    assert one["step"] == "landed", one


async def test_a_session_that_is_killed_at_the_hand_over_lands_it_when_it_is_back(world: World, stack: Running) -> None:
    victim = await with_devices(world, stack)
    await world.budget(0)
    move = await migrate(stack, victim, "b")
    await held(world)
    await crowd(world)
    killed = at_the_hand_over(world, lambda: kill(stack, SESSION))
    await world.budget(1)
    one = await ended(stack, move, 120)
    assert killed.is_set()
    assert one["step"] == "landed", one
    await world.stands("victim", ["b"])


async def test_it_lands_while_scheduler_and_controllers_are_killed_at_the_hand_over(world: World, stack: Running, lab: Lab) -> None:
    victim = await with_devices(world, stack)
    await world.budget(0)
    move = await migrate(stack, victim, "b")
    await held(world)
    await crowd(world)

    def stop() -> None:
        lab.stop("scheduler", hard=True)
        lab.stop("controllers", hard=True)

    killed = at_the_hand_over(world, stop)
    await world.budget(1)
    await world.until(killed.is_set, "it is nominated")
    await asyncio.sleep(2)
    lab.start_scheduler()
    lab.start_controllers(lab.work / "kubeconfig")
    one = await ended(stack, move, 180)
    assert one["step"] == "landed", one
    await world.stands("victim", ["b"])


async def test_ten_moves_at_once_land_while_thirty_wait_for_their_devices(world: World, stack: Running) -> None:
    await world.node("a", gpus=0)
    await publish(world, "a", [gpu(number) for number in range(10)])
    await template(world)
    await world.workload("deployments", "victim", 10, claiming(), 0.2)
    victims = await world.running("victim", 10)
    await world.node("b", gpus=0)
    await publish(world, "b", [gpu(number) for number in range(10)])
    await known(stack, victims)
    await seen(stack, "their devices, and those of b", lambda state: claim_devices(state).by_driver() == {DRIVER: Count(20, 10, 10, 20, 10)})
    await world.budget(0)
    moves = [await migrate(stack, victim, "b") for victim in victims]
    await world.until(lambda: len([pod for pod in world.pods.values() if holds(pod) and pod["status"].get("phase") == "Running"]) == 10, "ten placeholders run")
    await world.replicaset("crowd", 30, claiming())
    await world.unschedulable("crowd", 30)
    await world.budget(10)
    over = [await ended(stack, move, 180) for move in moves]
    assert [one for one in over if one["step"] != "landed"] == []
    await world.stands("victim", ["b"] * 10)
    await world.until(lambda: sorted(world.where("crowd")) == ["a"] * 10 + ["waits"] * 20, "those who wait get what was left, and no more")
    await until(world, lambda claims: sorted(len(one.get("status", {}).get("reservedFor") or ()) for one in claims) == [0] * 20 + [1] * 20, "each device is one pod's")


async def test_a_pod_with_two_devices_by_one_claim_lands_with_two_while_others_wait_for_them(world: World, stack: Running) -> None:
    await world.node("a", gpus=0)
    await publish(world, "a", [gpu(0), gpu(1)])
    await template(world, count=2)
    await template(world, "single")
    await world.workload("deployments", "victim", 1, claiming(), 0.2)
    (victim,) = await world.running("victim", 1)
    for name, devices in (("b", [gpu(0), gpu(1), gpu(2)]), ("c", [gpu(0)])):
        await world.node(name, gpus=0)
        await publish(world, name, devices)
    await known(stack, [victim])
    await seen(stack, "its devices, and those of b and c", lambda state: len(claim_devices(state).on("b")) == 3 and len(claim_devices(state).on("c")) == 1 and len(claim_devices(state).on("a")) == 2)
    with pytest.raises(urllib.error.HTTPError, match="had too few free devices like those that its claim has"):
        await asyncio.to_thread(posted, stack, "/migrations", {"pod": f"{NS}/{victim['metadata']['name']}", "target": "c"})
    await world.budget(0)
    move = await migrate(stack, victim, "b")
    placeholder = await held(world)
    await world.replicaset("crowd", 20, claiming("single"))
    await placed(world, "crowd", 2)
    await world.budget(1)
    one = await ended(stack, move)
    assert one["step"] == "landed", one
    await world.stands("victim", ["b"])
    (successor,) = await world.running("victim")
    assert [said["resourceClaimName"] for said in successor["status"]["resourceClaimStatuses"]] == [said["resourceClaimName"] for said in placeholder["status"]["resourceClaimStatuses"]]
    await placed(world, "crowd", 4)
    assert sorted(world.where("crowd")) == ["a", "a", "b", "c"] + ["waits"] * 16


async def test_where_no_device_is_free_nobody_is_evicted(world: World, stack: Running) -> None:
    victim = await with_devices(world, stack)
    await world.cordon("a")
    await world.pod("taker", claiming())
    await placed(world, "taker", 1)

    await seen(stack, "that the device is somebody's", lambda state: not claim_devices(state).on("b")[0].free)
    with pytest.raises(urllib.error.HTTPError, match="had too few free devices like those that its claim has"):
        await asyncio.to_thread(posted, stack, "/migrations", {"pod": f"{NS}/{victim['metadata']['name']}", "target": "b"})


def cut(gpu: str = "gpu-0") -> list[Obj]:
    """A GPU that can be had whole, in halves, or in quarters."""

    def part(name: str, first: int, many: int) -> Obj:
        counters = {f"slice-{i}": {"value": "1"} for i in range(first, first + many)}
        return {"name": name, "attributes": {"type": {"string": "gpu"}, "size": {"int": many}}, "consumesCounters": [{"counterSet": gpu, "counters": counters}]}

    return [part("whole", 0, 4), *(part(f"half-{i}", 2 * i, 2) for i in range(2)), *(part(f"quarter-{i}", i, 1) for i in range(4))]


async def test_a_plan_frees_whole_gpus_of_their_slices(world: World, stack: Running) -> None:
    """A half is on a, a quarter on b, and one on c: in the end all are on one node, as it was foreseen."""
    for name, size in (("half", 2), ("quarter", 1)):
        await template(world, name, selectors=[{"cel": {"expression": f"device.attributes['{DRIVER}'].size == {size}"}}])
    pods = []
    for on, kind in (("a", "half"), ("b", "quarter"), ("c", "quarter")):
        await world.node(on, gpus=0)
        await publish(world, on, cut(), part=0, parts=2)
        await publish(world, on, [], part=1, parts=2, sharedCounters=[{"name": "gpu-0", "counters": {f"slice-{i}": {"value": "1"} for i in range(4)}}])
        await world.workload("deployments", f"on-{on}", 1, claiming(kind), 0.2)
        pods += await world.running(f"on-{on}", 1)
        await world.cordon(on)
    for on in "abc":
        await world.cordon(on, on=False)
    await known(stack, pods)
    await seen(stack, "three GPUs, all of them cut", lambda state: claim_devices(state).by_driver() == {DRIVER: Count(21, 3, claim_devices(state).by_driver()[DRIVER].free, 3, 0)} and all(claim_devices(state).reserved_for(pod["metadata"]["uid"]) for pod in pods))
    for move in await plan(stack, 2):
        one = await ended(stack, move, 120)
        assert one["step"] == "landed", one
    assert [world.where(f"on-{on}") for on in "abc"] == [["b"]] * 3
    await seen(stack, "two of them are whole again", lambda state: claim_devices(state).by_driver()[DRIVER].free_wholes == 2)
