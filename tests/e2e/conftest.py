"""Fixtures of the end-to-end suite. `stack` is one a worker and a kind of API; `world` is a test's own part of it.

Without configuration every test runs on kubesim, and those of `BARE` (two of them, unless RESTOW_TESTS=all) a second time: on kubesim without controllers behind TLS, where
`puppet` plays the controllers and kubelets (RESTOW_E2E=both: all of them do, which takes six minutes more). With KUBEBUILDER_ASSETS (a
folder with etcd and kube-apiserver) or KUBECONFIG each runs once, on that API server, with the same puppet.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from e2e.stack import Running, kinds, stack
from e2e.world import World, fresh
from kubesim.conformance.harness import Api

BARE = {"test_batch", "test_migration", "test_puppet", "test_seed_003", "test_volumes"}
"""Where it matters who plays the controllers: pods that end and are made again, gangs, claims."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("RESTOW_E2E") == "both":
        return
    twice = BARE if os.environ.get("RESTOW_TESTS") == "all" else BARE & {"test_puppet", "test_volumes"}
    once = [i for i in items if i.path.parent.name == "e2e" and "[bare" in i.name and i.path.stem not in twice]
    config.hook.pytest_deselected(items=once)
    left_out = set(once)
    items[:] = [i for i in items if i not in left_out]


@pytest.fixture(scope="session", name="stack", params=kinds())
def running_stack(request: pytest.FixtureRequest) -> Iterator[Running]:
    with stack(request.param) as running:
        yield running
        judged = running.judged()
        assert not judged.broken, f"{running.kind}: " + "\n".join(judged.broken[:40])


@pytest.fixture
async def world(stack: Running, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    only = request.node.get_closest_marker("simulated")
    if only and not stack.simulated:
        pytest.skip(f"cannot be arranged on a real API server: {only.args[0]}")
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        world = World(Api(stack.target, session), stack, fresh())
        await world.open()
        try:
            yield world
        finally:
            await world.close()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "simulated(reason): needs kubesim's scripted faults")
