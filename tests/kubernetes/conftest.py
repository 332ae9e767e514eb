"""Fixtures of the tests on a real control plane: one a worker, unless a file has its own; `world` is a test's own, from empty to empty.

They are skipped, and say so, where KUBEBUILDER_ASSETS does not name a folder with all parts; `make test-kubernetes` builds one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

import aiohttp
import pytest
from e2e.stack import Running
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab, own
from kubernetes.left import nothing_is_left
from kubernetes.moves import Mover, until_gated
from kubernetes.services import services
from kubernetes.world import World
from kubesim.conformance.harness import Api, Target

from restow.kube.beside import Beside
from restow.kube.client import ClientConfig, connect
from restow.kube.gates import Gates
from restow.kube.node_marks import NodeMarks

E = TypeVar("E", Beside, Gates)


@pytest.fixture(scope="session", name="lab")
def running_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "lab") as one:
        one.install()
        yield one


@pytest.fixture(scope="module")
def kubelets(lab: Lab) -> Iterator[Kubelets]:
    one = Kubelets(lab.target)
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def accounts(lab: Lab) -> dict[str, Target]:
    return {service: lab.account(service) for service in ("scheduler-session", "descheduler")}


@pytest.fixture(scope="module", name="stack")
def running_stack(lab: Lab, kubelets: Kubelets) -> Iterator[Running]:
    """Restow's services."""
    with services(lab) as running:
        yield running


@pytest.fixture(name="nothing_is_left")
async def judged(world: World, stack: Running) -> AsyncIterator[None]:
    """Asked for by a file: after each of its tests."""
    yield
    await nothing_is_left(world)


@pytest.fixture
async def world(lab: Lab, kubelets: Kubelets) -> AsyncIterator[World]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_read=90)) as session:
        one = World(lab, kubelets, Api(lab.target, session))
        await one.open()
        try:
            yield one
        finally:
            await one.close()


@pytest.fixture
async def session(lab: Lab, accounts: dict[str, Target]) -> AsyncIterator[Beside]:
    async for one in effects(lab, accounts, "scheduler-session", Beside):
        yield one


@pytest.fixture
async def descheduler(lab: Lab, accounts: dict[str, Target]) -> AsyncIterator[Gates]:
    async for one in effects(lab, accounts, "descheduler", Gates):
        yield one


async def effects(lab: Lab, accounts: dict[str, Target], service: str, kind: type[E]) -> AsyncIterator[E]:
    """A service's, with the rights of its account."""
    async with await connect(ClientConfig(kubeconfig=str(lab.kubeconfig(accounts[service], service)))) as client:
        yield kind(client)


@pytest.fixture
async def mover(world: World, session: Beside, descheduler: Gates) -> Mover:
    await until_gated(descheduler)
    return Mover(world, session, descheduler)


@pytest.fixture
async def marks(lab: Lab) -> AsyncIterator[NodeMarks]:
    """With the rights of the descheduler's account."""
    lab.kubectl("apply", "-k", "deploy/autoscalers")
    await asyncio.sleep(2)
    async with await connect(ClientConfig(kubeconfig=str(lab.kubeconfig(lab.account("descheduler"), "descheduler")))) as client:
        yield NodeMarks(client)
    lab.kubectl("delete", "-k", "deploy/autoscalers", "--timeout=60s")
