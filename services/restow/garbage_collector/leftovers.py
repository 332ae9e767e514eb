"""Looks now and then for what moves beside another scheduler have left in the API, and removes what no move needs (`restow.domain.leftovers`).

How old that is goes by the API server's clock, for it says when a pod was made: where ours is behind, a probe of a session that was killed would stay for as long, and where ours
is ahead, the canaries of one that runs would go at once."""

from typing import Any

from restow.domain.leftovers import removable
from restow.domain.nomination_checks import schedulers
from restow.kube import leftovers
from restow.kube.client import ApiStatus
from restow.kube.server_clock import ServerClock
from restow.runtime import logs
from restow.runtime.rounds import now_and_then
from restow.runtime.service import Context

EVERY = 300.0
"""Seconds between two looks."""


class Leftovers:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._clock = ServerClock(context.client, context.clock.now)

    async def run(self) -> None:
        """For ever; the leader alone."""
        await now_and_then(lambda: self._context.leadership.leading, self.look, EVERY)

    async def look(self) -> None:
        """What is listed was decided before: the state is asked when it has folded that."""
        context, log = self._context, logs.get(family="gc")
        try:
            found = await leftovers.listed(context.client, context.state.namespaces, self._forbidden, context.state.migration_config.claim_namespaces)
            if not found:
                return
            await context.commander.to_tail()
            now = await self._clock.time()
        except ApiStatus as status:
            log.warning("leftovers of moves beside another scheduler stay for now", reason=str(status))
            return
        for one in removable(context.state, found, now):
            what = one.what
            about: dict[str, Any] = {"kind": what.kind, "namespace": what.namespace, "name": what.name, "of_log": what.log}
            about |= {name: list(said) for name, said in (("entries", one.entries), ("owners", one.owners)) if said}
            try:
                await leftovers.remove(context.client, one)
            except ApiStatus as status:
                if status.code in (0, 429):
                    log.warning("leftovers of moves beside another scheduler stay for now", reason=str(status))
                    return
                # The others go all the same.
                log.warning("what no move needs cannot be removed", **about, reason=str(status))
                continue
            log.info("removed what no move needs", **about)

    def _forbidden(self, status: ApiStatus) -> None:
        """As it should be where nobody has ever moved beside another scheduler."""
        if schedulers(self._context.state):
            logs.get(family="gc").warning("leftovers of moves beside another scheduler cannot be listed (is deploy/beside applied?)", reason=str(status))
