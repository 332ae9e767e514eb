"""The volume controllers: bind claims to volumes, provision, release, protect what is in use, make ephemeral claims.

As kube-controller-manager's persistentvolume-binder, pvc- and pv-protection and ephemeral-volume controllers. For every
provisioner but `kubernetes.io/no-provisioner` kubesim itself stands in: a volume is there at once. A node that the class's
parameter `kubesim.restow.dev/fail-on` lists (`n1,n2`) cannot get one: the claim's selected-node annotation is taken away
again, as an external provisioner does.
"""

from __future__ import annotations

from typing import Any

from restow.kubesim import storage
from restow.kubesim.objects import Obj, dig
from restow.kubesim.podstate import (
    PodKey,
    annotations_of,
    is_deleting,
    is_terminal,
    key_of,
    node_of,
    owner_reference,
    uid_of,
)
from restow.kubesim.resources import NODES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS, STORAGECLASSES
from restow.kubesim.runtime import Runtime, before_of, write_status
from restow.kubesim.shelf import Change
from restow.kubesim.workloads.common import ignore_gone

FAIL_ON = "kubesim.restow.dev/fail-on"

Key = tuple[str, str, str]
"""What to look at (claim, volume or pod), namespace and name."""


class VolumeController:
    """One control loop over claims, volumes, and pods with ephemeral volumes."""

    name = "volumes"
    watches = (STORAGECLASSES, PERSISTENTVOLUMES, PERSISTENTVOLUMECLAIMS, PODS)

    def __init__(self, runtime: Runtime):
        self.store = runtime.store
        self.queue = runtime.new_queue()
        self._waiting: dict[PodKey, str] = {}
        """Claims that nothing fits → their class."""
        self._reserved: dict[PodKey, dict[str, None]] = {}
        """Claim → volumes whose claimRef names it."""
        self._available: dict[str, dict[str, None]] = {}
        """Class → volumes that nobody has claimed."""

    # -- observing ------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        old, new = before_of(change), change.new
        if change.resource == PODS:
            self._observe_pod(old, new)
        elif change.resource == PERSISTENTVOLUMES:
            self._observe_volume(old, new)
        elif change.resource == PERSISTENTVOLUMECLAIMS:
            self._observe_claim(old, new)
        else:
            self._wake_all()

    def _observe_pod(self, old: Obj | None, new: Obj | None) -> None:
        pod = new or old
        assert pod is not None
        claims = storage.claims_of(pod)
        if not claims:
            return
        if new is None or is_terminal(new):
            for claim in claims:
                self.queue.add(("claim", *claim))
        elif old is None and any("ephemeral" in volume for volume in pod["spec"].get("volumes") or ()):
            self.queue.add(("pod", *key_of(pod)))

    def _observe_volume(self, old: Obj | None, new: Obj | None) -> None:
        for volume, there in ((old, False), (new, True)):
            if volume is None:
                continue
            name, claim = volume["metadata"]["name"], storage.claim_of(volume)
            index: dict[Any, dict[str, None]] = self._available if claim is None else self._reserved
            members = index.setdefault(storage.class_of(volume) if claim is None else claim, {})
            if there:
                members[name] = None
            else:
                members.pop(name, None)
            if claim is not None:
                self.queue.add(("claim", *claim))
        if new is None:
            return
        self.queue.add(("volume", "", new["metadata"]["name"]))
        if storage.claim_of(new) is not None:
            return
        for key, storage_class in self._waiting.items():
            if storage_class == storage.class_of(new):
                self.queue.add(("claim", *key))

    def _observe_claim(self, old: Obj | None, new: Obj | None) -> None:
        claim = new or old
        assert claim is not None
        key = key_of(claim)
        if new is None:
            self._waiting.pop(key, None)
            for name in self._reserved.get(key, ()):
                self.queue.add(("volume", "", name))
        self.queue.add(("claim", *key))

    def _wake_all(self) -> None:
        for key in self._waiting:
            self.queue.add(("claim", *key))

    # -- reconciling ----------------------------------------------------------------------------

    def reconcile(self, key: Key) -> float | None:
        kind, namespace, name = key
        if kind == "claim":
            claim = self.store.find(PERSISTENTVOLUMECLAIMS, namespace, name)
            if claim is not None:
                self._claim(claim)
        elif kind == "volume":
            volume = self.store.find(PERSISTENTVOLUMES, "", name)
            if volume is not None:
                self._volume(volume)
        else:
            pod = self.store.find(PODS, namespace, name)
            if pod is not None and not is_deleting(pod):
                self._ephemeral(pod)
        return None

    def _claim(self, claim: Obj) -> None:
        key = key_of(claim)
        self._waiting.pop(key, None)
        if is_deleting(claim):
            if not self._in_use(key):
                self._unprotect(PERSISTENTVOLUMECLAIMS, claim, storage.PROTECT_CLAIM)
            return
        if storage.is_bound(claim):
            volume = self.store.find(PERSISTENTVOLUMES, "", claim["spec"]["volumeName"])
            lost = volume is None or storage.claim_of(volume) != key or dig(volume, "spec", "claimRef", "uid") != uid_of(claim)
            if lost:
                write_status(self.store, PERSISTENTVOLUMECLAIMS, claim, {**claim["status"], "phase": "Lost"})
            return
        claim = self._with_class(claim)
        storage_class = self.store.find(STORAGECLASSES, "", storage.class_of(claim))
        delayed = storage_class is not None and storage_class.get("volumeBindingMode") == storage.WAIT
        volume = self._found(claim, delayed)
        if volume is not None:
            self._bind(claim, volume)
            return
        self._waiting[key] = storage.class_of(claim)
        selected = annotations_of(claim).get(storage.SELECTED_NODE, "")
        if storage_class is None or dig(claim, "spec", "volumeName") or (delayed and not selected):
            return
        if storage_class.get("provisioner") not in (None, "", storage.NO_PROVISIONER):
            self._provision(claim, storage_class, selected)

    def _with_class(self, claim: Obj) -> Obj:
        """A claim that says nothing of a class gets the default one, also later (RetroactiveDefaultStorageClass)."""
        default = storage.default_class(self.store.list(STORAGECLASSES))
        if default is None or dig(claim, "spec", "storageClassName") is not None or dig(claim, "spec", "volumeName"):
            return claim
        name = default["metadata"]["name"]
        return self.store.update(PERSISTENTVOLUMECLAIMS, {**claim, "spec": {**claim["spec"], "storageClassName": name}})

    def _found(self, claim: Obj, delayed: bool) -> Obj | None:
        """The volume that the claim names or that is reserved for it; else, unless a scheduler decides, the smallest that
        fits, the first by name of equal ones."""
        named = dig(claim, "spec", "volumeName")
        if named:
            volume = self.store.find(PERSISTENTVOLUMES, "", named)
            return volume if volume is not None and storage.may_have(claim, volume) else None
        names = list(self._reserved.get(key_of(claim), ()))
        if not names and not delayed:
            names = list(self._available.get(storage.class_of(claim), ()))
        volumes = [v for name in names if (v := self.store.find(PERSISTENTVOLUMES, "", name)) is not None]
        fitting = [v for v in volumes if storage.may_have(claim, v) and storage.fits(claim, v)]
        return min(fitting, key=lambda v: (storage.size_of(v), v["metadata"]["name"]), default=None)

    def _bind(self, claim: Obj, volume: Obj) -> None:
        """Both sides, each in a write of its spec and one of its status; what is written already is not written again."""
        by_controller: dict[str, str | None] = {storage.BOUND_BY_CONTROLLER: "yes"}
        ref = dig(volume, "spec", "claimRef")
        if dig(ref, "uid") != uid_of(claim):
            meta = storage.annotated(volume, {} if ref else by_controller)
            spec = {**volume["spec"], "claimRef": storage.reference(claim)}
            volume = self.store.update(PERSISTENTVOLUMES, {**volume, "metadata": meta, "spec": spec})
        write_status(self.store, PERSISTENTVOLUMES, volume, {**(volume.get("status") or {}), "phase": "Bound"})
        said = {} if dig(claim, "spec", "volumeName") else by_controller
        meta = storage.annotated(claim, {storage.BIND_COMPLETED: "yes", **said})
        spec = {**claim["spec"], "volumeName": volume["metadata"]["name"]}
        claim = self.store.update(PERSISTENTVOLUMECLAIMS, {**claim, "metadata": meta, "spec": spec})
        capacity = {"storage": dig(volume, "spec", "capacity", "storage", default="0")}
        status = {"phase": "Bound", "accessModes": volume["spec"].get("accessModes") or [], "capacity": capacity}
        write_status(self.store, PERSISTENTVOLUMECLAIMS, claim, status)

    def _provision(self, claim: Obj, storage_class: Obj, selected: str) -> None:
        node = self.store.find(NODES, "", selected) if selected else None
        failing = dig(storage_class, "parameters", FAIL_ON, default="").split(",")
        topology = storage.topology_of(storage_class, node)
        if selected and (node is None or selected in failing or topology is None):
            meta = storage.annotated(claim, {storage.SELECTED_NODE: None})
            self.store.update(PERSISTENTVOLUMECLAIMS, {**claim, "metadata": meta})
            return
        ignore_gone(lambda: self.store.create(PERSISTENTVOLUMES, storage.provisioned(claim, storage_class, topology)))

    def _volume(self, volume: Obj) -> None:
        key, uid = storage.claim_of(volume), dig(volume, "spec", "claimRef", "uid")
        claim = None if key is None else self.store.find(PERSISTENTVOLUMECLAIMS, *key)
        held = claim is not None and storage.is_bound(claim) and claim["spec"]["volumeName"] == volume["metadata"]["name"]
        if is_deleting(volume):
            if not held:
                self._unprotect(PERSISTENTVOLUMES, volume, storage.PROTECT_VOLUME)
            return
        if not uid:
            phase = "Available"
        elif claim is not None and uid_of(claim) == uid:
            phase = "Bound" if held else "Available"
        else:
            phase = "Released"
        volume = write_status(self.store, PERSISTENTVOLUMES, volume, {**(volume.get("status") or {}), "phase": phase})
        if phase == "Released" and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            ignore_gone(lambda: self.store.delete(PERSISTENTVOLUMES, "", volume["metadata"]["name"], uid=uid_of(volume)))

    def _in_use(self, claim: PodKey) -> bool:
        """By a pod that has a node and has not ended."""
        pods = self.store.list(PODS, claim[0])
        return any(node_of(pod) and not is_terminal(pod) and claim in storage.claims_of(pod) for pod in pods)

    def _unprotect(self, resource: Any, obj: Obj, finalizer: str) -> None:
        if finalizer in (obj["metadata"].get("finalizers") or ()):
            namespace, name = key_of(obj)
            ignore_gone(lambda: self.store.finalize(resource, namespace, name, remove=[finalizer]))

    def _ephemeral(self, pod: Obj) -> None:
        """The claims of generic ephemeral volumes, owned by their pod. One of another owner is left alone."""
        namespace, name = key_of(pod)
        for volume in pod["spec"].get("volumes") or ():
            template = dig(volume, "ephemeral", "volumeClaimTemplate")
            if template is None or self.store.find(PERSISTENTVOLUMECLAIMS, namespace, f"{name}-{volume['name']}") is not None:
                continue
            meta = {
                "name": f"{name}-{volume['name']}",
                **{k: dict(v) for k in ("labels", "annotations") if (v := dig(template, "metadata", k))},
                "ownerReferences": [owner_reference(pod, PODS.api_version, PODS.kind)],
            }
            self.store.create(PERSISTENTVOLUMECLAIMS, {"metadata": meta, "spec": template.get("spec") or {}}, namespace)
