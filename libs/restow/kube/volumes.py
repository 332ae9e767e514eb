"""PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes → facts: pure functions, one a kind.

All raise FactError where a quantity cannot be read.
"""

from collections.abc import Mapping

from restow.contracts import events as e
from restow.contracts.ids import NodeName
from restow.kube import selectors, wire
from restow.kube import wire_objects as w
from restow.kube.describe import millis
from restow.kube.requests import FactError, canonical

STORAGE = "storage"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
"""Older than the field, and stronger than it (`component-helpers/storage/volume`)."""
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


def claim_fact(claim: w.Claim) -> e.ClaimObserved:
    meta, spec = claim.metadata, claim.spec or w.ClaimSpec()
    annotations = meta.annotations or {}
    phase = _phase(claim.status)
    return e.ClaimObserved(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        phase=phase,
        volume=spec.volume_name or "",
        storage_class=_class(annotations, spec.storage_class_name),
        modes=tuple(sorted(spec.access_modes or ())),
        request=_storage(spec.resources.requests if spec.resources else None, "spec.resources.requests"),
        block=spec.volume_mode == "Block",
        selected_node=NodeName(annotations.get(SELECTED_NODE, "")),
        bound=BIND_COMPLETED in annotations and phase == "Bound",
        deleting=millis(meta.deletion_timestamp),
    )


def volume_fact(volume: w.Volume) -> e.VolumeObserved:
    meta, spec = volume.metadata, volume.spec or w.VolumeSpec()
    claim, csi = spec.claim_ref, spec.csi or w.CsiSource()
    return e.VolumeObserved(
        name=meta.name,
        uid=meta.uid,
        phase=_phase(volume.status),
        capacity=_storage(spec.capacity, "spec.capacity"),
        storage_class=_class(meta.annotations or {}, spec.storage_class_name),
        modes=tuple(sorted(spec.access_modes or ())),
        block=spec.volume_mode == "Block",
        claim=f"{claim.namespace}/{claim.name}" if claim and claim.name else "",
        claim_uid=claim.uid if claim else "",
        affinity=selectors.node_terms(spec.node_affinity.required if spec.node_affinity else None),
        zones=_zones(meta.labels or {}),
        driver=csi.driver,
        handle=csi.volume_handle,
        deleting=millis(meta.deletion_timestamp),
    )


def storage_class_fact(storage: w.StorageClass) -> e.StorageClassObserved:
    annotations = storage.metadata.annotations or {}
    terms = [
        wire.NodeTerm([wire.Expression(rule.key, "In", rule.values) for rule in term.match_label_expressions or ()])
        for term in storage.allowed_topologies or ()
    ]
    return e.StorageClassObserved(
        name=storage.metadata.name,
        provisioner=storage.provisioner,
        binding=storage.volume_binding_mode or "Immediate",
        topologies=selectors.node_terms(wire.NodeSelector(terms)) or (),
        default=any(annotations.get(name) == "true" for name in _DEFAULT_CLASS),
    )


def csi_node_fact(node: w.CsiNode) -> e.CsiNodeObserved:
    """A limit of 0 forbids the driver; none at all allows what it likes."""
    limits = {}
    for i, driver in enumerate(node.spec.drivers or () if node.spec else ()):
        count = driver.allocatable.count if driver.allocatable else None
        if count is None:
            continue
        if count < 0:
            raise FactError(f"spec.drivers[{i}].allocatable.count: {count} is negative; allowed: 0 or more")
        limits[driver.name] = count
    return e.CsiNodeObserved(NodeName(node.metadata.name), dict(sorted(limits.items())))


def _phase(status: w.Phase | None) -> str:
    """The API server writes Pending into every new claim and volume."""
    return (status.phase if status else None) or "Pending"


def _class(annotations: Mapping[str, str], field: str | None) -> str:
    return annotations.get(OLD_CLASS, field or "")


def _storage(amounts: Mapping[str, wire.Quantity] | None, path: str) -> int:
    """Bytes."""
    if not amounts or STORAGE not in amounts:
        return 0
    return canonical({STORAGE: amounts[STORAGE]}, path)[STORAGE]


def _zones(labels: Mapping[str, str]) -> dict[str, str]:
    return {label: labels[label] for label in _ZONES if labels.get(label)}
