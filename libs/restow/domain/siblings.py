"""What is asked of all pods of a controller, for each of them: found once for each place of the log, since one may have thousands."""

from restow.contracts.ids import PodUid
from restow.domain.state import ClusterState
from restow.domain.state_maps import OVER


class _Found:
    def __init__(self) -> None:
        self.seq = -1
        self.lines: dict[str, dict[PodUid, int]] = {}
        self.latest: dict[str, PodUid | None] = {}


def _found(state: ClusterState) -> _Found:
    if state.drafting:
        return _Found()
    known = state.memo.make(_Found)
    if known.seq != state.seq:
        known.__init__()  # type: ignore[misc]
        known.seq = state.seq
    return known


def place_in_line(state: ClusterState, owner: str, uid: PodUid) -> int:
    """How many of its siblings that run go before it, where each of them is to go: first those that are on their way, then in the order in which they came."""
    lines = _found(state).lines
    if owner not in lines:
        running = [one for one in state.owned.get(owner, ()) if state.pods[one].live.phase not in OVER]
        running.sort(key=lambda one: (not (one in state.victims or state.pods[one].live.deleting), state.pods[one].order))
        lines[owner] = {one: place for place, one in enumerate(running)}
    return lines[owner][uid]


def latest_as_made(state: ClusterState, owner: str) -> PodUid | None:
    """Of its pods the one that came last, of those that are as they were made."""
    latest = _found(state).latest
    if owner not in latest:
        latest[owner] = max((one for one in state.owned.get(owner, ()) if one not in state.resized), key=state.order_of, default=None)
    return latest[owner]
