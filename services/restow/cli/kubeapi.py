"""Where the Kubernetes API is, for commands that create or read objects; with the user's own rights and no others."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from restow.cli.failures import UNREACHABLE, UNUSABLE, Failure

if TYPE_CHECKING:
    from restow.cli.log_location import Where
    from restow.kube.client import ApiStatus, Client

T = TypeVar("T")

TIMEOUT = 10.0
"""Seconds for one answer of the API."""
PAGE = "500"
"""Objects that are asked for at once."""
UNSERVED = (404, 405)
"""Codes that say that nobody serves the kind, or that nobody lists it."""


class Kube:
    """What the options say: `kube` is a URL or the path of a kubeconfig."""

    def __init__(self, kube: str | None, context: str | None) -> None:
        self._kube, self._context = kube, context

    @property
    def said(self) -> str:
        """The option that names an API; empty for none."""
        return "--kube" if self._kube else "--context" if self._context else ""

    def address(self, where: Where) -> str:
        """URL or kubeconfig, empty for kubectl's own: what is said, else the stack's where the log is the stack's too, else a service's, in its container."""
        if self._kube or self._context:
            return self._kube or ""
        stacks = (where.stack or {}).get("kube", "") if where.is_the_stacks else ""
        return stacks or os.environ.get("RESTOW_KUBE", "")

    def shown(self, where: Where, url: str) -> str:
        """The API's address for people, and whose it is where they have not said which: who has a stack in this folder may have meant kubectl's."""
        return f"{url}, of the stack in {Path(where.stack['file']).parent}" if where.stack and self.is_the_stacks(where) else url

    def is_the_stacks(self, where: Where) -> bool:
        """Whether the API is that of the stack that runs here, or ran, which nobody has named."""
        stacks = (where.stack or {}).get("kube", "")
        return bool(stacks) and not self.said and self.address(where) == stacks

    def call(self, where: Where, work: Callable[[Client], Awaitable[T]]) -> T:
        """Run this with a client. Raises Failure where the API cannot be reached; what it refuses is the work's to explain."""
        return asyncio.run(self._with_client(where, work))

    async def _with_client(self, where: Where, work: Callable[[Client], Awaitable[T]]) -> T:
        from restow.kube.client import ApiStatus, ClientConfig, ClientConfigError, connect

        address = self.address(where)
        web = address.startswith(("http://", "https://"))
        config = ClientConfig(
            url=address if web else "",
            in_cluster=not address and not self._context and _in_a_pod(),
            kubeconfig="" if web else address,
            context=self._context or "",
            timeout=TIMEOUT,
        )
        try:
            client = await connect(config)
        except ClientConfigError as error:
            hint = "Name an API with --kube URL|KUBECONFIG, or start a stack with `restow up`"
            raise Failure(f"no Kubernetes API: {error}. {hint}", UNREACHABLE if not address else UNUSABLE) from None
        async with client:
            try:
                return await work(client)
            except ApiStatus as error:
                if error.code == 0 and self.is_the_stacks(where) and (ended := where.ended()):
                    raise Failure(f"{ended}, and its Kubernetes API with it. Name another API with --kube URL|KUBECONFIG, or start one with `restow up`", UNREACHABLE) from None
                raise refusal(error, client.url) from None


async def objects(client: Client, path: str, selector: str = "", fields: str = "") -> AsyncIterator[Mapping[str, Any]]:
    """Those of a collection, page by page, as the API shows them: all that have the labels of `selector` and match the field selector. Raises ApiStatus."""
    more = ""
    while True:
        asked = (("labelSelector", selector), ("fieldSelector", fields), ("continue", more))
        query = [("limit", PAGE), *((key, value) for key, value in asked if value)]
        page = msgspec.json.decode(await client.get(path, query))
        for item in page["items"] or ():
            yield item
        more = page["metadata"].get("continue") or ""
        if not more:
            return


def _in_a_pod() -> bool:
    """Whether to go by the pod's own account, as kubectl does where there is no kubeconfig."""
    if os.environ.get("KUBECONFIG") or (Path.home() / ".kube" / "config").exists():
        return False
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def refusal(error: ApiStatus, url: str, doing: str = "") -> Failure:
    """What to tell the user of an answer that nobody has explained better."""
    doing = f" to {doing}" if doing else ""
    if error.code == 0:
        return Failure(f"the Kubernetes API at {url} does not answer: {error.message}", UNREACHABLE)
    if error.code == 401:
        return Failure(f"the Kubernetes API at {url} does not know you: {error.message}. `kubectl auth whoami` shows who you are", UNUSABLE)
    if error.code == 403:
        return Failure(f"you are not allowed{doing}: {error.message}", UNUSABLE)
    if error.code in (429, 500, 502, 503, 504):
        return Failure(f"the Kubernetes API at {url} cannot serve this now ({error.code}): {error.message}", UNREACHABLE)
    return Failure(f"the Kubernetes API refuses{doing} ({error.code} {error.reason}): {error.message}", UNUSABLE)


def kube_options(command: Callable) -> Callable:
    """The options that say where Kubernetes is; the command gets `kube`."""

    @functools.wraps(command)
    def wrapped(kube: str | None, context: str | None, **rest: Any) -> Any:
        return command(kube=Kube(kube, context), **rest)

    for option in (
        click.option("--context", metavar="NAME", help="Context of the kubeconfig."),
        click.option("--kube", metavar="URL|KUBECONFIG", help="Kubernetes API; default: the stack's, else RESTOW_KUBE, else kubectl's."),
    ):
        wrapped = option(wrapped)
    return wrapped
