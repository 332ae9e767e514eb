"""The effect on PodGroups whose pods are moved (seed 003, 2.4.2): `spec.migrationInfo` first, then `status.migrationState`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from restow.kube import decode as d
from restow.kube.client import ApiStatus, Client, answered, path_of
from restow.kube.effects import Done, Gone, bounded
from restow.kube.reservation_objects import StatusOutcome, merge_difference, patch_status
from restow.kube.retry import Backoff, Sleep

Obj = dict[str, Any]
States = Callable[[str], Sequence[Obj]]
"""The phase that is there ("" for none) → the states to be written, in order."""


class _Group(msgspec.Struct):
    metadata: Obj = {}
    spec: Obj | None = None
    status: Obj | None = None


_group = msgspec.json.Decoder(_Group)


class GroupMoveEffects:
    def __init__(self, client: Client, backoff: Backoff = Backoff(), sleep: Sleep = asyncio.sleep):
        self._client = client
        self._backoff = backoff
        self._sleep = sleep

    async def write(self, namespace: str, name: str, uid: str, infos: Sequence[Obj], states: States) -> StatusOutcome:
        """Writes the difference, and nothing where there is none. The uid is a precondition."""

        async def attempt() -> StatusOutcome:
            path = path_of(d.POD_GROUPS, namespace, name)
            try:
                there = answered(_group, await self._client.get(path))
                if there.metadata.get("uid") != uid:
                    return Gone()
                if (there.spec or {}).get("migrationInfo") != infos:
                    await self._client.patch(path, {"metadata": {"uid": uid}, "spec": {"migrationInfo": list(infos)}})
            except ApiStatus as error:
                if error.code == 404:
                    return Gone()
                raise
            before = ((there.status or {}).get("migrationState") or {}).get("phase", "")
            for state in states(before):
                outcome = await self._write_state(namespace, name, uid, state)
                if isinstance(outcome, Gone):
                    return outcome
            return Done()

        return await bounded(attempt, self._backoff, self._sleep, passing=(409,))

    async def _write_state(self, namespace: str, name: str, uid: str, state: Obj) -> Done | Gone:
        def difference(there: Any) -> Any:
            now = (there or {}).get("migrationState")
            if now is not None and now.get("phase") == state["phase"]:
                return None
            return {"migrationState": merge_difference(now, state)}

        return await patch_status(self._client, d.POD_GROUPS, namespace, name, uid, difference)
