"""Wire form → contract facts: pure functions, one a kind. Reservations are in `reservations`, what pods refer to in
`objects`."""

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
from restow.domain.beside import GATE, VIRTUAL
from restow.domain.pod_controllers import MOVABLE
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
DISRUPTION_TARGET = "DisruptionTarget"
"""The condition of a pod that is evicted."""
OWN_CONTROLLER = "kubernetes.io/job-controller"
JOB_RETRIES = 6
"""backoffLimit, where none is set."""
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
        marks={name: value for name in (PROTECTED, CORDONED) if (value := (node.metadata.annotations or {}).get(name))},
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
        static=MIRROR in annotations
        or annotations.get(CONFIG_SOURCE, "api") != "api"
        or (owner is not None and owner.kind == "Node"),
        node=NodeName(spec.node_name) if spec.node_name else None,
        phase=_phase(status.phase),
        ready=_is(status.conditions, "Ready"),
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
        nominated=NodeName(status.nominated_node_name if gates == (VIRTUAL,) else ""),
        gates=gates,
    )
    return shape, id, fact


def _read(read: Callable[[], T], otherwise: T) -> tuple[T, str]:
    """What can be read, or what is taken for it, and why."""
    try:
        return read(), ""
    except FactError as error:
        return otherwise, str(error)


def workload_fact(workload: wire.Workload, kind: str) -> e.WorkloadObserved | None:
    """None where nothing controls it and nothing else is to be known of it: then it is its pods' real owner. Lists leave `kind` out of
    their items, so it is given."""
    meta, owner = workload.metadata, controller(workload.metadata)
    movable = (meta.annotations or {}).get(MOVABLE, "")
    evicted: v.Evicted = ""
    retries = 0
    if isinstance(workload, wire.Job):
        evicted, retries = _of_eviction(workload.spec or wire.JobSpec(), workload.status or wire.JobStatus())
    if owner is None and not movable and not evicted:
        return None
    return e.WorkloadObserved(meta.uid, kind, meta.namespace, meta.name, owner, movable, evicted, retries)


def _of_eviction(spec: wire.JobSpec, status: wire.JobStatus) -> tuple[v.Evicted, int]:
    """Rules are asked in order, and the first that matches counts. Which exit code the containers will end with nobody knows before; a rule about
    those that says more than Ignore or Count leaves it open."""
    if spec.managed_by not in ("", OWN_CONTROLLER):
        return "unknown", 0
    may_count = False
    for rule in (spec.pod_failure_policy.rules or ()) if spec.pod_failure_policy is not None else ():
        about = rule.on_pod_conditions
        disrupted = any(c.type == DISRUPTION_TARGET and c.status == "True" for c in about or ())
        if disrupted and rule.action == "Ignore" and not may_count:
            return "ignored", 0
        if disrupted and rule.action not in ("Ignore", "Count"):
            return "fatal", 0
        if disrupted:
            break
        if about is None and rule.action not in ("Ignore", "Count"):
            return "unknown", 0
        may_count = may_count or (about is None and rule.action == "Count")
    if spec.backoff_limit_per_index is not None:
        return "unknown", 0
    limit = JOB_RETRIES if spec.backoff_limit is None else spec.backoff_limit
    return "counted", max(limit - (status.failed or 0), 0)


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
