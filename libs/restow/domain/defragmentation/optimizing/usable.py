"""Objective `value`: what could be run in what is free (`usable_worth`), in thousandths of the unit that moves cost, too."""

import numpy as np

from restow.domain.defragmentation.optimizing.value import Value, with_request
from restow.domain.defragmentation.usable_worth import UsableWorth
from restow.domain.device_choice import fullest
from restow.domain.node_table import Vector


class Usable(Value):
    """`wanted`: what sets of pods are asked to leave for: the demands, of equal devices the one with the largest part."""

    def __init__(self, of: UsableWorth, gpu: int) -> None:
        super().__init__("value", None, gpu)
        self.of = of
        self._read = frozenset(c for one in of.wanted for c, _ in one.v.items)
        self._with_devices = any(one.v.devices is not None for one in of.wanted)
        self.most = of.most
        requests: dict[object, Vector] = {}
        for one in of.wanted:
            requests.setdefault(one.v.devices or one.v.items, one.v)
        self.wanted = list(requests.values())

    def worth(self, row: int, free: list[int], shares: list[int], loads: int) -> int:
        return self.of.one(row, free, shares, loads)

    def worths(self, free: np.ndarray, shares: np.ndarray, loads: np.ndarray) -> list[int]:
        every = np.arange(len(free))
        return self.of.many(every, free, shares, loads).tolist()  # type: ignore[no-any-return]

    def lost_one(self, row: int, free: list[int], shares: list[int], loads: int, v: Vector) -> int:
        left = free[:]
        for c, a in v.items:
            left[c] -= a
        rest = shares
        if v.devices is not None:
            rest = shares[:]
            for i in fullest(shares, v.devices) or ():
                rest[i] -= v.devices.milli
        return self.of.one(row, free, shares, loads) - self.of.one(row, left, rest, loads + 1)

    def lost(self, rows: np.ndarray, free: np.ndarray, shares: np.ndarray, loads: np.ndarray, v: Vector) -> np.ndarray:
        left = free.copy()
        for c, a in v.items:
            left[:, c] -= a
        return self.of.many(rows, free, shares, loads) - self.of.many(rows, left, with_request(shares, v.devices), loads + 1)

    def reads(self, v: Vector) -> bool:
        return (self._with_devices and v.devices is not None) or any(c in self._read for c, _ in v.items)
