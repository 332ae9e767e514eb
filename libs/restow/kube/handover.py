"""Hands a placeholder's claims over to the successor, as they are, so that their devices are free for nobody meanwhile (`restow.domain.held_by_claim`).

    own       the claim becomes the successor's: from here on it goes with that one, and the controller that makes claims finds it by its annotation
    reserve   it is reserved for the successor, and for the placeholder no more: when that goes, the claim keeps its device
    name      the successor's status names it; before, it named the one that was made for it
    drop      the one that was made for it, which has no device, goes: not before, or the controller would write its name down again

It begins once the controller has named the claim that it made for the successor, or has not for a hundred looks (`named`).

In this order: whoever dies after the first step leaves a claim that goes with its owner, and whose device is free once the placeholder has gone. Each can be made again.
Where the API refuses one of them (somebody's admission, or missing rights) for `PATIENCE`, it is given up, for the pod has been evicted: see `is_given_up`.
Measured on kube-scheduler and kube-controller-manager 1.36.3 (`tests/kubernetes/test_claim_handover.py`).
"""

import asyncio
from typing import Any

import msgspec

from restow import machine
from restow.kube import decode as d
from restow.kube import wire
from restow.kube.client import ApiStatus, Client, answered, path_of
from restow.kube.discovery import serving
from restow.kube.dynamic_resources import POD_CLAIM
from restow.kube.effects import Done, Effects, Gone, PatchOutcome, PodRef, Refused, read
from restow.kube.hearing import MOST
from restow.kube.retry import Backoff, Sleep


class _Named(msgspec.Struct):
    name: str = ""
    resourceClaimName: str | None = None


class _Status(msgspec.Struct):
    resourceClaimStatuses: list[_Named] | None = None


class _Claiming(msgspec.Struct):
    """A pod, as far as its claims go."""

    metadata: wire.Meta
    status: _Status = msgspec.field(default_factory=_Status)

    def claims(self) -> dict[str, str]:
        """As the pod calls them → their names."""
        return {one.name: one.resourceClaimName for one in self.status.resourceClaimStatuses or () if one.resourceClaimName}


_claiming = msgspec.json.Decoder(_Claiming)
LOOK, LOOKS = 0.1, 100
"""Seconds between two looks whether a claim was made for the successor, and how many of them at most."""
CHANGES = 5
"""How often a claim is read anew that somebody has changed since it was read: its scheduler, or a controller."""
PATIENCE = 10.0
"""Seconds for which the API may refuse a hand-over: a policy may be on its way, or a right. After that it is not waited for."""


def _has_a_device(claim: Any) -> bool:
    """Of one that is being deleted its scheduler gives nothing to a pod, whatever it has."""
    return claim.status is not None and claim.status.allocation is not None and claim.metadata.deletion_timestamp is None


