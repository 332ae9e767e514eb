"""Garbage collection by ownerReferences: background, foreground and orphan deletion."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from restow.kubesim.deletion import FOREGROUND, ORPHAN
from restow.kubesim.errors import ApiError
from restow.kubesim.objects import Obj
from restow.kubesim.resources import Resource

if TYPE_CHECKING:
    from restow.kubesim.shelf import Change
    from restow.kubesim.store import Store

_SLICE = 200


class GarbageCollector:
    """Deletes dependants of owners that are gone. `soon` runs a function later; without it work is done at once."""

    def __init__(self, store: Store, soon: Callable[[Callable[[], None]], Any] | None = None):
        self.store = store
        self.soon = soon
        self._doomed: dict[tuple[Resource, str, str], None] = {}
        self._scheduled = False
        store.subscribe(self._note)

    def _note(self, change: Change) -> None:
        meta = change.stored.obj["metadata"]
        if change.type == "DELETED":
            for resource, obj in self.store.dependents(meta["uid"]):
                self._doom(resource, obj)
            self._foreground_parents(meta)
            return
        if meta.get("ownerReferences") and change.type == "ADDED":
            self._check_owners(change.resource, change.stored.obj)
        if "deletionTimestamp" in meta and meta.get("finalizers"):
            self._deleting(change.resource, change.stored.obj)

    def _deleting(self, resource: Resource, owner: Obj) -> None:
        meta = owner["metadata"]
        if ORPHAN in meta["finalizers"]:
            for other, dependent in list(self.store.dependents(meta["uid"])):
                self._orphan(other, dependent, meta["uid"])
            self.store.finalize(resource, meta.get("namespace", ""), meta["name"], remove=[ORPHAN])
        elif FOREGROUND in meta["finalizers"]:
            blocking = False
            for other, dependent in list(self.store.dependents(meta["uid"])):
                refs = dependent["metadata"].get("ownerReferences") or ()
                blocking |= any(r.get("uid") == meta["uid"] and r.get("blockOwnerDeletion") for r in refs)
                if "deletionTimestamp" not in dependent["metadata"]:
                    self._doom(other, dependent, foreground=True)
            if not blocking:
                self.store.finalize(resource, meta.get("namespace", ""), meta["name"], remove=[FOREGROUND])

    def _foreground_parents(self, meta: Obj) -> None:
        """A dependant went: its owner may have waited for it."""
        for ref in meta.get("ownerReferences") or ():
            group = ref.get("apiVersion", "").rpartition("/")[0]
            resource = self.store.registry.by_kind(group, ref.get("kind", ""))
            if resource is None:
                continue
            owner = self.store.find(resource, meta.get("namespace", ""), ref.get("name", ""))
            if owner is None or owner["metadata"]["uid"] != ref.get("uid"):
                continue
            if FOREGROUND in (owner["metadata"].get("finalizers") or ()):
                self._deleting(resource, owner)

    def _orphan(self, resource: Resource, dependent: Obj, owner_uid: str) -> None:
        meta = dict(dependent["metadata"])
        meta["ownerReferences"] = [ref for ref in meta["ownerReferences"] if ref.get("uid") != owner_uid]
        if not meta["ownerReferences"]:
            del meta["ownerReferences"]
        self.store.update(resource, {**dependent, "metadata": meta})

    def _check_owners(self, resource: Resource, obj: Obj) -> None:
        """An object created after its owner is gone goes too."""
        if not any(self._exists(ref, obj) for ref in obj["metadata"]["ownerReferences"]):
            self._doom(resource, obj)

    def _exists(self, ref: Obj, obj: Obj) -> bool:
        group = ref.get("apiVersion", "").rpartition("/")[0]
        resource = self.store.registry.by_kind(group, ref.get("kind", ""))
        if resource is None:
            # An unknown kind cannot be looked up; the real collector leaves such objects alone.
            return True
        owner = self.store.find(resource, obj["metadata"].get("namespace", ""), ref.get("name", ""))
        return owner is not None and owner["metadata"]["uid"] == ref.get("uid")

    def _doom(self, resource: Resource, obj: Obj, *, foreground: bool = False) -> None:
        meta = obj["metadata"]
        if not foreground and any(self._exists(ref, obj) for ref in meta["ownerReferences"]):
            return
        self._doomed[(resource, meta.get("namespace", ""), meta["name"])] = None
        if self._scheduled:
            return
        self._scheduled = True
        if self.soon is None:
            self.pump(None)
        else:
            self.soon(self.pump)

    def pump(self, slice_size: int | None = _SLICE) -> None:
        """Delete a slice of what is doomed; the rest waits for the next turn, so that requests get theirs."""
        done = 0
        while self._doomed and (slice_size is None or done < slice_size):
            resource, namespace, name = next(iter(self._doomed))
            del self._doomed[(resource, namespace, name)]
            done += 1
            obj = self.store.find(resource, namespace, name)
            if obj is None or "deletionTimestamp" in obj["metadata"]:
                continue
            owned_in_foreground = any(
                self._in_foreground(ref, obj) for ref in obj["metadata"].get("ownerReferences") or ()
            )
            try:
                policy = "Foreground" if owned_in_foreground and self._has_dependents(obj) else "Background"
                self.store.delete(resource, namespace, name, uid=obj["metadata"]["uid"], propagation=policy)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
        self._scheduled = bool(self._doomed)
        if self._scheduled and self.soon is not None:
            self.soon(self.pump)

    def _has_dependents(self, obj: Obj) -> bool:
        return next(iter(self.store.dependents(obj["metadata"]["uid"])), None) is not None

    def _in_foreground(self, ref: Obj, obj: Obj) -> bool:
        group = ref.get("apiVersion", "").rpartition("/")[0]
        resource = self.store.registry.by_kind(group, ref.get("kind", ""))
        if resource is None:
            return False
        owner = self.store.find(resource, obj["metadata"].get("namespace", ""), ref.get("name", ""))
        return owner is not None and FOREGROUND in (owner["metadata"].get("finalizers") or ())
