"""A Kubernetes API that somebody else runs: reach it, and give it the CRDs that it lacks. What is there is never changed."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from restow.kube.client import ApiStatus, Client, ClientConfig, ClientConfigError, Query, connect
from restow.kube.retry import Backoff, retrying

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLL = 0.1
"""Seconds between looks at a definition that is not served yet."""


class OutsideError(Exception):
    """The API cannot be used. Says which one and why."""


async def install(kube: str, files: Iterable[Path], timeout: float) -> None:
    """Create the definitions in `files` that are missing, and wait until all are served. Raises OutsideError."""
    config = ClientConfig(url=kube) if kube.startswith(("http://", "https://")) else ClientConfig(kubeconfig=kube)
    try:
        async with await connect(config) as client, asyncio.timeout(timeout):
            wanted = [yaml.safe_load(path.read_text()) for path in files]
            for crd in wanted:
                await _create(client, crd)
            for crd in wanted:
                while not await _served(client, crd):
                    await asyncio.sleep(POLL)
    except ClientConfigError as error:
        raise OutsideError(str(error)) from error
    except ApiStatus as error:
        raise OutsideError(f"the Kubernetes API at {kube} does not take the CRDs: {error}") from error
    except TimeoutError as error:
        raise OutsideError(f"the CRDs were not established at {kube} within {timeout:g} s") from error


async def _create(client: Client, crd: dict[str, Any]) -> None:
    if await _get(client, _path(crd)) is not None:
        return
    try:
        await client.create(CRDS, crd)
    except ApiStatus as error:
        if error.code != 409:
            raise


async def _served(client: Client, crd: dict[str, Any]) -> bool:
    """Established, and answering: a server may take a moment from one to the other."""
    there = await _get(client, _path(crd)) or {}
    conditions = (there.get("status") or {}).get("conditions") or ()
    if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
        return False
    spec = crd["spec"]
    found = [
        await _get(client, f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}", (("limit", "1"),))
        for version in spec["versions"]
        if version["served"]
    ]
    return None not in found


async def _get(client: Client, path: str, query: Query = ()) -> dict[str, Any] | None:
    async def attempt() -> dict[str, Any] | None:
        try:
            return msgspec.json.decode(await client.get(path, query))
        except ApiStatus as error:
            if error.code == 404:
                return None
            raise

    return await retrying(attempt, Backoff(attempts=10))


def _path(crd: dict[str, Any]) -> str:
    return f"{CRDS}/{crd['metadata']['name']}"
