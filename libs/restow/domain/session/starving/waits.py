"""Who waits since when: the pods whose jobs were created longer ago than a threshold, and when the next one joins them.

Kept in `state.memo` and refreshed by what has moved, so that asking costs nothing for what waits for less long. Only an
index: it may name too many, never too few, and who asks looks at each again.
"""

from heapq import heapify, heappop, heappush

from restow.contracts.ids import Millis, PodUid
from restow.domain.session.jobs import job_of
from restow.domain.state import ClusterState

SLACK = 1_000
"""Entries of pods that wait no longer which may be kept beyond as many as there are others."""


def created(state: ClusterState, pod: PodUid) -> Millis:
    """When its job was created: its PodGroup, or itself."""
    group = job_of(state, state.pods[pod])
    known = state.pod_groups.get(group) if group is not None else None
    return state.pods[pod].created if known is None else known.created


class Waits:
    """`threshold` in milliseconds. A job is over it strictly after `created + threshold`."""

    def __init__(self, state: ClusterState, threshold: int) -> None:
        self._state, self.threshold = state, threshold
        self._rebuild()

    @staticmethod
    def of(state: ClusterState, threshold: int) -> "Waits":
        """The index of this state, up to date."""
        known: Waits | None = state.memo.get("waits")
        if known is None or known.threshold != threshold:
            known = state.memo["waits"] = Waits(state, threshold)
        else:
            known._refresh()
        return known

    def over(self, now: Millis) -> list[PodUid]:
        """Pods of jobs that have waited for longer."""
        self._pass(now)
        waits = self._state.awaits_placement
        for pod in [pod for pod in self._over if not waits(pod)]:
            del self._over[pod], self._since[pod]
        return [pod for pod in self._over if self._since[pod] + self.threshold < now]

    def next(self, after: Millis) -> Millis | None:
        """When the first one that is not over the threshold at `after` will be; None where nothing waits."""
        self._pass(after)
        return Millis(self._heap[0][0] + self.threshold + 1) if self._heap else None

    def _pass(self, now: Millis) -> None:
        """Those at the top of the heap that are over the threshold, or do not wait any more, leave it."""
        while self._heap:
            since, pod = self._heap[0]
            current = self._since.get(pod) == since and pod not in self._over
            if current and not self._state.awaits_placement(pod):
                del self._since[pod]
            elif current and since + self.threshold < now:
                self._over[pod] = None
            elif current:
                return
            heappop(self._heap)

    def _rebuild(self) -> None:
        state = self._state
        self._position = state.moved.position
        self._over: dict[PodUid, None] = {}
        self._since = {pod: created(state, pod) for pod in (*state.queue, *state.parked, *state.nominations)}
        self._heap = [(since, pod) for pod, since in self._since.items()]
        heapify(self._heap)

    def _refresh(self) -> None:
        state = self._state
        moved = state.moved.since(self._position)
        waiting = len(state.queue) + len(state.parked)
        if moved is None or len(self._heap) > 2 * waiting + SLACK:
            return self._rebuild()
        self._position = state.moved.position
        for pod in moved:
            if isinstance(pod, tuple) or not state.awaits_placement(pod):
                continue
            since = created(state, pod)
            if self._since.get(pod) != since:
                self._over.pop(pod, None)
                self._since[pod] = since
                heappush(self._heap, (since, pod))
        return None
