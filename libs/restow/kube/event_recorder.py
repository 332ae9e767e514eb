"""Kubernetes Events: what a person sees in `kubectl describe`. Best effort, aggregated, and never in anyone's way.

Equal events (object, reason, action, note) share one deterministic name, so that a repetition, also by another process
after a restart, becomes a count on the same object.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import msgspec

from restow import machine
from restow.kube.client import ApiStatus, Client, answered

_MICROS = "%Y-%m-%dT%H:%M:%S.%fZ"
MOST_NOTICES = 1_000
"""That may wait to be sent."""
_MAX_NOTE = 1000
"""The API's limit is 1024 bytes."""


class Regarding(msgspec.Struct, frozen=True):
    """What the event is about. Events of objects without a namespace live in `default`."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Notice(msgspec.Struct, frozen=True):
    """`reason` and `action` are CamelCase words, `note` is a sentence."""

    regarding: Regarding
    reason: str
    action: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"


class _Series(msgspec.Struct):
    count: int = 0


class _Event(msgspec.Struct):
    series: _Series | None = None


_event = msgspec.json.Decoder(_Event)


class Recorder:
    """`record` never waits: what does not fit the queue is dropped and counted. `run` sends, until it is cancelled."""

    def __init__(
        self,
        client: Client,
        controller: str,
        instance: str,
        limit: int = MOST_NOTICES,
        now: Callable[[], datetime] = machine.now,
    ):
        self._client = client
        self._controller, self._instance = controller, instance
        self._now = now
        self._limit = limit
        self._waiting: OrderedDict[Notice, int] = OrderedDict()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.dropped = 0
        """Notices that did not fit the queue, or that the API refused."""

    def record(self, notice: Notice) -> bool:
        """False where it was dropped. Equal notices that still wait are sent as one, with their count."""
        if notice not in self._waiting and len(self._waiting) >= self._limit:
            self.dropped += 1
            return False
        self._waiting[notice] = self._waiting.get(notice, 0) + 1
        self._idle.clear()
        self._wake.set()
        return True

    @property
    def waiting(self) -> int:
        """Notices that are still to be sent."""
        return sum(self._waiting.values())

    async def flushed(self) -> None:
        """Everything that was recorded has been sent or dropped."""
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            while self._waiting:
                notice, count = self._waiting.popitem(last=False)
                try:
                    await self._send(notice, count)
                except ApiStatus:
                    self.dropped += count
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    async def _send(self, notice: Notice, count: int) -> None:
        namespace = notice.regarding.namespace or "default"
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        name = name_of(notice)
        now = self._now().strftime(_MICROS)
        body = self._body(notice, namespace, name, now)
        if count > 1:
            body["series"] = {"count": count, "lastObservedTime": now}
        try:
            await self._client.create(path, body)
            return
        except ApiStatus as status:
            if status.code != 409:
                raise
        there = answered(_event, await self._client.get(f"{path}/{name}"))
        total = (there.series.count if there.series else 1) + count
        await self._client.patch(f"{path}/{name}", {"series": {"count": total, "lastObservedTime": now}})

    def _body(self, notice: Notice, namespace: str, name: str, now: str) -> dict[str, Any]:
        about = notice.regarding
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "eventTime": now,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": notice.action,
            "reason": notice.reason,
            "note": _short(notice.note),
            "type": notice.type,
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
        }


def name_of(notice: Notice) -> str:
    """Of a long name the beginning, as far as a name may end there."""
    digest = hashlib.sha256(msgspec.json.encode(notice)).hexdigest()[:16]
    return f"{notice.regarding.name[:200].rstrip('.-')}.{digest}"


def _short(note: str) -> str:
    raw = note.encode()
    return note if len(raw) <= _MAX_NOTE else raw[:_MAX_NOTE].decode(errors="ignore") + "..."
