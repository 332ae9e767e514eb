"""What is asked back, holds that are ready again or that their node can never have, what was placed on nodes that have vanished
since and was not bound there, and placements that can never be bound, since their volumes are not what was chosen."""

from heapq import nsmallest
from typing import cast

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.evolve.session import UNAVAILABLE
from restow.domain.places import Place
from restow.domain.state import NODE_LOST, ClusterState
from restow.domain.volumes import rejected


def releases(state: ClusterState, limit: int) -> list[e.Event]:
    """A decision of its own: how much room it makes is for the fold to say (nominations come first)."""
    events: list[e.Event] = [
        e.HoldReleased(uid, slot, reason) for (uid, slot), reason in nsmallest(limit, state.to_release.items())
    ]
    lost_for_good = hopeless(state)
    events += [e.HoldReleased(*place, UNAVAILABLE) for place in lost_for_good]
    events += [e.HoldReady(*place) for place in sorted(state.whole.keys() - set(lost_for_good)) if place not in state.to_release]
    lost = {**rejections(state), **dict.fromkeys(state.stranded(), NODE_LOST)}
    events += [e.PodReleased(pod, lost[pod]) for pod in sorted(lost, key=state.order.__getitem__)]
    return events


def hopeless(state: ClusterState) -> list[Place]:
    """Places that wait for more than their node has, if it was empty, or whose CPUs others have got meanwhile."""
    if not state.waiting_on:
        return []
    kept: _Hopeless | None = state.memo.get("hopeless")
    if kept is None:
        kept = state.memo["hopeless"] = _Hopeless()
    kept.refresh(state)
    return sorted(place for place in kept.found if place not in state.to_release)


class _Hopeless:
    """After a node has changed all that wait are looked at, otherwise those that have moved: it is asked before every session."""

    def __init__(self) -> None:
        self.found: dict[Place, None] = {}
        self._at = (-1, -1)

    def refresh(self, state: ClusterState) -> None:
        at = state.changed_rows.position, state.moved.position
        moved = state.moved.since(self._at[1]) if at[0] == self._at[0] else None
        self._at = at
        if moved is None:
            self.found.clear()
        again = (place for places in state.waiting_on.values() for place in places) if moved is None else dict.fromkeys(moved)
        for place in again:
            if isinstance(place, tuple):
                if _is_hopeless(state, place):
                    self.found[place] = None
                else:
                    self.found.pop(place, None)


def _is_hopeless(state: ClusterState, place: Place) -> bool:
    slot = state.slots.get(place[0], {}).get(place[1])
    if slot is None or place not in state.waiting_on.get(slot.node, ()):
        return False
    v, cores = state.vectors[slot.shape], state.shapes[slot.shape].cores
    if cores is not None and len(slot.cores) < cores.count:
        return True
    allocatable, row = state.table.allocatable, state.table.rows[slot.node]
    return any(allocatable[row, column] < amount for column, amount in v.items)


class _Rejections:
    """Why placements with volumes cannot be bound. After facts about volumes or nodes all of them are asked, otherwise those
    that have moved: it is looked at after every fold."""

    def __init__(self) -> None:
        self.found: dict[PodUid, str] = {}
        self._at = (-1, -1, -1)

    def refresh(self, state: ClusterState) -> None:
        at = state.objects.position, state.changed_rows.position, state.moved.position
        if at == self._at:
            return
        if not state.binding:
            self.found.clear()
            self._at = at
            return
        moved = state.moved.since(self._at[2])
        again: dict = state.binding if moved is None or at[:2] != self._at[:2] else dict.fromkeys(moved)
        self._at = at
        self.found = {pod: reason for pod, reason in self.found.items() if pod in state.binding and pod not in again}
        for who in again:
            if who in state.binding and (reason := rejected(state, pod := cast(PodUid, who))):
                self.found[pod] = reason


def rejections(state: ClusterState) -> dict[PodUid, str]:
    """Pods that are placed and can never be bound there, and why."""
    kept: _Rejections | None = state.memo.get("rejections")
    if kept is None:
        kept = state.memo["rejections"] = _Rejections()
    kept.refresh(state)
    return kept.found
