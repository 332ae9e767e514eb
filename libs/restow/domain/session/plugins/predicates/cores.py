"""CPUs of their own, as a filter of a session and as what chooses them (Koordinator's NodeNUMAResource)."""

from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from restow.contracts.events import PodObserved
from restow.domain.cores import Cores, EmptyCores
from restow.domain.occupants import Who
from restow.domain.session.framework import Filter
from restow.domain.session.session import Session
from restow.domain.state import ClusterState


class OwnCores(Filter):
    """Nodes that cannot give a pod as many CPUs of its own."""

    stage, of_capacity = "cores", True

    def __init__(self, session: Session) -> None:
        self._session = session
        self._state = session.state
        self._shapes = session.state.shapes
        self._cores = Cores.of(session.state)

    def concerns(self, pod: PodObserved) -> bool:
        return self._shapes[pod.shape].cores is not None

    def key(self, pod: PodObserved) -> Hashable:
        # What is kept for a pod is there for it alone.
        return pod.pod if pod.pod in self._state.nominations else ()

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        request = self._shapes[pod.shape].cores
        return self._cores.filter(request, pod.pod) if request is not None else ()

    def never(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        request = self._shapes[pod.shape].cores
        return EmptyCores.of(self._state).filter(request) if request is not None else ()

    def choose(self, pod: PodObserved, row: int, preferred: tuple[int, ...] = ()) -> tuple[int, ...] | None:
        """CPUs for a pod on a row, as the session is now: of those that a hold has (`preferred`) first. () for pods that want
        none, None where they cannot be had."""
        request = self._shapes[pod.shape].cores
        return () if request is None else self._cores.choose(request, row, preferred, pod.pod)

    def free(self, row: int) -> tuple[int, ...]:
        """CPUs of a row that are nobody's, as the session is now."""
        return self._cores.free(row)

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        """What is kept for a nomination of the state counts already."""
        request, session = self._shapes[pod.shape].cores, self._session
        if request is not None:
            fit = session.placements.get(pod.pod) or session.nominated.get(pod.pod)
            if fit is not None:
                self._cores.add(pod.pod, row, fit.cores, request.exclusive)

    def removed(self, pod: PodObserved, row: int) -> None:
        self._cores.remove(pod.pod)

    def vacated(self, who: Who) -> None:
        self._cores.vacate(who)

    def restored(self, who: Who) -> None:
        self._cores.restore(who)

    def close(self) -> None:
        self._cores.close()


class _Seen(NamedTuple):
    """So many shapes were looked at, and whether one of them wants CPUs of its own."""

    shapes: int
    found: bool


def asked_for(state: ClusterState) -> bool:
    """Whether any pod that was ever seen wants CPUs of its own. Each shape is looked at once: where some are forgotten, so is this."""
    known = state.memo.find(_Seen) or _Seen(0, False)
    if not known.found and len(state.shapes) > known.shapes:
        found = any(shape.cores is not None for shape in islice(state.shapes.values(), known.shapes, None))
        known = state.memo.keep(_Seen(len(state.shapes), found))
    return known.found
