"""A trace is what comes of one fact or one deadline, for a minute; whether it is exported is decided once for each trace."""

from restow import machine
from restow.runtime.tracer import TRACE_LIFE, Tracer, collector_of, resource_of, sampled_share


class At(machine.Machine):
    """A machine whose clock stands where it was put."""

    def __init__(self, seconds=1_800_000_000):
        self.seconds = seconds

    def wall(self):
        return self.seconds * 10**9


class Kept:
    """In place of the exporter."""

    def __init__(self):
        self.spans = []
        self.take = self.spans.append


def trace(span):
    return span.traceparent[3:35]


def test_a_day_of_commits_that_follow_from_each_other_is_not_one_trace():
    clock = At()
    before = machine.use(clock)
    try:
        services, parent, traces = [Tracer(), Tracer()], "", {}
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
    kept = Kept()
    first = Tracer().span("x")
    second = Tracer(kept).span("y", first.traceparent)
    second.end(seq=7)
    (told,) = kept.spans
    assert trace(second) == trace(first) == told.trace
    assert second.traceparent != first.traceparent
    assert second.traceparent[36:52] == told.id
    assert first.traceparent[36:52] == told.parent
    assert (told.name, told.values, told.begin <= told.end) == ("y", {"seq": 7}, True)


def test_a_commit_links_to_all_that_it_follows_from():
    kept, before = Kept(), Tracer()
    causes = [before.span("x").traceparent for _ in range(3)]
    Tracer(kept).span("y", causes[-1], causes).end()
    (told,) = kept.spans
    assert told.parent == causes[-1][36:52]
    assert told.links == causes[:2]


def test_a_commit_after_one_of_a_service_that_exports_nothing_is_exported():
    """One unsampled parent does not make all that follows unsampled for ever."""
    parent = Tracer().span("x").traceparent[:-2] + "00"
    kept = Kept()
    tracer = Tracer(kept)
    first = tracer.span("session commit", parent)
    first.end()
    tracer.span("cluster commit", first.traceparent).end()
    assert [span.trace for span in kept.spans] == [parent[3:35]] * 2


def test_every_service_samples_the_same_traces():
    environment = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
    kept = Kept()
    plain, tracer = Tracer(None, environment), Tracer(kept, environment)
    wanted = set()
    for _ in range(400):
        root = plain.span("x")
        tracer.span("y", root.traceparent).end()
        if root.traceparent.endswith("01"):
            wanted.add(trace(root))
    assert {span.trace for span in kept.spans} == wanted
    assert 50 < len(wanted) < 150


def test_the_share_is_what_opentelemetrys_variables_say():
    assert sampled_share({}) == 1.0
    assert sampled_share({"OTEL_TRACES_SAMPLER": "always_off"}) == 0.0
    assert sampled_share({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}) == 0.1
    assert sampled_share({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "many"}) == 1.0


def test_where_spans_go_and_what_they_say_of_the_service_is_too():
    there = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}
    assert collector_of({}) is None
    assert collector_of({**there, "OTEL_SDK_DISABLED": "true"}) is None
    assert collector_of(there).url == "http://c:4318/v1/traces"
    told = resource_of("scheduler_session", "c1", "l1", "pod-1", {"OTEL_RESOURCE_ATTRIBUTES": "team=a%20b,restow.log=x"})
    assert told.pop("service.version")
    assert told == {"team": "a b", "service.name": "restow-scheduler-session", "service.instance.id": "pod-1", "k8s.cluster.name": "c1", "restow.log": "l1"}


def test_a_parent_that_is_no_traceparent_begins_a_trace():
    tracer = Tracer()
    for parent in ("", "00-" + "z" * 32 + "-" + "0" * 16 + "-01", "00-" + "f" * 32 + "-" + "1" * 16 + "-01"):
        assert trace(tracer.span("x", parent)) != parent[3:35]
