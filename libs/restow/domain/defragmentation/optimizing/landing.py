"""Where a pod lands best: where it takes the least from the objective, then where it leaves the least that is of use.

For each kind of pod (equal requests, equal rules about nodes) the rank of every row is kept, and made anew only for rows that
have changed: a question costs one pass over integers. Rules that depend on what runs are asked of the session besides.
"""

from collections.abc import Hashable, Iterable

import numpy as np

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.defragmentation.simulation import Spot
from restow.domain.fragmentation import alike
from restow.domain.predicates import static_mask
from restow.domain.table import WHOLE, Vector

LOSS, NAMES = 50, 20
"""Bits of a rank: the loss is above `LOSS`, what is left over between, the tie-break by name in the lowest."""
MOST_LOSS = 255
PARTS = 1024
MANY_ROWS = 32
"""Rows from which on the vectorised form is the faster one."""
RANKED = 1_000
"""Rows that are ranked for a new kind of pod in one step of search."""
_NEVER = 1 << 40
"""More than any share of a device, for devices that the pod cannot have."""


class _Kind:
    __slots__ = ("keys", "mask", "seen", "v")

    def __init__(self, v: Vector, mask: np.ndarray, seen: int) -> None:
        self.v, self.mask, self.seen = v, mask, seen
        self.keys = np.zeros(0, np.int64)


