"""Pods that are left alone for a while because they were refused, longer each time: no plan that fails in the same way each round evicts others for nothing
(RULES G-13), and no person is asked the same again at once."""

from restow.contracts.ids import Millis, PodUid
from restow.contracts.times import bounded, doubled
from restow.domain.records import Refusal
from restow.domain.state import ClusterState

BACK_OFF, LONGEST = 600_000, 86_400_000
"""Milliseconds for which that is: at first, doubled each time, and at most."""


def leave_alone(state: ClusterState, uid: PodUid, reason: str, until: Millis = Millis(0)) -> None:
    """`until`: where somebody knows better. A pod that is gone is forgotten."""
    if uid not in state.pods:
        return
    before = state.refused.get(uid)
    times = 1 if before is None else before.times + 1
    state.put(state.refused, uid, Refusal(times, until or bounded(state.time + doubled(BACK_OFF, times, LONGEST)), reason))
