"""What all controllers of pods do alike: follow their pods, adopt, release, make pods from a template."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from restow.kubesim.errors import ApiError
from restow.kubesim.objects import Obj, clone, controller_of
from restow.kubesim.podindex import Group, SelectorIndex
from restow.kubesim.podstate import (
    PodKey,
    available_in,
    is_active,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    uid_of,
)
from restow.kubesim.resources import PODS, Resource
from restow.kubesim.runtime import Runtime, before_of
from restow.kubesim.shelf import Change

CREATE_BATCH = 16
"""Pods that one reconcile creates at most; the rest waits for the next turn of the key."""
DELETE_BATCH = 100

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_encode = msgspec.json.Encoder(order="sorted").encode


def safe_hash(value: Any) -> str:
    """A short name for a JSON value in the letters of `rand.SafeEncodeString`."""
    number = int.from_bytes(hashlib.blake2s(_encode(value), digest_size=4).digest(), "big")
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))


def pod_from_template(
    template: Obj,
    owner: Obj,
    resource: Resource,
    *,
    name: str = "",
    prefix: str = "",
    spec: Obj | None = None,
) -> Obj:
    """A pod as `controller.GetPodFromTemplate` makes it. Give `name`, or `prefix` for a generated name.

    `spec` replaces the template's spec and is taken over without a copy.
    """
    source = template.get("metadata") or {}
    meta: Obj = {
        "namespace": owner["metadata"].get("namespace", "default"),
        "labels": dict(source.get("labels") or {}),
        "ownerReferences": [owner_reference(owner, resource.api_version, resource.kind)],
    }
    if source.get("annotations"):
        meta["annotations"] = dict(source["annotations"])
    if source.get("finalizers"):
        meta["finalizers"] = list(source["finalizers"])
    if name:
        meta["name"] = name
    else:
        meta["generateName"] = prefix
    return {"metadata": meta, "spec": clone(template.get("spec") or {}) if spec is None else spec}


class PodOwners:
    """Base of the controllers that own pods directly: ReplicaSet, StatefulSet, DaemonSet, Job."""

    name = ""
    resource: Resource
    watches: tuple[Resource, ...]

    def __init__(self, runtime: Runtime):
        self.runtime = runtime
        self.store = runtime.store
        self.queue = runtime.new_queue()
        self.selectors = SelectorIndex()

    # -- observing ------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        if change.resource == PODS:
            self.observe_pod(change)
        elif change.resource == self.resource:
            self.observe_owner(change)

    def observe_owner(self, change: Change) -> None:
        """Queue the object, unless only its status changed."""
        old, new = before_of(change), change.new
        # A status write keeps the very same spec object.
        same = old is not None and new is not None and new.get("spec") is old.get("spec")
        if same and is_deleting(change.stored.obj) == is_deleting(old or {}):
            return
        self.selectors.change(old, new)
        self.queue.add(key_of(change.stored.obj))

    def observe_pod(self, change: Change) -> None:
        old, new = before_of(change), change.new
        owner_before = None if old is None else controller_of(old)
        owner = None if new is None else controller_of(new)
        key = key_of(change.stored.obj)
        if owner_before is not None and owner_before.get("kind") == self.resource.kind:
            lost = owner is None or owner["uid"] != owner_before["uid"]
            if lost or _counts_differ(old, new):
                self.pod_changed(key, owner_before, change)
        if owner is not None:
            if owner.get("kind") == self.resource.kind:
                self.pod_touched(key, owner, change)
        elif new is not None and (old is None or owner_before or labels_of(new) != labels_of(old)):
            for wanting in self.selectors.wanting(new):
                self.queue.add(wanting)

    def pod_changed(self, pod: PodKey, owner: Obj, change: Change) -> None:
        """An owned pod began to end, ended or left: its replacement cannot wait."""
        self.queue.add((pod[0], owner["name"]))

    def pod_touched(self, pod: PodKey, owner: Obj, change: Change) -> None:
        """An owned pod moved: the status follows soon."""
        self.queue.add_after((pod[0], owner["name"]), self.runtime.timings.status_batch)

    # -- acting ---------------------------------------------------------------------------------

    def claim(self, owner: Obj) -> Group:
        """Adopt orphans that the selector matches, release pods that it does not; returns what is owned."""
        selector = (owner.get("spec") or {}).get("selector")
        namespace = owner["metadata"].get("namespace", "")
        pods = self.runtime.pods
        for orphan in pods.orphans(namespace, selector):
            if is_active(orphan):
                self._set_owners(
                    orphan, [owner_reference(owner, self.resource.api_version, self.resource.kind)]
                )
        for stranger in pods.group(uid_of(owner)).strangers(selector):
            self._set_owners(stranger, [])
        return pods.group(uid_of(owner))

    def _set_owners(self, pod: Obj, controllers: list[Obj]) -> None:
        meta = dict(pod["metadata"])
        others = [ref for ref in meta.get("ownerReferences") or () if not ref.get("controller")]
        meta["ownerReferences"] = [*others, *controllers]
        ignore_gone(lambda: self.store.update(PODS, {**pod, "metadata": meta}))

    def delete_pod(self, pod: Obj) -> None:
        """Ask for the pod's deletion; nothing happens if it is gone or another pod has its name."""
        namespace, name = key_of(pod)
        ignore_gone(lambda: self.store.delete(PODS, namespace, name, uid=uid_of(pod)))

    def available(self, owner: Obj, group: Group) -> tuple[int, float | None]:
        """Available pods, and the seconds until one more becomes available (None: none is on its way)."""
        min_ready = (owner.get("spec") or {}).get("minReadySeconds") or 0
        if min_ready <= 0:
            return group.ready, None
        now, count, soonest = self.runtime.now(), 0, None
        for pod in group.members.values():
            wait = available_in(pod, min_ready, now) if is_active(pod) else None
            if wait is None:
                continue
            if wait <= 0:
                count += 1
            elif soonest is None or wait < soonest:
                soonest = wait
        return count, soonest


def _counts_differ(old: Obj | None, new: Obj | None) -> bool:
    return old is None or new is None or is_active(old) != is_active(new)


def ignore_gone(action: Any) -> None:
    """Run the action; 404 and 409 mean that somebody was faster, and the next look will see it."""
    try:
        action()
    except ApiError as error:
        if error.code not in (404, 409):
            raise
