"""The session's effects for pods that another scheduler binds: placeholders, and the gate of their successors (`restow.domain.beside`)."""

from restow import machine
from restow.contracts import commands as c
from restow.contracts.events import PodObserved
from restow.contracts.ids import MigrationId, PodUid
from restow.domain.beside import GUARD, NAMESPACES, keeps_slot, let_go_at, placeholder_of, steps_aside_at
from restow.domain.effects import CreatePlaceholder, DeletePlaceholder, Land, LetGo, ListOwners, NominateAgain
from restow.domain.gated import forsaken_at
from restow.domain.state import ClusterState
from restow.kube import effects as k
from restow.kube.beside import Beside, Unkept
from restow.kube.event_recorder import Notice, Regarding
from restow.kube.placeholder import IMAGE, of_slot, priority_of
from restow.kube.retry import Backoff
from restow.kube.server_clock import ServerClock
from restow.runtime.effector import REFUSED, Answer, Done, Report, Wait, later
from restow.runtime.service import Context
from restow.scheduler_session.landing_leases import LandingLeases

LOOK = 0.25
"""Seconds until it is asked again whether a guard is to step aside, or a successor that came without the gate may land: mostly the one before it is bound by then."""

REFUSED_CLAIM = 2.0
"""Seconds until a landing that was refused is tried again: an evicted pod waits for it, and it is not tried for long (`restow.kube.handover.PATIENCE`)."""
AGAIN, RARELY = 0.5, 5.0
"""Seconds between two nominations of one pod, doubled each time, and at most. kube-scheduler 1.36 looks at a pod that did not fit again after one second, then two, up to ten: it is
nominated before that. But whenever a nomination goes, it looks at all that wait."""
MOST = 64
"""Pods that were nominated again, before those are forgotten that are nobody's business any more."""
LONGEST = 10.0
"""Seconds between two looks at the clock for a pod that another installation has gated: its annotation may say an earlier end by then."""
LACKING = " (is deploy/beside applied?)"
NO_RIGHTS = "cannot create resource"
"""What RBAC says, where a quota or somebody's admission says something else by the same code."""
LACKING_RIGHTS = " (is deploy/beside/claims/rights.yaml applied in this namespace, or is it in beside.claimNamespaces of the chart?)"


