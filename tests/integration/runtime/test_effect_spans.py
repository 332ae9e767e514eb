"""Of each attempt at an effect there is a span, with the requests that it made and what the API answered; in the trace that the log tells of the same pod or plan."""

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from aiohttp import web
from domain.build import NOW, changed
from replay.handmade import LOG_ID, migration

from restow.contracts import commands as c
from restow.domain.effects import AbortEviction, Bind, DeleteReservation, EvictVictim, TellUnschedulable
from restow.kube.client import ClientConfig, connect
from restow.kube.effects import Effects, Failed, PodRef
from restow.kube.retry import Backoff
from restow.replay.state_at import state_at
from restow.replay.traces import Traces
from restow.runtime import effect_spans
from restow.runtime.effector import Done, Executor, Report, later
from restow.runtime.tracer import Tracer
from restow.tracing import exporter as exporting
from restow.tracing import otlp
from restow.tracing.calls import CALLS, what
from restow.tracing.collector import Away, Collector, NotTaken
from restow.tracing.exporter import Exporter
from restow.tracing.spans import Measured, span_id, trace_id

from .rig import cluster, facts, memory, running, soon, until
from .test_traces import Kept


@pytest.fixture
async def api():
    """Answers what `answers` says, in order, then 201."""
    answers = []

    async def answer(request):
        code, body = answers.pop(0) if answers else (201, {})
        return web.json_response(body, status=code)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with await connect(ClientConfig(url=f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}")) as client:
        client.answers = answers
        yield client
    await runner.cleanup()


def binding(client, bound):
    effects = Effects(client, Backoff(attempts=1))

    async def execute(effect, state):
        outcome = await effects.bind(PodRef("default", effect.pod, effect.pod), effect.node)
        if isinstance(outcome, Failed):
            return later(outcome)
        bound.set()
        return Done()

    return {Bind: Executor(execute), TellUnschedulable: Executor(execute)}


async def test_a_bind_is_told_with_what_the_api_answered_in_the_trace_of_its_pod(api):
    log, kept, bound = memory(), Kept(), asyncio.Event()
    api.answers += [(429, {"kind": "Status", "reason": "TooManyRequests", "message": "later"})]
    async with running(log, executors=binding(api, bound), tracer=Tracer(kept)) as rig:
        await rig.lead()
        await cluster(log)
        await soon(bound.wait())
        await until(lambda: sum(span.name == "Bind" for span in kept.spans) == 2, rig.follower)
    trace = trace_id(log.log_id, "pod", "p0")
    first, second = [span for span in kept.spans if span.name == "Bind"]
    assert {(one.trace, one.parent) for one in (first, second)} == {(trace, span_id(trace, "pod"))}
    assert first.values == {"restow.node": "n0", "k8s.pod.uid": "p0", "restow.attempt": 1, "restow.outcome": "retry"}
    assert second.values == first.values | {"restow.attempt": 2, "restow.outcome": "done"}
    assert (first.error, second.error) == ("429 TooManyRequests later", "")
    refused, done = [span for span in kept.spans if span.call]
    assert (refused.name, refused.parent, refused.trace) == ("POST pods/binding", first.id, trace)
    assert refused.values == {
        "http.request.method": "POST", "url.path": "/api/v1/namespaces/default/pods/p0/binding", "http.response.status_code": 429, "error.type": "TooManyRequests",
    }  # fmt: skip
    assert (refused.error, done.error) == ("TooManyRequests", "")
    assert (done.parent, done.values["http.response.status_code"]) == (second.id, 201)
    for span in kept.spans:
        assert span.begin <= span.end
    assert first.begin <= refused.begin <= refused.end <= first.end


async def test_what_an_answer_led_to_is_told_without_secrets():
    log, kept = memory(), Kept()

    async def refuses(effect, state):
        return Report(c.RefuseBind(NOW, effect.pod, effect.node, "no: password=hunter2"))

    async with running(log, executors={Bind: Executor(refuses), TellUnschedulable: Executor(refuses)}, tracer=Tracer(kept)) as rig:
        await rig.lead()
        await cluster(log)
        await until(lambda: any(span.name == "Bind" for span in kept.spans), rig.follower)
    told = next(span for span in kept.spans if span.name == "Bind")
    assert (told.values["restow.outcome"], told.values["restow.reason"], told.error) == ("refuse_bind", "no: password=***", "")


async def test_a_commit_names_the_others_that_it_follows_from(api):
    log, kept = memory(), Kept()
    async with running(log, tracer=Tracer(kept)) as rig:
        await rig.lead()
        before = [Tracer().span("x").traceparent for _ in range(3)]
        # Nothing can be placed by these alone: they are read, and the commit that follows is of all of them.
        await cluster(log, pods=0)
        for traceparent in before[:2]:
            await facts(log, changed("p9"), traceparent=traceparent)
        await rig.folded(await log.tail())
        await cluster(log)
        await soon(rig.bound.get())
        spans = [span for span in kept.spans if span.name == "session commit"]
        assert {*before[:2]} <= {*spans[-1].links}
        await facts(log, changed("p8"), traceparent=before[2])
        await rig.folded(await log.tail())
        assert before[2] in rig.follower.causes()
        assert not {*before[:2]} & {*rig.follower.causes()}


def test_the_trace_is_the_one_that_the_log_tells():
    log, spans = migration(), []
    traces = Traces(LOG_ID)
    state = state_at(log.source(), watch=lambda state, record, found: spans.extend(traces.hear(state, record, found)))
    spans += traces.rest()
    (move,) = [span for span in spans if span.name.startswith("move")]
    kept = Kept()
    for effect in (AbortEviction("p1-1"), EvictVictim("uid-web-old"), DeleteReservation("r1")):
        token = CALLS.set(None)
        effect_spans.begun(Tracer(kept), LOG_ID, effect, state, 1).end({})
        CALLS.reset(token)
    of_the_move, of_a_pod, of_none = kept.spans
    assert (of_the_move.trace, of_the_move.parent) == (move.trace, move.id)
    assert of_a_pod.parent == of_none.parent == ""
    assert of_a_pod.links == (f"00-{(trace := trace_id(LOG_ID, 'pod', 'uid-web-old'))}-{span_id(trace, 'pod')}-01",)
    assert (of_none.links, of_none.values) == ((), {"restow.reservation": "r1", "restow.attempt": 1})


def test_nothing_is_measured_where_nobody_wants_to_know():
    assert Tracer().attempt("Bind", {}) is None
    assert CALLS.get() is None
    assert Tracer(Kept(), {"OTEL_TRACES_SAMPLER": "always_off"}).attempt("Bind", {}) is None


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/v1/namespaces/shop/pods/web-1/eviction", "pods/eviction"),
        ("/api/v1/namespaces/shop", "namespaces"),
        ("/api/v1/nodes/n1", "nodes"),
        ("/apis/batch.volcano.sh/v1alpha1/reservations", "reservations"),
        ("/apis/coordination.k8s.io/v1/namespaces/restow/leases/x", "leases"),
        ("/version", ""),
        ("/", ""),
    ],
)
def test_a_request_is_named_by_its_kind(path, kind):
    assert what(path) == kind


