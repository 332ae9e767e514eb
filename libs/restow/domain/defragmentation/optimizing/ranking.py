"""The objective of the optimizing planner: a pod lands best where it takes the least from what nodes are worth, then where it leaves the least that is
of use."""

import numpy as np

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.gaps import wasted, wasted_one
from restow.domain.defragmentation.optimizing.value import Value
from restow.domain.defragmentation.placement import PARTS
from restow.domain.defragmentation.simulation import Simulation, Spot
from restow.domain.node_table import WHOLE, Vector

LOSS, NAMES = 50, 20
"""Bits of a rank: the loss is above `LOSS`, what is left over between, the tie-break by name in the lowest."""
MOST_LOSS = 4095
LOSSLESS = MOST_LOSS << LOSS
"""The least rank of rows that lose nothing."""
_NEVER = 1 << 40
"""More than any share of a device, for devices that the pod cannot have."""


class LeastLoss:
    """`counted` `(nodes,) bool`: rows whose worth counts; `loads` `(nodes,) int64`: pods that keep each row from being free; `stay` `(nodes,) int64`, 0 to
    PARTS: how hard each row is to empty, so that pods land where others stay anyway. The last two are changed from outside. `fill`: as `gaps.fillable`."""

    def __init__(self, simulation: Simulation, value: Value, counted: np.ndarray, loads: np.ndarray, fill: np.ndarray) -> None:
        self._simulation, self._value, self._counted, self._loads, self._fill = simulation, value, counted, loads, fill
        self._fills = fill.tolist()
        table = simulation.state.table
        self.stay = np.zeros(len(table.names), np.int64)
        self._names = len(table.names) - table.rank
        columns = [table.columns[n] for n in ("cpu", "memory", "restow.dev/gpu-milli") if n in table.columns]
        self._columns = [(c, np.maximum(table.allocatable[:, c], 1)) for c in columns]
        self._plain = [(c, totals.tolist()) for c, totals in self._columns]
        capacity = value.capacity
        self._most = value.most if value.objective == "value" else 0
        """What a row loses at most, where losses are amounts."""
        self._part = capacity.devices.milli if capacity is not None and capacity.devices is not None else 0
        """The share of one device that the capacity asks for."""

    def asks(self, v: Vector) -> tuple[tuple[tuple[int, int], ...], int]:
        return v.items, 0

    def beside(self, row: int) -> int:
        """How many pods keep it from being free."""
        return int(self._loads[row])

    def spot(self, uid: PodUid, row: int) -> Spot | None:
        """What the scheduler would give it there."""
        session, twin = self._simulation.session, self._simulation.twin(uid)
        shape = self._simulation.state.shapes[twin.shape]
        if shape.devices is None and shape.cores is None and not twin.claims:
            return Spot(row)
        devices = session.choose_devices(twin.shape, row)
        if shape.devices is not None and not devices:
            return None
        cores = session.choose_cores(twin, row)
        if cores is None:
            return None
        chooser = session.extensions.volumes
        volumes = chooser.choose(twin, row) if twin.claims and chooser is not None else ()
        return Spot(row, devices, cores, volumes)

    def rank_one(self, v: Vector, free: list[int], shares: list[int], row: int) -> int:
        lost = self._value.lost_one(row, free, shares, int(self._loads[row]), v) if self._counted[row] else 0
        if self._most:
            lost = -(-lost * MOST_LOSS // self._most)
        key = (MOST_LOSS - min(max(lost, 0), MOST_LOSS)) << LOSS
        return key + (self._tight_one(v, free, shares, row) << NAMES) + int(self._names[row])

    def _tight_one(self, v: Vector, free: list[int], shares: list[int], row: int) -> int:
        asked, full = dict(v.items), 0
        for c, totals in self._plain:
            full += PARTS - min(max(free[c] - asked.get(c, 0), 0) * PARTS // totals[row], PARTS)
        objective = self._value.objective
        if objective in ("devices", "nodes", "value") and v.devices is not None and v.devices.milli < WHOLE:
            milli = v.devices.milli
            able = sorted(share for share in shares if share >= milli)
            gap = able[v.devices.count - 1]
            full += (WHOLE - (min(gap - milli, WHOLE) if objective == "value" else wasted_one(self._fills, gap, milli))) << 13
        if objective == "nodes":
            full += int(self.stay[row]) << 13
        elif objective == "capacity":
            left = max([max(free[c] - asked.get(c, 0), 0) % a * PARTS // a for c, a in self._value.needs], default=0)
            if (part := self._part) and v.devices is not None:
                milli = v.devices.milli
                able = sorted(share for share in shares if share >= milli)
                left = max(left, (able[v.devices.count - 1] - milli) % part * PARTS // part)
            full += (PARTS - left) << 13
        return full

    def rank(self, v: Vector, free: np.ndarray, shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
        lost = self._value.lost(rows, free, shares, self._loads[rows], v) * self._counted[rows]
        if self._most:
            lost = -(-lost * MOST_LOSS // self._most)
        keys = np.minimum(np.maximum(MOST_LOSS - lost, 0), MOST_LOSS) << LOSS
        keys += self._tight(v, free, shares, rows) << NAMES
        keys += self._names[rows]
        return keys

    def _tight(self, v: Vector, free: np.ndarray, shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """`(rows,) int64`: the more, the less of use is left over there."""
        full = np.zeros(len(rows), np.int64)
        asked = dict(v.items)
        for c, total in self._columns:
            left = np.maximum(free[:, c] - asked.get(c, 0), 0)
            full += PARTS - np.minimum(left * PARTS // total[rows], PARTS)
        objective = self._value.objective
        if objective in ("devices", "nodes", "value") and v.devices is not None and v.devices.milli < WHOLE:
            gaps, milli = _last_able(shares, v, WHOLE + v.devices.milli), v.devices.milli
            full += (WHOLE - (np.clip(gaps - milli, 0, WHOLE) if objective == "value" else wasted(self._fill, gaps, milli))) << 13
        if objective == "nodes":
            full += self.stay[rows] << 13
        if objective == "capacity":
            full += self._remainder(v, free, shares) << 13
        return full

    def _remainder(self, v: Vector, free: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """`(rows,) int64`, 0 to PARTS: how little would be left over beside copies of the capacity."""
        asked, left = dict(v.items), np.zeros(len(free), np.int64)
        for c, a in self._value.needs:
            left = np.maximum(left, np.maximum(free[:, c] - asked.get(c, 0), 0) % a * PARTS // a)
        if (part := self._part) and v.devices is not None:
            left = np.maximum(left, (_last_able(shares, v, _NEVER) - v.devices.milli) % part * PARTS // part)
        return PARTS - left


def _last_able(shares: np.ndarray, v: Vector, never: int) -> np.ndarray:
    """`(rows,) int64`: what the widest of the devices that the request takes has free; `never` where it has too few."""
    assert v.devices is not None, "asked only of such requests"
    able = np.where(shares >= v.devices.milli, shares, never)
    return np.sort(able, axis=1)[:, min(v.devices.count, able.shape[1]) - 1]
