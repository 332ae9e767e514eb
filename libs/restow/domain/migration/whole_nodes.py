"""A node that is emptied wholly or not at all (`Planned.whole`): what cannot be finished is not begun (RULES G-13).

All of its pods that wait for nobody's landing hold their slots before the first of them is evicted: a hold that cannot be had costs no
eviction. Then one is evicted after the other, the next when the API has let the one before go: of many requests on their way at once one that is refused would
come too late for the others. When one of its pods stays after all, those that were not evicted yet stay, too. Whose pod waits for others (`after`)
cannot hold first: it begins when these hold, and goes by its own rules then; the second leg of a pod is about no node that is emptied.

A gang that is moved as one (`Move.gang`) goes by the same rules, with all of its pods in the place of a node's, and two that differ: they leave in
one decision, and where one of them stays after that, those whose eviction the API has accepted land all the same.

A pod that left without us, or whose successor came up elsewhere than planned, is no reason to stop: its node is rid of it.
"""

from collections.abc import Callable
from typing import NamedTuple

from restow.contracts.events import Planned
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId
from restow.domain.groups import named
from restow.domain.migration import consents, holds, plan_order
from restow.domain.migration.holds import Reason
from restow.domain.records import Migration, Step
from restow.domain.state import OVER, ClusterState
from restow.domain.whole_gangs import moved_as_one

WHOLE = "Whole"
Source = tuple[str, NodeName]
"""A plan, and one of the nodes that it empties."""
Sources = dict[NodeName, list[MigrationId]]
WAITING = (Step.PLANNED, Step.HOLDING, Step.HELD)


class Whole:
    """What the moves of each node have come to. Made for one decision: every answer is kept."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._members: dict[Source, list[Migration]] = {}
        self._first: dict[Source, list[Migration]] = {}
        self._untouched: dict[Source, bool] = {}
        self._stays: dict[Source, Reason | None] = {}
        self._held: dict[Source, bool] = {}
        self._agree: dict[Source, bool] = {}
        self._changed: dict[str, Millis] = {}
        self._asked: dict[Source, bool] = {}
        self._answers: dict[Source, Reason | None] = {}

    def binds(self, migration: Migration) -> bool:
        """Whether its node is to be emptied wholly, or its gang moved as one."""
        known = self._state.plans.get(PlanId(migration.plan))
        return known is not None and (known.planned.whole or self.is_gang(migration)) and not migration.move.follows

    def is_gang(self, migration: Migration) -> bool:
        return is_of_gang(self._state, migration)

    def holds_first(self, migration: Migration) -> bool:
        """Whether it holds its slot before anybody leaves the node, and waits for that."""
        return self.binds(migration) and not plan_order.before(migration.move)

    def first(self, migration: Migration) -> list[Migration]:
        """Those of its node that hold first."""
        key = self.key(migration)
        if key not in self._first:
            self._first[key] = [one for one in self.members(migration) if self.holds_first(one)]
        return self._first[key]

    def members(self, migration: Migration) -> list[Migration]:
        """All moves of its plan off its node, in the order of the plan."""
        key = self.key(migration)
        known = self._members.get(key)
        if known is None:
            state, plan = self._state, PlanId(migration.plan)
            gang = moved_as_one(state, migration)
            ids = gangs(state, plan).get(gang, ()) if gang else sources(state, plan).get(key[1], ())
            known = self._members[key] = [state.migrations[id] for id in ids if id in state.migrations]
        return known

    def broken(self, migration: Migration) -> Reason | None:
        """Why it must not be evicted any more: another pod stays on its node, or of its gang."""
        if not self.binds(migration):
            return None
        key = self.key(migration)
        if key not in self._stays:
            found = next((one for one in self.members(migration) if has_stayed(self._state, one)), None)
            whose = "gang" if self.is_gang(migration) else "node"
            self._stays[key] = self._newcomer(migration) if found is None else (
                WHOLE, f"another pod of its {whose} stays: migration {found.id} was given up ({found.reason})"
            )  # fmt: skip
        return self._stays[key]

    def _newcomer(self, migration: Migration) -> Reason | None:
        """A pod that its gang has got since the plan was made, before anybody leaves: it holds no slot, and what starts the gang again ends it, too."""
        gang = moved_as_one(self._state, migration)
        if not gang or not self.nobody_left(migration):
            return None
        planned = {one.move.pod for one in self.members(migration)}
        for uid in self._state.groups.get(named(gang), ()):
            pod = self._state.pods[uid]
            if uid not in planned and not pod.live.deleting and pod.live.phase not in OVER:
                return WHOLE, f"its gang has a pod now that the plan does not move: {pod.fact.name}"
        return None

    def all_hold(self, migration: Migration) -> bool:
        """Whether everybody of its node who holds first does, or has gone on from there."""
        key = self.key(migration)
        if key not in self._held:
            self._held[key] = all(_holds(self._state, one) for one in self.first(migration))
        return self._held[key]

    def all_agree(self, migration: Migration) -> bool:
        """Whether every workload of its node that is to be asked before its pod goes has agreed."""
        key = self.key(migration)
        if key not in self._agree:
            self._agree[key] = all(one.step not in WAITING or consents.has_word(self._state, one) for one in self.first(migration))
        return self._agree[key]

    def nobody_left(self, migration: Migration) -> bool:
        """Whether nobody's eviction has been decided yet."""
        key = self.key(migration)
        if key not in self._untouched:
            self._untouched[key] = all(one.step in WAITING for one in self.members(migration))
        return self._untouched[key]

    def one_is_asked(self, migration: Migration) -> bool:
        """Whether the API has not answered yet to the eviction of another one of its node that held first."""
        key = self.key(migration)
        if key not in self._asked:
            self._asked[key] = any(one.step in (Step.EVICTING, Step.ABORTING) for one in self.first(migration))
        return self._asked[key]

    def goes(self, migration: Migration) -> None:
        """Its eviction has just been decided."""
        self._asked[self.key(migration)] = True

    def changed(self, migration: Migration) -> Millis:
        """When a move of its plan has come further last. (A plan has so many moves and steps: this ends.)"""
        if migration.plan not in self._changed:
            state = self._state
            ids = (id for some in sources(state, PlanId(migration.plan)).values() for id in some)
            self._changed[migration.plan] = max((state.migrations[id].since for id in ids if id in state.migrations), default=Millis(0))
        return self._changed[migration.plan]

    def asked_once(self, migration: Migration, ask: Callable[[], Reason | None]) -> Reason | None:
        """What is asked about a gang before anybody of it leaves: the answer is all of its pods', and no question once they leave."""
        key = self.key(migration)
        if key not in self._answers:
            self._answers[key] = ask() if self.nobody_left(migration) else None
        return self._answers[key]

    def key(self, migration: Migration) -> Source:
        """Of its node; of a gang's, that is on many, by the gang's name, which has a `/` as no node's."""
        return migration.plan, NodeName(moved_as_one(self._state, migration)) or migration.move.source


