"""Spans in OTLP's JSON form (opentelemetry-proto 1.x, `ExportTraceServiceRequest`), which every collector takes at `/v1/traces`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from restow.replay.traces import Span, Values

INTERNAL, FAILED = 1, 2
"""`SPAN_KIND_INTERNAL`, `STATUS_CODE_ERROR`."""
_json = msgspec.json.Encoder().encode


def request(spans: Sequence[Span], cluster: str, log_id: str, version: str) -> bytes:
    """One export, grouped by service."""
    services = groupby(sorted(spans, key=lambda span: span.service), key=lambda span: span.service)
    return _json({"resourceSpans": [_service(name, list(own), cluster, log_id, version) for name, own in services]})


def _service(name: str, spans: Sequence[Span], cluster: str, log_id: str, version: str) -> dict[str, Any]:
    resource: Values = {"service.name": name, "service.version": version, "k8s.cluster.name": cluster, "restow.log": log_id}
    scope = {"name": "restow.log", "version": version}
    return {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [{"scope": scope, "spans": [_span(span) for span in spans]}]}


def _span(span: Span) -> dict[str, Any]:
    said: dict[str, Any] = {
        "traceId": span.trace,
        "spanId": span.id,
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": _nanos(span.begin),
        "endTimeUnixNano": _nanos(span.end),
        "attributes": _attributes({**span.values, **({"restow.open": True} if span.open else {})}),
        "events": [{"timeUnixNano": _nanos(one.time), "name": one.name, "attributes": _attributes(one.values)} for one in span.events],
        "links": [{"traceId": one.trace, "spanId": one.span, "attributes": _attributes({"restow.what": one.what})} for one in span.links],
        "status": {"code": FAILED, "message": span.error} if span.error else {},
    }
    if span.parent:
        said["parentSpanId"] = span.parent
    return said


def _nanos(ms: int) -> str:
    """64-bit integers are texts in protobuf's JSON."""
    return str(ms * 1_000_000)


def _attributes(values: Mapping[str, str | int | bool]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: str | int | bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}
