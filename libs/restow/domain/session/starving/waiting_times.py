"""Who waits since when: the pods whose jobs were created longer ago than a threshold, and when the next one joins them.

Kept in `state.memo` and refreshed by what has moved, so that neither those that wait for less long nor the many that are
alike cost anything when it is asked. It never names too few; who asks looks at each again.
"""

from bisect import insort
from collections.abc import Container, Hashable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from restow.contracts.ids import Millis, PodUid
from restow.domain.session.jobs import job_of
from restow.domain.state import ClusterState

SLACK = 1_000
"""Entries of pods that wait no longer which may be kept beyond as many as there are others."""


class Entry(NamedTuple):
    """`since`: when the job was created, a PodGroup or the pod itself. `turn` and `equivalence_class`: as the state had them."""

    since: Millis
    turn: int
    equivalence_class: Hashable


class Waits:
    """`threshold` in milliseconds. A job is over it strictly after `since + threshold`. `_over` has the pods that are, by class,
    in their turns."""

    def __init__(self, state: ClusterState, threshold: int) -> None:
        self._state, self.threshold = state, threshold
        self._rebuild()

    @staticmethod
    def of(state: ClusterState, threshold: int) -> "Waits":
        """The index of this state, up to date."""
        known = state.memo.find(Waits)
        if known is None or known.threshold != threshold:
            return state.memo.keep(Waits(state, threshold))
        known._refresh()
        return known

    def first(self, now: Millis, most: int, besides: Container[PodUid]) -> list[list[PodUid]]:
        """Of each class of pods over the threshold, one for a gang, else as many as are named besides and `most` more."""
        self._pass(now)
        found: list[list[PodUid]] = []
        for equivalence_class, several in list(self._over.items()):
            pods: list[PodUid] = []
            left, at = most, 0
            while at < len(several) and left:
                turn, pod = several[at]
                entry = self._entries.get(pod)
                if entry is None or (entry.turn, entry.equivalence_class) != (turn, equivalence_class) or not self._state.awaits_placement(pod):
                    del several[at]
                    if entry is not None and (entry.turn, entry.equivalence_class) == (turn, equivalence_class):
                        del self._entries[pod]
                    continue
                at += 1
                if entry.since + self.threshold < now:
                    pods.append(pod)
                    left -= pod not in besides
                    if not _is_single(equivalence_class):
                        break
            if pods:
                found.append(pods)
            if not several:
                del self._over[equivalence_class]
        return found

    def next(self, after: Millis) -> Millis | None:
        """When the first one that is not over the threshold at `after` will be; None where nothing waits."""
        self._pass(after)
        return Millis(self._heap[0][0] + self.threshold + 1) if self._heap else None

    def _entry(self, pod: PodUid) -> Entry:
        state, fact = self._state, self._state.pods[pod].fact
        group = job_of(state, fact)
        known = state.pod_groups.get(group) if group is not None else None
        return Entry(
            fact.created if known is None else known.created, state.turn(pod), group or (fact.shape, fact.pinned_node, "")
        )

    def _pass(self, now: Millis) -> None:
        """Those at the top of the heap that are over the threshold, or do not wait any more, leave it."""
        while self._heap:
            since, turn, pod = self._heap[0]
            entry = self._entries.get(pod)
            if entry is not None and entry[:2] == (since, turn):
                if not self._state.awaits_placement(pod):
                    del self._entries[pod]
                elif since + self.threshold < now:
                    insort(self._over.setdefault(entry.equivalence_class, []), (turn, pod))
                else:
                    return
            heappop(self._heap)

    def _rebuild(self) -> None:
        state = self._state
        self._position = state.moved.position
        self._over: dict[Hashable, list[tuple[int, PodUid]]] = {}
        self._entries = {pod: self._entry(pod) for pod in (*state.queue, *state.parked, *state.nominations)}
        self._heap = [(entry.since, entry.turn, pod) for pod, entry in self._entries.items()]
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
            entry = self._entry(pod)
            if self._entries.get(pod) != entry:
                self._entries[pod] = entry
                heappush(self._heap, (entry.since, entry.turn, pod))
        return None


def _is_single(equivalence_class: Hashable) -> bool:
    """Of pods on their own; a gang's class is its group, of two parts."""
    return isinstance(equivalence_class, tuple) and len(equivalence_class) == 3
