"""A trace is what comes of one fact or one deadline, for a minute; whether it is exported is decided once for each trace."""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from restow import machine
from restow.runtime.telemetry import TRACE_LIFE, Tracer, sampled_share


class At(machine.Machine):
    """A machine whose clock stands where it was put."""

    def __init__(self, seconds=1_800_000_000):
        self.seconds = seconds

    def wall(self):
        return self.seconds * 10**9


def exporting(tracer, sampler=None):
    out, provider = InMemorySpanExporter(), TracerProvider(**({"sampler": sampler} if sampler else {}))
    provider.add_span_processor(SimpleSpanProcessor(out))
    tracer._real = provider.get_tracer("restow")
    return out


def trace(span):
    return span.traceparent[3:35]


def test_a_day_of_commits_that_follow_from_each_other_is_not_one_trace():
    clock = At()
    before = machine.use(clock)
    try:
        services, parent, traces = [Tracer("a", {}), Tracer("b", {})], "", {}
        for number in range(24 * 60 * 6):
            span = services[number % 2].span("commit", parent)
            parent = span.traceparent
            traces.setdefault(trace(span), []).append(clock.seconds)
            clock.seconds += 10
    finally:
        machine.use(before)
    assert len(traces) == 24 * 60
    assert max(times[-1] - times[0] for times in traces.values()) < TRACE_LIFE


def test_what_follows_at_once_joins_the_trace_of_its_cause():
    first = Tracer("a", {}).span("x")
    second = Tracer("b", {}).span("y", first.traceparent)
    assert trace(second) == trace(first)
    assert second.traceparent != first.traceparent


def test_a_commit_after_one_of_a_service_that_exports_nothing_is_exported():
    """One unsampled parent does not make all that follows unsampled for ever."""
    parent = Tracer("plain", {}).span("x").traceparent[:-2] + "00"
    tracer = Tracer("b", {})
    out = exporting(tracer)
    first = tracer.span("session commit", parent)
    first.end()
    tracer.span("cluster commit", first.traceparent).end()
    assert len(out.get_finished_spans()) == 2
    assert {f"{span.context.trace_id:032x}" for span in out.get_finished_spans()} == {parent[3:35]}


def test_every_service_samples_the_same_traces():
    environment = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
    plain, tracer = Tracer("a", environment), Tracer("b", environment)
    out = exporting(tracer, ParentBased(root=TraceIdRatioBased(0.25)))
    wanted = set()
    for _ in range(400):
        root = plain.span("x")
        tracer.span("y", root.traceparent).end()
        if root.traceparent.endswith("01"):
            wanted.add(trace(root))
    assert {f"{span.context.trace_id:032x}" for span in out.get_finished_spans()} == wanted
    assert 50 < len(wanted) < 150


def test_the_share_is_what_opentelemetrys_variables_say():
    assert sampled_share({}) == 1.0
    assert sampled_share({"OTEL_TRACES_SAMPLER": "always_off"}) == 0.0
    assert sampled_share({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}) == 0.1
    assert sampled_share({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "many"}) == 1.0


def test_a_parent_that_is_no_traceparent_begins_a_trace():
    tracer = Tracer("a", {})
    for parent in ("", "00-" + "z" * 32 + "-" + "0" * 16 + "-01", "00-" + "f" * 32 + "-" + "1" * 16 + "-01"):
        assert trace(tracer.span("x", parent)) != parent[3:35]