def is_of_gang(state: ClusterState, migration: Migration) -> bool:
    """Whether it is moved with all others of its gang."""
    return bool(moved_as_one(state, migration))


def _holds(state: ClusterState, migration: Migration) -> bool:
    if migration.step is Step.HELD:
        return holds.held(state, migration) and holds.lost(state, migration) is None
    return migration.step not in WAITING


def has_stayed(state: ClusterState, migration: Migration) -> bool:
    """Whether it has been given up, and a pod of it is on the node still, or again."""
    if migration.step not in (Step.ABORTING, *plan_order.BROKEN):
        return False
    for uid in (migration.move.pod, migration.successor):
        live = state.live_of(uid)
        if live is None or live.node != migration.move.source or live.deleting or live.phase in OVER:
            continue
        if state.victims.get(uid) in (None, migration.id):
            # Else another plan takes it away.
            return True
    return False


class _Parts(NamedTuple):
    planned: Planned
    sources: Sources
    gangs: dict[str, list[MigrationId]]


class _Known(dict[PlanId, _Parts]):
    """Of each plan that was asked about."""


def sources(state: ClusterState, plan: PlanId) -> Sources:
    """Of each node that the plan empties its moves."""
    return _parts(state, plan).sources


def gangs(state: ClusterState, plan: PlanId) -> dict[str, list[MigrationId]]:
    """Of each gang that the plan moves as one its moves."""
    return _parts(state, plan).gangs


def _parts(state: ClusterState, plan: PlanId) -> _Parts:
    """Found once a plan."""
    known = state.memo.make(_Known)
    planned = state.plans[plan].planned
    kept = known.get(plan)
    if kept is None or kept.planned is not planned:
        for old in [one for one in known if one not in state.plans]:
            del known[old]
        kept = known[plan] = _Parts(planned, {}, {})
        for move in planned.moves:
            if not move.follows:
                kept.sources.setdefault(move.source, []).append(move.migration)
            if gang := move.gang or planned.gang:
                kept.gangs.setdefault(gang, []).append(move.migration)
    return kept
