"""Effects on the status of custom resources that several write to: only fields of ours are read, compared and patched."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from restow.kube import decode as d
from restow.kube.client import ApiStatus, Client, path_of
from restow.kube.crs import merge_difference
from restow.kube.effects import Done, Failed, Gone, Refused
from restow.kube.retry import Backoff, Sleep, retrying

StatusOutcome = Done | Gone | Refused | Failed
Wanted = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""The status that is there → our fields of what should be there. Fields that it does not name are left alone."""


class _Object(msgspec.Struct):
    metadata: dict[str, Any] = {}
    status: Any = None


_object = msgspec.json.Decoder(_Object)


class Statuses:
    """Of PodGroups and Queues, through one client."""

    def __init__(self, client: Client, backoff: Backoff = Backoff(), sleep: Sleep = asyncio.sleep):
        self._client = client
        self._backoff = backoff
        self._sleep = sleep

    async def write(self, collection: d.Collection[Any], namespace: str, name: str, uid: str, wanted: Wanted) -> StatusOutcome:
        """Patches the difference, and nothing where there is none. The uid is a precondition. Where the CRD has no /status
        (Volcano's has had none), the object itself is patched (DESIGN 6)."""
        path = path_of(collection, namespace, name)

        async def attempt() -> StatusOutcome:
            try:
                there = _object.decode(await self._client.get(path))
                if there.metadata.get("uid") != uid:
                    return Gone()
                now = there.status if isinstance(there.status, Mapping) else {}
                ours = wanted(now)
                difference = merge_difference({name: now[name] for name in ours if name in now}, ours)
                if difference is None:
                    return Done()
                await self._patch(collection, namespace, name, {"metadata": {"uid": uid}, "status": difference})
                return Done()
            except ApiStatus as error:
                if error.code == 404:
                    return Gone()
                raise

        return await self._bounded(attempt)

    async def _patch(self, collection: d.Collection[Any], namespace: str, name: str, patch: Any) -> None:
        try:
            await self._client.patch(path_of(collection, namespace, name, "status"), patch)
        except ApiStatus as error:
            if error.code != 404:
                raise
            await self._client.patch(path_of(collection, namespace, name), patch)

    async def _bounded(self, attempt: Any) -> Any:
        try:
            return await retrying(attempt, self._backoff, self._sleep)
        except ApiStatus as status:
            if status.transient or status.code == 409:
                return Failed(status.code, status.reason, status.message, status.retry_after)
            return Refused(status.code, status.reason, status.message)
