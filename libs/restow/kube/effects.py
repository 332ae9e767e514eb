"""Effects on pods (DESIGN 5): safe to repeat, safe to be late, each with a typed outcome.

A lost answer is never taken for a failure: the object is read, and what is there decides.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from restow.contracts.values import DeviceShare
from restow.kube import decode as d
from restow.kube import wire
from restow.kube.annotations import (
    ABORTED,
    ABORTED_UNTIL,
    DEVICES,
    MIGRATION,
    RESERVATION_ALLOCATED,
    RESOURCE_STATUS,
    write_devices,
    write_reservation,
)
from restow.kube.client import ApiStatus, Client, answered, path_of
from restow.kube.cpus import write_status
from restow.kube.retry import Backoff, Sleep, retrying

W = TypeVar("W")
_OVER = ("Succeeded", "Failed")
POD = msgspec.json.Decoder(wire.Pod)
"""Of a pod as the API answers (`client.answered`)."""
_LONGEST_TIME = 18
"""Digits of a time in ms; a pod's user may have written any."""
_BUDGET_CAUSE = "DisruptionBudget"
_BUDGET_TEXT = "disruption budget"
_BACKGROUND_TEXT = "Eviction triggered evacuation"
"""What KubeVirt answers with 429, and upstream's descheduler looks for."""
_NOT_DRY_TEXT = "does not support dry run"
"""What the API server says where a webhook cannot be asked without consequences: then there is no answer before the eviction itself."""


