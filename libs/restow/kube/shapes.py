"""Pod spec → shape: what is equal in siblings, normalised and content-addressed (DESIGN 3).

Left out, because it differs between siblings or no rule reads it: a DaemonSet's single-node matchFields (→ `pinned`),
PVC names (→ `claims`), tolerations that admission injects and that say nothing by themselves, volumes of kinds without a meaning for scheduling (service
account tokens, config maps, secrets, empty dirs), env, args, probes, mounts. Whatever Kubernetes treats as a set is
sorted, so that order does not make shapes.
"""

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from restow.contracts import values as v
from restow.contracts.ids import ShapeId
from restow.domain import resources as r
from restow.domain.predicates import tolerates
from restow.domain.quantity import CPU, QuantityError, from_nano, units
from restow.kube import cpus, qos, selectors, wire
from restow.kube.annotations import IN_SHAPE, LIMIT_RANGER
from restow.kube.requests import FactError, effective, limits_of, readable, requests_of

_canonical = msgspec.json.Encoder(order="deterministic")
_key = msgspec.json.Encoder()
_INJECTED_KEYS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_INJECTED_SECONDS = 300
_VOLUMES = (
    ("persistent_volume_claim", "persistentVolumeClaim"),
    ("ephemeral", "ephemeral"),
    ("csi", "csi"),
    ("gce_persistent_disk", "gcePersistentDisk"),
    ("aws_elastic_block_store", "awsElasticBlockStore"),
    ("azure_disk", "azureDisk"),
    ("cinder", "cinder"),
    ("fc", "fc"),
    ("iscsi", "iscsi"),
    ("rbd", "rbd"),
)


NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Shaped(msgspec.Struct, frozen=True):
    """A shape and what had to be taken out of the spec to get it."""

    shape: v.PodShape
    id: ShapeId
    claims: tuple[str, ...] = ()
    pinned: str = ""


class Shaper:
    """Shapes of specs, remembered: a sibling costs one encoding of its slim spec. Forgets all when `limit` is reached,
    so the memory is bounded; results never depend on it."""

    def __init__(self, limit: int = 50_000):
        self._limit = limit
        self._known: dict[bytes, tuple[v.PodShape, ShapeId]] = {}

    def shaped(
        self,
        spec: wire.PodSpec,
        annotations: Mapping[str, str],
        pod: str = "",
        scheduler: str = "",
        labels: Mapping[str, str] = NO_LABELS,
        exists: bool = False,
    ) -> Shaped:
        """`pod` is the name that generic ephemeral volumes derive their claims from; `scheduler` the default of
        schedulerName; of `labels` only those count that ask for CPUs of its own. What cannot be read of a pod that `exists` is
        said in its shape, for it may run and take what it asks for all the same; else raises FactError."""
        affinity, pinned = _unpin(spec.affinity)
        kinds, claims = _volumes(spec.volumes, pod)
        disks = _disks(spec.volumes) if spec.volumes else ()
        local = any(v.empty_dir is not None or v.host_path is not None for v in spec.volumes or ())
        bound = cpus.read(labels, annotations)
        read = [annotations.get(name) for name in (*IN_SHAPE, LIMIT_RANGER)] if annotations else ()
        key = _key.encode(
            (
                spec.scheduler_name or scheduler,
                spec.node_selector,
                affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.containers,
                spec.init_containers,
                spec.overhead,
                spec.resources,
                kinds,
                disks,
                local,
                spec.priority,
                spec.priority_class_name,
                spec.preemption_policy,
                spec.host_network,
                spec.resource_claims,
                read,
                bound,
            )
        )
        known = self._known.get(key)
        if known is None:
            try:
                shape = _shape(spec, affinity, kinds, disks, annotations, scheduler, bound)
            except FactError as error:
                shape = _shape(readable(spec), affinity, kinds, disks, annotations, scheduler, None, _devices_at_most)
                shape = msgspec.structs.replace(shape, unreadable=str(error))
            shape = msgspec.structs.replace(shape, local_storage=local)
            known = shape, shape_id(shape)
            if len(self._known) >= self._limit:
                self._known.clear()
            self._known[key] = known
        if known[0].unreadable and not exists:
            raise FactError(known[0].unreadable)
        return Shaped(*known, claims, pinned)


