"""What of the policy's `autoPause` is looked for while this service leads: pods that wait although nothing keeps them, and queries. A sample that is not 0 pauses all moves.

A Prometheus that does not answer pauses nothing, nor does a query that it refuses: a watchman who is away has not called. It is logged once, and the metric says it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from restow.contracts import commands as c
from restow.domain.decider import Rejected
from restow.domain.descheduling.sources import Prometheus
from restow.domain.migration import pause, policy_of
from restow.domain.undecided import Undecided
from restow.kube.prometheus import Ask, MetricsError, Sample, asking, vector
from restow.runtime import command_queue, logs
from restow.runtime.service import Context
from restow.runtime.telemetry import Labelled
from restow.runtime.undecided_gauges import undecided_gauges

LOOK = 5.0
"""Seconds between two looks, at most."""
AT_ONCE = 5
"""Queries that wait for an answer: one that hangs keeps few others, and each answer may take 32 MiB."""
_SHOWN = 120
"""Characters that a reason shows of a query, and of its value: what is too long for the log would pause nothing."""


class Watch:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._undecided = Undecided(context.state)
        self._next = 0
        """When the queries are asked again."""
        self._wrong: str | None = None
        """Why the last round came to no answer; empty where it did, None before the first."""
        context.metrics.labelled(self._answers)
        context.metrics.labelled(lambda: undecided_gauges(self._undecided, context.clock.now()))

    def _answers(self) -> list[Labelled]:
        # Of queries that the policy has no more nobody is to hear.
        asked = self._wrong is not None and bool(self._queries()[1])
        rows = [((), float(not self._wrong))] if asked else []
        return [Labelled("auto_pause_queries_answered", "1 where Prometheus has answered every query of autoPause the last time", (), rows)]

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """For ever. Two, for whoever waits for Prometheus is to keep nobody from looking at pods."""
        return [self._while_leading(self._look_at_pods), self._while_leading(self._look_at_queries)]

    async def _while_leading(self, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            if self._context.leadership.leading:
                await look()
            auto = self._context.state.migration_config.auto_pause
            await asyncio.sleep(min(LOOK, auto.every / 1000) if auto.queries else LOOK)

    async def _look_at_pods(self) -> None:
        state, now = self._context.state, self._context.clock.now()
        if (stop := pause.stuck(state, now, self._undecided.look(now))) is not None:
            await self._pause(stop, "pods wait for a decision")

    async def _look_at_queries(self) -> None:
        state, now = self._context.state, self._context.clock.now()
        every, (source, queries) = state.migration_config.auto_pause.every, self._queries()
        if source is not None and not state.pause.since and not self._next - every <= now < self._next:
            self._next = now + every
            await self._round(source, queries)

    def _queries(self) -> tuple[Prometheus | None, tuple[str, ...]]:
        """What is to be asked, and of whom; None and nothing where the policy has no queries, or names no Prometheus."""
        queries, policy = self._context.state.migration_config.auto_pause.queries, policy_of(self._context.state)
        source = policy.prometheus if policy is not None and queries else None
        return source, queries if source is not None else ()

    async def _round(self, source: Prometheus, queries: tuple[str, ...]) -> None:
        log, before = logs.get(family="migration"), self._wrong
        self._wrong = await self._ask(source, queries)
        if self._wrong and not before:
            log.warning("a query of autoPause is not answered, so it pauses nothing", reason=self._wrong)
        elif before and not self._wrong:
            log.info("queries of autoPause are answered again")

    async def _pause(self, command: c.Pause, what: str) -> None:
        try:
            await self._context.commander.submit(command, cause="autoPause")
        except (Rejected, command_queue.Refused) as error:
            logs.get(family="migration").warning(f"{what}, and moves are not paused", reason=str(error))

    async def _ask(self, source: Prometheus, queries: tuple[str, ...]) -> str:
        """Pause as soon as one fires, whatever the others do. Why one of them was not answered first; empty where all were."""
        few, paused = asyncio.Semaphore(AT_ONCE), False

        async def one(ask: Ask, query: str) -> str:
            async with few:
                try:
                    why = _fired(query, vector(await ask(query), query))
                except MetricsError as error:
                    return str(error)
            nonlocal paused
            if why and not paused:
                # By the first that fires. Whoever has said `resume` since then is not to be paused again by the same round.
                paused = True
                await self._pause(c.Pause(self._context.clock.now(), reason=why), "a query of autoPause fires")
            return ""

        try:
            async with asking(self._context.client, source, own=True) as ask:
                said = await asyncio.gather(*(one(ask, query) for query in queries))
        except MetricsError as error:
            return str(error)
        return next((wrong for wrong in said if wrong), "")


def _fired(query: str, samples: list[Sample]) -> str:
    """Why to pause; empty for nothing."""
    return next((f"autoPause query {_short(query)!r} is {_short(one.said)}" for one in samples if one.value and not one.value.is_nan()), "")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
