"""Where spans go: an address that is one, and nobody else."""

import ssl
import subprocess
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from restow.tracing import collector
from restow.tracing.collector import Away, Collector, NoCollector, endpoint, headers


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("http://collector:port4318", "is no address"), ("http://collector:99999", "is no address"), ("http://[::1", "is no address"),
        ("http://ada:secret@collector", "has a user"),
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_and_no_secret_is_said(named, said):
    with pytest.raises(NoCollector, match=said) as refused:
        endpoint(named, {})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("said", ["x-api-key=topsecret%0akey", "x-api-key=topsecret%00b", "x-api-key: topsecret="])
def test_a_header_that_nobody_takes_is_refused_at_the_start_without_what_is_in_it(said):
    """Of one that is written as HTTP has it the name is all of it, for base64 ends so."""
    with pytest.raises(NoCollector, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        Collector("http://127.0.0.1:1", {"OTEL_EXPORTER_OTLP_HEADERS": said})
    assert "topsecret" not in str(refused.value)


def test_a_line_end_after_a_header_ends_no_service():
    """The Secret of the chart's `headersSecret` is all services': a file that was encoded whole ends so."""
    assert headers({"OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=topsecret%0A, b=%20c%2C"}) == {"x-api-key": "topsecret", "b": "c,"}


@pytest.mark.parametrize("code", [200, 503])
def test_an_answer_without_an_end_is_waited_for_no_longer_than_others(serving, monkeypatch, code):
    """The limit of a socket is one of each read: a byte now and then kept all spans for days."""
    monkeypatch.setattr(collector, "TIMEOUT", 0.3)

    def trickles(asked):
        asked.send_response(code)
        asked.end_headers()
        with suppress(OSError):
            for _ in range(50):
                asked.wfile.write(b" ")
                asked.wfile.flush()
                time.sleep(0.1)

    address, _ = serving(trickles)
    began = time.monotonic()
    with pytest.raises(Away, match="has no end" if code == 200 else "answers 503"):
        Collector(f"{address}/v1/traces", {}).take(b"{}", 1, ())
    assert time.monotonic() - began < 3


def test_what_a_collector_is_told_goes_to_nobody_else(serving):
    """A redirection, and an answer of which nothing more comes than its code."""
    elsewhere, heard = serving(lambda asked: asked.send_response(200))

    def leads_away(asked):
        asked.send_response(302)
        asked.send_header("Location", f"{elsewhere}/v1/traces")

    first, _ = serving(leads_away)
    with pytest.raises(Away, match="answers 302"):
        Collector(f"{first}/v1/traces", {"OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=secret"}).take(b"{}", 1, ())
    assert heard == []
    last, _ = serving(lambda asked: (asked.send_response(503), asked.send_header("Content-Length", "9")))
    with pytest.raises(Away, match="answers 503"):
        Collector(f"{last}/v1/traces", {}).take(b"{}", 1, ())


@pytest.mark.parametrize("half", [False, True], ids=["at once", "half written meanwhile"])
def test_certificates_that_are_renewed_count_without_a_restart(serving, tmp_path, half):
    """And authorities without the newer extensions, as many clusters' are: Python refuses them from 3.13 on."""

    def made(name):
        extensions = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "subjectKeyIdentifier=none", "-addext", "authorityKeyIdentifier=none"]
        openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", *extensions]
        subprocess.run([*openssl, "-keyout", f"{name}.key", "-out", f"{name}.crt"], cwd=tmp_path, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
        return context, (tmp_path / f"{name}.crt").read_bytes()

    (first, authority), (second, renewed) = made("first"), made("second")
    (known := tmp_path / "ca.crt").write_bytes(authority)
    old, new = (serving(lambda asked: asked.send_response(200), tls)[0] for tls in (first, second))
    one = Collector(f"{old}/v1/traces", {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(known)})
    assert one.take(b"{}", 1, ()) == (0, "")
    one.url = f"{new}/v1/traces"
    with pytest.raises(Away, match="certificate verify failed"):
        one.take(b"{}", 1, ())
    if half:
        known.write_bytes(renewed[:50])
        with pytest.raises(Away, match="certificate verify failed"):
            one.take(b"{}", 1, ())
    known.write_bytes(renewed)
    assert one.take(b"{}", 1, ()) == (0, "")


def test_whoever_names_the_port_of_grpc_is_told_the_other_one():
    with pytest.raises(Away, match="port 4317 is most often gRPC's, and 4318 that of HTTP"):
        Collector("http://127.0.0.1:4317/v1/traces", {}).take(b"{}", 1, ())


@pytest.mark.parametrize(("named", "address"), [("http://c:4318/", "http://c:4318/v1/traces"), ("https://c/otlp?key=a/b", "https://c/otlp/v1/traces?key=a/b"), ("http://c/v1/traces/", "http://c/v1/traces/")])
def test_the_path_of_traces_is_added_to_the_path(named, address):
    assert endpoint(named, {}) == address


@pytest.mark.parametrize("answer", [b'{"partialSuccess": {"rejectedSpans": 1e999}}', b"[" * 60_000])
def test_an_answer_that_nobody_can_read_says_nothing(answer):
    assert collector._refused(answer, 5) == (0, "")


@pytest.fixture
def serving():
    """An address where every request is answered so, and the paths that were asked for."""
    servers = []

    def serve(answer, tls=None):
        paths = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                paths.append(self.path)
                self.rfile.read(int(self.headers["Content-Length"]))
                answer(self)
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_):
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        if tls is not None:
            servers[-1].socket = tls.wrap_socket(servers[-1].socket, server_side=True)
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http{'s' if tls is not None else ''}://127.0.0.1:{servers[-1].server_port}", paths

    yield serve
    for one in servers:
        one.shutdown()
        one.server_close()
