"""Of the pods that wait, those that a hold may let in: kept across sessions, so that asking does not cost more the more others
wait, or are held for others."""

from collections.abc import Iterable

from restow.contracts.ids import PodUid
from restow.domain.reservation.index import HoldIndex
from restow.domain.reservation.wishes import ignores
from restow.domain.state import ClusterState


class ParkedOwners:
    """Parked pods that may own a Reservation, or that ignore all of them. Whoever is not parked any more is forgotten when it is
    met. All are looked at anew where there are owners of a new kind, or a workload was seen that may own pods' owners."""

    def __init__(self) -> None:
        self._pods: dict[PodUid, None] = {}
        self._index: HoldIndex | None = None
        self._kinds = self._seen = 0

    def refresh(self, state: ClusterState) -> list[PodUid]:
        index = HoldIndex.of(state)
        new: Iterable[PodUid] | None = state.parkings.since(self._seen)
        self._seen = state.parkings.position
        if new is None or index is not self._index or index.kinds_made != self._kinds:
            self._index, self._kinds = index, index.kinds_made
            self._pods.clear()
            new = state.parked
        else:
            for uid in [uid for uid in self._pods if uid not in state.parked]:
                del self._pods[uid]
        for uid in new:
            if uid in state.parked and (index.may_own(state.pods[uid]) or ignores(state.pods[uid])):
                self._pods[uid] = None
        return list(self._pods)


def parked_owners(state: ClusterState) -> list[PodUid]:
    """As they are now. (Successors of pods that are being moved own nothing.)"""
    kept: ParkedOwners | None = state.memo.get("parked-owners")
    if kept is None:
        kept = state.memo["parked-owners"] = ParkedOwners()
    return kept.refresh(state)
