"""The saga's effects for pods that another scheduler places: which controllers' new pods the API gates, and whether it does
(`restow.domain.migration.gating`)."""

import asyncio

from restow import machine
from restow.contracts import commands as c
from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis
from restow.domain.effects import CloseLanding, OpenLanding
from restow.domain.landing_gate import STRETCH
from restow.domain.migration import gating
from restow.domain.records import Migration, Step
from restow.domain.state import ClusterState
from restow.domain.verdicts import ENDED, NOT_GATED
from restow.kube import effects as k
from restow.kube.beside import Beside, Gated, NotGated, PatchOutcome
from restow.kube.retry import Backoff
from restow.runtime.effector import Answer, Report, Retry, Wait, later
from restow.runtime.service import Context

POD_NAME = "statefulset.kubernetes.io/pod-name"
"""A label that the StatefulSet's controller gives to each pod that it makes."""
HEARD = 1.0
"""Seconds after which every API server has heard of an entry: each follows the Landing by a watch of its own, and only one is asked."""
SOON, AGAIN, LATER = 5_000, 0.25, 1.0
"""Whether a successor would be gated is asked again after so many seconds: for so many milliseconds after the decision to evict, and then."""
LACKING = "the Landing cannot be written (is deploy/beside applied?)"


class Landings:
    """One request at a time: an entry is of all moves of its controller's pods."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kube = Beside(context.client, Backoff(attempts=1))
        self._lock = asyncio.Lock()
        self._listed: dict[str, tuple[int, float]] = {}
        """Controller → until when this process has listed it (ms, 0: it has not), and since when it knows of that (steady seconds)."""

    async def open(self, effect: OpenLanding, state: ClusterState) -> Answer:
        migration, controller = state.migrations[effect.migration], effect.controller
        renewed = gating.renewed_at(state, migration)
        if (early := renewed - self._now()) > 0:
            return Wait(early / 1000)
        async with self._lock:
            listed, since = self._listed.get(controller, (0, 0.0))
            had = max(listed, gating.open_until(state, controller))
            # Who was away for long makes it as long as anybody does.
            until = Millis(max(self._now() + STRETCH if renewed else effect.until, had))
            # Of one that was over, nobody has heard that it counts again.
            since = since if had > self._now() else 0.0
            outcome = await self._kube.landing(state.log, {controller: until})
            if isinstance(outcome, k.Done):
                outcome = await self._by_name(migration, state.log, until)
            if isinstance(outcome, k.Done):
                self._listed[controller] = until, since or machine.steady()
                return Report(c.ReportLanding(self._now(), effect.migration, controller, until))
        if isinstance(outcome, k.Refused) and migration.step is Step.HOLDING:
            why = f"{LACKING}: {outcome.code} {outcome.reason} {outcome.message}".strip()
            return Report(c.ReportHold(self._now(), effect.migration, why, landing=True))
        return later(k.Failed(0, "Gone", "the Landing has gone meanwhile") if isinstance(outcome, k.Gone) else outcome)

    async def close(self, effect: CloseLanding, state: ClusterState) -> Answer:
        """The entry stays while another move needs it; this one does not."""
        controller = state.landings[effect.migration].controller
        async with self._lock:
            outcome = await self._by_name(state.migrations[effect.migration], state.log, 0)
            needed = gating.is_needed(state, controller)
            if isinstance(outcome, k.Done) and not needed:
                outcome = await self._kube.landing(state.log, {controller: None})
            # Without the CRD there is no entry.
            if isinstance(outcome, k.Failed) or (isinstance(outcome, k.Refused) and outcome.code != 404):
                return later(outcome)
            if not needed:
                self._listed.pop(controller, None)
        return Report(c.ReportLanding(self._now(), effect.migration))

    async def _by_name(self, migration: Migration, log: str, until: int) -> PatchOutcome:
        """The entry of one successor whose controller is not made yet; `until` 0 takes it off."""
        if not (name := gating.name_of(migration)):
            return k.Done()
        return await self._kube.owners(log, migration.id, migration.move.namespace, [{POD_NAME: name}], until)

    async def not_gated(self, migration: Migration, pod: PodObserved) -> Answer | None:
        """None where the API would gate the pod's successor, now. Otherwise nobody may be evicted: what is to be done instead."""
        assert pod.owner is not None, "a bare pod is never moved"
        # Of what another process has listed it is not known how long ago: it may have been just before it gave up its lead.
        heard = self._listed.setdefault(pod.owner.uid, (0, machine.steady()))[1] + HEARD - machine.steady()
        if heard > 0:
            return Wait(heard)
        match outcome := await self._kube.gated(pod.owner):
            case Gated():
                return None
            case k.Failed():
                return later(outcome)
            case NotGated():
                why = ENDED[NOT_GATED]
            case k.Refused(code=code, reason=reason, message=message):
                why = f"whether the API gates its successor cannot be asked: {code} {reason} {message}".strip()
        if (now := self._now()) < gating.waits_until(migration):
            return Retry(why, AGAIN if now < migration.evicting + SOON else LATER)
        return Report(c.ReportEviction(self._now(), migration.id, NOT_GATED, why))

    def _now(self) -> Millis:
        return self._context.clock.now()
