"""What a person asks the descheduler for from the console: the same requests as those of `restow approve`, with who has asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from restow.kube.connector import Connector

TIMEOUT = 60.0
"""Seconds for an answer."""
CONNECT = 5.0
"""Of which for a connection, at each address. One of a node that has failed answers nothing, not even that nobody listens there."""
_LARGEST = 4 << 20
_NOT_THIS_ONE = 503
"""A descheduler that does not lead, or is stopping: another one may."""


class Orders:
    """`where`: address and token of the descheduler, asked anew for each request. Raises LookupError where there is none. A name that leads to several
    addresses is that of several deschedulers, one of which leads."""

    def __init__(self, where: Callable[[], tuple[str, str]]) -> None:
        self._where = where

    async def give(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and answer, for people."""
        try:
            address, token = await asyncio.to_thread(self._where)
        except LookupError as error:
            return 503, {"error": str(error.args[0])}
        status, said = 503, dict[str, Any](error=f"the descheduler at {address} does not answer; nothing was changed")
        timeout = aiohttp.ClientTimeout(total=TIMEOUT, sock_connect=CONNECT)
        async with aiohttp.ClientSession(connector=Connector(), timeout=timeout) as session:
            for one, host in await _addresses(address):
                headers = {"Content-Type": "application/json"} | ({"Host": host} if host else {}) | ({"Authorization": f"Bearer {token}"} if token else {})
                try:
                    async with session.post(one + path, data=msgspec.json.encode(body), headers=headers, allow_redirects=False) as answer:
                        status, said = answer.status, _read(await answer.content.read(_LARGEST))
                except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
                    continue
                except (aiohttp.ClientError, TimeoutError):
                    return 504, {"error": "the descheduler has ended the connection, or took too long: it may have been done. The plan says so"}
                if status != _NOT_THIS_ONE:
                    break
        return _told(status, said)


def _told(status: int, said: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    if status == 200:
        if isinstance(said.get("seq"), int) and isinstance(said.get("events"), list):
            return 200, {"seq": said["seq"]}
        return 502, {"error": "who has answered is no descheduler of Restow: nothing was changed, as far as is known"}
    reason = str(said.get("error") or f"status {status}")
    if status in (401, 403):
        return 502, {"error": f"the descheduler does not take the console's token: {reason}"}
    return status if status in (400, 404, 409, 413, 503, 504) else 502, {"error": reason}


async def _addresses(address: str) -> list[tuple[str, str]]:
    """Where to ask, one after the other, and as which Host."""
    parts = urlsplit(address)
    try:
        if parts.scheme == "http" and parts.hostname:
            found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
            at = dict.fromkeys(f"[{one[4][0]}]" if one[0] == socket.AF_INET6 else str(one[4][0]) for one in found)
            return [(f"http://{ip}:{parts.port or 80}{parts.path}", parts.netloc.rpartition("@")[2]) for ip in at]
    except (OSError, ValueError):
        pass
    return [(address, "")]


def _read(body: bytes) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return said if isinstance(said, dict) else {}
