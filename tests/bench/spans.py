"""What spans cost a service that exports them: CPU of the whole process, the thread that sends them included."""

import subprocess
import sys
import time
from collections.abc import Callable

from restow.domain.effects import Bind
from restow.domain.state import ClusterState
from restow.runtime import effect_spans
from restow.runtime.tracer import Tracer, collector_of, resource_of
from restow.tracing.calls import CALLS, Call
from restow.tracing.exporter import Exporter

from .table import Row, Size

TITLE = "spans, by CPU time"
BASELINE = "the same without a collector"

SIZES = {Size.FULL: 10_000, Size.QUICK: 3_000, Size.SMOKE: 50}
CAUSES = 8
_COLLECTOR = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"])), self.send_response(200), self.end_headers(), self.wfile.write(b"{}")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


async def measure(size: Size) -> list[Row]:
    return _measured(SIZES[size])


def _measured(count: int) -> list[Row]:
    collector = subprocess.Popen([sys.executable, "-c", _COLLECTOR], stdout=subprocess.PIPE, text=True)
    try:
        assert collector.stdout is not None
        to = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.stdout.readline().strip()}"}
        return [
            Row(what, _cost(play, count, to), "µs", baseline=_cost(play, count, {}), goal=goal)
            for what, play, goal in (
                ("a commit", _commits, 20), (f"a commit of {CAUSES} causes", _joined, 20), ("an attempt at an effect, one request", _attempts, None),
            )
        ]
    finally:
        collector.kill()
        collector.wait()


def _cost(play: Callable[[Tracer, int], None], count: int, environment: dict[str, str]) -> float:
    """Microseconds of CPU of one, the least of five."""
    least = float("inf")
    for _ in range(5):
        there = collector_of(environment)
        exporter = Exporter(there, resource_of("x", "c", "l", "i", {}), print) if there is not None else None
        started = time.process_time()
        play(Tracer(exporter, environment), count)
        if exporter is not None:
            exporter.close()
            assert exporter.dropped == 0, "it would cost less than it does"
        least = min(least, (time.process_time() - started) / count * 1e6)
    return least


def _commits(tracer: Tracer, count: int, causes: tuple[str, ...] = ()) -> None:
    parent = ""
    for seq in range(count):
        span = tracer.span("session commit", parent, causes)
        parent = span.traceparent
        span.end(seq=seq, events=3)


def _joined(tracer: Tracer, count: int) -> None:
    _commits(tracer, count, tuple(Tracer(None, {}).span("x").traceparent for _ in range(CAUSES)))


def _attempts(tracer: Tracer, count: int) -> None:
    state = ClusterState()
    for number in range(count):
        attempt = effect_spans.begun(tracer, "log", Bind(f"uid-{number}", "n1"), state, 1) if tracer.exporter is not None else None  # type: ignore[arg-type]
        if attempt is not None:
            now = time.time_ns()
            heard = CALLS.get()
            assert heard is not None
            heard.append(Call("POST", f"/api/v1/namespaces/shop/pods/p{number}/binding", now, now, 201))
            attempt.end({"restow.outcome": "done"})
