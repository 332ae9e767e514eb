"""Puts off the end of what this log has set on nodes, for as long as it wants it. What nobody puts off any more, any collector takes away (`restow.domain.autoscalers`)."""

from restow.contracts.ids import Millis
from restow.domain.autoscalers import LEASE, RENEWED
from restow.domain.migration import emptied
from restow.kube.effects import Failed, Refused
from restow.kube.node_marks import NodeMarks
from restow.kube.server_clock import ServerClock
from restow.runtime import logs
from restow.runtime.rounds import now_and_then
from restow.runtime.service import Context


class NodeLeases:
    def __init__(self, context: Context) -> None:
        self._context, self._nodes = context, NodeMarks(context.client)
        self._clock = ServerClock(context.client, context.clock.now)

    async def run(self) -> None:
        """For ever; the leader alone."""
        await now_and_then(lambda: self._context.leadership.leading, self.round, RENEWED / 1000)

    async def round(self) -> None:
        """A node that cannot be written now has five more rounds until its mark ends."""
        state = self._context.state
        wanted = list(emptied.wanted(state))
        if not wanted:
            return
        until = Millis(await self._clock.time() + LEASE)
        for node, marks in wanted:
            outcome = await self._nodes.renew(node.name, node.uid, state.log, marks, until)
            if isinstance(outcome, Failed | Refused):
                logs.get(family="migration").warning("a mark of ours on a node is not put off", node=node.name, marks=list(marks), reason=str(outcome))
