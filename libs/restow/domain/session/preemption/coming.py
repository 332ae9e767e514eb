"""What nodes will have free besides what they have: of pods that are on their way out, less what is promised to others.

The board stays what is free now, so that nothing is placed on room that is not there yet.
"""

from collections.abc import Iterable

import numpy as np

from restow.contracts.ids import PodUid
from restow.contracts.values import DeviceShare
from restow.domain import accounts
from restow.domain.records import Room
from restow.domain.session.run import Session
from restow.domain.table import less

Items = Iterable[tuple[int, int]]


class Coming:
    """By row: amounts by column, and thousandths by device; below zero where promises wait for more than is leaving. What
    `NodeTable.releasing` has is not in `amounts`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.amounts: dict[int, dict[int, int]] = {}
        self.devices: dict[int, dict[int, int]] = {}
        self._dense = np.zeros((0, 0), np.int64)
        self.touched: list[int] = []
        """Rows where this session has chosen victims or held room, again for every change."""
        state = session.state
        for uid, nomination in state.nominations.items():
            if uid in session.placements or uid in session.ended:
                continue
            self._promised(state.table.rows[nomination.node], nomination.room)
        for node, waiting in state.waiting_on.items():
            for key in waiting:
                self._promised(state.table.rows[node], state.slots[key[0]][key[1]].room)
        for uid in state.victims_of:
            if self.goes(uid):
                charge = state.charges[uid]
                self.add(state.table.rows[charge.node], state.vectors[charge.shape].items, charge.devices, 1)

    def _promised(self, row: int, room: Room) -> None:
        """What the room still lacks goes there first."""
        self.add(row, less(room.wanted, room.held), [d for d in room.devices if d not in room.held_devices], -1)

    def add(self, row: int, items: Items, devices: Iterable[DeviceShare], sign: int) -> None:
        items = tuple(items)
        accounts.charge(self.amounts.setdefault(row, {}), items, sign)
        if len(self._dense):
            for column, amount in items:
                self._dense[row, column] += amount * sign
        for d in devices:
            shares = self.devices.setdefault(row, {})
            shares[d.index] = shares.get(d.index, 0) + d.milli * sign

    def dense(self) -> np.ndarray:
        """`(nodes, resources) int64`: `amounts`, all at once. Must not be written to."""
        if not len(self._dense):
            self._dense = np.zeros_like(self._session.state.table.free)
            for row, amounts in self.amounts.items():
                for column, amount in amounts.items():
                    self._dense[row, column] += amount
        return self._dense

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
        amounts = {c: a for c, a in enumerate(state.table.releasing[row].tolist()) if a}
        accounts.charge(amounts, self.amounts.get(row, {}).items())
        devices = dict(self.devices.get(row, {}))
        if amounts:
            for uid in state.on_node.get(self._session.name(row), ()):
                charge = state.charges[uid]
                for d in charge.devices if charge.releasing else ():
                    devices[d.index] = devices.get(d.index, 0) + d.milli
        return amounts, devices


def of(session: Session) -> Coming:
    """The session's, made when it is first asked for."""
    if session.coming is None:
        session.coming = Coming(session)
    return session.coming
