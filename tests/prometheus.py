"""The real Prometheus, where there is one on the machine, and a tiny exporter for it to scrape."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from restow.eventlog.testing import free_ports

UP = 60.0
"""Seconds until it answers: also on a busy machine."""
INTERVAL = "500ms"
"""Also how long a scrape may take: on a busy machine some are late."""

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="the programs prometheus and promtool are not installed (Debian: apt install prometheus)",
)


class Prometheus:
    def __init__(self, url: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.url, self.process, self.log = url, process, log

    def ask(self, query: str) -> list[tuple[dict[str, str], str]]:
        """Labels and value of each sample that there is now."""
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=30) as answer:
            return [(one["metric"], one["value"][1]) for one in json.load(answer)["data"]["result"]]

    def until(self, what: str, holds: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + UP
        while not (found := holds()):
            assert time.monotonic() < deadline, f"{what}: not within {UP:g} s: {self.log.read_text()[-2000:]}"
            time.sleep(0.05)
        return found


@contextlib.contextmanager
def prometheus(folder: Path, config: str = "", samples: str = "", web: str = "") -> Iterator[Prometheus]:
    """`samples`: OpenMetrics text with timestamps, which it then has on its disk. `web`: its web.config.file (TLS); then nobody asks
    whether it is ready, but that it listens."""
    data, settings = folder / "tsdb", folder / "prometheus.yml"
    data.mkdir()
    settings.write_text(config or "scrape_configs: []\n")
    if samples:
        (folder / "samples.txt").write_text(samples)
        made = subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "samples.txt"), str(data)], capture_output=True, text=True
        )
        assert made.returncode == 0, made.stderr
    (port,) = free_ports(1)
    command = [
        "prometheus", f"--config.file={settings}", f"--storage.tsdb.path={data}", f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.retention.time=100y",
    ]  # fmt: skip
    if web:
        (folder / "web.yml").write_text(web)
        command.append(f"--web.config.file={folder / 'web.yml'}")
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)
    found = Prometheus(f"{'https' if web else 'http'}://127.0.0.1:{port}", process, log)
    try:
        found.until("Prometheus is ready", lambda: process.poll() is not None or _answers(found.url, port, bool(web)))
        assert process.poll() is None, log.read_text()
        yield found
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str, port: int, web: bool) -> bool:
    try:
        if web:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return True
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class Exporter:
    """One process that answers for several nodes, as `/metrics?node=<name>`: what `say` returns for that node."""

    def __init__(self, say: Callable[[str], str | None]) -> None:
        self.say = say

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                node = urllib.parse.parse_qs(urllib.parse.urlsplit(handler.path).query).get("node", [""])[0]
                text = self.say(node)
                with contextlib.suppress(ConnectionError):
                    handler.send_response(200 if text is not None else 503)
                    handler.send_header("Content-Type", "text/plain; version=0.0.4")
                    handler.end_headers()
                    handler.wfile.write((text or "").encode())

            def log_message(handler, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def scraped(self, *nodes: str) -> str:
        """Prometheus' configuration: one target a node, whose samples have `instance` = the node's name."""
        jobs = []
        for node in nodes:
            labels = {"instance": node, "__param_node": node}
            jobs.append({"targets": [self.address], "labels": labels})
        job = {"job_name": "node", "scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "static_configs": jobs}
        return json.dumps({"scrape_configs": [job]})


@contextlib.contextmanager
def exporter(say: Callable[[str], str | None]) -> Iterator[Exporter]:
    made = Exporter(say)
    try:
        yield made
    finally:
        made.close()


def lines(name: str, kind: str, samples: list[tuple[dict[str, str], float]]) -> str:
    """One family in the text format."""
    rows = [f"# TYPE {name} {kind}"]
    for labels, value in samples:
        said = ",".join(f'{key}="{value}"' for key, value in labels.items())
        rows.append(f"{name}{{{said}}} {value!r}")
    return "\n".join(rows) + "\n"
