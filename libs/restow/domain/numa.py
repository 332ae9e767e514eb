"""NUMA alignment: which nodes can give a Guaranteed pod its CPUs, memory and devices from one NUMA zone.

As the filter of scheduler-plugins' NodeResourceTopologyMatch: only nodes whose kubelet has the policy `single-numa-node`
filter, with scope `container` each container alone must fit one zone (containers after one another, so that they do not
count on the same CPUs), with scope `pod` the whole pod. A resource that no zone reports is not aligned if it may be the
node's as a whole (ephemeral storage, extended resources), and keeps the pod off if not. Two things are nearer to the
kubelet than to the plugin: CPUs are aligned only where a container asks for whole cores, for others have no CPUs of their
own; and of pods that are not Guaranteed nothing is aligned, their devices neither.

Which zones are in use is not observed: `available` of a NodeResourceTopology lags behind. It is worked out: on each node its
Guaranteed pods and holds, in the order in which the log saw them, take what they ask for from the lowest zone that fits, as
the kubelet does. What fits no zone (it was there before the policy was) takes what is left, zone by zone. So the result
follows from the state alone. A pod that the kubelet has placed otherwise, because others were there then, may make it differ
from a node's truth: then the kubelet rejects a pod (TopologyAffinityError), and its successor is placed anew.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from restow.contracts.events import NumaObserved, PodObserved
from restow.contracts.ids import PodUid, ReservationUid, ShapeId, SlotName
from restow.contracts.values import PodShape
from restow.domain import resources as r
from restow.domain.occupancy import Occupancy
from restow.domain.occupants import Who, held_slot
from restow.domain.quantity import CPU
from restow.domain.records import Capacity, Items

INIT_CONTAINER = "cannot align init container"
CONTAINER = "cannot align container"
POD = "cannot align pod"
REASONS = (INIT_CONTAINER, CONTAINER, POD)

GUARANTEED = "Guaranteed"
SINGLE = "single-numa-node"
SCOPE_POD = "pod"
KEPT = 4096
"""Shapes whose answers are kept."""
_CORE = 1000
_ABSENT = -1
"""Free amount of a resource that a zone does not report."""
_TO_COME = 1 << 63
"""The place of who is not in the log yet: after all that are."""

Amounts = dict[str, int]


class Demands(msgspec.Struct, frozen=True):
    """What is aligned of a shape. `initial`: containers that end before the `lasting` ones start."""

    initial: tuple[Amounts, ...] = ()
    lasting: tuple[Amounts, ...] = ()
    pod: Amounts = {}


def demands(shape: PodShape) -> Demands:
    """Nothing for a shape that is not Guaranteed."""
    if shape.qos != GUARANTEED:
        return Demands()
    initial = tuple(_aligned(c.requests) for c in shape.containers if c.init)
    lasting = tuple(_aligned(c.requests) for c in shape.containers if not c.init)
    pod = {name: amount for name, amount in shape.requests.items() if name not in (CPU, r.PODS) and amount > 0}
    cores = max(sum(c.get(CPU, 0) for c in lasting), *(c.get(CPU, 0) for c in initial), 0)
    return Demands(initial, lasting, pod | ({CPU: cores} if cores else {}))


def _aligned(requests: Amounts) -> Amounts:
    return {name: amount for name, amount in requests.items() if amount > 0 and (name != CPU or amount % _CORE == 0)}


def may_be_the_nodes(resource: str) -> bool:
    """Whether a resource that no zone reports is the node's as a whole (scheduler-plugins, `isHostLevelResource`)."""
    return resource in (r.EPHEMERAL_STORAGE, "storage") or ("/" in resource and "kubernetes.io/" not in resource)


class Occupant(NamedTuple):
    """Who is on a row, as pods of the shape are. `left`, by column, where a slot or a nominee has less than that for itself."""

    row: int
    shape: ShapeId
    left: Items | None = None


