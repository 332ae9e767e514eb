"""metrics.k8s.io and Prometheus → samples of what nodes and pods use, as integers with their time.

A source that does not answer, or answers with something else, is an error in the samples: nothing is evicted on it.
"""

import asyncio
import base64
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import aiohttp
import msgspec
from msgspec.structs import replace

from restow.contracts import times
from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain import quantity as q
from restow.domain.descheduling.plugins.load_aware.args import ADAPTOR
from restow.domain.descheduling.plugins.load_aware.args import Args as LoadAware
from restow.domain.descheduling.policy import Policy
from restow.domain.descheduling.samples import BILLION, Loads, NodeRatios, Samples
from restow.domain.descheduling.sources import Prometheus
from restow.kube import loads, wire
from restow.kube.client import ApiStatus, Client
from restow.kube.decode import BAD_JSON

NODES, PODS = "/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1/pods"

TOKEN = "prometheusAuthToken"
"""The key of the bearer token in the secret that the policy names, as upstream has it."""
CA = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
"""In a pod the cluster's own authority is trusted, too: a Prometheus in the cluster most often has its certificate from there."""
TIMEOUT = 10.0
"""Seconds for one answer of Prometheus."""
_MOST = 32 * 2**20
"""Bytes of an answer."""
_CHUNK = 1 << 16

Usage = dict[str, int]


class _Container(wire.Wire):
    usage: dict[str, wire.Quantity] | None = None


class _Metrics(wire.Wire):
    metadata: wire.Meta
    timestamp: datetime | None = None
    usage: dict[str, wire.Quantity] | None = None
    containers: list[_Container] | None = None


class _List(wire.Wire):
    items: list[_Metrics] | None = None


_list = msgspec.json.Decoder(_List)


class Read(msgspec.Struct, frozen=True):
    """`taken`: the oldest sample's time, 0 where none has one. Pods are known by `namespace/name`."""

    usage: dict[str, Usage]
    taken: Millis


class MetricsError(ValueError):
    """An answer that is no list of metrics."""


def nodes(body: bytes) -> Read:
    """Raises MetricsError."""
    return _read(body)


def pods(body: bytes) -> Read:
    """Raises MetricsError. A pod's usage is its containers', added in nano and rounded once."""
    return _read(body)


def node_names(usage: Mapping[str, Usage]) -> dict[NodeName, Usage]:
    return {NodeName(name): amounts for name, amounts in usage.items()}


def _read(body: bytes) -> Read:
    try:
        listed = _list.decode(body).items or []
    except BAD_JSON as error:
        raise MetricsError(f"not a list of metrics.k8s.io: {error}") from error
    found: dict[str, Usage] = {}
    at: list[Millis] = []
    for one in listed:
        meta = one.metadata
        parts = (one.usage,) if one.usage is not None else tuple(c.usage for c in one.containers or ())
        try:
            found[f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name] = _added(parts)
        except q.QuantityError:
            continue
        if one.timestamp is not None:
            at.append(times.of(one.timestamp))
    return Read(found, min(at, default=Millis(0)))


def _added(parts: Sequence[dict[str, wire.Quantity] | None]) -> Usage:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in (part or {}).items():
            total[name] = total.get(name, 0) + q.nano(amount)
    return {name: q.from_nano(name, amount) for name, amount in total.items()}


# -- asking ------------------------------------------------------------------------------------------------------------


async def sample(client: Client, policy: Policy, uids: Mapping[str, PodUid], now: Millis) -> Samples | None:
    """What the policy's sources say now; None where it names none. `uids`: of pods by `namespace/name`. Never raises. What takes long to
    read is read beside the loop."""
    prometheus, queries = policy.prometheus, policy.queries
    if not policy.wants_metrics and prometheus is None and not policy.load_sources:
        return None
    samples = await _measured(client, uids, now) if policy.wants_metrics else Samples(now)
    if prometheus is not None and queries:
        samples = replace(samples, prometheus=await _queried(client, prometheus, queries, now))
    if sources := policy.load_sources:
        samples = replace(samples, loads={key: await _load(client, args, policy, samples, uids, now) for key, args in sources.items()})
    return samples


async def _measured(client: Client, uids: Mapping[str, PodUid], now: Millis) -> Samples:
    try:
        bodies = await asyncio.gather(client.get(NODES), client.get(PODS))
        of_nodes, of_pods = [await asyncio.to_thread(_read, body) for body in bodies]
    except ApiStatus as error:
        hint = "; is metrics-server installed?" if error.code == 404 else ""
        return Samples(now, error=f"metrics.k8s.io: {error}{hint}")
    except MetricsError as error:
        return Samples(now, error=str(error))
    # Without a time it is as old as the answer.
    taken = min((read.taken for read in (of_nodes, of_pods) if read.taken), default=now)
    pods = {uids[name]: usage for name, usage in of_pods.usage.items() if name in uids}
    return Samples(taken, node_names(of_nodes.usage), pods)


