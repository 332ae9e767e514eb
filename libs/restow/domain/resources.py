"""Names of resources: the one home of every way to ask for GPUs, and the order in which resources are shown.

Inside Restow all GPUs are one column, `restow.dev/gpu-milli`, in thousandths of a device; how they spread over devices is
in `DeviceRequest` and `DeviceShare` (RULES 004-5).
"""

from collections.abc import Iterable, Mapping

from restow.contracts.values import DeviceRequest
from restow.domain.quantity import CPU, format_resource

MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
HUGEPAGES_PREFIX = "hugepages-"

GPU_MILLI = "restow.dev/gpu-milli"
"""All GPU capacity and demand, in thousandths of a device."""
NVIDIA_GPU = "nvidia.com/gpu"
KOORDINATOR_GPU = "koordinator.sh/gpu"
KOORDINATOR_GPU_CORE = "koordinator.sh/gpu-core"
KOORDINATOR_GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"
ALIBABA_GPU_COUNT = "alibabacloud.com/gpu-count"
ALIBABA_GPU_MILLI = "alibabacloud.com/gpu-milli"
ALIBABA_GPU_MODEL = "alibabacloud.com/gpu-card-model"
"""Not a resource: a node's label, and a pod's annotation that names the models it accepts (`A|B`)."""

