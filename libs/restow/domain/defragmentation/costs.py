"""What moving a pod costs, in thousandths of the unit of `prices` (GPU-hours, or money): `move`, 1000, for the move, the work that is lost by it, and `costs` for
what the pod is.

`work`: for each unit of work that is lost, which is what the pod's part of its node is worth per hour, times the hours since it was made, or saved its work
last (`restow.dev/checkpointed-at`), up to a week. Pods of controllers whose pods end some time lose work, of a gang all members do; servers lose none.
`priority`: for each thousand of its priority, up to a thousand thousands. `age`: for each full hour since then, whatever the pod's size and controller.
`restarts`: for each restart of its containers, up to ten: who had trouble to come up may have it again. `gang`: for each other member of its gang that
runs, up to twenty: they may wait for it. `localStorage`: where it has an emptyDir or a hostPath, which stay behind. `budget`: where a disruption budget is about it,
in full where that allows one eviction or none now, otherwise shared by those that it allows. `preferences` depends on where it goes (`preferences.py`). Who prefers
not to be evicted costs one move more.
"""

from restow.contracts.events import BudgetObserved, PodObserved
from restow.contracts.ids import Millis, PodUid
from restow.domain.defragmentation.prices import Prices
from restow.domain.groups import group_of
from restow.domain.hooks import work_since
from restow.domain.pod_controllers import known_owner
from restow.domain.protection import PREFER_NO_EVICTION
from restow.domain.selectors import covers
from restow.domain.state import ClusterState

MOVE, FLOOR = 1000, "move"
"""What every move costs, and where `costs` says something else: prices may be in a unit of which 1 is nothing, or much."""
MOST_HOURS, MOST_RESTARTS, MOST_PRIORITY, MOST_MATES = 7 * 24, 10, 1_000_000, 20
PREFERENCES, PREFERRED = "preferences", 3
"""And how many kinds of them there are."""
USUAL = {"work": 1000, "budget": 500, "localStorage": 200, PREFERENCES: 200, "restarts": 100, "gang": 50, "priority": 1}
"""What is said where a policy says nothing else."""
_HOUR = 3_600_000
_SERVERS = ("always", "name")
"""Whose pods are made again, and never end by themselves."""


class Costs:
    """For one plan."""

    def __init__(self, state: ClusterState, said: dict[str, int], time: Millis, prices: Prices | None = None) -> None:
        """Without `prices` no work is counted."""
        self._state, self._time, self._prices = state, time, prices
        self._said = {kind: amount for kind, amount in said.items() if amount}
        self.move = self._said.pop(FLOOR, MOVE)
        """What every move costs at least."""
        self.preferences = self._said.get(PREFERENCES, 0)
        """For each kind of them that suits a target less."""
        self._gangs: dict[tuple[str, str], int] = {}
        self._budgets: dict[str, list[BudgetObserved]] = {}
        if "budget" in self._said:
            for budget in state.budgets.values():
                self._budgets.setdefault(budget.namespace, []).append(budget)

    def cost(self, uid: PodUid, new: bool = False, as_one: bool = False) -> int:
        """`new`: of its successor, which has not run for long and had no trouble. `as_one`: all of its gang move, so that each has its own part of what is
        lost, and nobody waits for it."""
        return sum(self.parts(uid, new, as_one).values())

    def parts(self, uid: PodUid, new: bool = False, as_one: bool = False) -> dict[str, int]:
        """The same, by what it is for: `move`, and the keys of `costs`."""
        pod, said = self._state.pods[uid].fact, self._said
        found = {FLOOR: self.move * (2 if PREFER_NO_EVICTION in pod.annotations else 1)}
        if not said:
            return found
        if "work" in said and not new:
            found["work"] = said["work"] * (self._own_lost(uid) if as_one else self.lost(uid)) // 1000
        if "priority" in said:
            priority = self._state.shapes[pod.shape].priority
            found["priority"] = said["priority"] * (min(max(priority, 0), MOST_PRIORITY) // 1000)
        if "age" in said and not new:
            found["age"] = said["age"] * min(max(self._time - work_since(pod, self._time), 0) // _HOUR, MOST_HOURS)
        if "restarts" in said and not new and (trouble := self._state.troubles.get(uid)) is not None:
            found["restarts"] = said["restarts"] * min(sum(c.restarts for c in trouble.containers), MOST_RESTARTS)
        if "gang" in said and not as_one and (group := group_of(pod)) is not None:
            mates = sum(one in self._state.charges for one in self._state.groups.get(group, ())) - (uid in self._state.charges)
            found["gang"] = said["gang"] * min(max(mates, 0), MOST_MATES)
        if "localStorage" in said and self._state.shapes[pod.shape].local_storage:
            found["localStorage"] = said["localStorage"]
        for budget in self._budgets.get(pod.namespace, ()):
            if covers(budget, pod):
                found["budget"] = found.get("budget", 0) + said["budget"] // max(budget.allowed, 1)
        return found

    def lost(self, uid: PodUid) -> int:
        """Work that an eviction loses, in thousandths of the unit: of the pod, and of all that start again with it."""
        pod = self._state.pods[uid].fact
        if not loses_work(pod):
            return 0
        group = group_of(pod)
        if group is None:
            return self._lost_of(uid, pod)
        known = self._gangs.get(group)
        if known is None:
            members = [one for one in self._state.groups.get(group, ()) if one in self._state.charges]
            known = self._gangs[group] = sum(self._lost_of(one, self._state.pods[one].fact) for one in members)
        return known

    def _own_lost(self, uid: PodUid) -> int:
        pod = self._state.pods[uid].fact
        return self._lost_of(uid, pod) if loses_work(pod) else 0

    def _lost_of(self, uid: PodUid, pod: PodObserved) -> int:
        hours = min(max(self._time - work_since(pod, self._time), 0), MOST_HOURS * _HOUR)
        charge, prices = self._state.charges.get(uid), self._prices
        row = self._state.table.rows.get(charge.node) if charge is not None else None
        if row is None or prices is None:
            return 0
        return prices.part(row, prices.sizes.of(self._state.vectors[pod.shape])) * hours // (_HOUR * 1000)


def loses_work(pod: PodObserved) -> bool:
    """Whether the pod's work ends some time, and is lost where it is evicted before. Servers lose none; of controllers that nobody knows it is
    assumed."""
    known = known_owner(pod)
    return known is None or known.again not in _SERVERS
