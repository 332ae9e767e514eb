"""Who can spare a pod: its workload, its gang, and the disruption budgets about it, as far as the state says (RULES G-13).

Planners ask before they plan, and the saga before it begins and before it evicts: what would be refused then is not planned, so that nobody else is
evicted for nothing. What only waits for our own migrations is no refusal: each of them ends.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from restow.contracts.ids import PodUid
from restow.domain.evolve.proposals import REJECTED
from restow.domain.groups import Group, group_of, min_field, task_of
from restow.domain.pod_controllers import known_owner
from restow.domain.protection import Budgets
from restow.domain.resource_quotas import over_quota
from restow.domain.session.successor_refusals import turned_away
from restow.domain.state import ClusterState
from restow.domain.state_maps import OVER
from restow.domain.verdicts import BUDGET, GANG_MINIMUM, MAX_UNAVAILABLE, NOT_ADMITTED, REFUSED


def not_admitted(state: ClusterState, uid: PodUid) -> str:
    """Why a hold would be of no use to the pod's successor, `Word: sentence`; empty where it would, or where nobody makes one."""
    if state.pods[uid].fact.owner is None:
        return ""
    if why := turned_away(state, uid):
        return f"{NOT_ADMITTED}: its successor would not be looked at: {why}"
    why = over_quota(state, state.pods[uid].fact)
    return f"{NOT_ADMITTED}: its successor would not be made: {why}" if why else ""


