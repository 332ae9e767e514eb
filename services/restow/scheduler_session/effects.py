"""The session's effects: bind, evict, and tell why a pod waits."""

from collections.abc import Mapping

from restow.contracts import commands as c
from restow.contracts.events import PodObserved
from restow.contracts.times import rfc3339
from restow.domain.binding import allocated_from
from restow.domain.effects import (
    Bind,
    BindClaim,
    CreatePlaceholder,
    DeletePlaceholder,
    Effect,
    EvictVictim,
    Land,
    LetGo,
    ListOwners,
    NominateAgain,
    TellNominated,
    TellUnschedulable,
    WritePodGroupStatus,
    WriteQueueStatus,
)
from restow.domain.session.reasons import condition_reason
from restow.domain.session.registry import keeps
from restow.domain.state import ClusterState
from restow.domain.volumes import owed
from restow.kube import effects as k
from restow.kube.claims import ClaimEffects, ClaimRef
from restow.kube.event_recorder import Notice, Regarding
from restow.kube.retry import Backoff
from restow.runtime.effector import Answer, Done, Executor, Report, Retry, Wait, later
from restow.runtime.service import Context
from restow.scheduler_session.beside import BesideEffects
from restow.scheduler_session.landing_leases import LandingLeases
from restow.scheduler_session.status import StatusEffects

ONCE = Backoff(attempts=1)
"""The effect loop tries again itself: it asks before every attempt whether the effect is still owed."""

BINDS = 48
"""Pods that are bound at once, of the client's 64 connections. With a third of it the binds of a burst waited behind the requests of whoever makes the pods."""
KEPT_PAUSE = 1.0
"""Seconds until it is asked again whether a plugin keeps a victim."""
BACKGROUND_PAUSE = 5.0
"""Seconds until an owner is asked again who moves a pod by itself."""


def executors(context: Context, leases: LandingLeases) -> Mapping[type[Effect], Executor]:
    effects, statuses, beside = _SessionEffects(context), StatusEffects(context), BesideEffects(context, leases, context.settings.placeholder_image)
    return {
        Bind: Executor(effects.bind, limit=BINDS),
        BindClaim: Executor(effects.bind_claim, limit=16),
        # The next one of a slot may be needed soon after the first: where the kubelet has rejected who got that one's place.
        CreatePlaceholder: Executor(beside.occupy, limit=16, settle=2.0),
        DeletePlaceholder: Executor(beside.vacate, limit=16),
        Land: Executor(beside.land, limit=16),
        LetGo: Executor(beside.let_go, limit=16),
        # Before its scheduler looks at it again, which is after a second at least.
        NominateAgain: Executor(beside.nominate_again, limit=16, settle=0.5),
        ListOwners: Executor(beside.list_owners, limit=4),
        TellUnschedulable: Executor(effects.tell, limit=4, settle=5.0),
        EvictVictim: Executor(effects.evict, limit=16, settle=10.0),
        TellNominated: Executor(effects.nominate, limit=4, settle=5.0),
        WritePodGroupStatus: Executor(statuses.write_group, limit=4, settle=0, gap=0.5),
        WriteQueueStatus: Executor(statuses.write_queue, limit=2, settle=0, gap=1.0),
    }


