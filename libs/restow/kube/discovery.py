"""What the API serves, by its own account: a collection that answers 404 may have been taken away, or may not be there yet."""

from typing import Any, TypeVar

import msgspec

from restow.kube.client import ApiStatus, Client, answered
from restow.kube.decode import Collection

T = TypeVar("T")


class _Version(msgspec.Struct):
    groupVersion: str


class _Group(msgspec.Struct):
    versions: list[_Version]


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource] | None = None


_group = msgspec.json.Decoder(_Group)
_resources = msgspec.json.Decoder(_Resources)


async def serving(client: Client, collection: Collection[Any]) -> list[str]:
    """The group versions that serve this collection's objects; none where its CRD is gone, and with it every object. Raises ApiStatus where
    the API does not say."""
    _, _, group, _, plural = collection.path.split("/")
    described = await _asked(client, f"/apis/{group}", _group)
    versions = [] if described is None else [version.groupVersion for version in described.versions]
    found = []
    for version in versions:
        served = await _asked(client, f"/apis/{version}", _resources)
        if served is not None and any(resource.name == plural for resource in served.resources or ()):
            found.append(version)
    return found


async def _asked(client: Client, path: str, decoder: msgspec.json.Decoder[T]) -> T | None:
    """None where there is nothing. Raises ApiStatus."""
    try:
        return answered(decoder, await client.get(path))
    except ApiStatus as status:
        if status.code == 404:
            return None
        raise
