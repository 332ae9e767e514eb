"""The saga's effects: create and delete holds, evict, and mark a pod so that no late eviction can succeed (DESIGN 5)."""

from collections.abc import Mapping

import msgspec

from restow.contracts import commands as c
from restow.contracts.ids import MigrationId
from restow.domain.effects import AbortEviction, CreateHold, DeleteReservation, Effect, Evict
from restow.domain.migration import hold_manifest
from restow.domain.records import Migration
from restow.domain.state import ClusterState
from restow.kube import crs
from restow.kube import effects as k
from restow.kube.record import Notice, Regarding
from restow.kube.retry import Backoff
from restow.runtime.effector import Answer, Done, Executor, Report, Retry, later
from restow.runtime.service import Context

TRIES = 3
"""Evictions in a row whose precondition failed because the pod had just changed."""


def executors(context: Context) -> Mapping[type[Effect], Executor]:
    effects = _MigrationEffects(context)
    return {
        CreateHold: Executor(effects.create, limit=16),
        Evict: Executor(effects.evict, limit=16, settle=10.0),
        AbortEviction: Executor(effects.abort, limit=16, settle=10.0),
        DeleteReservation: Executor(effects.delete, limit=16),
    }


class _MigrationEffects:
    def __init__(self, context: Context) -> None:
        self._context = context
        once = Backoff(attempts=1)
        self._pods = k.Effects(context.client, once)
        self._holds = crs.Reservations(context.client, once)

    async def create(self, effect: CreateHold, state: ClusterState) -> Answer:
        manifest = hold_manifest(state, state.migrations[effect.migration])
        if manifest is None:
            return Report(c.ReportHold(self._now(), effect.migration, "the pod to be moved is gone"))
        match outcome := await self._holds.create("volcano", msgspec.to_builtins(manifest)):
            case k.Failed():
                return later(outcome)
            case k.Refused(code=code, reason=reason, message=message):
                return Report(c.ReportHold(self._now(), effect.migration, f"{code} {reason} {message}".strip()))
        return Done()

    async def evict(self, effect: Evict, state: ClusterState) -> Answer:
        migration = state.migrations[effect.migration]
        pod = _pod(migration)
        for _ in range(TRIES):
            outcome = await self._pods.evict(pod, migration.deadline)
            if not isinstance(outcome, k.Changed):
                break
        match outcome:
            case k.Failed():
                return later(outcome)
            case k.Changed(message=message):
                return self._report(effect.migration, "Changed", message)
            case k.OverBudget(message=message):
                return self._report(effect.migration, "Budget", message)
            case k.Gone():
                return self._report(effect.migration, "Gone")
            case k.Refused(code=code, reason=reason, message=message):
                return self._report(effect.migration, "Refused", f"{code} {reason} {message}".strip())
        move = migration.move
        self._context.recorder.record(
            Notice(Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid), "Migrating", "Evict",
                   f"evicted from {move.source} to land on {move.target} (migration {migration.id})")
        )
        return Done()

    async def abort(self, effect: AbortEviction, state: ClusterState) -> Answer:
        """A pod that terminates already counts as evicted: the fact decides, not this answer."""
        migration = state.migrations[effect.migration]
        outcome = await self._pods.abort_eviction(_pod(migration), migration.deadline)
        match outcome:
            case k.Failed():
                return later(outcome)
            case k.Done():
                return self._report(effect.migration, "Aborted")
            case k.Gone():
                return self._report(effect.migration, "Gone")
            case k.Refused(code=code, reason=reason, message=message):
                return Retry(f"refused: {code} {reason} {message}", after=5.0)
        return Done()

    async def delete(self, effect: DeleteReservation, state: ClusterState) -> Answer:
        fact = state.reservations[effect.reservation].fact
        outcome = await self._holds.delete(crs.CrRef(fact.door, fact.namespace, fact.name, fact.reservation))
        match outcome:
            case k.Failed():
                return later(outcome)
            case k.Refused(code=code, reason=reason, message=message):
                return Retry(f"refused: {code} {reason} {message}", after=30.0)
        return Done()

    def _report(self, migration: MigrationId, reason: str, message: str = "") -> Report:
        return Report(c.ReportEviction(self._now(), migration, reason, message))

    def _now(self):
        return self._context.clock.now()


def _pod(migration: Migration) -> k.PodRef:
    return k.PodRef(migration.move.namespace, migration.move.name, migration.move.pod)
