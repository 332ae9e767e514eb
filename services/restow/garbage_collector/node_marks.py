"""Takes away what has ended of all that descheduler services have set on nodes for autoscalers, whichever log it is of (`restow.domain.autoscalers`).

Until when a mark counts is said, and asked, by the API server's clock: those of the services that set, renew and collect it may be minutes apart."""

from restow.garbage_collector.leftovers import EVERY
from restow.kube import decode as d
from restow.kube.effects import Failed, Refused
from restow.kube.node_marks import NodeMarks
from restow.kube.server_clock import ServerClock
from restow.runtime import logs
from restow.runtime.rounds import now_and_then
from restow.runtime.service import Context


class MarksOfNobody:
    def __init__(self, context: Context) -> None:
        self._context, self._nodes = context, NodeMarks(context.client)
        self._clock = ServerClock(context.client, context.clock.now)

    async def run(self) -> None:
        """For ever; the leader alone, and once it knows the nodes."""
        context = self._context
        await now_and_then(lambda: context.leadership.leading and d.NODES.name in context.state.synced, self.look, EVERY)

    async def look(self) -> None:
        """What a node has of us is a fact. Until when it counts is not: those that have something are read."""
        log = logs.get(family="gc")
        marked = [node for node in self._context.state.nodes.values() if node.marks]
        if not marked:
            return
        now = await self._clock.time()
        for node in marked:
            outcome = await self._nodes.collect(node.name, node.uid, now)
            if isinstance(outcome, Failed | Refused):
                log.warning("what Restow has set on a node cannot be looked at, or taken away (is deploy/autoscalers applied?)", node=node.name, reason=str(outcome))
            elif isinstance(outcome, tuple) and outcome:
                log.info("took away what nobody wants any more on a node", node=node.name, marks=list(outcome))
