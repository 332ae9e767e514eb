"""What nodes will have free besides what they have: of pods that are on their way out, less what is promised to others; and what they would have if
somebody had to go. What is free now stays on the session's node snapshot, so that nothing is placed on capacity that is not there yet."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from restow.contracts import events as e
from restow.contracts.ids import PodUid, ReservationUid, ShapeId, SlotName
from restow.contracts.values import DeviceShare
from restow.domain.node_table import fewer, less
from restow.domain.occupants import Who
from restow.domain.records import Capacity
from restow.domain.session.fitting import Fit
from restow.domain.session.session import Session

Items = Iterable[tuple[int, int]]


class FutureIdle:
    """`amounts` `(nodes, resources) int64`, and by row thousandths by device; below zero where promises wait for more than is leaving. What
    `NodeTable.releasing` has is not in `amounts`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.amounts = np.zeros_like(session.state.table.free)
        self.devices: dict[int, dict[int, int]] = {}
        self.touched: list[int] = []
        """Rows where this session has chosen victims or held capacity, again for every change."""
        state = session.state
        for uid, nomination in state.nominations.items():
            if uid in session.placements or uid in session.ended:
                continue
            self._promised(state.table.rows[nomination.node], nomination.capacity)
        for node, waiting in state.waiting_on.items():
            for key in waiting:
                self._promised(state.table.rows[node], state.slots[key[0]][key[1]].capacity)
        for uid in state.victims_of:
            if self.goes(uid):
                charge = state.charges[uid]
                self._add(state.table.rows[charge.node], state.vectors[charge.shape].items, state.devices_of(uid), 1)

    def _promised(self, row: int, capacity: Capacity) -> None:
        """What the capacity still lacks goes there first."""
        self._add(row, less(capacity.wanted, capacity.held), fewer(capacity.devices, capacity.held_devices), -1)

    def add(self, row: int, items: Items, devices: Sequence[DeviceShare], sign: int) -> None:
        """As this session changes it."""
        self._add(row, items, devices, sign)
        self.touched.append(row)
        self._session.journal.note(self.add, row, items, devices, -sign)

    def _add(self, row: int, items: Items, devices: Sequence[DeviceShare], sign: int) -> None:
        for column, amount in items:
            self.amounts[row, column] += amount * sign
        for d in devices:
            shares = self.devices.setdefault(row, {})
            shares[d.index] = shares.get(d.index, 0) + d.milli * sign

    def goes(self, uid: PodUid) -> bool:
        """Whether a pod was chosen to go, and still is."""
        session, chosen = self._session, self._session.state.victims_of.get(uid)
        if uid in session.victims:
            return True
        return (
            chosen is not None
            and uid in session.state.charges
            and chosen.by not in session.ended
            and chosen.by not in session.placements
        )

    def going(self, row: int) -> list[PodUid]:
        """Who is on its way out on a row."""
        state = self._session.state
        name = self._session.name(row)
        return [uid for uid in state.on_node.get(name, ()) if state.charges[uid].releasing or self.goes(uid)]

    def at(self, row: int) -> tuple[dict[int, int], dict[int, int]]:
        """All that a row will have besides: by column, by device."""
        state = self._session.state
        releasing = state.table.releasing[row]
        amounts = {c: a for c, a in enumerate((releasing + self.amounts[row]).tolist()) if a}
        devices = dict(self.devices.get(row, {}))
        if releasing.any():
            for uid in state.on_node.get(self._session.name(row), ()):
                charge = state.charges[uid]
                for d in state.devices_of(uid) if charge.releasing else ():
                    devices[d.index] = devices.get(d.index, 0) + d.milli
        return amounts, devices


def future_idle(session: Session) -> FutureIdle:
    """The session's, made when it is first asked for."""
    if session.coming is None:
        session.coming = FutureIdle(session)
    return session.coming


class Unit(msgspec.Struct, frozen=True):
    """A pod that may have to go, or a hold that may have to be given up."""

    who: Who
    priority: int
    since: int
    order: int
    shape: ShapeId
    queue: str
    devices: tuple[DeviceShare, ...] = ()

    @property
    def importance(self) -> tuple[int, int, int, str]:
        """The smaller, the more important. Holds differ by their place, too."""
        return -self.priority, self.since, self.order, str(self.who)


class Choice(msgspec.Struct, frozen=True):
    """The pod goes there once these are gone."""

    fit: Fit
    victims: tuple[Unit, ...] = ()

    @property
    def pods(self) -> tuple[PodUid, ...]:
        return tuple(PodUid(unit.who) for unit in self.victims if isinstance(unit.who, str))

    @property
    def holds(self) -> tuple[tuple[ReservationUid, SlotName], ...]:
        return tuple(unit.who for unit in self.victims if not isinstance(unit.who, str))


class RowIdle:
    """A row as it would be, in plain integers, as far as a pod asks."""

    __slots__ = ("_devices", "_free", "_shares", "_vectors", "_wanted")

    def __init__(self, session: Session, coming: FutureIdle, pod: e.PodObserved, row: int) -> None:
        v = session.state.vectors[pod.shape]
        free, shares = session.nodes.row(row)
        amounts, devices = coming.at(row)
        self._vectors = session.state.vectors
        self._wanted, self._devices = v.items, v.devices
        self._free = {column: free[column] + amounts.get(column, 0) for column, _ in v.items}
        self._shares = [share + devices.get(index, 0) for index, share in enumerate(shares)] if v.devices else []

    def give(self, unit: Unit, sign: int) -> None:
        free = self._free
        for column, amount in self._vectors[unit.shape].items:
            if column in free:
                free[column] += amount * sign
        if self._shares:
            for d in unit.devices:
                if d.index < len(self._shares):
                    self._shares[d.index] += d.milli * sign

    def suffices(self) -> bool:
        if any(self._free[column] < amount for column, amount in self._wanted):
            return False
        asked = self._devices
        return asked is None or sum(share >= asked.milli for share in self._shares) >= asked.count
