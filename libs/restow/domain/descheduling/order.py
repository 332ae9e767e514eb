"""The order in which pods go where a plugin has no other: upstream's SortPodsBasedOnPriorityLowToHigh, with ties by name."""

from collections.abc import Iterable

from restow.contracts.ids import PodUid
from restow.contracts.values import PodShape
from restow.domain.state import ClusterState

EVICT = "descheduler.alpha.kubernetes.io/evict"
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
IN_PROGRESS = "descheduler.alpha.kubernetes.io/eviction-in-progress"
"""Annotations of pods. Their presence counts, not their value."""

BEST_EFFORT, BURSTABLE, GUARANTEED = 0, 1, 2


def qos(shape: PodShape) -> int:
    """BEST_EFFORT where nothing is asked for, GUARANTEED where limits equal requests, else BURSTABLE."""
    if shape.qos:
        return GUARANTEED
    return BURSTABLE if any(shape.requests.get(name) for name in ("cpu", "memory")) else BEST_EFFORT


def by_priority(state: ClusterState, pods: Iterable[PodUid]) -> list[PodUid]:
    """The lowest priority first, then BestEffort before Burstable before Guaranteed, then those that do not mind before those that prefer
    to stay, then as they were given."""

    def key(uid: PodUid) -> tuple[int, int, bool]:
        pod = state.pods[uid]
        shape = state.shapes[pod.shape]
        return shape.priority, qos(shape), PREFER_NO_EVICTION in pod.annotations

    return sorted(pods, key=key)
