"""The clock of the API server. Admission compares an entry of a Landing with it: where ours is minutes away, an entry of minutes would never count, or for too long."""

from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from restow.contracts.ids import Millis
from restow.kube.client import ApiStatus, Client

TOLERANCE = 2_000
"""Milliseconds by which it may be away and is taken for ours: it says whole seconds, and its answer takes a while."""


class ServerClock:
    """`now`: our clock."""

    def __init__(self, client: Client, now: Callable[[], Millis]) -> None:
        self._client, self._now = client, now
        self._ahead: int | None = None

    async def look(self) -> None:
        """Compares both. Where the API does not answer, or does not say, what was known before counts."""
        sent = self._now()
        try:
            _, _, date = await self._client.peek("/version")
        except ApiStatus:
            return
        if (said := date_of(date)) is not None:
            self._ahead = _away(int(said.timestamp() * 1000), sent, self._now())

    async def ahead(self) -> int:
        """Milliseconds that it is ahead of ours, less than 0 where it is behind; as it was found last. 0 while nothing is known."""
        if self._ahead is None:
            await self.look()
        return self._ahead or 0

    async def time(self) -> Millis:
        """The instant that it has now, in ms since 1970: it is asked. Where it does not say, what was known before counts."""
        await self.look()
        return Millis(self._now() + (self._ahead or 0))


def date_of(header: str) -> datetime | None:
    """The instant of a header Date, in UTC; None for what is none."""
    try:
        return parsedate_to_datetime(header).astimezone(UTC)
    except ValueError:
        return None


def _away(said: int, sent: int, received: int) -> int:
    """`said`: a whole second, between `sent` and `received` by our clock."""
    found = said - received if said > received else min(0, said + 999 - sent)
    return found if abs(found) > TOLERANCE else 0
