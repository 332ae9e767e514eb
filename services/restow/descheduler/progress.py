"""What has become of plans and migrations since somebody last looked: told to metrics and to people, by the leader alone, from
the fold. What happened while nobody led is in the log, and nowhere else."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from restow.contracts.ids import MigrationId, NodeName, PlanId
from restow.domain.records import FINAL, Migration, Plan, Step
from restow.domain.state import ClusterState
from restow.runtime.service import Context
from restow.runtime.signals import Bell


class Listener(Protocol):
    def planned(self, state: ClusterState, plan: Plan) -> None: ...
    def evicted(self, state: ClusterState, migration: Migration) -> None: ...
    def ended(self, state: ClusterState, migration: Migration, evicted: bool) -> None:
        """`evicted`: its pod was; told before, where it was."""

    def over(self, state: ClusterState, plan: Plan) -> None:
        """Every migration of the plan has ended."""

    def emptied(self, state: ClusterState, node: NodeName, plan: PlanId) -> None:
        """Nobody is on the node any more, which the plan has emptied for somebody to take away."""

    def returned(self, state: ClusterState, node: NodeName, plan: PlanId) -> None:
        """It is anybody's again. Not told of a node that was taken away."""


class Progress:
    """Looks after each commit of its own family."""

    def __init__(self, context: Context, listeners: Sequence[Listener]) -> None:
        self._context, self._listeners = context, listeners
        self._seen = -1
        self._plans: set[PlanId] = set()
        self._open_plans: set[PlanId] = set()
        self._open: dict[MigrationId, Step] = {}
        self._gone: set[MigrationId] = set()
        """Of the open ones those whose pod was evicted, and that was told."""
        self._emptied: dict[NodeName, PlanId] = {}

    async def run(self) -> None:
        """From when the log is caught up, for ever."""
        bell = Bell()
        self._context.follower.listeners.append(bell.ring)
        self.look(tell=False)
        while True:
            await bell.wait()
            self.look(tell=self._context.leadership.leading)
            await asyncio.sleep(0)

    def look(self, *, tell: bool) -> None:
        state = self._context.state
        if state.last["migration"] == self._seen:
            return
        self._seen = state.last["migration"]
        listeners = self._listeners if tell else ()
        self._new_plans(state, listeners)
        self._migrations(state, listeners)
        self._plans_over(state, listeners)
        self._nodes_emptied(state, listeners)

    def _nodes_emptied(self, state: ClusterState, listeners: Sequence[Listener]) -> None:
        before, self._emptied = self._emptied, {node: known.plan for node, known in state.emptied.items() if known.at}
        for node, plan in self._emptied.items():
            if before.get(node) != plan:
                for listener in listeners:
                    listener.emptied(state, node, plan)
        for node, plan in before.items():
            if node not in self._emptied and node in state.nodes:
                for listener in listeners:
                    listener.returned(state, node, plan)

    def _new_plans(self, state: ClusterState, listeners: Sequence[Listener]) -> None:
        # One that waits for a person is told of when that has answered.
        for id in [id for id in state.plans if id not in self._plans and id not in state.proposals]:
            self._plans.add(id)
            plan = state.plans[id]
            self._open_plans.add(id)
            for move in plan.planned.moves:
                migration = state.migrations.get(move.migration)
                if migration is not None and (listeners or migration.step not in FINAL):
                    self._open[move.migration] = Step.PLANNED
            for listener in listeners:
                listener.planned(state, plan)
        if len(self._plans) > 2 * len(state.plans) + 100:
            self._plans &= set(state.plans)

    def _migrations(self, state: ClusterState, listeners: Sequence[Listener]) -> None:
        for id, before in list(self._open.items()):
            migration = state.migrations.get(id)
            if migration is None:
                del self._open[id]
                continue
            if migration.step is before:
                continue
            self._open[id] = migration.step
            if id not in self._gone and (migration.step is Step.EVICTED or (migration.step in FINAL and _was_evicted(migration))):
                self._gone.add(id)
                for listener in listeners:
                    listener.evicted(state, migration)
            if migration.step in FINAL:
                for listener in listeners:
                    listener.ended(state, migration, id in self._gone)
                del self._open[id]
                self._gone.discard(id)

    def _plans_over(self, state: ClusterState, listeners: Sequence[Listener]) -> None:
        busy = {state.migrations[id].plan for id in self._open}
        for id in sorted(self._open_plans - {PlanId(plan) for plan in busy}):
            self._open_plans.discard(id)
            if (plan := state.plans.get(id)) is not None:
                for listener in listeners:
                    listener.over(state, plan)


def _was_evicted(migration: Migration) -> bool:
    """Although nobody has seen it in that step: commits that come together are looked at together."""
    return migration.step is not Step.FAILED or migration.armed > 0
