"""Wire form → contract facts: pure functions, one a kind. Reservations are in `reservations`, what pods refer to in
`objects`."""

from collections.abc import Sequence
from datetime import datetime

from restow.contracts import events as e
from restow.contracts import times
from restow.contracts import values as v
from restow.contracts.ids import Millis, NodeName, PodUid, ShapeId
from restow.domain import resources as r
from restow.kube import cpus, wire
from restow.kube.annotations import CONFIG_SOURCE, DEVICES, MIRROR, RESOURCE_STATUS, kept, read_devices
from restow.kube.requests import FactError, canonical
from restow.kube.shapes import Shaper
from restow.kube.troubles import NOTHING, Told, tell

_PHASES: frozenset[str] = frozenset(("Pending", "Running", "Succeeded", "Failed", "Unknown"))
_NO_SPEC = wire.PodSpec()
_NO_STATUS = wire.PodStatus()
_shaper = Shaper()


def millis(time: datetime | None) -> Millis:
    """0 where there is none. Times of the API have a zone; one without is UTC."""
    return Millis(0) if time is None else times.of(time)


def controller(meta: wire.Meta) -> v.OwnerRef | None:
    for owner in meta.owner_references or ():
        if owner.controller:
            return v.OwnerRef(owner.kind, owner.name, owner.uid, owner.api_version)
    return None


def others(meta: wire.Meta, owner: v.OwnerRef | None) -> tuple[v.OwnerRef, ...]:
    """Owner references beside the controller's, in their order."""
    refs = [v.OwnerRef(o.kind, o.name, o.uid, o.api_version) for o in meta.owner_references or ()]
    if owner is not None:
        refs.remove(owner)
    return tuple(refs)


def node_fact(node: wire.Node) -> e.NodeObserved:
    """Raises FactError where a quantity cannot be read."""
    spec, status = node.spec or wire.NodeSpec(), node.status or wire.NodeStatus()
    amounts = canonical(status.allocatable, "status.allocatable")
    devices = r.node_devices(amounts)
    return e.NodeObserved(
        name=NodeName(node.metadata.name),
        uid=node.metadata.uid,
        allocatable=r.in_columns(amounts, devices * r.WHOLE),
        labels=node.metadata.labels or {},
        taints=tuple(v.Taint(t.key, t.effect, t.value) for t in spec.taints or ()),
        devices=devices,
        ready=_is(status.conditions, "Ready"),
        unschedulable=bool(spec.unschedulable),
        cpus=cpus.read_topology(node.metadata.annotations),
    )


def pod_fact(
    pod: wire.Pod, shaper: Shaper = _shaper, told: Told | None = None
) -> tuple[v.PodShape, ShapeId, e.PodObserved]:
    """Raises FactError where a quantity, a GPU request, or an annotation about devices or CPUs cannot be read. `told`: where
    it is known what the status says."""
    meta, spec, status = pod.metadata, pod.spec or _NO_SPEC, pod.status or _NO_STATUS
    annotations = meta.annotations or {}
    shaped = shaper.shaped(spec, annotations, meta.name, labels=meta.labels or {})
    owner = controller(meta)
    plain = (told or tell(pod)).plain or NOTHING
    fact = e.PodObserved(
        pod=PodUid(meta.uid),
        namespace=meta.namespace,
        name=meta.name,
        shape=shaped.id,
        created=millis(meta.creation_timestamp),
        labels=meta.labels or {},
        annotations=kept(annotations),
        owner=owner,
        claims=shaped.claims,
        pinned_node=NodeName(shaped.pinned),
        gated=bool(spec.scheduling_gates),
        static=MIRROR in annotations
        or annotations.get(CONFIG_SOURCE, "api") != "api"
        or (owner is not None and owner.kind == "Node"),
        node=NodeName(spec.node_name) if spec.node_name else None,
        phase=_phase(status.phase),
        ready=_is(status.conditions, "Ready"),
        deleting=millis(meta.deletion_timestamp),
        reason=status.reason,
        devices=_devices(annotations),
        started=millis(status.start_time),
        cores=_cores(annotations),
        owners=others(meta, owner) if meta.owner_references else (),
        unready=plain.unready,
        initialized=plain.initialized,
        sandboxless=plain.sandboxless,
        waiting=plain.waiting,
    )
    return shaped.shape, shaped.id, fact


def workload_fact(workload: wire.Workload, kind: str) -> e.WorkloadObserved | None:
    """None where nothing controls it: then it is its pods' real owner and need not be known. Lists leave `kind` out of
    their items, so it is given."""
    owner = controller(workload.metadata)
    if owner is None:
        return None
    meta = workload.metadata
    return e.WorkloadObserved(uid=meta.uid, kind=kind, namespace=meta.namespace, name=meta.name, owner=owner)


def _phase(phase: str) -> v.PodPhase:
    if phase in _PHASES:
        return phase  # type: ignore[return-value]
    return "Unknown" if phase else "Pending"


def _is(conditions: Sequence[wire.Condition] | None, name: str) -> bool:
    return any(c.type == name and c.status == "True" for c in conditions or ())


def _devices(annotations: dict[str, str]) -> tuple[v.DeviceShare, ...]:
    text = annotations.get(DEVICES)
    if not text:
        return ()
    try:
        return read_devices(text)
    except ValueError as error:
        raise FactError(str(error)) from error


def _cores(annotations: dict[str, str]) -> tuple[int, ...]:
    text = annotations.get(RESOURCE_STATUS)
    return cpus.read_status(text) if text else ()
