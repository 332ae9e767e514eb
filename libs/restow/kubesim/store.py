"""The cluster's state: objects, their versions and the rules that hold for every resource.

Synchronous, single-threaded, no I/O. Objects are plain JSON dicts. What a caller gets must not be mutated
(`objects.clone` first); what a caller gives is copied unless `owned=True` says that the caller lets go of it.
Rules of single resources (defaults, validation, immutability) come from the injected `Strategy`.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from restow.kubesim import deletion
from restow.kubesim.errors import MODIFIED, ApiError, already_exists, conflict, invalid, not_found
from restow.kubesim.objects import Obj, clone, rfc3339
from restow.kubesim.resources import NODES, Registry, Resource
from restow.kubesim.shelf import Change, ChangeType, Shelf, Stored

__all__ = ["ApiError", "Change", "Registry", "Resource", "Store", "Stored", "Strategy"]

Selector = Callable[[Obj], bool]

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SYSTEM_FIELDS = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")

log = logging.getLogger(__name__)


class Strategy:
    """Rules of single resources. Both methods may mutate `obj` and raise ApiError."""

    def create(self, store: Store, resource: Resource, obj: Obj) -> None:
        """Default and validate an object that is about to be created."""

    def update(self, store: Store, resource: Resource, obj: Obj, old: Obj, subresource: str) -> None:
        """Default and validate an object that is about to replace `old`."""

    def may_delete(self, store: Store, resource: Resource, obj: Obj) -> Obj | None:
        """Refuse a deletion by raising, or return a changed object to store in place of a deletion."""
        return None


def utc_now() -> datetime:
    return datetime.now(UTC)


def _drop_empty(meta: Obj) -> None:
    """Empty lists and maps of the metadata are the same as none."""
    for field in ("finalizers", "ownerReferences", "labels", "annotations"):
        if field in meta and not meta[field]:
            del meta[field]


class Store:
    """All objects of the cluster.

    `clock` returns an aware datetime, `history` is the number of changes remembered per resource (older
    watches get 410), `rng` makes names and uids (deterministic when seeded). With a `seed` both follow from what an object is called, and not from
    which was made first: equal worlds that are made at another pace have equal names.
    """

    def __init__(
        self,
        clock: Callable[[], datetime] = utc_now,
        *,
        registry: Registry | None = None,
        strategy: Strategy | None = None,
        history: int = 50_000,
        rng: random.Random | None = None,
        seed: int | None = None,
    ):
        self.clock = clock
        self.registry = registry or Registry()
        self.strategy = strategy or Strategy()
        self.resource_version = 1
        self._history = history
        self._rng = rng or random.Random()
        self._seed, self._made = seed, Counter[tuple[str, ...]]()
        self._shelves: dict[tuple[str, str], Shelf] = {}
        self._subscribers: list[Callable[[Change], None]] = []
        self._pending: deque[Change] = deque()
        self._dispatching = False
        self._dependents: dict[str, dict[tuple[Resource, str], None]] = {}

    # -- reading --------------------------------------------------------------------------------

    def now(self) -> str:
        """The clock's time as metav1.Time."""
        return rfc3339(self.clock())

    def shelf(self, resource: Resource) -> Shelf:
        shelf = self._shelves.get(resource.key)
        if shelf is None:
            shelf = Shelf(resource, history=self._history, since=0)
            self._shelves[resource.key] = shelf
        return shelf

    def find(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        """The live object, or None. Not to be mutated."""
        stored = self.stored(resource, namespace, name)
        return None if stored is None else stored.obj

    def stored(self, resource: Resource, namespace: str, name: str) -> Stored | None:
        return self.shelf(resource).items.get(Shelf.key(namespace if resource.namespaced else "", name))

    def get(self, resource: Resource, namespace: str, name: str) -> Obj:
        """The live object, not to be mutated; ApiError 404."""
        obj = self.find(resource, namespace, name)
        if obj is None:
            raise not_found(resource, name)
        return obj

    def list(self, resource: Resource, namespace: str = "", selector: Selector | None = None) -> list[Obj]:
        """The live objects in key order, not to be mutated. Empty namespace means all."""
        found = [stored.obj for stored in self.shelf(resource).ordered(namespace)]
        return found if selector is None else [obj for obj in found if selector(obj)]

    def count(self, resource: Resource, namespace: str = "") -> int:
        shelf = self.shelf(resource)
        return len(shelf.by_namespace.get(namespace, ())) if namespace else len(shelf.items)

    def dependents(self, uid: str) -> Iterable[tuple[Resource, Obj]]:
        """The objects that name `uid` in their ownerReferences."""
        for resource, key in list(self._dependents.get(uid, ())):
            stored = self.shelf(resource).items.get(key)
            if stored is not None:
                yield resource, stored.obj

    # -- writing --------------------------------------------------------------------------------

    def create(
        self, resource: Resource, obj: Obj, namespace: str = "", *, owned: bool = False, dry_run: bool = False
    ) -> Obj:
        """Store a new object; returns it as stored. 409 AlreadyExists, 422 Invalid, and what the strategy raises."""
        obj = obj if owned else clone(obj)
        meta = obj["metadata"] = dict(obj.get("metadata") or {})
        if meta.get("resourceVersion"):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        for field in (*_SYSTEM_FIELDS, "resourceVersion", "selfLink", "managedFields"):
            meta.pop(field, None)
        _drop_empty(meta)
        if resource.namespaced:
            meta["namespace"] = namespace or meta.get("namespace") or "default"
        else:
            meta.pop("namespace", None)
        obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
        chance = self._chance(resource, meta)
        meta["uid"] = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        meta["creationTimestamp"] = self.now()
        if resource.generation:
            meta["generation"] = 1
        if resource.has_status and resource != NODES:
            obj.pop("status", None)
        generated = not meta.get("name") and bool(meta.get("generateName"))
        if generated:
            meta["name"] = self._generate(resource, meta, chance)
        self.strategy.create(self, resource, obj)
        name = meta.get("name")
        if not name:
            cause = {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
            }
            raise invalid(resource, "", [{**cause, "field": "metadata.name"}])
        key = Shelf.key(meta.get("namespace", ""), name)
        if key in self.shelf(resource).items:
            raise already_exists(resource, name)
        if dry_run:
            return obj
        return self._commit("ADDED", resource, key, obj, None)

    def update(
        self,
        resource: Resource,
        obj: Obj,
        *,
        subresource: str = "",
        owned: bool = False,
        dry_run: bool = False,
    ) -> Obj:
        """Replace an object; returns it as stored. 404, 409 Conflict, 422 Invalid.

        With resourceVersion or uid in metadata, they must be the current ones. `subresource="status"` changes
        the status alone; "" keeps it where the resource has a status subresource. Any other name stores the
        object whole (binding, finalize). An update that changes nothing keeps the resourceVersion.
        """
        meta = obj["metadata"]
        name, namespace = meta["name"], meta.get("namespace", "")
        before = self.stored(resource, namespace, name)
        if before is None:
            raise not_found(resource, name)
        old = before.obj
        self._check_current(resource, meta, old["metadata"])
        new = self._merged(resource, obj if owned else clone(obj), old, subresource)
        self.strategy.update(self, resource, new, old, subresource)
        self._count_generation(resource, new, old, subresource)
        if new == old:
            return old
        if dry_run:
            return new
        if deletion.is_complete(new):
            return self._remove(resource, before, new)
        return self._commit("MODIFIED", resource, before.key, new, before)

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        grace_period: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
    ) -> Obj:
        """Delete, or ask for deletion; returns the object as it then is (or last was). 404, 409 Conflict.

        `propagation` is Background, Foreground or Orphan. The object stays with a deletionTimestamp while
        it has finalizers, and a bound, unfinished pod for its grace period (the kubelet ends it).
        """
        before = self.stored(resource, namespace, name)
        if before is None:
            raise not_found(resource, name)
        obj = before.obj
        deletion.check_preconditions(resource, obj, uid, resource_version)
        instead = self.strategy.may_delete(self, resource, obj)
        marked = instead or deletion.mark_deleted(
            resource, obj, self.clock(), grace=grace_period, propagation=propagation
        )
        if marked is obj or dry_run:
            return marked or obj
        if marked is None:
            last = deletion.marked_at_last(resource, obj, self.clock())
            if last is not None:
                before = self._told_later(resource, before, last)
            return self._remove(resource, before, before.obj)
        return self._commit("MODIFIED", resource, before.key, marked, before)

    def finalize(self, resource: Resource, namespace: str, name: str, *, remove: Iterable[str] = ()) -> Obj:
        """Take finalizers away; if a deletion is pending and none is left, complete it whatever its grace."""
        before = self.stored(resource, namespace, name)
        if before is None:
            raise not_found(resource, name)
        gone = set(remove)
        meta = dict(before.obj["metadata"])
        kept = [item for item in meta.pop("finalizers", ()) if item not in gone]
        if kept:
            meta["finalizers"] = kept
        obj = {**before.obj, "metadata": meta}
        if "deletionTimestamp" in meta and not kept:
            return self._remove(resource, before, obj)
        if obj == before.obj:
            return before.obj
        return self._commit("MODIFIED", resource, before.key, obj, before)

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback` with each change from now on, in order; returns the function that ends it.

        A callback may change the store: those changes are delivered after the current one, to everybody.
        """
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def compact(self, resource: Resource | None = None) -> None:
        """Forget the history, so that older watches and continue tokens get 410."""
        shelves = self._shelves.values() if resource is None else [self.shelf(resource)]
        for shelf in shelves:
            shelf.compact(self.resource_version)

    def restore(self) -> None:
        """As after a restore from a backup into a new server: the same objects, at versions that begin anew and have no
        history. Whoever watches has to be cut off by the caller."""
        self.resource_version = 1
        for shelf in self._shelves.values():
            for stored in shelf.ordered():
                self.resource_version += 1
                meta = {**stored.obj["metadata"], "resourceVersion": str(self.resource_version)}
                shelf.replace(Stored(stored.key, {**stored.obj, "metadata": meta}, self.resource_version))
        for shelf in self._shelves.values():
            shelf.forget(self.resource_version)

    # -- inside ---------------------------------------------------------------------------------

    def _chance(self, resource: Resource, meta: dict[str, Any]) -> random.Random:
        if self._seed is None:
            return self._rng
        what = (*resource.key, meta.get("namespace", ""), meta.get("name") or meta.get("generateName", ""))
        self._made[what] += 1
        return random.Random(f"{self._seed} {what} {self._made[what]}")

    def _generate(self, resource: Resource, meta: dict[str, Any], chance: random.Random) -> str:
        items = self.shelf(resource).items
        base = meta["generateName"][:58]
        for _ in range(8):
            name = base + "".join(chance.choices(_SUFFIX_ALPHABET, k=5))
            if Shelf.key(meta.get("namespace", ""), name) not in items:
                break
        return name

    @staticmethod
    def _check_current(resource: Resource, meta: Obj, current: Obj) -> None:
        uid = meta.get("uid")
        if uid and uid != current["uid"]:
            key = "/".join(
                part for part in (resource.plural, current.get("namespace"), current["name"]) if part
            )
            why = (
                f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, "
                f"UID in object meta: {current['uid']}"
            )
            raise conflict(resource, current["name"], why)
        version = meta.get("resourceVersion")
        if version and version != current["resourceVersion"]:
            raise conflict(resource, current["name"], MODIFIED)

    @staticmethod
    def _merged(resource: Resource, obj: Obj, old: Obj, subresource: str) -> Obj:
        """The new object with what the caller cannot change taken from the old one."""
        if subresource == "status":
            # Custom resources are defaulted again below, in place; what is stored must not change.
            merged = clone(old) if resource.custom is not None else {**old}
            if "status" in obj:
                merged["status"] = obj["status"]
            else:
                merged.pop("status", None)
            return merged
        meta, kept = dict(obj["metadata"]), old["metadata"]
        for field in (*_SYSTEM_FIELDS, "resourceVersion", "namespace"):
            if field in kept:
                meta[field] = kept[field]
            else:
                meta.pop(field, None)
        for field in ("selfLink", "managedFields"):
            meta.pop(field, None)
        _drop_empty(meta)
        obj["metadata"] = meta
        obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
        if resource.has_status and not subresource:
            if "status" in old:
                obj["status"] = old["status"]
            else:
                obj.pop("status", None)
        return obj

    @staticmethod
    def _count_generation(resource: Resource, new: Obj, old: Obj, subresource: str) -> None:
        if not resource.generation or subresource in ("status", "binding"):
            return
        if resource.custom is None:
            changed = new.get("spec") != old.get("spec")
            if resource.plural == "deployments":
                # A rollback is noted in annotations; the real strategy counts them too.
                changed = changed or new["metadata"].get("annotations") != old["metadata"].get("annotations")
        else:
            ignored = ("metadata", "status") if resource.has_status else ("metadata",)
            changed = any(new.get(k) != old.get(k) for k in {*new, *old} if k not in ignored)
        if changed:
            new["metadata"] = {**new["metadata"], "generation": old["metadata"].get("generation", 0) + 1}

    def _commit(self, kind: ChangeType, resource: Resource, key: str, obj: Obj, before: Stored | None) -> Obj:
        self.resource_version += 1
        rv = self.resource_version
        if before is not None and obj["metadata"] is before.obj["metadata"]:
            obj["metadata"] = dict(obj["metadata"])
        obj["metadata"]["resourceVersion"] = str(rv)
        change = Change(kind, resource, Stored(key, obj, rv), before)
        self.shelf(resource).apply(change)
        self._index_owners(resource, key, None if before is None else before.obj, change.new)
        self._pending.append(change)
        if not self._dispatching:
            self._dispatch()
        return obj

    def _told_later(self, resource: Resource, before: Stored, obj: Obj) -> Stored:
        """The change is told together with the next one: nobody may answer it in between."""
        held, self._dispatching = self._dispatching, True
        try:
            self._commit("MODIFIED", resource, before.key, obj, before)
        finally:
            self._dispatching = held
        return Stored(before.key, obj, self.resource_version)

    def _remove(self, resource: Resource, before: Stored, last: Obj) -> Obj:
        final = {**last, "metadata": dict(last["metadata"])}
        return self._commit("DELETED", resource, before.key, final, before)

    def _index_owners(self, resource: Resource, key: str, old: Obj | None, new: Obj | None) -> None:
        before = () if old is None else old["metadata"].get("ownerReferences") or ()
        after = () if new is None else new["metadata"].get("ownerReferences") or ()
        if before is after:
            return
        for ref in before:
            owned = self._dependents.get(ref.get("uid", ""))
            if owned is not None:
                owned.pop((resource, key), None)
                if not owned:
                    del self._dependents[ref["uid"]]
        for ref in after:
            self._dependents.setdefault(ref.get("uid", ""), {})[(resource, key)] = None

    def _dispatch(self) -> None:
        self._dispatching = True
        try:
            while self._pending:
                change = self._pending.popleft()
                for callback in tuple(self._subscribers):
                    try:
                        callback(change)
                    except Exception:
                        log.exception("subscriber %r failed on %r", callback, change)
        finally:
            self._dispatching = False
