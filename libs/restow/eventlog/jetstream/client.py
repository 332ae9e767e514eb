"""nats-py's client with what it lacks for a log: no late sends, no end by a stranger's headers, no fallback to a connection without TLS, and no
task between a message and whoever waits for it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import ParseResult

import nats.errors
from nats.aio.client import DEFAULT_BUFFER_SIZE, Client, Srv
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from restow.eventlog.access import Certificates
from restow.machine.addresses import first_connected

_FIRST_LINE = b"NATS/1.0\r\n"
CLOSING = 0.3
"""Seconds that a connection has for its end, in order; one to a broker that is there takes a few milliseconds."""


class NotEncrypted(nats.errors.Error):
    """The connection would be readable for others."""


class _Encrypted(asyncio.StreamReaderProtocol):
    """One that does not ask to be kept half open when the broker ends: TLS cannot, and asyncio would warn of it each time."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class Connection(TcpTransport):
    """nats-py's, but for its beginning: of a name with several addresses nats-py gives the first one that answers nothing all of its time, at each attempt. And for its end, which nats-py waits for before it looks for another broker, and before a client is closed. TLS waits 30 s for the last word
    of a broker that hangs or whose machine is gone; what is still to be sent to such a one is waited for until the kernel gives up, a quarter of an hour; and
    the end of a connection whose certificates did not suit is never told."""

    def __init__(self, tried: int) -> None:
        """tried: how often one has failed since the last that did not, or was left. Each begins with another address: one may be connected, and nobody is behind it."""
        super().__init__()
        self._tried = tried

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        loop = asyncio.get_running_loop()

        async def opened(address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.wait_for(asyncio.open_connection(*address, limit=buffer_size), connect_timeout)

        named = await asyncio.wait_for(loop.getaddrinfo(uri.hostname, uri.port, type=socket.SOCK_STREAM), connect_timeout)
        addresses = [(str(info[4][0]), int(info[4][1])) for info in named]
        first = self._tried % len(addresses)
        made = await first_connected(addresses[first:] + addresses[:first], opened, lambda made: made[1].transport.abort())
        # (The second pair is kept where TLS begins.)
        self._io_reader, self._io_writer = self._bare_io_reader, self._bare_io_writer = made

    async def connect_tls(self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: int) -> None:
        assert self._io_writer is not None
        reader, loop = asyncio.StreamReader(limit=buffer_size), asyncio.get_running_loop()
        protocol = _Encrypted(reader)
        host = uri if isinstance(uri, str) else uri.hostname
        opening = loop.start_tls(self._io_writer.transport, protocol, ssl_context, server_hostname=host)
        transport = await asyncio.wait_for(opening, connect_timeout)
        assert transport is not None
        self._io_reader, self._io_writer = reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def wait_closed(self) -> None:
        try:
            async with asyncio.timeout(CLOSING):
                await super().wait_closed()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Drop the connection, with all that is not sent yet."""
        for writer in (self._io_writer, self._bare_io_writer):
            if writer is not None:
                writer.transport.abort()


class BrokerClient(Client):
    """nats-py, which sends after a reconnect what it could not send before. Nobody waits for an answer to that any more, and an append among it was
    decided on what the next broker may not have: a copy of its volume that was restored, say.

    And to which headers that are none are the end of the connection: one such message in a stream would end it for every reader, at
    each attempt. What is in the stream is for the fold to judge.

    And which encrypts where the broker says so, whatever the address says: who stands between us could say otherwise, and be told the password.

    And which hands each message to a task of its subscription: every process reads every record, mostly one at a time, so what that costs delays
    placements on the cores that they share (`hear`)."""

    certificates: Certificates | None = None
    """None where the connection need not be encrypted; then the machine's own say whom to believe, if the broker wants it to be."""

    def __init__(self) -> None:
        super().__init__()
        self._hearers: dict[int, Callable[[Msg], None]] = {}
        """By the number of a subscription."""
        self._left: Srv | None = None
        self._times_left = 0

    async def hear(self, subject: str, told: Callable[[Msg], None]) -> Hearing:
        """Subscribe: `told` is called with each message as it is read, in order. It must neither take long nor wait: nothing else is read meanwhile."""

        async def later(message: Msg) -> None:
            told(message)

        subscription = await self.subscribe(subject, cb=later)
        self._hearers[subscription._id] = told
        return Hearing(self, subscription)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        told = self._hearers.get(sid)
        if told is None or sid not in self._subs:
            return await super()._process_msg(sid, subject, reply, data, headers)
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        message = self._build_message(sid, subject, reply, data, await self._process_headers(headers))
        try:
            told(message)
        except Exception as error:
            # As nats-py does with what a callback raises: the connection goes on.
            await self._error_cb(error)

    async def leave(self) -> None:
        """To another broker, where there is one; this one is the last that is tried, and of a name with several addresses another one begins."""
        self._left = self._current_server
        self._times_left += 1
        await self.force_reconnect()

    async def _select_next_server(self) -> None:
        left, self._left = self._left, None
        if left in self._server_pool:
            self._server_pool.remove(left)
            self._server_pool.append(left)
        await super()._select_next_server()

    @property
    def ssl_context(self) -> ssl.SSLContext:
        return super().ssl_context if self.certificates is None else self.certificates.context()

    async def _connect_to_server(self, s: Srv) -> None:
        """Nothing of the connection before is left, nor of an attempt that has failed."""
        if isinstance(self._transport, Connection):
            self._transport.abort()
        s.last_attempt = time.monotonic()
        self._transport = Connection(s.reconnects + self._times_left)
        await self._transport.connect(s.uri, buffer_size=DEFAULT_BUFFER_SIZE, connect_timeout=self.options["connect_timeout"])

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """The broker's first words, before anything is said to it."""
        if initial_connection and self.certificates is not None and not info.get("tls_required"):
            raise NotEncrypted("the broker does not offer TLS on this port, and the settings want it")
        await super()._process_info(info, initial_connection)

    def forget_unsent(self) -> None:
        """Drop what was not sent. Subscriptions are made again in any case."""
        self._pending, self._pending_data_size = [], 0

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        if headers and (usual := _usual(headers)) is not None:
            return usual
        try:
            return await super()._process_headers(headers)
        except (IndexError, UnicodeDecodeError):
            return None


def _usual(headers: bytes) -> dict[str, str] | None:
    """What nats-py reads in headers of printable ASCII without a status, names without blanks and values without blanks around them; None for any others.
    It looks at each character of each name, in Python: a fifteenth of what reading a record costs."""
    if not (headers.startswith(_FIRST_LINE) and headers.endswith(b"\r\n\r\n")):
        return None
    lines = headers[len(_FIRST_LINE) : -4].decode("ascii", "replace").split("\r\n")
    found = {}
    for line in lines:
        name, colon, value = line.partition(": ")
        if not colon or not line.isprintable() or not line.isascii() or " " in name or ":" in name or not name or value != value.strip(" "):
            return None
        found[name] = value
    return found


class Hearing:
    """What `BrokerClient.hear` has subscribed to."""

    def __init__(self, client: BrokerClient, subscription: Subscription) -> None:
        self._client, self._subscription = client, subscription

    async def unsubscribe(self) -> None:
        """Nothing more is told. Raises what nats-py raises."""
        self._client._hearers.pop(self._subscription._id, None)
        await self._subscription.unsubscribe()
