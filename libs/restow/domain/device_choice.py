"""Which GPUs of a node a pod gets, and how many such requests fit on them. Lists are free shares by device, in thousandths.

A request has shares of different devices, never a share in two parts (RULES 004-4). Everybody gets the fullest devices that suffice, so that others
stay whole; an owner of a hold gets the hold's first; plugin `fragmentation` chooses for shares of one device where it is on.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from restow.contracts.values import DeviceRequest, DeviceShare
from restow.domain.resources import WHOLE


def fullest(free: Sequence[int], request: DeviceRequest) -> list[int] | None:
    """Indices of the devices for a request: those with the least free share that suffices, ties by index. None where they do
    not suffice."""
    able = sorted((share, i) for i, share in enumerate(free) if share >= request.milli)
    return [i for _, i in able[: request.count]] if len(able) >= request.count else None


def choose(free: Sequence[int], request: DeviceRequest) -> tuple[DeviceShare, ...] | None:
    """The fullest that suffice; None where they do not."""
    chosen = fullest(free, request)
    return None if chosen is None else _shares(chosen, request)


def choose_of_hold(free: Sequence[int], held: Mapping[int, int], request: DeviceRequest, only: bool) -> tuple[DeviceShare, ...] | None:
    """For the owner of a hold that has `held` of devices, beside what is `free`: those of which the hold has enough come first, then those of which it
    has a part, each the fullest first. `only`: no others. None where they do not suffice."""
    able = []
    for index, share in enumerate(free):
        mine = held.get(index, 0)
        if share + mine < request.milli or (only and mine < request.milli):
            continue
        group = 0 if mine >= request.milli else 1 if mine else 2
        able.append((group, share + mine, index))
    if len(able) < request.count:
        return None
    return _shares([index for _, _, index in sorted(able)[: request.count]], request)


def _shares(chosen: Sequence[int], request: DeviceRequest) -> tuple[DeviceShare, ...]:
    return tuple(DeviceShare(index, request.milli) for index in sorted(chosen))


def copies(shares: list[int], request: DeviceRequest) -> int:
    """How many such requests fit beside each other on the devices of a node; no two shares of one request on one device."""
    slots = [share // request.milli for share in shares if share >= request.milli]
    if request.count == 1:
        return sum(slots)
    low, high = 0, sum(slots) // request.count
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(slot, middle) for slot in slots) >= middle * request.count:
            low = middle
        else:
            high = middle - 1
    return low


def copies_many(shares: np.ndarray, request: DeviceRequest) -> np.ndarray:
    """`(rows,) int64`: the same for many nodes, `shares` `(rows, devices)`."""
    slots = np.maximum(shares, 0) // request.milli
    if request.count == 1:
        return slots.sum(axis=1)
    if request.milli == WHOLE:
        return slots.sum(axis=1) // request.count
    # As `copies`: the most copies for which the slots of different devices suffice.
    found = np.zeros(len(shares), np.int64)
    for middle in range(1, int(slots.sum(axis=1).max(initial=0)) // request.count + 1):
        found[np.minimum(slots, middle).sum(axis=1) >= middle * request.count] = middle
    return found
