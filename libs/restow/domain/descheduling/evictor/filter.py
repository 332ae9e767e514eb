"""Which pods may be evicted at all."""

from typing import Any

from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain.descheduling.evictor.args import DefaultEvictorArgs
from restow.domain.descheduling.evictor.fit import NodeFit
from restow.domain.state import ClusterState


class Evictor:
    def __init__(
        self, state: ClusterState, args: DefaultEvictorArgs, now: Millis, nodes: list[NodeName], fit: NodeFit, profile: Any
    ):
        self._state = state

    def evictable(self, pod: PodUid) -> str:
        return ""

    def fits(self, pod: PodUid) -> str:
        return ""
