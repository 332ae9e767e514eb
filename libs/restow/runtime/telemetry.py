"""Metrics and traces. Labels are resolved once, so that nothing is looked up per event; a trace has one span a commit.

Without an OTLP endpoint no SDK is loaded: the commit's traceparent is made here, so traces still join across services.
"""

import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from restow import machine
from restow.contracts.ids import Family
from restow.contracts.sampling import sampled

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """One service's metrics, in a registry of its own."""

    def __init__(self, family: Family) -> None:
        self.registry = CollectorRegistry()
        common: dict[str, Any] = {"registry": self.registry}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"restow_{name}", text, ("family", *labels), **common)

        histogram = self.histogram

        self.commits = counter("commits", "Commits appended to the log").labels(family)
        self.events = counter("events_decided", "Events in those commits").labels(family)
        self.conflicts = counter("commit_conflicts", "Commits refused because the family had moved on").labels(family)
        self.unknown = counter("commits_unanswered", "Commits whose answer was lost").labels(family)
        self.rejected = counter("commands_rejected", "Commands that made no sense").labels(family)
        self.decide = histogram("decide", "Time to decide one commit").labels(family)
        self.append = histogram("append", "Time until a commit is durable").labels(family)
        self.reaction = histogram("reaction", "From the first commit of others that was not looked at yet until what was decided on it is durable").labels(family)
        self.bytes = counter("commit_bytes", "Bytes of those commits").labels(family)
        self.undecodable = counter("objects_undecodable", "Kubernetes objects that could not be read", "kind")
        self.restarts = counter("watch_restarts", "Lists and watches that began again", "kind", "reason")
        self._effects = counter("effects", "Effects attempted", "kind", "outcome")
        self._effect_seconds = histogram("effect", "Time of one attempt", "kind")
        self.family = family

    def histogram(self, name: str, text: str, *labels: str) -> Histogram:
        """In seconds; the first label is the family."""
        return Histogram(f"restow_{name}_seconds", text, ("family", *labels), buckets=SECONDS, registry=self.registry)

    def effect(self, kind: str) -> tuple[Any, Any, Any]:
        """(done, retried, seconds) of one kind of effect."""
        return (
            self._effects.labels(self.family, kind, "done"),
            self._effects.labels(self.family, kind, "retried"),
            self._effect_seconds.labels(self.family, kind),
        )

    def gauges(self, read: Callable[[], dict[str, float]]) -> None:
        """Gauges read when scraped: name → value."""
        self.registry.register(_Gauges(self.family, read))


    def labelled(self, read: Callable[[], Iterable["Labelled"]]) -> None:
        """Gauges with labels of their own, read when scraped."""
        self.registry.register(_Labelled(self.family, read))


class _Gauges(Collector):
    def __init__(self, family: Family, read: Callable[[], dict[str, float]]) -> None:
        self._family, self._read = family, read

    def collect(self) -> Iterable[Metric]:
        for name, value in self._read().items():
            gauge = GaugeMetricFamily(f"restow_{name}", name.replace("_", " "), labels=("family",))
            gauge.add_metric((self._family,), value)
            yield gauge


class Labelled(msgspec.Struct, frozen=True):
    """One gauge: its name without `restow_`, what it says, its labels, and their values with what they have."""

    name: str
    text: str
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], float]]

    @classmethod
    def one(cls, name: str, text: str, value: float) -> "Labelled":
        """Of a gauge without labels."""
        return cls(name, text, (), [((), float(value))])


class _Labelled(Collector):
    def __init__(self, family: Family, read: Callable[[], Iterable[Labelled]]) -> None:
        self._family, self._read = family, read

    def describe(self) -> Iterable[Metric]:
        """Nothing: what it has is only known when it is read."""
        return ()

    def collect(self) -> Iterable[Metric]:
        for one in self._read():
            gauge = GaugeMetricFamily(f"restow_{one.name}", one.text, labels=("family", *one.labels))
            for values, amount in one.samples:
                gauge.add_metric((self._family, *values), amount)
            yield gauge


class Span:
    """One command or commit. `traceparent` goes into the envelope."""

    __slots__ = ("_real", "traceparent")

    def __init__(self, traceparent: str, real: Any = None) -> None:
        self.traceparent, self._real = traceparent, real

    def end(self, **attributes: Any) -> None:
        if self._real is not None:
            self._real.set_attributes(attributes)
            self._real.end()


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


class Tracer:
    """Spans that continue the trace of what caused them.

    Whether a trace is exported follows from its id alone (as `TraceIdRatioBased` does it): every service decides alike, and anew for
    each trace. What the parent's flag says does not count, for a service that exports nothing marks its spans unsampled. A trace's
    id begins with the second of its birth, by which it ends.
    """

    def __init__(self, service: str, environment: Mapping[str, str] = os.environ) -> None:
        self._real: Any = None
        self._random = random.Random(machine.bits(128))
        self._share = sampled_share(environment)
        if environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
            self._real = _otlp(service, self)

    def span(self, name: str, parent: str = "") -> Span:
        """The next span. `parent`: traceparent of what this follows from, continued while its trace is young."""
        trace = self.continued(parent)
        if self._real is not None:
            return self._exported(name, trace, parent)
        trace = trace or f"{self.new_trace():032x}"
        return Span(f"00-{trace}-{self.new_span():016x}-{int(self.samples(trace)):02x}")

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
        return sampled(trace, self._share)

    def new_trace(self) -> int:
        """The second of its birth, and 96 random bits."""
        return (machine.wall() // 10**9 & 0xFFFFFFFF) << 96 | self._random.getrandbits(96)

    def new_span(self) -> int:
        return self._random.getrandbits(64) or 1

    def _exported(self, name: str, trace: str, parent: str) -> Span:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = None
        if trace:
            decided = f"{parent[:53]}{int(self.samples(trace)):02x}"
            context = TraceContextTextMapPropagator().extract({"traceparent": decided})
        real = self._real.start_span(name, context=context)
        of = real.get_span_context()
        return Span(f"00-{of.trace_id:032x}-{of.span_id:016x}-{int(of.trace_flags):02x}", real)


def _otlp(service: str, tracer: Tracer) -> Any:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise RuntimeError("OTEL_EXPORTER_OTLP_ENDPOINT is set, but the exporter is missing: pip install 'restow[otlp]'") from error

    class Ids(IdGenerator):
        def generate_trace_id(self) -> int:
            return tracer.new_trace()

        def generate_span_id(self) -> int:
            return tracer.new_span()

    provider = TracerProvider(
        resource=Resource.create({"service.name": f"restow-{service}"}),
        sampler=ParentBased(root=TraceIdRatioBased(tracer._share)),
        id_generator=Ids(),
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("restow")
