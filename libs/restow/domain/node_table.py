"""The node table: who has how much capacity, as integer arrays that are changed in place and never rebuilt.

Rows are nodes, columns are resources; a second table has one column a device. Values are only added, subtracted and
compared (int64 overflows silently); ratios are `value * 10_000 // allocatable` on values that fit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Self

import msgspec
import numpy as np

from restow.contracts.ids import NodeName
from restow.contracts.values import DeviceRequest, DeviceShare
from restow.domain.changes import Changes
from restow.domain.device_choice import choose

WHOLE = 1000
"""Thousandths of a device."""

NO_DEVICE = -(1 << 40)
"""Added to the free share of a device that the node does not have: below anything that over-commitment can lead to. So
a charge to such a device is kept, and counts when the device appears."""

MAX_DEVICES = 256
"""Devices of one node; an index beyond is nobody's."""


MOST = 1 << 52
"""An amount beyond counts as this, four PiB in bytes: the API takes more, and so many that two thousand of them on one node are
more than int64 holds."""


class ChargedAs(Enum):
    """What a charge is: a pod's, a terminating pod's (counted as used, too, until it is gone), or a hold's."""

    USED = 1
    RELEASING = 2
    HELD = 3


class Vector:
    """A request in the table's terms: `items` are (column, amount) as plain integers, plus the devices. `columns` and
    `amounts` (both int64, same length) are the same as arrays, made when they are first asked for: most vectors of holds are
    charged once and forgotten."""

    __slots__ = ("amounts", "columns", "devices", "items")

    def __init__(self, items: tuple[tuple[int, int], ...], devices: DeviceRequest | None):
        self.items = items
        self.devices = devices

    def __getattr__(self, name: str) -> np.ndarray:
        """Only where a slot is empty still."""
        if name == "columns":
            self.columns = np.array([c for c, _ in self.items], np.int64)
            return self.columns
        if name == "amounts":
            self.amounts = np.array([a for _, a in self.items], np.int64)
            return self.amounts
        raise AttributeError(name)


def vector_of(items: Iterable[tuple[int, int]]) -> Vector:
    """Of (column, amount) pairs, without devices."""
    return Vector(tuple(items), None)