class Spare:
    """`moved`: pods that are on the move, which miss nowhere, for that ends. `away`: those of them that a gang has to do without."""

    def __init__(self, state: ClusterState, moved: Iterable[PodUid], away: Iterable[PodUid]) -> None:
        self._state, self.moved, self.away = state, moved, away
        self._missing: dict[str, tuple[int, int]] = {}
        self._ready: dict[Group, dict[PodUid, None]] = {}
        self._by_task: dict[Group, Counter[str]] = {}
        self._children: dict[str, list[str]] | None = None

    @cached_property
    def budgets(self) -> Budgets:
        """Mostly nobody asks: `Limits` are made after every fold."""
        return Budgets(self._state)

    @classmethod
    def planning(cls, state: ClusterState) -> "Spare":
        """For who plans: whatever is under way will have ended."""
        return cls(state, {**state.victims, **state.successors}, ())

    def forget(self, who: str, group: Group | None) -> None:
        """Others of these are on the move now."""
        self._missing.pop(who, None)
        if group is not None:
            self._ready.pop(group, None)
            self._by_task.pop(group, None)

    # -- for who plans -----------------------------------------------------------------------------------------------

    def why_not(self, uid: PodUid) -> str:
        """Why a move of this pod would be refused, `Word: sentence`; empty where it would not."""
        state = self._state
        pod, live = state.pods[uid].fact, state.pods[uid].live
        if live.phase in OVER:
            return ""
        if why := not_admitted(state, uid) or self.remembered(uid):
            return why
        if why := self.too_many(state.lineage(pod).partition("/")[0], uid, 1):
            return f"{MAX_UNAVAILABLE}: {why}"
        group = group_of(pod)
        if group is not None and (why := self.too_few(group, uid)):
            return f"{GANG_MINIMUM}: {why}"
        why = self.over_budget(uid)
        return f"{BUDGET}: {why}" if why else ""

    def remembered(self, uid: PodUid) -> str:
        """Whether its last moves were refused, so that another one has to wait."""
        known = self._state.refused.get(uid)
        if known is None or known.until <= self._state.time:
            return ""
        if known.reason == REJECTED:
            return f"{REFUSED}: a person has rejected its last move{f', {known.times} in a row' if known.times > 1 else ''}"
        return f"{REFUSED}: its last {known.times} moves were refused ({known.reason})" if known.times > 1 else f"{REFUSED}: its last move was refused ({known.reason})"

    # -- one rule each -----------------------------------------------------------------------------------------------

    def too_many(self, who: str, uid: PodUid, more: int) -> str:
        """Whether the pod's workload would miss too many with `more` that move, this one among them. A StatefulSet that makes its pods in order makes none
        while one before it is not ready, so that the next one would not come again: of that, one at a time, whatever the policy says."""
        config, ordered = self._state.migration_config, self._is_made_in_order(uid)
        if not who or not (config.max_unavailable or ordered):
            return ""
        missing, size = self.unready(who, uid)
        most = 1 if ordered else config.unavailable_of(size)
        if missing + more <= most:
            return ""
        rule = ": its StatefulSet makes its pods in order (podManagementPolicy OrderedReady)" if ordered else ""
        return f"{missing} other pods of its workload are not ready; allowed: {most} in all, with those that move{rule}"

    def _is_made_in_order(self, uid: PodUid) -> bool:
        pod = self._state.fact_of(uid)
        owner = known_owner(pod) if pod is not None else None
        if pod is None or pod.owner is None or owner is None or owner.again != "name":
            return False
        known = self._state.workloads.get(pod.owner.uid)
        return known is None or not known.parallel

    def too_few(self, group: Group, victim: PodUid) -> str:
        """Whether the gang would be less than it needs, in all or of the victim's task."""
        known = self._state.pod_groups.get(group)
        if known is None or not (known.min_member or known.min_task_member):
            return ""
        ready, pods = self._ready_members(group), self._state.pods
        left = len(ready) - (victim in ready)
        if left < known.min_member:
            return f"{left} other members of PodGroup {'/'.join(group)} are ready; its {min_field(group)} is {known.min_member}"
        task = task_of(pods[victim].fact) if victim in pods else ""
        need = known.min_task_member.get(task, 0)
        if not need or (of_task := self._of_task(group)[task] - (victim in ready)) >= need:
            return ""
        return f"{of_task} other members of task {task} of PodGroup {'/'.join(group)} are ready; its minTaskMember is {need}"

    def over_budget(self, uid: PodUid) -> str:
        """Whether no budget would let it go, however long it is waited for; where one is waited for (`budgetPatience`), one that allows
        nobody now is no refusal. Pods that have ended need none's leave."""
        if not self._state.budgets or self._state.pods[uid].live.phase in OVER:
            return ""
        paths = self.budgets.bind(uid)
        if len(paths) > 1:
            return f"more than one disruption budget is about it ({', '.join(sorted(paths))}), and then the API evicts nobody"
        if paths and not self._state.migration_config.budget_patience and self._state.budgets[paths[0]].allowed <= 0:
            return f"the disruption budget {paths[0]} allows no eviction now"
        return ""

    def unready(self, who: str, victim: PodUid | None = None) -> tuple[int, int]:
        """Pods of a workload that do not serve, those that we move aside and the one that is asked about, and how many it has."""
        missing, size = self._unready(who)
        return missing - (victim is not None and victim in self._state.pods and self._misses(victim)), size

    def _misses(self, uid: PodUid) -> bool:
        """One that terminates has its replacement counted; one that the session has chosen as a victim is as good as gone."""
        live = self._state.pods[uid].live
        if live.deleting or live.phase in OVER or uid in self.moved:
            return False
        return not live.ready or uid in self._state.victims_of

    def _unready(self, who: str) -> tuple[int, int]:
        known = self._missing.get(who)
        if known is None:
            state, missing, size = self._state, 0, 0
            for owner in (who, *self._owned_by(who), *state.of_family(who)):
                for uid in state.owned.get(owner, ()):
                    live = state.pods[uid].live
                    if not live.deleting and live.phase not in OVER:
                        size += 1
                        missing += self._misses(uid)
            known = self._missing[who] = missing, size
        return known

    def _of_task(self, group: Group) -> Counter[str]:
        """By task, how many of them."""
        known = self._by_task.get(group)
        if known is None:
            known = self._by_task[group] = Counter(task_of(self._state.pods[uid].fact) for uid in self._ready_members(group))
        return known

    def _ready_members(self, group: Group) -> dict[PodUid, None]:
        """Members that stay ready while those that are away are not there. Nor are those that the session has chosen as victims for long."""
        ready = self._ready.get(group)
        if ready is None:
            pods, victims_of = self._state.pods, self._state.victims_of
            ready = self._ready[group] = {
                uid: None
                for uid in self._state.groups.get(group, ())
                if (live := pods[uid].live).ready and not live.deleting and live.phase not in OVER and uid not in self.away and uid not in victims_of
            }
        return ready

    def _owned_by(self, who: str) -> list[str]:
        """Controllers that this one has made: the ReplicaSets of a Deployment."""
        if self._children is None:
            self._children = {}
            for uid, known in self._state.workloads.items():
                if known.owner is not None:
                    self._children.setdefault(known.owner.uid, []).append(uid)
        return self._children.get(who, [])
