"""A process that is to lead its family: by a Lease, where there are any, otherwise at once, and the log decides.

The Lease also says which log was read, and how far: it is kept where the broker's disk is not.
"""

import asyncio
import contextlib

from restow.contracts.ids import Family
from restow.domain.history import Mark
from restow.domain.too_old import too_old
from restow.eventlog.port import LogMismatch, reached
from restow.kube.client import ApiStatus, Client
from restow.kube.lease import Elector, LeaseConfig, leading
from restow.runtime.commander import Commander
from restow.runtime.logs import Logger
from restow.runtime.settings import Settings
from restow.runtime.signals import within

LOG_ASKED_EVERY = 2.0
"""Seconds between two looks for a log that was there before."""


class _NoLeases(Exception):
    """Nobody can hold one here."""


class Candidate:
    """`stopping` is set once the service is to stop. `cannot_ask`: why the lease cannot be asked for, empty while it can."""

    def __init__(self, given: Settings, client: Client, commander: Commander, stopping: asyncio.Event, logger: Logger) -> None:
        self.cannot_ask = ""
        self._settings, self._client, self._commander, self._stopping, self._logger = given, client, commander, stopping, logger
        self._log, self._follower, self._leadership = commander.log, commander.follower, commander.leadership
        self._family = commander.decider.family
        self._lease = LeaseConfig.of(given.lease_duration)

    async def lead(self, drained: asyncio.Event) -> None:
        """Claim the family when the lease is ours; hold the lease until the service has `drained`."""
        leadership, s = self._leadership, self._settings
        if why := too_old(self._follower.state):
            # One of the release that understands it is to have the lease.
            self._logger.error("stands by", reason=why)
            await self._stopping.wait()
            return
        if s.lease == "off":
            leadership.claim()
            await self._put_losses_on_record()
            await self._stopping.wait()
            return
        elector = Elector(self._client, s.namespace, lease_name(self._family), s.identity, self._lease, note=self._note, reaches=lambda: reached(self._log))
        if not await self._until_asked(elector):
            return
        async with leading(elector, on_wait=self._waiting_for_lease) as lease:
            self._waiting_for_lease(None)
            self._logger.info("holds the lease")
            await self._commander.to_tail()
            leadership.holds_lease = elector.surely_holds
            leadership.claim()
            leadership.check(self._follower.state)
            lost = asyncio.create_task(lease.lost.wait())
            stopped = asyncio.create_task(drained.wait())
            said = asyncio.create_task(self._put_losses_on_record())
            try:
                await asyncio.wait({lost, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if lost.done():
                    leadership.depose("the lease was lost")
            finally:
                for task in (lost, stopped, said):
                    task.cancel()
                await asyncio.gather(lost, stopped, said, return_exceptions=True)

    # -- what was lost -------------------------------------------------------------------------------------------------

    async def _put_losses_on_record(self) -> None:
        """What only this service knows to be lost, from its Lease or from a snapshot, the others are to know, too: each of them would go on deciding. Where the
        log is said to be broken already, or is not any more, there is nothing to say."""
        follower = self._follower
        while follower.lost is not None and not follower.state.broken:
            # Others may have said so meanwhile, and somebody may have repaired it: said once more behind that, it would be broken again.
            await self._commander.to_tail()
            if (lost := follower.lost) is None or follower.state.broken:
                return
            if await self._commander.loss.testify_for(lost):
                await self._commander.to_tail()
                return
            if await within(self._stopping, LOG_ASKED_EVERY):
                return

    def _note(self, said: str) -> str:
        """What the Lease is to say of the log. What its last holder had read must be there. Raises LogMismatch where that was another log."""
        id, _, mark = said.partition(" ")
        if id and id != self._log.log_id:
            raise LogMismatch(other_log(self._family, said, f"the broker has log {self._log.log_id}"))
        with contextlib.suppress(ValueError):
            self._follower.expect(Mark.read(mark))
        if self._follower.state.broken and self._follower.lost is None:
            # What was read here lacks something. Who has that (from a snapshot, from the archive) is not to find that it was lost.
            return said or self._log.log_id
        return f"{self._log.log_id} {self._follower.mark}"

    # -- the lease -----------------------------------------------------------------------------------------------------

    async def _until_asked(self, elector: Elector) -> bool:
        """Until the API has said who holds the lease, however long it does not answer. Where it says that there are none, this process leads meanwhile. False:
        the service stops."""
        while True:
            try:
                await self._ask_for_lease(elector)
            except _NoLeases as none:
                self._waiting_for_lease(None)
                self._logger.warning("no leases here: leading at once, the log decides", reason=str(none))
                self._leadership.claim()
                if not await self._lease_comes(elector):
                    return False
                self._logger.info("there are leases by now")
            except ApiStatus as error:
                self._waiting_for_lease(error)
                if await within(self._stopping, self._lease.retry):
                    return False
                continue
            return True

    async def _ask_for_lease(self, elector: Elector) -> bool:
        """Whether the lease is ours. Raises _NoLeases where nobody can hold one, without the right to them or without their namespace:
        then the process leads at once, and the log decides. That the namespace may not be looked at says nothing. Raises ApiStatus where the
        API does not say."""
        try:
            if await elector.acquire_or_renew():
                return True
        except ApiStatus as error:
            if error.code in (403, 404, 405, 501) and not error.transient:
                raise _NoLeases(str(error)) from None
            raise
        try:
            await self._client.get(f"/api/v1/namespaces/{self._settings.namespace}")
        except ApiStatus as error:
            if error.code == 404:
                raise _NoLeases(str(error)) from None
        return False

    async def _lease_comes(self, elector: Elector) -> bool:
        """Rights and the namespace may come later than the pod, so one that leads without a lease asks on. False: the service stops. Raises
        Deposed where another process has the lease by then."""
        while True:
            if await within(self._stopping, self._lease.duration):
                return False
            try:
                if await self._ask_for_lease(elector):
                    return True
            except (_NoLeases, ApiStatus):
                continue
            self._leadership.depose("another process holds the lease")

    def _waiting_for_lease(self, error: ApiStatus | None) -> None:
        """None: another holds it. Who cannot ask for the lease could not take over either."""
        before, self.cannot_ask = self.cannot_ask, "" if error is None else f"the Kubernetes API cannot be asked who leads: {error}"
        if self.cannot_ask and self.cannot_ask != before:
            self._logger.warning("cannot ask for the lease", reason=str(error))


def lease_name(family: Family) -> str:
    return f"restow-{family}"


def other_log(family: Family, said: str, there: str) -> str:
    """What is wrong where the Lease tells of a log that is not there."""
    id, _, mark = said.partition(" ")
    upto = ""
    with contextlib.suppress(ValueError):
        upto = f" up to record {Mark.read(mark).seq}"
    return (
        f"the Lease {lease_name(family)} says that log {id} was read{upto}, and {there}: the log is lost. Restore it (docs/install.md, \"Backup and restore\"); or, "
        f"to begin a new one, stop the services and delete their Leases (\"A new log\")"
    )
