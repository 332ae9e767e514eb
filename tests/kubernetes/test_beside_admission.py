"""What a cluster's other admission does to a move beside the stock scheduler: quotas, LimitRanges, Pod Security, and mutations of others, in the pod's namespace and in
that of the placeholders. Either the pod lands, or a reason that its user understands says why not; nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab
from kubernetes.services import POLICY, ended, known, migrate, services
from kubernetes.world import NS, World, pod_spec, restricted
from kubesim.conformance.harness import MERGE

from restow.domain.verdicts import NOBODY_FOLLOWED

pytestmark = pytest.mark.usefixtures("nothing_is_left")
HOLDS = "restow-holds"


@pytest.fixture(scope="module", name="stack")
def running_stack(lab: Lab, kubelets: Kubelets) -> Iterator[Running]:
    with services(lab, POLICY.replace("holdDeadline: 60s", "holdDeadline: 6s") + "  landDeadline: 8s\n") as running:
        yield running


async def victim(world: World, stack: Running, spec: dict[str, Any] | None = None) -> Any:
    """It runs on `source`; `target` has room for one."""
    await world.node("source", gpus=1)
    await world.workload("deployments", "victim", 1, spec or pod_spec(), 0.2)
    (pod,) = await world.running("victim")
    await world.node("target", gpus=1)
    await known(stack, [pod])
    return pod


async def moved(stack: Running, pod: Any) -> tuple[str, str, str]:
    """How its move ends: step, reason, and all that `restow why` says."""
    move = await migrate(stack, pod, "target")
    one = await ended(stack, move)
    said = await asyncio.to_thread(stack.restow, "why", f"migration/{move}")
    return one["step"], one["reason"], " ".join(said.split())


async def landed(world: World, stack: Running, pod: Any) -> None:
    step, _, said = await moved(stack, pod)
    assert step == "landed", said
    await world.stands("victim", ["target"])


async def stays(world: World, stack: Running, pod: Any, reason: str, *words: str) -> None:
    """Its move fails before the eviction, and `restow why` says these words."""
    step, why, said = await moved(stack, pod)
    assert (step, why) == ("failed", reason), said
    assert [word for word in words if word not in said] == [], said
    await world.stands("victim", ["source"])
    assert (pod["metadata"]["uid"], "ending") not in world.at


async def nobody_followed(stack: Running, pod: Any) -> None:
    step, _, said = await moved(stack, pod)
    assert step == "not_recreated", said
    assert NOBODY_FOLLOWED in said


@contextlib.asynccontextmanager
async def there(world: World, path: str, body: dict[str, Any]) -> AsyncIterator[None]:
    """Made, and gone afterwards."""
    await world.api.ok("POST", path, body)
    try:
        yield
    finally:
        await world.api.ok("DELETE", f"{path}/{body['metadata']['name']}")


async def admission(world: World, namespace: str, wanted: Callable[[int, str], bool]) -> None:
    """What it does to a new pod by now (a dry run): status and text."""
    pod = {"metadata": {"generateName": "asks-"}, "spec": restricted(pod_spec())}
    for _ in range(300):
        answer = await world.api.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
        if wanted(answer.status, json.dumps(answer.body)):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"admission does not do that: {answer}")


def limits(namespace: str, **limit: Any) -> tuple[str, dict[str, Any]]:
    body = {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Container", **limit}]}}
    return f"/api/v1/namespaces/{namespace}/limitranges", body


def quota(namespace: str, **hard: str) -> tuple[str, dict[str, Any]]:
    return f"/api/v1/namespaces/{namespace}/resourcequotas", {"metadata": {"name": "quota"}, "spec": {"hard": hard}}


async def counted(world: World, namespace: str, **used: str) -> None:
    """The quota's controller has counted."""
    for _ in range(300):
        status = (await world.api.ok("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/quota")).get("status", {})
        if status.get("used") == used:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not counted: {status}")


