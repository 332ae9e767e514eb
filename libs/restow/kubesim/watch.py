"""Watches: one encoding per change shared by all watchers, bounded queues, bookmarks, 410 for the forgotten."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from restow.kubesim.errors import ApiError, gone
from restow.kubesim.negotiate import Form, encode
from restow.kubesim.objects import Obj
from restow.kubesim.resources import Resource
from restow.kubesim.selectors import Predicate
from restow.kubesim.shelf import Change, Stored
from restow.kubesim.store import Store

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class WireForm:
    """How a watcher wants objects: `key` identifies the form, `encode` makes its JSON."""

    key: Any
    encode: Callable[[Stored], bytes]


def plain(api_version: str, form: Form, encode_obj: Callable[[Stored], bytes] | None = None) -> WireForm:
    if encode_obj is None:
        return WireForm(None, lambda stored: stored.raw)
    return WireForm((api_version, form), encode_obj)


def frame(kind: str, raw: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), raw)


class Watcher:
    """One watch: filters changes into a bounded queue of encoded frames."""

    def __init__(
        self,
        resource: Resource,
        namespace: str,
        select: Predicate | None,
        wire: WireForm,
        *,
        after: int,
        limit: int,
    ):
        self.resource = resource
        self.namespace = namespace
        self.select = select
        self.wire = wire
        self.after = after
        self.limit = limit
        self.queue: deque[bytes] = deque()
        self.recent: deque[bytes] = deque(maxlen=64)
        self.wake = asyncio.Event()
        self.closed = False
        """No more frames come; what is queued is still sent unless `dropped`."""
        self.dropped = False
        self.stalled = False
        """Silent, whatever comes: see `stall`."""

    def offer(self, change: Change) -> None:
        """Queue the change if it concerns this watch."""
        if self.closed or change.rv <= self.after:
            return
        framed = self.framed(change)
        if framed is not None:
            self.push(framed)

    def push(self, framed: bytes) -> None:
        queue = self.queue
        if len(queue) >= self.limit:
            # A client that does not read must not cost memory without end; it lists and watches again.
            queue.clear()
            self.dropped = True
            self.close()
            return
        queue.append(framed)
        self.recent.append(framed)
        if not self.stalled:
            self.wake.set()

    def framed(self, change: Change) -> bytes | None:
        """The event that this watch sees for the change, or None."""
        stored = change.stored
        if self.namespace and stored.obj["metadata"].get("namespace") != self.namespace:
            return None
        kind: str = change.type
        if self.select is not None:
            now = kind != "DELETED" and self.select(stored.obj)
            before = change.before is not None and self.select(change.before.obj)
            if not now and not before:
                return None
            if now and not before:
                kind = "ADDED"
            elif before and not now:
                kind = "DELETED"
                if change.type != "DELETED":
                    return self._left(change)
        wire = self.wire
        return change.frame((kind, wire.key), lambda: frame(kind, wire.encode(stored)))

    def _left(self, change: Change) -> bytes:
        """An object that left the selection is shown as it was inside, with the version of the change."""

        def build() -> bytes:
            assert change.before is not None
            old = change.before.obj
            shown = {**old, "metadata": {**old["metadata"], "resourceVersion": str(change.rv)}}
            return frame("DELETED", self.wire.encode(Stored(change.stored.key, shown, change.rv)))

        return change.frame(("LEFT", self.wire.key), build)

    def fail(self, error: ApiError) -> None:
        """Send an ERROR event and end."""
        self.push(frame("ERROR", encode(error.status())))
        self.close()

    def close(self) -> None:
        self.closed = True
        if not self.stalled or self.dropped:
            self.wake.set()

    def stall(self) -> None:
        """Keep the connection silent until `resume`, `cut` or its time: nothing wakes it for what it may not send, not even an end."""
        self.stalled = True
        self.wake.clear()

    def resume(self) -> None:
        self.stalled = False
        if self.queue or self.closed:
            self.wake.set()

    def cut(self) -> None:
        """End now without sending what is queued."""
        self.dropped = True
        self.queue.clear()
        self.close()


class Hub:
    """All open watches; subscribes to the store once."""

    def __init__(self, store: Store, *, queue_limit: int = 200_000):
        self.store = store
        self.queue_limit = queue_limit
        self._watchers: dict[tuple[str, str], dict[Watcher, None]] = {}
        self._unsubscribe = store.subscribe(self._offer)

    def _offer(self, change: Change) -> None:
        watchers = self._watchers.get(change.resource.key)
        if watchers:
            for watcher in tuple(watchers):
                watcher.offer(change)

    def watchers(self, resource: Resource | None = None) -> list[Watcher]:
        if resource is not None:
            return list(self._watchers.get(resource.key, ()))
        return [watcher for group in self._watchers.values() for watcher in group]

    def open(
        self,
        resource: Resource,
        namespace: str,
        select: Predicate | None,
        wire: WireForm,
        *,
        after: int | None,
    ) -> Watcher:
        """A watch of the changes after a resourceVersion; with None of the present state and all that follows."""
        store = self.store
        start = store.resource_version if after is None else after
        watcher = Watcher(resource, namespace, select, wire, after=start, limit=self.queue_limit)
        shelf = store.shelf(resource)
        if after is None:
            for stored in shelf.ordered(namespace):
                if select is None or select(stored.obj):
                    watcher.queue.append(frame("ADDED", wire.encode(stored)))
        elif after < shelf.compacted:
            watcher.fail(gone(f"too old resource version: {after} ({shelf.compacted})"))
            return watcher
        else:
            for change in shelf.changes_after(after):
                framed = watcher.framed(change)
                if framed is not None:
                    watcher.queue.append(framed)
        if watcher.queue:
            watcher.wake.set()
        self._watchers.setdefault(resource.key, {})[watcher] = None
        return watcher

    def forget(self, watcher: Watcher) -> None:
        self._watchers.get(watcher.resource.key, {}).pop(watcher, None)

    def close(self) -> None:
        self._unsubscribe()
        for watcher in self.watchers():
            watcher.cut() if watcher.stalled else watcher.close()


def bookmark(resource: Resource, api_version: str, rv: int, *, initial_end: bool = False) -> bytes:
    """A BOOKMARK event at `rv`."""
    meta: Obj = {"resourceVersion": str(rv), "creationTimestamp": None}
    if initial_end:
        meta["annotations"] = {INITIAL_EVENTS_END: "true"}
    return frame("BOOKMARK", encode({"kind": resource.kind, "apiVersion": api_version, "metadata": meta}))
