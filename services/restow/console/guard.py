"""Who may ask, and what a browser may do with the answer.

The console answers its own machine only, and only under a loopback name: a page of somebody else's whose name was made to lead here (DNS rebinding)
brings another Host, a request that it makes another Origin or Sec-Fetch-Site. Without an access file there is nothing to change over this API, and what is at stake
is the names in the log. With one (`access`), whoever asks is known, and what changes something must come from a page of the console itself, or bring a token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web
from multidict import CIMultiDictProxy

from restow.console.access import Access
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
OPEN = ("/api/v1/me", "/api/v1/login", "/api/v1/logout")
"""Routes of the API that ask for no login: they say who one is, and make or end one."""
ASKS = ("/api/v1/replan",)
"""Routes that are posted to and change nothing: what they are asked is too long for an address. Whoever may look may ask them."""


def refusal(
    method: str, host: str, origin: str | None, site: str | None, remote: str | None, published: bool = False, hosts: tuple[str, ...] = (), changes: bool = False
) -> tuple[int, str] | None:
    """Status and reason why a request is not served; None where it is. `site`: its Sec-Fetch-Site. `published`: whoever reaches this port may ask. `hosts`: names by
    which a proxy leads here, over HTTPS. `changes`: something can be changed."""
    if not published and not is_local(remote):
        return 403, "the console answers its own machine only"
    # A forwarded or published port has another number; what leads here by another name is refused.
    said = host.lower()
    proxied = said in hosts or said.rpartition(":")[0] in hosts
    if not proxied and said.rpartition(":")[0] not in NAMES and said not in NAMES:
        return 421, f"Host is not one of this console's; allowed: {', '.join((*NAMES, *hosts))}, with any port"
    if origin is not None and origin.lower() != f"{'https' if proxied else 'http'}://{said}":
        return 403, "the request comes from a page of another origin"
    if site not in (None, "same-origin", "none"):
        return 403, "the request comes from a page of another site"
    allowed = (*METHODS, "POST") if changes else METHODS
    if method not in allowed:
        return 405, f"{method}; allowed: {', '.join(allowed)}{'' if changes else f'. The console changes nothing: {TURN_ON}'}"
    return None


def forged(headers: CIMultiDictProxy[str]) -> str:
    """Why a POST may have been sent by a page of somebody else, with what a browser adds by itself; empty where it cannot."""
    if "Origin" not in headers:
        return "without an Origin, a token is needed (Authorization: Bearer TOKEN)"
    # A form cannot send that.
    return "" if headers.get("Content-Type", "").partition(";")[0].strip() == "application/json" else "Content-Type; allowed: application/json"


TURN_ON = "start it with --access FILE to approve plans from here (docs/console.md)"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _known(request: web.Request, access: Access) -> tuple[int, str] | None:
    person = access.who(request.headers, request.cookies, request.remote)
    if request.method == "POST" and (person is None or person.how != "token") and (why := forged(request.headers)):
        return 403, why
    if person is None and request.path.startswith("/api/") and request.path not in OPEN:
        return 401, "the console's access file cannot be used: its log says why" if access.fault else "log in, or send a token (Authorization: Bearer TOKEN)"
    return None


def guarded(published: bool, access: Access | None = None):
    """The middleware of it. Every answer has the headers, also where it is a refusal. What goes wrong is told as JSON."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        headers = request.headers
        hosts = access.hosts if access is not None else ()
        where = headers.get("Host", ""), headers.get("Origin"), headers.get("Sec-Fetch-Site")
        refused = refusal(request.method, *where, request.remote, published, hosts, access is not None or request.path in ASKS)
        if refused is None and access is not None:
            refused = _known(request, access)
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
            # Not the next person's who comes through the same proxy.
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    return guard