def shape_id(shape: v.PodShape) -> ShapeId:
    """The first 16 hex digits of SHA-256 of the canonical JSON: no defaults, keys sorted."""
    return ShapeId(_digest(shape))


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical.encode(value)).hexdigest()[:16]


def _shape(
    spec: wire.PodSpec,
    affinity: wire.Affinity | None,
    volumes: tuple[str, ...],
    disks: tuple[v.Disk, ...],
    annotations: Mapping[str, str],
    scheduler: str,
    bound: tuple[str, str, str] | None,
    read_devices: Callable[[Mapping[str, int], Mapping[str, str]], v.DeviceRequest | None] | None = None,
) -> v.PodShape:
    amounts = effective(spec)
    devices = (read_devices or _devices)(amounts, annotations)
    requests = r.in_columns(amounts | {r.PODS: 1}, devices.count * devices.milli if devices else 0)
    affinities = selectors.affinities(affinity)
    models = annotations.get(r.ALIBABA_GPU_MODEL)
    said, own = _tolerations(spec)
    guaranteed = qos.is_guaranteed(spec)
    shape = v.PodShape(
        requests=requests,
        scheduler=spec.scheduler_name or scheduler or "default-scheduler",
        devices=devices,
        cores=cpus.request(bound, spec.priority, requests.get(CPU, 0)),
        node_selector=spec.node_selector or {},
        node_affinity=_with_models(affinities.required, models) if models and devices else affinities.required,
        node_preferences=affinities.preferred,
        pod_affinity=affinities.pod,
        pod_anti_affinity=affinities.anti,
        spread=selectors.spread(spec.topology_spread_constraints),
        tolerations=said,
        host_ports=_host_ports(spec),
        volumes=volumes,
        resource_claims=tuple(sorted(claim.name for claim in spec.resource_claims or ())),
        claim_templates={claim.name: claim.resource_claim_template_name for claim in spec.resource_claims or () if claim.resource_claim_template_name},
        disks=disks,
        qos=qos.GUARANTEED if guaranteed else "",
        priority=spec.priority or 0,
        priority_class=spec.priority_class_name or "",
        preemption=spec.preemption_policy or "PreemptLowerPriority",
        containers=_containers(spec, guaranteed),
    )
    return msgspec.structs.replace(
        shape, spec_digest=_spec_digest(spec, shape, own, affinities, annotations.get(LIMIT_RANGER, ""))
    )


def _containers(spec: wire.PodSpec, guaranteed: bool) -> tuple[v.Container, ...]:
    """Init containers last. Requests only where they matter (NUMA), or shapes would be larger than need be."""
    found = []
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for i, c in enumerate(containers or ()):
            requests = _columns(c, f"spec.{field}[{i}]") if guaranteed else {}
            init = field == "initContainers" and c.restart_policy != "Always"
            found.append(v.Container(c.name, c.image, requests, init))
    return tuple(found)


def _columns(container: wire.Container, path: str) -> dict[str, int]:
    """Its requests in Restow's columns, without GPUs that only several containers together ask for in a way that devices
    serve."""
    amounts = {name: from_nano(name, amount) for name, amount in requests_of(container, path).items()}
    try:
        devices = None if r.GPU_NAMES.isdisjoint(amounts) else r.device_request(amounts)
    except r.DeviceError:
        devices = None
    return r.in_columns(amounts, devices.count * devices.milli if devices else 0)


