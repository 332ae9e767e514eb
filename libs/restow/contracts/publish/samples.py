"""One realistic, deterministic sample of any Struct of the contract: every field set, nothing left at its default.

A sample that is in `proto/golden` stays as it is for ever; this only makes those that are missing.
"""

import hashlib
import types
import typing
from typing import Any

import msgspec

from restow.contracts import ids
from restow.contracts.publish.catalogue import tag
from restow.contracts.values import PodShape

_TIME = 1_767_225_600_000  # 2026-01-01T00:00:00Z

_BY_ID: dict[Any, Any] = {
    ids.PodUid: "4f7c1a52-9f0e-4c38-8a5d-2d1f6f3b7e10",
    ids.NodeName: "gpu-node-0421",
    ids.ShapeId: "9c56cc51b374c3ba",
    ids.ReservationUid: "b1946ac9-2492-4d23-9c5e-6235b4d2611f",
    ids.SlotName: "trainer-0",
    ids.PlanId: "p7k2m9",
    ids.MigrationId: "p7k2m9-3",
    ids.Millis: _TIME,
}

_BY_NAME: dict[str, Any] = {
    "annotations": {"volcano.sh/task-spec": "trainer"},
    "allocatable": {"cpu": 96_000, "memory": 824_633_720_832, "pods": 110, "nvidia.com/gpu": 8},
    "api_version": "apps/v1",
    "cause": "4710/0",
    "correlation": "p7k2m9",
    "count": 1,
    "decision": 0,
    "devices": 8,
    "digest": hashlib.sha256(b"").hexdigest(),
    "api": "volcano",
    "effect": "NoSchedule",
    "epoch": 7,
    "file": "000000000001-000000100000.jsonl.zst",
    "first": 1,
    "fold": 1,
    "fragmented": 1_250,
    "free_devices": 12,
    "free_nodes": 3,
    "generation": 2,
    "holder": "restow-scheduler-session-0",
    "how": "watch",
    "idle": 18_400,
    "image": "registry.example/trainer:1.4",
    "index": 2,
    "invalid": "spec.ttl: '10 minutes' is not a duration; allowed: such as 600s, 1h30m",
    "ip": "10.0.0.7",
    "kept": {"Protected": 4, "Unmovable": 2},
    "key": "nvidia.com/gpu",
    "kind": "ReplicaSet",
    "labels": {"app": "trainer"},
    "last": 100_000,
    "limit": 2_000,
    "max_skew": 2,
    "message": "node gpu-node-0421 is gone",
    "migration": "p7k2m9-3",
    "milli": 500,
    "min_available": 3,
    "min_domains": 2,
    "name": "trainer-5b8f-x2k9q",
    "namespace": "research",
    "namespaces": ("research",),
    "node": "gpu-node-0421",
    "node_affinity_policy": "Ignore",
    "node_selector": {"gpu.model": "V100M32"},
    "node_taints_policy": "Honor",
    "nodes": 1_213,
    "operator": "In",
    "pinned_node": "gpu-node-0421",
    "plugin": "Defragmentation",
    "port": 7_777,
    "preemption": "Never",
    "priority": 1_000,
    "priority_class": "batch-high",
    "protocol": "UDP",
    "queue": "research",
    "reason": "NodeLost",
    "reasons": {"NotEnoughCpu": 900, "NotEnoughDevices": 313},
    "replicas": 2,
    "requests": {"cpu": 8_000, "memory": 34_359_738_368, "pods": 1, "nvidia.com/gpu": 1},
    "scheduler": "restow",
    "seconds": 300,
    "seq": 99_500,
    "size": 1_843_200,
    "source": "gpu-node-0007",
    "spec_digest": "1f8ac10f23c5b5bc",
    "text": "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n",
    "topology_key": "kubernetes.io/hostname",
    "total": 48_000,
    "trigger": "api",
    "ttl": 600_000,
    "uid": "0a2f1e7c-6d0b-4a5f-9f25-3b1c8f1d2e44",
    "upto": 99_000,
    "value": "true",
    "values": ("true",),
    "version": "184467",
    "volumes": ("persistentVolumeClaim",),
    "weight": 50,
    "when_unsatisfiable": "ScheduleAnyway",
}