class Landing:
    """`stay` `(nodes,) int64`, 0 to PARTS: how hard each row is to empty, so that pods land where others stay anyway."""

    def __init__(self, world: World, stay: np.ndarray) -> None:
        self._world = world
        self._table = world.state.table
        self._stay = stay
        self._names = len(self._table.names) - self._table.rank
        self._kinds: dict[Hashable, _Kind] = {}
        self._of_shape: dict[str, _Kind] = {}
        columns = [self._table.columns[n] for n in ("cpu", "memory", "restow.dev/gpu-milli") if n in self._table.columns]
        self._columns = [(c, np.maximum(self._table.allocatable[:, c], 1)) for c in columns]
        room = world.value.room
        self._part = room.devices.milli if room is not None and room.devices is not None else 0
        """The share of one device that the room asks for."""
        self._plain = [(c, totals.tolist()) for c, totals in self._columns]

    def find(self, uid: PodUid, banned: Iterable[int], most_loss: int = MOST_LOSS) -> Spot | None:
        """The best row for a pod that is in the air; None where it fits nowhere without taking more than `most_loss`."""
        world = self._world
        world.steps += 1
        keys = self.keys(uid)
        rules = bool(world.rules(uid))
        if rules:
            keys = keys.copy()
            for _, failing in world.simulation.failing(uid):
                keys[failing] = -1
        rows = list(banned)
        saved = keys[rows]
        keys[rows] = -1
        found: Spot | None = None
        while found is None:
            row = int(keys.argmax()) if len(keys) else -1
            if row < 0 or keys[row] < 0 or MOST_LOSS - (int(keys[row]) >> LOSS) > most_loss:
                break
            found = self.spot(uid, row)
            if found is None:
                # Its devices or CPUs cannot be had as the scheduler chooses them.
                rows.append(row)
                saved = np.append(saved, keys[row])
                keys[row] = -1
        if not rules:
            # Backwards, so that a row that was banned twice gets its own.
            for row, key in zip(reversed(rows), reversed(saved.tolist()), strict=True):
                keys[row] = key
        return found

    def fits_at(self, uid: PodUid, row: int) -> Spot | None:
        """The spot on this row, None where the pod does not fit there."""
        world = self._world
        world.steps += 1
        if self.keys(uid)[row] < 0:
            return None
        if world.simulation.forbidden(uid, row):
            return None
        return self.spot(uid, row)

    def spot(self, uid: PodUid, row: int) -> Spot | None:
        """What the scheduler would give it there."""
        session, twin = self._world.session, self._world.twin(uid)
        shape = self._world.state.shapes[twin.shape]
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

    def short(self, uid: PodUid) -> np.ndarray:
        """`(nodes,) int64`: how much a pod lacks on each row, in parts of its request; -1 where nobody's leaving would help."""
        world, kind = self._world, self._kind(uid)
        world.steps += 1
        table, v = self._table, kind.v
        lack = np.zeros(len(table.names), np.int64)
        for c, a in v.items:
            free = table.free[:, c] - world.floor if c == world.column else table.free[:, c]
            lack += np.clip(a - free, 0, a) * PARTS // a
        if v.devices is not None:
            width = table.device_free.shape[1]
            if v.devices.count > width:
                return np.full(len(lack), -1)
            widest = np.partition(table.device_free, width - v.devices.count, axis=1)[:, width - v.devices.count]
            milli = v.devices.milli
            lack += np.clip(milli - widest, 0, milli) * PARTS // milli
        return np.where(kind.mask, lack, -1)

    # -- ranks -------------------------------------------------------------------------------------------------------

    def keys(self, uid: PodUid) -> np.ndarray:
        """`(nodes,) int64`: the rank of each row as it is now, -1 where the pod does not fit (rules about what runs aside)."""
        kind, changes = self._kind(uid), self._world.changes
        if kind.seen < len(changes):
            rows = set(changes[kind.seen :])
            kind.seen = len(changes)
            if len(rows) < MANY_ROWS:
                for row in rows:
                    kind.keys[row] = self.rank_one(kind, row)
            else:
                several = np.array(sorted(rows), np.int64)
                self._world.steps += 1
                kind.keys[several] = self.rank(kind, several)
        return kind.keys

    def _kind(self, uid: PodUid) -> _Kind:
        world = self._world
        shape = world.state.pods[uid].shape
        kind = self._of_shape.get(shape)
        if kind is None:
            v = world.vector(uid)
            key = (v.items, v.devices, alike(world.state, shape))
            kind = self._kinds.get(key)
            if kind is None:
                mask = static_mask(world.state, shape) & world.open
                world.steps += 1 + len(mask) // RANKED
                kind = self._kinds[key] = _Kind(v, mask, len(world.changes))
                kind.keys = self.rank(kind, np.arange(len(self._table.names)))
            self._of_shape[shape] = kind
        return kind

    def rank_one(self, kind: _Kind, row: int) -> int:
        """`rank` of one row, in plain integers; a test holds both equal."""
        if not kind.mask[row]:
            return -1
        world, v = self._world, kind.v
        free, shares = world.free(row)
        floor = int(world.floor[row])
        for c, a in v.items:
            if free[c] - (floor if c == world.column else 0) < a:
                return -1
        if v.devices is not None:
            milli = v.devices.milli
            if sum(share >= milli for share in shares) < v.devices.count:
                return -1
        lost = world.value.lost_one(free, shares, int(world.loads[row]), v) if world.counted[row] else 0
        key = (MOST_LOSS - min(max(lost, 0), MOST_LOSS)) << LOSS
        return key + (self._tight_one(v, free, shares, row) << NAMES) + int(self._names[row])

    def _tight_one(self, v: Vector, free: list[int], shares: list[int], row: int) -> int:
        asked, full = dict(v.items), 0
        for c, totals in self._plain:
            full += PARTS - min(max(free[c] - asked.get(c, 0), 0) * PARTS // totals[row], PARTS)
        objective = self._world.value.objective
        if objective == "devices" and v.devices is not None and v.devices.milli < WHOLE:
            milli = v.devices.milli
            able = sorted(share for share in shares if share >= milli)
            full += (WHOLE - min(able[v.devices.count - 1] - milli, WHOLE)) << 13
        elif objective == "nodes":
            full += int(self._stay[row]) << 13
        elif objective == "room":
            left = max([max(free[c] - asked.get(c, 0), 0) % a * PARTS // a for c, a in self._world.value.needs], default=0)
            if (part := self._part) and v.devices is not None:
                milli = v.devices.milli
                able = sorted(share for share in shares if share >= milli)
                left = max(left, (able[v.devices.count - 1] - milli) % part * PARTS // part)
            full += (PARTS - left) << 13
        return full

    def rank(self, kind: _Kind, rows: np.ndarray) -> np.ndarray:
        world, table, v = self._world, self._table, kind.v
        free, shares = table.free[rows], table.device_free[rows]
        room = kind.mask[rows].copy()
        for c, a in v.items:
            room &= free[:, c] - (world.floor[rows] if c == world.column else 0) >= a
        if v.devices is not None:
            room &= (shares >= v.devices.milli).sum(axis=1) >= v.devices.count
        lost = world.value.lost(free, shares, world.loads[rows], v) * world.counted[rows]
        keys = np.minimum(np.maximum(MOST_LOSS - lost, 0), MOST_LOSS) << LOSS
        keys += self._tight(v, free, shares, rows) << NAMES
        keys += self._names[rows]
        return np.where(room, keys, -1)

    def _tight(self, v: Vector, free: np.ndarray, shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """`(rows,) int64`: the more, the less of use is left over there."""
        full = np.zeros(len(rows), np.int64)
        asked = dict(v.items)
        for c, total in self._columns:
            left = np.maximum(free[:, c] - asked.get(c, 0), 0)
            full += PARTS - np.minimum(left * PARTS // total[rows], PARTS)
        objective = self._world.value.objective
        if objective == "devices" and v.devices is not None and v.devices.milli < WHOLE:
            able = np.where(shares >= v.devices.milli, shares, WHOLE + v.devices.milli)
            left = np.sort(able, axis=1)[:, min(v.devices.count, able.shape[1]) - 1] - v.devices.milli
            full += (WHOLE - np.minimum(np.maximum(left, 0), WHOLE)) << 13
        if objective == "nodes":
            full += self._stay[rows] << 13
        if objective == "room":
            full += self._remainder(v, free, shares) << 13
        return full

    def _remainder(self, v: Vector, free: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """`(rows,) int64`, 0 to PARTS: how little would be left over beside copies of the room."""
        asked, left = dict(v.items), np.zeros(len(free), np.int64)
        for c, a in self._world.value.needs:
            left = np.maximum(left, np.maximum(free[:, c] - asked.get(c, 0), 0) % a * PARTS // a)
        if (part := self._part) and v.devices is not None:
            milli = v.devices.milli
            able = np.where(shares >= milli, shares, _NEVER)
            last = np.sort(able, axis=1)[:, min(v.devices.count, able.shape[1]) - 1]
            left = np.maximum(left, (last - milli) % part * PARTS // part)
        return PARTS - left
