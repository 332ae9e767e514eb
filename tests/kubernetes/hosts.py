"""A kubelet for Restow's own pods: what each is to run runs here as a process, at an address of its own, with the environment, the files and the account that its spec gives it.
So Deployments roll, Leases go from pod to pod, and `restow doctor` asks them through the API, as on a cluster.

`images`: which Python runs an image, by the image's tag."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.lab import DEPLOY, NAMESPACE, Lab, own
from kubernetes.services import POLICY
from kubernetes.test_chart import helm
from kubernetes.world import World, path_of
from kubesim.conformance.harness import STRATEGIC

from restow.contracts.ids import SERVICES
from restow.eventlog.server import die_with_parent, find_binary

Obj = dict[str, Any]
NODES = ("host-0", "host-1")
HERE = {"kubelets": "kwok"}
"""A label of these nodes, which `kubelets` leaves alone."""
ONLY = {"key": "hosts", "value": "restow", "effect": "NoSchedule"}
"""Their taint: nothing else runs here."""
BROKER = "restow-nats-0"
LOOK = 0.25
"""Seconds between two looks at who is ready."""
PREFIX = f"10.{os.getpid() % 100 + 100}"
"""Of the addresses, on this machine's loopback: no API server asks 127.0.0.1. Those who test at the same time have others."""
CHART = str(DEPLOY / "chart")
VALUES = (
    "--set", "defaults.nodeSelector.kubelets=kwok,nats.nodeSelector.kubelets=kwok,console.enabled=false,beside.enabled=true",
    "--set", "garbageCollector.storage.accessMode=ReadWriteMany",
    *(word for whose in ("defaults", "nats") for word in ("--set-json", f"{whose}.tolerations={json.dumps([ONLY])}")),
)  # fmt: skip
"""Two of the collector, too, which share an archive."""
TWO = dict.fromkeys(SERVICES, 2)


def bare(tmp_path_factory: pytest.TempPathFactory, name: str) -> contextlib.AbstractContextManager[Lab]:
    """A control plane of a file's own. Skips, and says so, where this cannot be had."""
    if not _may_add_addresses():
        pytest.skip("pods have addresses of their own on this machine's loopback, which only root may add")
    if not (Path(os.environ.get("KUBEBUILDER_ASSETS", "")) / "helm").exists():
        pytest.skip("KUBEBUILDER_ASSETS lacks helm: HELM=1 tests/kubernetes/build.sh builds it")
    return own(tmp_path_factory, name)


def _may_add_addresses() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None and ip("add", f"{PREFIX}.255.254") and ip("del", f"{PREFIX}.255.254")


def ip(what: str, address: str) -> bool:
    return subprocess.run(["ip", "addr", what, f"{address}/32", "dev", "lo"], capture_output=True).returncode == 0


@dataclass
class Host:
    """One pod. When (ns since the epoch) it was ready first (`since`), told to end (`told`), and had ended; 0 until then."""

    pod: Obj
    address: str
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    ready: bool = False
    since: int = 0
    told: int = 0
    ended: int = 0

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def app(self) -> str:
        return str(self.pod["metadata"]["labels"]["app.kubernetes.io/name"])

    @property
    def service(self) -> str:
        return self.app.removeprefix("restow-").replace("-", "_")

    @property
    def url(self) -> str:
        return f"http://{self.address}:8080"