def _spec_digest(
    spec: wire.PodSpec, shape: v.PodShape, tolerations: tuple[v.Toleration, ...], affinities: selectors.Affinities, injected: str
) -> str:
    """Of what `matchPolicy: PodSpec` compares (RULES G-4): both sides defaulted, without images and without what
    admission injects. Node names and the trace's GPU models are not part of it."""

    def contents(containers: list[wire.Container] | None, path: str) -> list[tuple[str, dict, dict]]:
        return [
            (
                c.name,
                _without(requests_of(c, f"{path}[{i}]"), injected, c.name, "request"),
                _without(limits_of(c, f"{path}[{i}]"), injected, c.name, "limit"),
            )
            for i, c in enumerate(containers or ())
        ]

    return _digest(
        (
            shape.scheduler,
            shape.node_selector,
            affinities,
            tolerations,
            shape.priority_class,
            contents(spec.containers, "spec.containers"),
            contents(spec.init_containers, "spec.initContainers"),
        )
    )


def _without(amounts: dict[str, int], injected: str, container: str, what: str) -> dict[str, str]:
    """Amounts, as text of nano, less those that LimitRanger says it has set. Its annotation reads
    `LimitRanger plugin set: cpu, memory request for container a; cpu limit for container a; ...`."""
    names: set[str] = set()
    for part in injected.partition(":")[2].split(";") if injected else ():
        named, _, rest = part.partition(f" {what} for ")
        if rest.endswith(f"container {container}"):
            names.update(name.strip() for name in named.split(","))
    return {name: str(amount) for name, amount in amounts.items() if name not in names}


def _devices(amounts: Mapping[str, int], annotations: Mapping[str, str]) -> v.DeviceRequest | None:
    """By resource names, else by the annotations of the same names (the openb form)."""
    try:
        if not r.GPU_NAMES.isdisjoint(amounts):
            return r.device_request(amounts)
        said = {
            name: units(annotations[name]) for name in (r.ALIBABA_GPU_COUNT, r.ALIBABA_GPU_MILLI) if name in annotations
        }
        # The trace writes 0 devices for a pod without any.
        if said.get(r.ALIBABA_GPU_COUNT) == 0 or not any(said.values()):
            return None
        return r.device_request(said)
    except (r.DeviceError, QuantityError) as error:
        raise FactError(f"GPU request: {error}") from error


def _devices_at_most(amounts: Mapping[str, int], annotations: Mapping[str, str]) -> v.DeviceRequest | None:
    """Of a request for GPUs that cannot be read: as many whole ones as any part of it may mean."""
    try:
        return _devices(amounts, annotations)
    except FactError:
        return r.devices_at_most(amounts)


def _with_models(required: tuple[v.NodeTerm, ...] | None, models: str) -> tuple[v.NodeTerm, ...]:
    accepted = tuple(sorted({model.strip() for model in models.split("|")} - {""}))
    rule = v.Expression(r.ALIBABA_GPU_MODEL, "In", accepted)
    if required is None:
        return (v.NodeTerm(labels=(rule,)),)
    return tuple(v.NodeTerm(labels=(*term.labels, rule), fields=term.fields) for term in required)


def _unpin(affinity: wire.Affinity | None) -> tuple[wire.Affinity | None, str]:
    """Takes the one node out that a DaemonSet's controller writes into every term of its pods' node affinity."""
    node = affinity.node_affinity if affinity else None
    terms = node.required.node_selector_terms if node and node.required else None
    if affinity is None or node is None or not terms:
        return affinity, ""
    pins = {_pin(term) for term in terms}
    pin = pins.pop() if len(pins) == 1 else None
    if not pin:
        return affinity, ""
    rest = [wire.NodeTerm(match_expressions=term.match_expressions) for term in terms if term.match_expressions]
    # A term that held nothing but the pin is satisfied by the pin alone, and with it the whole requirement.
    required = wire.NodeSelector(node_selector_terms=rest) if len(rest) == len(terms) else None
    kept = wire.NodeAffinity(required=required, preferred=node.preferred) if required or node.preferred else None
    if not (kept or affinity.pod_affinity or affinity.pod_anti_affinity):
        return None, pin
    return wire.Affinity(kept, affinity.pod_affinity, affinity.pod_anti_affinity), pin


