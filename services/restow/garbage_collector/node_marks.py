"""Takes away what has ended of all that descheduler services have set on nodes for autoscalers, whichever log it is of (`restow.domain.autoscalers`)."""

import asyncio

from restow.garbage_collector.leftovers import AT_FIRST, EVERY
from restow.kube import decode as d
from restow.kube.effects import Failed, Refused
from restow.kube.node_marks import NodeMarks
from restow.runtime import logs
from restow.runtime.service import Context


class MarksOfNobody:
    def __init__(self, context: Context) -> None:
        self._context, self._nodes = context, NodeMarks(context.client)

    async def run(self) -> None:
        """For ever; the leader alone, and once it knows the nodes."""
        looked = False
        while True:
            await asyncio.sleep(EVERY if looked else AT_FIRST)
            looked = self._context.leadership.leading and d.NODES.name in self._context.state.synced
            if looked:
                await self.look()

    async def look(self) -> None:
        """What a node has of us is a fact. Until when it counts is not: those that have something are read."""
        log = logs.get(family="gc")
        for node in [node for node in self._context.state.nodes.values() if node.marks]:
            outcome = await self._nodes.collect(node.name, node.uid, self._context.clock.now())
            if isinstance(outcome, Failed | Refused):
                log.warning("what Restow has set on a node cannot be looked at, or taken away (is deploy/autoscalers applied?)", node=node.name, reason=str(outcome))
            elif isinstance(outcome, tuple) and outcome:
                log.info("took away what nobody wants any more on a node", node=node.name, marks=list(outcome))
