"""Fixtures of the conformance suite: `api` and a namespace `ns` of one's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from kubesim.conformance.harness import (
    Api,
    Target,
    apiserver,
    configured,
    from_kubeconfig,
    has_controllers,
    unique,
)

from restow.kubesim.testing import kubesim


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target | None]:
    """The real server that the environment names, or None for kubesim."""
    found = configured()
    if found is None:
        yield None
    elif found[0] == "kubeconfig":
        target = from_kubeconfig(found[1])
        yield target if has_controllers(target) else replace(target, kind="apiserver")
    else:
        with apiserver(found[1], tmp_path_factory.mktemp("apiserver")) as target:
            yield target


@pytest.fixture
async def api(real: Target | None, request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """The API under test. `needs_controllers` skips where nothing but an API server runs."""
    marker = request.node.get_closest_marker("needs_controllers")
    only = request.node.get_closest_marker("kubesim_only")
    if real is not None:
        if marker and real.kind == "apiserver":
            pytest.skip(f"a bare kube-apiserver has no controllers: {marker.args[0]}")
        if only:
            pytest.skip(f"cannot be arranged from outside: {only.args[0]}")
        async with aiohttp.ClientSession() as session:
            yield Api(real, session)
        return
    async with kubesim() as server, aiohttp.ClientSession() as session:
        yield Api(Target("kubesim", server.url), session)


@pytest.fixture
async def ns(api: Api) -> AsyncIterator[str]:
    """A namespace of the test's own, removed afterwards."""
    name = unique("ks")
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    await remove_namespace(api, name)


async def remove_namespace(api: Api, name: str) -> None:
    await api.call("DELETE", f"/api/v1/namespaces/{name}")
    if api.target.kind == "apiserver":
        # Nobody else empties it there.
        for plural in ("pods", "configmaps"):
            path = f"/api/v1/namespaces/{name}/{plural}"
            await api.call("DELETE", f"{path}?gracePeriodSeconds=0")
        body: dict[str, Any] = {"metadata": {"name": name}, "spec": {"finalizers": []}}
        await api.call("PUT", f"/api/v1/namespaces/{name}/finalize", body)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_controllers(reason): needs more than an API server")
    config.addinivalue_line("markers", "kubesim_only(reason): cannot be arranged on a real server")
