"""Instant queries of a Prometheus: with whose token, by whose certificates, and what is wrong where there is no answer."""

import base64
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from typing import Any, NamedTuple

import aiohttp
import msgspec

from restow.contracts.ids import EARLIEST, LATEST
from restow.domain.descheduling.sources import Prometheus
from restow.kube.client import ApiStatus, Client
from restow.kube.connector import Connector
from restow.kube.decode import BAD_JSON

TOKEN = "prometheusAuthToken"
"""The key of the bearer token in the secret that the policy names, as upstream has it."""
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod has its own token, and the cluster's authority: a Prometheus in the cluster most often has its certificate from there."""
TIMEOUT = 10.0
"""Seconds for one answer."""
MOST = 32 * 2**20
"""Bytes of an answer."""
_SAID = 300
"""Characters of what it says is wrong."""
_CHUNK = 1 << 16

Ask = Callable[[str], Awaitable[bytes]]
"""An instant query. Raises MetricsError."""


class MetricsError(ValueError):
    """A source of metrics that does not answer, or with something else."""


class Sample(NamedTuple):
    """Of an instant vector. `said`: the value as it was said, which may be no number; `at`: milliseconds."""

    labels: dict[str, str]
    said: str
    value: Decimal
    at: int


@contextlib.asynccontextmanager
async def asking(client: Client, source: Prometheus, own: bool) -> AsyncIterator[Ask]:
    """`own`: whether the account's own token is for this Prometheus where the policy names none, as upstream has it (over https alone).
    Raises MetricsError where its token or the authorities cannot be read."""
    try:
        headers = await authorization(client, source, own)
        verify = ssl.create_default_context()
        if os.path.exists(authority := f"{ACCOUNT}/ca.crt"):
            # The cluster's authority, verified as in `client`.
            verify.verify_flags &= ~ssl.VERIFY_X509_STRICT
            verify.load_verify_locations(authority)
    except (ssl.SSLError, OSError) as error:
        raise MetricsError(str(error)) from None
    url, timeout = source.url.rstrip("/"), aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(connector=Connector(), timeout=timeout, headers=headers) as session:
        yield lambda query: _query(session, url, query, verify)


async def authorization(client: Client, source: Prometheus, own: bool) -> dict[str, str]:
    """Read anew each time: a token changes. Raises MetricsError, OSError."""
    secret = source.auth_token.secret_reference if source.auth_token is not None else None
    if secret is None:
        path = f"{ACCOUNT}/token"
        if not own or not source.url.lower().startswith("https:") or not os.path.exists(path):
            return {}
        with open(path, encoding="utf-8") as file:
            return _bearer(file.read().strip(), path)
    where = f"secret {secret.namespace}/{secret.name}"
    try:
        body = await client.get(f"/api/v1/namespaces/{secret.namespace}/secrets/{secret.name}")
    except ApiStatus as error:
        raise MetricsError(f"{where}: {error}") from None
    try:
        data = msgspec.json.decode(body)["data"]
        token = base64.b64decode(data[TOKEN], validate=True).decode().strip()
    except (*BAD_JSON, KeyError, TypeError, ValueError):
        raise MetricsError(f"{where} has no readable key {TOKEN!r}") from None
    return _bearer(token, f"{where}, key {TOKEN!r}")


def _bearer(token: str, where: str) -> dict[str, str]:
    # Whatever is in a header must be one printable word: the client would raise, and show the token.
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise MetricsError(f"{where}: no bearer token; allowed: one word of printable characters")
    return {"Authorization": f"Bearer {token}"}


async def _query(session: aiohttp.ClientSession, url: str, query: str, verify: ssl.SSLContext) -> bytes:
    """Raises MetricsError."""
    body = bytearray()
    try:
        async with session.get(
            f"{url}/api/v1/query", params={"query": query}, ssl=verify if url.lower().startswith("https:") else False, allow_redirects=False
        ) as answer:
            async for part in answer.content.iter_chunked(_CHUNK):
                body += part
                if len(body) > MOST:
                    raise MetricsError(f"Prometheus at {url} answers {query!r} with more than {MOST >> 20} MiB")
            if answer.status != 200:
                raise MetricsError(f"Prometheus at {url} answers {answer.status} to {query!r}{_said(bytes(body))}")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise MetricsError(f"Prometheus at {url} does not answer: {str(error) or type(error).__name__}") from None
    return bytes(body)


def _said(body: bytes) -> str:
    """What it says is wrong, where that is its own word and not that of somebody in between."""
    try:
        said: Any = msgspec.json.decode(body)
        return f": {str(said['error'])[:_SAID]}"
    except (*BAD_JSON, KeyError, TypeError):
        return ""


def vector(body: bytes, query: str) -> list[Sample]:
    """The answer to an instant query. Raises MetricsError."""
    try:
        answer: Any = msgspec.json.decode(body)
        if answer["status"] != "success" or answer["data"]["resultType"] != "vector":
            raise MetricsError(f"Prometheus answers {query!r} with {answer['data']['resultType']}; allowed: an instant vector")
        samples = []
        for one in answer["data"]["result"]:
            at, said = one["value"]
            samples.append(Sample(dict(one["metric"]), str(said), Decimal(str(said)), _millis(Decimal(str(at)))))
    except MetricsError:
        raise
    except (*BAD_JSON, KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise MetricsError(f"Prometheus answers {query!r} with something unreadable ({type(error).__name__} {error})") from None
    return samples


def _millis(seconds: Decimal) -> int:
    """Not beyond the years that a time can be of. Raises ValueError."""
    if not seconds.is_finite():
        raise ValueError(f"the time of a sample is {seconds}; allowed: seconds")
    return int(min(max(seconds, Decimal(EARLIEST) / 1000), Decimal(LATEST) / 1000) * 1000)
