"""The Kubernetes API over HTTP: bytes in, bytes out, a deadline on everything, errors as `ApiStatus`.

`kubernetes_asyncio` supplies what is hard about reaching a cluster (kubeconfig, in-cluster tokens, exec plugins, TLS, proxies;
`credentials` asks it again when a token ends); its models are never used. It is imported only when one of those is asked for: the import costs
0.3 s, and a plain URL needs none of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, cast
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec

from restow import machine
from restow.contracts.redact import redacted
from restow.kube import decode
from restow.kube.connector import Connector
from restow.kube.credentials import DEADLINE, HEADER, Credentials, CredentialsError
from restow.kube.decode import Collection
from restow.tracing.calls import CALLS, Call

Query = Iterable[tuple[str, str]]
PatchType = Literal["merge", "strategic", "json"]

_PATCHES: dict[PatchType, str] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
_JSON = "application/json"
_READ_BUFFER = 2**20
_MAX_LINE = 16 * 2**20
"""Longer than any object that etcd stores; a longer line is not from a Kubernetes API."""
_MAX_BODY = 64 * 2**10
"""How much of an error's body is read, whatever length it says it has."""
_DIGITS = 10
"""Seconds that have as many are three hundred years; and Python refuses to read thousands of digits."""


STARTING = 10.0
"""Seconds after a connection broke in which an authorizer's refusal may pass: an API server that has just started answers before it knows the roles."""


class ApiStatus(Exception):
    """An answer other than 2xx, or none at all: then `code` is 0. `retry_after` is in milliseconds. `passing`: whatever its code is."""

    def __init__(
        self,
        code: int,
        reason: str = "",
        message: str = "",
        retry_after: int | None = None,
        causes: tuple[str, ...] = (),
        passing: bool = False,
    ):
        super().__init__(f"{code or 'no answer'} {reason}: {message}".rstrip(": "))
        self.code, self.reason, self.message = code, reason, message
        self.retry_after, self.causes, self.passing = retry_after, causes, passing

    @property
    def transient(self) -> bool:
        """Worth trying again as it is."""
        return self.passing or self.code in (0, 429, 500, 502, 503, 504)


class ClientConfig(msgspec.Struct, frozen=True):
    """Where the API is: `url`, else `in_cluster`, else `kubeconfig` (empty: `$KUBECONFIG` or `~/.kube/config`) with
    `context`. Times are in seconds. `idle` bounds the silence on a watch: bookmarks come about every minute. `read_only`: nothing but GET is sent, whatever the
    credentials allow."""

    url: str = ""
    in_cluster: bool = False
    kubeconfig: str = ""
    context: str = ""
    pool: int = 64
    timeout: float = 10.0
    list_timeout: float = 60.0
    idle: float = 90.0
    user_agent: str = "restow"
    read_only: bool = False


class ClientConfigError(ValueError):
    """The configuration does not lead to a cluster. Says which file or variable, and what is allowed."""


