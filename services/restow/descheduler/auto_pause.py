"""Queries of the policy's `autoPause`: asked while this service leads, and a sample that is not 0 pauses all moves.

A Prometheus that does not answer pauses nothing: a watchman who is away has not called. It is logged once, and the metric says it."""

import asyncio

from restow.contracts import commands as c
from restow.domain.decider import Rejected
from restow.domain.descheduling.sources import Prometheus
from restow.domain.migration import policy_of
from restow.kube.prometheus import MetricsError, asking, vector
from restow.runtime import commander, logs
from restow.runtime.service import Context
from restow.runtime.telemetry import Labelled

LOOK = 5.0
"""Seconds until it is looked again whether there is anything to ask."""
_SHOWN = 120
"""Characters of a query that a reason shows."""


class Watch:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._wrong: str | None = None
        """Why the last round came to no answer; empty where it did, None before the first."""
        context.metrics.labelled(self._answers)

    def _answers(self) -> list[Labelled]:
        rows = [] if self._wrong is None else [((), float(not self._wrong))]
        return [Labelled("auto_pause_queries_answered", "1 where Prometheus has answered every query of autoPause the last time", (), rows)]

    async def run(self) -> None:
        """For ever."""
        while True:
            state = self._context.state
            auto, policy = state.migration_config.auto_pause, policy_of(state)
            source = policy.prometheus if policy is not None and auto.queries and self._context.leadership.leading else None
            if source is not None and not state.pause.since:
                await self._round(source, auto.queries)
            await asyncio.sleep(auto.every / 1000 if source is not None else LOOK)

    async def _round(self, source: Prometheus, queries: tuple[str, ...]) -> None:
        log, before = logs.get(family="migration"), self._wrong
        try:
            why, self._wrong = await self._fires(source, queries), ""
        except MetricsError as error:
            why, self._wrong = "", str(error)
        if self._wrong and not before:
            log.warning("queries of autoPause are not answered, so they pause nothing", reason=self._wrong)
        elif before and not self._wrong:
            log.info("queries of autoPause are answered again")
        if not why:
            return
        try:
            await self._context.commander.submit(c.Pause(self._context.clock.now(), reason=why), cause="autoPause")
        except (Rejected, commander.Refused) as error:
            log.warning("a query of autoPause fires, and moves are not paused", reason=str(error))

    async def _fires(self, source: Prometheus, queries: tuple[str, ...]) -> str:
        """Why to pause; empty for nothing. Raises MetricsError."""
        async with asking(self._context.client, source, own=True) as ask:
            for query in queries:
                for sample in vector(await ask(query), query):
                    if sample.value and not sample.value.is_nan():
                        short = query if len(query) <= _SHOWN else query[: _SHOWN - 1] + "…"
                        return f"autoPause query {short!r} is {sample.said}"
        return ""