class Numa(Occupancy[Occupant]):
    """`add`, `remove` and `close` as those of `Volumes`. Arrays are `(nodes, zones, resources) int64`; a node with other rules than
    `single-numa-node` is in none of them."""

    # -- questions ---------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no node's kubelet insists on anything."""
        return not self._single

    def concerns(self, shape: ShapeId) -> bool:
        """Whether any of this matters for pods of the shape."""
        return bool(self._single) and self._state.shapes[shape].qos == GUARANTEED

    def filter(self, shape: ShapeId) -> list[tuple[str, np.ndarray]]:
        """Reason and `(nodes,) bool` rows that fail by it; rules that no row fails by are left out. A row fails by one."""
        self._settle()
        codes = self._codes(shape)
        return [(reason, rows) for code, reason in enumerate(REASONS, 1) if (rows := codes == code).any()]

    def _codes(self, shape: ShapeId) -> np.ndarray:
        """Per row 0, or the number of the reason in `REASONS`, `(nodes,) int8`. Kept by shape: only rows that have changed are
        looked at again."""
        size = len(self._state.table.names)
        codes, seen = self._known.get(shape, (np.zeros(size, np.int8), -1))
        changed = self._changed.since(seen) if seen >= 0 else None
        looked_at = np.array(sorted(self._single if changed is None else set(changed)), np.int64)
        if len(codes) < size:
            codes = np.concatenate([codes, np.zeros(size - len(codes), np.int8)])
        if changed is None:
            codes[:] = 0
        if looked_at.size:
            codes[looked_at] = 0
            rows = looked_at[[row in self._single for row in looked_at.tolist()]]
            wanted = self._wants(shape)
            whole = self._whole[rows]
            codes[rows[~whole]] = self._by_container(rows[~whole], wanted)
            codes[rows[whole]] = np.where(self._fitting(self._free[rows[whole]], wanted.pod).any(axis=1), 0, 3)
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[shape] = codes, self._changed.position
        return codes

    def _by_container(self, rows: np.ndarray, wanted: Demands) -> np.ndarray:
        """The codes of these rows."""
        free = self._free[rows]
        bad_init = np.zeros(len(rows), bool)
        for amounts in wanted.initial:
            bad_init |= ~self._fitting(free, amounts).any(axis=1)
        bad = np.zeros(len(rows), bool)
        every = np.arange(len(rows))
        for amounts in wanted.lasting:
            fitting = self._fitting(free, amounts)
            bad |= ~fitting.any(axis=1)
            lowest = fitting.argmax(axis=1)
            for name, amount in amounts.items():
                column = self._columns.get(name)
                if column is not None:
                    there = free[every, lowest, column] != _ABSENT
                    free[every[there], lowest[there], column] -= amount
        return np.where(bad_init, 1, np.where(bad, 2, 0))

    def _fitting(self, free: np.ndarray, amounts: Amounts) -> np.ndarray:
        """`(rows, zones) bool`: zones with capacity for all of it; zones that a node does not have never fit."""
        fitting = free[:, :, 0] != _ABSENT
        for name, amount in amounts.items():
            column = self._columns.get(name)
            if column is None:
                if not may_be_the_nodes(name):
                    fitting = np.zeros_like(fitting)
                continue
            fits = free[:, :, column] >= amount
            if may_be_the_nodes(name):
                fits |= (free[:, :, column] == _ABSENT).all(axis=1)[:, None]
            fitting = fitting & fits
        return fitting

    # -- occupants ---------------------------------------------------------------------------------------------------

    def add(self, uid: Who, row: int, pod: PodObserved) -> None:
        """A pod is on this row, as far as this session goes; anew where `remove` has taken it away."""
        self._tentative[uid] = None
        nomination, left = self._state.nominations.get(PodUid(uid)) if isinstance(uid, str) else None, None
        if nomination is not None and self._state.table.rows[nomination.node] == row:
            left = self._short_of(pod.shape, nomination.capacity)
        self._set(uid, Occupant(row, pod.shape, left) if self._state.shapes[pod.shape].qos == GUARANTEED else None)

    def remove(self, uid: Who) -> None:
        """An occupant is gone, as far as this session goes: one that `add` named, or a victim."""
        self._tentative[uid] = None
        self._set(uid, None)

    def restore(self, uid: Who) -> None:
        """An occupant is again what the state says."""
        self._set(uid, self._occupant(uid))

    def _occupant(self, key: Who) -> Occupant | None:
        """What is charged and Guaranteed."""
        state, left = self._state, None
        if isinstance(key, tuple):
            slot = held_slot(state, key)
            if slot is None:
                return None
            node, shape = slot.node, slot.shape
            left = self._short_of(shape, slot.capacity)
        else:
            charge = state.charges.get(key)
            if charge is None:
                return None
            node, shape = charge.node, charge.shape
        return Occupant(state.table.rows[node], shape, left) if state.shapes[shape].qos == GUARANTEED else None

    def _short_of(self, shape: ShapeId, capacity: Capacity) -> Items | None:
        """What is held now, where that is not all of it: what a slot or a nominee waits for is in nobody's zone but that of whoever has it."""
        return capacity.held if capacity.held != self._state.vectors[shape].items else None

    # -- keeping up ----------------------------------------------------------------------------------------------------

    def _empty(self) -> None:
        self._single: dict[int, NumaObserved] = {}
        self._demands: dict[ShapeId, Demands] = {}
        self._known: dict[ShapeId, tuple[np.ndarray, int]] = {}
        self._columns: dict[str, int] = {"": 0}
        self._free = np.full((0, 1, 1), _ABSENT, np.int64)
        self._whole = np.zeros(0, bool)

    def _observe(self, rows: Iterable[int]) -> None:
        for row in rows:
            name = self._state.table.names[row]
            fact = self._state.numa.get(name) if name else None
            fact = fact if fact is not None and fact.policy == SINGLE and fact.zones else None
            if self._single.get(row) is fact:
                continue
            if fact is None:
                del self._single[row]
            else:
                self._single[row] = fact
            self._stale.add(row)

    def _settle(self) -> None:
        """Rows whose zones or occupants have changed are worked out again."""
        zones = [(row, self._single[row], self._zones(row)) for row in sorted(self._stale & self._single.keys())]
        self._settled()
        self._widen(zones)
        for row, fact, free in zones:
            self._whole[row] = fact.scope == SCOPE_POD
            self._free[row] = _ABSENT
            for at, amounts in enumerate(free):
                # Column 0 says that there is such a zone.
                self._free[row, at, 0] = 0
                for name, amount in amounts.items():
                    # Over-commitment leaves nothing, and is no absence.
                    self._free[row, at, self._columns[name]] = max(amount, 0)

    def _zones(self, row: int) -> list[Amounts]:
        """What is free in each zone, in the order of their numbers."""
        fact = self._single[row]
        free = [r.in_columns(z.allocatable, _gpu_milli(z.allocatable)) for z in fact.zones]
        whole = fact.scope == SCOPE_POD
        occupants = self._on.get(row, {})
        for key in sorted(occupants, key=self._turn):
            for amounts in self._taken_by(occupants[key], whole):
                _take(free, amounts)
        return free

    def _taken_by(self, occupant: Occupant, whole: bool) -> Sequence[Amounts]:
        """What each container takes, or the pod as a whole; of a slot that owners have taken from, what it still has."""
        wanted = self._wants(occupant.shape)
        if occupant.left is None:
            return (wanted.pod,) if whole else wanted.lasting
        resources = self._state.table.resources
        left = {resources[column]: amount for column, amount in occupant.left}
        return ({name: least for name, amount in wanted.pod.items() if (least := min(amount, left.get(name, 0)))},)

    def _wants(self, shape: ShapeId) -> Demands:
        """Worked out once a shape: the occupants of a row are gone through whenever one of them comes or goes."""
        found = self._demands.get(shape)
        if found is None:
            found = self._demands[shape] = demands(self._state.shapes[shape])
        return found

    def _turn(self, key: Who) -> tuple[int, str]:
        """In the order in which the log saw them; the slots of a Reservation by name. Last those that it has not seen yet: whoever plans thinks of them, by name, so
        that it does not matter who came and went before."""
        if not isinstance(key, tuple):
            pod = self._state.pods.get(key)
            if pod is not None:
                return pod.order, ""
            # A slot that this session holds comes as a pod (`occupants.as_pod`).
            uid, _, slot = key.rpartition("/")
            if ReservationUid(uid) not in self._state.reservations:
                return _TO_COME, key
            key = ReservationUid(uid), SlotName(slot)
        return self._state.reservations[key[0]].order, key[1]

    def _widen(self, zones: Sequence[tuple[int, NumaObserved, list[Amounts]]]) -> None:
        """Capacity in the arrays for these, and for every row."""
        for _, _, free in zones:
            for name in {name for amounts in free for name in amounts}:
                self._columns.setdefault(name, len(self._columns))
        size = len(self._state.table.names)
        most = max((len(free) for _, _, free in zones), default=0)
        old = self._free
        shape = (size, max(old.shape[1], most), len(self._columns))
        if shape != old.shape:
            self._free = np.full(shape, _ABSENT, np.int64)
            self._free[: old.shape[0], : old.shape[1], : old.shape[2]] = old
            self._whole = np.concatenate([self._whole, np.zeros(size - len(self._whole), bool)])

    def image(self) -> tuple:
        """All that is worked out, to compare with another index."""
        self._settle()
        return self._at, {row: (self._zones(row), bool(self._whole[row])) for row in self._single}


class EmptyNuma(Numa):
    """As if nothing ran anywhere: which nodes will never do (seed 002: whether a node suffices one day)."""

    def _occupant(self, key: Who) -> Occupant | None:
        return None


def _gpu_milli(allocatable: Amounts) -> int:
    return allocatable.get(r.GPU_MILLI, 0) or r.node_devices(allocatable) * r.WHOLE


def _take(free: list[Amounts], amounts: Amounts) -> None:
    """From the lowest zone that fits; what fits none takes what is left, zone by zone."""
    reported = {name for zone in free for name in zone}
    asked = {name: amount for name, amount in amounts.items() if name in reported}
    for zone in free:
        if all(zone.get(name, _ABSENT) >= amount for name, amount in asked.items()):
            for name, amount in asked.items():
                zone[name] -= amount
            return
    for name, amount in asked.items():
        for zone in free:
            taken = min(max(zone.get(name, 0), 0), amount)
            if taken:
                zone[name] -= taken
                amount -= taken
