"""Connections in memory between simulated processes: bytes arrive in order, after a while, or the connection is reset."""

import asyncio
import contextvars
from collections import deque
from typing import Any

import aiohttp

from simulation.loop import Process, SimLoop, caller, running


class Listener:
    """What `create_server` returns: a port that a process listens on, until it closes it or dies."""

    def __init__(self, loop: SimLoop, factory: Any, host: str, port: int) -> None:
        self._loop, self.factory, self.port = loop, factory, port
        self.context, self.process = contextvars.copy_context(), running()
        self.sockets = [_Socket((host, port))]
        self._closed = False
        loop.listeners[port] = self

    @property
    def open(self) -> bool:
        return not self._closed and not (self.process is not None and self.process.dead)

    def close(self) -> None:
        self._closed = True
        self._loop.listeners.pop(self.port, None)

    async def wait_closed(self) -> None:
        pass


class _Socket:
    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        return self._name


class Connector(aiohttp.BaseConnector):
    """aiohttp's client on simulated connections."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(limit=64, keepalive_timeout=60)
        self._sim = loop

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:
        try:
            async with asyncio.timeout(timeout.connect or timeout.total or 10.0):
                return await _connect(self._sim, self._factory, req.url.port)
        except OSError as error:
            raise aiohttp.ClientConnectionError(str(error)) from error


async def _connect(loop: SimLoop, factory: Any, port: int) -> Any:
    client = running()
    await asyncio.sleep(loop.lag())
    listener = loop.listeners.get(port)
    if listener is None or not listener.open:
        raise ConnectionRefusedError(111, f"nobody listens on {port}")
    return Connection(loop, client, listener).open(factory())


class Connection:
    """Two transports, one of each side."""

    def __init__(self, loop: SimLoop, client: Process | None, listener: Listener) -> None:
        self.loop, self.client, self.listener = loop, client, listener
        self.sides: list[Transport] = []
        for process in (client, listener.process):
            if process is not None:
                process.connections[self] = None

    def open(self, protocol: Any) -> Any:
        theirs = self.listener.context.copy()
        theirs.run(caller.set, self.client.name if self.client else "user")
        mine, other = Transport(self, 0, contextvars.copy_context()), Transport(self, 1, theirs)
        self.sides = [mine, other]
        mine.protocol = protocol
        protocol.connection_made(mine)
        self.loop.call_soon(self._accept, other, context=theirs)
        return protocol

    def _accept(self, other: "Transport") -> None:
        if not other.lost:
            other.protocol = self.listener.factory()
            other.protocol.connection_made(other)
            other.fresh = True

    def reset(self, by: Process | None = None) -> None:
        """Both sides lose it; who did it at once, the other when it hears of it."""
        for side, process in zip(self.sides, (self.client, self.listener.process), strict=True):
            side.lose(ConnectionResetError(104, "Connection reset by peer"), 0.0 if process is by else self.loop.lag())
        self.forget()

    def forget(self) -> None:
        for process in (self.client, self.listener.process):
            if process is not None:
                process.connections.pop(self, None)


class Transport(asyncio.Transport):
    """One side of a connection."""

    def __init__(self, connection: Connection, side: int, context: contextvars.Context) -> None:
        super().__init__()
        self._connection, self._side, self._context = connection, side, context
        self._loop = connection.loop
        self.protocol: Any = None
        self.closing = self.lost = False
        self.fresh = False
        """Nothing that its opening began has run yet."""
        self._arrives = 0.0
        self._reading = True
        self._unread: deque[bytes] = deque()

    # -- what its owner calls ------------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self.closing or self.lost or not data:
            return
        self._send(Transport._got, bytes(data))
        if self._side == 0 and (after := self._loop.cut()) is not None:
            self._loop.outside(after, self._connection.reset)

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def _send(self, what: Any, *args: Any) -> None:
        """In order: nothing overtakes what was sent before."""
        peer = self._connection.sides[1 - self._side]
        self._arrives = max(self._arrives + 1e-7, self._loop.time() + self._loop.lag())
        self._loop.call_at(self._arrives, what, peer, *args, context=peer._context)

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(ConnectionResetError(104, "Connection reset by peer"))

    def _end(self, theirs: Exception | None) -> None:
        if not self.closing and not self.lost:
            self.closing = True
            self._send(Transport.lose, theirs)
            self.lose(None)

    def is_closing(self) -> bool:
        return self.closing or self.lost

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"peername": ("10.0.0.1", 40_000), "sockname": ("10.0.0.2", self._connection.listener.port)}
        return known.get(name, default)

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        while self._unread and self._reading:
            self.protocol.data_received(self._unread.popleft())

    # -- what arrives --------------------------------------------------------------------------------------------------

    def _got(self, data: bytes) -> None:
        if self.lost or self.closing:
            return
        if self._reading:
            self.protocol.data_received(data)
        else:
            self._unread.append(data)

    def lose(self, error: Exception | None, after: float = 0.0) -> None:
        """The connection is gone, as this side will hear after so many seconds."""
        if self.lost:
            return
        self.closing = True
        self._loop.call_later(after, self._lost, error, context=self._context)

    def _lost(self, error: Exception | None) -> None:
        if self.lost:
            return
        if self.fresh:
            # No loop on sockets tells of both in one turn, as it may be here when a process wakes up.
            self.fresh = False
            self._loop.call_soon(self._lost, error, context=self._context)
            return
        self.lost = True
        self._connection.forget()
        if self.protocol is not None:
            self.protocol.connection_lost(error)
