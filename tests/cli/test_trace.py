"""Traces in a terminal, and on their way to a collector."""

import json
import shutil
import signal
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cli.conftest import RESTOW, export
from replay.handmade import migration

from restow.cli.failures import Failure
from restow.cli.trace import command
from restow.cli.trace.command import _deliver
from restow.cli.trace.export import Collector
from restow.eventlog.testing import running_server, unique_cluster
from restow.tracing import collector as exporting
from restow.tracing.collector import NoCollector, endpoint, headers
from restow.tracing.exporter import Exporter
from restow.tracing.spans import Measured, Span


@pytest.fixture
def collector():
    """Takes what is sent to it. `answers` are given first, in order, then 200."""
    got, answers = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code = answers.pop(0) if answers else 200
            if code == 200:
                got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, json.loads(body)))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(self.server.said if code == 200 else b"no")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.said = b"{}"
    server.got, server.answers, server.address = got, answers, f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()


def spans_of(collector):
    return [span for _, _, body in collector.got for one in body["resourceSpans"] for scope in one["scopeSpans"] for span in scope["spans"]]


def test_a_plan_is_a_waterfall(restow, moved):
    output = restow("trace", "p1", "--log", moved).output
    assert "plan Defragmentation" in output
    for step in ("hold", "evict", "land"):
        assert any(line.strip().startswith(step) and "█" in line and "ms" in line for line in output.splitlines())
    assert restow("trace", "p1-1", "--log", moved).output == output
    assert restow("trace", "plan/p1", "--log", moved).output == output


@pytest.mark.parametrize("name", ["shop/web-new", "web-new", "pod/shop/web-new", "uid-web-new"])
def test_a_pod_is_found_by_its_names(restow, moved, name):
    assert restow("trace", name, "--log", moved).output.startswith("pod shop/web-new")


def test_who_has_no_trace_is_said(restow, moved):
    result = restow("trace", "nobody", "--log", moved)
    assert (result.exit_code, "no trace of nobody" in result.said) == (2, True)


def test_without_a_name_the_longest_are_listed(restow, moved):
    output = restow("trace", "--log", moved).output
    assert "PLANS  1, the longest first" in output
    assert "pod shop/web-new" in output


