"""What moving a pod costs: 1000 for a move, and `costs` for what the pod is.

`priority`: for each thousand of its priority, up to a thousand thousands. `age`: for each full hour of work that is lost, up to a week: since it was made, or
saved its work last (`restow.dev/checkpointed-at`).
`restarts`: for each restart of its containers, up to ten: who had trouble to come up may have it again. `gang`: where it is
a member of one, whose other members may wait for it. `budget`: where a disruption budget is about it, in full where that allows
one eviction or none now, otherwise shared by those that it allows. Who prefers not to be evicted costs one move more.
"""

from restow.contracts.events import BudgetObserved
from restow.contracts.ids import Millis, PodUid
from restow.domain.groups import group_of
from restow.domain.hooks import work_since
from restow.domain.protection import PREFER_NO_EVICTION
from restow.domain.selectors import covers
from restow.domain.state import ClusterState

MOVE = 1000
MOST_HOURS, MOST_RESTARTS, MOST_PRIORITY = 7 * 24, 10, 1_000_000
_HOUR = 3_600_000


class Costs:
    """For one plan."""

    def __init__(self, state: ClusterState, said: dict[str, int], time: Millis) -> None:
        self._state, self._time = state, time
        self._said = {kind: amount for kind, amount in said.items() if amount}
        self._budgets: dict[str, list[BudgetObserved]] = {}
        if "budget" in self._said:
            for budget in state.budgets.values():
                self._budgets.setdefault(budget.namespace, []).append(budget)

    def cost(self, uid: PodUid, new: bool = False) -> int:
        """`new`: of its successor, which has not run for long and had no trouble."""
        pod, said = self._state.pods[uid].fact, self._said
        cost = MOVE * (2 if PREFER_NO_EVICTION in pod.annotations else 1)
        if not said:
            return cost
        if "priority" in said:
            priority = self._state.shapes[pod.shape].priority
            cost += said["priority"] * (min(max(priority, 0), MOST_PRIORITY) // 1000)
        if "age" in said and not new:
            cost += said["age"] * min(max(self._time - work_since(pod, self._time), 0) // _HOUR, MOST_HOURS)
        if "restarts" in said and not new and (trouble := self._state.troubles.get(uid)) is not None:
            cost += said["restarts"] * min(sum(c.restarts for c in trouble.containers), MOST_RESTARTS)
        if "gang" in said and group_of(pod) is not None:
            cost += said["gang"]
        for budget in self._budgets.get(pod.namespace, ()):
            if covers(budget, pod):
                cost += said["budget"] // max(budget.allowed, 1)
        return cost
