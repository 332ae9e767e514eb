"""A scheduler that has just started does not know nominations of pods that are gated, until they change: guards of old nodes are touched,
each now and then, and all when another kube-scheduler leads."""

import asyncio

from restow import machine
from restow.contracts.ids import PodUid
from restow.domain.beside import nominated
from restow.kube import effects as k
from restow.kube.beside import Beside
from restow.kube.retry import Backoff
from restow.runtime import logs
from restow.runtime.service import Context
from restow.runtime.signals import Bell

EVERY = 10.0
"""Seconds between two touches of a guard: a scheduler may have been restarted without anybody having said so."""
LOOK = 1.0
"""Seconds between two looks at who leads, while there are guards."""


class Nominations:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._kube = Beside(context.client, Backoff(attempts=1))
        self._bell = Bell()
        self._touched: dict[PodUid, float] = {}
        """When each was (steady seconds): also when it was first seen, for its nomination was a change."""
        self._leader = ""

    async def run(self) -> None:
        """For ever; at rest while there are no guards."""
        self._context.follower.listeners.append(self._bell.ring)
        self._context.leadership.changed.append(self._bell.ring)
        self._bell.ring()
        while True:
            await self._bell.wait()
            while self._context.leadership.leading and (guards := nominated(self._context.state)):
                await self._look(guards)
                await asyncio.sleep(LOOK)
            self._touched.clear()

    async def _look(self, guards: list[PodUid]) -> None:
        now = machine.steady()
        said = await self._kube.scheduler()
        # That it may not be read is said once, where each scheduler is asked (`nomination_checks`).
        leader = said if isinstance(said, str) else ""
        changed, self._leader = bool(self._leader) and leader not in ("", self._leader), leader or self._leader
        self._touched = {pod: now - EVERY if changed else self._touched.get(pod, now) for pod in guards}
        for pod, at in list(self._touched.items()):
            if now >= at + EVERY and not await self._touch(pod, now):
                return

    async def _touch(self, pod: PodUid, now: float) -> bool:
        """Whether the API answers."""
        fact = self._context.state.fact_of(pod)
        if fact is None:
            return True
        outcome = await self._kube.touch(k.PodRef(fact.namespace, fact.name, pod), str(self._context.clock.now()))
        if isinstance(outcome, k.Done):
            self._touched[pod] = now
        elif not isinstance(outcome, k.Gone):
            logs.get(family="session").warning("a guard cannot be touched", pod=f"{fact.namespace}/{fact.name}", reason=outcome.message)
        return not isinstance(outcome, k.Failed)
