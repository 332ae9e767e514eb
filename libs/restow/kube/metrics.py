"""metrics.k8s.io and Prometheus → samples of what nodes and pods use, as integers with their time.

A source that does not answer, or answers with something else, is an error in the samples: nothing is evicted on it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from restow.contracts import times
from restow.contracts.ids import Millis, NodeName, PodUid
from restow.contracts.samples import BILLION, STALE, Loads, NodeRatios, Samples
from restow.domain import quantity as q
from restow.domain.descheduling.model import Policy
from restow.domain.descheduling.plugins.load_aware import ADAPTOR
from restow.domain.descheduling.plugins.load_aware import Args as LoadAware
from restow.domain.descheduling.sources import Prometheus
from restow.kube import loads, wire
from restow.kube.client import ApiStatus, Client
from restow.kube.decode import BAD_JSON
from restow.kube.prometheus import Ask, MetricsError, asking, vector

NODES, PODS = "/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1/pods"

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
    """`taken`: the oldest sample's time, 0 where none has one. Pods are known by `namespace/name`. Who was last measured too long
    ago is left out, as if it was not measured; where that are all, none is, and `taken` says how old they are."""

    usage: dict[str, Usage]
    taken: Millis


def read(body: bytes, now: Millis | None = None) -> Read:
    """A list of nodes or of pods; a pod's usage is its containers', added in nano and rounded once. Without `now` nothing is too old.
    Raises MetricsError."""
    try:
        listed = _list.decode(body).items or []
    except BAD_JSON as error:
        raise MetricsError(f"not a list of metrics.k8s.io: {error}") from error
    found: dict[str, tuple[Usage, Millis]] = {}
    for one in listed:
        meta = one.metadata
        parts = (one.usage,) if one.usage is not None else tuple(c.usage for c in one.containers or ())
        try:
            used = _added(parts)
        except q.QuantityError:
            continue
        at = times.of(one.timestamp) if one.timestamp is not None else Millis(0)
        found[f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name] = used, at
    # One that is measured no more must not stop all the others; and if none is, that is what there is to say.
    fresh = {name: one for name, one in found.items() if now is None or not one[1] or now - one[1] <= STALE}
    if not fresh:
        return Read({}, max((at for _, at in found.values()), default=Millis(0)))
    return Read({name: used for name, (used, _) in fresh.items()}, min((at for _, at in fresh.values() if at), default=Millis(0)))


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
        of_nodes, of_pods = [await asyncio.to_thread(read, body, now) for body in bodies]
    except ApiStatus as error:
        hint = "; is metrics-server installed?" if error.code == 404 else ""
        return Samples(now, error=f"metrics.k8s.io: {error}{hint}")
    except MetricsError as error:
        return Samples(now, error=str(error))
    # Without a time it is as old as the answer.
    taken = min((one.taken for one in (of_nodes, of_pods) if one.taken), default=now)
    pods = {uids[name]: usage for name, usage in of_pods.usage.items() if name in uids}
    return Samples(taken, {NodeName(name): usage for name, usage in of_nodes.usage.items()}, pods)


async def _queried(client: Client, source: Prometheus, queries: tuple[str, ...], now: Millis) -> dict[str, NodeRatios]:
    try:
        async with asking(client, source, own=True) as ask:
            return {query: await _ratios(ask, query, now) for query in queries}
    except MetricsError as error:
        return {query: NodeRatios(now, error=f"Prometheus at {source.url}: {error}") for query in queries}


async def _ratios(ask: Ask, query: str, now: Millis) -> NodeRatios:
    try:
        return ratios(await ask(query), query, now)
    except MetricsError as error:
        return NodeRatios(now, error=str(error))


async def _load(
    client: Client, args: LoadAware, policy: Policy, samples: Samples, uids: Mapping[str, PodUid], now: Millis
) -> Loads:
    if args.metrics.type == ADAPTOR:
        return await loads.of_adaptor(client, samples.pods, samples.missing(now), now)
    known = policy.prometheus
    own = known is not None and args.metrics.address.rstrip("/") in ("", known.url.rstrip("/"))
    if known is None or not own:
        known = Prometheus(url=args.metrics.address)
    try:
        async with asking(client, known, own) as ask:
            return await loads.of_prometheus(ask, args, uids, now)
    except MetricsError as error:
        return Loads(now, error=f"Prometheus at {known.url}: {error}")


def ratios(body: bytes, query: str, now: Millis) -> NodeRatios:
    """The answer to an instant query: one sample for each `instance`. What is no such answer is an error."""
    try:
        found: dict[NodeName, int] = {}
        samples = vector(body, query)
        for one in samples:
            if not (name := NodeName(one.labels.get("instance", ""))):
                raise MetricsError(f"{query!r} has a sample without the label instance; allowed: the name of a node there")
            if not (one.value.is_finite() and 0 <= one.value <= 1):
                raise MetricsError(f"{query!r} is {one.said} for {name}; allowed: 0 to 1")
            if name in found:
                raise MetricsError(f"{query!r} has more than one sample for {name}; allowed: one for each instance")
            found[name] = int(one.value * BILLION)
    except MetricsError as error:
        return NodeRatios(now, error=str(error))
    return NodeRatios(Millis(min((one.at for one in samples), default=int(now))), found)
