"""Spans of what a service does: one a commit, one an attempt at an effect, one a request that it made for that.

Where OpenTelemetry's variables name no collector, nothing is measured: only the commit's traceparent is made, so traces still join across services.
"""

import os
import random
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from restow import machine
from restow.contracts.redact import redacted
from restow.contracts.sampling import sampled
from restow.tracing.calls import CALLS, Call, what
from restow.tracing.collector import Collector, endpoint, pairs
from restow.tracing.exporter import Exporter
from restow.tracing.spans import Measured, Values

TRACE_LIFE = 60
"""Seconds after which a trace is continued by nobody: each commit follows from another one, and the first of a day would be the
root of the whole day."""

_NAMED = {"always_on": 1.0, "parentbased_always_on": 1.0, "always_off": 0.0, "parentbased_always_off": 0.0}


def sampled_share(environment: Mapping[str, str]) -> float:
    """Which share of traces is exported, by OpenTelemetry's own variables."""
    name = environment.get("OTEL_TRACES_SAMPLER", "always_on")
    if name in _NAMED:
        return _NAMED[name]
    try:
        return min(1.0, max(0.0, float(environment.get("OTEL_TRACES_SAMPLER_ARG", "1"))))
    except ValueError:
        return 1.0


def collector_of(environment: Mapping[str, str] = os.environ) -> Collector | None:
    """None where nobody says where spans go. Raises NoCollector."""
    url = endpoint(None, environment)
    return Collector(url, environment) if url is not None and environment.get("OTEL_SDK_DISABLED", "").lower() != "true" else None


def resource_of(service: str, cluster: str, log_id: str, instance: str, environment: Mapping[str, str] = os.environ) -> Values:
    """Of a service's spans. Its name is the one that traces from the log have (`restow.replay.traces`); `OTEL_RESOURCE_ATTRIBUTES` adds to it."""
    return {
        **pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", "")),
        "service.name": f"restow-{service.replace('_', '-')}", "service.version": version("restow"), "service.instance.id": instance,
        "k8s.cluster.name": cluster, "restow.log": log_id,
    }  # fmt: skip


class Span:
    """One commit. `traceparent` goes into the envelope."""

    __slots__ = ("_begin", "_links", "_name", "_parent", "_to", "traceparent")

    def __init__(self, traceparent: str, to: Exporter | None = None, name: str = "", parent: str = "", links: Sequence[str] = ()) -> None:
        self.traceparent, self._to, self._name, self._parent, self._links = traceparent, to, name, parent, links
        self._begin = machine.wall() if to is not None else 0

    def end(self, **values: str | int | bool) -> None:
        if self._to is not None:
            _, trace, id, _ = self.traceparent.split("-")
            self._to.take(Measured(trace, id, self._parent, self._name, self._begin, machine.wall(), values, self._links))


class Attempt:
    """At an effect, with the requests that it made: made where it begins, in its own task."""

    __slots__ = ("_begin", "_calls", "_links", "_name", "_parent", "_tracer", "_values", "trace")

    def __init__(self, tracer: "Tracer", trace: str, parent: str, name: str, values: Values, links: Sequence[str]) -> None:
        self._tracer, self.trace, self._parent, self._name, self._values, self._links = tracer, trace, parent, name, values, links
        self._calls: list[Call] = []
        CALLS.set(self._calls)
        self._begin = machine.wall()

    def end(self, values: Values, error: str = "") -> None:
        """`error`: what went wrong, in others' words."""
        tracer, id = self._tracer, f"{self._tracer.new_span():016x}"
        assert tracer.exporter is not None
        take = tracer.exporter.take
        take(Measured(self.trace, id, self._parent, self._name, self._begin, machine.wall(), self._values | values, self._links, redacted(error) if error else ""))
        for call in self._calls:
            take(_request(call, self.trace, f"{tracer.new_span():016x}", id))


def _request(call: Call, trace: str, id: str, parent: str) -> Measured:
    """By OpenTelemetry's conventions for clients of HTTP."""
    values: Values = {"http.request.method": call.method}
    if call.to is not None:
        values |= {"server.address": call.to[0], "server.port": call.to[1]}
    else:
        values["url.path"] = call.path
    if call.code:
        values["http.response.status_code"] = call.code
    if call.reason:
        values["error.type"] = call.reason
    failed = call.reason if not 0 < call.code < 400 else ""
    kind = "hook" if call.to is not None else what(call.path)
    return Measured(trace, id, parent, f"{call.method} {kind}".rstrip(), call.begin, call.end, values, (), failed, True)


class Tracer:
    """Spans that continue the trace of what caused them.

    Whether a trace is exported follows from its id alone (as `TraceIdRatioBased` does it): every service decides alike, and anew for
    each trace. What the parent's flag says does not count, for a service that exports nothing marks its spans unsampled. A trace's
    id begins with the second of its birth, by which it ends.
    """

    def __init__(self, to: Exporter | None = None, environment: Mapping[str, str] = os.environ) -> None:
        self.exporter = to
        self._random = random.Random(machine.bits(128))
        self._share = sampled_share(environment)

    def span(self, name: str, parent: str = "", others: Sequence[str] = ()) -> Span:
        """The next one of a commit. `parent`: traceparent of what this follows from, continued while its trace is young; `others`: of what it follows from, too."""
        old = self.continued(parent)
        trace = old or f"{self.new_trace():032x}"
        told = self.samples(trace)
        traceparent = f"00-{trace}-{self.new_span():016x}-{int(told):02x}"
        if self.exporter is None or not told:
            return Span(traceparent)
        links = [one for one in others if len(one) == 55 and one != parent]
        return Span(traceparent, self.exporter, name, parent[36:52] if old else "", links)

    def attempt(self, name: str, values: Values, trace: str = "", parent: str = "", links: Sequence[str] = ()) -> Attempt | None:
        """At an effect: within `trace` below `parent`, or in a trace of its own. None where nobody wants to know."""
        trace = trace or f"{self.new_trace():032x}"
        return Attempt(self, trace, parent, name, values, links) if self.exporter is not None and self.samples(trace) else None

    def continued(self, parent: str) -> str:
        """The parent's trace id, or empty where a new trace begins."""
        trace = parent[3:35] if len(parent) == 55 else ""
        try:
            age = machine.wall() // 10**9 - int(trace[:8] or "0", 16)
        except ValueError:
            return ""
        return trace if -TRACE_LIFE <= age < TRACE_LIFE else ""

    def samples(self, trace: str) -> bool:
        """Whether this trace is exported, wherever it is."""
        return self._share >= 1 or sampled(trace, self._share)

    def new_trace(self) -> int:
        """The second of its birth, and 96 random bits."""
        return (machine.wall() // 10**9 & 0xFFFFFFFF) << 96 | self._random.getrandbits(96)

    def new_span(self) -> int:
        return self._random.getrandbits(64) or 1
