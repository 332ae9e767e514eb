"""Of a gang that is moved as one the API is asked about every eviction before the first is sent: one that is refused then costs nobody anything.

A dry run goes through admission and looks at disruption budgets, and spends none of them; so what a budget allows is held against all of the gang here, by what is known of it."""

import asyncio
from collections.abc import Callable

from restow import machine
from restow.descheduler.landings import Landings
from restow.domain.beside import is_beside
from restow.domain.migration.eviction import is_torn
from restow.domain.migration.whole_nodes import Source, Whole
from restow.domain.protection import Budgets
from restow.domain.records import Migration, Step
from restow.domain.state import ClusterState
from restow.kube import effects as k
from restow.runtime.effector import Answer, Report, Retry, Wait

COUNTS = 2.0
"""Seconds for which what was answered about all of a gang counts: they leave together."""
AT_ONCE = 16
"""Dry runs at a time."""
SOON = 0.5
"""Seconds after which, at the soonest, all of a gang are asked about again: each of it comes with the same question."""
KNOWN, MINUTE = 64, 60.0
"""Gangs that are known, before those are forgotten that nobody has asked about for so many seconds."""
Refusal = Callable[[Migration, k.EvictOutcome], Answer | None]
"""What is to be done where the API does not evict a pod; None where it does."""


class _Round:
    """What was answered last about one gang, and until when that counts (steady seconds)."""

    def __init__(self) -> None:
        self.lock, self.until = asyncio.Lock(), 0.0
        self.answer: Answer | None = None
        self.has_begun = False
        """Whether an eviction was accepted, which the log may not say yet."""


class GangEvictions:
    def __init__(self, pods: k.Effects, landings: Landings, refusal: Refusal) -> None:
        self._pods, self._landings, self._refusal = pods, landings, refusal
        self._rounds: dict[Source, _Round] = {}

    async def not_yet(self, migration: Migration, state: ClusterState) -> Answer | None:
        """None where nobody of its gang would be refused, or others of it have left. Otherwise its pod is not to be evicted: what is to be done instead."""
        known = self._round(migration, state)
        async with known.lock:
            if known.has_begun or is_torn(state, migration):
                return None
            if machine.steady() < known.until:
                # What was said of one of them was reported once.
                return Wait(SOON) if isinstance(known.answer, Report) else known.answer
            known.answer = await self._ask([one for one in Whole(state).members(migration) if one.step is Step.EVICTING], state)
            after = known.answer.after if isinstance(known.answer, Retry | Wait) else COUNTS
            known.until = machine.steady() + max(SOON, min(COUNTS, after))
            return known.answer

    def begins(self, migration: Migration, state: ClusterState) -> None:
        """The API has accepted its eviction."""
        self._round(migration, state).has_begun = True

    def has_begun(self, migration: Migration, state: ClusterState) -> bool:
        """Whether the API has accepted evictions of its gang, as far as this process knows."""
        return self._round(migration, state).has_begun

    def _round(self, migration: Migration, state: ClusterState) -> _Round:
        if len(self._rounds) > KNOWN:
            now = machine.steady()
            self._rounds = {key: one for key, one in self._rounds.items() if one.lock.locked() or now < one.until + MINUTE}
        return self._rounds.setdefault(Whole(state).key(migration), _Round())

    async def _ask(self, gang: list[Migration], state: ClusterState) -> Answer | None:
        owners: dict[str, Migration] = {}
        for one in gang:
            pod = state.fact_of(one.move.pod)
            if pod is not None and pod.owner is not None and one.move.target and is_beside(state, one.shape):
                owners.setdefault(pod.owner.uid, one)
        for one in owners.values():
            pod = state.fact_of(one.move.pod)
            if pod is not None and (instead := await self._landings.not_gated(one, pod)) is not None:
                return instead
        if (over := self._over_budget(gang, state)) is not None:
            return over
        turns = asyncio.Semaphore(AT_ONCE)

        async def dry(one: Migration) -> k.EvictOutcome:
            async with turns:
                return await self._pods.evict(_pod(one), one.deadline, state.migration_config.grace, dry=True)

        outcomes = await asyncio.gather(*map(dry, gang))
        if any(isinstance(outcome, k.Gone | k.AlreadyTerminating) for outcome in outcomes):
            # One has left, which the log does not say yet.
            return None
        for one, outcome in zip(gang, outcomes, strict=True):
            # One that its owner is to move by itself is not refused.
            if not isinstance(outcome, k.InBackground) and (instead := self._refusal(one, outcome)) is not None:
                return instead
        return None

    def _over_budget(self, gang: list[Migration], state: ClusterState) -> Answer | None:
        budgets = Budgets(state)
        for one in gang if state.budgets else ():
            for path in budgets.bind(one.move.pod):
                if (left := budgets.evictions_left(path)) < 0:
                    allowed = state.budgets[path].allowed
                    return self._refusal(one, k.OverBudget(f"the disruption budget {path} allows {allowed} evictions now, {-left} too few for all of its gang"))
        return None


def _pod(migration: Migration) -> k.PodRef:
    return k.PodRef(migration.move.namespace, migration.move.name, migration.move.pod)
