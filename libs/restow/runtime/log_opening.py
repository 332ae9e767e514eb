"""The broker's log, when a service starts: waited for, and made once in a cluster's life."""

import asyncio
from collections.abc import Callable

from restow.contracts.ids import Family
from restow.eventlog import jetstream
from restow.eventlog.port import NoBroker, NoLog, NotLetIn, Unavailable
from restow.kube.client import ApiStatus, Client
from restow.kube.lease import noted
from restow.runtime.candidate import LOG_ASKED_EVERY, lease_name, other_log
from restow.runtime.logs import Logger
from restow.runtime.settings import Settings
from restow.runtime.signals import unless, within

REFUSED_AGAIN = 2.0
"""Seconds until a broker that has not let us in is asked again."""


class LogOpening:
    """`say` is told what is waited for; `stopping` is set once the service is to stop."""

    def __init__(
        self, name: str, family: Family, given: Settings, client: Client, stopping: asyncio.Event, say: Callable[[str], None], logger: Logger
    ) -> None:
        self._name, self._family, self._settings, self._client = name, family, given, client
        self._stopping, self._say, self._logger = stopping, say, logger
        self._missing = ""
        """Why there is no log and none may be made, as it was said last."""

    async def log(self) -> jetstream.JetStreamLog | None:
        """Wait for the broker as long as it takes, also for one that does not let us in: other passwords or TLS reach services and brokers one after the other, and a
        container that ends is started again later each time. A broker that cannot keep the log is fatal. The log is made where there has never been one. None where the
        service is to stop before."""
        s, create = self._settings, self._settings.lease == "off"
        self._say("waiting for the broker")
        while not self._stopping.is_set():
            try:
                log = await unless(self._stopping, jetstream.connect(
                    s.nats_url.split(","), s.cluster, name=f"restow-{self._name}", create=create,
                    user=s.nats_user or None, password=s.nats_password or None, files=s.nats_files, replicas=s.nats_replicas or None,
                ))  # fmt: skip
            except NoLog:
                create = await self._may_be_made()
                continue
            except (NoBroker, NotLetIn, Unavailable) as error:
                self._logger.warning("waiting for the broker", reason=str(error))
                self._say(f"waiting for the broker: {error}")
                if isinstance(error, NotLetIn):
                    # That was said at once; the others have taken their time.
                    await within(self._stopping, REFUSED_AGAIN)
                continue
            if log is not None:
                self._say("starting")
            return log
        return None

    async def _may_be_made(self) -> bool:
        """Whether nobody has read one before. A broker that has lost all of it looks as one that is new, and so does another broker: what begins then on an
        empty log knows of no hold and no move. False after a while, for the log may come back."""
        try:
            said = await noted(self._client, self._settings.namespace, lease_name(self._family))
        except ApiStatus as error:
            why = f"the broker has no log, and the Kubernetes API does not say whether there was one: {error}"
        else:
            if not said:
                return True
            why = other_log(self._family, said, "the broker has none")
        if why != self._missing:
            self._logger.error("waiting for the log", reason=why)
        self._missing = why
        self._say(why)
        await within(self._stopping, LOG_ASKED_EVERY)
        return False
