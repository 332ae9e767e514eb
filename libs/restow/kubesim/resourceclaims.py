"""The ResourceClaim controller: claims made from templates, and devices given back once no pod uses them.

As kube-controller-manager's resourceclaim-controller. A generated claim goes with its pod by garbage collection.
"""

from __future__ import annotations

from restow.kubesim.objects import Obj, dig
from restow.kubesim.podstate import (
    PodKey,
    annotations_of,
    is_deleting,
    is_terminal,
    key_of,
    owner_reference,
    uid_of,
)
from restow.kubesim.resources import PODS, RESOURCECLAIMS, RESOURCECLAIMTEMPLATES
from restow.kubesim.runtime import Runtime, before_of, write_status
from restow.kubesim.shelf import Change
from restow.kubesim.workloads.common import ignore_gone

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
PROTECTION = "resource.kubernetes.io/delete-protection"
"""On a claim as long as it is allocated."""

Key = tuple[str, str, str]
"""What to look at (pod or claim), namespace and name."""


class ResourceClaims:
    """One control loop over claims, their templates, and pods that have some."""

    name = "resourceclaims"
    watches = (RESOURCECLAIMTEMPLATES, RESOURCECLAIMS, PODS)

    def __init__(self, runtime: Runtime):
        self.store = runtime.store
        self.queue = runtime.new_queue()
        self._waiting: dict[PodKey, None] = {}
        """Pods of which a template is not there."""

    def observe(self, change: Change) -> None:
        old, new = before_of(change), change.new
        if change.resource == RESOURCECLAIMTEMPLATES:
            for waiting in self._waiting:
                self.queue.add(("pod", *waiting))
        elif change.resource == RESOURCECLAIMS:
            claim = new or old
            assert claim is not None
            if new is not None:
                self.queue.add(("claim", *key_of(claim)))
        else:
            self._observe_pod(old, new)

    def _observe_pod(self, old: Obj | None, new: Obj | None) -> None:
        pod = new or old
        assert pod is not None
        if not pod["spec"].get("resourceClaims"):
            return
        if new is None or is_terminal(new):
            self._waiting.pop(key_of(pod), None)
            for name in names_of(pod).values():
                self.queue.add(("claim", key_of(pod)[0], name))
        elif old is None:
            self.queue.add(("pod", *key_of(pod)))

    def reconcile(self, key: Key) -> float | None:
        kind, namespace, name = key
        if kind == "claim":
            claim = self.store.find(RESOURCECLAIMS, namespace, name)
            if claim is not None:
                self._release(claim)
            return None
        pod = self.store.find(PODS, namespace, name)
        if pod is not None and not is_deleting(pod) and not is_terminal(pod):
            self._make(pod)
        return None

    def _make(self, pod: Obj) -> None:
        namespace, name = key_of(pod)
        self._waiting.pop((namespace, name), None)
        known = names_of(pod)
        said = [dict(one) for one in dig(pod, "status", "resourceClaimStatuses", default=())]
        for asked in pod["spec"]["resourceClaims"]:
            if "resourceClaimTemplateName" not in asked or asked["name"] in known:
                continue
            template = self.store.find(RESOURCECLAIMTEMPLATES, namespace, asked["resourceClaimTemplateName"])
            if template is None:
                self._waiting[namespace, name] = None
                continue
            made = self._made(pod, asked["name"]) or self._create(pod, asked["name"], template)
            said.append({"name": asked["name"], "resourceClaimName": made["metadata"]["name"]})
        write_status(self.store, PODS, pod, {**(pod.get("status") or {}), "resourceClaimStatuses": said})

    def _made(self, pod: Obj, name: str) -> Obj | None:
        """One that was made before its name was written down."""
        for claim in self.store.list(RESOURCECLAIMS, key_of(pod)[0]):
            owners = claim["metadata"].get("ownerReferences") or ()
            if annotations_of(claim).get(POD_CLAIM) == name and any(owner["uid"] == uid_of(pod) for owner in owners):
                return claim
        return None

    def _create(self, pod: Obj, name: str, template: Obj) -> Obj:
        said = template["spec"].get("metadata") or {}
        meta = {
            "generateName": f"{key_of(pod)[1]}-{name}-",
            "annotations": {**(said.get("annotations") or {}), POD_CLAIM: name},
            **({"labels": dict(said["labels"])} if said.get("labels") else {}),
            "ownerReferences": [owner_reference(pod, PODS.api_version, PODS.kind)],
        }
        return self.store.create(RESOURCECLAIMS, {"metadata": meta, "spec": template["spec"]["spec"]}, key_of(pod)[0])

    def _release(self, claim: Obj) -> None:
        """Who has gone or ended uses it no more; without anybody its devices are free again."""
        namespace, name = key_of(claim)
        status = dict(claim.get("status") or {})
        reserved = status.get("reservedFor") or []
        kept = [one for one in reserved if self._uses(namespace, one)]
        if len(kept) < len(reserved):
            status.pop("reservedFor")
            if kept:
                status["reservedFor"] = kept
            else:
                status.pop("allocation", None)
            claim = write_status(self.store, RESOURCECLAIMS, claim, status)
        if "allocation" not in status and PROTECTION in (claim["metadata"].get("finalizers") or ()):
            ignore_gone(lambda: self.store.finalize(RESOURCECLAIMS, namespace, name, remove=[PROTECTION]))

    def _uses(self, namespace: str, consumer: Obj) -> bool:
        if (consumer.get("apiGroup", ""), consumer.get("resource")) != ("", "pods"):
            return True
        pod = self.store.find(PODS, namespace, consumer["name"])
        return pod is not None and uid_of(pod) == consumer["uid"] and not is_terminal(pod)


def names_of(pod: Obj) -> dict[str, str]:
    """The claims of a pod as it calls them → their names, as far as they are known."""
    made = {one["name"]: one.get("resourceClaimName", "") for one in dig(pod, "status", "resourceClaimStatuses", default=())}
    named = {one["name"]: one["resourceClaimName"] for one in pod["spec"].get("resourceClaims") or () if "resourceClaimName" in one}
    return {name: found for name, found in {**made, **named}.items() if found}