class BesideEffects:
    """`image`: of placeholders and probes; empty for the one that Kubernetes has itself."""

    def __init__(self, context: Context, leases: LandingLeases, image: str = "") -> None:
        self._context, self._leases, self._image = context, leases, image or IMAGE
        self._kube = Beside(context.client, Backoff(attempts=1), image=self._image)
        self._clock = ServerClock(context.client, context.clock.now)
        self._nominated: dict[PodUid, tuple[float, float]] = {}
        """Until when (steady seconds) a pod that was nominated again is not, and the pause after the next time."""

    async def occupy(self, effect: CreatePlaceholder, state: ClusterState) -> Answer:
        """Where the pod is gone there is nobody to hold for: that is a fact, and ends the move."""
        now = self._context.clock.now()
        manifest = of_slot(state, (effect.reservation, effect.slot), now, self._image)
        if manifest is None:
            return Done()
        if effect.reservation == GUARD:
            migration = state.migrations[MigrationId(effect.slot)]
            move = migration.move
            pod = k.PodRef(move.namespace, move.name, move.pod)
            made = self._kube.guard(manifest, state.shapes[migration.shape].priority, state.log, move.source, pod)
        else:
            made = self._kube.occupy(manifest, priority_of(state, (effect.reservation, effect.slot)), state.log)
        match await made:
            case k.Refused() as refused if keeps_slot(state, (effect.reservation, effect.slot)):
                return later(refused)
            case k.Refused(code=code, reason=reason, message=message):
                why = f"{code} {reason} {message}".strip() + LACKING * (code == 404)
                if code == 403 and NO_RIGHTS in message and manifest.metadata.namespace not in NAMESPACES:
                    why += LACKING_RIGHTS
                return Report(c.RefusePlaceholder(self._context.clock.now(), effect.reservation, effect.slot, why))
            case k.Failed() as failed:
                return later(failed)
        return Done()

    async def vacate(self, effect: DeletePlaceholder, state: ClusterState) -> Answer:
        if (early := steps_aside_at(state, effect.pod) - self._context.clock.now()) > 0:
            return Wait(min(early / 1000, LOOK))
        outcome = await self._kube.vacate(_ref(state.pods[effect.pod].fact))
        return later(outcome) if isinstance(outcome, k.Failed | k.Refused) else Done()

    async def land(self, effect: Land, state: ClusterState) -> Answer:
        """That it is bound, here or elsewhere, or gone, is a fact that follows by itself."""
        pod, body = state.pods[effect.pod].fact, placeholder_of(state, effect.pod)
        placeholder = _ref(state.pods[body].fact) if body is not None else None
        if pod.landing or placeholder is None:
            claims = bool(state.shapes[pod.shape].claim_templates)
            outcome = await self._kube.land(_ref(pod), effect.node, placeholder, state.log, lambda: str(state.placed[pod.pod].node) if pod.pod in state.placed else "", claims)
        elif self._kube.is_landing_free(state.shapes[pod.shape].scheduler):
            # Those that have the gate are not to wait for these.
            return Wait(LOOK)
        else:
            outcome = await self._kube.land_free(_ref(pod), effect.node, placeholder, state.log, state.shapes[pod.shape].scheduler)
        if isinstance(outcome, k.Failed | k.Refused):
            return later(outcome, REFUSED_CLAIM if state.shapes[pod.shape].claim_templates else REFUSED)
        if isinstance(outcome, Unkept):
            why = f"{outcome.why.code} {outcome.why.reason} {outcome.why.message}".strip()
            note = f"{effect.node} and a device of it were held for it, and the API refuses to hand the claim over: {why}. It competes for a device like any other pod"
            self._context.recorder.record(Notice(Regarding("v1", "Pod", pod.namespace, pod.name, pod.pod), "NotHandedOver", "Landing", note, "Warning"))
        if isinstance(outcome, k.Done):
            note = f"{effect.node} was held for it, and is left to it now: {state.shapes[pod.shape].scheduler} binds it"
            self._context.recorder.record(Notice(Regarding("v1", "Pod", pod.namespace, pod.name, pod.pod), "Landing", "Landing", note))
        return Done()

    async def nominate_again(self, effect: NominateAgain, state: ClusterState) -> Answer:
        until, pause = self._nominated.get(effect.pod, (0.0, AGAIN))
        if (left := until - machine.steady()) > 0:
            return Wait(left)
        if len(self._nominated) > MOST:
            self._nominated = {pod: known for pod, known in self._nominated.items() if pod in state.to_land}
        self._nominated[effect.pod] = machine.steady() + pause, min(2 * pause, RARELY)
        outcome = await self._kube.patch_nominated_node(_ref(state.pods[effect.pod].fact), effect.node)
        return later(outcome) if isinstance(outcome, k.Failed | k.Refused) else Done()

    async def list_owners(self, effect: ListOwners, state: ClusterState) -> Answer:
        """Without the CRD nobody is gated: owners go their way, and the capacity is held. So it is where a gate could not be taken away again: one of the
        placeholders is asked, which has none."""
        placeholder = next((pod for (of, _), pod in state.stand_ins.items() if of == effect.reservation and pod in state.pods), None)
        if effect.until and placeholder is not None:
            allowed = await self._kube.let_go(_ref(state.pods[placeholder].fact))
            if isinstance(allowed, k.Failed | k.Refused):
                return later(allowed)
        outcome = await (self._leases.list_owners if effect.until else self._leases.unlist)(effect.reservation)
        if isinstance(outcome, k.Failed) or (isinstance(outcome, k.Refused) and (effect.until or outcome.code != 404)):
            return later(outcome)
        return Done() if effect.until else Report(c.ReportOwners(self._context.clock.now(), effect.reservation))

    async def let_go(self, effect: LetGo, state: ClusterState) -> Answer:
        pod = state.pods[effect.pod].fact
        if (early := await self._early(state, pod)) > 0:
            return Wait(min(early / 1000, LONGEST))
        match await self._kube.let_go(_ref(pod)):
            case k.Refused(code=code, reason=reason, message=message):
                why = f"{code} {reason} {message}".strip()
                note = f"Restow's gate is to be taken off, and the API refuses that: {why}. It is tried again; by hand: remove restow.dev/landing from spec.schedulingGates"
                self._context.recorder.record(Notice(Regarding("v1", "Pod", pod.namespace, pod.name, pod.pod), "NotUngated", "Ungating", note, "Warning"))
                return Report(c.RefuseLetGo(self._context.clock.now(), effect.pod, why))
            case k.Failed() as failed:
                return later(failed)
        return Done()

    async def _early(self, state: ClusterState, pod: PodObserved) -> int:
        """Milliseconds until it may be let go. The API server is asked for its time before another installation's pod is."""
        ahead = 0
        if forsaken_at(state, pod):
            ahead = await self._clock.time() - self._context.clock.now()
        return let_go_at(state, pod.pod, ahead) - self._context.clock.now()


def _ref(pod: PodObserved) -> k.PodRef:
    return k.PodRef(pod.namespace, pod.name, pod.pod)
