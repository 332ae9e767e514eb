"""How many migrations at once, and how fast: per node, namespace and workload, in total, and evictions a minute.

What only waits for our own migrations waits: each of them ends. What waits for others (pods of the workload that are not ready,
too few ready members of a gang) fails at once, with the reason: the next plan finds it again.

Moves and pods that are only evicted (`removal`) count alike, and for each other. One that has ended already is one of its workload
while it is evicted, but takes nothing from its gang: it was not among the ready.
"""

from collections import defaultdict

from restow.contracts.ids import MigrationId, Millis, NodeName, PodUid
from restow.domain.evolve.migration import MINUTE
from restow.domain.groups import Group, group_of
from restow.domain.migration.holds import Reason
from restow.domain.records import Migration, Step
from restow.domain.state import OVER, ClusterState

BEFORE_EVICTION = (Step.HOLDING, Step.HELD)


class Limits:
    """Counts what is under way; told what begins and what ends as a decision goes on.

    This is made after every fold, and mostly nobody asks for anything but how many are under way: the rest is counted when first asked
    for (`_counted`)."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._config = state.migration_config
        self._active: dict[MigrationId, Migration] = {id: state.migrations[id] for id in state.active}
        self._is_counted = False
        self._nodes: dict[NodeName, int] = defaultdict(int)
        self._namespaces: dict[str, int] = defaultdict(int)
        self._workloads: dict[str, int] = defaultdict(int)
        self._groups: dict[Group | None, int] = defaultdict(int)
        self._whose: dict[MigrationId, tuple[str, Group | None]] = {}
        self._moved: dict[PodUid, None] = {}
        """Victims and successors of what is under way."""
        self._coming = 0
        """Evictions that are still to be decided for what is under way."""
        self._evicted = dict(state.evictions)
        self._children: dict[str, list[str]] | None = None
        self._missing: dict[str, int] = {}
        self._ready: dict[Group, dict[PodUid, None]] = {}
        """What was counted since anything last began or ended."""

    def _counted(self) -> "Limits":
        if not self._is_counted:
            self._is_counted = True
            for migration in self._active.values():
                self._add(migration, 1)
        return self

    def _add(self, migration: Migration, sign: int) -> None:
        known = self._whose.get(migration.id)
        if known is None:
            known = self._whose[migration.id] = workload(self._state, migration), gang(self._state, migration)
        who, group = known
        self._nodes[migration.move.source] += sign
        self._namespaces[migration.move.namespace] += sign
        self._workloads[who] += sign
        self._groups[group] += sign
        self._missing.clear()
        self._ready.clear()
        self._coming += sign * (migration.step in BEFORE_EVICTION or migration.step is Step.PLANNED)
        for pod in (migration.move.pod, migration.successor):
            if sign > 0:
                self._moved[pod] = None
            else:
                self._moved.pop(pod, None)

    def begins(self, migration: Migration) -> None:
        self._active[migration.id] = migration
        if self._is_counted:
            self._add(migration, 1)

    def ends(self, migration: Migration) -> None:
        if self._active.pop(migration.id, None) is not None and self._is_counted:
            self._add(migration, -1)

    def evicts(self, migration: Migration, now: Millis) -> None:
        self._coming -= 1
        self._evicted[migration.id] = now

    @property
    def free(self) -> int:
        """How many may still begin."""
        return self._config.concurrent - len(self._active)

    # -- before it begins --------------------------------------------------------------------------------------------

    def must_wait(self, migration: Migration, now: Millis) -> bool:
        """Whether too many others are under way for this one to begin now."""
        config = self._config
        if self.free <= 0 or self._counted()._nodes[migration.move.source] >= config.per_node:
            return True
        if config.per_namespace and self._namespaces[migration.move.namespace] >= config.per_namespace:
            return True
        if config.evictions_per_minute and self._recent(now) + self._coming >= config.evictions_per_minute:
            return True
        return self._too_many(migration, 1) is not None and self._others(migration)

    def refuses(self, migration: Migration) -> Reason | None:
        """Why it must not begin, whatever else is under way: asked where it need not wait."""
        return self._too_many(migration, 1)

    def _others(self, migration: Migration) -> bool:
        """Whether others of the same workload or gang are under way: then their ends are waited for."""
        who, group = workload(self._state, migration), gang(self._state, migration)
        self._counted()
        return bool(who and self._workloads[who]) or bool(group and self._groups[group])

    # -- before the eviction -------------------------------------------------------------------------------------------

    def before_eviction(self, migration: Migration, now: Millis) -> Reason | None:
        """Why the pod must not be evicted now, None where it may."""
        most = self._config.evictions_per_minute
        if most and self._recent(now) >= most:
            return "RateLimit", f"{most} pods were evicted within a minute"
        return self._too_many(migration, 0)

    def _recent(self, now: Millis) -> int:
        return sum(at > now - MINUTE for at in self._evicted.values())

    def _too_many(self, migration: Migration, more: int) -> Reason | None:
        """`more`: how many it adds to those that are under way."""
        state, most = self._state, self._config.max_unavailable
        who = workload(state, migration) if most else ""
        if who:
            missing = self._counted()._not_ready(who)
            if missing + self._workloads[who] + more > most:
                return "MaxUnavailable", f"{missing} other pods of its workload are not ready; allowed: {most} in all, with those that move"
        group = gang(state, migration)
        known = state.pod_groups.get(group) if group is not None else None
        if group is not None and known is not None and known.min_member and not _has_ended(state, migration):
            left = self._counted()._ready_members(group, migration.move.pod)
            if left < known.min_member:
                return "GangMinimum", f"{left} other members of PodGroup {'/'.join(group)} are ready; its minMember is {known.min_member}"
        return None

    def _not_ready(self, who: str) -> int:
        """Pods of a workload that do not serve, those that we move aside. One that terminates has its replacement counted."""
        missing = self._missing.get(who)
        if missing is None:
            state, missing = self._state, 0
            for owner in (who, *self._owned_by(who)):
                for uid in state.owned.get(owner, ()):
                    live = state.live[uid]
                    missing += not (live.ready or live.deleting or live.phase in OVER or uid in self._moved)
            self._missing[who] = missing
        return missing

    def _ready_members(self, group: Group, victim: PodUid) -> int:
        """Members that stay ready while all that is under way, and this victim, are away."""
        ready = self._ready.get(group)
        if ready is None:
            live = self._state.live
            ready = self._ready[group] = {
                uid: None
                for uid in self._state.groups.get(group, ())
                if live[uid].ready and not live[uid].deleting and live[uid].phase not in OVER and uid not in self._moved
            }
        return len(ready) - (victim in ready)

    def _owned_by(self, who: str) -> list[str]:
        """Controllers that this one has made: the ReplicaSets of a Deployment."""
        if self._children is None:
            self._children = {}
            for uid, known in self._state.workloads.items():
                self._children.setdefault(known.owner.uid, []).append(uid)
        return self._children.get(who, [])

    # -- time --------------------------------------------------------------------------------------------------------

    def next_eviction(self) -> Millis | None:
        """When another eviction may be decided although nothing happens; None where one may be now."""
        most = self._counted()._config.evictions_per_minute
        times = sorted(at for at in self._evicted.values() if at > self._state.time - MINUTE)
        if not most or len(times) + self._coming < most or not times:
            return None
        return Millis(times[max(len(times) - most, 0)] + MINUTE)


def workload(state: ClusterState, migration: Migration) -> str:
    """The top controller of its pod: that, and for a StatefulSet the name, is the lineage. Empty for a bare pod. A pod that is only
    evicted has no lineage in its record, for it leaves nothing to a successor: what is known of it says whose it is."""
    lineage = migration.lineage
    if not lineage and (pod := state.pods.get(migration.move.pod)) is not None:
        lineage = state.lineage(pod)
    return lineage.partition("/")[0]


def gang(state: ClusterState, migration: Migration) -> Group | None:
    """Its pod's PodGroup."""
    if migration.group:
        namespace, _, name = migration.group.partition("/")
        return namespace, name
    pod = state.pods.get(migration.move.pod)
    return None if pod is None else group_of(pod)


def _has_ended(state: ClusterState, migration: Migration) -> bool:
    live = state.live.get(migration.move.pod)
    return live is not None and live.phase in OVER
