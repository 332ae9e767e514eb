"""EvictionRequests (KEP-4563) in Kubernetes 1.37: its API server keeps them, and nothing of its control plane reads them. So Restow makes none, and pods that name
responders stay. Skipped with binaries of other versions: `tests/kubernetes/build.sh FOLDER 37.2` builds these."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.error import HTTPError

import pytest
from e2e.stack import Running
from kubernetes.lab import Lab, assets, minor, own
from kubernetes.services import ended, known, migrate
from kubernetes.world import NS, Obj, World, pod_spec

from restow.domain.movable import MOVABLE

SERVED = "lifecycle.k8s.io/v1alpha1"
API = f"/apis/{SERVED}/namespaces/{NS}"
RESPONDERS = [{"name": "checkpoints.example.com/saver", "priority": 10000}]
IGNORED = 20.0
"""Seconds in which nothing comes of a request. A control plane that reads it (1.38.0-beta.0) gives its first word after three at most."""


@pytest.fixture(scope="module", name="lab")
def with_requests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder, why = assets()
    if folder is None:
        pytest.skip(why)
    if (found := minor(folder)) != 37:
        pytest.skip(f"this is Kubernetes 1.{found}; EvictionRequests are served and read by nobody in 1.37 only")
    with own(tmp_path_factory, "requests", features="EvictionRequestAPI=true", apis=f"{SERVED}=true") as one:
        one.install()
        yield one


async def named(world: World, app: str, annotations: dict[str, str] | None = None) -> Obj:
    """A pod on `source` that names a responder; there is a node for it to go to."""
    await world.node("source", gpus=1)
    await world.workload("deployments", app, 1, pod_spec(evictionResponders=RESPONDERS), 0.2, annotations=annotations)
    (pod,) = await world.running(app)
    assert pod["spec"]["evictionResponders"] == RESPONDERS, "the API server keeps the field"
    await world.node("target", gpus=1)
    return pod


async def test_a_request_is_kept_and_nobody_acts_on_it(world: World) -> None:
    pod = await named(world, "asked")
    target = {"pod": {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}}
    spec = {"requester": "restow.dev/descheduler", "intent": "Eviction", "target": target}
    await world.api.ok("POST", f"{API}/evictionrequests", {"metadata": {"name": "one"}, "spec": spec})
    try:
        await asyncio.sleep(IGNORED)
        kept = await world.api.ok("GET", f"{API}/evictionrequests/one")
        assert kept["spec"] == spec
        assert not kept.get("status"), "nobody has looked at it"
        assert (await world.api.ok("GET", f"{API}/evictions"))["items"] == []
        assert (pod["metadata"]["uid"], "ending") not in world.at
    finally:
        await world.api.call("DELETE", f"{API}/evictionrequests/one")


@pytest.mark.usefixtures("nothing_is_left")
async def test_a_pod_that_names_responders_stays(world: World, stack: Running) -> None:
    pod = await named(world, "stays")
    await known(stack, [pod])
    with pytest.raises(HTTPError) as refusal:
        await migrate(stack, pod, "target")
    assert "spec.evictionResponders names checkpoints.example.com/saver" in refusal.value.msg
    assert (pod["metadata"]["uid"], "ending") not in world.at


@pytest.mark.usefixtures("nothing_is_left")
async def test_where_it_is_said_to_be_movable_it_lands_and_no_request_is_made(world: World, stack: Running) -> None:
    pod = await named(world, "movable", {MOVABLE: "true"})
    await known(stack, [pod])
    over = await ended(stack, await migrate(stack, pod, "target"))
    assert over["step"] == "landed", over
    await world.stands("movable", ["target"])
    assert (await world.api.ok("GET", f"{API}/evictionrequests"))["items"] == []
