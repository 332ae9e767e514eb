"""Effects on claims and volumes: what makes the cluster bind a claim where its pod is to run (DESIGN 5).

Both are what kube-scheduler does before it binds a pod, and both only start something: the volume controller or the
provisioner goes on, and the facts tell. Each reads first and writes with the resourceVersion that it read, so that a choice
which somebody else made in between is never overwritten.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from restow.kube import decode as d
from restow.kube import wire_objects as w
from restow.kube.client import Client, path_of
from restow.kube.effects import Done, Failed, Gone, Refused, Taken, bounded, read
from restow.kube.retry import Backoff, Sleep
from restow.kube.volumes import SELECTED_NODE

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""On a volume whose claimRef no user has written: who unbinds it may remove that again."""


class ClaimRef(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uid: str


class Claimed(msgspec.Struct, frozen=True):
    """The volume is another claim's (`namespace/name`)."""

    claim: str


SelectOutcome = Done | Taken | Gone | Refused | Failed
PrebindOutcome = Done | Claimed | Gone | Refused | Failed


class ClaimEffects:
    """Through one client. `backoff` bounds the attempts of each."""

    def __init__(self, client: Client, backoff: Backoff = Backoff(), sleep: Sleep = asyncio.sleep):
        self._client = client
        self._backoff = backoff
        self._sleep = sleep

    async def select_node(self, claim: ClaimRef, node: str) -> SelectOutcome:
        """Have a volume provisioned for the claim on this node. `Done` also where the claim has a volume by now; `Taken`
        where it is to be provisioned for another node."""

        async def attempt() -> SelectOutcome:
            path = path_of(d.CLAIMS, claim.namespace, claim.name)
            there = await read(self._client, d.CLAIMS, path)
            if there is None or there.metadata.uid != claim.uid:
                return Gone()
            selected = (there.metadata.annotations or {}).get(SELECTED_NODE)
            if (there.spec and there.spec.volume_name) or selected == node:
                return Done()
            if selected:
                return Taken(selected)
            await self._write(path, there, {"annotations": {SELECTED_NODE: node}})
            return Done()

        return await self._bounded(attempt)

    async def prebind(self, volume: str, claim: ClaimRef) -> PrebindOutcome:
        """Reserve the volume for the claim: its claimRef with the claim's uid, as the volume controller would write it."""

        async def attempt() -> PrebindOutcome:
            path = path_of(d.VOLUMES, "", volume)
            there = await read(self._client, d.VOLUMES, path)
            if there is None:
                return Gone()
            had = there.spec.claim_ref if there.spec else None
            if had is not None and (had.namespace, had.name) != (claim.namespace, claim.name):
                return Claimed(f"{had.namespace}/{had.name}")
            if had is not None and had.uid == claim.uid:
                return Done()
            if had is not None and had.uid:
                # An earlier claim of this name had it, and left its data.
                return Claimed(f"{had.namespace}/{had.name}")
            ref = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **msgspec.structs.asdict(claim)}
            # Where a user has reserved it, the reservation stays the user's.
            meta = {} if had is not None else {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
            await self._write(path, there, meta, {"claimRef": ref})
            return Done()

        return await self._bounded(attempt)

    async def _write(self, path: str, there: w.Claim | w.Volume, meta: dict[str, Any], spec: dict[str, Any] | None = None) -> None:
        version = {"uid": there.metadata.uid, "resourceVersion": there.metadata.resource_version}
        await self._client.patch(path, {"metadata": version | meta} | ({"spec": spec} if spec else {}))

    async def _bounded(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        # A conflict is no answer: it changed in between, and what it is now decides the next time.
        outcome = await bounded(attempt, self._backoff, self._sleep, passing=(409,))
        return Gone() if isinstance(outcome, Refused) and outcome.code == 404 else outcome
