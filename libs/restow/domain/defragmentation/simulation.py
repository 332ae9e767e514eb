"""The cluster as it would be with some pods elsewhere, judged by the scheduler's own rules: a session that decides nothing.

The one place that says whether a pod may be on a node. A pod that would move is judged as its successor will be, its *twin*: another
pod that is equal. What earlier plans have promised, and what is not held yet, is there already.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis, NodeName, PodUid
from restow.contracts.values import DeviceShare
from restow.domain.promised_slots import promised
from restow.domain.session.fitting import Fit
from restow.domain.session.framework import Filter
from restow.domain.session.holds import overlooking
from restow.domain.session.registry import open_session
from restow.domain.session.session import Session
from restow.domain.state import ClusterState


class Spot(NamedTuple):
    """Where a pod is, or would be."""

    row: int
    devices: tuple[DeviceShare, ...] = ()
    cores: tuple[int, ...] = ()
    volumes: tuple[Any, ...] = ()


class Simulation:
    """`arriving` are the rows that earlier plans move somebody to. Capacity is charged on `session.nodes`, by whoever asks."""

    def __init__(self, session: Session, twin: Callable[[PodObserved], PodObserved]) -> None:
        self.session, self.state, self._twin = session, session.state, twin
        self.heard = session.extensions.filters
        self.arriving: list[int] = []
        self._twins: dict[PodUid, PodObserved] = {}
        for promise in promised(self.state):
            session.nodes.take(promise.row, promise.vector, promise.devices)
            self.arriving.append(promise.row)
            if promise.pod in self.state.pods:
                self.enter(promise.pod, Spot(promise.row, promise.devices, promise.cores))

    def twin(self, uid: PodUid) -> PodObserved:
        """The successor, as rules see it."""
        known = self._twins.get(uid)
        if known is None:
            known = self._twins[uid] = self._twin(self.state.pods[uid].fact)
        return known

    # -- questions ---------------------------------------------------------------------------------------------------

    def rules(self, uid: PodUid) -> list[Filter]:
        """Those that depend on what runs and concern it now. Nodes that a rule keeps for others as a whole are no targets for anybody
        (RULES G-8): planners leave these out for all pods at once. Not so those that are kept from some pods alone."""
        if not self.heard:
            return []
        return [rule for rule in self.session.concerned(self.twin(uid)) if rule.of_capacity or rule.of_pods or not rule.for_others]

    def failing(self, uid: PodUid) -> Iterator[tuple[str, np.ndarray]]:
        """(reason, `(nodes,) bool` rows where it must not be)."""
        twin = self.twin(uid)
        for rule in self.rules(uid):
            yield from rule.failing(twin)

    def forbidden(self, uid: PodUid, row: int) -> bool:
        """Whether a rule that depends on what runs keeps it off this row."""
        return any(bool(rows[row]) for _, rows in self.failing(uid))

    def best(self, uid: PodUid, *rules: Filter, target: NodeName = NodeName("")) -> Spot | None:
        """Where the scheduler would put the successor, on the target if one is named: as if the pod itself were not there; None where nothing fits by the
        session's rules and these."""
        twin, session = replace(self.twin(uid), pinned_node=target), self.session
        with overlooking(session, uid):
            row = session.best_row(twin, [*session.concerned(twin), *rules])
            if row is None:
                return None
            fit = session.fit_at(twin, row)
        return Spot(row, fit.devices, fit.cores)

    def reasons(self, uid: PodUid, target: NodeName = NodeName("")) -> tuple[int, dict[str, int]]:
        """How many nodes there are, and how many each rule of the session removes, where `best` has found nothing."""
        with overlooking(self.session, uid):
            return self.session.reasons(replace(self.twin(uid), pinned_node=target))

    # -- who comes and goes, as rules see it -------------------------------------------------------------------------

    def enter(self, uid: PodUid, spot: Spot) -> None:
        """The successor is there."""
        if self.heard:
            twin = self.twin(uid)
            if spot.cores:
                self.session.placements[twin.pod] = Fit(spot.row, spot.devices, (), spot.cores)
            for rule in self.heard:
                rule.placed(twin, spot.row, spot.volumes)

    def leave(self, uid: PodUid, row: int) -> None:
        """Undo `enter`."""
        if self.heard:
            twin = self.twin(uid)
            for rule in self.heard:
                rule.removed(twin, row)
            self.session.placements.pop(twin.pod, None)

    def vacate(self, uid: PodUid) -> None:
        """The pod itself is not where the state has it."""
        for rule in self.heard:
            rule.vacated(uid)

    def restore(self, uid: PodUid) -> None:
        """Undo `vacate`."""
        for rule in self.heard:
            rule.restored(uid)


def equal(pod: PodObserved) -> PodObserved:
    """The twin of planners that move many pods."""
    return replace(pod, pod=PodUid(f"{pod.pod}~"), node=None)


@contextmanager
def simulated(state: ClusterState, time: Millis, twin: Callable[[PodObserved], PodObserved] = equal) -> Iterator[Simulation]:
    """The state is as before at the end."""
    session = open_session(state, time, 1)
    try:
        yield Simulation(session, twin)
    finally:
        session.close()