class Handover(Effects):
    """Through one client. The version of the API is asked for once."""

    _version = ""

    def __init__(self, client: Client, backoff: Backoff = Backoff(), sleep: Sleep = asyncio.sleep) -> None:
        super().__init__(client, backoff, sleep)
        self._refused: dict[str, float] = {}
        """By the successor's uid: since when (steady seconds) its hand-over is refused."""

    def is_given_up(self, pod: PodRef) -> bool:
        """Whether its hand-over, which was refused just now, has been for `PATIENCE`. To go on asking would be no use to a pod that has been evicted: its successor competes for a device."""
        since = self._refused.setdefault(pod.uid, machine.steady())
        if len(self._refused) > MOST:
            # Nobody has asked for it again.
            del self._refused[next(iter(self._refused))]
        return machine.steady() - since >= PATIENCE

    async def named(self, pod: PodRef, placeholder: PodRef) -> PatchOutcome:
        """`Done` once the controller has named what it makes for the successor, or has not for `LOOKS` looks: where a quota or a missing template keeps it from making any,
        nobody waits for ever. It writes that name whatever is there by then, and its claim may have come before (it is throttled): a claim handed over earlier
        would not last."""

        async def attempt() -> PatchOutcome:
            holder, there = await self._claiming(placeholder), await self._claiming(pod)
            for _ in range(LOOKS):
                if there is None or holder is None or holder.claims().keys() <= there.claims().keys():
                    break
                await self._sleep(LOOK)
                there = await self._claiming(pod)
            return Done() if there is not None else Gone()

        return await self._bounded(attempt)

    async def hand(self, pod: PodRef, placeholder: PodRef) -> PatchOutcome:
        """`Done` also where the placeholder has gone, and where it has no device, as somebody deletes its claim: nothing is kept for the successor then, and it
        competes for one like any other. To wait would be no use: its pod has been evicted. After `named`."""

        async def attempt() -> PatchOutcome:
            holder, there = await self._claiming(placeholder), await self._claiming(pod)
            if there is None:
                return Gone()
            mine = there.claims()
            for name, held in (holder.claims() if holder is not None else {}).items():
                if mine.get(name) == held:
                    # Somebody has died before the last step.
                    for other in await self._owned(pod, name):
                        await self._drop(pod, other.metadata.name)
                else:
                    await self._one(pod, placeholder, name, held, mine.get(name, ""))
            return Done()

        handed = await self._bounded(attempt)
        if not isinstance(handed, Refused):
            self._refused.pop(pod.uid, None)
        return handed

    async def _one(self, pod: PodRef, placeholder: PodRef, name: str, held: str, made: str) -> None:
        claim = await self._owning(pod, placeholder, name, held)
        if claim is None:
            return
        path, uid = await self._path(pod.namespace, claim.metadata.name), {"uid": claim.metadata.uid}
        users = [{"resource": "pods", "name": pod.name, "uid": pod.uid}, {"$patch": "delete", "uid": placeholder.uid}]
        await self._client.patch(f"{path}/status", {"metadata": uid, "status": {"reservedFor": users}}, "strategic")
        said = {"metadata": {"uid": pod.uid}, "status": {"resourceClaimStatuses": [{"name": name, "resourceClaimName": claim.metadata.name}]}}
        await self._client.patch(path_of(d.PODS, pod.namespace, pod.name, "status"), said, "strategic")
        if made and made != claim.metadata.name:
            await self._drop(pod, made)

    async def _owning(self, pod: PodRef, placeholder: PodRef, name: str, held: str) -> Any:
        """The claim, once it is the successor's; None where there is none to hand over. As it was read: whoever has stood still meanwhile, and leads no more, must not take it from
        the pod that has it by now."""
        owned = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
        for look in range(CHANGES):
            claim = await self._with_a_device(pod, placeholder, name, held)
            if claim is None:
                return None
            meta = {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version, "ownerReferences": [owned]}
            try:
                await self._client.patch(await self._path(pod.namespace, claim.metadata.name), {"metadata": meta})
            except ApiStatus as status:
                if status.code != 409 or look == CHANGES - 1:
                    raise
            else:
                break
        return claim

    async def _with_a_device(self, pod: PodRef, placeholder: PodRef, name: str, held: str) -> Any:
        """The claim to be handed over: that which the placeholder's status names, or the successor's own by now, for a controller that starts again between two steps
        makes the placeholder another one."""
        claim = await self._claim(pod.namespace, held)
        owner = None if claim is None else next((one.uid for one in claim.metadata.owner_references or () if one.controller), "")
        if claim is not None and owner in (placeholder.uid, pod.uid) and (claim.metadata.annotations or {}).get(POD_CLAIM) == name and _has_a_device(claim):
            return claim
        return next((one for one in await self._owned(pod, name) if _has_a_device(one)), None)

    async def _drop(self, pod: PodRef, made: str) -> None:
        """If it has no device, and is this pod's: else it is somebody's to keep. Where that is refused it stays, and goes with the pod: nothing depends on it any more."""
        claim = await self._claim(pod.namespace, made)
        if claim is None or (claim.status is not None and claim.status.allocation is not None) or all(one.uid != pod.uid for one in claim.metadata.owner_references or ()):
            return
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}}
        try:
            await self._client.delete(await self._path(pod.namespace, made), options)
        except ApiStatus as status:
            if status.transient:
                raise

    async def _owned(self, pod: PodRef, name: str) -> list[Any]:
        """Claims that are the successor's by this name: that which was made for it, and that of its placeholder once it was handed over."""
        body = await self._client.get(await self._path(pod.namespace))
        return [
            one
            for one in d.RESOURCE_CLAIMS.page(body).items
            if not isinstance(one, d.Undecodable) and (one.metadata.annotations or {}).get(POD_CLAIM) == name and any(owner.uid == pod.uid for owner in one.metadata.owner_references or ())
        ]

    async def _claiming(self, pod: PodRef) -> _Claiming | None:
        try:
            there: _Claiming = answered(_claiming, await self._client.get(path_of(d.PODS, pod.namespace, pod.name)))
        except ApiStatus as status:
            if status.code == 404:
                return None
            raise
        return there if there.metadata.uid == pod.uid else None

    async def _claim(self, namespace: str, name: str) -> Any:
        return await read(self._client, d.RESOURCE_CLAIMS, await self._path(namespace, name))

    async def _path(self, namespace: str, name: str = "") -> str:
        if not self._version:
            found = await serving(self._client, d.RESOURCE_CLAIMS)
            if not found:
                raise ApiStatus(404, "NotFound", "the API serves no ResourceClaims")
            self._version = found[0]
        return path_of(d.RESOURCE_CLAIMS.at(self._version), namespace, name)
