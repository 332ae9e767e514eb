"""Connections of HTTP clients in services, whose event loop is uvloop.

aiohttp connects each socket itself (`loop.sock_connect`, by aiohappyeyeballs) and hands it to the loop afterwards. On uvloop (0.23) neither bears a connection that is
refused or given up meanwhile: the loop goes on watching a descriptor that is closed, at which libuv ends the process by SIGABRT, without a word in its log (libuv#5130), or a
descriptor is closed twice, and the second time it is another connection's (uvloop#738). Whatever uvloop connects itself it also ends itself.
"""

import errno
from typing import Any

import aiohttp

from restow.machine.addresses import first_connected

HANDSHAKE = 10.0
"""Seconds that a TLS handshake may take, as with Go's clients; uvloop gives it 60."""


class Connector(aiohttp.TCPConnector):
    """Of the addresses of a name the first one that is connected, with its TLS handshake, is taken."""

    async def _wrap_create_connection(self, *args: Any, addr_infos: list[Any], req: Any, timeout: aiohttp.ClientTimeout, **kwargs: Any) -> Any:
        if kwargs.get("ssl"):
            kwargs["ssl_handshake_timeout"] = HANDSHAKE

        async def connect(address: tuple[str, int]) -> Any:
            return await self._wrap_existing_connection(*args, host=address[0], port=address[1], req=req, timeout=timeout, **kwargs)

        try:
            return await first_connected([info[4][:2] for info in addr_infos], connect, lambda made: made[0].abort())
        except Exception as error:
            addr_infos.clear()  # aiohttp would take one of each family off and try the others again.
            if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionAbortedError) and error.os_error.errno is None:
                # uvloop's error of a handshake that takes too long has no number, so that aiohttp says nothing but [None].
                raise aiohttp.ClientConnectorError(req.connection_key, TimeoutError(errno.ETIMEDOUT, f"no TLS handshake within {HANDSHAKE:g} s")) from error
            raise
