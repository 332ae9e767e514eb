"""What is asked back, holds that are ready again or that their node can never have, what was placed on nodes that have vanished
since and was not bound there, and placements that can never be bound, since their volumes are not what was chosen."""

from collections.abc import Iterable
from heapq import nsmallest
from typing import Any

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid
from restow.domain import beside
from restow.domain.changes import Changes, Seen
from restow.domain.gated import MayRun
from restow.domain.held_capacity import UNAVAILABLE
from restow.domain.memo import kept
from restow.domain.slots import SlotKey
from restow.domain.state import NODE_LOST, ClusterState
from restow.domain.volumes import rejected


def releases(state: ClusterState, now: Millis, limit: int, may_run: MayRun) -> list[e.Event]:
    """A decision of its own: how much capacity it makes is for the fold to say (nominations come first)."""
    events: list[e.Event] = [
        e.HoldReleased(uid, slot, reason) for (uid, slot), reason in nsmallest(limit, state.to_release.items())
    ]
    lost_for_good = hopeless(state)
    events += [e.HoldReleased(*key, UNAVAILABLE) for key in lost_for_good]
    events += [e.HoldReady(*key) for key in sorted(state.whole.keys() - set(lost_for_good)) if key not in state.to_release]
    lost = {**rejections(state), **dict.fromkeys(state.stranded(), NODE_LOST)}
    lost |= dict.fromkeys(beside.astray(state, now), beside.GONE)
    lost |= dict.fromkeys(beside.in_vain(state, may_run), beside.LOST)
    events += [e.PodReleased(pod, lost[pod]) for pod in sorted(lost, key=state.order_of)]
    return events


class _Found:
    """Of those that may be so, who is, and why: all are asked after facts that concern all of them, otherwise those that have moved. It is asked before
    every session."""

    def __init__(self, state: ClusterState, *facts: Changes[Any]) -> None:
        self.found: dict[Any, str] = {}
        self._seen = Seen(state.moved, *facts)

    def refresh(self, state: ClusterState) -> None:
        moved, *facts = self._seen.news()
        if next(iter(self.may_be(state)), None) is None:
            self.found.clear()
            return
        if moved is None or any(news is None or news for news in facts):
            self.found.clear()
            moved = list(self.may_be(state))
        for who in dict.fromkeys(moved):
            if why := self.why(state, who):
                self.found[who] = why
            else:
                self.found.pop(who, None)

    def may_be(self, state: ClusterState) -> Iterable[PodUid | SlotKey]:
        raise NotImplementedError

    def why(self, state: ClusterState, who: PodUid | SlotKey) -> str:
        """Empty where it is not so."""
        raise NotImplementedError


class _Hopeless(_Found):
    """Slots that wait for more than their node has, if it was empty, or whose CPUs others have got meanwhile."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state, state.changed_rows)

    def may_be(self, state: ClusterState) -> Iterable[PodUid | SlotKey]:
        return (key for keys in state.waiting_on.values() for key in keys)

    def why(self, state: ClusterState, who: PodUid | SlotKey) -> str:
        slot = state.slots.get(who[0], {}).get(who[1]) if isinstance(who, tuple) else None
        if slot is None or who not in state.waiting_on.get(slot.node, ()):
            return ""
        v, allocatable, row = state.vectors[slot.shape], state.table.allocatable, state.table.rows[slot.node]
        lost = state.lacks_cores(slot)
        return UNAVAILABLE if lost or any(allocatable[row, column] < amount for column, amount in v.items) else ""


class _Rejections(_Found):
    """Pods that are placed and can never be bound there, since their volumes are not what was chosen."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state, state.objects, state.changed_rows)

    def may_be(self, state: ClusterState) -> Iterable[PodUid | SlotKey]:
        return state.binding

    def why(self, state: ClusterState, who: PodUid | SlotKey) -> str:
        return rejected(state, who) or "" if isinstance(who, str) and who in state.binding else ""


def hopeless(state: ClusterState) -> list[SlotKey]:
    return sorted(key for key in kept(state, _Hopeless).found if key not in state.to_release)


def rejections(state: ClusterState) -> dict[PodUid, str]:
    """Why each of them cannot be bound."""
    return {pod: why for pod, why in kept(state, _Rejections).found.items() if pod in state.binding}
