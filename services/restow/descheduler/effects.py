"""The saga's effects: create and delete holds, evict, and mark a pod so that no late eviction can succeed."""

from collections.abc import Callable, Mapping

import msgspec

from restow.contracts import commands as c
from restow.contracts.ids import MigrationId, Millis
from restow.descheduler.gang_evictions import GangEvictions
from restow.descheduler.hooks import Hooks
from restow.descheduler.landings import Landings
from restow.descheduler.user_events import of_workload
from restow.domain import thefts
from restow.domain.autoscalers import LEASE
from restow.domain.beside import is_beside
from restow.domain.effects import (
    AbortEviction,
    AskConsent,
    CloseLanding,
    CreateDemandSlot,
    CreateHold,
    DeleteReservation,
    Effect,
    Evict,
    MarkNode,
    OpenLanding,
    TellBounced,
    TellGroupMoves,
    TellWorkload,
    WithdrawRequest,
)
from restow.domain.migration import open_hours
from restow.domain.migration.deadlines import aborts_until
from restow.domain.migration.eviction import may_be_tried, waits_for_budget
from restow.domain.migration.facts import NOT_MARKED
from restow.domain.migration.whole_nodes import is_of_gang
from restow.domain.records import Migration
from restow.domain.state import ClusterState
from restow.domain.statuses import podgroup_migration
from restow.kube import effects as k
from restow.kube import reservation_objects
from restow.kube.event_recorder import Notice, Regarding
from restow.kube.group_moves import GroupMoveEffects
from restow.kube.node_marks import NodeMarks
from restow.kube.reservation_manifest import Manifest, demand_slot_manifest, hold_manifest
from restow.kube.retry import Backoff
from restow.kube.server_clock import ServerClock
from restow.runtime.effector import Answer, Done, Executor, Report, Retry, Wait, later
from restow.runtime.service import Context

TRIES = 3
"""Evictions in a row whose precondition failed because the pod had just changed; then there is a pause."""
MARK_PAUSE = 5.0
"""Seconds until a mark that the API has refused is tried again."""
GANG_PAUSE = 0.1
"""Seconds until it is asked again whether the pods of a gang may leave."""
CLOSED_PAUSE = 1.0
"""Seconds until it is asked again whether pods may move by the clock."""
BUDGET_PAUSE = 2.0
"""Seconds until a budget is asked again, where the API does not say."""


def executors(context: Context, landings: Landings) -> Mapping[type[Effect], Executor]:
    effects, hooks = _MigrationEffects(context, landings), Hooks(context)
    return {
        CreateHold: Executor(effects.create, limit=16),
        Evict: Executor(effects.evict, limit=16, settle=10.0),
        AskConsent: Executor(hooks.ask, limit=256),
        WithdrawRequest: Executor(hooks.withdraw, limit=16),
        TellWorkload: Executor(hooks.tell, limit=64, settle=0),
        OpenLanding: Executor(landings.open, limit=16),
        CloseLanding: Executor(landings.close, limit=16),
        AbortEviction: Executor(effects.abort, limit=16, settle=10.0),
        CreateDemandSlot: Executor(effects.create_demand_slot, limit=4),
        TellGroupMoves: Executor(effects.tell_group, limit=4, settle=0),
        TellBounced: Executor(effects.tell_bounced, limit=4, settle=0),
        DeleteReservation: Executor(effects.delete, limit=16),
        MarkNode: Executor(effects.mark, limit=8),
    }


