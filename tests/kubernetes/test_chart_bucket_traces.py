"""The chart with a bucket and with traces, installed on a real control plane; and processes with what its Deployments give them: the archive is in the bucket of a real S3
server, and a real collector has the spans."""

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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.kubelets import Kubelets
from kubernetes.lab import DEPLOY, Lab, own
from kubernetes.services import ended, known, migrate, services
from kubernetes.test_chart import ASIDE, SYSTEM, helm, place, running
from kubernetes.world import World, pod_spec
from s3_server import ACCESS, BINARY, SECRET, S3Server

from restow.eventlog.testing import free_ports

OTELCOL = shutil.which("otelcol")
pytestmark = pytest.mark.skipif(not (BINARY and OTELCOL), reason="needs versitygw and otelcol on the PATH: S3=1 OTEL=1 tests/kubernetes/build.sh FOLDER builds them")
COLLECTOR = "snapshotEvery: 20\nkeep: 20\nkeepBytes: 1048576\n"
"""Of the log so little is kept that it goes into the archive at once."""


@pytest.fixture(scope="module", name="cluster")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "bucket") as one:
        if not (one.assets / "helm").exists():
            pytest.skip("KUBEBUILDER_ASSETS lacks helm: HELM=1 tests/kubernetes/build.sh builds it")
        yield one


@pytest.fixture(scope="module", name="lab")
def bare_lab(cluster: Lab) -> Lab:
    return cluster


@pytest.fixture(scope="module", name="bucket")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3") / "data").start()
    server.bucket("restow-backups")
    yield server
    server.stop()


@pytest.fixture(scope="module", name="collector")
def otelcol(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder, port = tmp_path_factory.mktemp("otel"), free_ports(1)[0]
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"debug": {"verbosity": "detailed", "sampling_initial": 1_000_000}},
        "service": {"telemetry": {"metrics": {"level": "none"}}, "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["debug"]}}},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    with (said := folder / "said").open("wb") as out:
        process = subprocess.Popen([str(OTELCOL), "--config", str(folder / "config.yaml")], stdout=out, stderr=out)
    _until(lambda: "Everything is ready" in said.read_text(), "the collector is ready")
    yield f"http://127.0.0.1:{port}", said
    process.terminate()
    process.wait(30)


def _until(holds: Callable[[], Any], what: str, seconds: float = 90) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module", name="installed")
def by_helm(cluster: Lab, bucket: S3Server, collector: tuple[str, Path]) -> None:
    cluster.kubectl("create", "namespace", SYSTEM)
    cluster.kubectl("-n", SYSTEM, "create", "secret", "generic", "my-bucket", f"--from-literal=AWS_ACCESS_KEY_ID={ACCESS}", f"--from-literal=AWS_SECRET_ACCESS_KEY={SECRET}")
    archive = f"garbageCollector.archive.bucket=restow-backups,garbageCollector.archive.endpoint={bucket.url},garbageCollector.archive.existingSecret=my-bucket"
    helm(cluster, "install", "restow", str(DEPLOY / "chart"), "--set", archive, "--set", f"beside.enabled=true,traces.enabled=true,traces.endpoint={collector[0]}", *ASIDE)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/reservations.batch.volcano.sh")


def given(lab: Lab, name: str, *prefixes: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a Deployment's container, with what it has from Secrets; of the environment what begins so."""
    (container,) = json.loads(lab.kubectl("-n", SYSTEM, "get", "deployment", name, "-o", "json"))["spec"]["template"]["spec"]["containers"]
    found = {}
    for one in container["env"]:
        if not one["name"].startswith(prefixes):
            continue
        if "value" in one:
            found[one["name"]] = one["value"]
        else:
            of = one["valueFrom"]["secretKeyRef"]
            found[one["name"]] = base64.b64decode(json.loads(lab.kubectl("-n", SYSTEM, "get", "secret", of["name"], "-o", "json"))["data"][of["key"]]).decode()
    return container["command"], found


@pytest.fixture(scope="module", name="stack")
def with_what_the_chart_gives(cluster: Lab, installed: None, kubelets: Kubelets) -> Iterator[Running]:
    """Services that send their spans, and what sends those of the log."""
    command, traces = given(cluster, "restow-traces", "OTEL_")
    with pytest.MonkeyPatch.context() as patch:
        for service in ("scheduler-session", "descheduler"):
            for name, value in given(cluster, f"restow-{service}", "OTEL_")[1].items():
                patch.setenv(name, value)
        with services(cluster) as running:
            argv = [sys.executable, "-m", "restow.cli.main", *command[1:]]
            follower = subprocess.Popen(argv, cwd=running.folder, env=os.environ | traces, stdout=subprocess.PIPE, text=True)
            assert follower.stdout is not None
            assert follower.stdout.readline().startswith("following ")
            yield running
            follower.terminate()
            assert follower.wait(60) == 0


async def test_a_collector_has_one_trace_of_a_move_with_what_the_api_answered(stack: Running, world: World, collector: tuple[str, Path]) -> None:
    for name in ("a", "b"):
        await world.node(name)
    await place(world, "first")
    await running(world, "first")
    await world.workload("deployments", "web", 1, pod_spec(), 0.3)
    (moved,) = await running(world, "web", 1)
    await known(stack, [moved])
    one = await ended(stack, await migrate(stack, moved, {"a": "b", "b": "a"}[moved["spec"]["nodeName"]]))
    assert one["step"] == "landed", one

    def told() -> dict[str, set[str]]:
        """Trace → names of its spans."""
        traces: dict[str, set[str]] = {}
        trace = ""
        for line in collector[1].read_text().splitlines():
            key, _, value = line.strip().partition(":")
            if key.startswith("Trace ID ") and value.strip():
                trace = value.strip()
            elif key.startswith("Name ") and trace:
                traces.setdefault(trace, set()).add(value.strip())
        return traces

    of_the_move = {"plan MovePod", "evict", "land", "Evict", "POST pods/eviction"}
    of_a_pod = {"wait", "bind", "Bind", "POST pods/binding"}
    for wanted in (of_the_move, of_a_pod):
        await asyncio.to_thread(_until, lambda wanted=wanted: any(wanted <= names for names in told().values()), f"a trace with {wanted}")


@contextlib.contextmanager
def in_place_of(pid: int, environment: dict[str, str], said: Path) -> Iterator[None]:
    """Another collector of garbage, while that one stands still."""
    os.kill(pid, signal.SIGSTOP)
    with said.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "restow.runtime.main", "garbage_collector"], env=environment, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        os.kill(pid, signal.SIGCONT)
    assert process.returncode == 0, said.read_text()[-3000:]


def verified(archive: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "restow.cli.main", "log", "verify", "--log", archive]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)


