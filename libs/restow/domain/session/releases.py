"""What is asked back, and what was placed on nodes that have vanished since and was not bound there."""

from heapq import nsmallest

from restow.contracts import events as e
from restow.domain.state import NODE_LOST, ClusterState


def releases(state: ClusterState, limit: int) -> list[e.Event]:
    """A decision of its own: how much room it makes is for the fold to say (nominations come first)."""
    events: list[e.Event] = [
        e.HoldReleased(uid, slot, reason) for (uid, slot), reason in nsmallest(limit, state.to_release.items())
    ]
    events += [e.PodReleased(pod, NODE_LOST) for pod in sorted(state.stranded(), key=state.order.__getitem__)]
    return events
