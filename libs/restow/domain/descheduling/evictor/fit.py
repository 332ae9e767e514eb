"""Whether a pod would find room on a node: the scheduler's own rules."""

from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain.state import ClusterState


class NodeFit:
    def __init__(self, state: ClusterState, now: Millis):
        self._state = state

    def why_not(self, pod: PodUid, node: NodeName) -> str:
        return ""
