"""One look at a cluster: lists become facts, and facts a state. For commands that need no log."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from restow.domain.fold import apply
from restow.domain.state import ClusterState
from restow.kube import decode as d
from restow.kube.client import ApiStatus, Client
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown
from restow.kube.reflector import Upsert

PAGE = 500
"""Objects a page."""
_AGAIN = 3
"""How often a list is begun anew whose pages have become too old."""

NEEDED: tuple[d.Collection[Any], ...] = (d.NODES, d.PODS)
"""Without these there is nothing to look at."""
HELPFUL: tuple[d.Collection[Any], ...] = (
    d.NAMESPACES,
    d.PRIORITY_CLASSES,
    d.BUDGETS,
    d.CLAIMS,
    d.VOLUMES,
    d.STORAGE_CLASSES,
    d.CSI_NODES,
    d.NUMA,
    d.DEVICES,
)
"""What rules about pods read beside; who may not list one of them still gets a cautious answer."""


class Look(msgspec.Struct, frozen=True):
    """`unread`: collections that could not be listed, and why. `undecodable`: objects that could not be read; they are left out."""

    state: ClusterState
    unread: dict[str, str]
    undecodable: tuple[d.Undecodable, ...]


async def look(client: Client) -> Look:
    """Raises ApiStatus where nodes or pods cannot be listed."""
    unread: dict[str, str] = {}

    async def optional(collection: d.Collection[Any]) -> list[Any]:
        try:
            return await listed(client, collection)
        except ApiStatus as error:
            if error.code != 404 or not collection.optional:
                unread[collection.name] = str(error)
            return []

    found = await asyncio.gather(*(listed(client, c) for c in NEEDED), *(optional(c) for c in HELPFUL))
    state = ClusterState()
    batch = Batch(StateKnown(state))
    for collection, objects in zip((*NEEDED, *HELPFUL), found, strict=True):
        add(batch, collection, objects)
    apply(state, batch.events())
    return Look(state, dict(sorted(unread.items())), tuple(batch.undecodable))


def add(batch: Batch, collection: d.Collection[Any], objects: Iterable[Any]) -> None:
    for one in objects:
        batch.add(collection, Upsert(one))


async def listed(client: Client, collection: d.Collection[Any]) -> list[Any]:
    """All of a collection, page by page. Raises ApiStatus."""
    for attempt in range(_AGAIN):
        try:
            return await _pages(client, collection)
        except ApiStatus as error:
            if error.code != 410 or attempt == _AGAIN - 1:
                raise
        except d.DecodeError as error:
            raise ApiStatus(0, "Undecodable", str(error)) from None
    raise AssertionError


async def _pages(client: Client, collection: d.Collection[Any]) -> list[Any]:
    found: list[Any] = []
    more = ""
    while True:
        query = [("limit", str(PAGE)), *([("continue", more)] if more else [])]
        page = collection.page(await client.list_page(collection, query))
        found += page.items
        more = page.more
        if not more:
            return found
