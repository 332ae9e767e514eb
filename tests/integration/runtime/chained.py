"""The other services: they fold what is in a log, and their commits say what they have read."""

from contextlib import aclosing

from domain.build import NOW

from restow.contracts import commands as c
from restow.contracts.codec import Decision, encode
from restow.contracts.envelope import Envelope
from restow.contracts.times import rfc3339
from restow.domain.fold import fold_record
from restow.domain.gc import decider as collector
from restow.domain.state import ClusterState


class Writer:
    def __init__(self, log):
        self.log, self.state = log, ClusterState()

    async def fold(self):
        """To the log's end."""
        tail = await self.log.tail()
        if self.state.seq < tail:
            async with aclosing(self.log.read(self.state.seq + 1)) as batches:
                async for batch in batches:
                    for r in batch:
                        fold_record(self.state, r.seq, r.family, r.envelope, r.body, self.log.log_id)
                    if self.state.seq >= tail:
                        break
        return self

    async def write(self, *events, family="cluster", command=None):
        await self.fold()
        return await self.say(*events, family=family, command=command)

    async def say(self, *events, family="cluster", command=None):
        """As of what was folded."""
        state = self.state
        given = Envelope(f"{family}-{state.seq}", "/test", rfc3339(NOW), state.seq, f"{family}@1", log=self.log.log_id, digest=state.history.said())
        body = encode([Decision(command or c.Observe("test", "given"), tuple(events))])
        return await self.log.append(family, body, given, expected_last=await self.log.last_of(family))

    async def repair(self):
        await self.fold()
        command = c.RepairLog(NOW, 0 if self.state.broken else 99, "ann", "test")
        return await self.say(*collector.decide(self.state, command), family="gc", command=command)