MUTATIONS = {
    "annotation": 'metadata: Object.metadata{annotations: {"theirs": "theirs-mark"}}',
    "sidecar": 'spec: Object.spec{containers: [Object.spec.containers{name: "theirs-mark", image: "i", '
    'resources: Object.spec.containers.resources{requests: {"cpu": "50m"}}}]}',
    "init": 'spec: Object.spec{initContainers: [Object.spec.initContainers{name: "theirs-mark", image: "i", restartPolicy: "Always", '
    'resources: Object.spec.initContainers.resources{requests: {"cpu": "50m"}}}]}',
    "scheduler": 'spec: Object.spec{schedulerName: "theirs-mark"}',
    "less": 'metadata: Object.metadata{annotations: {"theirs": "theirs-mark"}}, '
    'spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, '
    'resources: Object.spec.containers.resources{requests: {"cpu": "1m"}}})}',
}
"""What somebody else's admission makes of a new pod; `init`: a sidecar, too. `less`: it requests less, as where nodes are oversold."""


@contextlib.asynccontextmanager
async def mutated(world: World, namespace: str, what: str) -> AsyncIterator[None]:
    """All new pods of a namespace, from now on."""
    matches = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    change = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": f"Object{{{MUTATIONS[what]}}}"}}
    spec = {"failurePolicy": "Fail", "reinvocationPolicy": "Never", "matchConstraints": matches, "mutations": [change]}
    policy, binding = ({"metadata": {"name": "theirs"}, "spec": one} for one in (spec, {"policyName": "theirs"}))
    path = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolic"
    async with there(world, f"{path}ies", policy):
        await world.api.ok("POST", f"{path}ybindings", binding)
        await admission(world, namespace, lambda status, text: "theirs-mark" in text)
        try:
            yield
        finally:
            await world.api.ok("DELETE", f"{path}ybindings/theirs")
            await admission(world, namespace, lambda status, text: "theirs-mark" not in text)


# -- the pod's namespace -----------------------------------------------------------------------------------------------


async def test_a_pod_of_a_namespace_whose_quota_is_exactly_full_lands(world: World, stack: Running) -> None:
    """Its successor is refused until it has gone, and made then."""
    pod = await victim(world, stack)
    async with there(world, *quota(NS, pods="1", **{"requests.nvidia.com/gpu": "1"})):
        await counted(world, NS, pods="1", **{"requests.nvidia.com/gpu": "1"})
        await landed(world, stack, pod)


async def test_a_pod_of_a_namespace_that_is_over_its_quota_is_not_moved(world: World, stack: Running) -> None:
    pod = await victim(world, stack)
    async with there(world, *quota(NS, pods="0")):
        await counted(world, NS, pods="1")
        for _ in range(100):
            try:
                await asyncio.to_thread(stack.restow, "migrate", f"pod/{NS}/{pod['metadata']['name']}", "--to", "target", "--dry-run")
            except AssertionError as refusal:
                said = " ".join(str(refusal).split())
                break
            await asyncio.sleep(0.1)
        assert "its successor would not be made: ResourceQuota work/quota has more of pods in use than it allows" in said


async def test_a_pod_that_has_its_requests_from_a_limit_range_is_held_for_with_them_and_lands(world: World, stack: Running) -> None:
    spec = pod_spec()
    spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    asked: list[str] = []
    world.told.append(lambda kind, pod: asked.extend(c["resources"]["requests"]["cpu"] for c in pod["spec"]["containers"] if pod in world.placeholders()))
    async with there(world, *limits(NS, default={"cpu": "2", "memory": "1Gi"}, defaultRequest={"cpu": "1", "memory": "512Mi"})):
        await admission(world, NS, lambda status, text: '"cpu": "2"' in text)
        pod = await victim(world, stack, spec)
        await landed(world, stack, pod)
    assert "1" in asked


async def test_a_pod_that_the_api_would_not_make_again_says_where_to_look(world: World, stack: Running) -> None:
    """A LimitRange that came after the pod: nobody may ask the API before the eviction."""
    pod = await victim(world, stack)
    async with there(world, *limits(NS, max={"cpu": "50m"})):
        await admission(world, NS, lambda status, text: status == 422)
        await nobody_followed(stack, pod)


