"""metrics.k8s.io → usage in canonical units. What cannot be read is left out: nothing is decided on it."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from restow.contracts import times
from restow.contracts.ids import Millis, NodeName
from restow.domain import quantity as q
from restow.kube import wire
from restow.kube.decode import BAD_JSON

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
        parts = [one.usage] if one.usage is not None else [c.usage for c in one.containers or ()]
        try:
            found[f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name] = _added(parts)
        except q.QuantityError:
            continue
        if one.timestamp is not None:
            at.append(times.of(one.timestamp))
    return Read(found, min(at, default=Millis(0)))


def _added(parts: list[dict[str, wire.Quantity] | None]) -> Usage:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in (part or {}).items():
            total[name] = total.get(name, 0) + q.nano(amount)
    return {name: q.from_nano(name, amount) for name, amount in total.items()}
