"""Wire form → contract facts of nodes and pods: pure functions. Their controllers are in `workloads`, Reservations in `reservations`, what pods
refer to in `objects`."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts import times
from restow.contracts import values as v
from restow.contracts.ids import MOST, Millis, NodeName, PodUid, ShapeId
from restow.domain import resources as r
from restow.domain.autoscalers import CORDONED, PROTECTED
from restow.domain.beside import GATE
from restow.domain.groups import WORKLOAD_REF
from restow.domain.hooks import RESPONDERS
from restow.domain.protection import DO_NOT_DISRUPT
from restow.kube import cpus, wire
from restow.kube.annotations import (
    CONFIG_SOURCE,
    DEVICES,
    MIRROR,
    RESOURCE_STATUS,
    grouped,
    kept,
    read_devices,
)
from restow.kube.requests import FactError, as_kept, canonical
from restow.kube.shapes import Shaper, shape_id
from restow.kube.troubles import NOTHING, Told, tell

T = TypeVar("T")

_PHASES: frozenset[str] = frozenset(("Pending", "Running", "Succeeded", "Failed", "Unknown"))
USUAL_GRACE = 300
"""Seconds of a grace period up to which nobody has to know it."""
_NO_SPEC = wire.PodSpec()
_NO_STATUS = wire.PodStatus()
_NO_DEVICES: tuple[v.DeviceShare, ...] = ()
_NO_CORES: tuple[int, ...] = ()
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
    """Raises FactError where a quantity cannot be read, or is one of GPUs that no log can say in thousandths."""
    spec, status = node.spec or wire.NodeSpec(), node.status or wire.NodeStatus()
    amounts = canonical(status.allocatable, "status.allocatable")
    devices = r.node_devices(amounts)
    if devices > MOST // r.WHOLE:
        raise FactError(f"status.allocatable: {devices} GPUs; allowed: up to {MOST // r.WHOLE}")
    annotations = node.metadata.annotations or {}
    marks = {name: value for name in (PROTECTED, CORDONED) if (value := annotations.get(name))}
    return e.NodeObserved(
        name=NodeName(node.metadata.name),
        uid=node.metadata.uid,
        allocatable=r.in_columns(amounts, devices * r.WHOLE),
        labels=node.metadata.labels or {},
        taints=tuple(v.Taint(t.key, t.effect, t.value) for t in spec.taints or ()),
        devices=devices,
        ready=has_condition(status.conditions, "Ready"),
        unschedulable=bool(spec.unschedulable),
        cpus=cpus.read_topology(node.metadata.annotations),
        marks=marks,
        do_not_disrupt=annotations.get(DO_NOT_DISRUPT) == "true" and DO_NOT_DISRUPT not in marks.get(PROTECTED, "").split(),
    )


def pod_fact(
    pod: wire.Pod, shaper: Shaper = _shaper, told: Told | None = None
) -> tuple[v.PodShape, ShapeId, e.PodObserved]:
    """A quantity, a GPU request, or an annotation about devices or CPUs that cannot be read is said in the shape: whatever a pod's user writes there,
    it may run, and a pod of which nothing is known takes nothing. `told`: where it is known what the status says."""
    meta, spec, status = pod.metadata, pod.spec or _NO_SPEC, pod.status or _NO_STATUS
    annotations = meta.annotations or {}
    keeps, why = _read(lambda: as_kept(spec, status) if spec.node_name else spec, spec)
    shaped = shaper.shaped(keeps, annotations, meta.name, labels=meta.labels or {}, exists=True)
    devices, no_devices = _read(lambda: _devices(annotations), _NO_DEVICES)
    cores, no_cores = _read(lambda: _cores(annotations), _NO_CORES)
    shape, id = shaped.shape, shaped.id
    if why := shape.unreadable or why or no_devices or no_cores:
        shape = replace(shape, unreadable=why)
        id = shape_id(shape)
    said, named = kept(annotations), spec.scheduling_group
    if named is not None and named.pod_group_name:
        said = grouped(said, named.pod_group_name)
    if (of := spec.workload_ref) is not None and of.name:
        said = said | {WORKLOAD_REF: "/".join(filter(None, (of.name, of.pod_group, of.pod_group_replica_key)))}
    if spec.eviction_responders:
        said = said | {RESPONDERS: ", ".join(one.name for one in spec.eviction_responders)}
    gates = tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else ()
    owner = controller(meta)
    plain = (told or tell(pod)).plain or NOTHING
    fact = e.PodObserved(
        pod=PodUid(meta.uid),
        namespace=meta.namespace,
        name=meta.name,
        shape=id,
        created=millis(meta.creation_timestamp),
        labels=meta.labels or {},
        annotations=said,
        owner=owner,
        claims=shaped.claims,
        pinned_node=NodeName(shaped.pinned),
        gated=bool(gates),
        grace=grace if (grace := spec.termination_grace_period_seconds or 0) > USUAL_GRACE else 0,
        static=MIRROR in annotations
        or annotations.get(CONFIG_SOURCE, "api") != "api"
        or (owner is not None and owner.kind == "Node"),
        node=NodeName(spec.node_name) if spec.node_name else None,
        phase=_phase(status.phase),
        ready=has_condition(status.conditions, "Ready"),
        deleting=millis(meta.deletion_timestamp),
        reason=status.reason,
        devices=devices,
        started=millis(status.start_time),
        cores=cores,
        owners=others(meta, owner) if meta.owner_references else (),
        unready=plain.unready,
        initialized=plain.initialized,
        sandboxless=plain.sandboxless,
        waiting=plain.waiting,
        well=_well(meta, status) if spec.node_name and not meta.deletion_timestamp else (),
        landing=gates == (GATE,),
        nominated=NodeName(status.nominated_node_name if gates != (GATE,) and not spec.node_name else ""),
        gates=gates,
    )
    return shape, id, fact


def _read(read: Callable[[], T], otherwise: T) -> tuple[T, str]:
    """What can be read, or what is taken for it, and why."""
    try:
        return read(), ""
    except FactError as error:
        return otherwise, str(error)


def _phase(phase: str) -> v.PodPhase:
    if phase in _PHASES:
        return phase  # type: ignore[return-value]
    return "Unknown" if phase else "Pending"


def _well(meta: wire.Meta, status: wire.PodStatus) -> tuple[int, ...]:
    """`PodChanged.well`. Times of Kubernetes are whole seconds."""
    created, since = meta.creation_timestamp, {}
    for one in status.conditions or ():
        if one.status == "True" and not one.reason and one.last_transition_time is not None:
            since[one.type] = one.last_transition_time
    if created is None or not since:
        return ()
    return tuple(max(0, int((since[type] - created).total_seconds())) if type in since else -1 for type in e.WELL)


def has_condition(conditions: Sequence[wire.Condition] | None, name: str) -> bool:
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