class Client:
    """One pool of keep-alive connections to one API server. Make it with `connect`, close it with `close`."""

    def __init__(
        self,
        base: str,
        session: aiohttp.ClientSession,
        config: ClientConfig,
        credentials: Credentials | None = None,
        options: Mapping[str, Any] | None = None,
    ):
        self._base = base.rstrip("/")
        self._session = session
        self._config = config
        self._credentials = credentials
        self._options = dict(options or {})
        self._broken = -STARTING
        """When a connection broke last, in seconds of `machine.steady`."""
        self._brief = aiohttp.ClientTimeout(total=config.timeout)
        self._long = aiohttp.ClientTimeout(total=config.list_timeout)
        self._endless = aiohttp.ClientTimeout(total=None, connect=config.timeout, sock_read=config.idle)

    @property
    def url(self) -> str:
        return self._base

    async def close(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- one object ----------------------------------------------------------------------------------------------------

    async def get(self, path: str, query: Query = ()) -> bytes:
        return await self._call("GET", path, query=query)

    async def create(self, path: str, body: Any) -> bytes:
        return await self._call("POST", path, body=body)

    async def replace(self, path: str, body: Any) -> bytes:
        return await self._call("PUT", path, body=body)

    async def patch(self, path: str, body: Any, kind: PatchType = "merge") -> bytes:
        return await self._call("PATCH", path, body=body, content=_PATCHES[kind])

    async def delete(self, path: str, body: Any = None) -> bytes:
        return await self._call("DELETE", path, body=body)

    async def peek(self, path: str) -> tuple[int, bytes, str]:
        """Code, the beginning of the body (64 KiB) and the header Date of whatever answers: something behind the API's proxy may say in its own way that
        it is not well. Raises ApiStatus where nothing answers."""
        try:
            response = await self._request("GET", path, (), None, {"Accept": _JSON, "User-Agent": self._config.user_agent}, self._brief)
        except CredentialsError as error:
            raise ApiStatus(0, "Credentials", str(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_answer(error) from error
        try:
            return response.status, await _beginning(response), response.headers.get("Date", "")
        finally:
            response.close()

    # -- collections -----------------------------------------------------------------------------------------------------

    async def list_page(self, collection: Collection[Any], query: Query, most: int = 0) -> bytes:
        """`most`: bytes that the page may have, 0 for any number. Raises ApiStatus, 413 where it has more."""
        async with self._response("GET", collection.path, query, timeout=self._long) as response:
            try:
                if not most:
                    return await response.read()
                pieces, size = [], 0
                async for piece in response.content.iter_any():
                    pieces.append(piece)
                    size += len(piece)
                    if size > most:
                        raise ApiStatus(413, "PageTooLarge", f"a page of {collection.name} has more than {most >> 20} MiB")
                return b"".join(pieces)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._no_answer(error) from error

    async def watch_lines(self, collection: Collection[Any], query: Query) -> AsyncGenerator[list[bytes], None]:
        """The complete lines of every piece that the network delivers. Ends where the response ends; what was cut off is
        dropped. Raises ApiStatus."""
        async with self._response("GET", collection.path, query=query, timeout=self._endless) as response:
            rest = b""
            try:
                async for piece in response.content.iter_any():
                    *lines, rest = (rest + piece).split(b"\n") if rest else piece.split(b"\n")
                    if lines:
                        yield [line for line in lines if line]
                    elif len(rest) > _MAX_LINE:
                        raise ApiStatus(0, "LineTooLong", f"a line of {collection.name} is longer than {_MAX_LINE} bytes")
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._no_answer(error) from error

    # -- within ------------------------------------------------------------------------------------------------------------

    async def _call(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: Any = None,
        content: str = _JSON,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> bytes:
        async with self._response(method, path, query, body, content, timeout or self._brief) as response:
            try:
                return await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._no_answer(error) from error

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: Any = None,
        content: str = _JSON,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._config.read_only and method != "GET":
            raise ApiStatus(405, "ReadOnly", f"{method} {path} was not sent: this process only reads")
        headers = {"Accept": _JSON, "User-Agent": self._config.user_agent}
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else msgspec.json.encode(body)
            headers["Content-Type"] = content
        heard = CALLS.get()
        begun = machine.wall() if heard is not None else 0
        try:
            response = await self._answer(method, path, query, data, headers, timeout)
        except ApiStatus as status:
            if heard is not None:
                heard.append(Call(method, path, begun, machine.wall(), status.code, status.reason or "refused"))
            raise
        if heard is not None:
            heard.append(Call(method, path, begun, machine.wall(), response.status))
        try:
            yield response
        finally:
            _let_go(response)

    async def _answer(
        self, method: str, path: str, query: Query, data: bytes | None, headers: dict[str, str], timeout: aiohttp.ClientTimeout | None
    ) -> aiohttp.ClientResponse:
        """A 2xx, whose body is still to be read. Raises ApiStatus."""
        if self._session.closed:
            # What goes on in the background while a process ends has no answer, and is no error of ours.
            raise ApiStatus(0, "Closed", f"{method} {path} was not sent: this process ends")
        try:
            response = await self._request(method, path, query, data, headers, timeout)
        except CredentialsError as error:
            raise ApiStatus(0, "Credentials", str(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_answer(error) from error
        if 200 <= response.status < 300:
            return response
        try:
            raise await _refusal(response, starting=machine.steady() < self._broken + STARTING)
        finally:
            _let_go(response)

    def _no_answer(self, error: BaseException) -> ApiStatus:
        timeout = isinstance(error, TimeoutError | asyncio.TimeoutError)
        if not timeout:
            self._broken = machine.steady()
        return ApiStatus(0, "Timeout" if timeout else "Disconnected", str(error) or type(error).__name__)

    async def _request(
        self, method: str, path: str, query: Query, data: bytes | None, headers: dict[str, str], timeout: aiohttp.ClientTimeout | None
    ) -> aiohttp.ClientResponse:
        """Once; and once more where the API does not take our token, and there is another one."""

        async def send() -> aiohttp.ClientResponse:
            if self._credentials is not None:
                await self._credentials.authorize(headers)
            return await self._session.request(
                method,
                self._base + path,
                params=list(query) or None,
                data=data,
                headers=headers,
                timeout=timeout,
                **self._options,
            )

        response = await send()
        if response.status != 401 or self._credentials is None:
            return response
        try:
            if not await self._credentials.replaced(headers.get(HEADER, "")):
                return response
        except BaseException:
            response.close()
            raise
        response.close()
        return await send()


async def connect(config: ClientConfig) -> Client:
    """Raises ClientConfigError; does not speak to the server yet."""
    if config.url:
        if not config.url.startswith(("http://", "https://")):
            raise ClientConfigError(f"url is {redacted(config.url)!r}; allowed: http://host:port or https://host:port")
        connector = Connector(limit=config.pool, keepalive_timeout=60)
        session = aiohttp.ClientSession(connector=connector, read_bufsize=_READ_BUFFER)
        return Client(config.url, session, config)
    return await _from_kubernetes_config(config)


async def _from_kubernetes_config(config: ClientConfig) -> Client:
    from kubernetes_asyncio import config as kubernetes_config
    from kubernetes_asyncio.client import ApiClient, Configuration

    configuration, loader = Configuration(), None
    if not config.in_cluster and not config.kubeconfig:
        # The library prints that there is none, and then says that its key is missing.
        places = [os.path.expanduser(place) for place in (os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep) if place]
        if not any(os.path.exists(place) for place in places):
            raise ClientConfigError(f"there is no kubeconfig at {' or '.join(places)}")
    try:
        if config.in_cluster:
            kubernetes_config.load_incluster_config(client_configuration=configuration)
        else:
            async with asyncio.timeout(DEADLINE):
                loader = await kubernetes_config.load_kube_config(
                    config_file=config.kubeconfig or None,
                    context=config.context or None,
                    client_configuration=configuration,
                    persist_config=False,
                )
    except Exception as error:
        # The library raises its own ConfigException, yaml's, KeyError and OSError; all mean the same here.
        where = "in-cluster configuration" if config.in_cluster else f"kubeconfig {config.kubeconfig or '(default)'!r}"
        # One line of it: what follows may quote the file, which holds credentials.
        said = redacted(str(error).partition("\n")[0]) or f"no answer within {DEADLINE:g} s"
        raise ClientConfigError(f"{where}: {said}; allowed: a readable configuration with a current context") from error
    configuration.connection_pool_maxsize = config.pool
    # As kubectl verifies. From 3.13 on, Python refuses authorities without the newer extensions, and those of EKS and MicroK8s are such.
    configuration.disable_strict_ssl_verification = True
    api, base = ApiClient(configuration), configuration.host or ""
    options = {
        name: value
        for name, value in (
            ("proxy", configuration.proxy or _proxy_of_environment(base)),
            ("proxy_headers", configuration.proxy_headers),
            ("server_hostname", configuration.tls_server_name),
        )
        if value
    }
    # Whom it trusts, but connections and a session of our own: the library's trusts the environment, so aiohttp reads ~/.netrc in a thread for each request, and refuses
    # all of them where an entry there is for the API's host, because they have a token already.
    pool = api.rest_client.pool_manager
    trusted = cast(aiohttp.TCPConnector, pool.connector)._ssl
    session = aiohttp.ClientSession(connector=Connector(ssl=trusted, limit=config.pool), read_bufsize=_READ_BUFFER)
    await pool.close()
    return Client(base, session, config, Credentials(api, loader), options)


def _proxy_of_environment(url: str) -> str | None:
    """HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as kubectl goes by them; read once."""
    parts = urlsplit(url)
    return None if not parts.hostname or proxy_bypass(parts.hostname) else getproxies().get(parts.scheme)


def path_of(collection: Collection[Any], namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of one object, or of its collection in one namespace."""
    prefix, plural = collection.path.rsplit("/", 1)
    parts = [prefix]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(plural)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def answered(decoder: Any, body: bytes) -> Any:
    """What a 2xx says. Raises ApiStatus where no Kubernetes API says that: a gateway's page, a body that was cut. That is no answer."""
    try:
        return decode.decoded(decoder, body)
    except decode.BAD_JSON as error:
        raise ApiStatus(0, "Garbled", f"{error}; the answer begins with {body[:60]!r}") from error


def _let_go(response: aiohttp.ClientResponse) -> None:
    """Not `await release()`: what is left of a body must not be waited for."""
    response.close() if not response.content.at_eof() else response.release()


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """At most `_MAX_BODY` bytes, in however many pieces they come; what came before the connection broke."""
    body = bytearray()
    try:
        while len(body) < _MAX_BODY and (piece := await response.content.read(_MAX_BODY - len(body))):
            body += piece
    except (aiohttp.ClientError, TimeoutError, OSError):
        pass  # The status says enough; the body only says it in words.
    return bytes(body)


async def _refusal(response: aiohttp.ClientResponse, starting: bool) -> ApiStatus:
    """`starting`: perhaps the server has just started."""
    body = await _beginning(response)
    status = decode.status(body)
    header = response.headers.get("Retry-After", "")
    retry_after = int(header) * 1000 if header.isdecimal() and len(header) < _DIGITS else None
    if status is None or not (status.reason or status.message):
        return ApiStatus(response.status, response.reason or "", body[:200].decode(errors="replace"), retry_after)
    details = status.details
    if retry_after is None and details is not None and details.retry_after_seconds:
        retry_after = details.retry_after_seconds * 1000
    causes = tuple(cause.reason for cause in details.causes or ()) if details else ()
    # As the API server words what its authorizer refuses; admission's refusals are of the object, and stay.
    passing = starting and response.status == 403 and 'is forbidden: User "' in status.message
    return ApiStatus(response.status, status.reason, status.message, retry_after, causes, passing)
