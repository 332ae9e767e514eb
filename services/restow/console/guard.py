"""Who may ask, and what a browser may do with the answer.

The console answers its own machine only, and only under a loopback name: a page of somebody else's whose name was made to lead here (DNS rebinding)
brings another Host, a request that it makes another Origin or Sec-Fetch-Site. There is nothing to change over this API; what is at stake is the names in the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from restow.runtime.bearer import is_local
from restow.runtime.http import answer

log = structlog.get_logger(__name__)

NAMES = ("127.0.0.1", "localhost", "[::1]")
POLICY = "; ".join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
        "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
    )
)  # fmt: skip
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
METHODS = ("GET", "HEAD")


def refusal(method: str, host: str, origin: str | None, site: str | None, remote: str | None, published: bool = False) -> tuple[int, str] | None:
    """Status and reason why a request is not served; None where it is. `site`: its Sec-Fetch-Site. `published`: whoever reaches this port may ask."""
    if not published and not is_local(remote):
        return 403, "the console answers its own machine only"
    # A forwarded or published port has another number; what leads here by another name is refused.
    if host.lower().rpartition(":")[0] not in NAMES and host.lower() not in NAMES:
        return 421, f"Host is not one of this console's; allowed: {', '.join(NAMES)}, with any port"
    if origin is not None and origin.lower() != f"http://{host.lower()}":
        return 403, "the request comes from a page of another origin"
    if site not in (None, "same-origin", "none"):
        return 403, "the request comes from a page of another site"
    if method not in METHODS:
        return 405, f"{method}; allowed: {', '.join(METHODS)}. The console changes nothing"
    return None


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guarded(published: bool):
    """The middleware of it. Every answer has the headers, also where it is a refusal. What goes wrong is told as JSON."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        headers = request.headers
        refused = refusal(request.method, headers.get("Host", ""), headers.get("Origin"), headers.get("Sec-Fetch-Site"), request.remote, published)
        if refused is not None:
            response: web.StreamResponse = answer({"error": refused[1]}, refused[0])
        else:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = answer({"error": f"{request.path}: {error.reason}"}, error.status)
            except Exception:
                log.exception("a request failed", path=request.path)
                response = answer({"error": "this failed, which it should not; the console's output says more"}, 500)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    return guard
