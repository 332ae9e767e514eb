"""Pods that another scheduler has nominated to a node: their victims are on the way out, and what these leave is theirs. Whoever came in between would be
the next victim, his successor the one after that, and so on. So they count as kube-scheduler counts them: for pods of equal or lower priority, beside what runs there.

So do our own guards (`restow.domain.beside`), but not for what a plan has promised: a slot of a move may be the one that the guard is there for, or be the next to
get what that node's pods leave."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import ReservationUid
from restow.domain.session.framework import Filter
from restow.domain.state import ClusterState

KEPT = "node(s) had no capacity left beside pods that another scheduler nominated"


class _Promised(NamedTuple):
    """By row `(rows,)` what is promised there: `(rows, resources) int64`, and how many devices."""

    rows: np.ndarray
    amounts: np.ndarray
    devices: np.ndarray


class Nominees(Filter):
    stage, of_capacity, for_others = "nominated", True, True

    def __init__(self, state: ClusterState) -> None:
        self._state, self._table = state, state.table
        self.active = bool(state.nominees)
        self._promised: dict[tuple[int, bool], _Promised] = {}
        self._highest = max((self._priority(uid) for uid in state.nominees), default=0)

    def _priority(self, uid: str) -> int:
        state = self._state
        return state.shapes[state.pods[uid].fact.shape].priority  # type: ignore[index]

    def concerns(self, pod: PodObserved) -> bool:
        return self.active and self._state.shapes[pod.shape].priority <= self._highest

    def key(self, pod: PodObserved) -> Hashable:
        return self._minds_guards(pod)

    def _minds_guards(self, pod: PodObserved) -> bool:
        """Not a slot that a plan has promised: of a move, or for who waits for its moves. (A slot is asked about as a pod that is not known.)"""
        state = self._state
        if pod.pod in state.pods:
            return True
        record = state.reservations.get(ReservationUid(pod.pod.partition("/")[0]))
        return record is not None and not record.fact.migration and f"{record.fact.namespace}/{record.fact.name}" not in state.demand_slots

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        state, table = self._state, self._table
        promised = self._by_row(state.shapes[pod.shape].priority, self._minds_guards(pod))
        if not len(promised.rows):
            return ()
        v, free = state.vectors[pod.shape], table.free[promised.rows]
        full = np.zeros(len(promised.rows), bool)
        for column, amount in v.items:
            full |= (promised.amounts[:, column] > 0) & (free[:, column] - promised.amounts[:, column] < amount)
        if v.devices is not None:
            able = (table.device_free[promised.rows] >= v.devices.milli).sum(axis=1)
            full |= (promised.devices > 0) & (able - promised.devices < v.devices.count)
        failing = np.zeros(len(table.names), bool)
        failing[promised.rows[full]] = True
        return ((KEPT, failing),)

    def _by_row(self, priority: int, guards: bool) -> _Promised:
        """Of those with this priority or more, with our guards or without them."""
        known = self._promised.get((priority, guards))
        if known is not None:
            return known
        state, table = self._state, self._table
        amounts: dict[int, np.ndarray] = {}
        devices: dict[int, int] = {}
        for uid, node in state.nominees.items():
            row = table.rows.get(node)
            if row is None or self._priority(uid) < priority or (not guards and uid in state.placeholders):
                continue
            v = state.vectors[state.pods[uid].fact.shape]
            found = amounts.setdefault(row, np.zeros(len(table.columns), np.int64))
            for column, amount in v.items:
                found[column] += amount
            devices[row] = devices.get(row, 0) + (v.devices.count if v.devices is not None else 0)
        rows = list(amounts)
        known = self._promised[priority, guards] = _Promised(
            np.array(rows, np.int64), np.array([amounts[row] for row in rows], np.int64).reshape(len(rows), len(table.columns)), np.array([devices[row] for row in rows], np.int64)
        )
        return known
