"""What a batch of commands comes to, and who is told that theirs makes no sense, or came to no end."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from restow.contracts import commands as c
from restow.contracts.codec import Decision, name_of
from restow.domain.decider import Rejected
from restow.domain.state import ClusterState
from restow.runtime.command_queue import Waiting
from restow.runtime.logs import Logger
from restow.runtime.long_decisions import LeaveOut, decided_in_copy
from restow.runtime.offload import CopyFailed, WorkFailed
from restow.runtime.telemetry import Metrics

Propose = Callable[[ClusterState, Sequence[c.Command]], list[Decision]]


class Deciding:
    """On one state, as it is at the moment. `propose` raises Rejected where one of the commands makes no sense."""

    def __init__(self, state: ClusterState, propose: Propose, metrics: Metrics, logger: Logger) -> None:
        self._state, self._propose, self._metrics, self._log = state, propose, metrics, logger

    def decide(self, batch: list[Waiting]) -> list[Decision]:
        """Decisions of the batch. A rejected command is taken out of it, and its submitter is told."""
        try:
            decisions = self._propose(self._state, [w.command for w in batch])
        except Rejected:
            self._reject_some(batch)
            decisions = self._propose(self._state, [w.command for w in batch]) if batch else []
        return _caused(decisions, batch)

    async def aside(self, waiting: Waiting, leave_out: LeaveOut, drains: asyncio.Event) -> list[Decision]:
        """`decide` on a copy of the process. Nobody else writes to our family meanwhile, or the append says so. Raises Rejected, of which its submitter is told; CopyFailed,
        WorkFailed; Refused where this service is to stop (`drains`)."""
        try:
            found = await decided_in_copy(lambda command: self._propose(self._state, [command]), waiting.command, leave_out, drains)
        except Rejected as error:
            self._refuse(waiting, error)
            raise
        if found:
            waiting.command = found[0].command
        return _caused(found, [waiting])

    def came_to_no_end(self, waiting: Waiting, error: CopyFailed | WorkFailed) -> None:
        """The copy that decided took too long, was killed, or failed: the same again would end the same way. Whoever asked is told."""
        name = name_of(waiting.command)
        self._metrics.rejected.inc()
        self._log.error("a decision came to no end", command=name, reason=str(error))
        if isinstance(error, WorkFailed):
            waiting.fail(Rejected(f"{name} failed by a fault of Restow's own, which is worth a report: {error.why}. The service's log says more"))
        else:
            waiting.fail(Rejected(f"{name} came to no end: {error}. Ask for less, or bound what it may search"))

    def _refuse(self, waiting: Waiting, error: Rejected) -> None:
        self._metrics.rejected.inc()
        self._log.warning("rejected", command=name_of(waiting.command), reason=str(error))
        waiting.fail(error)

    def _reject_some(self, batch: list[Waiting]) -> None:
        """Find the commands that make no sense, each on the state that includes the accepted ones before it."""
        accepted: list[Waiting] = []
        for waiting in batch:
            try:
                self._propose(self._state, [*(w.command for w in accepted), waiting.command])
            except Rejected as error:
                self._refuse(waiting, error)
            else:
                accepted.append(waiting)
        batch[:] = accepted


def _caused(decisions: list[Decision], batch: list[Waiting]) -> list[Decision]:
    causes = {id(w.command): w.cause for w in batch}
    return [d if d.cause else msgspec.structs.replace(d, cause=causes.get(id(d.command), "")) for d in decisions]
