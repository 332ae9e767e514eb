"""`restow up` as a process, on the API under test: kubesim, kubesim without controllers, or what the environment names."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from checker import Report, check
from e2e.accounts import accounts
from e2e.puppet import Puppet
from kubesim.conformance.harness import (
    Target,
    apiserver,
    configured,
    from_kubeconfig,
    has_controllers,
    unique,
    write_kubeconfig,
)

from restow.cli.embedded import configs
from restow.cli.embedded.outside import install
from restow.cli.embedded.shipped import others

UP = 120.0
"""Seconds until a stack must be up: also where several start at once on a busy machine."""
CONFIGS = {"scheduler_session": "scheduler.yaml", "descheduler": "policy.yaml"}
"""Service → the file that `restow up` is given for it."""


@dataclass
class Running:
    """A stack that is up."""

    kind: str
    """kubesim, bare (kubesim without controllers), apiserver (envtest) or cluster."""
    folder: Path
    """Where `restow get`, `why` and the others find it."""
    target: Target
    kubectl: tuple[str, ...]
    """How kubectl is told where the API is."""
    announced: dict[str, Any] = field(default_factory=dict)
    puppet: Puppet | None = None
    killed: bool = False
    """For good, by the test."""
    deposed: set[str] = field(default_factory=set)
    """Services whose lead a test's own process takes meanwhile: theirs says so in its log."""

    @property
    def simulated(self) -> bool:
        """Whether the API is kubesim, which can be told to fail."""
        return self.kind in ("kubesim", "bare")

    def restow(self, *args: str, code: int = 0) -> str:
        """A CLI command in the stack's folder, run to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "restow.cli.main", *args], cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code, f"restow {' '.join(args)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def service(self, name: str, path: str = "/state") -> Any:
        """What a service answers; its address changes when it was restarted."""
        with urllib.request.urlopen(self.service_url(name) + path, timeout=30) as answer:
            return json.load(answer)

    def service_url(self, name: str) -> str:
        address = (self.folder / ".restow" / "run" / f"{name}.http").read_text().strip()
        return address if address.startswith("http") else f"http://{address}"

    @property
    def authorization(self) -> dict[str, str]:
        """What the descheduler's API asks for."""
        return {"Authorization": f"Bearer {(self.folder / '.restow' / 'run' / 'api.token').read_text().strip()}"}

    def judged(self) -> Report:
        """What the independent judge says of all that was ever logged (`tests/checker.py`). Tests delete pods whenever they like."""
        exported = self.folder / "judged.jsonl.zst"
        self.restow("log", "export", str(exported), "--force")
        return check(exported, deletions_after_plan=True)

    def log(self, name: str) -> str:
        return (self.folder / ".restow" / "logs" / f"{name}.log").read_text(errors="replace")

    @contextlib.contextmanager
    def configured(self, service: str, text: str) -> Iterator[None]:
        """The service with another configuration, as if its ConfigMap was edited; and back."""
        given = self.folder / CONFIGS[service]
        before = given.read_text()
        self._configure(service, text)
        try:
            yield
        finally:
            self._configure(service, before)

    def _configure(self, service: str, text: str) -> None:
        """Written, and taken."""
        if (self.folder / CONFIGS[service]).read_text() == text:
            return
        digest = self.service(service)["configured"]
        self.write(service, text)
        deadline = time.monotonic() + 30
        while self.service(service)["configured"] == digest:
            assert time.monotonic() < deadline, f"{service} did not take its new configuration: {self.log(service)[-2000:]}"
            time.sleep(0.05)

    def write(self, service: str, text: str) -> None:
        """In the file that `restow up` was given, and in the service's own copy where the stack made one."""
        given, copy = self.folder / CONFIGS[service], self.folder / ".restow" / "run" / f"{service}.yaml"
        for path in (given, *((copy,) if copy.exists() else ())):
            part = path.with_suffix(".part")
            part.write_text(text)
            part.replace(path)


def kinds() -> list[str]:
    """What the suite runs on here: what the environment names, else kubesim in both ways."""
    found = configured()
    if found is None:
        return ["kubesim", "bare"]
    return ["apiserver"] if found[0] == "assets" else ["cluster"]


