"""Namespaces: what every cluster has, where objects may be created, and how a deleted namespace empties."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from restow.kubesim.errors import ApiError, forbidden, not_found
from restow.kubesim.objects import Obj, dig, rfc3339
from restow.kubesim.resources import EVENTS_V1, NAMESPACES, Resource

if TYPE_CHECKING:
    from restow.kubesim.shelf import Change
    from restow.kubesim.store import Store

INITIAL = ("default", "kube-system", "kube-public", "kube-node-lease")
_UNDELETABLE = frozenset({"default", "kube-system", "kube-public"})


def check_open(store: Store, resource: Resource, obj: Obj) -> None:
    """Refuse to create in a missing (404) or terminating (403) namespace."""
    name = obj["metadata"]["namespace"]
    namespace = store.find(NAMESPACES, "", name)
    if namespace is None:
        raise not_found(NAMESPACES, name)
    if "deletionTimestamp" in namespace["metadata"]:
        why = f"unable to create new content in namespace {name} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
        raise forbidden(resource, obj["metadata"].get("name", ""), why, [cause])


def mark_terminating(store: Store, namespace: Obj) -> Obj | None:
    """The namespace as it waits to become empty; None once its finalizers are gone."""
    meta = namespace["metadata"]
    if meta["name"] in _UNDELETABLE:
        raise forbidden(NAMESPACES, meta["name"], "this namespace may not be deleted")
    if "deletionTimestamp" in meta:
        return namespace if dig(namespace, "spec", "finalizers") else None
    if not dig(namespace, "spec", "finalizers"):
        return None
    status = {**(namespace.get("status") or {}), "phase": "Terminating"}
    return {**namespace, "metadata": {**meta, "deletionTimestamp": rfc3339(store.clock())}, "status": status}


class NamespaceController:
    """Deletes what lies in a terminating namespace, then the namespace: at once, or when `later` says."""

    def __init__(self, store: Store):
        self.store = store
        self.later: Callable[[Callable[[], None]], object] = lambda work: work()
        self._terminating: dict[str, bool] = {}
        """Those that are, and whether it is their turn."""
        store.subscribe(self._note)

    def _note(self, change: Change) -> None:
        if change.resource == NAMESPACES:
            meta = change.stored.obj["metadata"]
            if change.type == "DELETED":
                self._terminating.pop(meta["name"], None)
            elif "deletionTimestamp" in meta and meta["name"] not in self._terminating:
                self._terminating[meta["name"]] = False
                self.later(partial(self._empty, meta["name"]))
        elif change.type == "DELETED" and self._terminating:
            name = change.stored.obj["metadata"].get("namespace", "")
            if self._terminating.get(name):
                self.consider(name)

    def _empty(self, name: str) -> None:
        if name not in self._terminating:
            return
        self._terminating[name] = True
        for resource in self.store.registry:
            if not resource.namespaced or resource == EVENTS_V1:
                continue
            for obj in self.store.list(resource, name):
                try:
                    self.store.delete(resource, name, obj["metadata"]["name"], propagation="Background")
                except ApiError as error:
                    if error.code != 404:
                        raise
        self.consider(name)

    def consider(self, name: str) -> None:
        """Remove the namespace if it terminates and nothing is left in it."""
        namespace = self.store.find(NAMESPACES, "", name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        for resource in self.store.registry:
            if resource.namespaced and resource != EVENTS_V1 and self.store.count(resource, name):
                return
        left = [item for item in dig(namespace, "spec", "finalizers", default=[]) if item != "kubernetes"]
        if left or namespace["metadata"].get("finalizers"):
            return
        self.store.finalize(NAMESPACES, "", name)
