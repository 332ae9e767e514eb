"""`Stack`: nats-server, kubesim and the five services, started in order, supervised, and stopped without a trace. Or what observes a cluster of somebody
else's (`restow watch`): nats-server, cluster_watcher and the planner, whose log stays."""

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from restow.cli.embedded import configs, shipped
from restow.cli.embedded.broker import Broker
from restow.cli.embedded.child import Child, ChildFailed
from restow.cli.embedded.failures import StackError, StackRefused
from restow.cli.embedded.folder import CLUSTER, StackFolder, secret
from restow.cli.embedded.outside import OutsideError, install
from restow.contracts.ids import SERVICES
from restow.eventlog.port import LogError

READY_TIMEOUT = 60.0
"""Seconds until all services must be ready."""

OBSERVE_TIMEOUT = 900.0
"""The same where the cluster is somebody's real one: it may have to list half a million pods first."""
FORBIDDEN, FORBIDDEN_TIMEOUT = "Status403", 20.0
"""What a service says of a collection that it may not read; and for how long it is waited for a right."""

OBSERVERS: tuple[str, ...] = ("cluster_watcher", "descheduler")
"""Services that say what plans would win, and need to write nothing for it."""


class Stack:
    """Everything in `folder`; nothing outside it. `policy` and `scheduler` are YAML for descheduler and session: a text, or a
    file, whose later changes are used, too.

    `keep` leaves log, archive and service logs in the folder when it stops; `save` leaves the log of a stack that stood, in one
    sealed file (`saved`), and the services' logs of one that failed. `kube` is the URL of a Kubernetes API or the path of a
    kubeconfig: then no kubesim is started, and that API gets the CRDs that it lacks and nothing else. It may also be a folder
    with a kubeconfig for each service, `<service>.yaml`, and `admin.yaml` for the CRDs and the CLI: each has its own rights then.
    `console`: whether to show it in a browser, too. `observe`: nothing is made at that API, and nothing is ever sent to it but GET; the log stays in the folder,
    and another such stack goes on with it."""

    def __init__(
        self,
        folder: Path,
        *,
        policy: str | Path,
        scheduler: str | Path,
        objects: Iterable[Path] = (),
        nodes: Iterable[Path] = (),
        port: int = 0,
        keep: bool = False,
        save: bool = False,
        kubelet_speed: float = 1.0,
        seed: int | None = None,
        log_level: str = "info",
        kube: str = "",
        console: bool = False,
        observe: bool = False,
    ) -> None:
        self.files = StackFolder(folder)
        self._configs = {"descheduler": policy, "scheduler_session": scheduler}
        self._objects = [*shipped.crds(), *shipped.others(), *objects]
        self._nodes = list(nodes)
        self._port = port
        self._keep, self._save = keep, save
        self._stood = False
        self._theirs = False
        """Whether what is in the folder is of the stack before: its log, of which there is no other copy yet."""
        self.says: Callable[[str], None] = lambda said: None
        """Called with what whoever runs it has to know. May raise OSError: where that goes to a file, its disk may be the one that is full."""
        self.saved: Path | None = None
        self.rescued: Path | None = None
        """The log of the stack before, where that was killed."""
        self._kubelet_speed, self._seed = kubelet_speed, seed
        self._log_level = log_level
        self._shown, self._console_port = console, 0
        self._observes, self._services = observe, OBSERVERS if observe else tuple(SERVICES)
        self._broker = Broker(self.files.nats)
        self._keeper: asyncio.Task[None] | None = None
        self.children: dict[str, Child] = {}
        self.failed: asyncio.Future[None] | None = None
        self.outside = bool(kube)
        self._accounts = Path(kube).resolve() if kube and Path(kube).is_dir() else None
        if self._accounts is not None:
            kube = str(self._accounts / "admin.yaml")
        self.kube = kube if kube.startswith(("http://", "https://")) or not kube else str(Path(kube).resolve())

    @property
    def folder(self) -> Path:
        return self.files.path

    @property
    def nats(self) -> str:
        """The broker's address for whoever only reads, password and all: never to be printed."""
        return self._broker.address_of("cli")

    @property
    def address(self) -> str:
        """The broker's address, without a password."""
        return self._broker.address

    @property
    def broker_pid(self) -> int | None:
        return self._broker.pid

    def kill_broker(self) -> None:
        """SIGKILL, as a crash; it comes back."""
        self._broker.kill()

    @property
    def cluster(self) -> str:
        return CLUSTER

    async def __aenter__(self) -> "Stack":
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Raises StackError. What is in the folder from an earlier run is removed first (kubesim has no memory either); the log of
        one that was killed is saved before, where this one is to be."""
        self.files.lock()
        if self._save and self.files.has_log:
            self._theirs = True
            await self._rescue()
            self._theirs = False
        self.rescued, self.saved = self.saved, None
        self.files.clean(but=self._lasts)
        self.files.make()
        if not self._observes:
            # Without a token nobody may change anything: there is nothing to be changed.
            secret(self.files.token_file, secrets.token_urlsafe(32))
        self.failed = asyncio.get_running_loop().create_future()
        self._broker.start()
        self._keeper = asyncio.create_task(self._broker.keep(self._fail, self._say), name="supervise the broker")
        if self._observes:
            pass
        elif self.outside:
            await self._join()
        else:
            await self._start_kubesim()
        await asyncio.gather(*(self._start_service(name) for name in self._services))
        await self.ready()
        if self._shown:
            await self._start_console()
        self._stood = True
        self._announce()

    @property
    def authorization(self) -> dict[str, str]:
        """The header that the API asks for."""
        return {"Authorization": f"Bearer {self.files.token_file.read_text().strip()}"}

    @property
    def _lasts(self) -> str:
        """The folder that another such stack goes on with."""
        return "nats" if self._observes else ""

    async def _start_kubesim(self) -> None:
        port_file = self.folder / "run" / "kubesim.port"
        argv = [sys.executable, "-m", "restow.kubesim.main", "--port", str(self._port), "--port-file", str(port_file)]
        argv += ["--kubelet-speed", str(self._kubelet_speed)]
        argv += ["--seed", str(self._seed)] if self._seed is not None else []
        for path in self._objects:
            argv += ["--apply", str(path)]
        for path in self._nodes:
            argv += ["--nodes-from", str(path)]
        child = self._child("kubesim", argv, {}, restart=False)
        await child.start()
        self.kube = f"http://127.0.0.1:{(await self._appears(port_file, child)).strip()}"

    async def _join(self) -> None:
        try:
            await install(self.kube, shipped.crds(), READY_TIMEOUT)
        except OutsideError as error:
            raise StackError(str(error)) from error

    async def _start_service(self, name: str) -> None:
        environment = self._broker.environment_of(name) | {
            "RESTOW_KUBE": self.kube if self._accounts is None else str(self._accounts / f"{name}.yaml"),
            "RESTOW_HTTP": "127.0.0.1:0",
            "RESTOW_HTTP_FILE": str(self.files.http_file(name)),
            "RESTOW_DATA": str(self.files.data),
            "RESTOW_LOG_LEVEL": self._log_level,
            "RESTOW_IDENTITY": name.replace("_", "-"),
            "RESTOW_LEASE": "off",
            "RESTOW_READ_ONLY": "on" if self._observes else "off",
            # The services share a machine: pools of threads would only be in the way.
            "OPENBLAS_NUM_THREADS": "1",
            # What the user has set is for another place.
            "RESTOW_API_TOKEN": "",
            "RESTOW_ARCHIVE": "",
            "RESTOW_API_TOKEN_FILE": "" if self._observes else str(self.files.token_file),
        }
        if name in self._configs:
            config = self._configs[name]
            path = config if isinstance(config, Path) else self.folder / "run" / f"{name}.yaml"
            if isinstance(config, str):
                path.write_text(config)
            environment["RESTOW_CONFIG"] = str(path.resolve())
        child = self._child(name, [sys.executable, "-m", "restow.runtime.main", name], environment, restart=True)
        await child.start()

    @property
    def console(self) -> str:
        """The console's address; empty where there is none."""
        return f"http://127.0.0.1:{self._console_port}" if self._console_port else ""

    async def _start_console(self) -> None:
        """It reads the log once somebody looks. What becomes of it is no concern of the stack."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            # The same after a restart: somebody's browser is there.
            self._console_port = free.getsockname()[1]
        argv = [sys.executable, "-m", "restow.cli.main", "console", "--on-demand", "--port", str(self._console_port), "--archive", str(self.files.archive)]
        child = self.children["console"] = Child("console", argv, self.files.log("console"), self._broker.environment_of("console"), restart=True)
        await child.start()

    def _child(self, name: str, argv: list[str], environment: dict[str, str], *, restart: bool) -> Child:
        child = Child(name, argv, self.files.log(name), environment, restart=restart, on_failure=self._on_failure, on_restart=self._say)
        self.children[name] = child
        return child

    def _on_failure(self, failure: ChildFailed) -> None:
        self._fail(StackRefused(str(failure)) if failure.refused else StackError(str(failure)))

    def _say(self, said: str) -> None:
        with suppress(OSError):
            self.says(said)

    def _fail(self, error: StackError) -> None:
        if self.failed is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _appears(self, path: Path, child: Child) -> str:
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT
        while asyncio.get_running_loop().time() < deadline:
            if path.exists() and (text := path.read_text()):
                return text
            if self.failed is not None and self.failed.done():
                self.failed.result()
            await asyncio.sleep(0.01)
        raise StackError(f"{child.name} was not up within {READY_TIMEOUT:g} s; its log {child.log} ends with:\n{child.last_words()}")

    def http(self, name: str) -> str:
        """Base URL of a service's HTTP address; a restarted one has a new one."""
        address = self.files.http_file(name).read_text().strip()
        return address if address.startswith("http") else f"http://{address}"

    async def ready(self) -> None:
        """Wait until every service says so. Raises StackError with the reasons of those that do not."""
        began, patience = asyncio.get_running_loop().time(), OBSERVE_TIMEOUT if self._observes else READY_TIMEOUT
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            for name in self._services:
                await self._appears(self.files.http_file(name), self.children[name])
                last = ""
                while True:
                    if self.failed is not None and self.failed.done():
                        self.failed.result()
                    try:
                        async with session.get(f"{self.http(name)}/readyz") as answer:
                            last = await answer.text()
                            if answer.status == 200:
                                break
                    except (aiohttp.ClientError, TimeoutError, OSError) as error:
                        last = str(error)
                    waited = asyncio.get_running_loop().time() - began
                    if waited > patience or (self._observes and FORBIDDEN in last and waited > FORBIDDEN_TIMEOUT):
                        child = self.children[name]
                        raise StackError(f"{name} is not ready: {last}; its log {child.log} ends with:\n{child.last_words()}")
                    await asyncio.sleep(0.02)

    def describe(self) -> dict[str, Any]:
        return {
            "cluster": CLUSTER,
            "nats": self.address,
            "nats_file": str(self.files.nats_file),
            "operator_file": str(self.files.operator_file),
            "kube": self.kube,
            "pid": os.getpid(),
            "archive": str(self.files.data),
            "logs": str(self.folder / "logs"),
            "services": {name: self.http(name) for name in self._services},
            "descheduler": self.http("descheduler"),
            "token_file": "" if self._observes else str(self.files.token_file),
            "console": self.console,
        }

    def _announce(self) -> None:
        if not self.outside:
            self.files.kubeconfig.write_text(configs.kubeconfig(self.kube))
        secret(self.files.nats_file, self.nats)
        secret(self.files.operator_file, self._broker.address_of("operator"))
        self.files.show(self.describe())

    async def _rescue(self) -> None:
        try:
            self._broker.start()
            await self._save_log()
        except StackError as error:
            raise StackError(f"{error}; the log of the stack before is left in {self.files.nats}: run this again once that is mended, use another --data folder, or give the log up with --delete-log") from error
        finally:
            await self._broker.stop()

    async def _save_log(self) -> None:
        """Raises StackError where the log cannot be written."""
        from restow.replay.source import open_broker, save

        file = self.folder / f"log-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl.zst"
        archive = self.files.archive

        def write() -> bool:
            source = open_broker(self.nats, CLUSTER, archive=archive if any(archive.glob("*.jsonl.zst")) else None)
            try:
                if source.last >= source.first:
                    save(source, file)
                return source.last >= source.first
            finally:
                source.close()

        try:
            if await asyncio.to_thread(write):
                self.saved = file
        except (LogError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise StackError(f"the log could not be written to {file} ({why})") from error

    async def stop(self) -> None:
        """Services first, then the API and the broker; then nothing is left running, and nothing in the folder but what
        `keep` and `save` ask for. Raises StackError where the log could not be saved."""
        if not self.files.locked:
            # Another stack's folder, or stopped already.
            return
        self.files.hide()
        await asyncio.gather(*(child.stop() for name, child in self.children.items() if name != "kubesim"))
        if "kubesim" in self.children:
            await self.children["kubesim"].stop()
        if self._keeper is not None:
            self._keeper.cancel()
        unsaved: StackError | None = None
        if self._save and not self._keep and self._stood and self.files.has_log:
            try:
                if self._broker.pid is None:
                    # It was killed, too: what it has stored is the log nevertheless.
                    self._broker.start()
                await self._save_log()
            except StackError as error:
                unsaved = StackError(f"{error}; the log is left in {self.files.nats}, from where the next `restow up` of this folder takes it")
                self._keep = True
        await self._broker.stop()
        crashed = False
        if self.failed is not None and not self.failed.cancel():
            failure = self.failed.exception()  # looked at, or asyncio prints it
            crashed = isinstance(failure, StackError) and not isinstance(failure, StackRefused)
        if not self._keep and not self._theirs:
            # What is said about a process that crashed names its log.
            self.files.clean(but="logs" if crashed and self._save else self._lasts)
            self.files.remove_if_empty()
        self.files.unlock()
        if unsaved is not None:
            raise unsaved
