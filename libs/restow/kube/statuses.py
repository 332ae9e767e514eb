"""Effects on the status of custom resources that several write to: only fields of ours are read, compared and patched."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from restow.kube import decode as d
from restow.kube.client import Client
from restow.kube.effects import bounded
from restow.kube.reservation_objects import StatusOutcome, merge_difference, patch_status
from restow.kube.retry import Backoff, Sleep

Wanted = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""The status that is there → our fields of what should be there. Fields that it does not name are left alone."""


class Statuses:
    """Of PodGroups and Queues, through one client."""

    def __init__(self, client: Client, backoff: Backoff = Backoff(), sleep: Sleep = asyncio.sleep):
        self._client = client
        self._backoff = backoff
        self._sleep = sleep

    async def write(self, collection: d.Collection[Any], namespace: str, name: str, uid: str, wanted: Wanted) -> StatusOutcome:
        """Patches the difference, and nothing where there is none. The uid is a precondition. Where the CRD has no /status
        (Volcano's has had none), the object itself is patched (DESIGN 6)."""

        def difference(there: Any) -> Any:
            now = there if isinstance(there, Mapping) else {}
            ours = wanted(now)
            return merge_difference({field: now[field] for field in ours if field in now}, ours)

        async def attempt() -> StatusOutcome:
            return await patch_status(self._client, collection, namespace, name, uid, difference)

        return await bounded(attempt, self._backoff, self._sleep, passing=(409,))