def test_a_log_is_sent_to_a_collector_as_otlp(restow, moved, collector, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x,tenant=a")
    result = restow("trace", "--log", moved, "--to", collector.address)
    assert result.exit_code == 0, result.output
    (path, sent, _), *_ = collector.got
    assert (path, sent["content-type"], sent["authorization"], sent["tenant"]) == ("/v1/traces", "application/json", "Bearer x", "a")
    spans = spans_of(collector)
    assert f"{len(spans)} spans of" in result.output
    (plan,) = [span for span in spans if span["name"] == "plan Defragmentation"]
    assert int(plan["endTimeUnixNano"]) > int(plan["startTimeUnixNano"]) > 10**18
    assert {"key": "restow.moves", "value": {"intValue": "1"}} in plan["attributes"]
    assert {one["resource"]["attributes"][0]["value"]["stringValue"] for _, _, body in collector.got for one in body["resourceSpans"]} == {
        "restow-descheduler", "restow-scheduler-session",
    }  # fmt: skip


def test_a_long_log_is_sent_while_it_is_read(restow, moved, collector, monkeypatch):
    restow("trace", "--log", moved, "--to", collector.address)
    whole, _ = spans_of(collector), collector.got.clear()
    monkeypatch.setattr(command, "MOST_WAITING", 2)
    result = restow("trace", "--log", moved, "--to", collector.address)
    assert len(collector.got) > 2
    assert sorted(span["spanId"] for span in spans_of(collector)) == sorted(span["spanId"] for span in whole)
    traces = len({span["traceId"] for span in whole})
    assert f"{len(whole)} spans of {traces} traces are sent" in result.output


def test_json_is_what_would_be_sent(restow, moved, collector):
    restow("trace", "--log", moved, "--to", collector.address)
    said = json.loads(restow("trace", "--log", moved, "-o", "json").output)
    assert said == collector.got[0][2]


def test_a_collector_that_wants_it_later_gets_it_again(restow, moved, collector, monkeypatch):
    monkeypatch.setattr(exporting, "AGAIN", (0.0, 0.0))
    collector.answers += [503, 429]
    assert restow("trace", "--log", moved, "--to", collector.address).exit_code == 0
    assert spans_of(collector)


def test_a_collector_that_refuses_or_is_away_is_said(restow, moved, collector, monkeypatch):
    monkeypatch.setattr(exporting, "AGAIN", (0.0,))
    collector.answers += [400]
    result = restow("trace", "--log", moved, "--to", collector.address)
    assert (result.exit_code, "answers 400: no" in result.said) == (3, True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        result = restow("trace", "--log", moved, "--to", f"http://127.0.0.1:{free.getsockname()[1]}")
    assert (result.exit_code, "cannot be reached" in result.said) == (3, True)


@pytest.mark.parametrize("rejected", ['"3"', "3"])
def test_spans_that_a_collector_does_not_take_of_a_request_are_not_counted_as_sent(restow, moved, collector, rejected):
    collector.said = f'{{"partialSuccess": {{"rejectedSpans": {rejected}, "errorMessage": "too old"}}}}'.encode()
    result = restow("trace", "--to", collector.address, "--log", moved)
    assert f"{len(spans_of(collector)) - 3} spans of" in result.output
    assert (result.exit_code, "has not taken 3 more: too old" in result.said) == (1, True)


def test_who_speaks_no_http_is_no_collector(restow, moved, monkeypatch):
    """The port of gRPC is next to that of HTTP, and answers with HTTP/2."""
    monkeypatch.setattr(exporting, "AGAIN", ())

    def answer(server):
        asks, _ = server.accept()
        with asks:
            asks.recv(1 << 20)
            asks.sendall(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        result = restow("trace", "--log", moved, "--to", f"http://127.0.0.1:{server.getsockname()[1]}")
    assert (result.exit_code, "is no server of HTTP (BadStatusLine)" in result.said) == (3, True), result.output


def test_who_follows_does_not_wait_for_ever_for_a_collector_that_will_never_take_some(collector, capsys):
    one = Span("a" * 32, "b" * 16, "", "s", "n", 1, 2)
    spans = [one] * (exporting.BATCH + 1)
    collector.answers[:] = [400]
    _deliver(Collector(endpoint(collector.address), "c", "l"), spans)
    assert not spans
    assert len(spans_of(collector)) == 1
    assert f"answers 400: no; {exporting.BATCH} spans are left out" in capsys.readouterr().err


def test_who_follows_sends_in_parts_what_is_too_large_at_once(collector, capsys):
    spans = [Span("a" * 32, "b" * 16, "", "s", "n", 1, 2)] * 7
    collector.answers[:] = [413, 413]
    _deliver(Collector(endpoint(collector.address), "c", "l"), spans)
    assert (spans, len(spans_of(collector)), capsys.readouterr().err) == ([], 7, "")
    spans = [Span("a" * 32, "b" * 16, "", "s", "n", 1, 2)]
    collector.answers[:] = [413]
    _deliver(Collector(endpoint(collector.address), "c", "l"), spans)
    assert "answers 413: no; 1 spans are left out" in capsys.readouterr().err
    spans, sender = [Span("a" * 32, "b" * 16, "", "s", "n", 1, 2)] * 9, Collector(endpoint(collector.address), "c", "l")
    collector.got.clear()
    collector.answers[:] = [413] * 4
    _deliver(sender, spans)
    assert [sum(len(scope["spans"]) for one in body["resourceSpans"] for scope in one["scopeSpans"]) for _, _, body in collector.got] == [1, 2, 4, 1], "what is behind the one that was too large alone was sent one by one, for ever"


@pytest.mark.parametrize(
    ("named", "environment", "url"),
    [
        ("http://c:4318", {}, "http://c:4318/v1/traces"),
        ("http://c:4318/", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://d"}, "http://c:4318/v1/traces"),
        ("https://c/otlp/v1/traces", {}, "https://c/otlp/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://d:4318"}, "http://d:4318/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://d:4318/mine"}, "http://d:4318/mine"),
        (None, {}, None),
    ],
)
def test_where_traces_go_is_as_opentelemetry_says_it(named, environment, url):
    assert endpoint(named, environment) == url


@pytest.mark.parametrize("url", ["collector:4318", "ftp://x", "http://", "x"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(NoCollector, match="no address of a collector"):
        endpoint(url, {})


def test_what_is_no_address_is_refused_by_the_command(restow, moved):
    result = restow("trace", "--log", moved, "--to", "collector:4318")
    assert (result.exit_code, "no address of a collector" in result.said) == (2, True)


def test_headers_are_percent_encoded():
    assert headers({"OTEL_EXPORTER_OTLP_HEADERS": "a=b%2Cc, d = e"}) == {"a": "b,c", "d": "e"}


def test_follow_needs_a_running_log_and_a_collector(restow, moved, monkeypatch):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    assert "nobody says where to" in restow("trace", "-f", "--log", moved).said
    assert "will not grow" in restow("trace", "-f", "--log", moved, "--to", "http://127.0.0.1:1").said


@pytest.mark.parametrize("ends_by", [signal.SIGINT, signal.SIGTERM])
def test_what_ends_from_now_on_is_followed(restow, tmp_path, collector, ends_by):
    """The plan is made before, and lands while it is followed; nothing that had ended before is sent again."""
    import asyncio

    from restow.eventlog.jetstream import connect

    log = migration()
    first = next(at for at, record in enumerate(log.records) if b"migration.evicted" in record.body)
    with running_server(sync=False) as server:
        cluster = unique_cluster()

        async def append(records, last):
            opened = await connect([server.url], cluster)
            try:
                for record in records:
                    last[record.family] = await opened.append(record.family, record.body, record.envelope, expected_last=last.get(record.family, 0))
            finally:
                await opened.close()
            return last

        last = asyncio.run(append(log.records[:first], {}))
        argv = [RESTOW, "trace", "-f", "--to", collector.address, "--server", server.url, "--cluster", cluster]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert f"from sequence {first + 1}" in process.stdout.readline()
            asyncio.run(append(log.records[first:], last))
            deadline = time.monotonic() + 60
            while not any(span["name"] == "plan Defragmentation" for span in spans_of(collector)) and time.monotonic() < deadline:
                time.sleep(0.1)
            names = [span["name"] for span in spans_of(collector)]
            assert {"land", "move shop/web-old", "plan Defragmentation"} <= set(names)
            assert "hold" not in names
            process.send_signal(ends_by)
            _, wrong = process.communicate(timeout=60)
            assert (process.returncode, wrong) == (0, "")
        finally:
            process.kill()
            process.wait(30)


def test_who_follows_ends_where_the_log_cannot_be_read_on(monkeypatch):
    assert time.monotonic() - command._read_on("", 0.0) < 60
    now = time.monotonic()
    assert command._read_on("the broker is away", now - 5) == now - 5
    with pytest.raises(Failure, match="cannot be read on: no snapshot continues it"):
        command._read_on("no snapshot continues it", now - command.PATIENCE - 1)


OTELCOL = shutil.which("otelcol")


@pytest.mark.skipif(not OTELCOL, reason="no otelcol in PATH: OTEL=1 tests/kubernetes/build.sh FOLDER builds one")
def test_a_real_collector_takes_them(restow, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"debug": {"verbosity": "detailed", "sampling_initial": 1_000_000}},
        "service": {"telemetry": {"metrics": {"level": "none"}}, "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["debug"]}}},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    said = tmp_path / "said"
    with said.open("w") as out:
        process = subprocess.Popen([OTELCOL, "--config", str(tmp_path / "config.yaml")], stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while "Everything is ready" not in said.read_text():
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        result = restow("trace", "--log", export(tmp_path / "log.jsonl", migration()), "--to", f"http://127.0.0.1:{port}")
        assert result.exit_code == 0, result.output
        count = int(result.output.split()[0])
        while said.read_text().count("Trace ID       : ") < count and time.monotonic() < deadline:
            time.sleep(0.1)
        exporter = Exporter(exporting.Collector(f"http://127.0.0.1:{port}/v1/traces", {}), {"service.name": "restow-x"}, lambda said: None)
        exporter.take(Measured("a" * 32, "b" * 16, "", "POST pods/binding", 1, 2, {"http.response.status_code": 429}, [f"00-{'c' * 32}-{'d' * 16}-01"], "TooManyRequests", True))
        exporter.close()
        assert exporter.dropped == 0
        while "POST pods/binding" not in said.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        text = said.read_text()
        assert text.count("Trace ID       : ") == count + 1
        for told in ("Kind           : Client", "http.response.status_code: Int(429)", "Status message : TooManyRequests", "Trace ID: " + "c" * 32):
            assert told in text
        assert "Name           : move shop/web-old" in text
        assert "restow-descheduler" in text
    finally:
        process.terminate()
        process.wait(30)