class Hosts:
    """`all`: by uid, also those that have gone."""

    def __init__(self, lab: Lab, world: World, folder: Path, images: Mapping[str, str] | None = None) -> None:
        self.lab, self.world, self.folder, self.images = lab, world, folder, images or {}
        self.all: dict[str, Host] = {}
        self.more: dict[str, dict[str, str]] = {}
        """By pod's name, or service: what its environment has beside."""
        self.environment: dict[str, dict[str, str]] = {}
        """By pod's name: of its process."""
        self._addresses = {BROKER: f"{PREFIX}.255.1"}
        self._tasks: set[asyncio.Task[None]] = set()
        self._accounts: dict[str, Path] = {}
        self._secrets: dict[str, dict[str, str]] = {}

    async def __aenter__(self) -> Hosts:
        self.folder.mkdir(exist_ok=True)
        for name in NODES:
            await self.world.node(name, gpus=0, labels=HERE, taints=[ONLY])
        self.world.told.append(self._told)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.world.told.remove(self._told)
        for host in self.all.values():
            host.ending.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for address in self._addresses.values():
            ip("del", address)

    # -- what a test asks ------------------------------------------------------------------------------------------------

    def alive(self, service: str = "") -> list[Host]:
        return [host for host in self.all.values() if not host.ended and service in ("", host.service)]

    def leader(self, service: str) -> Host | None:
        for host in self.alive(service):
            with contextlib.suppress(OSError, ValueError):
                if _asked(f"{host.url}/state").get("phase") == "leading":
                    return host
        return None

    def http(self, service: str) -> str:
        """Of who leads, as a Service of one's own would find it."""
        if (host := self.leader(service)) is None:
            raise OSError(f"nobody leads {service}")
        return host.url

    @property
    def cluster(self) -> str:
        return "main"

    service_url = http

    @property
    def announced(self) -> dict[str, str]:
        """As of a stack of `restow up`."""
        (file := self.folder / "nats.url").write_text(self.nats())
        return {"nats_file": str(file), "cluster": self.cluster}

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._secret('restow-descheduler-api')['token']}"}

    def nats(self, user: str = "cli") -> str:
        return f"nats://{user}:{self._secret('restow-nats')[user]}@{self._addresses[BROKER]}:4222"

    async def ready(self, counts: Mapping[str, int], seconds: float = 180) -> None:
        """So many pods of each service are ready, and no others are there."""

        def are() -> bool:
            return all(len(self.alive(service)) == count == sum(host.ready for host in self.alive(service)) for service, count in counts.items())

        for _ in range(int(seconds / LOOK)):
            if are():
                return
            await asyncio.sleep(LOOK)
        raise AssertionError(f"not within {seconds:g} s ready: {[(host.name, host.ready, self.log(host)[-600:]) for host in self.alive() if not host.ready]} of {[host.name for host in self.alive()]}")

    def log(self, host: Host) -> str:
        path = self.folder / f"{host.name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _secret(self, name: str) -> dict[str, str]:
        if name not in self._secrets:
            found = json.loads(self.lab.kubectl("-n", NAMESPACE, "get", "secret", name, "-o", "json"))["data"]
            self._secrets[name] = {key: base64.b64decode(value).decode() for key, value in found.items()}
        return self._secrets[name]

    # -- a pod's life ----------------------------------------------------------------------------------------------------

    def _told(self, kind: str, pod: Obj) -> None:
        meta = pod["metadata"]
        if meta["namespace"] != NAMESPACE or pod["spec"].get("nodeName") not in NODES:
            return
        if (host := self.all.get(meta["uid"])) is None:
            address = self._addresses.setdefault(meta["name"], f"{PREFIX}.{len(self._addresses) // 250}.{len(self._addresses) % 250 + 1}")
            host = self.all[meta["uid"]] = Host(pod, address)
            task = asyncio.get_running_loop().create_task(self._live(host))
            self._tasks.add(task)
        if kind == "DELETED" or meta.get("deletionTimestamp"):
            host.ending.set()

    async def _live(self, host: Host) -> None:
        await asyncio.to_thread(ip, "add", host.address)
        argv, environment = await asyncio.to_thread(self._program, host)
        self.environment[host.name] = environment
        looking: asyncio.Task[None] | None = None
        starts = 0
        while not host.ending.is_set():
            with (self.folder / f"{host.name}.log").open("ab") as log:
                host.process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=environment, preexec_fn=die_with_parent())
            await self._say(host, starts)
            looking = looking or asyncio.create_task(self._look(host))
            ends = asyncio.create_task(host.process.wait())
            told = asyncio.create_task(host.ending.wait())
            await asyncio.wait({ends, told}, return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
            if host.ending.is_set() and host.process.returncode is None:
                host.told = _now_ns()
                host.process.send_signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(ends), host.pod["spec"].get("terminationGracePeriodSeconds", 30))
                if host.process.returncode is None:
                    host.process.kill()
            await ends
            starts += 1
            if not host.ending.is_set():
                await asyncio.sleep(1)
        host.ended, host.ready = _now_ns(), False
        if looking is not None:
            looking.cancel()
        await self.world.api.call("DELETE", path_of(host.pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": host.pod["metadata"]["uid"]}})
        if host.name != BROKER:
            await asyncio.to_thread(ip, "del", host.address)

    async def _look(self, host: Host) -> None:
        """As the probe of readiness does."""
        url = f"http://{host.address}:8222/healthz?js-server-only=true" if host.name == BROKER else f"{host.url}/readyz"
        while True:
            ready = await asyncio.to_thread(_answers, url)
            if ready != host.ready:
                host.ready = ready
                host.since = host.since or _now_ns()
                await self._say(host)
            await asyncio.sleep(LOOK)

    async def _say(self, host: Host, restarts: int = 0) -> None:
        now, word = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), str(host.ready)
        conditions = [{"type": kind, "status": status, "lastTransitionTime": now} for kind, status in (("Initialized", "True"), ("PodScheduled", "True"), ("ContainersReady", word), ("Ready", word))]
        container = host.pod["spec"]["containers"][0]
        statuses = [{"name": container["name"], "image": container["image"], "imageID": container["image"], "ready": host.ready, "started": True, "restartCount": restarts, "state": {"running": {"startedAt": now}}}]
        status = {"phase": "Running", "startTime": now, "podIP": host.address, "podIPs": [{"ip": host.address}], "conditions": conditions, "containerStatuses": statuses}
        await self.world.api.call("PATCH", path_of(host.pod, "/status"), {"status": status}, media=STRATEGIC)

    # -- what it runs ----------------------------------------------------------------------------------------------------

    def _program(self, host: Host) -> tuple[list[str], dict[str, str]]:
        container = host.pod["spec"]["containers"][0]
        mounts = self._mounts(host, container)
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        for one in container.get("env") or ():
            environment[one["name"]] = self._here(host, self._value(host, one), mounts)
        environment |= self.more.get(host.service, {}) | self.more.get(host.name, {})
        if host.name == BROKER:
            (config,) = [folder for path, folder in mounts.items() if path == "/etc/nats"]
            return [str(find_binary()), "--config", str(config / "nats.conf")], environment
        environment["RESTOW_KUBE"] = str(self._account(host.pod["spec"]["serviceAccountName"].removeprefix("restow-")))
        python = self.images.get(container["image"].rpartition(":")[2], sys.executable)
        return [python, "-m", "restow.runtime.main", host.service], environment

    def _value(self, host: Host, one: Obj) -> str:
        if "value" in one or "valueFrom" not in one:
            return str(one.get("value", ""))
        if ref := one["valueFrom"].get("secretKeyRef"):
            return self._secret(ref["name"])[ref["key"]]
        return str({"metadata.name": host.name, "metadata.namespace": NAMESPACE}[one["valueFrom"]["fieldRef"]["fieldPath"]])

    def _here(self, host: Host, value: str, mounts: Mapping[str, Path]) -> str:
        for path, folder in mounts.items():
            value = f"{folder}{value.removeprefix(path)}" if value == path or value.startswith(f"{path}/") else value
        for name, address in self._addresses.items():
            value = value.replace(f"{name}.restow-nats.{NAMESPACE}.svc", address)
        return value.replace("0.0.0.0", host.address)

    def _mounts(self, host: Host, container: Obj) -> dict[str, Path]:
        """Path in the container → folder here."""
        volumes, found = {one["name"]: one for one in host.pod["spec"].get("volumes") or ()}, {}
        for mount in container.get("volumeMounts") or ():
            volume = volumes[mount["name"]]
            if claim := volume.get("persistentVolumeClaim"):
                folder = self.folder / "claims" / claim["claimName"]
            else:
                folder = self.folder / "volumes" / host.name / mount["name"]
            folder.mkdir(parents=True, exist_ok=True)
            found[mount["mountPath"]] = folder
        for mount in container.get("volumeMounts") or ():
            volume, folder = volumes[mount["name"]], found[mount["mountPath"]]
            files: dict[str, str] = {}
            if "configMap" in volume:
                files = json.loads(self.lab.kubectl("-n", NAMESPACE, "get", "configmap", volume["configMap"]["name"], "-o", "json"))["data"]
            elif "secret" in volume:
                files = self._secret(volume["secret"]["secretName"])
            for name, text in files.items():
                said = text.replace("0.0.0.0", host.address).replace('"/data"', f'"{found.get("/data")}"') if name.endswith("nats.conf") else text
                (folder / name).write_text(said)
        return found

    def _account(self, service: str) -> Path:
        if service not in self._accounts:
            self._accounts[service] = self.lab.kubeconfig(self.lab.account(service), f"host-{service}")
        return self._accounts[service]

    async def volumes(self) -> None:
        """For all claims that have none: there is no storage class here."""
        claims = json.loads(await asyncio.to_thread(self.lab.kubectl, "-n", NAMESPACE, "get", "pvc", "-o", "json"))["items"]
        for claim in claims:
            meta, spec = claim["metadata"], claim["spec"]
            body = {
                "metadata": {"name": meta["name"]},
                "spec": {
                    "capacity": {"storage": spec["resources"]["requests"]["storage"]}, "accessModes": spec["accessModes"], "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": str(self.folder / "claims" / meta["name"])}, "claimRef": {"namespace": NAMESPACE, "name": meta["name"], "uid": meta["uid"]},
                },
            }  # fmt: skip
            await self.world.api.call("POST", "/api/v1/persistentvolumes", body)


@contextlib.asynccontextmanager
async def installed(lab: Lab, world: World, folder: Path, images: Mapping[str, str] | None = None, more: dict[str, dict[str, str]] | None = None) -> AsyncIterator[Hosts]:
    """The chart, by Helm, and all its pods at work; then it is gone, with its log. `more`: `Hosts.more`."""
    policy = folder / "policy.json"
    policy.write_text(json.dumps({"descheduler": {"policy": yaml.safe_load(POLICY)}}))
    async with Hosts(lab, world, folder / "hosts", images) as hosts:
        hosts.more |= more or {}
        await asyncio.to_thread(helm, lab, "install", "restow", CHART, "--create-namespace", *VALUES, "--values", str(policy))
        await hosts.volumes()
        await hosts.ready(TWO)
        yield hosts
        await asyncio.to_thread(helm, lab, "uninstall", "restow", "--wait")
        await asyncio.to_thread(lab.kubectl, "delete", "namespace", NAMESPACE, "--timeout=80s")


def _asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=3) as answer:
        return json.load(answer)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=3) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def _now_ns() -> int:
    return int(datetime.now(UTC).timestamp() * 1e9)
