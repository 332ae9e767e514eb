"""Until when our gates count: the entries of the Landing, of moves and of Reservations, and the annotation of pods that wait long for their slot. Each is a lease
(`restow.domain.landing_gate`). Whatever nobody puts off any more ends by itself, and other installations may take it away.

It is the session that puts them off, for it lets go what is gated; and only while it hears of what is gated: it reads a log that is whole, and what the watcher writes there
(`Follower.heard`). So with any of the three away, broker, watcher or session, nobody new is gated before long."""

import asyncio
from collections.abc import Iterable, Mapping

from restow import machine
from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis, ReservationUid
from restow.domain.gated import gated_by
from restow.domain.landing_gate import LEASE, RENEWED
from restow.domain.migration import gating
from restow.domain.records import Migration
from restow.domain.reservation.beside import is_holding, labels_of
from restow.domain.session.beside import waited_for
from restow.kube.effects import Done, Failed, PatchOutcome, PodRef, Refused
from restow.kube.gates import Gates, Missing, Owned, RenewOutcome
from restow.kube.landing_entries import Entries, entries
from restow.kube.retry import Backoff
from restow.kube.server_clock import ServerClock
from restow.runtime import logs
from restow.runtime.rounds import now_and_then
from restow.runtime.service import Context

HEARS = 150.0
"""Seconds for which the session may have read nothing of the watcher, which says each minute how far it sees of pods while any are gated (its `OFTEN`, and the API's bookmarks)."""
SOON = LEASE // 2
"""Milliseconds before its end from when on that of a pod is put off: most have landed by then, and are never written to for this."""


class LandingLeases:
    def __init__(self, context: Context) -> None:
        self._context, self._gates = context, Gates(context.client, Backoff(attempts=1))
        self._clock, self._lock = ServerClock(context.client, self._now), asyncio.Lock()
        self._listed: set[ReservationUid] = set()
        """Reservations whose owners this process has listed: it found that it may let them go."""
        self._missing: frozenset[str] = frozenset()
        """Entries that the last round did not find. Most had been taken off, and their moves were over. One that is wanted in the next round, too, was taken off by
        somebody else, and is made again."""

    async def list_owners(self, uid: ReservationUid) -> PatchOutcome:
        async with self._lock:
            said = Entries({}, {uid: self._owned(uid, await self._until())})
            outcome = await self._gates.landing(self._context.state.log, said.open, said.named)
            if isinstance(outcome, Done):
                self._listed.add(uid)
        return outcome

    async def unlist(self, uid: ReservationUid) -> PatchOutcome:
        async with self._lock:
            self._listed.discard(uid)
            return await self._gates.landing(self._context.state.log, {}, {uid: None})

    async def run(self) -> None:
        """For ever; the leader alone."""
        await now_and_then(self._may, self.round, RENEWED / 1000)

    def _may(self) -> bool:
        follower = self._context.follower
        return self._context.leadership.leading and not follower.broken and machine.steady() - follower.heard.get("cluster", float("-inf")) <= HEARS

    async def round(self) -> None:
        async with self._lock:
            state = self._context.state
            # One that holds nothing for a moment, as between two owners, is no news to whoever lists it.
            self._listed = {uid for uid in self._listed if state.owner_gates.get(uid)}
            holding = [uid for uid in self._listed if is_holding(state, uid)]
            moves, waiting = list(gating.listed(state)), waited_for(state)
            if moves or holding or waiting:
                await self._clock.look()
            if not moves and not holding:
                self._missing = frozenset()
            else:
                for outcome in await self._renewed(holding, moves):
                    self._say(outcome, moves=len(moves), reservations=len(holding))
        for uid in waiting:
            if (pod := self._context.state.fact_of(uid)) is not None:
                await self._keep(pod)

    async def _keep(self, pod: PodObserved) -> None:
        until = self._now() + await self._clock.ahead()
        log, said = gated_by(pod)
        if pod.landing and log == self._context.state.log and said < until + SOON:
            outcome = await self._gates.keep_gated(PodRef(pod.namespace, pod.name, pod.pod), log, until + LEASE)
            self._say(outcome, pod=f"{pod.namespace}/{pod.name}")

    async def _renewed(self, uids: Iterable[ReservationUid], moves: Iterable[tuple[Migration, str]]) -> list[RenewOutcome]:
        """In one request, whatever their number is."""
        log, until, outcomes = self._context.state.log, await self._until(), list[RenewOutcome]()
        said = entries(moves, until)
        said.named.update({uid: self._owned(uid, until) for uid in uids})
        there, missing = said.without(self._missing), said.only(self._missing)
        self._missing = frozenset()
        if there.open or there.named:
            outcomes.append(outcome := await self._gates.renew(log, there.open, there.named))
            if isinstance(outcome, Missing):
                self._missing = outcome.keys
        if missing.open or missing.named:
            outcomes.append(await self._gates.landing(log, missing.open, missing.named))
        return outcomes

    async def _until(self) -> int:
        return self._now() + LEASE + await self._clock.ahead()

    def _now(self) -> Millis:
        return self._context.clock.now()

    def _owned(self, uid: ReservationUid, until: int) -> Owned:
        record = self._context.state.reservations.get(uid)
        return Owned("", [], until) if record is None else Owned(record.fact.namespace, labels_of(record), until)

    def _say(self, outcome: RenewOutcome, **whom: str | int) -> None:
        if isinstance(outcome, Failed | Refused):
            fields: Mapping[str, str | int] = {**whom, "reason": str(outcome)}
            logs.get(family="session").warning("a gate of ours is not renewed", **fields)
