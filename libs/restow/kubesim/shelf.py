"""Where the objects of one resource lie: indexes, history and snapshots of earlier versions."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from restow.kubesim.resources import Resource

Obj = dict[str, Any]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_encode = msgspec.json.Encoder().encode


class Stored:
    """One version of one object. Never changes; its JSON is made once, on first use."""

    __slots__ = ("_raw", "key", "obj", "rv")

    def __init__(self, key: str, obj: Obj, rv: int):
        self.key = key
        self.obj = obj
        self.rv = rv
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        raw = self._raw
        if raw is None:
            raw = self._raw = _encode(self.obj)
        return raw


class Change:
    """One change, as delivered to subscribers. Treat as frozen.

    `old` is None for ADDED. `new` is None for DELETED, and `old` then is the last state with the
    resourceVersion of the deletion. `stored` is what a watch event shows, `before` the version that it replaced.
    """

    __slots__ = ("_frames", "before", "new", "old", "resource", "rv", "stored", "type")

    def __init__(self, kind: ChangeType, resource: Resource, stored: Stored, before: Stored | None):
        self.type: ChangeType = kind
        self.resource = resource
        self.stored = stored
        self.before = before
        self.rv = stored.rv
        self.new: Obj | None = None if kind == "DELETED" else stored.obj
        if kind == "DELETED":
            self.old: Obj | None = stored.obj
        else:
            self.old = None if before is None else before.obj
        self._frames: dict[Any, bytes] = {}

    def frame(self, key: Any, build: Any) -> bytes:
        """The wire form under `key`, built once and shared by all watchers that want the same form."""
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = build()
        return frame

    def __repr__(self) -> str:
        return f"<{self.type} {self.resource.plural} {self.stored.key} @{self.rv}>"


class Shelf:
    """All objects of one resource."""

    def __init__(self, resource: Resource, *, history: int, snapshots: int = 8, since: int = 0):
        self.resource = resource
        self.items: dict[str, Stored] = {}
        self.by_namespace: dict[str, dict[str, Stored]] = {}
        self.history: deque[Change] = deque()
        self.history_limit = history
        self.compacted = since
        """Changes up to this resourceVersion are forgotten."""
        self._keys: list[str] = []
        self._keys_stale = False
        self._snapshots: OrderedDict[tuple[str, int], list[Stored]] = OrderedDict()
        self._snapshot_limit = snapshots

    @staticmethod
    def key(namespace: str, name: str) -> str:
        """The order of keys is the order of lists, as in etcd."""
        return f"{namespace}/{name}" if namespace else name

    def apply(self, change: Change) -> None:
        """Make the change the current state and remember it."""
        stored = change.stored
        namespace, _, name = stored.key.rpartition("/")
        if change.type == "DELETED":
            del self.items[stored.key]
            members = self.by_namespace[namespace]
            del members[name]
            if not members:
                del self.by_namespace[namespace]
            self._keys_stale = True
        else:
            self.items[stored.key] = stored
            self.by_namespace.setdefault(namespace, {})[name] = stored
            if change.type == "ADDED":
                self._keys_stale = True
                self._keys.append(stored.key)
        history = self.history
        history.append(change)
        while len(history) > self.history_limit:
            self.compacted = history.popleft().rv

    def compact(self, rv: int) -> None:
        """Forget changes up to `rv`, and every snapshot."""
        while self.history and self.history[0].rv <= rv:
            self.history.popleft()
        self.compacted = max(self.compacted, rv)
        self._snapshots.clear()

    def forget(self, rv: int) -> None:
        """Everything that was before `rv`, also where that was later than it."""
        self.history.clear()
        self.compacted = rv
        self._snapshots.clear()

    def replace(self, stored: Stored) -> None:
        """Put another version of an object in its place, which is no change."""
        namespace, _, name = stored.key.rpartition("/")
        self.items[stored.key] = self.by_namespace[namespace][name] = stored

    def ordered(self, namespace: str = "") -> list[Stored]:
        """The current objects in key order."""
        items = self.items
        if namespace and self.resource.namespaced:
            members = self.by_namespace.get(namespace, {})
            return [members[name] for name in sorted(members)]
        if self._keys_stale:
            # Appended keys follow a sorted run, so this sort is close to linear.
            self._keys = sorted({key: None for key in self._keys if key in items})
            self._keys_stale = False
        return [items[key] for key in self._keys]

    def changes_after(self, rv: int) -> Iterator[Change]:
        """The remembered changes after `rv`, oldest first."""
        found = []
        for change in reversed(self.history):
            if change.rv <= rv:
                break
            found.append(change)
        return reversed(found)

    def at(self, rv: int, namespace: str = "") -> list[Stored] | None:
        """The objects as of `rv` in key order, or None if that is forgotten. Kept for the next page."""
        cached = self._snapshots.get((namespace, rv))
        if cached is not None:
            self._snapshots.move_to_end((namespace, rv))
            return cached
        if rv < self.compacted:
            return None
        newer = list(self.changes_after(rv))
        snapshot = self.ordered(namespace) if not newer else self._undo(newer, namespace)
        self.keep(rv, namespace, snapshot)
        return snapshot

    def keep(self, rv: int, namespace: str, snapshot: list[Stored]) -> None:
        """Remember what was listed at `rv`, so that the next page continues it."""
        self._snapshots[(namespace, rv)] = snapshot
        while len(self._snapshots) > self._snapshot_limit:
            self._snapshots.popitem(last=False)

    def _undo(self, newer: list[Change], namespace: str) -> list[Stored]:
        state = dict(self.items)
        for change in reversed(newer):
            if change.before is None:
                state.pop(change.stored.key, None)
            else:
                state[change.stored.key] = change.before
        keys = sorted(state)
        if namespace and self.resource.namespaced:
            prefix = namespace + "/"
            keys = [key for key in keys if key.startswith(prefix)]
        return [state[key] for key in keys]
