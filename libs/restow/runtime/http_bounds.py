"""What keeps the HTTP of a service from taking all of its process: anybody in the cluster may reach it, and decisions are made on the same thread."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from restow import machine

CONNECTIONS = 100
"""Open at a time: a kubelet's, Prometheus', and those of at most 32 who follow plans. Whoever opens more takes their file descriptors and memory, and says nothing."""
SHARE = 0.05
"""Of the thread's time that the same answer, made anew and anew, may take."""


class BoundedConnections:
    """Makes the protocols of `server`. Where one more comes than `most`, the oldest is ended on which nothing is being answered; where something is on all, the new one is. So
    connections that are merely open, however many there are, keep nobody away who asks. (`cli/bounded_socket` is for asyncio's own loop only, which calls `accept`.)"""

    def __init__(self, server: web.Server, most: int = CONNECTIONS) -> None:
        self._server, self._most = server, most
        self.busy: set[asyncio.BaseProtocol] = set()
        """On which something is being answered."""

    def __call__(self) -> asyncio.BaseProtocol:
        there = [one for one in self._server.connections if one.transport is not None]
        if len(there) >= self._most:
            oldest = next((one for one in there if one not in self.busy), None)
            if oldest is None:
                return _Full()
            oldest.force_close()
        return self._server()


class _Full(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Reused:
    """An answer that is made anew once it is old, by how long it took: 20 times that, so that nobody who asks for it again and again takes more than SHARE."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._made, self._until = b"", float("-inf")

    def __call__(self) -> bytes:
        began = machine.steady()
        if began >= self._until:
            self._made = self._make()
            now = machine.steady()
            self._until = now + (now - began) / SHARE
        return self._made