class _SessionEffects:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._kube = k.Effects(context.client, ONCE)
        self._claims = ClaimEffects(context.client, ONCE)

    async def bind(self, effect: Bind, state: ClusterState) -> Answer:
        """A pod that is bound elsewhere, or gone, is a fact that follows by itself."""
        pod = state.pods[effect.pod].fact
        ref, fact = k.PodRef(pod.namespace, pod.name, pod.pod), allocated_from(state, effect.pod)
        hold = (fact.name, fact.reservation) if fact is not None else None
        match await self._kube.bind(ref, effect.node, effect.devices, effect.cores, hold):
            case k.Refused(code=409, reason=reason, message=message) if reason != "Terminating":
                return Retry(f"409 {reason} {message}".strip())
            case k.Refused(reason=reason, message=message, code=code):
                return Report(c.RefuseBind(self._context.clock.now(), effect.pod, effect.node, reason or message or str(code)))
            case k.Failed() as failed:
                return later(failed)
            case k.Bound():
                note = f"Successfully assigned {pod.namespace}/{pod.name} to {effect.node}"
                self._context.recorder.record(Notice(_regarding(pod), "Scheduled", "Binding", note))
        return Done()

    async def bind_claim(self, effect: BindClaim, state: ClusterState) -> Answer:
        """What somebody else chose meanwhile, or that claim or volume are gone, are facts that follow by themselves."""
        claim = state.claims.get(effect.claim)
        if claim is None:
            return Done()
        ref = ClaimRef(claim.namespace, claim.name, claim.uid)
        outcome: object
        if effect.volume:
            outcome = await self._claims.prebind(effect.volume, ref)
        else:
            outcome = await self._claims.select_node(ref, effect.node)
        match outcome:
            case k.Refused(code=code, reason=reason, message=message):
                pods = [pod for pod in state.binding if effect in owed(state, pod)]
                if pods:
                    first = min(pods, key=state.order_of)
                    return Report(c.RefuseBind(self._context.clock.now(), first, effect.node, reason or message or str(code)))
            case k.Failed() as failed:
                return later(failed)
        return Done()

    async def evict(self, effect: EvictVictim, state: ClusterState) -> Answer:
        """Tried until it is accepted, or the nomination that it is for has ended: a budget may let it go by then. That it
        terminates, or is gone, is a fact that follows by itself."""
        if keeps(state, effect.pod):
            return Wait(KEPT_PAUSE)
        victim, chosen = state.pods[effect.pod].fact, state.victims_of[effect.pod]
        nomination = state.nominations.get(chosen.by)
        by, node = state.fact_of(chosen.by), state.node_of(effect.pod) or ""
        ref = k.PodRef(victim.namespace, victim.name, victim.pod)
        match await self._kube.evict(ref, nomination.deadline if nomination is not None else chosen.since):
            case k.Accepted():
                self._say_preempted(victim, by, node, chosen.action)
            case k.OverBudget(message=message, retry_after=after):
                return Retry(f"a disruption budget does not allow it: {message}", (after or 0) / 1000)
            case k.InBackground(message=message):
                return Retry(f"its owner moves it by itself: {message}", BACKGROUND_PAUSE)
            case k.Changed(message=message):
                return Retry(f"the pod has just changed: {message}")
            case k.Failed() as failed:
                return later(failed)
            case k.Refused(code=code, reason=reason, message=message):
                why = f"{code} {reason} {message}".strip()
                return Report(c.RefusePreemption(self._context.clock.now(), effect.pod, why))
        return Done()

    def _say_preempted(self, victim: PodObserved, by: PodObserved | None, node: str, action: str) -> None:
        """With the reason that people know from kube-scheduler."""
        whom = f"pod {by.namespace}/{by.name}" if by is not None else "another pod"
        note = f"Preempted by {whom} on node {node} (action {action})"
        self._context.recorder.record(Notice(_regarding(victim), "Preempted", "Preempting", note))

    async def nominate(self, effect: TellNominated, state: ClusterState) -> Answer:
        pod = state.pods[effect.pod].fact
        outcome = await self._kube.patch_nominated_node(k.PodRef(pod.namespace, pod.name, pod.pod), effect.node)
        if isinstance(outcome, k.Failed):
            return later(outcome)
        return Done()

    async def tell(self, effect: TellUnschedulable, state: ClusterState) -> Answer:
        pod, message = state.pods[effect.pod].fact, effect.message
        waiting = state.waiting.get(state.parked[effect.pod][0]) if effect.pod in state.parked else None
        if waiting is None:
            return Done()
        outcome = await self._kube.patch_pod_condition(
            k.PodRef(pod.namespace, pod.name, pod.pod), "False", condition_reason(waiting), message, rfc3339(waiting.at)
        )
        if isinstance(outcome, k.Failed):
            return later(outcome)
        self._context.recorder.record(Notice(_regarding(pod), "FailedScheduling", "Scheduling", message, "Warning"))
        return Done()


def _regarding(pod: PodObserved) -> Regarding:
    return Regarding("v1", "Pod", pod.namespace, pod.name, pod.pod)
