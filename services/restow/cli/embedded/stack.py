"""`Stack`: nats-server, kubesim and the five services, started in order, supervised, and stopped without a trace. Or what observes a cluster of somebody
else's (`restow watch`): nats-server, cluster_watcher and the planner, whose log stays."""

import asyncio
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from restow.cli.embedded import configs
from restow.cli.embedded.child import Child, ChildFailed
from restow.cli.embedded.outside import OutsideError, install
from restow.cli.failures import cannot_be_used
from restow.contracts.ids import SERVICES
from restow.eventlog.port import LogError
from restow.eventlog.server import NatsServer, ServerError

CLUSTER = "embedded"
PERMISSIONS = "permissions.conf"
USERS = (*SERVICES, "console", "cli", "operator")
"""Of the broker: other processes of this machine may neither write the log nor read it."""
BROKER_TRIES = 10
BROKER_LOOK = 0.2
"""Seconds between looks at the broker's process."""

READY_TIMEOUT = 60.0
"""Seconds until all services must be ready."""

OBSERVE_TIMEOUT = 900.0
"""The same where the cluster is somebody's real one: it may have to list half a million pods first."""
FORBIDDEN, FORBIDDEN_TIMEOUT = "Status403", 20.0
"""What a service says of a collection that it may not read; and for how long it is waited for a right."""

MANAGED = ("nats", "archive", "logs", "run")
"""Folders that a stack makes and removes."""
OBSERVERS: tuple[str, ...] = ("cluster_watcher", "descheduler")
"""Services that say what plans would win, and need to write nothing for it."""


class StackError(Exception):
    """The stack could not start or run. Says which part, and where its log is."""


class StackRefused(StackError):
    """What it was given cannot be used: a configuration, an object, a port, a folder."""


def crds() -> list[Path]:
    """The CRDs that ship with Restow: beside the checkout, or inside the installed package."""
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "crds", here.parents[4] / "deploy" / "crds"):
        found = sorted(p for p in folder.glob("*.yaml") if p.name != "kustomization.yaml")
        if found:
            return found
    raise StackError("the CRDs (deploy/crds) were not found beside this installation; reinstall Restow")


def permissions() -> Path:
    """Who may do what at the broker: the same file that a cluster's broker has."""
    here = Path(__file__).resolve()
    for file in (here.parents[1] / "nats" / "permissions.conf", here.parents[4] / "deploy" / "nats" / "permissions.conf"):
        if file.is_file():
            return file
    raise StackError("the broker's permissions (deploy/nats/permissions.conf) were not found beside this installation; reinstall Restow")


