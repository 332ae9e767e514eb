"""GPU devices of a node, each with 1000 milli, and the four ways to ask for them.

| resource | meaning |
|---|---|
| `nvidia.com/gpu: n` | n whole devices |
| `koordinator.sh/gpu: p` | percent: below 100 a share of one device, otherwise p/100 whole devices |
| `koordinator.sh/gpu-core`, `koordinator.sh/gpu-memory-ratio` | as `koordinator.sh/gpu`; the larger counts |
| `alibabacloud.com/gpu-milli: m` with `alibabacloud.com/gpu-count: n` | m milli on each of n devices |
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from restow.kubesim.amounts import Amounts
from restow.kubesim.podstate import Obj, annotations_of

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
WHOLE = 1000

NVIDIA = "nvidia.com/gpu"
COUNT = "alibabacloud.com/gpu-count"
MILLI = "alibabacloud.com/gpu-milli"
PERCENT = ("koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
GPU_NAMES = frozenset({NVIDIA, COUNT, MILLI, *PERCENT})


class DeviceError(Exception):
    """The devices cannot take this pod; the text says which and why."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """`milli` on each of `count` devices."""

    count: int
    milli: int


def gpu_request(requests: Amounts) -> GpuRequest | None:
    """What the pod asks of GPUs; None if nothing. DeviceError if it makes no sense."""
    if GPU_NAMES.isdisjoint(requests):
        return None
    if requests.get(NVIDIA):
        return GpuRequest(requests[NVIDIA], WHOLE)
    percent = max(requests.get(name, 0) for name in PERCENT)
    if percent:
        if percent > 100 and percent % 100:
            raise DeviceError(
                f"{percent} percent of a GPU is neither a share of one device nor whole devices"
            )
        return GpuRequest(1, percent * 10) if percent < 100 else GpuRequest(percent // 100, WHOLE)
    milli, count = requests.get(MILLI, 0), requests.get(COUNT, 0)
    if not milli and not count:
        return None
    if milli > WHOLE:
        raise DeviceError(f"{MILLI} is per device and at most {WHOLE}, not {milli}")
    return GpuRequest(count or 1, milli or WHOLE)


def chosen_minors(pod: Obj, wanted: GpuRequest) -> dict[int, int] | None:
    """The scheduler's choice from the pod's annotation as device → milli; None if it made none."""
    text = annotations_of(pod).get(ALLOCATED)
    if not text:
        return None
    try:
        entries = msgspec.json.decode(text).get("gpu")
        if not entries:
            return None
        shares: dict[int, int] = {}
        for entry in entries:
            named = entry.get("resources") or {}
            percents = [int(str(named[name])) for name in PERCENT if name in named]
            minor = int(entry["minor"])
            share = max(percents) * 10 if percents else wanted.milli
            # gpu-core is rounded to percent by whoever wrote it; milli are exact.
            if abs(share - wanted.milli) < 10:
                share = wanted.milli
            shares[minor] = shares.get(minor, 0) + share
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DeviceError(f"annotation {ALLOCATED} cannot be read: {error}") from None
    given, asked = sum(shares.values()), wanted.count * wanted.milli
    if given != asked:
        raise DeviceError(f"annotation {ALLOCATED} gives {given} milli, the pod asks for {asked}")
    return shares


class Devices:
    """Free milli of each device of one node."""

    __slots__ = ("free",)

    def __init__(self, count: int):
        self.free = [WHOLE] * count

    def resize(self, count: int) -> None:
        """The node now advertises `count` devices; shares on those that stay are kept."""
        self.free = [*self.free[:count], *([WHOLE] * (count - len(self.free)))]

    def pick(self, wanted: GpuRequest) -> dict[int, int]:
        """Best fit: the fullest devices that still have capacity, lowest number first. DeviceError without capacity."""
        fitting = sorted((free, minor) for minor, free in enumerate(self.free) if free >= wanted.milli)
        if len(fitting) < wanted.count:
            raise DeviceError(
                f"{wanted.count} GPU(s) with {wanted.milli} milli free are needed, "
                f"{len(fitting)} of {len(self.free)} have that"
            )
        return {minor: wanted.milli for _, minor in fitting[: wanted.count]}

    def take(self, shares: dict[int, int]) -> None:
        """Use the shares; DeviceError, and nothing taken, if one of them is not free."""
        for minor, milli in shares.items():
            if not 0 <= minor < len(self.free):
                raise DeviceError(f"the node has no GPU {minor}, it has {len(self.free)}")
            if self.free[minor] < milli:
                raise DeviceError(f"GPU {minor} has {self.free[minor]} milli free, the pod needs {milli}")
        for minor, milli in shares.items():
            self.free[minor] -= milli

    def give_back(self, shares: dict[int, int]) -> None:
        for minor, milli in shares.items():
            if minor < len(self.free):
                self.free[minor] = min(self.free[minor] + milli, WHOLE)