class _MigrationEffects:
    def __init__(self, context: Context, landings: Landings) -> None:
        self._context, self._landings = context, landings
        once = Backoff(attempts=1)
        self._pods = k.Effects(context.client, once)
        self._gangs = GangEvictions(self._pods, landings, self._refusal)
        self._holds = reservation_objects.Reservations(context.client, once)
        self._groups = GroupMoveEffects(context.client, once)
        self._nodes = NodeMarks(context.client, once)
        self._clock = ServerClock(context.client, self._now)
        self._told: dict[tuple[str, str], tuple[str, int]] = {}
        """PodGroup → its uid and the version that was written last."""
        context.metrics.gauges(lambda: {"lineages_bounced": len(context.state.left_alone), "moves_beside_rest": int(thefts.rests_until(context.state) > 0)})

    async def create(self, effect: CreateHold, state: ClusterState) -> Answer:
        manifest = hold_manifest(state, state.migrations[effect.migration])
        if manifest is None:
            return Report(c.ReportHold(self._now(), effect.migration, "the pod to be moved is gone"))
        return await self._create(manifest, lambda why: c.ReportHold(self._now(), effect.migration, why))

    async def create_demand_slot(self, effect: CreateDemandSlot, state: ClusterState) -> Answer:
        demand_slot = state.demand_slots[effect.name]
        manifest = demand_slot_manifest(state, demand_slot)
        if manifest is None:
            # That the pod is gone is a fact: the plan is cancelled.
            return Done()
        return await self._create(manifest, lambda why: c.ReportSlot(self._now(), demand_slot.plan, effect.name, why))

    async def _create(self, manifest: Manifest, report: Callable[[str], c.Command]) -> Answer:
        match outcome := await self._holds.create("volcano", msgspec.to_builtins(manifest)):
            case k.Failed():
                return later(outcome)
            case k.Refused(code=code, reason=reason, message=message):
                return Report(report(f"{code} {reason} {message}".strip()))
        return Done()

    async def evict(self, effect: Evict, state: ClusterState) -> Answer:
        if not open_hours.is_open(state.migration_config, self._now()):
            # Its plan ends with that, but the log may not take the decision: nobody moves meanwhile.
            return Wait(CLOSED_PAUSE)
        migration = state.migrations[effect.migration]
        pod, victim = _pod(migration), state.fact_of(migration.move.pod)
        foreign = victim is not None and migration.move.target and is_beside(state, migration.shape)
        # At every attempt: the policy may have been deleted since.
        if foreign and victim is not None and (instead := await self._landings.not_gated(migration, victim)) is not None:
            return instead
        if is_of_gang(state, migration):
            if (instead := await self._gangs.not_yet(migration, state)) is not None:
                return instead
            if not may_be_tried(state, migration):
                # What has come while they were asked about: it is looked at again.
                return Wait(GANG_PAUSE)
        for _ in range(TRIES):
            grace = state.migration_config.grace
            outcome = await self._pods.evict(pod, migration.deadline, grace, finished=not migration.move.target)
            if not isinstance(outcome, k.Changed):
                break
        if (instead := self._refusal(migration, outcome)) is not None:
            return instead
        if is_of_gang(state, migration):
            self._gangs.begins(migration, state)
        move = migration.move
        why = f": {move.reason}" if move.reason else ""
        reason, where = ("Migrating", f" to land on {move.target}") if move.target else ("Evicting", "")
        note = f"evicted from {move.source}{where} (migration {migration.id}){why}"
        self._context.recorder.record(Notice(_regarding(pod), reason, "Evict", note))
        return Done()

    def _refusal(self, migration: Migration, outcome: k.EvictOutcome) -> Answer | None:
        """What is to be done where the API does not evict the pod, or would not; None where it does."""
        match outcome:
            case k.Failed():
                return later(outcome)
            case k.Changed(message=message):
                # Until the deadline of the step: others write to the pod, and stop some time.
                return Retry(f"the pod has just changed: {message}")
            case k.InBackground(message=message):
                # Until the deadline of the step: the pod ends when its owner has moved it.
                return Retry(f"its owner moves it by itself: {message}", BUDGET_PAUSE)
            case k.OverBudget(message=message, retry_after=after):
                state, now = self._context.state, self._now()
                has_begun = is_of_gang(state, migration) and self._gangs.has_begun(migration, state) and now < migration.deadline
                if has_begun or waits_for_budget(state, migration, now):
                    self._say_waits(migration, message)
                    return Retry(f"a disruption budget does not allow it: {message}", (after or 0) / 1000 or BUDGET_PAUSE)
                return self._report(migration.id, "Budget", message)
            case k.Gone():
                return self._report(migration.id, "Gone")
            case k.Refused(code=code, reason=reason, message=message):
                return self._report(migration.id, "Refused", f"{code} {reason} {message}".strip())
        return None

    def _say_waits(self, migration: Migration, message: str) -> None:
        what = f"is to move to {migration.move.target}" if migration.move.target else "is to be evicted"
        note = f"{what} (migration {migration.id}); a disruption budget does not allow it yet: {message}"
        self._context.recorder.record(Notice(_regarding(_pod(migration)), "MigrationWaits", "Evict", note))

    async def abort(self, effect: AbortEviction, state: ClusterState) -> Answer:
        """A pod that terminates already counts as evicted: the fact decides, not this answer."""
        migration = state.migrations[effect.migration]
        outcome = await self._pods.abort_eviction(_pod(migration), migration.deadline)
        match outcome:
            case k.Done():
                return self._report(effect.migration, "Aborted")
            case k.Gone():
                return self._report(effect.migration, "Gone")
            case k.Failed(code=code, reason=reason, message=message) | k.Refused(code=code, reason=reason, message=message):
                if self._now() >= aborts_until(state, migration):
                    return self._report(effect.migration, NOT_MARKED, f"{code} {reason} {message}".strip())
                return later(outcome, refused=MARK_PAUSE)
        return Done()

    async def tell_group(self, effect: TellGroupMoves, state: ClusterState) -> Answer:
        """The latest, whatever was asked for. Where the CRD does not know the fields nothing comes of it; the log has the
        truth."""
        group = effect.namespace, effect.group
        fact, moves = state.pod_groups[group], state.group_moves[group]
        if self._told.get(group) == (fact.uid, moves.version):
            return Done()
        infos = podgroup_migration.infos(moves, effect.namespace)
        outcome = await self._groups.write(*group, fact.uid, infos, lambda before: podgroup_migration.states(moves, before))
        if isinstance(outcome, k.Failed | k.Refused):
            return later(outcome)
        self._told[group] = fact.uid, moves.version
        if len(self._told) > 2 * len(state.group_moves) + 64:
            self._told = {known: said for known, said in self._told.items() if known in state.group_moves}
        return Done()

    async def tell_bounced(self, effect: TellBounced, state: ClusterState) -> Answer:
        """On the pods that have come back, and on the node."""
        times = state.left_alone[effect.lineage, effect.node].times  # type: ignore[index]
        if not effect.node:
            return self._tell_disturbed(effect.lineage, times, state)
        note = f"was moved off {effect.node} and has come back {times} times in a row: it is left alone there"
        for uid in state.on_node.get(effect.node, ()):
            pod = state.pods[uid].fact
            if state.lineage(pod) == effect.lineage:
                whom = Regarding("v1", "Pod", pod.namespace, pod.name, uid)
                self._context.recorder.record(Notice(whom, "Bounced", "Migrating", note, "Warning"))
        node = state.nodes.get(effect.node)
        if node is not None:
            said = f"pods of controller {effect.lineage} were moved off and have come back {times} times in a row: they are left alone here"
            self._context.recorder.record(Notice(Regarding("v1", "Node", "", effect.node, node.uid), "Bounced", "Migrating", said, "Warning"))
        return Done()

    def _tell_disturbed(self, lineage: str, times: int, state: ClusterState) -> Answer:
        """One word about all of its pods."""
        known = state.disturbed.get(lineage)
        why = f" ({known.reason})" if known is not None else ""
        note = f"somebody else has disturbed the moves of its workload {times} times in a row{why}: it is left alone for a while"
        whom = of_workload(state, lineage)
        if whom is not None:
            self._context.recorder.record(Notice(whom, "Disturbed", "Migrating", note, "Warning"))
        return Done()

    async def delete(self, effect: DeleteReservation, state: ClusterState) -> Answer:
        fact = state.reservations[effect.reservation].fact
        outcome = await self._holds.delete(reservation_objects.CrRef(fact.api, fact.namespace, fact.name, fact.reservation))
        return later(outcome) if isinstance(outcome, k.Failed | k.Refused) else Done()

    async def mark(self, effect: MarkNode, state: ClusterState) -> Answer:
        """What the node has then is a fact."""
        node = state.nodes[effect.node]
        until = Millis(await self._clock.time() + LEASE)
        outcome = await self._nodes.mark(node.name, node.uid, state.log, protect=effect.protect, plan=effect.plan, until=until)
        return later(outcome) if isinstance(outcome, k.Failed | k.Refused) else Done()

    def _report(self, migration: MigrationId, reason: str, message: str = "") -> Report:
        return Report(c.ReportEviction(self._now(), migration, reason, message))

    def _now(self):
        return self._context.clock.now()


def _regarding(pod: k.PodRef) -> Regarding:
    return Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid)


def _pod(migration: Migration) -> k.PodRef:
    return k.PodRef(migration.move.namespace, migration.move.name, migration.move.pod)
