"""`Stack`: nats-server, kubesim and the five services, started in order, supervised, and stopped without a trace."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp

from restow.cli.embedded.child import Child, ChildFailed
from restow.eventlog.server import NatsServer

SERVICES = ("cluster_watcher", "scheduler_session", "reservation_cache", "descheduler", "garbage_collector")
CLUSTER = "embedded"
READY_TIMEOUT = 60.0
"""Seconds until all services must be ready."""

MANAGED = ("nats", "archive", "logs", "run")
"""Folders that a stack makes and removes."""


class StackError(Exception):
    """The stack could not start or run. Says which part, and where its log is."""


def crds() -> list[Path]:
    """The CRDs that ship with Restow: beside the checkout, or inside the installed package."""
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "crds", here.parents[4] / "deploy" / "crds"):
        found = sorted(p for p in folder.glob("*.yaml") if p.name != "kustomization.yaml")
        if found:
            return found
    raise StackError("the CRDs (deploy/crds) were not found beside this installation; reinstall Restow")


class Stack:
    """Everything in `folder`; nothing outside it. `policy` and `scheduler` are YAML texts for descheduler and session.

    `keep` leaves log and archive in the folder when it stops."""

    def __init__(
        self,
        folder: Path,
        *,
        policy: str,
        scheduler: str,
        objects: Iterable[Path] = (),
        nodes: Iterable[Path] = (),
        port: int = 0,
        keep: bool = False,
        kubelet_speed: float = 1.0,
        log_level: str = "info",
    ) -> None:
        self.folder = folder.resolve()
        self._configs = {"descheduler": policy, "scheduler_session": scheduler}
        self._objects = [*crds(), *objects]
        self._nodes = list(nodes)
        self._port = port
        self._keep = keep
        self._kubelet_speed = kubelet_speed
        self._log_level = log_level
        self._broker = NatsServer(self.folder / "nats")
        self.children: dict[str, Child] = {}
        self.failed: asyncio.Future[None] | None = None
        self.kube = ""

    @property
    def nats(self) -> str:
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
        """Raises StackError. What is in the folder from an earlier run is removed first (kubesim has no memory either)."""
        self._refuse_second()
        self._clean()
        for name in MANAGED:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.failed = asyncio.get_running_loop().create_future()
        self._broker.start()
        await self._start_kubesim()
        await asyncio.gather(*(self._start_service(name) for name in SERVICES))
        await self.ready()
        self._announce()

    def _refuse_second(self) -> None:
        running = self.folder / "stack.json"
        try:
            pid = json.loads(running.read_text())["pid"]
            os.kill(pid, 0)
        except (OSError, ValueError, KeyError):
            return
        if pid != os.getpid():
            raise StackError(f"a stack is running in {self.folder} (process {pid}); stop it, or use another --data folder")

    def _clean(self) -> None:
        for name in MANAGED:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "stack.json").unlink(missing_ok=True)

    async def _start_kubesim(self) -> None:
        port_file = self.folder / "run" / "kubesim.port"
        argv = [sys.executable, "-m", "restow.kubesim.main", "--port", str(self._port), "--port-file", str(port_file)]
        argv += ["--kubelet-speed", str(self._kubelet_speed)]
        for path in self._objects:
            argv += ["--apply", str(path)]
        for path in self._nodes:
            argv += ["--nodes-from", str(path)]
        child = self._child("kubesim", argv, {}, restart=False)
        await child.start()
        self.kube = f"http://127.0.0.1:{(await self._appears(port_file, child)).strip()}"

    async def _start_service(self, name: str) -> None:
        environment = {
            "RESTOW_CLUSTER": CLUSTER,
            "RESTOW_NATS_URL": self.nats,
            "RESTOW_KUBE": self.kube,
            "RESTOW_HTTP": "127.0.0.1:0",
            "RESTOW_HTTP_FILE": str(self.folder / "run" / f"{name}.http"),
            "RESTOW_DATA": str(self.folder / "archive"),
            "RESTOW_LOG_LEVEL": self._log_level,
            "RESTOW_IDENTITY": name.replace("_", "-"),
            "RESTOW_LEASE": "off",
        }
        if name in self._configs:
            path = self.folder / "run" / f"{name}.yaml"
            path.write_text(self._configs[name])
            environment["RESTOW_CONFIG"] = str(path)
        child = self._child(name, [sys.executable, "-m", f"restow.{name}.main"], environment, restart=True)
        await child.start()

    def _child(self, name: str, argv: list[str], environment: dict[str, str], *, restart: bool) -> Child:
        child = Child(
            name, argv, self.folder / "logs" / f"{name}.log", environment, restart=restart, on_failure=self._on_failure
        )
        self.children[name] = child
        return child

    def _on_failure(self, failure: ChildFailed) -> None:
        if self.failed is not None and not self.failed.done():
            self.failed.set_exception(StackError(str(failure)))

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
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            for name in SERVICES:
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
                    if asyncio.get_running_loop().time() > deadline:
                        child = self.children[name]
                        raise StackError(f"{name} is not ready: {last}; its log {child.log} ends with:\n{child.last_words()}")
                    await asyncio.sleep(0.02)

    def describe(self) -> dict[str, Any]:
        return {
            "cluster": CLUSTER,
            "nats": self.nats,
            "kube": self.kube,
            "pid": os.getpid(),
            "archive": str(self.folder / "archive"),
            "logs": str(self.folder / "logs"),
            "services": {name: self.http(name) for name in SERVICES},
            "descheduler": self.http("descheduler"),
        }

    def _announce(self) -> None:
        part = self.folder / "stack.json.part"
        part.write_text(json.dumps(self.describe(), indent=2) + "\n")
        part.replace(self.folder / "stack.json")

    async def stop(self) -> None:
        """Services first, then the API and the broker; then nothing is left running, and nothing in the folder but what
        `keep` asks for."""
        (self.folder / "stack.json").unlink(missing_ok=True)
        await asyncio.gather(*(child.stop() for name, child in self.children.items() if name != "kubesim"))
        if "kubesim" in self.children:
            await self.children["kubesim"].stop()
        await self._broker.stop_async()
        if self.failed is not None:
            self.failed.cancel()
        if not self._keep:
            self._clean()
            if self.folder.exists() and not any(self.folder.iterdir()):
                self.folder.rmdir()