def less(wanted: Iterable[tuple[int, int]], held: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is missing of the wanted amounts, by column, where these are held."""
    there = dict(held)
    return [(c, amount - there.get(c, 0)) for c, amount in wanted if amount > there.get(c, 0)]


def lowered(items: Iterable[tuple[int, int]], most: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The amounts, each at most what `most` has of it."""
    top = dict(most)
    return tuple((c, least) for c, amount in items if (least := min(amount, top.get(c, 0))) > 0)


def plus(items: Iterable[tuple[int, int]], more: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The sum of two lists of amounts, in the order of the columns."""
    total = dict(items)
    for column, amount in more:
        total[column] = total.get(column, 0) + amount
    return tuple(sorted(total.items()))


def fewer(devices: Iterable[DeviceShare], taken: Iterable[DeviceShare]) -> tuple[DeviceShare, ...]:
    """What is left of shares where these are taken."""
    gone = {d.index: d.milli for d in taken}
    return tuple(
        DeviceShare(d.index, left) for d in devices if (left := d.milli - gone.get(d.index, 0)) > 0
    )


def shares_up_to(devices: Iterable[DeviceShare], most: Mapping[int, int]) -> tuple[DeviceShare, ...]:
    """The shares, each at most what `most` has of its device, in thousandths by index."""
    return tuple(
        DeviceShare(d.index, least) for d in devices if (least := min(d.milli, most.get(d.index, 0))) > 0
    )


def milli(devices: Iterable[DeviceShare]) -> int:
    """The sum of shares, in thousandths of a device."""
    return sum(d.milli for d in devices)


def available(
    wanted: Iterable[tuple[int, int]], devices: Sequence[DeviceShare], free: Sequence[int], shares: Sequence[int], gpus: int | None
) -> tuple[list[tuple[int, int]], tuple[DeviceShare, ...]]:
    """What can be had now, of amounts and of shares of certain devices, where `free` and `shares` are a row's. Of the column of all devices
    (`gpus`) so much stays free as is missing of the shares: what others have free on other devices is theirs to use."""
    had = shares_up_to(devices, dict(enumerate(shares))) if devices else ()
    missing = milli(devices) - milli(had)
    return [
        (c, least) for c, amount in wanted if (least := min(amount - missing if c == gpus else amount, free[c])) > 0
    ], had


def _filled(shape: tuple[int, int], value: int) -> np.ndarray:
    return np.full(shape, value, np.int64, order="F")


def _grown(old: np.ndarray, axis: int, fill: int) -> np.ndarray:
    """Twice as long along this axis."""
    rows, columns = old.shape
    new = _filled((rows * 2, columns) if axis == 0 else (rows, columns * 2), fill)
    new[:rows, :columns] = old
    return new


class Seats(msgspec.Struct, frozen=True):
    """Which node and which resource is where: what a table is made of anew, but for amounts. `nodes` by row, "" for one that is vacant; of
    `vacant` rows the last one is the next to be given away."""

    columns: list[str]
    nodes: list[NodeName]
    vacant: list[int]


class NodeTable:
    """Arrays `(nodes, resources) int64`: `allocatable`, `used` (pods), `reserved` (held, not yet consumed), `releasing`
    (the part of `used` whose pods are terminating), and `free = allocatable - used - reserved`. `device_free` is
    `(nodes, devices) int64` in thousandths, far below zero where there is none. `unsaid` `(nodes,) int64` counts devices that are taken without
    anybody saying which: in `device_free` those that are free otherwise are taken for them, so that what is left is right by count, and nothing
    more is known. `alive` marks rows that are nodes. Arrays are
    views of larger buffers; take them anew after adding a node or a column. `columns` has the column of each resource,
    `resources` its name by column. `structure` counts rows and columns that came or went; `dirty` lists rows whose amounts
    changed."""

    def __init__(self) -> None:
        self.rows: dict[NodeName, int] = {}
        self.names: list[NodeName] = []
        self.columns: dict[str, int] = {}
        self.resources: list[str] = []
        self.structure = 0
        self.dirty: Changes[int] = Changes()
        self._vacant: list[int] = []
        self._size = 0
        # A resource's column is one stretch of memory: most questions are about one resource of all nodes.
        self._buffers = {name: _filled((16, 8), 0) for name in ("allocatable", "used", "reserved", "releasing", "free")}
        self._devices = _filled((16, 8), NO_DEVICE)
        self._unsaid = np.zeros(16, np.int64)
        self._said: dict[int, np.ndarray] = {}
        """Of rows with some that nobody names, by device: what is free of it as far as charges that do name it go."""
        self._alive = np.zeros(16, bool)
        self._rank: np.ndarray | None = None
        self._views()

    # -- structure ---------------------------------------------------------------------------------------------------

    def column(self, resource: str) -> int:
        """The column of a resource; a new one is added, zero everywhere."""
        at = self.columns.get(resource)
        if at is None:
            at = self.columns[resource] = len(self.columns)
            self.resources.append(resource)
            self.structure += 1
            width = self._buffers["free"].shape[1]
            if at >= width:
                for name, old in self._buffers.items():
                    self._buffers[name] = _grown(old, axis=1, fill=0)
            self._views()
        return at

    def vector(self, requests: dict[str, int], devices: DeviceRequest | None) -> Vector:
        return Vector(tuple(sorted((self.column(r), min(v, MOST)) for r, v in requests.items() if v > 0)), devices)

    def set_node(self, name: NodeName, allocatable: dict[str, int], devices: int | Collection[int]) -> int:
        """Add a node, or change what it offers; what is charged to it stays. `devices`: how many, or which."""
        columns = {self.column(r): min(v, MOST) for r, v in allocatable.items()}
        row = self.rows.get(name)
        if row is None:
            row = self._new_row(name)
        total = self.allocatable[row]
        before = total.copy()
        total[:] = 0
        for column, value in columns.items():
            total[column] = value
        self.free[row] += total - before
        self._set_devices(row, range(min(devices, MAX_DEVICES)) if isinstance(devices, int) else devices)
        self.dirty.append(row)
        return row

    def remove_node(self, name: NodeName) -> None:
        """The row becomes vacant; everything charged to it is forgotten (the caller forgets its charges, too)."""
        row = self.rows.pop(name)
        self.structure += 1
        self.names[row] = NodeName("")
        for buffer in self._buffers.values():
            buffer[row] = 0
        self._devices[row] = NO_DEVICE
        self._unsaid[row] = 0
        self._said.pop(row, None)
        self._alive[row] = False
        self._vacant.append(row)
        self._rank = None

    @property
    def seats(self) -> Seats:
        return Seats(list(self.columns), self.names, self._vacant)

    @classmethod
    def of(cls, seats: Seats) -> Self:
        """A table without amounts: what is chosen by going over rows, and what counts them, must not depend on whether a state comes from a
        snapshot. Raises ValueError."""
        names, vacant, table = seats.nodes, seats.vacant, cls()
        seated = [name for name in names if name]
        if len({*seated}) < len(seated) or sorted(vacant) != [row for row, name in enumerate(names) if not name]:
            raise ValueError(f"{len(names)} rows with {len(vacant)} vacant ones do not go together")
        for resource in seats.columns:
            table.column(resource)
        left = {row: NodeName(f" {row}") for row in vacant}
        for row, name in enumerate(names):
            table._new_row(name or left[row])
        for name in left.values():
            table.remove_node(name)
        return table

    def _new_row(self, name: NodeName) -> int:
        self.structure += 1
        if self._vacant:
            row = self._vacant.pop()
            self.names[row] = name
        else:
            row = self._size
            self._size += 1
            self.names.append(name)
            if row >= len(self._alive):
                for key, old in self._buffers.items():
                    self._buffers[key] = _grown(old, axis=0, fill=0)
                self._devices = _grown(self._devices, axis=0, fill=NO_DEVICE)
                self._alive = np.concatenate([self._alive, np.zeros_like(self._alive)])
                self._unsaid = np.concatenate([self._unsaid, np.zeros_like(self._unsaid)])
        self.rows[name] = row
        self._alive[row] = True
        self._rank = None
        self._views()
        return row

    def _set_devices(self, row: int, devices: Collection[int]) -> None:
        there = sorted(index for index in devices if 0 <= index < MAX_DEVICES)
        self._widen(there[-1] + 1 if there else 0)
        shares = self._said.get(row, self._devices[row])
        had = shares > NO_DEVICE // 2
        has = np.zeros(len(shares), bool)
        has[there] = True
        shares[has & ~had] += WHOLE - NO_DEVICE
        shares[had & ~has] -= WHOLE - NO_DEVICE
        if row in self._said:
            self._spread(row)

    def _widen(self, width: int) -> None:
        while width > self._devices.shape[1]:
            more = self._devices.shape[1]
            self._devices = _grown(self._devices, axis=1, fill=NO_DEVICE)
            self._said = {row: np.append(said, np.full(more, NO_DEVICE, np.int64)) for row, said in self._said.items()}
            self._views()

    def _views(self) -> None:
        n, m = self._size, len(self.columns)
        self.allocatable = self._buffers["allocatable"][:n, :m]
        self.used = self._buffers["used"][:n, :m]
        self.reserved = self._buffers["reserved"][:n, :m]
        self.releasing = self._buffers["releasing"][:n, :m]
        self.free = self._buffers["free"][:n, :m]
        self.device_free = self._devices[:n]
        self.unsaid = self._unsaid[:n]
        self.alive = self._alive[:n]

    @property
    def rank(self) -> np.ndarray:
        """`(nodes,) int64`: position of each row's name in lexicographic order, the last tie-break of every choice."""
        if self._rank is None or len(self._rank) != self._size:
            self._rank = np.empty(self._size, np.int64)
            order = sorted(range(self._size), key=lambda r: self.names[r])
            self._rank[order] = np.arange(self._size)
        return self._rank

    def mask(self, names: Iterable[NodeName]) -> np.ndarray:
        """`(nodes,) bool`: the rows of these nodes, of those that there are."""
        mask = np.zeros(self._size, bool)
        mask[[self.rows[name] for name in names if name in self.rows]] = True
        return mask

    @property
    def device_counts(self) -> np.ndarray:
        """`(nodes,) int64`: how many devices each row has, whatever is free of them."""
        return (self.device_free > NO_DEVICE // 2).sum(axis=1)

    # -- charges -----------------------------------------------------------------------------------------------------

    def charge(self, row: int, v: Vector, devices: Sequence[DeviceShare], sign: int, charged_as: ChargedAs = ChargedAs.USED) -> None:
        """Add (`sign` 1) or take back (-1) a request; one for devices without any is counted in `unsaid`. Facts may over-commit a node: free can be
        negative."""
        self.dirty.append(row)
        # A few integers: one by one they cost less than arrays.
        taken, free = self.reserved if charged_as is ChargedAs.HELD else self.used, self.free
        for column, amount in v.items:
            change = amount * sign
            taken[row, column] += change
            free[row, column] -= change
            if charged_as is ChargedAs.RELEASING:
                self.releasing[row, column] += change
        if v.devices is not None and not devices:
            self._count_unsaid(row, v.devices.count * sign)
        for d in devices:
            self._charge_device(row, d, sign)

    def charge_many(
        self, rows: Sequence[int], vectors: Sequence[Vector], devices: Iterable[tuple[DeviceShare, ...]], sign: int, charged_as: ChargedAs = ChargedAs.USED
    ) -> None:
        """`charge(row, vector, devices, sign, charged_as)` for each, in a few array operations."""
        self.dirty.extend(rows)
        size, width = len(self._alive), len(self.columns)
        # What few shapes ask for is spread out, a row each, and taken from there.
        distinct = {v: i for i, v in enumerate(dict.fromkeys(vectors))}
        dense = []
        for v in distinct:
            asked = [0] * width
            for column, amount in v.items:
                asked[column] = amount * sign
            dense.append(asked)
        amounts = np.array(dense, np.int64)[[distinct[v] for v in vectors]].ravel()
        # A column is one stretch of memory.
        at = (np.array(rows, np.int64)[:, None] + np.arange(0, width * size, size)).ravel()
        taken = "reserved" if charged_as is ChargedAs.HELD else "used"
        for name in (taken, "releasing") if charged_as is ChargedAs.RELEASING else (taken,):
            np.add.at(self._buffers[name].reshape(-1, order="F"), at, amounts)
        np.subtract.at(self._buffers["free"].reshape(-1, order="F"), at, amounts)
        named: list[tuple[int, DeviceShare]] = []
        for row, v, some in zip(rows, vectors, devices, strict=True):
            if some:
                named += [(row, d) for d in some if 0 <= d.index < MAX_DEVICES]
            elif v.devices is not None:
                self._count_unsaid(row, v.devices.count * sign)
        self._charge_devices(named, sign)

    def _charge_devices(self, shares: Sequence[tuple[int, DeviceShare]], sign: int) -> None:
        """Of rows, and of indices that a device may have."""
        if self._said:
            for row, d in [one for one in shares if one[0] in self._said]:
                self._charge_device(row, d, sign)
            shares = [one for one in shares if one[0] not in self._said]
        if not shares:
            return
        self._widen(max([d.index for _, d in shares]) + 1)
        size = len(self._alive)
        at = np.array([row + d.index * size for row, d in shares])
        milli = np.array([d.milli for _, d in shares], np.int64)
        np.subtract.at(self._devices.reshape(-1, order="F"), at, np.minimum(np.maximum(milli, -MOST), MOST) * sign)

    def _charge_device(self, row: int, share: DeviceShare, sign: int) -> None:
        if not 0 <= share.index < MAX_DEVICES:
            return
        if share.index >= self._devices.shape[1]:
            self._widen(share.index + 1)
        said = self._said.get(row)
        shares = self._devices[row] if said is None else said
        shares[share.index] -= min(max(share.milli, -MOST), MOST) * sign
        if said is not None:
            self._spread(row)

    def _count_unsaid(self, row: int, change: int) -> None:
        if row not in self._said:
            self._said[row] = self._devices[row].copy()
        self._unsaid[row] += change
        self._spread(row)
        if not self._unsaid[row]:
            del self._said[row]

    def _spread(self, row: int) -> None:
        """Devices that somebody has who says not which are the first that are free as far as anybody says. It follows from what is charged now, so that
        it does not matter who came first. Where there are fewer, the column of all devices has the rest."""
        said = self._said[row]
        self._devices[row] = said
        self._devices[row, self._taken(said, int(self._unsaid[row]))] -= WHOLE

    @staticmethod
    def _taken(said: np.ndarray, count: int) -> list[int]:
        return np.flatnonzero(said == WHOLE)[: max(count, 0)].tolist()

    def named_free(self, row: int) -> list[int]:
        """`device_free` of a row, but for what is taken for those that nobody names: what is promised by name, and is not in use, may be any."""
        return self._said.get(row, self._devices[row]).tolist()

    def taken_unsaid(self, row: int) -> list[int]:
        """The devices that are taken for those that nobody names, in the order in which they were."""
        return self._taken(self._said[row], int(self._unsaid[row])) if row in self._said else []

    # -- questions ---------------------------------------------------------------------------------------------------

    def fits(self, v: Vector) -> np.ndarray:
        """`(nodes,) bool`: rows with capacity for the request, devices included."""
        fits = self.alive.copy()
        for column, amount in zip(v.columns, v.amounts, strict=True):
            fits &= self.free[:, column] >= amount
        if v.devices is not None:
            fits &= (self.device_free >= v.devices.milli).sum(axis=1) >= v.devices.count
        return fits

    def fits_row(self, row: int, v: Vector) -> bool:
        """`fits` for one row."""
        if not self.alive[row] or (self.free[row, v.columns] < v.amounts).any():
            return False
        return v.devices is None or int((self.device_free[row] >= v.devices.milli).sum()) >= v.devices.count

    def choose_devices(
        self, row: int, request: DeviceRequest | None, restored: dict[int, int] | None = None
    ) -> tuple[DeviceShare, ...] | None:
        """The devices for a request on this node (`device_choice.choose`).
        `restored` is given back first (share per index). None where they do not suffice; () where none are asked for."""
        if request is None:
            return ()
        free = self.device_free[row].tolist()
        for index, milli in (restored or {}).items():
            if 0 <= index < len(free):
                free[index] += milli
        return choose(free, request)
