"""A scheduler that fails to bind a successor, as while etcd does not answer: kube-scheduler takes its nomination away, and tries it again after a second or more, on any node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.services import ended, migrate, victims
from kubernetes.world import NS, World

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.slow]
ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
NAME = "no-binds"


@contextlib.asynccontextmanager
async def no_binds(world: World, app: str) -> AsyncIterator[None]:
    """The API refuses to bind its pods."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}]
    spec = {
        "matchConstraints": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NS}}, "resourceRules": rules},
        "validations": [{"expression": f"!object.metadata.name.startsWith('{app}-')", "message": "not now"}],
    }
    await world.api.ok("POST", f"{ADMISSION}ies", {"metadata": {"name": NAME}, "spec": spec})
    await world.api.ok("POST", f"{ADMISSION}ybindings", {"metadata": {"name": NAME}, "spec": {"policyName": NAME, "validationActions": ["Deny"]}})
    try:
        await _counts(world, f"{app}-")
        yield
    finally:
        await world.api.call("DELETE", f"{ADMISSION}ybindings/{NAME}")
        await world.api.call("DELETE", f"{ADMISSION}ies/{NAME}")


async def _counts(world: World, prefix: str) -> None:
    """The API server has heard of it."""
    binding = {"metadata": {"name": f"{prefix}nobody"}, "target": {"kind": "Node", "name": "source"}}
    for _ in range(300):
        said = await world.api.call("POST", f"/api/v1/namespaces/{NS}/pods/{prefix}nobody/binding", binding)
        if "not now" in str(said.body):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"binds are not refused: {said.body}")


async def test_a_successor_that_cannot_be_bound_for_a_while_lands_though_emptier_nodes_exist(world: World, stack: Running) -> None:
    pods = await victims(world, stack)
    failed = 0

    def told(kind: str, pod: Any) -> None:
        nonlocal failed
        failed += any(one.get("reason") == "SchedulerError" and not pod["status"].get("nominatedNodeName") for one in pod["status"].get("conditions") or ())

    world.told.append(told)
    async with no_binds(world, "victim"):
        move = await migrate(stack, pods[0], "target-0")
        for i in range(5):
            await world.node(f"other-{i}")
        await world.budget(1)
        await world.gone(pods)
        await world.until(lambda: failed >= 2, "its scheduler has failed twice to bind it, and taken the nomination away")
    over = await ended(stack, move)
    assert (over["step"], over["reason"]) == ("landed", "")
    await world.stands("victim", ["target-0"])
