"""What a process puts on record where the log does not hold what was read of it.

A commit that says nothing but what it follows from tells every reader, also those who come later: they find a record of another history, and nobody decides anything
until the log is repaired.
"""

from collections.abc import Callable

import msgspec

from restow.contracts.codec import encode
from restow.contracts.envelope import Envelope
from restow.domain.history import Mark
from restow.domain.state import ClusterState
from restow.eventlog.port import Conflict, EventLog, LogError, RemembersRead
from restow.runtime.logs import Logger

CONFLICTS = 5
"""Others of the family may append before a process that ends has said what it has read."""


class Loss:
    """Of one family. `envelope` makes that of a commit that follows from so much."""

    def __init__(
        self,
        log: EventLog,
        family: str,
        state: ClusterState,
        envelope: Callable[[int], Envelope],
        logger: Logger,
    ) -> None:
        self._log, self._family, self._state, self._envelope, self._logger = (
            log,
            family,
            state,
            envelope,
            logger,
        )

    async def testify(self) -> None:
        """The log does not hold what we have read of it, and this process ends."""
        if isinstance(self._log, RemembersRead):
            self._log.forget_read()
        await self._put_on_record(self._state.seq, self._state.history.said())

    async def testify_for(self, mark: Mark) -> bool:
        """The log does not hold what somebody has read of it who is gone; whether that is on record now. Where the broker only answered before it had all
        of it, the commit comes behind that, and is like any other."""
        return await self._put_on_record(mark.seq, f"{mark.seq}:{mark.digest.hex()}")

    async def _put_on_record(self, read: int, digest: str) -> bool:
        try:
            for _ in range(CONFLICTS):
                expected = await self._log.last_of(self._family)
                envelope = msgspec.structs.replace(self._envelope(read), digest=digest)
                try:
                    seq = await self._log.append(self._family, encode(()), envelope, expected_last=expected)
                except Conflict:
                    continue
                self._logger.error("the log has lost records; that is on record", read=read, seq=seq)
                return True
        except LogError as error:
            self._logger.warning("what was read cannot be put on record", reason=str(error))
        return False
