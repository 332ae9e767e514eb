"""One HTTP request to a hook: no redirects, a bounded answer, verified certificates, no secret in any message.

    2xx                 it agrees; but for 202, and for a body `{"allowed": false}`, which refuses
    202                 not yet: it is asked again
    403, 409            it refuses
    anything else       no answer: it is asked again until its deadline

A body that is a JSON object may say `reason`, and `retryAfter` (`10m`), as the header Retry-After may (seconds). One that cannot be read, or is too long,
is no assent: it may have been a refusal.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec

from restow import machine
from restow.domain.config import HookConfig
from restow.domain.duration import DurationError, milliseconds
from restow.domain.hooks import LONGEST, is_secure, said
from restow.kube.connector import Connector
from restow.kube.prometheus import ACCOUNT
from restow.tracing.calls import CALLS, Call

MOST = 64 * 2**10
"""Bytes of an answer that are read."""
CONNECTS_IN = 5.0
"""Seconds."""
LEAST, POLL, SLOWEST = 1_000, 2_000, 60_000
"""Milliseconds between two requests: at least, where a 202 does not say, and at most."""
YES, NO, NOT_YET, NOTHING = "agreed", "refused", "not yet", "nothing"


class Heard(NamedTuple):
    """`word`: YES, NO, NOT_YET or NOTHING. `message`: its reason, or what was heard instead of an answer. `after`: milliseconds that it asks for, 0 where
    it does not."""

    word: str
    message: str = ""
    after: int = 0


class _Body(msgspec.Struct):
    allowed: bool | None = None
    reason: str = ""
    retry_after: str = msgspec.field(default="", name="retryAfter")


_body = msgspec.json.Decoder(_Body)


async def call(url: str, content: Mapping[str, Any], hook: HookConfig | None, seconds: float) -> Heard:
    """POSTs it, and waits so long. Never raises for what the other side does."""
    timeout = aiohttp.ClientTimeout(total=max(seconds, 0.1), sock_connect=CONNECTS_IN)
    more: dict[str, Any] = {"server_hostname": hook.server_name} if hook is not None and hook.server_name else {}
    try:
        headers, verify = _headers(hook), _verify(hook) if is_secure(url) else False
    except (OSError, ValueError) as error:
        return Heard(NOTHING, str(error))
    begun, code, reason = machine.wall(), 0, "cancelled"
    try:
        async with aiohttp.ClientSession(connector=Connector(), timeout=timeout, auto_decompress=False) as session:
            data = msgspec.json.encode(content)
            async with session.post(url, data=data, headers=headers, ssl=verify, allow_redirects=False, **more) as answer:
                code, reason = answer.status, str(answer.status) if answer.status >= 400 else ""
                return heard(answer.status, answer.headers.get("Retry-After", ""), await _read(answer), answer.reason or "")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        reason = type(error).__name__
        return Heard(NOTHING, said(str(error) or reason))
    finally:
        if (calls := CALLS.get()) is not None:
            calls.append(Call("POST", "", begun, machine.wall(), code, reason, _server(url)))


def _server(url: str) -> tuple[str, int]:
    """Of a URL that was called: whom it leads to, without what else it says."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or (443 if is_secure(url) else 80)
    except ValueError:
        return "", 0


async def _read(answer: aiohttp.ClientResponse) -> bytes | None:
    """None where there is more: then the connection is closed."""
    body = bytearray()
    async for part in answer.content.iter_chunked(1 << 14):
        body += part
        if len(body) > MOST:
            answer.close()
            return None
    return bytes(body)


def heard(status: int, retry_after: str, body: bytes | None, phrase: str = "") -> Heard:
    """What an answer means. `body`: None for one that is too long."""
    words, why = _words(body)
    after = 0
    try:
        after = milliseconds(words.retry_after) if words.retry_after else _header(retry_after)
    except DurationError:
        after = 0
    after = min(max(after, 0), LONGEST)
    reason = said(words.reason)
    if status == 202:
        return Heard(NOT_YET, reason, min(max(after or POLL, LEAST), SLOWEST))
    if status in (403, 409) or (200 <= status < 300 and words.allowed is False):
        return Heard(NO, reason or said(f"{status} {phrase}"), after)
    if 200 <= status < 300 and not why:
        return Heard(YES, reason)
    more = " (redirects are not followed)" if 300 <= status < 400 else f" ({why})" if why else ""
    return Heard(NOTHING, said(f"{status} {phrase}").strip() + more + (f": {reason}" if reason else ""), min(after, SLOWEST))


def _header(retry_after: str) -> int:
    """Milliseconds; 0 for a date, or what is no number. Python refuses to read thousands of digits, so ten are as good as more."""
    if not (retry_after.isascii() and retry_after.isdecimal()):
        return 0
    return int(retry_after.lstrip("0")[:10] or 0) * 1000


def _words(body: bytes | None) -> tuple[_Body, str]:
    """And why they cannot be read. Text that is no JSON object, such as `ok`, says nothing; what is no text (compressed, say, or UTF-16) may say anything."""
    if body is None:
        return _Body(), f"more than {MOST >> 10} KiB"
    try:
        text = body.decode("utf-8-sig").strip()
    except UnicodeError:
        return _Body(), "no UTF-8 text"
    if any(c < " " and c not in "\t\n\r" for c in text):
        return _Body(), "no text: control characters"
    if not text.startswith("{"):
        return _Body(), ""
    try:
        return _body.decode(text), ""
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return _Body(), f"unreadable JSON: {said(str(error))}"


def _headers(hook: HookConfig | None) -> dict[str, str]:
    """The token is read anew each time. Raises OSError, and ValueError, which does not show it."""
    headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
    if hook is not None and hook.token_file:
        token = Path(hook.token_file).read_text(encoding="utf-8", errors="replace").strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError(f"{hook.token_file}: no bearer token; allowed: one word of printable characters")
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _verify(hook: HookConfig | None) -> ssl.SSLContext:
    """Raises OSError."""
    context = ssl.create_default_context(cafile=hook.ca_file if hook is not None and hook.ca_file else None)
    if not (hook is not None and hook.ca_file) and (authority := Path(ACCOUNT) / "ca.crt").exists():
        context.load_verify_locations(str(authority))
    # From 3.13 on, Python refuses authorities without the newer extensions, and those of EKS and MicroK8s are such: verified as in `kube.client`.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
