"""Spans in OTLP's JSON form (opentelemetry-proto 1.x, `ExportTraceServiceRequest`), which every collector takes at `/v1/traces`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from restow.tracing.spans import Measured, Span, Values

INTERNAL, CLIENT, FAILED = 1, 3, 2
"""`SPAN_KIND_INTERNAL`, `SPAN_KIND_CLIENT`, `STATUS_CODE_ERROR`."""
_json = msgspec.json.Encoder().encode


def request(spans: Sequence[Span], cluster: str, log_id: str, version: str) -> bytes:
    """One export of spans from a log, grouped by service."""
    services = groupby(sorted(spans, key=lambda span: span.service), key=lambda span: span.service)
    return _json({"resourceSpans": [_group(resource(name, cluster, log_id, version), "restow.log", version, [_span(span) for span in own]) for name, own in services]})


def measured(spans: Sequence[Measured], of: Values, version: str) -> bytes:
    """One export of what one service has measured; `of`: its resource."""
    return _json({"resourceSpans": [_group(of, "restow", version, [msgspec.Raw(_measured(span).encode()) for span in spans])]})


def resource(service: str, cluster: str, log_id: str, version: str) -> Values:
    return {"service.name": service, "service.version": version, "k8s.cluster.name": cluster, "restow.log": log_id}


def _group(of: Values, scope: str, version: str, spans: list[Any]) -> dict[str, Any]:
    return {"resource": {"attributes": _attributes(of)}, "scopeSpans": [{"scope": {"name": scope, "version": version}, "spans": spans}]}


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


def _measured(span: Measured) -> str:
    """As text at once, in a fifth of the time of the form above: while a service decides, each span costs it that."""
    links = ",".join([f'{{"traceId":"{one[3:35]}","spanId":"{one[36:52]}"}}' for one in span.links])
    status = f'"code":{FAILED},"message":{_quoted(span.error)}' if span.error else ""
    values = ",".join([f'{{"key":"{key}","value":{_text(value)}}}' for key, value in span.values.items()])
    return (
        f'{{"traceId":"{span.trace}","spanId":"{span.id}","parentSpanId":"{span.parent}","name":{_quoted(span.name)},"kind":{CLIENT if span.call else INTERNAL},'
        f'"startTimeUnixNano":"{span.begin}","endTimeUnixNano":"{span.end}","attributes":[{values}],"links":[{links}],'
        f'"status":{{{status}}}}}'
    )


def _text(value: str | int | bool) -> str:
    if isinstance(value, str):
        return f'{{"stringValue":{_quoted(value)}}}'
    return f'{{"boolValue":{"true" if value else "false"}}}' if isinstance(value, bool) else f'{{"intValue":"{value}"}}'


def _quoted(text: str) -> str:
    try:
        return _json(text).decode()
    except UnicodeEncodeError:
        # A gateway's words need be no text, and would take all others of the request with them.
        return _json(text.encode(errors="replace").decode()).decode()


def _nanos(ms: int) -> str:
    """64-bit integers are texts in protobuf's JSON."""
    return str(ms * 1_000_000)


def _attributes(values: Mapping[str, str | int | bool]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: str | int | bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}