class PodRef(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uid: str


class Bound(msgspec.Struct, frozen=True):
    """The pod is on the intended node."""


class Taken(msgspec.Struct, frozen=True):
    """The pod is on another node."""

    node: str


class Gone(msgspec.Struct, frozen=True):
    """There is no such pod any more, or another one has its name."""


class Refused(msgspec.Struct, frozen=True):
    """The API will not do it, however often it is asked. `code` is its HTTP status, `reason` one CamelCase word."""

    code: int
    reason: str
    message: str = ""


class Failed(msgspec.Struct, frozen=True):
    """Nothing is known to have happened and the attempts are used up: try again later. `retry_after` in ms."""

    code: int
    reason: str
    message: str = ""
    retry_after: int | None = None


class Accepted(msgspec.Struct, frozen=True):
    """The eviction was accepted: the pod terminates."""


class AlreadyTerminating(msgspec.Struct, frozen=True):
    """The pod terminates, or has ended by itself: it counts as evicted."""


class InBackground(msgspec.Struct, frozen=True):
    """Not evicted: whoever owns it moves it by itself now (a virtual machine that migrates live), and ends it afterwards. Upstream's
    `EvictionsInBackground`."""

    message: str = ""


class OverBudget(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget does not allow it now. `retry_after` in ms."""

    message: str = ""
    retry_after: int | None = None


class Changed(msgspec.Struct, frozen=True):
    """The pod changed between reading and evicting it. It may be tried again, if it is still wanted."""

    message: str = ""


class Done(msgspec.Struct, frozen=True):
    """It is as it should be."""


BindOutcome = Bound | Taken | Gone | Refused | Failed
EvictOutcome = Accepted | AlreadyTerminating | Gone | InBackground | OverBudget | Changed | Refused | Failed
AbortOutcome = Done | AlreadyTerminating | Gone | Refused | Failed
PatchOutcome = Done | Gone | Refused | Failed


class Effects:
    """Effects on pods, through one client. `backoff` bounds the attempts of each of them."""

    def __init__(self, client: Client, backoff: Backoff = Backoff(), sleep: Sleep = asyncio.sleep):
        self._client = client
        self._backoff = backoff
        self._sleep = sleep

    # -- bind --------------------------------------------------------------------------------------------------------

    async def bind(
        self,
        pod: PodRef,
        node: str,
        devices: Sequence[DeviceShare] = (),
        cpus: Sequence[int] = (),
        reservation: tuple[str, str] | None = None,
    ) -> BindOutcome:
        """One call: annotations of the Binding are merged into the pod in the transaction that sets its node
        (kube-apiserver, `BindingREST.setPodNodeAndMetadata`). The Binding's uid is the precondition. `reservation`: name and
        uid of the one that the pod has taken from."""
        meta: dict[str, Any] = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        if annotations := _given(devices, cpus, reservation):
            meta["annotations"] = annotations
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": meta,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }

        async def attempt() -> BindOutcome:
            try:
                await self._client.create(_path(pod, "binding"), binding)
                return Bound()
            except ApiStatus as status:
                outcome = await self._after_bind(pod, node, status)
                if outcome is None:
                    raise
                return outcome

        return await self._bounded(attempt)

    async def _after_bind(self, pod: PodRef, node: str, status: ApiStatus) -> BindOutcome | None:
        """What the pod says after an answer that was no success; None to try again."""
        if status.code == 429:
            return None
        there = await self._read(pod)
        if there is None:
            return Gone()
        where = there.spec.node_name if there.spec else None
        if where:
            return Bound() if where == node else Taken(where)
        if status.transient:
            return None
        return Refused(status.code, "Terminating" if _terminating(there) else status.reason, status.message)

    # -- evict -------------------------------------------------------------------------------------------------------

    async def evict(
        self, pod: PodRef, deadline: int = 0, grace: int | None = None, finished: bool = False, dry: bool = False
    ) -> EvictOutcome:
        """Through the Eviction API, with uid and the resourceVersion read just before as preconditions: a pod that was
        marked `restow.dev/migration: aborted` in between is not evicted, whoever asks and however late. `deadline` (ms) is
        the eviction's: a mark of an earlier one does not concern it; 0 respects every mark. `grace`: seconds to end in, None for
        what the pod says. `finished`: one that has ended by itself is to go, too, and does not count as evicted. `dry`: nothing is done, and the outcome is what it
        would be (a budget is asked whether it allows one, and spends none: of dry runs for several pods of one budget each is about itself)."""

        async def attempt() -> EvictOutcome:
            there = await self._read(pod)
            if there is None:
                return Gone()
            if _terminating(there) or (not finished and there.status and there.status.phase in _OVER):
                return AlreadyTerminating()
            if _forbidden(there, deadline):
                return Refused(0, "Aborted", f"the pod is marked {MIGRATION}={ABORTED}")
            return await self._evict(pod, there.metadata.resource_version, grace, dry)

        return await self._bounded(attempt)

    async def _evict(self, pod: PodRef, version: str, grace: int | None, dry: bool) -> EvictOutcome:
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid, "resourceVersion": version}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": pod.namespace, "name": pod.name},
            "deleteOptions": options,
        }
        try:
            await self._client.create(_path(pod, "eviction") + ("?dryRun=All" if dry else ""), eviction)
            return Accepted()
        except ApiStatus as status:
            if dry and _NOT_DRY_TEXT in status.message:
                return Accepted()
            if status.code == 404:
                return Gone()
            if status.code == 409:
                return Changed(status.message)
            if status.code == 429 and _BACKGROUND_TEXT in status.message:
                return InBackground(status.message)
            if status.code == 429 and (_BUDGET_CAUSE in status.causes or _BUDGET_TEXT in status.message):
                return OverBudget(status.message, status.retry_after)
            if status.transient:
                # Perhaps it was accepted and the answer was lost: the next attempt reads the pod first.
                raise
            return Refused(status.code, status.reason, status.message)

    async def abort_eviction(self, pod: PodRef, deadline: int = 0) -> AbortOutcome:
        """Marks the pod, which changes its resourceVersion. `deadline` (ms) is that of the eviction that is given up; with
        0 the mark is for ever. `Done` means that no eviction which was prepared before can
        succeed any more; `AlreadyTerminating` that one has."""
        until = str(deadline) if deadline else None
        patch = {"metadata": {"uid": pod.uid, "annotations": {MIGRATION: ABORTED, ABORTED_UNTIL: until}}}

        async def attempt() -> AbortOutcome:
            try:
                answer = d.PODS.object(await self._client.patch(_path(pod), patch))
            except ApiStatus as status:
                return await self._after_patch(pod, status)
            if isinstance(answer, d.Undecodable):
                return Failed(0, "Undecodable", answer.message)
            return AlreadyTerminating() if _terminating(answer) else Done()

        return await self._bounded(attempt)

    # -- status --------------------------------------------------------------------------------------------------------

    async def patch_pod_condition(
        self, pod: PodRef, status: str, reason: str, message: str, since: str, kind: str = "PodScheduled"
    ) -> PatchOutcome:
        """Sets one condition (`PodScheduled: False`); `since` is RFC 3339. Other conditions stay."""
        condition = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": since,
        }
        return await self._patch_status(pod, {"conditions": [condition]})

    async def patch_nominated_node(self, pod: PodRef, node: str) -> PatchOutcome:
        """Sets `status.nominatedNodeName`, as kube-scheduler does for a preemptor."""
        return await self._patch_status(pod, {"nominatedNodeName": node})

    async def _patch_status(self, pod: PodRef, status: dict[str, Any]) -> PatchOutcome:
        patch = {"metadata": {"uid": pod.uid}, "status": status}

        async def attempt() -> PatchOutcome:
            try:
                await self._client.patch(_path(pod, "status"), patch, "strategic")
                return Done()
            except ApiStatus as status:
                outcome = await self._after_patch(pod, status)
                return outcome if not isinstance(outcome, AlreadyTerminating) else Done()

        return await self._bounded(attempt)

    # -- within ----------------------------------------------------------------------------------------------------------

    async def _after_patch(self, pod: PodRef, status: ApiStatus) -> AbortOutcome:
        """A patch with another pod's uid is a 409 or a 422; the pod says whether that was it."""
        if status.transient:
            raise status
        there = None if status.code == 404 else await self._read(pod)
        if there is None:
            return Gone()
        if status.code == 409:
            return Failed(409, status.reason, status.message)
        return Refused(status.code, status.reason, status.message)

    async def _read(self, pod: PodRef) -> wire.Pod | None:
        """None where it is gone, or another pod has its name. Raises ApiStatus."""
        there = await read(self._client, d.PODS, _path(pod))
        return there if there is not None and there.metadata.uid == pod.uid else None

    async def _found(self, pod: PodRef) -> wire.Pod | Gone | Refused | Failed:
        """The pod as it is."""

        async def attempt() -> Any:
            return await self._read(pod) or Gone()

        return await self._bounded(attempt)

    async def _patched(self, pod: PodRef, change: dict[str, Any], subresource: str = "") -> wire.Pod | Gone | Refused | Failed:
        """The pod as it is then. Its uid is the precondition."""
        patch = change | {"metadata": {"uid": pod.uid} | change.get("metadata", {})}

        async def attempt() -> Any:
            try:
                body = await self._client.patch(_path(pod, subresource), patch, "strategic")
                return answered(POD, body)
            except ApiStatus as status:
                outcome = await self._after_patch(pod, status)
                # A pod that ends is a pod.
                assert isinstance(outcome, Gone | Refused | Failed)
                return outcome

        return await self._bounded(attempt)

    async def _bounded(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        return await bounded(attempt, self._backoff, self._sleep)


def done(answer: wire.Pod | Gone | Refused | Failed) -> PatchOutcome:
    """What became of the pod, where nobody asks how it is then."""
    return Done() if isinstance(answer, wire.Pod) else answer


async def read(client: Client, collection: d.Collection[W], path: str) -> W | None:
    """None where it is gone. Raises ApiStatus."""
    try:
        there = collection.object(await client.get(path))
    except ApiStatus as status:
        if status.code == 404:
            return None
        raise
    if isinstance(there, d.Undecodable):
        # What has no uid is no object at all: a gateway's page, say, which is no answer.
        raise ApiStatus(422 if there.uid else 0, "Undecodable", there.message)
    return there


async def bounded(
    attempt: Callable[[], Awaitable[Any]], backoff: Backoff, sleep: Sleep, passing: tuple[int, ...] = ()
) -> Any:
    """What the attempts come to: where none succeeds, `Failed` for what may pass, statuses `passing` among it, and `Refused`
    for the rest."""
    try:
        return await retrying(attempt, backoff, sleep)
    except ApiStatus as status:
        if status.transient or status.code in passing:
            return Failed(status.code, status.reason, status.message, status.retry_after)
        return Refused(status.code, status.reason, status.message)


def _given(
    devices: Sequence[DeviceShare], cpus: Sequence[int], reservation: tuple[str, str] | None
) -> dict[str, str]:
    """What the pod was given, as Koordinator's node agent reads it."""
    given = {}
    if devices:
        given[DEVICES] = write_devices(devices)
    if cpus:
        given[RESOURCE_STATUS] = write_status(cpus)
    if reservation is not None:
        given[RESERVATION_ALLOCATED] = write_reservation(*reservation)
    return given


def _path(pod: PodRef, subresource: str = "") -> str:
    return path_of(d.PODS, pod.namespace, pod.name, subresource)


def _forbidden(pod: wire.Pod, deadline: int) -> bool:
    annotations = pod.metadata.annotations or {}
    if annotations.get(MIGRATION) != ABORTED:
        return False
    until = annotations.get(ABORTED_UNTIL, "")
    readable = until.isascii() and until.isdecimal() and len(until) <= _LONGEST_TIME
    return not deadline or not readable or deadline <= int(until)


def _terminating(pod: wire.Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None