@pytest.fixture
def collector(monkeypatch):
    monkeypatch.setattr(exporting, "BEAT", 0.01)
    got, answers = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            code = answers.pop(0) if answers else 200
            if code == 200:
                got.append(body)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.got, server.answers, server.url = got, answers, f"http://127.0.0.1:{server.server_port}/v1/traces"
    yield server
    server.shutdown()
    server.server_close()


SPAN = Measured("a" * 32, "b" * 16, "", "n", 1, 2, {"k": 1})


def wait(holds):
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def spans_of(collector):
    return [span for body in collector.got for one in body["resourceSpans"] for scope in one["scopeSpans"] for span in scope["spans"]]


def test_a_collector_that_is_away_is_waited_for_and_said_once(collector):
    said = []
    collector.answers += [503, 503, 503]
    exporter = Exporter(Collector(collector.url, {}), {"service.name": "restow-x"}, said.append)
    exporter.take(SPAN)
    wait(lambda: spans_of(collector))
    exporter.close()
    (span,) = spans_of(collector)
    assert (span["startTimeUnixNano"], span["endTimeUnixNano"], span["attributes"]) == ("1", "2", [{"key": "k", "value": {"intValue": "1"}}])
    assert collector.got[0]["resourceSpans"][0]["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "restow-x"}}]
    assert ["answers 503" in said[0], said[1:], exporter.dropped] == [True, ["spans are sent again; 0 were lost meanwhile"], 0]


def test_what_was_lost_is_told_once():
    """It told what was lost since the start, each time."""
    said, answers = [], [NotTaken("no"), (0, ""), NotTaken("no"), NotTaken("no"), (0, "")]

    class Odd:
        def take(self, *_, **__):
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    exporter = Exporter(Odd(), {}, said.append)
    for _ in range(5):
        exporter._waiting.append(SPAN)
        exporter._send()
    assert [what for what in said if "again" in what] == ["spans are sent again; 1 were lost meanwhile", "spans are sent again; 2 were lost meanwhile"]


def test_a_request_that_is_too_large_is_sent_in_parts(collector):
    """A gateway before a collector takes a megabyte, say, and 512 spans were lost at a time."""
    said = []
    collector.answers += [413, 413]
    exporter = Exporter(Collector(collector.url, {}), {}, said.append)
    exporter._waiting.extend([SPAN] * 7)
    exporter._send()
    assert ([len(body["resourceSpans"][0]["scopeSpans"][0]["spans"]) for body in collector.got], exporter.dropped, said) == ([1] * 7, 0, [])
    collector.answers += [413]
    exporter._waiting.append(SPAN)
    exporter._send()
    assert (exporter.dropped, "answers 413" in said[0]) == (1, True)
    collector.got.clear()
    exporter._waiting.extend([SPAN] * 7)
    exporter._send()
    assert [len(body["resourceSpans"][0]["scopeSpans"][0]["spans"]) for body in collector.got] == [7], "for ever they were sent one by one"
    collector.got.clear()
    collector.answers += [413] * 4
    exporter._waiting.extend([SPAN] * 9)
    exporter._send()
    assert (len(collector.got), len(exporter._waiting)) == (0, 8), "of one that takes nothing nobody asks again and again"
    exporter._send()
    assert [len(body["resourceSpans"][0]["scopeSpans"][0]["spans"]) for body in collector.got] == [8], "nor after the one that was too large alone"


def test_what_is_said_beside_a_code_fills_no_log():
    """A gateway says the request's id each time."""
    said, count = [], iter(range(100))

    class Busy:
        def take(self, *_, **__):
            raise Away(f"http://c answers 503: request {next(count)}")

    exporter = Exporter(Busy(), {}, said.append)
    exporter._waiting.append(SPAN)
    for _ in range(5):
        exporter._send()
    assert said == ["http://c answers 503: request 0; spans wait for it"]


def test_what_a_collector_will_never_take_keeps_nothing_waiting(collector):
    said = []
    collector.answers += [400]
    exporter = Exporter(Collector(collector.url, {}), {}, said.append)
    exporter.take(SPAN)
    wait(lambda: exporter.dropped == 1)
    exporter.take(SPAN)
    wait(lambda: spans_of(collector))
    exporter.close()
    assert "answers 400" in said[0]
    assert len(spans_of(collector)) == 1


def test_what_cannot_be_written_keeps_nothing_waiting(collector):
    said = []
    exporter = Exporter(Collector(collector.url, {}), {}, said.append)
    exporter.take(Measured("a" * 32, "b" * 16, "", "n", 1, 2, None))
    wait(lambda: exporter.dropped == 1)
    exporter.take(SPAN)
    wait(lambda: spans_of(collector))
    exporter.close()
    assert "AttributeError" in said[0]


def test_words_that_are_no_text_are_told_as_far_as_they_are():
    """Headers of a gateway may have such bytes: all that was sent with them was lost."""
    spans = [Measured("a" * 32, "b" * 16, "", "caf\udce9", 1, 2, {"error.type": "caf\udce9"}, (), "caf\udce9"), SPAN]
    (group,) = json.loads(otlp.measured(spans, {"service.name": "x"}, "1"))["resourceSpans"]
    first, second = group["scopeSpans"][0]["spans"]
    assert (first["name"], first["attributes"][0]["value"], first["status"]["message"], second["name"]) == ("caf?", {"stringValue": "caf?"}, "caf?", "n")


def test_a_collector_that_is_away_for_long_costs_no_more_than_so_much(monkeypatch):
    monkeypatch.setattr(exporting, "MOST_KEPT", 10)
    exporter = Exporter(Collector("http://127.0.0.1:1/v1/traces", {}), {}, lambda said: None)
    for _ in range(15):
        exporter.take(SPAN)
    exporter.close()
    assert exporter.dropped == 5


def test_what_is_left_is_sent_when_the_service_ends(collector, monkeypatch):
    monkeypatch.setattr(exporting, "BEAT", 3600)
    exporter = Exporter(Collector(collector.url, {}), {}, lambda said: None)
    exporter.take(SPAN)
    exporter.close()
    assert len(spans_of(collector)) == 1


def test_what_is_measured_is_json_whatever_is_in_it():
    values = {"a": 'quoted " and \\ and\nthree', "b": True, "c": 1 << 40}
    span = Measured("a" * 32, "b" * 16, "c" * 16, 'na"me', 1, 2, values, [f"00-{'d' * 32}-{'e' * 16}-01"], 'err"or', True)
    (group,) = json.loads(otlp.measured([span], {"service.name": "x"}, "1"))["resourceSpans"]
    assert group["scopeSpans"][0]["spans"] == [
        {
            "traceId": "a" * 32, "spanId": "b" * 16, "parentSpanId": "c" * 16, "name": 'na"me', "kind": 3, "startTimeUnixNano": "1", "endTimeUnixNano": "2",
            "attributes": [
                {"key": "a", "value": {"stringValue": values["a"]}}, {"key": "b", "value": {"boolValue": True}}, {"key": "c", "value": {"intValue": str(1 << 40)}},
            ],
            "links": [{"traceId": "d" * 32, "spanId": "e" * 16}], "status": {"code": 2, "message": 'err"or'},
        },
    ]  # fmt: skip
