"""The part of the API that changes something: who asks, a login, and answers to plans, which the descheduler decides."""

from __future__ import annotations

import asyncio
from typing import TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from restow.console.access import COOKIE, Access, Person, Role, set_cookie
from restow.console.follow import Follower
from restow.console.guard import TURN_ON
from restow.console.orders import Orders
from restow.console.refused import Refused
from restow.contracts.codec import BAD
from restow.domain.records import MODES
from restow.runtime.http import Route, answer

B = TypeVar("B", bound=msgspec.Struct)
_TEXT = {"type": "string"}
READ_IN = 10.0
"""Seconds for a request's body."""


class _Login(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class _Approve(msgspec.Struct, forbid_unknown_fields=True):
    moves: tuple[str, ...] = ()
    reason: str = ""


class _Why(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = ""


class _Mode(msgspec.Struct, forbid_unknown_fields=True):
    mode: str
    reason: str = ""


class Acts:
    """Without `access` nobody is asked who he is, and these routes say how that is turned on."""

    def __init__(self, follower: Follower, access: Access | None, orders: Orders | None) -> None:
        self._follower, self._access, self._orders = follower, access, orders
        why = {"reason": _TEXT | {"description": "why; the log keeps it"}}
        act = {200: "done, as of that sequence of the log", 400: "not understood", 401: "nobody has logged in", 403: "the role does not allow it, or a page of somebody else asks", 404: "there is none", 405: "not turned on",
               409: "rejected, with the reason: such as who has answered before", 502: "the descheduler does not take it", 503: "there is no descheduler that leads", 504: "it may have been done"}  # fmt: skip
        get, post = "GET", "POST"
        self.routes = [
            Route(get, "/api/v1/me", "Who asks, what their role allows, and whether plans can be approved here", self._me, {200: "who"}),
            Route(post, "/api/v1/login", "Begin a session with a token: a cookie that no script can read", self._login, {200: "who", 401: "nobody has this token", 405: "not turned on"}, body={"token": _TEXT}, required=("token",)),
            Route(post, "/api/v1/logout", "End the session", self._logout, {200: "ended", 405: "not turned on"}),
            Route(get, "/api/v1/mode", "What becomes of plans at the end of the log, who has set that, and whether moves are paused", self._now, {200: "the mode"}),
            Route(post, "/api/v1/mode", "Set it (role operator)", self._mode, act, body={"mode": _TEXT | {"enum": list(MODES)}} | why, required=("mode",)),
            Route(post, "/api/v1/pause", "Stop moves, and begin none (role operator)", self._pause, act, body=why),
            Route(post, "/api/v1/resume", "End the pause (role operator)", self._resume, act, body=why),
            Route(post, "/api/v1/plans/{plan}/approve", "Let a proposed plan be carried out, or only these of its moves (role approver)", self._approve, act,
                  body={"moves": {"type": "array", "items": _TEXT, "description": "without any, all of them"}} | why),
            Route(post, "/api/v1/plans/{plan}/reject", "Do not let a proposed plan be carried out (role approver)", self._reject, act, body=why, required=("reason",)),
        ]  # fmt: skip

    @property
    def off(self) -> str:
        """Why nothing can be changed from here; empty where it can."""
        if not self._follower.live:
            return "this is a recorded log: nobody carries anything out there"
        if self._access is None or self._orders is None:
            return f"this console only shows; {TURN_ON}"
        return ""

    def _who(self, request: web.Request) -> Person | None:
        return None if self._access is None else self._access.who(request.headers, request.cookies, request.remote)

    async def _me(self, request: web.Request) -> web.Response:
        return answer({"person": self._who(request), "login": self._access is not None, "off": self.off}, headers={"Cache-Control": "no-store"})

    async def _login(self, request: web.Request) -> web.Response:
        assert self._access is not None
        found = self._access.login((await body(request, _Login)).token)
        if found is None:
            raise Refused("nobody has this token", 401)
        response = answer({"person": found[1]}, headers={"Cache-Control": "no-store"})
        set_cookie(response, found[0], secure=request.headers.get("Origin", "").startswith("https:"))
        return response

    async def _logout(self, request: web.Request) -> web.Response:
        assert self._access is not None
        self._access.logout(request.cookies.get(COOKIE, ""))
        response = answer({})
        set_cookie(response, "", secure=request.headers.get("Origin", "").startswith("https:"))
        return response

    async def _now(self, _request: web.Request) -> web.Response:
        mode, pause = self._follower.mode, self._follower.pause
        return answer({"mode": mode, "paused": pause if pause.since else None}, headers={"Cache-Control": "no-store"})

    async def _approve(self, request: web.Request) -> web.Response:
        return await self._give(request, "approver", _plan(request, "approve"), await body(request, _Approve))

    async def _reject(self, request: web.Request) -> web.Response:
        return await self._give(request, "approver", _plan(request, "reject"), await body(request, _Why))

    async def _mode(self, request: web.Request) -> web.Response:
        return await self._give(request, "operator", "/mode", await body(request, _Mode))

    async def _pause(self, request: web.Request) -> web.Response:
        return await self._give(request, "operator", "/pause", await body(request, _Why))

    async def _resume(self, request: web.Request) -> web.Response:
        return await self._give(request, "operator", "/resume", await body(request, _Why))

    async def _give(self, request: web.Request, role: Role, path: str, said: msgspec.Struct) -> web.Response:
        """Raises Refused. Who asks is whom we know, whatever the request says."""
        person = self._who(request)
        if self.off or self._orders is None:
            raise Refused(self.off, 405)
        if person is None or not person.may(role):
            raise Refused(f"this needs the role {role}; yours is {person.role if person else 'none'}", 403)
        status, told = await self._orders.give(path, {"by": person.name} | msgspec.to_builtins(said))
        return answer(told, status)


def _plan(request: web.Request, what: str) -> str:
    return f"/plans/{quote(request.match_info['plan'], safe='')}/{what}"


async def body(request: web.Request, kind: type[B]) -> B:
    """Raises Refused."""
    allowed = f"a JSON object with {', '.join(kind.__struct_fields__)}"
    try:
        async with asyncio.timeout(READ_IN):
            said = await request.read()
        return msgspec.json.decode(said or b"{}", type=kind)
    except BAD as error:
        raise Refused(f"body: {error}; allowed: {allowed}") from None
    except TimeoutError:
        raise Refused(f"body: not whole within {READ_IN:g} s; allowed: {allowed}", 408) from None
    except (HttpProcessingError, ClientPayloadError, web.RequestPayloadError, ConnectionError) as error:
        raise Refused(f"body: it cannot be read as its headers say ({type(error).__name__}); allowed: {allowed}") from None


