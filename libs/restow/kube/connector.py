"""Connections of HTTP clients in services, whose event loop is uvloop.

aiohttp connects each socket itself (`loop.sock_connect`, by aiohappyeyeballs) and hands it to the loop afterwards. On uvloop (0.23) neither bears a connection that is
refused or given up meanwhile: the loop goes on watching a descriptor that is closed, at which libuv ends the process by SIGABRT, without a word in its log (libuv#5130), or a
descriptor is closed twice, and the second time it is another connection's (uvloop#738). Whatever uvloop connects itself it also ends itself.
"""

import asyncio
import errno
from typing import Any

import aiohttp

NEXT = 0.3
"""Seconds until the next address of a name is tried, too (RFC 8305, and as long as Go's clients wait): an address that answers nothing must not cost each connection its time."""

HANDSHAKE = 10.0
"""Seconds that a TLS handshake may take, as with Go's clients; uvloop gives it 60."""

UNWANTED = 3.0
"""Seconds that an attempt which nobody waits for any more has to come to its end by itself."""


class Connector(aiohttp.TCPConnector):
    """Of the addresses of a name the first one that is connected, with its TLS handshake, is taken."""

    async def _wrap_create_connection(self, *args: Any, addr_infos: list[Any], req: Any, timeout: aiohttp.ClientTimeout, **kwargs: Any) -> Any:
        left, failed = list(addr_infos), None
        trying: set[asyncio.Future[Any]] = set()
        if kwargs.get("ssl"):
            kwargs["ssl_handshake_timeout"] = HANDSHAKE
        try:
            while left or trying:
                if left:
                    host, port = left.pop(0)[4][:2]
                    trying.add(asyncio.ensure_future(self._wrap_existing_connection(*args, host=host, port=port, req=req, timeout=timeout, **kwargs)))
                done, trying = await asyncio.wait(trying, timeout=NEXT if left else None, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    if (error := one.exception()) is None:
                        trying |= done - {one}
                        return one.result()
                    failed = _said(error, req)
        finally:
            for one in trying:
                _unwanted(one)
        addr_infos.clear()  # aiohttp would take one of each family off and try the others again.
        assert failed is not None
        raise failed


def _said(error: BaseException, req: Any) -> BaseException:
    """uvloop's error of a handshake that takes too long has no number, so that aiohttp says nothing but [None]."""
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionAbortedError) and error.os_error.errno is None:
        return aiohttp.ClientConnectorError(req.connection_key, TimeoutError(errno.ETIMEDOUT, f"no TLS handshake within {HANDSHAKE:g} s"))
    return error


def _unwanted(connecting: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more. Cancelled at once, while servers come and go, some fail in the same moment, and what they failed of is logged as an error that nobody
    has looked at. Most come to their end in no time; one that hears nothing is cancelled later."""
    cancels = asyncio.get_running_loop().call_later(UNWANTED, connecting.cancel)

    def ended(connecting: asyncio.Future[Any]) -> None:
        cancels.cancel()
        if not connecting.cancelled() and connecting.exception() is None:
            connecting.result()[0].abort()

    connecting.add_done_callback(ended)
