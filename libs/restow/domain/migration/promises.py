"""Room that is promised and not held yet, so that of several moves to one node the first planned gets it."""

import numpy as np

from restow.contracts.ids import NodeName
from restow.contracts.values import DeviceShare
from restow.domain.migration import holds
from restow.domain.records import Migration
from restow.domain.state import ClusterState
from restow.domain.table import Vector


class Promises:
    """What nodes would have free if every migration that was told of had been carried out. Rows are copied when they are first
    asked for."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._rows: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._told: list[Migration] = []

    def tell(self, migration: Migration) -> None:
        """In the order in which they were planned. Nothing is counted before somebody asks."""
        self._told.append(migration)

    def _count(self, migration: Migration) -> None:
        state, move = self._state, migration.move
        charge = state.charges.get(move.pod)
        if not move.target:
            return
        if charge is not None and charge.node == move.source:
            self._give(move.source, state.vectors[charge.shape], charge.devices, 1)
        if holds.promises(state, migration):
            self._give(move.target, state.vectors[migration.shape], move.devices, -1)

    def fits(self, migration: Migration) -> bool:
        """Whether its landing place is free now, and nobody's who was told of before."""
        state = self._state
        row, v = state.table.rows.get(migration.move.target), state.vectors[migration.shape]
        if row is None or not state.table.fits_row(row, v):
            return False
        for told in self._told:
            self._count(told)
        self._told.clear()
        free, devices = self._row(row)
        if any(free[column] < amount for column, amount in v.items):
            return False
        return v.devices is None or int((devices >= v.devices.milli).sum()) >= v.devices.count

    def _give(self, node: NodeName, v: Vector, devices: tuple[DeviceShare, ...], sign: int) -> None:
        row = self._state.table.rows.get(node)
        if row is None:
            return
        _add(*self._row(row), v, devices, sign)

    def _row(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        known = self._rows.get(row)
        if known is None:
            table = self._state.table
            known = self._rows[row] = table.free[row].copy(), table.device_free[row].copy()
        return known


def _add(free: np.ndarray, shares: np.ndarray, v: Vector, devices: tuple[DeviceShare, ...], sign: int) -> None:
    for column, amount in v.items:
        free[column] += sign * amount
    for d in devices:
        if d.index < len(shares):
            shares[d.index] += sign * d.milli
