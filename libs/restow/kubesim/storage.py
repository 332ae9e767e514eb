"""Questions about claims, volumes and classes, and the objects that provisioning makes. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from restow.kubesim.amounts import parse_quantity
from restow.kubesim.objects import Obj, clone, dig
from restow.kubesim.placement import any_term_matches
from restow.kubesim.podstate import PodKey, annotations_of, is_deleting, key_of, labels_of, uid_of
from restow.kubesim.resources import PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES
from restow.kubesim.store import Store

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT = "WaitForFirstConsumer"
PROTECT_CLAIM = "kubernetes.io/pvc-protection"
PROTECT_VOLUME = "kubernetes.io/pv-protection"
STANDARD: Obj = {
    "metadata": {"name": "standard", "annotations": {DEFAULT_CLASS: "true"}},
    "provisioner": "volumes.kubesim.restow.dev",
}
"""The class of a cluster that has none when its controllers start."""


def claims_of(pod: Obj) -> list[PodKey]:
    """The claims that a pod uses, those of its ephemeral volumes too."""
    volumes = pod["spec"].get("volumes")
    if not volumes:
        return []
    namespace, name = key_of(pod)
    found = []
    for volume in volumes:
        if "persistentVolumeClaim" in volume:
            found.append((namespace, volume["persistentVolumeClaim"]["claimName"]))
        elif "ephemeral" in volume:
            found.append((namespace, f"{name}-{volume['name']}"))
    return found


def claim_of(volume: Obj) -> PodKey | None:
    """The claim that a volume's claimRef names."""
    ref = dig(volume, "spec", "claimRef")
    return None if not ref else (ref.get("namespace", ""), ref.get("name", ""))


def class_of(obj: Obj) -> str:
    """Of a claim or a volume; "" for none."""
    return dig(obj, "spec", "storageClassName", default="")


def default_class(classes: Iterable[Obj]) -> Obj | None:
    """The youngest of those that are marked, the first by name of equal ones."""
    marked = [c for c in classes if annotations_of(c).get(DEFAULT_CLASS) == "true"]
    youngest = max((c["metadata"]["creationTimestamp"] for c in marked), default="")
    return next((c for c in marked if c["metadata"]["creationTimestamp"] == youngest), None)


def is_bound(claim: Obj) -> bool:
    return bool(dig(claim, "spec", "volumeName")) and BIND_COMPLETED in annotations_of(claim)


def size_of(volume: Obj) -> int:
    """Bytes."""
    return parse_quantity(str(dig(volume, "spec", "capacity", "storage", default="0")))


def may_have(claim: Obj, volume: Obj) -> bool:
    """Whether the volume is nobody else's."""
    if is_deleting(volume):
        return False
    if claim_of(volume) is None:
        return dig(volume, "status", "phase") in ("Available", "Pending")
    return claim_of(volume) == key_of(claim) and dig(volume, "spec", "claimRef", "uid", default="") in ("", uid_of(claim))


def fits(claim: Obj, volume: Obj) -> bool:
    """Class, size, access modes, volume mode, and labels where the claim has a selector."""
    spec, there = claim["spec"], volume["spec"]
    wanted = parse_quantity(str(dig(spec, "resources", "requests", "storage", default="0")))
    selector = dig(spec, "selector", "matchLabels", default={})
    return (
        class_of(claim) == class_of(volume)
        and size_of(volume) >= wanted
        and set(spec.get("accessModes") or ()) <= set(there.get("accessModes") or ())
        and spec.get("volumeMode") == there.get("volumeMode")
        and all(labels_of(volume).get(k) == v for k, v in selector.items())
    )


def reference(claim: Obj) -> Obj:
    namespace, name = key_of(claim)
    kind = {"apiVersion": "v1", "kind": PERSISTENTVOLUMECLAIMS.kind}
    version = claim["metadata"]["resourceVersion"]
    return {**kind, "namespace": namespace, "name": name, "uid": uid_of(claim), "resourceVersion": version}


def annotated(obj: Obj, annotations: dict[str, str | None]) -> Obj:
    """The object's metadata with these annotations; None removes one."""
    merged = {**annotations_of(obj), **annotations}
    return {**obj["metadata"], "annotations": {k: v for k, v in merged.items() if v is not None}}


def topology_of(storage_class: Obj, node: Obj | None) -> list[Obj] | None:
    """matchExpressions of a volume that is made for this node, or anywhere that the class allows; [] where the class says
    nothing, None where it does not allow the node."""
    terms = storage_class.get("allowedTopologies")
    if not terms:
        return []
    for term in terms:
        rules = term.get("matchLabelExpressions") or ()
        if node is None:
            return [{"key": r["key"], "operator": "In", "values": list(r["values"])} for r in rules]
        labels = labels_of(node)
        if all(labels.get(r["key"]) in r["values"] for r in rules):
            return [{"key": r["key"], "operator": "In", "values": [labels[r["key"]]]} for r in rules]
    return None


def provisioned(claim: Obj, storage_class: Obj, topology: list[Obj] | None) -> Obj:
    """The volume that a CSI driver would have made for the claim."""
    name, spec = f"pvc-{uid_of(claim)}", claim["spec"]
    made: Obj = {
        "capacity": {"storage": str(dig(spec, "resources", "requests", "storage", default="0"))},
        "accessModes": list(spec.get("accessModes") or ()),
        "volumeMode": spec.get("volumeMode", "Filesystem"),
        "storageClassName": storage_class["metadata"]["name"],
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
        "claimRef": reference(claim),
        "csi": {"driver": storage_class["provisioner"].replace("/", "."), "volumeHandle": name},  # a DNS name
    }
    if topology:
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": clone(topology)}]}}
    meta = {"name": name, "annotations": {PROVISIONED_BY: storage_class["provisioner"]}}
    return {"metadata": meta, "spec": made}


def reachable(volume: Obj, node: Obj) -> bool:
    """Whether the volume's node affinity allows the node."""
    terms = dig(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
    return terms is None or any_term_matches(terms, node)


def unmountable(store: Store, pod: Obj, node: Obj) -> str:
    """Why a kubelet cannot mount the pod's volumes yet; "" if it can."""
    for namespace, name in claims_of(pod):
        claim = store.find(PERSISTENTVOLUMECLAIMS, namespace, name)
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if is_deleting(claim):
            return f'persistentvolumeclaim "{name}" is being deleted'
        volume = store.find(PERSISTENTVOLUMES, "", claim["spec"]["volumeName"]) if is_bound(claim) else None
        if volume is None or dig(volume, "spec", "claimRef", "uid") != uid_of(claim):
            return f'persistentvolumeclaim "{name}" is not bound'
        if not reachable(volume, node):
            return f'volume "{claim["spec"]["volumeName"]}" cannot be reached from this node'
    return ""


def protect(obj: Obj, finalizer: str) -> None:
    """What admission adds to new claims and volumes (StorageObjectInUseProtection)."""
    meta: dict[str, Any] = obj["metadata"]
    if finalizer not in (meta.get("finalizers") or ()):
        meta["finalizers"] = [*(meta.get("finalizers") or ()), finalizer]
