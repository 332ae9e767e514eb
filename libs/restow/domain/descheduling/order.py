"""The order in which pods go where a plugin has no other: upstream's SortPodsBasedOnPriorityLowToHigh, with ties by name."""

from collections.abc import Iterable

from restow.contracts.ids import PodUid
from restow.contracts.values import PodShape
from restow.domain.state import ClusterState

BEST_EFFORT, BURSTABLE, GUARANTEED = 0, 1, 2


def qos(shape: PodShape) -> int:
    """BEST_EFFORT where nothing is asked for, GUARANTEED where limits equal requests, else BURSTABLE."""
    if shape.qos:
        return GUARANTEED
    return BURSTABLE if any(shape.requests.get(name) for name in ("cpu", "memory")) else BEST_EFFORT


def by_priority(state: ClusterState, pods: Iterable[PodUid]) -> list[PodUid]:
    """The lowest priority first, then BestEffort before Burstable before Guaranteed, then as they were given."""

    def key(uid: PodUid) -> tuple[int, int]:
        shape = state.shapes[state.pods[uid].shape]
        return shape.priority, qos(shape)

    return sorted(pods, key=key)
