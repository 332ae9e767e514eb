"""Every service's HTTP: health, metrics, a summary of the state, and the description of exactly these routes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from restow.runtime.bearer import Gate, Guard, is_local
from restow.runtime.health import Health
from restow.runtime.http_bounds import BoundedConnections, Reused

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Route(msgspec.Struct, frozen=True):
    """One route and its OpenAPI operation: `answers` status → meaning, `query` and `body` name → JSON schema. `{name}` in the path
    stands for one segment, which the handler finds as `request.match_info["name"]`. `guard`: who may use it (`runtime/bearer.py`)."""

    method: str
    path: str
    summary: str
    handler: Handler
    answers: Mapping[int, str]
    query: Mapping[str, dict[str, Any]] = {}
    body: Mapping[str, dict[str, Any]] = {}
    required: tuple[str, ...] = ()
    content: str = "application/json"
    guard: Guard = ""

    @property
    def segments(self) -> list[str]:
        return self.path.split("/")


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json", headers=headers)


class Server:
    """Starts before the log is reached, so that a service that waits can say what for."""

    def __init__(
        self,
        service: str,
        health: Health,
        registry: CollectorRegistry,
        summary: Callable[[], dict[str, Any]],
        gate: Gate | None = None,
    ) -> None:
        self._health = health
        self._gate = gate or Gate()
        self._numbers = Reused(lambda: generate_latest(registry))
        self._shown = Reused(lambda: msgspec.json.encode(summary()))
        self._described = Reused(lambda: msgspec.json.encode(describe(service, self.routes)))
        self.routes = [
            Route("GET", "/livez", "The process is alive", self._livez, {200: "alive"}),
            Route("GET", "/readyz", "The service can do its work", self._readyz, {200: "ready", 503: "not ready, and why"}),
            Route("GET", "/metrics", "Prometheus metrics", self._metrics, {200: "metrics"}, content="text/plain"),
            Route("GET", "/state", "A small summary of the folded state", self._state, {200: "summary"}),
            Route("GET", "/openapi.json", "This description", self._openapi, {200: "OpenAPI 3.1"}),
        ]
        self.complete = False
        """Whether the service has added its own routes."""
        self.address = ""
        self._runner: web.AppRunner | None = None
        self._connections = BoundedConnections()

    async def start(self, host: str, port: int, publish: str = "") -> None:
        """Listen. Raises OSError. `publish`: file to write `http://host:port` to, in one step."""
        app = web.Application(client_max_size=64 * 1024)
        app.router.add_route("*", "/{path:.*}", self._dispatch)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=2.0)
        await self._runner.setup()
        address, bound = await self._connections.listen(self._runner, host or None, port)
        shown = "127.0.0.1" if address in ("0.0.0.0", "::") else address
        self.address = f"http://{f'[{shown}]' if ':' in shown else shown}:{bound}"
        if publish:
            temporary = Path(publish).with_suffix(".tmp")
            temporary.write_text(self.address)
            temporary.replace(publish)

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        with self._connections.answering(request):
            return await self._answered(request)

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        """The server runs before the service has any routes of its own: until then nobody can say that a path is not one of them."""
        there = [route for route in self.routes if route.path == request.path]
        there = there or [route for route in self.routes if _matches(route, request)]
        for route in there:
            if route.method == request.method:
                refusal = self._gate.refusal(request.headers.getall("Authorization", []), route.guard, local=is_local(request.remote))
                if refusal is not None:
                    headers = {"WWW-Authenticate": 'Bearer realm="restow"'} if refusal.status == 401 else None
                    return answer({"error": refusal.reason}, refusal.status, headers)
                return await route.handler(request)
        if there:
            return answer({"error": f"{request.method}; allowed: {', '.join(r.method for r in there)}"}, 405)
        if not self.complete:
            return answer({"error": f"not ready: {'; '.join(self._health.report().reasons)}"}, 503, {"Retry-After": "1"})
        return answer({"error": f"no {request.path} here; allowed: {', '.join(r.path for r in self.routes)}"}, 404)

    def extend(self, routes: Sequence[Route]) -> None:
        """The service's own routes, once it has them."""
        self.routes.extend(routes)
        self.complete = True

    async def stop(self) -> None:
        self._connections.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _livez(self, _request: web.Request) -> web.Response:
        return answer({"alive": True})

    async def _readyz(self, _request: web.Request) -> web.Response:
        report = self._health.report()
        return answer(report, 200 if report.ready else 503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._numbers(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _state(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._shown(), content_type="application/json")

    async def _openapi(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._described(), content_type="application/json")


def _matches(route: Route, request: web.Request) -> bool:
    """Whether the path is one of the route's; then the request has what stands for its names."""
    asked = request.path.split("/")
    if "{" not in route.path or len(asked) != len(route.segments):
        return False
    pairs = list(zip(route.segments, asked, strict=True))
    if not all((part.startswith("{") and said) or part == said for part, said in pairs):
        return False
    request.match_info.update({part[1:-1]: said for part, said in pairs if part.startswith("{")})
    return True


def describe(service: str, routes: list[Route]) -> dict[str, Any]:
    """OpenAPI 3.1 of these routes."""
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    description: dict[str, Any] = {"openapi": "3.1.0", "info": {"title": f"restow {service}", "version": "1"}, "paths": paths}
    if any(route.guard for route in routes):
        description["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    return description


def _operation(route: Route) -> dict[str, Any]:
    answers = dict(route.answers)
    if route.guard:
        answers[401] = "no token, or not the service's"
    if route.guard in ("changes", "answers"):
        answers[403] = "the service has no token: nothing can be changed"
    elif route.guard == "reads":
        answers[403] = "the service has no token, and this is not its own machine"
    operation: dict[str, Any] = {
        "summary": route.summary,
        "responses": {
            str(status): {"description": meaning, "content": {route.content if status < 400 else "application/json": {"schema": {}}}}
            for status, meaning in sorted(answers.items())
        },
    }
    names = [part[1:-1] for part in route.segments if part.startswith("{")]
    parameters = [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names]
    parameters += [{"name": n, "in": "query", "schema": schema} for n, schema in route.query.items()]
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        schema: dict[str, Any] = {"type": "object", "properties": dict(route.body), "additionalProperties": False}
        if route.required:
            schema["required"] = list(route.required)
        operation["requestBody"] = {"required": bool(route.required), "content": {"application/json": {"schema": schema}}}
    if route.guard:
        # Where there is no token, what only reads is open.
        operation["security"] = [{"token": []}] if route.guard != "reads" else [{"token": []}, {}]
    return operation
