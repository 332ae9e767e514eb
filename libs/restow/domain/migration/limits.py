"""How many migrations at once, and how fast: per node, namespace and workload, in total, and evictions a minute.

What only waits for our own migrations waits: each of them ends. What waits for others (pods of the workload that are not ready,
too few ready members of a gang) fails at once, with the reason: the next plan finds it again. Where one of ours has left, the
disruption budgets about it are ours until it has landed, and for a while after that: the API's controller counts the successor a moment later.

Moves and pods that are only evicted (`removal`) count alike, and for each other. One that has ended already is one of its workload
while it is evicted, but takes nothing from its gang: it was not among the ready.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable

from restow.contracts.ids import MigrationId, Millis, NodeName, PodUid
from restow.domain import beside, eviction_budgets, thefts
from restow.domain.disruption import Spare
from restow.domain.evolve.migration import MINUTE
from restow.domain.groups import Group, group_of, named
from restow.domain.migration import gating
from restow.domain.migration.holds import Reason
from restow.domain.migration.whole_nodes import Whole
from restow.domain.records import Migration, Step
from restow.domain.state import OVER, ClusterState
from restow.domain.verdicts import (
    BUDGET,
    EVICTION_BUDGET,
    GANG_MINIMUM,
    HOLDS_STOLEN,
    MAX_UNAVAILABLE,
    NOT_GATED,
    ended,
)

BEFORE_EVICTION = (Step.HOLDING, Step.HELD)
AFTER_EVICTION = (Step.EVICTING, Step.EVICTED)
LATE = Millis(15_000)
"""For so long after a landing, or whatever has become of a successor, a disruption budget may not have counted it: that is what the API's controllers of busy clusters take."""
ANY = 1 << 30
"""What is allowed where there is no budget."""


