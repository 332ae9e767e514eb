"""What a node is worth by the objective: whole free devices, being free, or how often the named capacity fits.

The sum over all nodes is what a plan is to raise; only nodes that are ready and schedulable count, capacity elsewhere is of no use.
`worth` is for one node in plain integers, `lost` for many: what a node would be worth less with one more pod.
"""

from typing import Literal

import numpy as np

from restow.contracts.values import DeviceRequest
from restow.domain.device_choice import copies, fullest
from restow.domain.fragmentation.fitting import times
from restow.domain.node_table import WHOLE, Vector

Objective = Literal["devices", "nodes", "capacity", "value", "none"]
"""`value`: `usable.Usable`. `none`: nothing counts but what moves cost."""
MANY = 1 << 30
_NO_SHARE = 1 << 40


def fits(free: list[int], shares: list[int], v: Vector) -> bool:
    """Whether a request has capacity in this, devices included."""
    for column, amount in v.items:
        if free[column] < amount:
            return False
    if v.devices is None:
        return True
    milli = v.devices.milli
    return sum(share >= milli for share in shares) >= v.devices.count


class Value:
    """`capacity` is the request of objective `capacity`; `gpu` the column of GPU share (-1 for none), of which devices say enough."""

    def __init__(self, objective: Objective, capacity: Vector | None, gpu: int) -> None:
        self.objective = objective
        self.capacity = capacity
        self.needs = [(c, a) for c, a in capacity.items if c != gpu or capacity.devices is None] if capacity is not None else []
        """What the capacity asks for, by column; devices apart."""
        self.gpu = gpu
        self._columns = frozenset(c for c, _ in self.needs)
        self._devices = capacity.devices if capacity is not None else None
        self.most = 1
        """What a node may gain at most by one pod's leaving."""

    def worth(self, row: int, free: list[int], shares: list[int], loads: int) -> int:
        """Of one node. `loads`: pods that keep it from being free."""
        if self.objective == "devices":
            return shares.count(WHOLE)
        if self.objective == "none":
            return 0
        if self.objective == "nodes":
            return int(not loads)
        most = min([free[c] // a for c, a in self.needs], default=MANY)
        if self._devices is not None:
            most = min(most, copies(shares, self._devices))
        return max(most, 0)

    def worths(self, free: np.ndarray, shares: np.ndarray, loads: np.ndarray) -> list[int]:
        """Of all nodes; `free` `(nodes, resources)`, `shares` `(nodes, devices)`."""
        return [self.worth(row, *contents) for row, contents in enumerate(zip(free.tolist(), shares.tolist(), loads.tolist(), strict=True))]

    def lost_one(self, row: int, free: list[int], shares: list[int], loads: int, v: Vector) -> int:
        """What one node would be worth less with this request, which fits there."""
        if self.objective == "nodes":
            return int(not loads)
        if self.objective == "devices":
            if v.devices is None:
                return 0
            milli = v.devices.milli
            return max(v.devices.count - sum(milli <= share < WHOLE for share in shares), 0)
        if self.objective == "none":
            return 0
        left = free[:]
        for c, a in v.items:
            left[c] -= a
        rest = shares
        if v.devices is not None:
            rest = shares[:]
            for i in fullest(shares, v.devices) or ():
                rest[i] -= v.devices.milli
        return self.worth(row, free, shares, loads) - self.worth(row, left, rest, loads)

    def lost(self, rows: np.ndarray, free: np.ndarray, shares: np.ndarray, loads: np.ndarray, v: Vector) -> np.ndarray:
        """`(rows,) int64`: what rows would be worth less with this request, which fits there. `free` `(rows, resources)`,
        `shares` `(rows, devices)`."""
        if self.objective == "nodes":
            return (loads == 0).astype(np.int64)
        if self.objective == "devices":
            return wholes_taken(shares, v.devices)
        if self.objective == "none":
            return np.zeros(len(free), np.int64)
        assert self.capacity is not None, "objective capacity has one"
        left = free.copy()
        for c, a in v.items:
            left[:, c] -= a
        return times(self.capacity, free, shares, self.gpu) - times(self.capacity, left, with_request(shares, v.devices), self.gpu)

    def reads(self, v: Vector) -> bool:
        """Whether what a request takes is any part of the capacity."""
        return (self._devices is not None and v.devices is not None) or any(c in self._columns for c, _ in v.items)


def wholes_taken(shares: np.ndarray, request: DeviceRequest | None) -> np.ndarray:
    """How many whole free devices a request takes, where the fullest that suffice are chosen."""
    if request is None:
        return np.zeros(len(shares), np.int64)
    partly = ((shares >= request.milli) & (shares < WHOLE)).sum(axis=1)
    return np.maximum(request.count - partly, 0)


def with_request(shares: np.ndarray, request: DeviceRequest | None) -> np.ndarray:
    """The shares once the request has taken the fullest devices that suffice."""
    if request is None:
        return shares
    able = np.where(shares >= request.milli, shares, _NO_SHARE)
    chosen = np.argsort(able, axis=1, kind="stable")[:, : request.count]
    left = shares.copy()
    np.put_along_axis(left, chosen, np.take_along_axis(shares, chosen, 1) - request.milli, 1)
    return left
