"""Looks now and then for what moves beside another scheduler have left in the API, and removes what no move needs (`restow.domain.leftovers`)."""

import asyncio

from restow.domain.leftovers import removable
from restow.kube import leftovers
from restow.kube.client import ApiStatus
from restow.runtime import logs
from restow.runtime.service import Context

EVERY = 300.0
"""Seconds between two looks."""
AT_FIRST = 5.0
"""Seconds until the first one: what a session owes it has done by then."""


class Leftovers:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def run(self) -> None:
        """For ever; the leader alone."""
        pause = AT_FIRST
        while True:
            await asyncio.sleep(pause)
            if self._context.leadership.leading:
                await self.look()
                pause = EVERY

    async def look(self) -> None:
        """What is listed was decided before: the state is asked when it has folded that."""
        context, log = self._context, logs.get(family="gc")
        try:
            found = await leftovers.listed(context.client)
            if not found:
                return
            await context.commander.to_tail()
            for one in removable(context.state, found, context.clock.now()):
                await leftovers.remove(context.client, one)
                what = one.what
                entries = {name: list(said) for name, said in (("entries", one.entries), ("owners", one.owners)) if said}
                log.info("removed what no move needs", kind=what.kind, namespace=what.namespace, name=what.name, of_log=what.log, **entries)
        except ApiStatus as status:
            log.warning("leftovers of moves beside another scheduler stay for now", reason=str(status))
