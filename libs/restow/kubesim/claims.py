"""PersistentVolumeClaims are Bound as soon as they exist; no volume stands behind them."""

from __future__ import annotations

from restow.kubesim.podstate import PodKey, key_of
from restow.kubesim.resources import PERSISTENTVOLUMECLAIMS
from restow.kubesim.runtime import Runtime, write_status
from restow.kubesim.shelf import Change


class Claims:
    name = "claims"
    watches = (PERSISTENTVOLUMECLAIMS,)

    def __init__(self, runtime: Runtime):
        self.store = runtime.store
        self.queue = runtime.new_queue()

    def observe(self, change: Change) -> None:
        if change.type == "ADDED":
            self.queue.add(key_of(change.stored.obj))

    def reconcile(self, key: PodKey) -> float | None:
        claim = self.store.find(PERSISTENTVOLUMECLAIMS, *key)
        if claim is None or (claim.get("status") or {}).get("phase") == "Bound":
            return None
        spec = claim.get("spec") or {}
        status = {
            "phase": "Bound",
            "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
            "capacity": dict((spec.get("resources") or {}).get("requests") or {}),
        }
        write_status(self.store, PERSISTENTVOLUMECLAIMS, claim, status)
        return None
