"""The console as a process: a log, what was folded of it, its API and its page, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web
from aiohttp.typedefs import Handler

from restow.console.access import Access, BadAccess
from restow.console.api import Api
from restow.console.follow import Follower
from restow.console.guard import guarded
from restow.console.orders import Orders
from restow.console.stories import Stories
from restow.replay.source import Source
from restow.runtime.http_bounds import BoundedConnections

__all__ = ["Access", "BadAccess", "Console", "Orders"]

HOST = "127.0.0.1"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}


class Console:
    """Made in the event loop that serves it. `address` once it has started. `on_demand`: the log is read when somebody asks for the first time.
    `published`: it is reached through a port of the container that it runs in; who can reach that can read it, unless `access` asks who it is. With that, and
    `orders` to a descheduler, people may answer plans. `verify`: arguments by which `restow verify` finds this log."""

    def __init__(self, source: Source, *, on_demand: bool = False, published: bool = False, access: Access | None = None, orders: Orders | None = None, verify: Sequence[str] | None = None) -> None:
        self.follower, self._on_demand, self._published, self._access = Follower(source), on_demand, published, access
        self.api = Api(self.follower, Stories(source), access, orders, verify)
        self.address = ""
        self._runner: web.AppRunner | None = None
        self._connections = BoundedConnections()

    async def start(self, port: int = 0) -> None:
        """Listen, and begin to read. port 0: any. Raises OSError."""
        app = web.Application(middlewares=[self._counted, guarded(self._published, self._access)], client_max_size=64 * 1024)
        self.api.add_to(app)
        for path, (body, kind) in page().items():
            app.router.add_get(path, _file(body, kind))
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        _, bound = await self._connections.listen(self._runner, None if self._published else HOST, port)
        self.address = f"http://{HOST}:{bound}"
        if not self._on_demand:
            self.follower.start()

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        with self._connections.answering(request):
            return await handler(request)

    async def stop(self) -> None:
        self.api.close()
        await self.api.verifier.stop()
        await asyncio.to_thread(self.follower.stop)
        self._connections.close()
        if self._runner is not None:
            await self._runner.cleanup()


def page() -> dict[str, tuple[bytes, str]]:
    """Path → content and type of everything that the page is made of; `/` is its HTML."""
    found: dict[str, tuple[bytes, str]] = {}

    def add(folder: Traversable, path: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                add(entry, f"{path}{entry.name}/")
            elif (kind := TYPES.get("." + entry.name.rpartition(".")[2])) is not None:
                found["/" if path + entry.name == "/index.html" else path + entry.name] = entry.read_bytes(), kind

    add(files("restow.console") / "page", "/")
    return found


def _file(body: bytes, kind: str):
    etag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}

    async def send(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)

    return send
