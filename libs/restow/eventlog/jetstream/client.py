"""nats-py's client with what it lacks for a log: no late sends, no end by a stranger's headers, no fallback to a connection without TLS."""

from __future__ import annotations

import ssl
from typing import Any

import nats.errors
from nats.aio.client import Client

from restow.eventlog.access import Certificates


class NotEncrypted(nats.errors.Error):
    """The connection would be readable for others."""


class BrokerClient(Client):
    """nats-py, which sends after a reconnect what it could not send before. Nobody waits for an answer to that any more, and an append among it was
    decided on what the next broker may not have: a copy of its volume that was restored, say.

    And to which headers that are none are the end of the connection: one such message in a stream would end it for every reader, at
    each attempt. What is in the stream is for the fold to judge.

    And which encrypts where the broker says so, whatever the address says: who stands between us could say otherwise, and be told the password."""

    certificates: Certificates | None = None
    """None where the connection need not be encrypted; then the machine's own say whom to believe, if the broker wants it to be."""

    @property
    def ssl_context(self) -> ssl.SSLContext:
        return super().ssl_context if self.certificates is None else self.certificates.context()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """The broker's first words, before anything is said to it."""
        if initial_connection and self.certificates is not None and not info.get("tls_required"):
            raise NotEncrypted("the broker does not offer TLS on this port, and the settings want it")
        await super()._process_info(info, initial_connection)

    def forget_unsent(self) -> None:
        """Drop what was not sent. Subscriptions are made again in any case."""
        self._pending, self._pending_data_size = [], 0

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (IndexError, UnicodeDecodeError):
            return None