def _pin(term: wire.NodeTerm) -> str | None:
    fields = term.match_fields
    if not fields or len(fields) != 1:
        return None
    only = fields[0]
    if only.key != "metadata.name" or only.operator != "In" or not only.values or len(only.values) != 1:
        return None
    return only.values[0]


def _volumes(volumes: list[wire.Volume] | None, pod: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not volumes:
        return (), ()
    kinds: set[str] = set()
    claims: list[str] = []
    for volume in volumes:
        for field, kind in _VOLUMES:
            if getattr(volume, field) is not None:
                kinds.add(kind)
        if volume.persistent_volume_claim is not None:
            claims.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            claims.append(f"{pod}-{volume.name}")
    return tuple(sorted(kinds)), tuple(claims)


def _disks(volumes: list[wire.Volume]) -> tuple[v.Disk, ...]:
    """Those that no two pods may write at once, as a set. An image of Ceph is one disk for each of its monitors: two are the
    same where one monitor is (kube-scheduler's VolumeRestrictions)."""
    found: set[v.Disk] = set()
    for volume in volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            found.add(v.Disk("gcePersistentDisk", gce.pd_name, bool(gce.read_only)))
        if (aws := volume.aws_elastic_block_store) is not None:
            # Whether it is only read does not matter there.
            found.add(v.Disk("awsElasticBlockStore", aws.volume_id))
        if (iscsi := volume.iscsi) is not None:
            found.add(v.Disk("iscsi", iscsi.iqn, bool(iscsi.read_only)))
        if (rbd := volume.rbd) is not None:
            for monitor in rbd.monitors or ():
                found.add(v.Disk("rbd", f"{monitor} {rbd.pool or 'rbd'}/{rbd.image}", bool(rbd.read_only)))
    return tuple(sorted(found, key=lambda d: (d.kind, d.id, d.read_only)))


def _tolerations(spec: wire.PodSpec) -> tuple[tuple[v.Toleration, ...], tuple[v.Toleration, ...]]:
    """Those that count, and those that its author wrote. What admission injects counts only where the pod itself tolerates the taint that a node
    has beside it (`NoSchedule`): it may then come to a node that is not ready, as with kube-scheduler."""
    own = tuple(toleration(t) for t in spec.tolerations or () if not _injected(t))
    if not own:
        return own, own
    may = {key: tolerates(own, v.Taint(key, "NoSchedule")) for key in _INJECTED_KEYS}
    return tuple(toleration(t) for t in spec.tolerations or () if not _injected(t) or may[t.key]), own


def _injected(toleration: wire.Toleration) -> bool:
    """Admission's DefaultTolerationSeconds adds these two to every pod that does not say anything about them."""
    return (
        toleration.key in _INJECTED_KEYS
        and toleration.operator == "Exists"
        and toleration.effect == "NoExecute"
        and toleration.toleration_seconds == _INJECTED_SECONDS
    )


def toleration(t: wire.Toleration) -> v.Toleration:
    """Of taints of nodes, or of devices."""
    return v.Toleration(
        key=t.key, operator=t.operator or "Equal", value=t.value, effect=t.effect, seconds=t.toleration_seconds
    )


def _host_ports(spec: wire.PodSpec) -> tuple[v.HostPort, ...]:
    """Of containers and sidecars. With hostNetwork every container port is one, as the API server defaults it."""
    ports: set[tuple[int, str, str]] = set()
    sidecars = (c for c in spec.init_containers or () if c.restart_policy == "Always")
    for container in (*(spec.containers or ()), *sidecars):
        for port in container.ports or ():
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                ports.add((number, port.protocol or "TCP", port.host_ip or "0.0.0.0"))
    return tuple(v.HostPort(*port) for port in sorted(ports))
