"""Plans that nobody carries out (`mode: observe`), and how well they have predicted: the score."""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.domain.evolve.rules import Rules, void
from restow.domain.state import ClusterState

THERE, ENDED = "there", "ended"
"""Of a pod that would have been moved."""
FREE, TAKEN, GONE = "free", "taken", "gone"
"""Of the slot that it would have got."""
LOOKS = 2


def planned(state: ClusterState, event: e.Planned) -> None:
    """Its moves are no migrations: nothing is promised, nobody is on the move, and no node cools down."""
    if event.moves:
        state.put(state.observed, event.plan, 0)


def looked_back(state: ClusterState, event: e.LookedBack) -> None:
    if state.observed.get(event.plan) != event.look - 1:
        void(state, event)
        return
    pods, before = [move.pod for move in event.moves], state.score
    if event.look == 1:
        state.score = replace(
            before, plans=before.plans + bool(event.moves), moves=before.moves + pods.count(THERE), early=before.early + len(pods) - pods.count(THERE),
            free=before.free + sum(move.slot == FREE for move in event.moves),
        )  # fmt: skip
    if event.look < LOOKS:
        state.put(state.observed, event.plan, event.look)
        return
    state.score = replace(state.score, aged=state.score.aged + len(pods), ended=state.score.ended + len(pods) - pods.count(THERE))
    state.drop(state.observed, event.plan)


RULES: Rules = {e.LookedBack: looked_back}