async def test_the_archive_is_in_the_bucket(stack: Running, world: World, cluster: Lab, bucket: S3Server, tmp_path: Path) -> None:
    """Written by a collector with the Deployment's environment, in place of the stack's own, which is held meanwhile."""
    parent = int(json.loads((stack.folder / ".restow" / "stack.json").read_text())["pid"])
    children = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    (own_one,) = [pid for pid in children if "garbage_collector" in Path(f"/proc/{pid}/cmdline").read_text()]
    has = dict(part.split("=", 1) for part in Path(f"/proc/{own_one}/environ").read_text().split("\0") if "=" in part)
    _, chart = given(cluster, "restow-garbage-collector", "AWS_", "RESTOW_ARCHIVE")
    assert chart == bucket.environment() | {"RESTOW_ARCHIVE": "s3://restow-backups/restow"}
    (tmp_path / "collector.yaml").write_text(COLLECTOR)
    mine = {"RESTOW_CONFIG": str(tmp_path / "collector.yaml"), "RESTOW_HTTP_FILE": str(tmp_path / "http"), "RESTOW_DATA": "", "RESTOW_IDENTITY": "of-the-chart"}
    await world.node("a")
    stack.deposed.add("garbage_collector")
    with in_place_of(own_one, has | chart | mine, tmp_path / "said"):
        for number in range(12):
            await place(world, f"more-{number}")
            await running(world, f"more-{number}")
        folder = bucket.folder / "restow-backups"
        await asyncio.to_thread(_until, lambda: [path for path in folder.rglob("*") if path.is_file()], "something is in the bucket")
        whole = await asyncio.to_thread(verified, "s3://restow-backups/restow/embedded", os.environ | chart)
        assert whole.returncode == 0, whole.stdout + whole.stderr
        print(whole.stdout)
