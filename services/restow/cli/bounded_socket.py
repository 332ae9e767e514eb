"""A listening socket with a bound on the connections that it has open, those in the middle of a TLS handshake among them."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any


class BoundedSocket(socket.socket):
    """Where one more comes than `most`, the oldest that nobody has marked `busy` is ended. Where all are busy, the new one is. So idle connections,
    however many somebody opens, keep nobody away who asks.

    asyncio calls `accept`, up to its backlog in one turn of the loop; what is ended here it closes in the next."""

    def __init__(self, most: int) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._most = most
        self._open: dict[int, socket.socket] = {}
        """By file number, the oldest first."""
        self.busy: set[int] = set()
        """File numbers of connections on which something is being answered."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises ConnectionAbortedError where there is no room: asyncio passes over it."""
        connection, address = super().accept()
        self._open = {number: one for number, one in self._open.items() if one.fileno() == number}
        if len(self._open) >= self._most:
            oldest = next((number for number in self._open if number not in self.busy), None)
            if oldest is None:
                connection.close()
                raise ConnectionAbortedError(f"{self._most} connections are busy")
            self._end(self._open.pop(oldest))
        self._open[connection.fileno()] = connection
        return connection, address

    @staticmethod
    def _end(connection: socket.socket) -> None:
        """Its transport reads the end, and closes it; of one that its peer has reset it hears by itself."""
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
