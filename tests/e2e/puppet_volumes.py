"""The volume controllers and the provisioner that a bare API server lacks, no larger than the tests need.

    VolumePuppet(api, seen, binds=True)     for an API server alone: binds, provisions, cleans up after itself
    VolumePuppet(api, seen, binds=False)    the provisioner of PROVISIONER's classes only, where the binder is real

As kubesim's volume controller and an external provisioner do it: a claim of a class that waits gets a volume when its
selected-node annotation is there, one that FAIL_ON lists cannot be served and the annotation is taken away again.
"""

from __future__ import annotations

from typing import Any

from kubesim.conformance.harness import MERGE, Api

Obj = dict[str, Any]
Seen = dict[str, dict[str, Obj]]

CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
PATHS = (CLAIMS, VOLUMES, CLASSES)

PROVISIONER = "disk.e2e.restow.dev"
FAIL_ON = "kubesim.restow.dev/fail-on"
"""Parameter of a class: nodes (`n1,n2`) for which no volume can be made."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
BOUND = "pv.kubernetes.io/bind-completed"


class VolumePuppet:
    """Each step looks at what is there now; True asks for another look."""

    def __init__(self, api: Api, seen: Seen, *, binds: bool) -> None:
        self._api, self._seen, self._binds = api, seen, binds

    async def claim(self, uid: str) -> bool:
        claim = self._seen[CLAIMS].get(uid)
        if claim is None or not self._mine(claim):
            return False
        meta = claim["metadata"]
        if meta.get("deletionTimestamp"):
            return await self._let_go(claim_path(meta), claim)
        if claim["spec"].get("volumeName") and BOUND in (meta.get("annotations") or {}):
            return False
        volume = self._volume_for(claim)
        if volume is not None:
            return await self._bind(claim, volume) if self._binds else False
        return await self._provision(claim)

    async def volume(self, uid: str) -> bool:
        """A volume that was made for a claim goes with it; one that goes is kept by nobody."""
        volume = self._seen[VOLUMES].get(uid)
        if volume is None:
            return False
        meta, ref = volume["metadata"], volume["spec"].get("claimRef") or {}
        if meta.get("deletionTimestamp"):
            return await self._let_go(f"{VOLUMES}/{meta['name']}", volume)
        made = (meta.get("annotations") or {}).get(PROVISIONED_BY) == PROVISIONER
        if made and ref.get("uid") and ref["uid"] not in self._seen[CLAIMS]:
            await self._api.call("DELETE", f"{VOLUMES}/{meta['name']}", {"preconditions": {"uid": uid}})
        elif self._binds and not ref and (volume.get("status") or {}).get("phase") in (None, "", "Pending"):
            await self._api.call("PATCH", f"{VOLUMES}/{meta['name']}/status", {"status": {"phase": "Available"}}, media=MERGE)
        return False

    def waiting(self) -> list[str]:
        """Claims that a new volume or class may serve."""
        return [uid for uid, claim in self._seen[CLAIMS].items() if BOUND not in (claim["metadata"].get("annotations") or {})]

    def orphans(self, claim: str) -> list[str]:
        return [uid for uid, volume in self._seen[VOLUMES].items() if (volume["spec"].get("claimRef") or {}).get("uid") == claim]

    # -- binding -----------------------------------------------------------------------------------------------------

    def _mine(self, claim: Obj) -> bool:
        there = self._class(claim)
        return self._binds or (there is not None and there["provisioner"] == PROVISIONER)

    def _class(self, claim: Obj) -> Obj | None:
        name = claim["spec"].get("storageClassName")
        return next((c for c in self._seen[CLASSES].values() if c["metadata"]["name"] == name), None)

    def _volume_for(self, claim: Obj) -> Obj | None:
        """The one that is reserved for it; for a class that does not wait also the first that is free. Tests make no volumes
        of a wrong size."""
        meta, spec, free = claim["metadata"], claim["spec"], []
        for volume in sorted(self._seen[VOLUMES].values(), key=lambda v: v["metadata"]["name"]):
            ref = volume["spec"].get("claimRef")
            if ref and ref.get("uid") == meta["uid"]:
                return volume
            if not ref and volume["spec"].get("storageClassName") == spec.get("storageClassName"):
                free.append(volume)
        there = self._class(claim)
        delayed = there is not None and there.get("volumeBindingMode") == "WaitForFirstConsumer"
        return free[0] if free and not delayed else None

    async def _bind(self, claim: Obj, volume: Obj) -> bool:
        """Both sides, status after spec, as the binder does."""
        meta, name = claim["metadata"], volume["metadata"]["name"]
        path = claim_path(meta)
        ref = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"} | {k: meta[k] for k in ("namespace", "name", "uid")}
        bound = {"metadata": {"annotations": {BOUND: "yes"}}, "spec": {"volumeName": name}}
        amounts = {"accessModes": volume["spec"]["accessModes"], "capacity": volume["spec"]["capacity"]}
        for where, patch in (
            (f"{VOLUMES}/{name}", {"spec": {"claimRef": ref}}),
            (f"{VOLUMES}/{name}/status", {"status": {"phase": "Bound"}}),
            (path, bound),
            (f"{path}/status", {"status": {"phase": "Bound", **amounts}}),
        ):
            answer = await self._api.call("PATCH", where, patch, media=MERGE)
            if answer.status >= 300:
                return answer.status != 404
        return False

    # -- provisioning ------------------------------------------------------------------------------------------------

    async def _provision(self, claim: Obj) -> bool:
        there, meta, spec = self._class(claim), claim["metadata"], claim["spec"]
        if there is None or there["provisioner"] != PROVISIONER:
            return False
        selected = (meta.get("annotations") or {}).get(SELECTED_NODE, "")
        if there.get("volumeBindingMode") == "WaitForFirstConsumer" and not selected:
            return False
        if selected and selected in (there.get("parameters") or {}).get(FAIL_ON, "").split(","):
            patch = {"metadata": {"annotations": {SELECTED_NODE: None}}}
            answer = await self._api.call("PATCH", claim_path(meta), patch, media=MERGE)
            return answer.status >= 300 and answer.status != 404
        name = f"pvc-{meta['uid']}"
        ref = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"} | {k: meta[k] for k in ("namespace", "name", "uid")}
        body = {
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]}, "accessModes": spec["accessModes"],
                "storageClassName": there["metadata"]["name"], "persistentVolumeReclaimPolicy": "Delete", "claimRef": ref,
                "csi": {"driver": PROVISIONER, "volumeHandle": name},
            },
        }  # fmt: skip
        answer = await self._api.call("POST", VOLUMES, body)
        return answer.status >= 300 and answer.status != 409

    async def _let_go(self, path: str, obj: Obj) -> bool:
        """Protection ends: tests delete pods before their claims, and claims before their volumes."""
        if not self._binds or not obj["metadata"].get("finalizers"):
            return False
        answer = await self._api.call("PATCH", path, {"metadata": {"finalizers": None}}, media=MERGE)
        return answer.status >= 300 and answer.status != 404


def claim_path(meta: Obj) -> str:
    return f"/api/v1/namespaces/{meta['namespace']}/persistentvolumeclaims/{meta['name']}"
