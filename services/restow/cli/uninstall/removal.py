"""Takes Restow out of a cluster, through the API alone. Every step looks anew, so that it may be broken off and begun again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from restow.cli.kubeapi import UNSERVED, objects
from restow.cli.uninstall.inventory import (
    AFTER,
    BEFORE,
    DEFINITIONS,
    NODES,
    PODS,
    Kind,
    Object,
    Stage,
    applied,
    gated,
    labels,
    marks,
    unmarked,
)
from restow.domain.beside import GATE
from restow.domain.other_schedulers import LOG
from restow.kube.client import ApiStatus, Client

SETTLED = 2.0
"""Seconds after which every API server has heard that the policy is gone: each follows it by a watch of its own."""
PATIENCE = 120.0
"""Seconds in which the objects of one stage must have gone."""
LOOK = 0.5
MOST = 500
"""Characters of what keeps it."""
_NO_ANSWER = (0, 401, 429)
"""To whatever is asked."""


class Done(NamedTuple):
    """One thing that was done, or would be. `action`: delete, ungate, unmark, keep."""

    action: str
    kind: str
    namespace: str
    name: str
    why: str = ""

    @property
    def named(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Stuck(Exception):
    """What does not go in time, or what the API refuses."""


Say = Callable[[Done], None]


class Removal:
    """`dry`: says what it would do. `reservations`: also definitions of which people have made objects. Raises ApiStatus, Stuck."""

    def __init__(self, client: Client, say: Say, *, dry: bool, reservations: bool, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._client, self._say, self._dry, self._reservations, self._sleep = client, say, dry, reservations, sleep

    async def run(self) -> None:
        for stage in BEFORE:
            await self._stage(stage)
        await self._ungate()
        await self._unmark_nodes()
        for stage in AFTER:
            await self._stage(stage)
        await self._define()

    # -- objects ---------------------------------------------------------------------------------------------------------

    async def _stage(self, stage: Stage) -> None:
        told: set[str] = set()
        waited = 0.0
        while True:
            left = [(kind, item) async for kind, item in self._ours(stage)]
            new = {item["metadata"]["uid"]: (kind, item) for kind, item in reversed(left) if item["metadata"]["uid"] not in told}
            told.update(new)
            if refused := [why for kind, item in reversed(new.values()) if (why := await self._delete(kind, item))]:
                raise Stuck(_sentence(refused))
            if self._dry or not left:
                return
            if waited >= PATIENCE:
                raise Stuck(f"{stage.title}: not within {PATIENCE:g} s: {', '.join(_said('', *one).named for one in left[:5])}")
            await self._sleep(LOOK)
            waited += LOOK

    async def _ours(self, stage: Stage) -> AsyncIterator[tuple[Kind, Object]]:
        for kind in stage.kinds:
            async for item in self._listed(kind.path):
                if kind.ours(item):
                    yield kind, item

    async def _delete(self, kind: Kind, item: Object) -> str:
        """Why the API refuses it. Its uid is the precondition. One that terminates is waited for."""
        meta = item["metadata"]
        if meta.get("deletionTimestamp"):
            return ""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta["uid"]}, "propagationPolicy": "Background"}
        if not self._dry and (why := await self._refused(self._client.delete(_path(kind.path, meta), options), kind, item)):
            return why
        self._say(_said("delete", kind, item))
        return ""

    # -- pods of others --------------------------------------------------------------------------------------------------

    async def _ungate(self) -> None:
        """Until nobody is gated: the policy may have reached a pod after it was deleted, on a server that had not heard of it. One that cannot be freed
        keeps no other waiting, for nobody else frees them any more; it may also have been replaced by another of its name, and is looked at again."""
        first, waited = True, 0.0
        while True:
            found = [pod async for pod in self._listed(PODS.path) if gated(pod) or marks(pod)]
            refused = [why for pod in found if (why := await self._free(pod))]
            if refused and not first:
                raise Stuck(_sentence(refused))
            if self._dry or (not first and not any(map(gated, found))):
                return
            if waited >= PATIENCE:
                raise Stuck(f"pods are gated again and again: {', '.join(_said('', PODS, pod).named for pod in found if gated(pod)) or 'none now'}"[:MOST])
            first = False
            await self._sleep(SETTLED)
            waited += SETTLED

    async def _free(self, pod: Object) -> str:
        """Why the API refuses it; empty where it does not."""
        meta, left = pod["metadata"], marks(pod)
        patch: dict[str, Any] = {"metadata": {"uid": meta["uid"]}}
        if gated(pod):
            patch["spec"] = {"schedulingGates": [{"$patch": "delete", "name": GATE}]}
        if left:
            patch["metadata"]["annotations"] = dict.fromkeys(left)
        if not self._dry and (why := await self._refused(self._client.patch(_path(PODS.path, meta), patch, "strategic"), PODS, pod)):
            return why
        if gated(pod):
            self._say(_said("ungate", PODS, pod))
        if left:
            self._say(_said("unmark", PODS, pod, ", ".join(left)))
        return ""

    async def _unmark_nodes(self) -> None:
        """What services have set for autoscalers to see, and what else they have cordoned. A node may change between reading and writing."""
        waited = 0.0
        while found := [(node, patch) async for node in self._listed(NODES.path) if (patch := unmarked(node))]:
            refused = [why for node, patch in found if (why := await self._unmark(node, patch))]
            if refused:
                raise Stuck(_sentence(refused))
            if self._dry:
                return
            if waited >= PATIENCE:
                raise Stuck(f"nodes keep their marks: {', '.join(node['metadata']['name'] for node, _ in found[:5])}")
            await self._sleep(LOOK)
            waited += LOOK

    async def _unmark(self, node: Object, patch: dict[str, Any]) -> str:
        """Why the API refuses it."""
        if not self._dry and (why := await self._refused(self._client.patch(_path(NODES.path, node["metadata"]), patch), NODES, node)):
            return why
        self._say(_said("unmark", NODES, node, ", ".join(patch["metadata"]["annotations"])))
        return ""

    # -- definitions -----------------------------------------------------------------------------------------------------

    async def _define(self) -> None:
        """Deleting a definition deletes every object of it. One that Volcano or Koordinator has installed is not ours."""
        kept: set[str] = set()
        async for item in self._listed(DEFINITIONS.path):
            if not DEFINITIONS.ours(item):
                continue
            theirs = await self._made_by_people(item)
            if theirs and not self._reservations:
                kept.add(item["metadata"]["name"])
                why = f"{theirs} of its objects {'was' if theirs == 1 else 'were'} not made by Restow, and would be deleted with it"
                self._say(_said("keep", DEFINITIONS, item, why))
        await self._stage(
            Stage("the definitions are gone", (DEFINITIONS._replace(ours=lambda item: DEFINITIONS.ours(item) and item["metadata"]["name"] not in kept),))
        )

    async def _made_by_people(self, definition: Object) -> int:
        spec = definition["spec"]
        if not applied(definition) or spec["group"] == "restow.dev":
            return 0
        served = next((version["name"] for version in spec["versions"] if version["served"]), "")
        path = f"/apis/{spec['group']}/{served}/{spec['names']['plural']}"
        return len([item async for item in self._listed(path) if LOG not in labels(item)])

    # -- requests --------------------------------------------------------------------------------------------------------

    async def _listed(self, path: str) -> AsyncIterator[Object]:
        """Page by page; nothing where nobody serves the kind."""
        try:
            async for item in objects(self._client, path):
                yield item
        except ApiStatus as status:
            if status.code not in UNSERVED:
                raise

    async def _refused(self, request: Awaitable[bytes], kind: Kind, item: Object) -> str:
        """Why the API will not do it; empty where it has, or the object is gone: another of its name is looked at when everything is listed again. What is
        refused for one keeps no other waiting, for nobody else takes care of them any more. Raises ApiStatus where the API does not answer at all."""
        try:
            await request
        except ApiStatus as status:
            if status.code in _NO_ANSWER:
                raise
            return "" if status.code in (404, 409) else f"{_said('', kind, item).named}: {status}"
        return ""


def _sentence(refused: list[str]) -> str:
    return f"not allowed: {'; '.join(refused)}"[:MOST]


def _path(collection: str, meta: Object) -> str:
    prefix, name = collection.rsplit("/", 1)
    where = f"/namespaces/{quote(meta['namespace'], safe='')}" if meta.get("namespace") else ""
    return f"{prefix}{where}/{name}/{quote(meta['name'], safe='')}"


def _said(action: str, kind: Kind, item: Object, why: str = "") -> Done:
    meta = item["metadata"]
    return Done(action, kind.name, meta.get("namespace") or "", meta["name"], why)