class Limits:
    """Counts what is under way; told what begins and what ends as a decision goes on.

    This is made after every fold, and mostly nobody asks for anything but how many are under way: the rest is counted when first asked
    for (`_counted`)."""

    def __init__(self, state: ClusterState, now: Millis) -> None:
        self._state = state
        self._now = now
        self._config = state.migration_config
        self.whole = Whole(state)
        self._active: dict[MigrationId, Migration] = {id: state.migrations[id] for id in state.active}
        self._parked = {id: None for id, m in self._active.items() if m.step in BEFORE_EVICTION and self.whole.holds_first(m)}
        """Whose slot is held until all of their node have theirs. Their pods are where they were: of the bounds only `concurrent` is
        about them, and all are asked before the eviction. So a node of many pods is emptied pod by pod, whatever the bounds are."""
        self._plans: dict[str, int] = defaultdict(int)
        self._begun: dict[tuple[str, NodeName], bool] = {}
        self._refused: dict[tuple[str, NodeName], bool] = {}
        self._next: dict[tuple[str, NodeName], MigrationId | None] = {}
        self._gangs: dict[tuple[str, NodeName], Reason | None] = {}
        """Of each gang that is moved as one, why it must not go now: asked once, for the answer is all of its pods'."""
        self._is_counted = False
        self._nodes: dict[NodeName, int] = defaultdict(int)
        self._namespaces: dict[str, int] = defaultdict(int)
        self._workloads: dict[str, int] = defaultdict(int)
        self._groups: dict[Group | None, int] = defaultdict(int)
        self._whose: dict[MigrationId, tuple[str, Group | None]] = {}
        self._moved: dict[PodUid, None] = {}
        """Victims and successors of what is under way."""
        self.going: list[Migration] = []
        """Whose eviction was decided in this decision."""
        self._coming = 0
        """Evictions that are still to be decided for what is under way."""
        self._evicted = dict(state.evictions)
        self._budgeted: dict[str, int] = defaultdict(int)
        """By disruption budget: evictions that are still to be accepted."""
        self._ended: dict[MigrationId, None] = {}
        """Whose pods had left and that end in this decision."""
        self._late: set[str] | None = None
        """Disruption budgets whose pods of ours have left and are still to land, or have just done so, or not."""
        self._allotted: dict[MigrationId, str] | None = None
        self._spare = Spare(state, self._moved, self._moved)

    def _counted(self) -> "Limits":
        if not self._is_counted:
            self._is_counted = True
            for id, migration in self._active.items():
                if id not in self._parked:
                    self._add(migration, 1)
            # The session's victims are asked for at the same budgets.
            for uid in self._state.victims_of if self._state.budgets else ():
                for path in self._spare.budgets.bind(uid):
                    self._budgeted[path] += 1
        return self

    def _add(self, migration: Migration, sign: int) -> None:
        known = self._whose.get(migration.id)
        if known is None:
            known = self._whose[migration.id] = workload(self._state, migration), gang(self._state, migration)
        who, group = known
        self._plans[migration.plan] += sign
        self._nodes[migration.move.source] += sign
        self._namespaces[migration.move.namespace] += sign
        self._workloads[who] += sign
        self._groups[group] += sign
        self._spare.forget(who, group)
        self._coming += sign * (migration.step in BEFORE_EVICTION or migration.step is Step.PLANNED)
        for pod in (migration.move.pod, migration.successor):
            if sign > 0:
                self._moved[pod] = None
            else:
                self._moved.pop(pod, None)
        if self._state.budgets and self._is_there(migration):
            for path in self._spare.budgets.bind(migration.move.pod):
                self._budgeted[path] += sign

    def begins(self, migration: Migration) -> None:
        self._active[migration.id] = migration
        if self.whole.holds_first(migration):
            self._parked[migration.id] = None
        elif self._is_counted:
            self._add(migration, 1)

    def ends(self, migration: Migration) -> None:
        was_active, was_parked = self._active.pop(migration.id, None) is not None, migration.id in self._parked
        self._parked.pop(migration.id, None)
        if migration.step in AFTER_EVICTION:
            self._ended[migration.id], self._late = None, None
        if was_active and not was_parked and self._is_counted:
            self._add(migration, -1)

    def evicts(self, migration: Migration, now: Millis) -> None:
        if migration.id in self._parked:
            self._counted()
            del self._parked[migration.id]
            self._add(migration, 1)
            self.whole.goes(migration)
        self._coming -= 1
        self._evicted[migration.id] = now
        self.going.append(migration)

    def _unit(self, migration: Migration) -> Hashable:
        """All moves off its node, or of its gang, where these are made all or none."""
        return self.whole.key(migration) if self.whole.binds(migration) else migration.id

    def over_eviction_budget(self, migration: Migration, now: Millis) -> Reason | None:
        """Whether a budget of the policy has too little left for it, who was planned before having had their part. One answer a decision."""
        if migration.id not in self._state.budgeted:
            return None
        if self._allotted is None:
            self._allotted = eviction_budgets.refused(self._state, now, self._unit)
        why = self._allotted.get(migration.id)
        return None if why is None else (EVICTION_BUDGET, why)

    @property
    def free(self) -> int:
        """How many may still begin."""
        return self._config.concurrent - len(self._active)

    def meets_guard(self, migration: Migration) -> bool:
        """Whether it waits for one that is under way, so that no guard of an old node and no placeholder are on the same node."""
        return bool(self._config.beside) and beside.meets_guard(self._state, migration, self._active.values())

    # -- before it begins --------------------------------------------------------------------------------------------

    def must_wait(self, migration: Migration, now: Millis) -> bool:
        """Whether too many others are under way for this one to begin now."""
        if self.free <= 0 or self._crowded(migration, now):
            return True
        return self._others(migration) and self._too_many(migration, 1) is not None

    def _crowded(self, migration: Migration, now: Millis) -> bool:
        config = self._config
        if self._counted()._nodes[migration.move.source] >= config.per_node:
            return True
        if config.per_namespace and self._namespaces[migration.move.namespace] >= config.per_namespace:
            return True
        return bool(config.evictions_per_minute) and self._is_full(now, self._coming)

    def refuses(self, migration: Migration) -> Reason | None:
        """Why it must not begin, whatever else is under way: asked where it need not wait."""
        return self._too_many(migration, 1)

    def _others(self, migration: Migration) -> bool:
        """Whether others of the same workload or gang, or that the same budget is about, are under way: then their ends are waited for."""
        who, group = workload(self._state, migration), gang(self._state, migration)
        self._counted()
        uid = migration.move.pod
        shared = uid in self._state.pods and any(self._budgeted[path] for path in self._spare.budgets.bind(uid))
        return bool(who and self._workloads[who]) or bool(group and self._groups[group]) or shared or self.may_be_late(uid)

    def waits_for_landing(self, migration: Migration, why: Reason | None) -> bool:
        """Whether that keeps it which ends once others of ours have landed, and that is counted: no deadline counts until then."""
        return why is not None and why[0] == BUDGET and self.may_be_late(migration.move.pod)

    def may_be_late(self, uid: PodUid) -> bool:
        """Whether a disruption budget about it may not have counted yet that another one has landed, or is to be counted once that has."""
        late = self._late_budgets()
        return bool(late) and uid in self._state.pods and any(path in late for path in self._spare.budgets.bind(uid))

    def _late_budgets(self) -> set[str]:
        if self._late is None:
            state, self._late = self._state, set()
            left = [id for id, one in self._active.items() if one.step in AFTER_EVICTION and not self._is_there(one)]
            for id in (*left, *self._ended, *self._just_ended()) if state.budgets else ():
                self._late.update(self._about(id))
        return self._late

    def _is_there(self, migration: Migration) -> bool:
        """Whether its pod runs, and nobody has ended it yet."""
        live = self._state.live_of(migration.move.pod)
        return live is not None and not live.deleting and live.phase not in OVER

    def _about(self, id: MigrationId) -> tuple[str, ...]:
        """The disruption budgets about its pod, or that one's successor. Of one that has gone before anybody has followed it, all that it may have been."""
        one = self._state.migrations[id]
        pod = self._state.fact_of(one.move.pod) or self._state.fact_of(one.successor)
        return self._spare.budgets.within(one.move.namespace) if pod is None else self._spare.budgets.of(pod)

    def _just_ended(self) -> list[MigrationId]:
        return [id for id, at in self._state.ended_at.items() if 0 <= self._now - at < LATE and id in self._state.migrations]

    def no_longer_late(self) -> Millis | None:
        """When the next disruption budget may have to be taken at its word."""
        just = self._just_ended() if self._state.budgets else ()
        return min((Millis(self._state.ended_at[id] + LATE) for id in just if self._about(id)), default=None)

    # -- nodes that are emptied wholly ---------------------------------------------------------------------------------

    def is_parked(self, id: MigrationId) -> bool:
        return id in self._parked

    def may_begin_node(self, migration: Migration, is_full: bool) -> bool:
        """Whether all of its node that hold first may begin at once. A node of more pods than may be under way begins alone. `is_full`:
        something that was planned before waits for this."""
        key = self.whole.key(migration)
        if key not in self._begun:
            first = self.whole.first(migration)
            fits = not is_full and (not self._active or len(first) <= self.free) and not any(map(self.meets_guard, first))
            self._begun[key] = fits or any(one.step is not Step.PLANNED for one in first)
        return self._begun[key]

    def refuses_for_good(self, migration: Migration) -> Reason | None:
        """Why it must not go, where that is not for what is under way of ours."""
        if self.whole.is_gang(migration):
            return self._gang_rests(migration) or (None if self._gang_shares(migration) else self._gang_over_budget(migration))
        why = self._too_many(migration, 1)
        return None if why is None or self._waits_for_ours(migration) else why

    def _waits_for_ours(self, migration: Migration) -> bool:
        return self._others(migration) or self._plans[migration.plan] > 0

    def waits_for_node(self, migration: Migration, now: Millis) -> bool:
        """Whether it must wait with its slot held, and no deadline counts: for the slots of its node, for the word of its workloads, for what is under way, for the API's
        word on another one of its node, or, while nobody has left the node, for one of its node that must not go now (that one has a deadline)."""
        if not self.whole.all_hold(migration) or not self.whole.all_agree(migration):
            return True
        if self.whole.is_gang(migration):
            return self._gang_waits(migration, now) or self._gang_waits_for_ours(migration)
        if self.whole.one_is_asked(migration):
            return True
        if len(self._active) - len(self._parked) >= self._config.concurrent or self._crowded(migration, now):
            return True
        if self._too_many(migration, 1) is not None:
            return self._waits_for_ours(migration)
        if self.whole.nobody_left(migration) and self._one_must_not_go(migration):
            return True
        return self._goes_next(migration) != migration.id

    def _gang_waits(self, migration: Migration, now: Millis) -> bool:
        """Whether all of them would be more evictions within a minute than may be. A gang of more pods than that goes after a minute without any."""
        most, going = self._config.evictions_per_minute, len(self.whole.first(migration))
        if not most or not self.whole.nobody_left(migration):
            return False
        own = {one.id for one in self.whole.members(migration)}
        recent = sum(abs(now - at) < MINUTE for id, at in self._evicted.items() if id not in own)
        return bool(recent) and recent + going > most

    def _gang_waits_for_ours(self, migration: Migration) -> bool:
        """Whether others of ours have, for now, what a disruption budget allows."""
        return self.whole.nobody_left(migration) and self._gang_shares(migration) and self._gang_over_budget(migration) is not None

    def _gang_shares(self, migration: Migration) -> bool:
        """Whether others of ours are under way, or have just landed, that a disruption budget of one of it is about."""
        counted, pods = self._counted()._budgeted, [one.move.pod for one in self.whole.first(migration) if one.move.pod in self._state.pods]
        return any(self.may_be_late(uid) or any(counted[path] for path in self._spare.budgets.bind(uid)) for uid in pods)

    def _gang_over_budget(self, migration: Migration) -> Reason | None:
        """Whether a disruption budget does not let all of them go at once: then none of them goes, whatever is waited for elsewhere (`budgetPatience`)."""
        state, asked = self._state, Counter[str]()
        for one in self.whole.first(migration):
            uid = one.move.pod
            if one.id not in self._parked or uid not in state.pods or state.pods[uid].live.phase in OVER:
                continue
            paths = self._spare.budgets.bind(uid) if state.budgets else ()
            if len(paths) > 1:
                return BUDGET, self._spare.over_budget(uid)
            asked.update(paths)
        for path, many in asked.items():
            if (left := state.budgets[path].allowed - self._counted()._budgeted[path]) < many:
                return BUDGET, f"the disruption budget {path} allows {max(left, 0)} evictions now, and {many} pods of the gang would need one"
        return None

    def _gang_not_gated(self, migration: Migration) -> Reason | None:
        """Whether another scheduler would have the successor of one of them at once."""
        gated = all(gating.is_gated(self._state, one) for one in self.whole.first(migration) if one.id in self._parked)
        return None if gated else ended(NOT_GATED)

    def _goes_next(self, migration: Migration) -> MigrationId | None:
        """Of those of its node that may go now the one that is refused most easily: what that costs grows with each that has left."""
        key = self.whole.key(migration)
        if key not in self._next:
            able = [one for one in self.whole.first(migration) if one.id in self._parked and self._too_many(one, 1) is None]
            self._next[key] = min(able, key=self._ease, default=migration).id
        return self._next[key]

    def _ease(self, migration: Migration) -> int:
        """How many evictions the tightest budget about it allows. (Of equal ones the plan's order counts.)"""
        uid = migration.move.pod
        paths = self._spare.budgets.bind(uid) if uid in self._state.pods else ()
        return min((self._state.budgets[path].allowed for path in paths), default=ANY)

    def _one_must_not_go(self, migration: Migration) -> bool:
        key = self.whole.key(migration)
        if key not in self._refused:
            self._refused[key] = any(self.refuses_for_good(one) for one in self.whole.first(migration) if one.id in self._parked)
        return self._refused[key]

    def until(self, migration: Migration) -> Millis:
        """How long somebody else may be in its way, once its own have come further and the rate allows it (RULES G-14)."""
        most, times = self._config.evictions_per_minute, sorted(at for at in self._evicted.values() if at < self._state.time + MINUTE)
        rate = times[-most] + MINUTE if most and len(times) >= most else 0
        return max(migration.deadline, Millis(max(self.whole.changed(migration), rate) + self._config.hold_deadline))

    # -- before the eviction -------------------------------------------------------------------------------------------

    def before_eviction(self, migration: Migration, now: Millis) -> Reason | None:
        """Why the pod must not be evicted now; None where it may."""
        if self.whole.is_gang(migration):
            key = self.whole.key(migration)
            if key not in self._gangs:
                self._gangs[key] = (
                    self._gang_rests(migration) or self._gang_over_budget(migration) or self._gang_not_gated(migration) if self.whole.nobody_left(migration) else None
                )
            return self._gangs[key]
        most = self._config.evictions_per_minute
        if most and self._is_full(now, 0):
            return "RateLimit", f"{most} pods were evicted within a minute"
        return self._too_many(migration, int(migration.id in self._parked))

    def breaks_gang(self, migration: Migration) -> Reason | None:
        """Why an eviction that was decided must not be sent, or tried again: the gang has lost others since. The session may have decided
        about another one of it at the same moment."""
        group = gang(self._state, migration)
        if group not in self._state.pod_groups or _has_ended(self._state, migration) or self.whole.is_gang(migration):
            return None
        why = self._counted()._spare.too_few(group, migration.move.pod)
        return (GANG_MINIMUM, why) if why else None

    def _is_full(self, now: Millis, coming: int) -> bool:
        """Whether as many evictions as a minute may have were decided within one, or are still to be.
        Those of a time that is still to come by more than that were decided before the clock was put back: an hour back is no hour's pause."""
        left = self._config.evictions_per_minute - coming
        return len(self._evicted) >= left and sum(abs(now - at) < MINUTE for at in self._evicted.values()) >= left

    def _too_many(self, migration: Migration, more: int) -> Reason | None:
        """`more`: how many it adds to those that are under way."""
        state, spare, uid = self._state, self._counted()._spare, migration.move.pod
        if (rests := self._rests(migration)) is not None:
            return rests
        who, group = workload(state, migration), gang(state, migration)
        if why := spare.too_many(who, uid, self._workloads[who] + more):
            return MAX_UNAVAILABLE, why
        if group is not None and not _has_ended(state, migration) and (why := spare.too_few(group, uid)):
            return GANG_MINIMUM, why
        if uid not in state.pods:
            return None
        why = spare.over_budget(uid) or self._share_budget(uid, more)
        return (BUDGET, why) if why else None

    def _rests(self, migration: Migration) -> Reason | None:
        """Whether moves beside another scheduler rest, because their holds are stolen again and again."""
        is_beside = bool(self._config.beside) and beside.is_beside(self._state, migration.shape)
        return ended(HOLDS_STOLEN) if is_beside and thefts.rests_until(self._state) else None

    def _gang_rests(self, migration: Migration) -> Reason | None:
        """Of a gang whose pods have different schedulers, for one of them."""
        return next((why for one in self.whole.first(migration) if (why := self._rests(one)) is not None), None)

    def _share_budget(self, uid: PodUid, more: int) -> str:
        """Whether others of ours use up what a budget allows: those that are to be evicted, or that have left. Where a budget is waited for (`budgetPatience`), all
        try what somebody else has used up: each for so long, and not one after the other."""
        if not self._state.budgets or self._state.pods[uid].live.phase in OVER:
            return ""
        for path in self._spare.budgets.bind(uid):
            allowed = self._state.budgets[path].allowed
            most = ANY if allowed <= 0 and self._config.budget_patience and path not in self._late_budgets() else allowed
            if (self._budgeted[path] + more > most) if more else most <= 0:
                return f"the disruption budget {path} allows {allowed} evictions now, and others are under way"
        return ""

    # -- time --------------------------------------------------------------------------------------------------------

    def next_eviction(self) -> Millis | None:
        """When another eviction may be decided although nothing happens; None where one may be now."""
        most, known = self._config.evictions_per_minute, self._evicted
        if not most or not known or len(known) + len(self._active) < most:
            return None
        times = sorted(at for at in known.values() if abs(self._state.time - at) < MINUTE)
        if not times or len(times) + self._counted()._coming < most:
            return None
        return Millis(times[max(len(times) - most, 0)] + MINUTE)


def workload(state: ClusterState, migration: Migration) -> str:
    """The top controller of its pod: that, and for a StatefulSet the name, is the lineage. Empty for a bare pod. A pod that is only
    evicted has no lineage in its record, for it leaves nothing to a successor: what is known of it says whose it is."""
    lineage = migration.lineage
    if not lineage and (pod := state.fact_of(migration.move.pod)) is not None:
        lineage = state.lineage(pod)
    return lineage.partition("/")[0]


def gang(state: ClusterState, migration: Migration) -> Group | None:
    """Its pod's PodGroup."""
    if migration.group:
        return named(migration.group)
    pod = state.fact_of(migration.move.pod)
    return None if pod is None else group_of(pod)


def _has_ended(state: ClusterState, migration: Migration) -> bool:
    live = state.live_of(migration.move.pod)
    return live is not None and live.phase in OVER
