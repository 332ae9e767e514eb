"""Effects on Reservation objects: create, delete, status. Idempotent, with typed outcomes (DESIGN 5)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from restow.domain.evolve.demand_slots import PLAN
from restow.domain.other_schedulers import LOG
from restow.kube import decode as d
from restow.kube import wire
from restow.kube.annotations import MIGRATION
from restow.kube.client import ApiStatus, Client, answered, path_of
from restow.kube.effects import Done, Failed, Gone, Refused, bounded
from restow.kube.retry import Backoff, Sleep

_COLLECTIONS: dict[str, d.Collection[Any]] = {
    "volcano": d.VOLCANO_RESERVATIONS,
    "koordinator": d.KOORDINATOR_RESERVATIONS,
}


class Written(wire.Wire):
    """A Reservation object as far as its status goes: what is there now, ours or somebody else's."""

    metadata: wire.Meta
    status: msgspec.Raw = msgspec.Raw()


STATUSES: dict[str, d.Collection[Written]] = {
    api: d.Collection(c.name, c.kind, c.path, Written, optional=True) for api, c in _COLLECTIONS.items()
}
"""Statuses of all Reservations, by API."""


class CrRef(msgspec.Struct, frozen=True):
    """A Reservation object; `api` as in `ReservationObserved`."""

    api: str
    namespace: str
    name: str
    uid: str


class Created(msgspec.Struct, frozen=True):
    """The object exists and is ours."""

    uid: str


class _Object(msgspec.Struct):
    metadata: dict[str, Any] = {}
    status: Any = None


CreateOutcome = Created | Refused | Failed
DeleteOutcome = Done | Refused | Failed
StatusOutcome = Done | Gone | Refused | Failed

_object = msgspec.json.Decoder(_Object)


OURS = (MIGRATION, PLAN, LOG)
"""Labels that say what an object was made for, and by which log."""


def _ours(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: labels[key] for key in OURS if key in labels}


class Reservations:
    """Effects on Reservations, through one client."""

    def __init__(self, client: Client, backoff: Backoff = Backoff(), sleep: Sleep = asyncio.sleep):
        self._client = client
        self._backoff = backoff
        self._sleep = sleep

    async def create(self, api: str, manifest: Mapping[str, Any]) -> CreateOutcome:
        """The manifest has a deterministic name. An object of that name with the same labels of ours (`OURS`) is success: the answer to
        an earlier attempt was lost. Another installation's is not."""
        meta = manifest["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        collection = _COLLECTIONS[api]

        async def attempt() -> CreateOutcome:
            try:
                made = answered(_object, await self._client.create(path_of(collection, namespace), manifest))
            except ApiStatus as status:
                if status.code != 409:
                    raise
                made = answered(_object, await self._client.get(path_of(collection, namespace, name)))
                ours, theirs = (_ours(m.get("labels") or {}) for m in (meta, made.metadata))
                if not ours or theirs != ours:
                    said = ", ".join(f"{key}={value}" for key, value in theirs.items()) or "none of our labels"
                    return Refused(409, "AlreadyExists", f"{name} exists, and is not the one that is wanted: it has {said}")
            return Created(str(made.metadata.get("uid", "")))

        return await self._bounded(attempt)

    async def delete(self, ref: CrRef) -> DeleteOutcome:
        """With the uid as precondition. An object that is gone, or replaced by another, is done."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": ref.uid}}

        async def attempt() -> DeleteOutcome:
            try:
                await self._client.delete(self._path(ref), options)
            except ApiStatus as status:
                if status.code not in (404, 409):
                    raise
            return Done()

        return await self._bounded(attempt)

    async def write_status(self, ref: CrRef, status: Mapping[str, Any]) -> StatusOutcome:
        """Makes the status equal to this one, with a merge patch of the difference, and without a call to write if there
        is none. Where the CRD has no /status, the object itself is patched."""

        async def attempt() -> StatusOutcome:
            return await patch_status(
                self._client, _COLLECTIONS[ref.api], ref.namespace, ref.name, ref.uid,
                lambda now: merge_difference(now or {}, status),
            )

        return await self._bounded(attempt)

    def _path(self, ref: CrRef) -> str:
        return path_of(_COLLECTIONS[ref.api], ref.namespace, ref.name)

    async def _bounded(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        return await bounded(attempt, self._backoff, self._sleep, passing=(409,))


async def patch_status(
    client: Client, collection: d.Collection[Any], namespace: str, name: str, uid: str, difference: Callable[[Any], Any]
) -> Done | Gone:
    """One attempt to patch what `difference` makes of the status that is there, nothing where that is None. The uid is a
    precondition. Where the CRD has no /status, the object itself is patched. Raises ApiStatus."""
    path = path_of(collection, namespace, name)
    try:
        there = answered(_object, await client.get(path))
        if there.metadata.get("uid") != uid:
            return Gone()
        change = difference(there.status)
        if change is None:
            return Done()
        patch = {"metadata": {"uid": uid}, "status": change}
        try:
            await client.patch(path_of(collection, namespace, name, "status"), patch)
        except ApiStatus as error:
            if error.code != 404:
                raise
            # The API says the same of an object that has gone meanwhile, and only one that is there may be patched instead.
            await client.get(path)
            await client.patch(path, patch)
        return Done()
    except ApiStatus as error:
        if error.code == 404:
            return Gone()
        raise


def merge_difference(now: Any, wanted: Any) -> Any:
    """The JSON merge patch that turns `now` into `wanted` (both of JSON), None if they are equal already."""
    if now == wanted:
        return None
    if not isinstance(now, Mapping) or not isinstance(wanted, Mapping):
        return wanted
    patch: dict[str, Any] = {name: None for name in now if name not in wanted}
    for name, value in wanted.items():
        if name not in now:
            patch[name] = value
        elif now[name] != value:
            patch[name] = merge_difference(now[name], value)
    return patch