PERCENT_NAMES = (KOORDINATOR_GPU, KOORDINATOR_GPU_CORE, KOORDINATOR_GPU_MEMORY_RATIO)
GPU_NAMES = frozenset({NVIDIA_GPU, ALIBABA_GPU_COUNT, ALIBABA_GPU_MILLI, *PERCENT_NAMES})
PLAIN_GPU = "gpu"
"""As seed 003 calls GPUs in `ResourceType` and in thresholds. No pod can ask so: an extended resource has a domain."""
WHOLE = 1000
"""Thousandths of one device."""
GPU_UNIT = {NVIDIA_GPU: WHOLE, ALIBABA_GPU_COUNT: WHOLE, ALIBABA_GPU_MILLI: 1} | dict.fromkeys(PERCENT_NAMES, WHOLE // 100)
"""Thousandths of a device in one unit of each name."""
_MAX_DEVICES = 1024

_FIRST = (CPU, MEMORY, GPU_MILLI, PODS, EPHEMERAL_STORAGE)


def title(resource: str) -> str:
    """How users call a resource of the node table: GPUs by the name that most ask for."""
    return NVIDIA_GPU if resource == GPU_MILLI else resource


def amount(resource: str, amount: int) -> str:
    """An amount in canonical units as users write it: `1500m`, `500Mi`; GPUs in devices: `2`, `0.5`."""
    if resource != GPU_MILLI:
        return format_resource(resource, amount)
    whole, rest = divmod(amount, WHOLE)
    return f"{whole}" + (f".{rest:03}".rstrip("0") if rest else "")


def shown(resource: str, how_much: int) -> str:
    """With its resource: `cpu 1500m`, `nvidia.com/gpu 2`."""
    return f"{title(resource)} {amount(resource, how_much)}"


def quantities(amounts: Mapping[str, int], gpu: str = "") -> dict[str, str]:
    """Amounts as the status of an object has them, without zeros and in `ordered` order: quantities as Kubernetes writes them,
    GPUs by the name that was asked for (`gpu`), where that can say it, else in thousandths."""
    return dict(
        _gpus(amounts[name], gpu) if name == GPU_MILLI else (name, format_resource(name, amounts[name]))
        for name in ordered(amounts)
        if amounts[name]
    )


def _gpus(milli: int, name: str) -> tuple[str, str]:
    unit = GPU_UNIT.get(name, 1)
    if milli % unit:
        name, unit = ALIBABA_GPU_MILLI, 1
    return name or ALIBABA_GPU_MILLI, format_resource(GPU_MILLI, milli // unit)


class DeviceError(ValueError):
    """A demand for GPUs that no device can serve. Says name, value and what is allowed."""


def canonical_resource(name: str) -> str:
    """The column of a resource: any GPU name (as used in `ResourceType` or in thresholds), `gpu` too, is `restow.dev/gpu-milli`."""
    return GPU_MILLI if name in GPU_NAMES or name == PLAIN_GPU else name


def total_columns(amounts: Mapping[str, int]) -> dict[str, int]:
    """Amounts that stand for many pods, by column. Of several names for GPUs the greatest amount counts, as on nodes."""
    columns = {name: amount for name, amount in amounts.items() if name not in GPU_NAMES}
    gpus = [amount * GPU_UNIT[name] for name, amount in amounts.items() if name in GPU_NAMES]
    return columns | ({GPU_MILLI: max(gpus)} if gpus else {})


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once: cpu, memory, GPUs, pods, ephemeral storage, then by name. The order of columns everywhere."""
    got = set(names)
    return (*(name for name in _FIRST if name in got), *sorted(got.difference(_FIRST)))


def device_request(amounts: Mapping[str, int]) -> DeviceRequest | None:
    """What these amounts (whole units) ask of GPUs, None for nothing. Several ways to ask must agree.

    Raises DeviceError. Percentages above 100 must be whole devices: a share never spans two (RULES 004-4).
    """
    asked: dict[str, DeviceRequest] = {}
    if whole := amounts.get(NVIDIA_GPU, 0):
        asked[NVIDIA_GPU] = DeviceRequest(_count(NVIDIA_GPU, whole), WHOLE)
    if percent := max(amounts.get(name, 0) for name in PERCENT_NAMES):
        asked["koordinator.sh/gpu*"] = _of_percent(percent)
    count, milli = amounts.get(ALIBABA_GPU_COUNT, 0), amounts.get(ALIBABA_GPU_MILLI, 0)
    if count or milli:
        if not 0 <= milli <= WHOLE:
            raise DeviceError(f"{ALIBABA_GPU_MILLI} is {milli}; allowed: 1 to {WHOLE}, of each device")
        asked[ALIBABA_GPU_MILLI] = DeviceRequest(_count(ALIBABA_GPU_COUNT, count or 1), milli or WHOLE)
    if not asked:
        return None
    if len(set(asked.values())) > 1:
        said = ", ".join(f"{name}: {r.count} x {r.milli}/1000" for name, r in sorted(asked.items()))
        raise DeviceError(f"GPUs are asked for in ways that differ ({said}); allowed: one way, or equal amounts")
    return next(iter(asked.values()))


def devices_at_most(amounts: Mapping[str, int]) -> DeviceRequest | None:
    """Whole devices for the greatest of these amounts, for a request that `device_request` refuses: what it takes of them nobody can tell."""
    most = max((-(-amount * GPU_UNIT[name] // WHOLE) for name, amount in amounts.items() if name in GPU_NAMES), default=0)
    return DeviceRequest(min(most, _MAX_DEVICES), WHOLE) if most > 0 else None


def node_devices(allocatable: Mapping[str, int]) -> int:
    """How many GPUs a node has: the greatest of what its names say."""
    return max(
        0,
        allocatable.get(NVIDIA_GPU, 0),
        allocatable.get(ALIBABA_GPU_COUNT, 0),
        *(allocatable.get(name, 0) // 100 for name in PERCENT_NAMES),
    )


def in_columns(amounts: Mapping[str, int], gpu_milli: int) -> dict[str, int]:
    """The amounts in Restow's columns: without zeros and GPU names, with `restow.dev/gpu-milli`, in `ordered` order."""
    named = {name: amount for name, amount in amounts.items() if amount and name not in GPU_NAMES}
    if gpu_milli:
        named[GPU_MILLI] = gpu_milli
    return {name: named[name] for name in ordered(named)}


def _of_percent(percent: int) -> DeviceRequest:
    if percent < 0 or (percent > 100 and percent % 100):
        raise DeviceError(
            f"{percent} % of a GPU is asked for; allowed: 1 to 100, or a multiple of 100 (a share never spans two devices)"
        )
    if percent <= 100:
        return DeviceRequest(1, percent * 10)
    return DeviceRequest(_count(KOORDINATOR_GPU, percent // 100), WHOLE)


def _count(name: str, count: int) -> int:
    if not 0 < count <= _MAX_DEVICES:
        raise DeviceError(f"{name} is {count}; allowed: 1 to {_MAX_DEVICES}")
    return count
