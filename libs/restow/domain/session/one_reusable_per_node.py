"""At most one reusable Reservation of a class on a node (RULES 004-3): several would only split what owners could share."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import ReservationUid, ShapeId
from restow.domain.records import Reservation
from restow.domain.reservation.allocate_once import is_shared
from restow.domain.reservation.hold_index import HoldIndex
from restow.domain.session.framework import Filter
from restow.domain.state import ClusterState

REASON = "node(s) already had an equal reusable reservation"

_Class = tuple[int, ShapeId]


class _There:
    """Where Reservations of one class are: how many `(nodes,) int64` on each row, and which of them are on which rows."""

    __slots__ = ("counts", "rows")

    def __init__(self, nodes: int) -> None:
        self.counts = np.zeros(nodes, np.int64)
        self.rows: dict[ReservationUid, list[int]] = {}

    def add(self, uid: ReservationUid, row: int) -> None:
        self.counts[row] += 1
        self.rows.setdefault(uid, []).append(row)

    def remove(self, uid: ReservationUid, row: int) -> None:
        self.counts[row] -= 1
        self.rows[uid].remove(row)

    def of_others(self, uid: ReservationUid) -> np.ndarray:
        """`(nodes,) bool`: rows with another one than this."""
        found = self.counts > 0
        for row in self.rows.get(uid, ()):
            found[row] = self.counts[row] > 1
        return found


class OneReusablePerNode(Filter):
    """A rule about slots of Reservations only: of one class are those with equal owners in one namespace and an equal template.
    Of one that is vacated another may still come back there."""

    stage = "reusable"

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.active = any(is_shared(state.reservations[uid]) for uid, _ in (*state.slot_queue, *state.resizes))
        self._there: dict[_Class, _There] = {}
        """By class, once it has been asked for; with what this session has placed."""

    def concerns(self, pod: PodObserved) -> bool:
        return self._record(pod) is not None

    def key(self, pod: PodObserved) -> Hashable:
        return self._class(pod)

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        rows = self._of(pod).of_others(_uid(pod))
        return ((REASON, rows),) if rows.any() else ()

    def _of(self, pod: PodObserved) -> _There:
        """Of the class of this slot."""
        state, reservation_class = self._state, self._class(pod)
        there = self._there.get(reservation_class)
        if there is not None:
            return there
        there = self._there[reservation_class] = _There(len(state.table.names))
        known = HoldIndex.of(state).class_of(_uid(pod))
        for uid, name in known.all if known is not None else ():
            slot = state.slots[uid][name]
            row = state.table.rows.get(slot.node)
            if row is not None and slot.shape == reservation_class[1] and is_shared(state.reservations[uid]):
                there.add(uid, row)
        return there

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        if self.concerns(pod):
            self._of(pod).add(_uid(pod), row)

    def removed(self, pod: PodObserved, row: int) -> None:
        if self.concerns(pod):
            self._of(pod).remove(_uid(pod), row)

    def close(self) -> None:
        self._there.clear()

    def _record(self, pod: PodObserved) -> Reservation | None:
        record = self._state.reservations.get(_uid(pod))
        return record if record is not None and is_shared(record) else None

    def _class(self, pod: PodObserved) -> _Class:
        known = HoldIndex.of(self._state).class_of(_uid(pod))
        return (known.number if known is not None else -1), pod.shape


def _uid(pod: PodObserved) -> ReservationUid:
    """Of the Reservation whose slot this is (`occupants.as_pod`); no pod has such a name."""
    return ReservationUid(pod.pod.rpartition("/")[0])
