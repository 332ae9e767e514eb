"""The saga's effects for pods that another scheduler places: which controllers' new pods the API gates, and whether it does
(`restow.domain.migration.gating`).

An entry is a lease. This makes it; who lets go what is gated renews it, the session (`restow.scheduler_session.landing_leases`), and nobody else, so that nobody new is gated where
that is away. For the same reason nobody is evicted whose entry was not made or renewed a moment ago: there might be nobody to let the successor go."""

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
from restow.kube.effects import PatchOutcome
from restow.kube.gates import Gated, Gates, NotGated
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
"""Milliseconds for which an entry must count still where somebody is evicted: one that counts for less was not renewed three times in a row."""
LACKING = "the Landing cannot be written (is deploy/beside applied?)"


class Landings:
    """One request at a time: an entry is of all moves of its controller's pods."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._gates = Gates(context.client, Backoff(attempts=1))
        self._lock = asyncio.Lock()
        self._clock = ServerClock(context.client, self._now)
        self._counts: dict[str, tuple[int, float]] = {}
        """Controller → until when its entry counts (ms), and since when this process knows that it does (steady seconds): it may have been made by another one just before."""

    async def _list(self, moves: Iterable[tuple[Migration, str]]) -> PatchOutcome:
        until = Millis(self._now() + LEASE)
        said = entries(moves, until + await self._clock.ahead())
        outcome = await self._gates.landing(self._context.state.log, said.open, said.named)
        if isinstance(outcome, k.Done):
            for controller in said.open:
                self._note(controller, until)
        return outcome

    def _note(self, controller: str, until: int) -> float:
        """Since when it counts. Of one that was over, nobody has heard that it counts again."""
        had, since = self._counts.get(controller, (0, 0.0))
        self._counts[controller] = until, since if had > self._now() else machine.steady()
        return self._counts[controller][1]

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
        """The entry stays while another move needs it; this one does not. Where that one has not said so itself yet, it is this one's to take off still: the other
        may end before it does."""
        migration, controller = state.migrations[effect.migration], state.landings[effect.migration].controller
        async with self._lock:
            needed = gating.is_needed(state, controller)
            if needed and not any(of == controller for _, of in gating.listed(state)):
                return Wait(LATER)
            entries: dict[str, None] = {} if needed else {controller: None}
            named: dict[str, None] = {migration.id: None} if gating.name_of(migration) else {}
            outcome = await self._gates.landing(state.log, entries, named) if entries or named else k.Done()
            # Without the CRD there is no entry.
            if isinstance(outcome, k.Failed) or (isinstance(outcome, k.Refused) and outcome.code != 404):
                return later(outcome)
            if not needed:
                self._counts.pop(controller, None)
        return Report(c.ReportLanding(self._now(), effect.migration))

    async def not_gated(self, migration: Migration, pod: PodObserved) -> Answer | None:
        """None where the API would gate the pod's successor, now. Otherwise nobody may be evicted: what is to be done instead."""
        assert pod.owner is not None, "a bare pod is never moved"
        match outcome := await self._gates.gated(pod.owner):
            case Gated(until=said):
                until = await self._by_our_clock(said)
                if (left := until - self._now()) >= ENOUGH:
                    heard = self._note(pod.owner.uid, until) + HEARD - machine.steady()
                    return Wait(heard) if heard > 0 else None
                why = f"its entry in the Landing is not renewed (it ends in {max(0, left) // 1000} s): the session, which would let its successor go, may be away"
            case k.Failed():
                return later(outcome)
            case NotGated():
                why = ENDED[NOT_GATED]
            case k.Refused(code=code, reason=reason, message=message):
                why = f"whether the API gates its successor cannot be asked: {code} {reason} {message}".strip()
        if (now := self._now()) < gating.waits_until(migration):
            return Retry(why, AGAIN if now < migration.evicting + SOON else LATER)
        return Report(c.ReportEviction(self._now(), migration.id, NOT_GATED, why))

    async def _by_our_clock(self, said: int) -> Millis:
        """An instant of the API's clock. It is asked for anew where nobody could have made an entry until then."""
        until = Millis(said - await self._clock.ahead())
        if not ENOUGH <= until - self._now() <= LEASE:
            await self._clock.look()
            until = Millis(said - await self._clock.ahead())
        return until

    def _now(self) -> Millis:
        return self._context.clock.now()
