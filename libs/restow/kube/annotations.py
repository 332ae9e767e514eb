"""Which annotations a rule reads: the one list. Everything else on a pod or a PodGroup stays out of the log (DESIGN 3)."""

from collections.abc import Iterable, Mapping

import msgspec

from restow.contracts.ids import Int
from restow.contracts.values import DeviceShare
from restow.domain import resources as r
from restow.domain.groups import GROUP_ANNOTATIONS, QUEUE_ANNOTATIONS, TASK_ANNOTATION, UPSTREAM
from restow.domain.kueue import RETRIABLE
from restow.domain.pod_controllers import INDEX_FAILURES, MOVABLE
from restow.domain.protection import COOLDOWN_TIME, DISRUPTION_ANNOTATIONS, PREEMPTABLE
from restow.domain.quantity import QuantityError, units

TARGET_RESERVATION = "scheduling.volcano.sh/target-reservation"
RESERVEABLE = "volcano.sh/reserveable"
MAXIMUM_RUNTIME = "volcano.sh/maximum-runtime"
WAITING_TIMES = ("volcano.sh/sla-waiting-time", "sla-waiting-time")
"""How long a job may wait (plugin sla); the second is its name in older releases."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
MIGRATION = "restow.dev/migration"
"""On a pod: `aborted` makes every late eviction fail (DESIGN 5). As a label of a Reservation: the migration it serves."""
RESERVATION_AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT_MATCH = "scheduling.koordinator.sh/exact-match-reservation"
"""On a pod: which Reservations it may use (read in `restow.domain.reservation.reservation_affinity`)."""
RESTRICTED_OPTIONS = "scheduling.koordinator.sh/reservation-restricted-options"
"""On a Reservation: what its policy Restricted is about."""
ABORTED = "aborted"
ABORTED_UNTIL = "restow.dev/aborted-until"
"""Which evictions the mark forbids: those that were decided with this deadline (ms) or an earlier one. A later migration of
the same pod has a later deadline, and may evict it."""

KEPT = frozenset(
    {
        *GROUP_ANNOTATIONS,
        *QUEUE_ANNOTATIONS,
        TASK_ANNOTATION,
        TARGET_RESERVATION,
        RESERVEABLE,
        MAXIMUM_RUNTIME,
        DELETION_COST,
        PREEMPTABLE,
        COOLDOWN_TIME,
        RESERVATION_AFFINITY,
        EXACT_MATCH,
        RETRIABLE,
        INDEX_FAILURES,
        *WAITING_TIMES,
        *DISRUPTION_ANNOTATIONS,
    }
)
KEPT_OF_GROUP = frozenset(
    {MOVABLE, TARGET_RESERVATION, RESERVEABLE, MAXIMUM_RUNTIME, PREEMPTABLE, COOLDOWN_TIME, *WAITING_TIMES}
)
KEPT_PREFIXES = ("restow.dev/", "descheduler.alpha.kubernetes.io/")
TOUCHED = "restow.dev/touched"
"""Says nothing, and is not kept: it is changed so that a scheduler sees the pod."""

RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
"""Read into the shape, where the pod's QoS class gives it CPUs of its own."""
IN_SHAPE = (r.ALIBABA_GPU_COUNT, r.ALIBABA_GPU_MILLI, r.ALIBABA_GPU_MODEL)
"""Read into the shape: the trace's way to ask for GPUs."""
LIMIT_RANGER = "kubernetes.io/limit-ranger"
"""Read into the spec digest: which requests and limits admission has injected (RULES G-4)."""
MIRROR = "kubernetes.io/config.mirror"
CONFIG_SOURCE = "kubernetes.io/config.source"
"""Read into `static`: where a kubelet has a pod from; `api` or absent for any other than its own."""
DEVICES = "scheduling.koordinator.sh/device-allocated"
"""Read into the pod's devices."""
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
"""Read into the pod's CPUs."""
RESERVATION_ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
"""Which Reservation a pod has taken from: written for people and for Koordinator's tools, and never read."""


