"""The saga's effects for pods that another scheduler places: which controllers' new pods the API gates, and whether it does
(`restow.domain.migration.gating`).

An entry is a lease. Who lets go what is gated renews it, the session (`restow.scheduler_session.landing_leases`), so that nobody new is gated where it is away. Before
somebody is evicted, the entry of his controller must count for a while longer: whoever has not written it for long, has just taken the lead or was away, renews those of all in one write."""

import asyncio
from collections.abc import Iterable

from restow import machine
from restow.contracts import commands as c
from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis
from restow.domain.effects import CloseLanding, OpenLanding
from restow.domain.landing_gate import LEASE, RENEWED
from restow.domain.migration import gating
from restow.domain.records import Migration, Step
from restow.domain.state import ClusterState
from restow.domain.verdicts import ENDED, NOT_GATED
from restow.kube import effects as k
from restow.kube.beside import Beside, Gated, NotGated, PatchOutcome
from restow.kube.landing_entries import entries
from restow.kube.retry import Backoff
from restow.kube.server_clock import ServerClock
from restow.runtime.effector import Answer, Report, Retry, Wait, later
from restow.runtime.service import Context

HEARD = 1.0
"""Seconds after which every API server has heard of an entry: each follows the Landing by a watch of its own, and only one is asked."""
SOON, AGAIN, LATER = 5_000, 0.25, 1.0
"""Whether a successor would be gated is asked again after so many seconds: for so many milliseconds after the decision to evict, and then."""
ENOUGH = LEASE - 3 * RENEWED
"""Milliseconds for which an entry must count still, by what this process has written, where somebody is evicted."""
LACKING = "the Landing cannot be written (is deploy/beside applied?)"


class Landings:
    """One request at a time: an entry is of all moves of its controller's pods."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kube = Beside(context.client, Backoff(attempts=1))
        self._lock = asyncio.Lock()
        self._clock = ServerClock(context.client, self._now)
        self._listed: dict[str, tuple[int, float]] = {}
        """Controller → until when this process has listed it (ms), and since when that counts (steady seconds). Of what another process has listed it is not
        known how long ago: it may have been just before it gave up its lead."""

    async def _renew(self) -> PatchOutcome:
        """All entries that are needed: one write, after a look at the clock by which they end."""
        await self._clock.look()
        return await self._list(list(gating.listed(self._context.state)))

    async def _list(self, moves: Iterable[tuple[Migration, str]]) -> PatchOutcome:
        until = Millis(self._now() + LEASE)
        said = entries(moves, until + await self._clock.ahead())
        outcome = await self._kube.landing(self._context.state.log, said.open, said.named)
        if isinstance(outcome, k.Done):
            for controller in said.open:
                had, since = self._listed.get(controller, (0, 0.0))
                # Of one that was over, nobody has heard that it counts again.
                self._listed[controller] = until, since if had > self._now() else machine.steady()
        return outcome

    async def open(self, effect: OpenLanding, state: ClusterState) -> Answer:
        migration, controller = state.migrations[effect.migration], effect.controller
        async with self._lock:
            outcome = await self._list([(migration, controller)])
        if isinstance(outcome, k.Done):
            return Report(c.ReportLanding(self._now(), effect.migration, controller, Millis(self._now() + LEASE)))
        if isinstance(outcome, k.Refused) and migration.step is Step.HOLDING:
            why = f"{LACKING}: {outcome.code} {outcome.reason} {outcome.message}".strip()
            return Report(c.ReportHold(self._now(), effect.migration, why, landing=True))
        return later(k.Failed(0, "Gone", "the Landing has gone meanwhile") if isinstance(outcome, k.Gone) else outcome)

    async def close(self, effect: CloseLanding, state: ClusterState) -> Answer:
        """The entry stays while another move needs it; this one does not."""
        migration, controller = state.migrations[effect.migration], state.landings[effect.migration].controller
        async with self._lock:
            needed = gating.is_needed(state, controller)
            entries: dict[str, None] = {} if needed else {controller: None}
            named: dict[str, None] = {migration.id: None} if gating.name_of(migration) else {}
            outcome = await self._kube.landing(state.log, entries, named) if entries or named else k.Done()
            # Without the CRD there is no entry.
            if isinstance(outcome, k.Failed) or (isinstance(outcome, k.Refused) and outcome.code != 404):
                return later(outcome)
            if not needed:
                self._listed.pop(controller, None)
        return Report(c.ReportLanding(self._now(), effect.migration))

    async def not_gated(self, migration: Migration, pod: PodObserved) -> Answer | None:
        """None where the API would gate the pod's successor, now. Otherwise nobody may be evicted: what is to be done instead."""
        assert pod.owner is not None, "a bare pod is never moved"
        if (lacking := await self._lacks_entry(pod.owner.uid)) is not None:
            if isinstance(lacking, k.Failed):
                return later(lacking)
            why = f"its entry in the Landing is not renewed: {lacking}"
        else:
            heard = self._listed[pod.owner.uid][1] + HEARD - machine.steady()
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

    async def _lacks_entry(self, controller: str) -> PatchOutcome | None:
        """None where its entry counts for long enough; otherwise what came of renewing those of all, who have waited for the same."""
        if self._counts(controller):
            return None
        async with self._lock:
            if self._counts(controller):
                return None
            outcome = await self._renew()
        return None if self._counts(controller) else outcome

    def _counts(self, controller: str) -> bool:
        return self._listed.get(controller, (0, 0.0))[0] >= self._now() + ENOUGH

    def _now(self) -> Millis:
        return self._context.clock.now()
