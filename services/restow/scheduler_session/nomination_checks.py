"""Asks each scheduler whose pods may be moved whether it honours nominations, and reports that (`restow.domain.nomination_checks`): when this process begins to
lead, when that scheduler has another leader, and again where it came to nothing. Only the leader asks."""

import asyncio
from collections.abc import Iterable

from restow import machine
from restow.contracts import commands as c
from restow.domain import nomination_checks as rules
from restow.domain.decider import Rejected
from restow.kube import canaries
from restow.kube.beside import Beside
from restow.kube.client import ApiStatus
from restow.kube.event_recorder import Notice, Regarding
from restow.kube.placeholder import IMAGE, NAMESPACE
from restow.kube.retry import Backoff
from restow.runtime import logs
from restow.runtime.command_queue import Refused
from restow.runtime.service import Context
from restow.runtime.telemetry import Labelled

LOOK = 0.25
"""Seconds between two looks at what is due."""
LEADER = 10.0
"""Seconds for which it is not asked again who leads the scheduler."""
STOCK = "default-scheduler"
"""Of other schedulers nobody knows what their Lease is called."""


class NominationChecks:
    """`image`: of the canaries; empty for the one that Kubernetes has itself."""

    def __init__(self, context: Context, image: str = "") -> None:
        self._context, self._image = context, image or IMAGE
        self._kube = Beside(context.client, Backoff(attempts=1))
        self._asked: dict[str, str] = {}
        """Schedulers that were asked since this process leads, and who led them then."""
        self._leader, self._heard, self._said = "", -LEADER, False
        context.health.notes.append(self._note)
        context.metrics.labelled(self._gauges)

    async def run(self) -> None:
        """For ever."""
        while True:
            if self._context.leadership.leading:
                for scheduler in rules.schedulers(self._context.state):
                    await self._look(scheduler)
            await asyncio.sleep(LOOK)

    async def _look(self, scheduler: str) -> None:
        leader = await self._led(scheduler)
        state, now = self._context.state, self._context.clock.now()
        known = state.nominations_checked.get(scheduler)
        # Where it came to nothing the pauses grow to an hour; a scheduler that is there again, by its Lease, is not waited for so long.
        returned = scheduler in self._asked and bool(leader) and leader != self._asked[scheduler]
        again = returned or (scheduler not in self._asked and (known is None or not known.failed))
        if (not again and rules.due(state, scheduler, leader) > now) or rules.obstacle(state):
            return
        self._asked[scheduler] = leader
        said, why = await self._ask(scheduler, 0 if known is None else known.failed)
        report = c.ReportNominations(self._context.clock.now(), scheduler, said, why, leader)
        try:
            await self._context.commander.submit(report, "canary")
        except (Refused, Rejected):
            return  # It is asked again.
        if told := rules.sentence(self._context.state, scheduler):
            whom = Regarding("v1", "Namespace", "", NAMESPACE, "")
            self._context.recorder.record(Notice(whom, "NominationsIgnored" if said == rules.IGNORED else "NominationsUnknown", "Check", told, "Warning"))

    async def _ask(self, scheduler: str, turn: int) -> tuple[str, str]:
        """Those that an earlier process has left behind go first: they would answer for ours."""
        context = self._context
        node = rules.node(context.state, turn)
        assert node is not None, "there is no obstacle"
        try:
            await canaries.sweep(context.client, context.state.log)
            verdict = await canaries.honours_nominations(context.client, scheduler, node, context.state.log, machine.token(8), image=self._image)
        except ApiStatus as status:
            return rules.UNKNOWN, f"{status.code} {status.reason} {status.message}".strip()
        return verdict.said, verdict.why

    async def _led(self, scheduler: str) -> str:
        """Who holds its Lease; what was heard last where the API does not say."""
        if scheduler != STOCK or machine.steady() < self._heard + LEADER:
            return self._leader if scheduler == STOCK else ""
        self._heard = machine.steady()
        heard = await self._kube.scheduler()
        if isinstance(heard, str):
            self._leader = heard or self._leader
        elif not self._said:
            self._said = True
            why = "who leads it cannot be read: it is asked once a day, and another leader hears of nominations within ten seconds"
            logs.get(family="session").warning(why, scheduler=scheduler, reason=f"{heard.code} {heard.reason} {heard.message}".strip())
        return self._leader

    # -- what is said ------------------------------------------------------------------------------------------------------

    def _note(self) -> str:
        state = self._context.state
        return "; ".join(filter(None, (rules.sentence(state, name) for name in rules.schedulers(state))))

    def _gauges(self) -> Iterable[Labelled]:
        state = self._context.state
        rows = [((name,), float(rules.verdict(state, name) == rules.HONOURED)) for name in rules.schedulers(state)]
        yield Labelled("nominations_honoured", "1 where a scheduler beside ours honours nominations, as far as is known", ("scheduler",), rows)