async def _queried(client: Client, source: Prometheus, queries: tuple[str, ...], now: Millis) -> dict[str, NodeRatios]:
    try:
        async with _asking(client, source) as ask:
            return {query: await _ratios(ask, query, now) for query in queries}
    except MetricsError as error:
        return {query: NodeRatios(now, error=f"Prometheus at {source.url}: {error}") for query in queries}


async def _ratios(ask: loads.Ask, query: str, now: Millis) -> NodeRatios:
    try:
        return vector(await ask(query), query, now)
    except MetricsError as error:
        return NodeRatios(now, error=str(error))


async def _load(
    client: Client, args: LoadAware, policy: Policy, samples: Samples, uids: Mapping[str, PodUid], now: Millis
) -> Loads:
    if args.metrics.type == ADAPTOR:
        return await loads.of_adaptor(client, samples.pods, samples.missing(now), now)
    known = policy.prometheus
    if known is None or (args.metrics.address and args.metrics.address.rstrip("/") != known.url.rstrip("/")):
        known = Prometheus(url=args.metrics.address)
    try:
        async with _asking(client, known) as ask:
            return await loads.of_prometheus(ask, args, uids, now)
    except MetricsError as error:
        return Loads(now, error=f"Prometheus at {known.url}: {error}")


@contextlib.asynccontextmanager
async def _asking(client: Client, source: Prometheus) -> AsyncIterator[loads.Ask]:
    """Raises MetricsError where its token or the authorities cannot be read."""
    try:
        headers = await _authorization(client, source)
        verify = ssl.create_default_context()
        if os.path.exists(CA):
            verify.load_verify_locations(CA)
    except (ApiStatus, ssl.SSLError, OSError) as error:
        raise MetricsError(str(error)) from None
    url, timeout = source.url.rstrip("/"), aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
        yield lambda query: _query(session, url, query, verify)


async def _authorization(client: Client, source: Prometheus) -> dict[str, str]:
    secret = source.auth_token.secret_reference if source.auth_token is not None else None
    if secret is None:
        return {}
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
    return {"Authorization": f"Bearer {token}"}


async def _query(session: aiohttp.ClientSession, url: str, query: str, verify: ssl.SSLContext) -> bytes:
    """Raises MetricsError."""
    body = bytearray()
    try:
        async with session.get(
            f"{url}/api/v1/query", params={"query": query}, ssl=verify if url.startswith("https:") else False, allow_redirects=False
        ) as answer:
            async for part in answer.content.iter_chunked(_CHUNK):
                body += part
                if len(body) > _MOST:
                    raise MetricsError(f"Prometheus at {url} answers {query!r} with more than {_MOST >> 20} MiB")
            if answer.status != 200:
                raise MetricsError(f"Prometheus at {url} answers {answer.status} to {query!r}")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise MetricsError(f"Prometheus at {url} does not answer: {str(error) or type(error).__name__}") from None
    return bytes(body)


def vector(body: bytes, query: str, now: Millis) -> NodeRatios:
    """The answer to an instant query: one sample for each `instance`. What is no such answer is an error."""
    try:
        said: Any = msgspec.json.decode(body)
        if said["status"] != "success" or said["data"]["resultType"] != "vector":
            return NodeRatios(now, error=f"Prometheus answers {query!r} with {said['data']['resultType']}; allowed: an instant vector")
        ratios: dict[NodeName, int] = {}
        taken: list[int] = []
        for one in said["data"]["result"]:
            at, value = one["value"]
            name, ratio = NodeName(one["metric"]["instance"]), Decimal(str(value))
            if not 0 <= ratio <= 1:
                return NodeRatios(now, error=f"{query!r} is {value} for {name}; allowed: 0 to 1")
            if name in ratios:
                return NodeRatios(now, error=f"{query!r} has more than one sample for {name}; allowed: one for each instance")
            ratios[name] = int(ratio * BILLION)
            taken.append(int(Decimal(str(at)) * 1000))
    except (*BAD_JSON, KeyError, TypeError, ValueError, InvalidOperation) as error:
        return NodeRatios(now, error=f"Prometheus answers {query!r} with something unreadable ({type(error).__name__} {error})")
    return NodeRatios(Millis(min(taken, default=now)), ratios)
