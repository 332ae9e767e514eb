"""Who may have to go, what is chosen, and what room that leaves."""

import msgspec

from restow.contracts import events as e
from restow.contracts.ids import PodUid, ReservationUid, ShapeId, SlotName
from restow.contracts.values import DeviceShare
from restow.domain.occupants import Who
from restow.domain.session.preemption.coming import Coming
from restow.domain.session.run import Session
from restow.domain.session.view import Fit


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


class Room:
    """A row as it will be, in plain integers, as far as a pod asks."""

    __slots__ = ("_devices", "_free", "_shares", "_vectors", "_wanted")

    def __init__(self, session: Session, coming: Coming, pod: e.PodObserved, row: int) -> None:
        v = session.state.vectors[pod.shape]
        free, shares = session.board.row(row)
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
