"""What keeps the HTTP of a service from taking all of its process: anybody in the cluster may reach it, and decisions are made on the same thread."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from restow import machine

CONNECTIONS = 100
"""Open at a time: a kubelet's, Prometheus', and those of at most 32 who follow plans. Whoever opens more takes their file descriptors and memory, and says nothing."""
SHARE = 0.05
"""Of the thread's time that the same answer, made anew and anew, may take."""
OLDEST = 10.0
"""Seconds that an answer is shown again at most: the process may have been stopped for minutes while it was made (a host that is moved, a debugger)."""


class BoundedConnections:
    """Makes the protocols of a server. Where one more comes than `most`, the oldest is ended on which nothing is being answered; where something is on all, the new one is. So
    connections that are merely open, however many there are, keep nobody away who asks. (`cli/bounded_socket` is for asyncio's own loop only, which calls `accept`.)"""

    def __init__(self, most: int = CONNECTIONS) -> None:
        self._most = most
        self._busy: set[asyncio.BaseProtocol] = set()
        """On which something is being answered."""
        self._server: web.Server | None = None
        self._listening: asyncio.Server | None = None

    async def listen(self, runner: web.AppRunner, host: str | None, port: int) -> tuple[str, int]:
        """In place of aiohttp's TCPSite, of a runner that is set up. The address and port that it has got. Raises OSError."""
        self._server = runner.server
        self._listening = await asyncio.get_running_loop().create_server(self, host, port, reuse_address=True)
        address, bound = self._listening.sockets[0].getsockname()[:2]
        return address, bound

    def close(self) -> None:
        """Listen no longer; those who are there are the runner's to end."""
        if self._listening is not None:
            self._listening.close()

    @contextmanager
    def answering(self, request: web.Request) -> Iterator[None]:
        """Around what answers a request."""
        self._busy.add(request.protocol)
        try:
            yield
        finally:
            self._busy.discard(request.protocol)

    def __call__(self) -> asyncio.BaseProtocol:
        assert self._server is not None
        there = [one for one in self._server.connections if one.transport is not None]
        if len(there) >= self._most:
            oldest = next((one for one in there if one not in self._busy), None)
            if oldest is None:
                return _Full()
            transport = oldest.transport
            oldest.force_close()
            if transport is not None:
                # To close it is to send first what is left: for ever, where nobody reads.
                transport.abort()
        return self._server()


class _Full(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Reused:
    """An answer that is made anew once it is old, by how long it took: 20 times that (at most OLDEST), so that nobody who asks for it again and again takes more than SHARE."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._made, self._until = b"", float("-inf")

    def __call__(self) -> bytes:
        began = machine.steady()
        if began >= self._until:
            self._made = self._make()
            now = machine.steady()
            self._until = now + min((now - began) / SHARE, OLDEST)
        return self._made