def others() -> list[Path]:
    """Definitions that clusters have from elsewhere and kubesim only from here."""
    return sorted((crds()[0].parent / "embedded").glob("*.yaml"))


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
        self.folder = folder.resolve()
        self._configs = {"descheduler": policy, "scheduler_session": scheduler}
        self._objects = [*crds(), *others(), *objects]
        self._nodes = list(nodes)
        self._port = port
        self._keep, self._save = keep, save
        self._stood = False
        self.saved: Path | None = None
        self.rescued: Path | None = None
        """The log of the stack before, where that was killed."""
        self._kubelet_speed, self._seed = kubelet_speed, seed
        self._log_level = log_level
        self._shown, self._console_port = console, 0
        self._observes, self._services = observe, OBSERVERS if observe else tuple(SERVICES)
        self._passwords = {user: "p" + secrets.token_hex(24) for user in USERS}
        self._broker = NatsServer(
            self.folder / "nats",
            extra=f"include {PERMISSIONS}",
            environment={f"RESTOW_NATS_{user.upper()}_PASSWORD": password for user, password in self._passwords.items()},
        )
        self._keeper: asyncio.Task[None] | None = None
        self._lock = -1
        self.children: dict[str, Child] = {}
        self.failed: asyncio.Future[None] | None = None
        self.outside = bool(kube)
        self._accounts = Path(kube).resolve() if kube and Path(kube).is_dir() else None
        if self._accounts is not None:
            kube = str(self._accounts / "admin.yaml")
        self.kube = kube if kube.startswith(("http://", "https://")) or not kube else str(Path(kube).resolve())

    @property
    def nats(self) -> str:
        """The broker's address for whoever only reads, password and all: never to be printed."""
        return self.nats_as("cli")

    def nats_as(self, user: str) -> str:
        """The broker's address for one of its users, password and all: never to be printed."""
        return self._broker.url.replace("nats://", f"nats://{user}:{self._passwords[user]}@")

    @property
    def nats_file(self) -> Path:
        """Where the CLI finds that address. Only its owner may read it: whoever may has read access to the log."""
        return self.folder / "run" / "nats.url"

    @property
    def operator_file(self) -> Path:
        """The same for whoever repairs the log."""
        return self.folder / "run" / "operator.url"

    @property
    def address(self) -> str:
        """The broker's address, without a password."""
        return self._broker.url

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
        self._lock_folder()
        if self._save and self._logged():
            await self._rescue()
        self.rescued, self.saved = self.saved, None
        self._clean(but=self._lasts)
        for name in MANAGED:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if not self._observes:
            # Without a token nobody may change anything: there is nothing to be changed.
            _secret(self.token_file, secrets.token_urlsafe(32))
        self.failed = asyncio.get_running_loop().create_future()
        self._start_broker()
        self._keeper = asyncio.create_task(self._keep_broker(), name="supervise the broker")
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

    def _lock_folder(self) -> None:
        """One stack a folder. The lock is the kernel's: it goes with this process, however that ends."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise StackRefused(cannot_be_used(self.folder, error)) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._unlock_folder()
            raise StackRefused(f"a stack is running in {self.folder}{self._who()}; stop it (`restow down --data {self.folder}`), or use another --data folder") from None

    def _unlock_folder(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def token_file(self) -> Path:
        """The API's token: whoever may read this folder as its owner may move pods."""
        return self.folder / "run" / "api.token"

    @property
    def authorization(self) -> dict[str, str]:
        """The header that the API asks for."""
        return {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}

    def _who(self) -> str:
        try:
            return f" (process {int(json.loads((self.folder / 'stack.json').read_text())['pid'])})"
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def _start_broker(self) -> None:
        """In the main thread, so that the broker dies with this process."""
        try:
            self._broker.folder.mkdir(parents=True, exist_ok=True)
            text = permissions().read_text()
            (self._broker.folder / PERMISSIONS).write_text(text.replace("restow-main", f"restow-{CLUSTER}").replace("restow.main.", f"restow.{CLUSTER}."))
            self._broker.start()
        except (ServerError, OSError) as error:
            raise StackError(f"the broker did not start: {error}") from error

    async def _keep_broker(self) -> None:
        """Bring the broker back when it ends; its log stays. It has the same port again, so that everybody finds it."""
        tries = 0
        while True:
            await asyncio.sleep(BROKER_LOOK)
            if self._broker.pid is None:
                tries += 1
                try:
                    self._start_broker()
                    tries = 0
                except StackError as error:
                    # Its port may be taken for a moment: by a client of ours that has connected to itself.
                    if tries > BROKER_TRIES:
                        self._fail(error)
                        return

    @property
    def broker_pid(self) -> int | None:
        return self._broker.pid

    def kill_broker(self) -> None:
        """SIGKILL, as a crash; it comes back."""
        if self._broker.pid is not None:
            os.kill(self._broker.pid, signal.SIGKILL)

    @property
    def _lasts(self) -> str:
        """The folder that another such stack goes on with."""
        return "nats" if self._observes else ""

    def _clean(self, but: str = "") -> None:
        for name in MANAGED:
            if name != but:
                shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "stack.json").unlink(missing_ok=True)

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
            await install(self.kube, crds(), READY_TIMEOUT)
        except OutsideError as error:
            raise StackError(str(error)) from error

    async def _start_service(self, name: str) -> None:
        environment = {
            "RESTOW_CLUSTER": CLUSTER,
            "RESTOW_NATS_URL": self.address,
            "RESTOW_NATS_USER": name,
            "RESTOW_NATS_PASSWORD": self._passwords[name],
            "RESTOW_KUBE": self.kube if self._accounts is None else str(self._accounts / f"{name}.yaml"),
            "RESTOW_HTTP": "127.0.0.1:0",
            "RESTOW_HTTP_FILE": str(self.folder / "run" / f"{name}.http"),
            "RESTOW_DATA": str(self.folder / "archive"),
            "RESTOW_LOG_LEVEL": self._log_level,
            "RESTOW_IDENTITY": name.replace("_", "-"),
            "RESTOW_LEASE": "off",
            "RESTOW_READ_ONLY": "on" if self._observes else "off",
            # The services share a machine: pools of threads would only be in the way.
            "OPENBLAS_NUM_THREADS": "1",
            # What the user has set is for another place.
            "RESTOW_API_TOKEN": "",
            "RESTOW_ARCHIVE": "",
            "RESTOW_API_TOKEN_FILE": "" if self._observes else str(self.token_file),
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
        environment = {
            "RESTOW_CLUSTER": CLUSTER,
            "RESTOW_NATS_URL": self.address,
            "RESTOW_NATS_USER": "console",
            "RESTOW_NATS_PASSWORD": self._passwords["console"],
        }
        argv = [sys.executable, "-m", "restow.cli.main", "console", "--on-demand", "--port", str(self._console_port), "--archive", str(self._archive)]
        child = self.children["console"] = Child("console", argv, self.folder / "logs" / "console.log", environment, restart=True)
        await child.start()

    def _child(self, name: str, argv: list[str], environment: dict[str, str], *, restart: bool) -> Child:
        child = Child(
            name, argv, self.folder / "logs" / f"{name}.log", environment, restart=restart, on_failure=self._on_failure
        )
        self.children[name] = child
        return child

    def _on_failure(self, failure: ChildFailed) -> None:
        self._fail(StackRefused(str(failure)) if failure.refused else StackError(str(failure)))

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
        address = (self.folder / "run" / f"{name}.http").read_text().strip()
        return address if address.startswith("http") else f"http://{address}"

    async def ready(self) -> None:
        """Wait until every service says so. Raises StackError with the reasons of those that do not."""
        began, patience = asyncio.get_running_loop().time(), OBSERVE_TIMEOUT if self._observes else READY_TIMEOUT
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            for name in self._services:
                await self._appears(self.folder / "run" / f"{name}.http", self.children[name])
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

    @property
    def _archive(self) -> Path:
        """Where the garbage collector writes it."""
        return self.folder / "archive" / "archive" / CLUSTER

    def describe(self) -> dict[str, Any]:
        return {
            "cluster": CLUSTER,
            "nats": self.address,
            "nats_file": str(self.nats_file),
            "operator_file": str(self.operator_file),
            "kube": self.kube,
            "pid": os.getpid(),
            "archive": str(self.folder / "archive"),
            "logs": str(self.folder / "logs"),
            "services": {name: self.http(name) for name in self._services},
            "descheduler": self.http("descheduler"),
            "token_file": "" if self._observes else str(self.token_file),
            "console": self.console,
        }

    @property
    def kubeconfig(self) -> Path:
        """For kubectl: the simulated API asks for no credentials."""
        return self.folder / "run" / "kubeconfig"

    def _announce(self) -> None:
        if not self.outside:
            self.kubeconfig.write_text(configs.kubeconfig(self.kube))
        _secret(self.nats_file, self.nats)
        _secret(self.operator_file, self.nats_as("operator"))
        part = self.folder / "stack.json.part"
        part.write_text(json.dumps(self.describe(), indent=2) + "\n")
        part.replace(self.folder / "stack.json")

    def _logged(self) -> bool:
        """Whether the broker's store has any stream yet."""
        return any((self.folder / "nats").glob("**/streams/*/"))

    async def _rescue(self) -> None:
        self._start_broker()
        try:
            await self._save_log()
        finally:
            await self._broker.stop_async()

    async def _save_log(self) -> None:
        """Raises StackError, with the folder as it was, where the log cannot be written."""
        from restow.replay.source import open_broker, save

        file = self.folder / f"log-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl.zst"
        archive = self._archive

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
            self._keep = True
            raise StackError(f"the log could not be written to {file} ({error}); it is left in {self.folder / 'nats'}") from error

    async def stop(self) -> None:
        """Services first, then the API and the broker; then nothing is left running, and nothing in the folder but what
        `keep` and `save` ask for. Raises StackError where the log could not be saved."""
        if self._lock < 0:
            # Another stack's folder, or stopped already.
            return
        (self.folder / "stack.json").unlink(missing_ok=True)
        await asyncio.gather(*(child.stop() for name, child in self.children.items() if name != "kubesim"))
        if "kubesim" in self.children:
            await self.children["kubesim"].stop()
        if self._keeper is not None:
            self._keeper.cancel()
        unsaved: StackError | None = None
        if self._save and not self._keep and self._stood and self._logged():
            try:
                if self._broker.pid is None:
                    # It was killed, too: what it has stored is the log nevertheless.
                    self._start_broker()
                await self._save_log()
            except StackError as error:
                unsaved = error if self._keep else StackError(f"{error}; the log is left in {self.folder / 'nats'}")
                self._keep = True
        await self._broker.stop_async()
        crashed = False
        if self.failed is not None and not self.failed.cancel():
            failure = self.failed.exception()  # looked at, or asyncio prints it
            crashed = isinstance(failure, StackError) and not isinstance(failure, StackRefused)
        if not self._keep:
            # What is said about a process that crashed names its log.
            self._clean(but="logs" if crashed and self._save else self._lasts)
            if self.folder.exists() and not any(self.folder.iterdir()):
                self.folder.rmdir()
        self._unlock_folder()
        if unsaved is not None:
            raise unsaved


def _secret(path: Path, text: str) -> None:
    """A new file that only its owner may read."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w") as out:
        out.write(text + "\n")