def kept(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """The annotations that go into the log."""
    if not annotations:
        return {}
    return {k: v for k, v in annotations.items() if (k in KEPT or k.startswith(KEPT_PREFIXES)) and k != TOUCHED}


def grouped(annotations: dict[str, str], pod_group: str) -> dict[str, str]:
    """With the PodGroup of `scheduling.k8s.io` that the pod names: a fact has one place for a pod's group, and this one is the API's own."""
    return annotations | {GROUP_ANNOTATIONS[0]: UPSTREAM + pod_group}


def kept_of_group(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """The same for a PodGroup."""
    return {k: v for k, v in (annotations or {}).items() if k in KEPT_OF_GROUP}


class _Device(msgspec.Struct):
    minor: Int
    resources: dict[str, str | int] = {}


class _Allocated(msgspec.Struct):
    gpu: list[_Device] | None = None


_allocated = msgspec.json.Decoder(_Allocated)


class _Restricted(msgspec.Struct):
    resources: list[str] | None = None


_restricted = msgspec.json.Decoder(_Restricted | None)


def read_restricted(annotations: Mapping[str, str] | None) -> tuple[str, ...]:
    """The columns of the resources that Koordinator's `reservation-restricted-options` names, in the order of columns; empty
    where it names none. Raises ValueError with what is allowed."""
    text = (annotations or {}).get(RESTRICTED_OPTIONS)
    if not text:
        return ()
    try:
        said = _restricted.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(
            f"metadata.annotations[{RESTRICTED_OPTIONS}]: {error}; allowed: JSON such as " '{"resources": ["cpu"]}'
        ) from error
    return r.ordered(map(r.canonical_resource, (said.resources if said is not None else None) or ()))


def read_devices(text: str) -> tuple[DeviceShare, ...]:
    """Koordinator's `device-allocated`. Exact thousandths are read where Restow wrote them, else percent. Raises
    ValueError with what is allowed."""
    try:
        devices = _allocated.decode(text).gpu or ()
        shares = tuple(DeviceShare(d.minor, _milli(d.resources)) for d in devices)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, QuantityError) as error:
        raise ValueError(f"annotation {DEVICES}: {error}; allowed: Koordinator's JSON of allocated devices") from error
    for share in shares:
        if share.index < 0 or not 0 < share.milli <= r.WHOLE:
            raise ValueError(
                f"annotation {DEVICES}: {share.milli}/1000 of device {share.index}; allowed: 1 to {r.WHOLE} of device 0 or more"
            )
    return tuple(sorted(shares, key=lambda share: share.index))


def write_devices(shares: Iterable[DeviceShare]) -> str:
    """As Koordinator writes it (whole percent, rounded up), with the exact thousandths beside it."""
    devices = [
        {
            "minor": share.index,
            "resources": {
                r.KOORDINATOR_GPU_CORE: str(-(-share.milli // 10)),
                r.KOORDINATOR_GPU_MEMORY_RATIO: str(-(-share.milli // 10)),
                r.ALIBABA_GPU_MILLI: str(share.milli),
            },
        }
        for share in shares
    ]
    return msgspec.json.encode({"gpu": devices}).decode()


def write_reservation(name: str, uid: str) -> str:
    """As Koordinator writes it."""
    return msgspec.json.encode({"name": name, "uid": uid}).decode()


def _milli(resources: Mapping[str, str | int]) -> int:
    if r.ALIBABA_GPU_MILLI in resources:
        return units(resources[r.ALIBABA_GPU_MILLI])
    if r.NVIDIA_GPU in resources and not any(name in resources for name in r.PERCENT_NAMES):
        return r.WHOLE
    return 10 * max((units(resources[name]) for name in r.PERCENT_NAMES if name in resources), default=100)
