"""What people call the workload of a pod."""

from restow.contracts.events import PodObserved
from restow.domain.state import ClusterState


def workload_of(state: ClusterState, pod: PodObserved) -> str:
    """`Kind/name` of the topmost controller that is known; empty for a bare pod."""
    if pod.owner is None:
        return ""
    top = state.above(pod.owner) or pod.owner
    return f"{top.kind}/{top.name}"