@contextlib.contextmanager
def stack(kind: str) -> Iterator[Running]:
    """Up, until the end of the context; then everything is gone."""
    with contextlib.ExitStack() as scope:
        folder = Path(scope.enter_context(tempfile.TemporaryDirectory(prefix="restow-e2e-", ignore_cleanup_errors=True)))
        running = Running(kind, folder, Target("kubesim"), ())
        argv: list[str] = []
        match kind:
            case "kubesim":
                argv = ["--nodes", "0"]
            case "bare":
                url = scope.enter_context(_bare_kubesim(folder))
                if shutil.which("openssl"):
                    url = scope.enter_context(_tls(url, folder))
                running.target = _insecure(Target("kubesim", url, {"Authorization": f"Bearer {unique('t')}"}))
                argv = outside(running, write_kubeconfig(running.target, folder / "kubeconfig"))
            case "apiserver":
                found = configured()
                assert found is not None
                running.target = scope.enter_context(apiserver(found[1].resolve(), folder))
                kubeconfig = write_kubeconfig(running.target, folder / "kubeconfig")
                outside(running, kubeconfig)
                argv = ["--kube", str(accounts(running.target, folder / "accounts", kubeconfig))]
            case "cluster":
                found = configured()
                assert found is not None
                scope.enter_context(_alone(found[1]))
                running.target = from_kubeconfig(found[1])
                argv = outside(running, found[1].resolve())
        scope.enter_context(up(running, argv))
        if kind == "kubesim":
            running.target = Target("kubesim", running.announced["kube"])
            running.kubectl = ("--server", running.target.url)
        else:
            running.puppet = Puppet(running.target, controllers=kind != "cluster" or not has_controllers(running.target))
            running.puppet.start()
            scope.callback(running.puppet.stop)
        yield running


def outside(running: Running, kubeconfig: Path) -> list[str]:
    running.kubectl = ("--kubeconfig", str(kubeconfig))
    if running.kind != "cluster":
        # `restow up` gives an API of somebody else's only Restow's own definitions.
        asyncio.run(install(str(kubeconfig), others(), UP))
    return ["--kube", str(kubeconfig)]


@contextlib.contextmanager
def up(running: Running, argv: list[str], policy: str = "", scheduler: str = "") -> Iterator[None]:
    """`policy`: the descheduler's, and `scheduler`: the session's, by default those of the embedded stack."""
    folder = running.folder
    (folder / "scheduler.yaml").write_text(scheduler or configs.scheduler())
    (folder / "policy.yaml").write_text(policy or configs.policy())
    command = [
        sys.executable, "-m", "restow.cli.main", "up", *argv, "--data", str(folder / ".restow"), "--keep",
        "--scheduler-config", str(folder / "scheduler.yaml"), "--policy", str(folder / "policy.yaml"),
    ]  # fmt: skip
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        announcement = folder / ".restow" / "stack.json"
        deadline = time.monotonic() + UP
        while not announcement.exists():
            said = (folder / "up.log").read_text(errors="replace")
            assert process.poll() is None, f"restow up ended with {process.returncode}: {said}"
            assert time.monotonic() < deadline, f"restow up was not up within {UP:g} s: {said}"
            time.sleep(0.02)
        running.announced = json.loads(announcement.read_text())
        yield
        assert running.killed or process.poll() is None, f"restow up ended by itself: {(folder / 'up.log').read_text(errors='replace')}"
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    assert running.killed or process.returncode == 0, f"restow up ended with {process.returncode}: {(folder / 'up.log').read_text(errors='replace')}"
    # Unexpected answers are handled and logged; an exception that nobody handled is a bug, whatever the tests saw. So is a service that ended by itself, unless a test took its lead: nobody else leads here.
    for path in (folder / ".restow" / "logs").glob("*.log"):
        if path.stem == "kubesim":
            continue
        text = path.read_text(errors="replace")
        marks = ('"effect failed"', '"crashed"', "Traceback", '"cannot go on"') + (() if path.stem in running.deposed else ('"deposed"',))
        at = min((found for mark in marks if (found := text.find(mark)) >= 0), default=-1)
        # The whole line: what an exception says of itself is the end of its traceback.
        assert at < 0, f"{path.name}: {text[max(0, at - 300) : text.find(chr(10), at + 3000)]}"


@contextlib.contextmanager
def _bare_kubesim(folder: Path) -> Iterator[str]:
    port_file = folder / "kubesim.port"
    command = [sys.executable, "-m", "restow.kubesim.main", "--no-controllers", "--port-file", str(port_file)]
    with (folder / "kubesim.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + UP
        while not port_file.exists():
            assert process.poll() is None, (folder / "kubesim.log").read_text()
            assert time.monotonic() < deadline, "kubesim was not up in time"
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port_file.read_text().strip()}"
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def _tls(url: str, folder: Path) -> Iterator[str]:
    """A TLS front before a plain HTTP server, with a certificate of its own, as a kube-apiserver has one."""
    certificate, key = folder / "front.crt", folder / "front.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=kubesim", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    port = int(url.rpartition(":")[2])
    loop = asyncio.new_event_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except (OSError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner, outer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        for pair in ((reader, outer), (inner, writer)):
            task = loop.create_task(pump(*pair))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True, name="tls")
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def _insecure(target: Target) -> Target:
    if not target.url.startswith("https"):
        return target
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return replace(target, ssl=context)


@contextlib.contextmanager
def _alone(kubeconfig: Path) -> Iterator[None]:
    """One stack at a time on a cluster: the next worker waits until this one has finished its tests."""
    name = "".join(c if c.isalnum() else "-" for c in str(kubeconfig.resolve()))
    with (Path(tempfile.gettempdir()) / f"restow-e2e{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment() -> dict[str, str]:
    """For kubectl: without anybody's own configuration."""
    return {"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent"}
