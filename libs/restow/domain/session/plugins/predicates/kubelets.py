"""What kubelets would refuse: a share of a device that may be somebody's whom nobody names, and what they have just rejected."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis, ReservationUid
from restow.domain.evolve.rejections import DEVICES, closed_until, node_until, pause_until
from restow.domain.session.framework import Filter
from restow.domain.state import ClusterState
from restow.domain.unsaid_devices import BY_COUNT, is_share, rows


class SharesOfUnsaid(Filter):
    stage = "devices"

    def __init__(self, state: ClusterState) -> None:
        self._shapes = state.shapes
        self._rows = rows(state)
        self.active = bool(self._rows.any())

    def concerns(self, pod: PodObserved) -> bool:
        return is_share(self._shapes[pod.shape].devices)

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        return ((BY_COUNT, self._rows),)


class Rejected(Filter):
    """Nodes whose kubelet has rejected pods of this workload, and all of them while it pauses; and those where a device is somebody's whom
    nobody knows."""

    stage = "rejected"

    def __init__(self, state: ClusterState, now: Millis) -> None:
        self._state, self._now = state, now
        self.active = bool(state.rejections or state.refusing)
        self._known: dict[Hashable, Sequence[tuple[str, np.ndarray]]] = {}

    def concerns(self, pod: PodObserved) -> bool:
        return any(self.key(pod))

    def key(self, pod: PodObserved) -> tuple[str, bool]:
        state = self._state
        lineage = self._lineage(pod)
        asks = bool(state.refusing) and state.shapes[pod.shape].devices is not None
        return lineage if lineage in state.rejections else "", asks

    def _lineage(self, pod: PodObserved) -> str:
        """A migration's slot is for the pods of its lineage."""
        state = self._state
        if pod.pod in state.pods:
            return state.lineage(pod)
        record = state.reservations.get(ReservationUid(pod.pod.rpartition("/")[0]))
        migration = state.migrations.get(record.fact.migration) if record is not None else None  # type: ignore[call-overload]
        return migration.lineage if migration is not None else ""

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        key = self.key(pod)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._failing(*key)
        return found

    def _failing(self, lineage: str, asks: bool) -> list[tuple[str, np.ndarray]]:
        state, found = self._state, []
        known = state.rejections.get(lineage)
        if known is not None:
            nodes = [node for node, times in known.nodes.items() if node_until(times) > self._now]
            everywhere = pause_until(known) > self._now
            closed = state.table.alive.copy() if everywhere else state.table.mask(nodes)
            said = f"node(s) are left alone for a while by a workload whose pods were rejected {known.times} times ({known.reason})"
            found.append((said if everywhere else f"node(s) rejected pods of this workload ({known.reason})", closed))
        if asks:
            nodes = [node for node, times in state.refusing.items() if closed_until(times) > self._now]
            found.append((f"node(s) did not give a device that was free ({DEVICES})", state.table.mask(nodes)))
        return found


def deadline(state: ClusterState, after: Millis) -> Millis | None:
    """When the first of them may be asked again."""
    times = [closed_until(times) for times in state.refusing.values()]
    for known in state.rejections.values():
        times += [pause_until(known), *(node_until(times) for times in known.nodes.values())]
    return min((when for when in times if when > after), default=None)