async def test_the_same_where_pod_security_came_after_the_pod(world: World, stack: Running) -> None:
    pod, enforce = await victim(world, stack), "pod-security.kubernetes.io/enforce"
    await world.api.ok("PATCH", f"/api/v1/namespaces/{NS}", {"metadata": {"labels": {enforce: "restricted"}}}, media=MERGE)
    try:
        await nobody_followed(stack, pod)
    finally:
        await world.api.ok("PATCH", f"/api/v1/namespaces/{NS}", {"metadata": {"labels": {enforce: None}}}, media=MERGE)


async def test_a_successor_that_somebody_annotates_lands(world: World, stack: Running) -> None:
    pod = await victim(world, stack)
    async with mutated(world, NS, "annotation"):
        await landed(world, stack, pod)


@pytest.mark.parametrize("what", ["sidecar", "init"])
async def test_a_successor_that_gets_a_sidecar_asks_for_more_than_is_held_and_runs_where_its_scheduler_puts_it(
    world: World, stack: Running, what: str
) -> None:
    pod = await victim(world, stack)
    await world.node("other", gpus=1)
    async with mutated(world, NS, what):
        await nobody_followed(stack, pod)
        await world.running("victim")


async def test_a_successor_that_gets_another_scheduler_is_nominated_and_let_go_to_it_and_who_did_not_bind_it_is_said(world: World, stack: Running) -> None:
    pod = await victim(world, stack)
    async with mutated(world, NS, "scheduler"):
        step, reason, said = await moved(stack, pod)
        assert (step, reason) == ("failed", "NotReady"), said
        assert "was not bound to target by theirs-mark in time" in said
        assert world.where("victim") == ["waits"]


# -- the placeholders' namespace ---------------------------------------------------------------------------------------


async def test_a_placeholder_that_somebody_annotates_holds(world: World, stack: Running) -> None:
    pod = await victim(world, stack)
    async with mutated(world, HOLDS, "annotation"):
        await landed(world, stack, pod)


async def test_a_placeholder_that_gets_a_sidecar_without_security_is_refused_and_the_pod_stays(world: World, stack: Running) -> None:
    pod = await victim(world, stack)
    async with mutated(world, HOLDS, "sidecar"):
        await stays(world, stack, pod, "HoldFailed", 'violates PodSecurity "restricted:latest"', 'container "theirs-mark"')


async def test_a_placeholder_that_gets_another_scheduler_is_never_bound_and_the_pod_stays(world: World, stack: Running) -> None:
    pod = await victim(world, stack)
    async with mutated(world, HOLDS, "scheduler"):
        await stays(world, stack, pod, "HoldTimeout", "node target was not held in time")


async def test_a_placeholder_that_is_made_smaller_holds_nothing_and_the_pod_stays(world: World, stack: Running) -> None:
    pod = await victim(world, stack)
    async with mutated(world, HOLDS, "less"):
        await stays(world, stack, pod, "HoldFailed", "somebody has changed its placeholder: it requests 1m of cpu, not 100m")


@pytest.mark.parametrize(("limit", "word"), [({"max": {"cpu": "50m"}}, "must be less than or equal to cpu limit of 50m"), ({"min": {"cpu": "1"}}, "minimum cpu usage per Container is 1")], ids=["max", "min"])  # fmt: skip
async def test_a_placeholder_that_a_limit_range_refuses_leaves_the_pod_where_it_is(world: World, stack: Running, limit: Any, word: str) -> None:
    pod = await victim(world, stack)
    async with there(world, *limits(HOLDS, **limit)):
        await admission(world, HOLDS, lambda status, text: status in (403, 422))
        await stays(world, stack, pod, "HoldFailed", word)


async def test_a_placeholder_that_a_quota_refuses_leaves_the_pod_where_it_is(world: World, stack: Running) -> None:
    pod = await victim(world, stack)
    async with there(world, *quota(HOLDS, pods="0")):
        await admission(world, HOLDS, lambda status, text: status == 403)
        await stays(world, stack, pod, "HoldFailed", "exceeded quota: quota, requested: pods=1, used: pods=0, limited: pods=0")