_BY_FIELD: dict[str, Any] = {
    "NodeObserved.name": "gpu-node-0421",
    "Synced.kind": "pods",
    "Observe.kind": "pods",
    "Configure.text": "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n",
    "WorkloadObserved.name": "trainer-5b8f",
    "ReservationObserved.name": "complex-reservation",
    "ReservationObserved.migration": "",
    "ReservationObserved.invalid": "",
    "ReservationTask.name": "trainer",
    "Container.name": "trainer",
    "Expression.key": "gpu.model",
    "Expression.values": ("V100M32", "T4"),
    "Toleration.operator": "Exists",
    "Toleration.value": "",
    "OwnerRef.name": "trainer-5b8f",
    "ObjectRef.name": "trainer-5b8f",
    "Planned.sources": ("gpu-node-0007",),
    "Planned.after": {"nodes": 1_213, "free_nodes": 4, "total": 48_000, "idle": 18_400, "fragmented": 750, "free_devices": 13},
    "Move.source": "gpu-node-0007",
    "PodObserved.static": False,
    "PodObserved.deleting": 0,
    "PodObserved.reason": "",
    "PodObserved.pinned_node": "",
    "PodObserved.gated": False,
    "PodReleased.reason": "BindRefused",
    "ReservationRefused.reason": "InvalidReservation",
    "ReservationRefused.message": "spec.ttl: '10 minutes' is not a duration; allowed: such as 600s, 1h30m",
    "Aborting.reason": "EvictionRefused",
    "Aborting.message": "the disruption budget research/trainer allows no eviction",
    "MigrationFailed.reason": "EvictionRefused",
    "MigrationFailed.message": "the disruption budget research/trainer allows no eviction",
    "ReportEviction.reason": "Budget",
    "ReportEviction.message": "the disruption budget research/trainer allows no eviction",
    "ReportHold.message": "reservations.batch.volcano.sh is forbidden",
    "Collected.reason": "Retention",
    "RefuseBind.reason": "NodeGone",
    "PodShape.devices": {"count": 1, "milli": 1_000},
    "ResourceSliceObserved.name": "gpu-node-0421-gpu.nvidia.com-8xk2p",
    "ResourceSliceObserved.driver": "gpu.nvidia.com",
    "ResourceSliceObserved.pool": "gpu-node-0421",
    "ResourceSliceObserved.nodes": None,
    "ResourceSliceObserved.everywhere": False,
    "ResourceSliceObserved.common": {"productName": "NVIDIA A100-SXM4-40GB", "driverVersion": "580.65.6"},
    "PublishedDevice.name": "gpu-0-mig-19-4-1",
    "PublishedDevice.attributes": {"type": "mig", "profile": "1g.5gb"},
    "PublishedDevice.capacity": {"memory": 4_986_000_000_000},
    "PublishedDevice.node": "",
    "PublishedDevice.nodes": None,
    "PublishedDevice.everywhere": False,
    "PublishedDevice.shared": False,
    "PublishedDevice.waits": False,
    "CounterSet.name": "gpu-0-counter-set",
    "CounterSet.counters": {"memory-slice-4": 1_000},
    "DeviceTaint.key": "gpu.nvidia.com/xid",
    "DeviceTaint.value": "79",
    "ResourceClaimObserved.name": "trainer-5b8f-x2k9q-gpu-7hq4d",
    "ResourceClaimObserved.pod_claim": "gpu",
    "ResourceClaimObserved.reserved_otherwise": False,
    "ResourceClaimObserved.deleting": 0,
    "ClaimRequest.name": "gpu",
    "SubRequest.name": "small",
    "SubRequest.device_class": "mig.nvidia.com",
    "SubRequest.selectors": ("device.attributes['gpu.nvidia.com'].profile == '1g.5gb'",),
    "SubRequest.count": 2,
    "SubRequest.admin": False,
    "SubRequest.capacity": {"memory": 4_000_000_000_000},
    "ClaimConstraint.attribute": "gpu.nvidia.com/parentUUID",
    "ClaimConstraint.requests": ("gpu",),
    "ClaimConstraint.distinct": False,
    "AllocatedDevice.request": "gpu/small",
    "AllocatedDevice.driver": "gpu.nvidia.com",
    "AllocatedDevice.pool": "gpu-node-0421",
    "AllocatedDevice.device": "gpu-0-mig-19-4-1",
    "AllocatedDevice.admin": False,
    "AllocatedDevice.share": "",
    "DeviceClassObserved.name": "gpu.nvidia.com",
    "DeviceClassObserved.selectors": ("device.driver == 'gpu.nvidia.com'",),
    "DeviceClassObserved.extended_resource": "nvidia.com/gpu",
}
"""Where one field of one Struct needs its own value; a value may be the JSON form of a Struct."""


def sample(cls: type[msgspec.Struct]) -> Any:
    """The sample of one event or command."""
    return _consistent(_struct(cls))


def _struct(cls: type[msgspec.Struct]) -> Any:
    hints = typing.get_type_hints(cls)
    given = {}
    for field in msgspec.structs.fields(cls):
        own = f"{cls.__name__}.{field.name}"
        if own in _BY_FIELD:
            given[field.name] = msgspec.convert(_BY_FIELD[own], hints[field.name], strict=False)
        else:
            given[field.name] = _value(field.name, hints[field.name], field.default)
    return cls(**given)


def _value(name: str, hint: Any, default: Any) -> Any:
    if hint in _BY_ID:
        return _BY_ID[hint]
    if hint is bool:
        return default is not True
    known = _BY_NAME.get(name)
    if known is not None and _fits(known, hint):
        return known
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _value(name, next(a for a in arguments if a is not type(None)), msgspec.NODEFAULT)
    if origin is typing.Literal:
        return next((a for a in arguments if a != default), arguments[0])
    if origin is tuple:
        return (_value(name.removesuffix("s"), arguments[0], msgspec.NODEFAULT),)
    if origin is dict:
        return {"example": _value(name, arguments[1], msgspec.NODEFAULT)}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint)
    return {int: 1, str: name}[hint]


def _fits(value: Any, hint: Any) -> bool:
    try:
        msgspec.convert(value, hint, strict=True)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def _consistent(made: Any) -> Any:
    """What a field derives from another one."""
    names = set(made.__struct_fields__)
    if {"text", "digest"} <= names:
        made = msgspec.structs.replace(made, digest=hashlib.sha256(made.text.encode()).hexdigest())
    if {"shape", "spec"} <= names and isinstance(made.spec, PodShape):
        digest = hashlib.sha256(msgspec.json.encode(made.spec)).hexdigest()
        made = msgspec.structs.replace(made, shape=ids.ShapeId(digest[:16]))
    return made


def file_name(cls: type[msgspec.Struct], is_event: bool) -> str:
    """Where the sample lives below `golden/`."""
    return f"{tag(cls)}.json" if is_event else f"commands/{tag(cls)}.json"
