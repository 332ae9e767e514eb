"""Connections of HTTP clients in services, whose event loop is uvloop.

aiohttp connects each socket itself (`loop.sock_connect`, by aiohappyeyeballs) and hands it to the loop afterwards. On uvloop (0.23) neither bears a connection that is
refused or given up meanwhile: the loop goes on watching a descriptor that is closed, at which libuv ends the process by SIGABRT, without a word in its log (libuv#5130), or a
descriptor is closed twice, and the second time it is another connection's (uvloop#738). Whatever uvloop connects itself it also ends itself.
"""

import asyncio
from typing import Any

import aiohttp

NEXT = 4.0
"""Seconds that an address has, with its TLS handshake, where the name has others: of the ten that a request has, the next one is to have some."""


class Connector(aiohttp.TCPConnector):
    """The addresses of a name are tried one after the other."""

    async def _wrap_create_connection(self, *args: Any, addr_infos: list[Any], req: Any, timeout: aiohttp.ClientTimeout, **kwargs: Any) -> Any:
        host, port = addr_infos[0][4][:2]
        if len(addr_infos) > 1:
            timeout = aiohttp.ClientTimeout(sock_connect=min(timeout.sock_connect or NEXT, NEXT), ceil_threshold=timeout.ceil_threshold)
        connecting = asyncio.ensure_future(self._wrap_existing_connection(*args, host=host, port=port, req=req, timeout=timeout, **kwargs))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # In the middle of a TLS handshake uvloop bears that badly, too: what becomes of it then is logged as an error that nobody has looked at.
            connecting.add_done_callback(_unwanted)
            raise


def _unwanted(connecting: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result()[0].abort()
