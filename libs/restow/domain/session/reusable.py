"""At most one reusable Reservation of a kind on a node (RULES 004-3): several would only split what owners could share."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import ReservationUid, ShapeId
from restow.domain.occupants import Who
from restow.domain.records import Reservation
from restow.domain.reservation.index import HoldIndex
from restow.domain.state import ClusterState

REASON = "node(s) already had a reusable reservation of this kind"

_Kind = tuple[int, ShapeId]


class OneOfAKind:
    """A rule about places of Reservations only: of one kind are those with equal owners in one namespace and an equal template."""

    stage, shrinks = "reusable", True

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.active = any(_reusable(state.reservations[uid]) for uid, _ in (*state.slot_queue, *state.resizes))
        self._placed: dict[Who, tuple[_Kind, int]] = {}

    def concerns(self, pod: PodObserved) -> bool:
        return self._record(pod) is not None

    def key(self, pod: PodObserved) -> Hashable:
        return self._kind(pod)

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        state, kind = self._state, self._kind(pod)
        known = HoldIndex.of(state).kind_of(_uid(pod))
        rows = np.zeros(len(state.table.names), bool)
        for uid, name in known.all if known is not None else ():
            slot = state.slots[uid][name]
            row = state.table.rows.get(slot.node)
            if uid != _uid(pod) and row is not None and slot.shape == kind[1] and _reusable(state.reservations[uid]):
                rows[row] = True
        for who, (other, row) in self._placed.items():
            if other == kind and who != pod.pod:
                rows[row] = True
        return ((REASON, rows),) if rows.any() else ()

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        if self.concerns(pod):
            self._placed[pod.pod] = self._kind(pod), row

    def removed(self, pod: PodObserved, row: int) -> None:
        self._placed.pop(pod.pod, None)

    def vacated(self, who: Who) -> None:
        """Another Reservation of the kind may still come back there."""

    def restored(self, who: Who) -> None:
        """As it was."""

    def close(self) -> None:
        self._placed.clear()

    def _record(self, pod: PodObserved) -> Reservation | None:
        record = self._state.reservations.get(_uid(pod))
        return record if record is not None and _reusable(record) else None

    def _kind(self, pod: PodObserved) -> _Kind:
        known = HoldIndex.of(self._state).kind_of(_uid(pod))
        return (known.number if known is not None else -1), pod.shape


def _uid(pod: PodObserved) -> ReservationUid:
    """Of the Reservation whose place this is (`holds.as_pod`); no pod has such a name."""
    return ReservationUid(pod.pod.rpartition("/")[0])


def _reusable(record: Reservation) -> bool:
    return record.spec is not None and not record.spec.allocate_once
