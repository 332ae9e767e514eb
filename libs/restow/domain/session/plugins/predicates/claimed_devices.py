"""Where a slot of a pod with a ResourceClaim finds a device like the one that the pod has (`restow.domain.held_by_claim`). Its scheduler gives it to the placeholder;
this keeps slots from nodes that have none for them, slots that still wait for theirs counted."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName, PodUid, ReservationUid, SlotName
from restow.domain.held_by_claim import Wanted, has_one, owed_on, wanted, wanted_in
from restow.domain.occupants import Who, held_slot, stands_for
from restow.domain.session.framework import Filter
from restow.domain.state import ClusterState

NONE_FREE = "node(s) had too few free devices like those that its claim has"


class ClaimedDevices(Filter):
    stage = "devices"

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.active = bool(state.resource_claims)
        self._placed: dict[int, dict[PodUid, Wanted]] = {}
        """By row: what the session gives to slots, or a planner to moves."""
        self._aside: dict[Who, None] = {}
        self._known: dict[Wanted, np.ndarray] = {}

    def concerns(self, pod: PodObserved) -> bool:
        return bool(self._state.shapes[pod.shape].resource_claims)

    def key(self, pod: PodObserved) -> Hashable:
        return self._wanted(pod)

    def _wanted(self, pod: PodObserved) -> Wanted | None:
        """`pod`: a slot, or the twin of a pod that would move."""
        state, (head, _, tail) = self._state, pod.pod.partition("/")
        if not self.concerns(pod):
            return None
        if (slot := (ReservationUid(head), SlotName(tail)))[0] in state.reservations:
            return wanted_in(state, slot)
        return wanted(state, stands_for(pod.pod))

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        one = self._wanted(pod)
        if one is None:
            return ()
        known = self._known.get(one)
        if known is None:
            table = self._state.table
            known = self._known[one] = ~table.mask(name for name, row in table.rows.items() if has_one(self._state, name, one, self._before(name, row)))
        if (home := self._home(pod)) is not None and known[home]:
            # Where the pod is it has its device: nobody is given what somebody has.
            known = known.copy()
            known[home] = False
        return ((NONE_FREE, known),)

    def _home(self, pod: PodObserved) -> int | None:
        charge = self._state.charges.get(stands_for(pod.pod))
        return None if charge is None else self._state.table.rows.get(charge.node)

    def _before(self, node: NodeName, row: int) -> list[Wanted]:
        return [*(one for key, one in owed_on(self._state, node) if key not in self._aside), *self._placed.get(row, {}).values()]

    def _changed(self, row: int) -> None:
        """Of the others all is as it was."""
        node = NodeName(self._state.table.names[row])
        for one, known in self._known.items():
            changed = known.copy()
            changed[row] = not has_one(self._state, node, one, self._before(node, row))
            self._known[one] = changed

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        if (one := self._wanted(pod)) is not None:
            self._placed.setdefault(row, {})[pod.pod] = one
            self._changed(row)

    def removed(self, pod: PodObserved, row: int) -> None:
        if self._placed.get(row, {}).pop(pod.pod, None) is not None:
            self._changed(row)

    def vacated(self, who: Who) -> None:
        if isinstance(who, tuple) and (slot := held_slot(self._state, who)) is not None and self._state.shapes[slot.shape].resource_claims:
            self._aside[who] = None
            self._changed(self._state.table.rows[slot.node])

    def restored(self, who: Who) -> None:
        if isinstance(who, tuple) and who in self._aside and (slot := held_slot(self._state, who)) is not None:
            del self._aside[who]
            self._changed(self._state.table.rows[slot.node])
