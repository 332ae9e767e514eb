"""The command line on exported logs, as a user calls it."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from replay.handmade import migration

from restow.cli.main import cli
from restow.replay import exported

RESTOW = Path(sys.executable).with_name("restow")


def export(path, log):
    source = log.source()
    exported.write(path, log.records, first=1, last=source.last, log_id=source.log_id, cluster="test")
    return str(path)


class Api:
    """A Kubernetes API, as a user without a client calls it."""

    def __init__(self, url):
        self.url = url

    def call(self, method, path, body=None, kind="application/json"):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=180) as answer:
            return json.load(answer)


@contextmanager
def kubesim(folder, *options):
    """The URL of a process of its own, without controllers if nothing else is said."""
    port = folder / "port"
    command = [sys.executable, "-m", "restow.kubesim.main", *(options or ("--no-controllers",)), "--port-file", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not port.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port.read_text().strip()}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(autouse=True)
def no_stack(tmp_path, monkeypatch):
    """No test finds a stack, an address or a token that happens to be there; output is for a terminal of 100 columns."""
    monkeypatch.chdir(tmp_path)
    for name in ("RESTOW_NATS_URL", "RESTOW_CLUSTER", "RESTOW_DESCHEDULER", "RESTOW_API_TOKEN", "RESTOW_API_TOKEN_FILE", "RESTOW_KUBE", "RESTOW_SERVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def moved(tmp_path):
    """A log in which a pod is moved."""
    return export(tmp_path / "moved.jsonl.zst", migration())


@pytest.fixture
def restow():
    """Call a command in this process: `restow("get", "pods") -> result`; `result.said` is its output on one line."""

    def call(*arguments):
        result = CliRunner().invoke(cli, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.output
        result.said = " ".join(result.output.split())
        return result

    return call


@pytest.fixture
def as_json(restow):
    def call(*arguments):
        result = restow(*arguments, "-o", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.output)

    return call


@pytest.fixture
def process():
    """Call the installed command: `process("verify", file) -> CompletedProcess`."""

    def call(*arguments):
        return subprocess.run(
            [RESTOW, *arguments], capture_output=True, text=True, timeout=180, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"}
        )

    return call
